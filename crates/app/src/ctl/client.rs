//! The side of `leat ctl`: asks, and shows what comes back. What can be asked is `command`'s.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::command::Command;

/// More than any question takes that is answered at all.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Who starts waits no longer for a leat that may have its socket.
const SERVED_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of an answer: ten thousand contents, and every metric of thousands of sites.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Asks the leat that listens at `socket`.
///
/// # Errors
/// It can't be reached, or says why it can't answer.
pub fn ask(socket: &Path, command: &Command) -> Result<Value, String> {
    ask_within(socket, command, TIMEOUT)
}

/// The same for somebody who waits no longer than this, however far it has come. No longer than [`ask`] in any case.
///
/// # Errors
/// As [`ask`], or the time is over.
pub fn ask_within(socket: &Path, command: &Command, time: Duration) -> Result<Value, String> {
    let time = time.min(TIMEOUT);
    let (told, answer) = mpsc::channel();
    let (path, command) = (socket.to_owned(), command.clone());
    // A connect waits without limit where nobody accepts and the queue is full, and a limit for each read is none for all of them. What still waits
    // when the time is over ends by its own timeout, or with the process.
    thread::spawn(move || told.send(converse(&path, &command)));
    answer.recv_timeout(time).unwrap_or_else(|_| {
        let tenths = (time.as_secs_f64() * 10.0).ceil() / 10.0;
        Err(format!("{}: there was no answer in {tenths} s", socket.display()))
    })
}

/// Whether a leat listens at `socket` that isn't about to end. Who can't say so in time is there all the same.
#[must_use]
pub fn is_served(socket: &Path) -> bool {
    let (told, found) = mpsc::channel();
    let path = socket.to_owned();
    thread::spawn(move || {
        let is_there = UnixStream::connect(&path).is_ok();
        let is_ending = || converse(&path, &Command::Status).is_ok_and(|status| status["draining"] == true);
        told.send(is_there && !is_ending())
    });
    found.recv_timeout(SERVED_WITHIN).unwrap_or(true)
}

fn converse(socket: &Path, command: &Command) -> Result<Value, String> {
    let wrong = |error: std::io::Error| {
        format!("{}: {error}; is leat running there, with `socket` in [admin]?", socket.display())
    };
    let mut stream = UnixStream::connect(socket).map_err(wrong)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(wrong)?;
    // Who can't be heard may have said why.
    let asked = stream.write_all(format!("{}\n", command.to_json()).as_bytes());
    let mut line = Vec::new();
    let heard = BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut line);
    if line.last() != Some(&b'\n') {
        return match asked.and(heard) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(format!("{}: there was no answer in {} s", socket.display(), TIMEOUT.as_secs()))
            }
            Err(error) => Err(wrong(error)),
            Ok(_) => Err(format!("{}: there was no whole answer", socket.display())),
        };
    }
    let answer: Value = serde_json::from_slice(&line).map_err(|error| format!("the answer isn't JSON: {error}"))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(error.to_owned()),
        None => Ok(answer),
    }
}

/// An answer for people, or whole, as JSON.
#[must_use]
pub fn show(answer: &Value, as_json: bool) -> String {
    match answer.get("text").and_then(Value::as_str) {
        Some(text) if !as_json => text.to_owned(),
        _ => format!("{answer}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::server::serve;
    use super::*;
    use serde_json::json;
    use std::os::unix::net::UnixListener;

    #[test]
    fn who_answers_half_is_told() {
        let socket = std::env::temp_dir().join(format!("leat-ctl-half-{}.sock", std::process::id()));
        let listener = UnixListener::bind(&socket).expect("the name is free");
        let answering = std::thread::spawn(move || {
            for said in ["", "{\"text\": \"hal"] {
                let (mut stream, _) = listener.accept().expect("somebody asks");
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).expect("a question");
                stream.write_all(said.as_bytes()).expect("it reads");
            }
        });
        for _ in 0..2 {
            let told = ask(&socket, &Command::Nodes).expect_err("it's no answer");
            assert!(told.ends_with("there was no whole answer"), "{told}");
        }
        answering.join().expect("both were answered");
        std::fs::remove_file(&socket).expect("it's there");
    }

    #[test]
    fn who_does_not_answer_is_waited_for_no_longer_than_asked() {
        let socket = std::env::temp_dir().join(format!("leat-ctl-still-{}.sock", std::process::id()));
        let _listener = UnixListener::bind(&socket).expect("the name is free");
        let began = std::time::Instant::now();
        let told = ask_within(&socket, &Command::Nodes, Duration::from_millis(120)).expect_err("it stands still");
        assert!(told.ends_with("there was no answer in 0.2 s"), "{told}");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        std::fs::remove_file(&socket).expect("it's there");
    }

    #[test]
    fn a_question_is_asked_and_answered_over_the_socket() {
        let socket = std::env::temp_dir().join(format!("leat-ctl-test-{}.sock", std::process::id()));
        std::fs::write(&socket, "somebody's").expect("it can be written");
        assert!(serve(&socket, |_| true).is_err(), "it would be lost");
        assert_eq!(std::fs::read(&socket).expect("it's there"), b"somebody's");
        std::fs::remove_file(&socket).expect("it's there");
        // As an earlier leat leaves it that was killed.
        drop(UnixListener::bind(&socket).expect("the name is free"));
        let told = ask(&socket, &Command::Nodes).expect_err("nobody listens");
        assert!(told.contains("is leat running there"), "{told}");
        let listening = serve(&socket, |question| {
            let answer = match &question.command {
                Command::Nodes => Ok(json!({ "text": "two\n", "nodes": 2 })),
                Command::Flows => return false,
                _ => Err("not here".to_owned()),
            };
            question.answer(answer);
            true
        })
        .expect("the socket can be made");
        let answer = ask(&socket, &Command::Nodes).expect("it answers");
        assert_eq!((show(&answer, false).as_str(), show(&answer, true).contains("\"nodes\":2")), ("two\n", true));
        assert_eq!(ask(&socket, &Command::Status), Err("not here".to_owned()));
        assert_eq!(ask(&socket, &Command::Flows), Err("leat is ending".to_owned()));
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream.write_all(b"{}\n\xff\n").expect("it reads");
        let lines: Vec<_> = BufReader::new(&stream).lines().take(2).map(|line| line.expect("an answer")).collect();
        assert!(lines.iter().all(|line| line.contains("\"error\"")), "{lines:?}");
        // As many as may be at once, of whom this is one.
        let let_in = |_| loop {
            let mut other = UnixStream::connect(&socket).expect("it listens");
            // Who asked before counts until its thread has ended: then this one is refused, and may find the connection closed.
            let _ = other.write_all(b"{}\n");
            let mut line = String::new();
            let _ = BufReader::new(&other).read_line(&mut line);
            if line.contains("\"error\"") && !line.contains("too many") {
                break other;
            }
        };
        let others: Vec<_> = (1..16).map(let_in).collect();
        assert_eq!(ask(&socket, &Command::Nodes), Err("too many are asking at once".to_owned()));
        drop((stream, others));
        drop(listening);
        assert!(!socket.exists());
    }
}
