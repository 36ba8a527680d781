//! A server behind caches, in the router's namespace: it has a folder's files, takes its time for each, for so many at once, counts what it's asked for,
//! and says of what is sent to it how much that was.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leat_host::lock::lock;
use leat_logic::http::CachedDate;
use leat_logic::time::UnixTime;

use super::{Lab, ROUTER};
use crate::sys::process;

/// The router's leg in the nodes' network.
pub(crate) const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 254)), 8000);
/// A head has no more.
const HEAD_BYTES_MAX: u64 = 16 << 10;
/// The processor of the thread that opens the listener; those that answer go where there is room.
const CORE: usize = 1;

/// Requests that are being answered, and how many may be at once.
struct Turns {
    busy: usize,
    at_once: usize,
}

struct Shared {
    root: PathBuf,
    pause_us: AtomicU64,
    turns: Mutex<Turns>,
    one_has_ended: Condvar,
    requests: AtomicU64,
    is_over: AtomicBool,
}

/// Ended when dropped; whoever asks it must have ended before.
pub(crate) struct Origin {
    shared: Arc<Shared>,
    namespace: PathBuf,
    accepting: Option<JoinHandle<()>>,
}

impl Origin {
    /// # Errors
    /// The address is taken.
    pub(crate) fn start(lab: &Lab, root: &Path) -> io::Result<Self> {
        let listener = lab.at(ROUTER, CORE, || TcpListener::bind(ADDRESS))?;
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            pause_us: AtomicU64::new(0),
            turns: Mutex::new(Turns { busy: 0, at_once: usize::MAX }),
            one_has_ended: Condvar::new(),
            requests: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let accepting = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if of_thread.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&of_thread);
                // Who asks may end in the middle of a reply.
                thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        Ok(Self { shared, namespace: lab.namespace(ROUTER), accepting: Some(accepting) })
    }

    /// Has it take so long for each request from now on, and for so many at once; the others wait for their turn.
    pub(crate) fn pause(&self, pause: Duration, at_once: usize) {
        self.shared.pause_us.store(pause.as_micros() as u64, Ordering::Relaxed);
        lock(&self.shared.turns).at_once = at_once;
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let namespace = self.namespace.clone();
        let woken =
            thread::spawn(move || process::enter_network(&namespace).and_then(|()| TcpStream::connect(ADDRESS)));
        // Where it can't be woken, the thread ends with the program.
        if matches!(woken.join(), Ok(Ok(_)))
            && let Some(accepting) = self.accepting.take()
        {
            let _ = accepting.join();
        }
    }
}

impl Shared {
    /// What a request takes.
    fn work(&self) {
        let turns = lock(&self.turns);
        let is_full = |turns: &mut Turns| turns.busy >= turns.at_once;
        self.one_has_ended.wait_while(turns, is_full).unwrap_or_else(PoisonError::into_inner).busy += 1;
        thread::sleep(Duration::from_micros(self.pause_us.load(Ordering::Relaxed)));
        lock(&self.turns).busy -= 1;
        self.one_has_ended.notify_one();
    }
}

/// Answers one connection's requests until it ends.
fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reading = BufReader::new(stream.try_clone()?);
    while let Some((method, path, body_bytes)) = read_head(&mut reading)? {
        shared.requests.fetch_add(1, Ordering::Relaxed);
        shared.work();
        if method == "POST" {
            let count = io::copy(&mut (&mut reading).take(body_bytes), &mut io::sink())?;
            let text = format!("{count} bytes\n");
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())?;
            continue;
        }
        match fs::File::open(shared.root.join(path.trim_start_matches('/'))) {
            Ok(mut file) => {
                let bytes = file.metadata()?.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nDate: {}\r\nContent-Length: {bytes}\r\nCache-Control: max-age=86400\r\n\r\n",
                    date()
                );
                stream.write_all(head.as_bytes())?;
                io::copy(&mut file, &mut stream)?;
            }
            Err(_) => stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?,
        }
    }
    Ok(())
}

/// Caches keep nothing of which they aren't told when it was said.
fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs().cast_signed());
    let date = CachedDate::new(UnixTime { seconds, nanoseconds: 0 });
    String::from_utf8_lossy(date.as_bytes()).into_owned()
}

/// Method, path and length of the content of the next request; none at the end.
fn read_head(reading: &mut impl BufRead) -> io::Result<Option<(String, String, u64)>> {
    let mut head = reading.take(HEAD_BYTES_MAX);
    let mut line = String::new();
    head.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let (method, path) = (method.to_owned(), path.to_owned());
    let mut body_bytes = 0;
    loop {
        line.clear();
        if head.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(':') {
            None if line.trim_end().is_empty() => return Ok(Some((method, path, body_bytes))),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                body_bytes = value.trim().parse().map_err(io::Error::other)?;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_one_after_the_other() {
        let mut text = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\ncontent-length: 12\r\n\r\n".as_slice();
        assert_eq!(read_head(&mut text).ok(), Some(Some(("GET".to_owned(), "/a".to_owned(), 0))));
        assert_eq!(read_head(&mut text).ok(), Some(Some(("POST".to_owned(), "/b".to_owned(), 12))));
        assert_eq!(read_head(&mut text).ok(), Some(None));
    }
}
