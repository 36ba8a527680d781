//! The socket: one question a line, one answer a line. Who answers is the caller's; a question that isn't one is answered here.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::command::Command;
use super::merge::merge;

/// Bytes of a line.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Connections at once; further ones are closed.
const CONNECTIONS_MAX: usize = 16;
/// After accepting has failed, for want of descriptors mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For a client to write its next question or read its answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// For a question to be answered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A question with the way back for its answer.
pub struct Question {
    /// What is asked.
    pub command: Command,
    /// Others that are asked the same.
    others: usize,
    reply: Sender<(usize, Result<Value, String>)>,
}

impl Question {
    /// Answers it. Whoever asked may have gone meanwhile.
    pub fn answer(self, answer: Result<Value, String>) {
        let _ = self.reply.send((self.others, answer));
    }

    /// The same question for so many, whose answers become one.
    pub fn split(self, count: usize) -> impl Iterator<Item = Question> {
        let others = count.saturating_sub(1);
        (0..count).map(move |_| Question { command: self.command.clone(), others, reply: self.reply.clone() })
    }
}

/// Why there is no answer, in words for whoever asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Whoever could answer doesn't, as it isn't what this leat does, or names what isn't there.
    Refused(String),
    /// Nobody could be asked.
    Unheard(String),
}

/// Has a command answered, and waits for that.
pub(super) fn put(command: &Command, ask: &impl Fn(Question) -> bool) -> Result<Value, Failure> {
    let (reply, answers) = mpsc::channel();
    if !ask(Question { command: command.clone(), others: 0, reply }) {
        return Err(Failure::Unheard("leat is ending".to_owned()));
    }
    let late = "there was no answer in time".to_owned();
    let (others, first) = answers.recv_timeout(ANSWER_TIMEOUT).map_err(|_| Failure::Unheard(late))?;
    // One that has ended meanwhile has nothing to say.
    let others = (0..others).map_while(|_| answers.recv_timeout(ANSWER_TIMEOUT).ok()).map(|(_, answer)| answer);
    merge(command, std::iter::once(first).chain(others).collect()).map_err(Failure::Refused)
}

/// A socket's place in the file system. It's gone with this, unless another has taken it since.
#[must_use]
pub struct Socket {
    path: PathBuf,
    inode: u64,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // Who was root when it was made may not be any more: then it stays, and says that nobody is there.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at `path`, in the place of a socket that stands there, for its owner alone; `ask` gets every question, on a thread of its
/// connection, and returns false when nobody answers any more.
///
/// # Errors
/// The socket can't be made.
pub fn serve(path: &Path, ask: impl Fn(Question) -> bool + Clone + Send + 'static) -> io::Result<Socket> {
    if fs::metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "what stands there is no socket"));
    }
    // Renamed into place, so that there is never a moment without a socket while a new engine takes over.
    let mut fresh = PathBuf::from(path).into_os_string();
    fresh.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let _ = fs::remove_file(&fresh);
    let listener = UnixListener::bind(&fresh)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))?;
    let inode = fs::symlink_metadata(&fresh)?.ino();
    fs::rename(&fresh, path)?;
    thread::Builder::new().name("ctl".into()).spawn(move || {
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // Who connects goes on waiting, and would wake this thread again at once.
                thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                // There is room for so little.
                let _ = (&stream).write_all(b"{\"error\":\"too many are asking at once\"}\n");
                continue;
            }
            let (ask, still_open) = (ask.clone(), open.clone());
            let started = thread::Builder::new().name("ctl client".into()).spawn(move || {
                // A client that goes in the middle is no failure of ours.
                let _ = converse(&stream, &ask);
                still_open.fetch_sub(1, Ordering::Relaxed);
            });
            if started.is_err() {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })?;
    Ok(Socket { path: path.to_owned(), inode })
}

fn converse(stream: &UnixStream, ask: &impl Fn(Question) -> bool) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        let answer = Command::from_json(&line).map_err(Failure::Refused).and_then(|command| put(&command, ask));
        let answer = answer.unwrap_or_else(|failure| {
            let (Failure::Refused(error) | Failure::Unheard(error)) = failure;
            json!({ "error": error })
        });
        let mut writer = stream;
        writer.write_all(format!("{answer}\n").as_bytes())?;
    }
}
