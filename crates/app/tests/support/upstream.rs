//! A server that a request is passed on to, as bad as a test wants it: it hands each connection to a function of the test.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::client::find;
use super::patience::PATIENCE;

/// See the module.
pub struct Upstream {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
}

/// One connection to it.
pub struct Conversation {
    pub stream: TcpStream,
    /// Its number, from 1.
    pub number: usize,
    kept: Vec<u8>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    /// Starts one that has `answer` deal with each connection, until the test's end.
    pub fn start(answer: impl Fn(&mut Conversation) + Send + Sync + 'static) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (accepted, heads) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let upstream = Upstream { address, accepted: accepted.clone(), heads: heads.clone() };
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let number = accepted.fetch_add(1, Ordering::SeqCst) + 1;
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let (answer, heads) = (answer.clone(), heads.clone());
                std::thread::spawn(move || answer(&mut Conversation { stream, number, kept: Vec::new(), heads }));
            }
        });
        upstream
    }

    /// One that answers every request with `reply`, on connections that stay.
    pub fn saying(reply: &'static str) -> Upstream {
        Upstream::start(move |conversation| {
            while conversation.head().is_some() {
                conversation.say(reply);
            }
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that were made to it.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Heads of the requests that it got.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

impl Conversation {
    /// The head of the next request; `None` at the connection's end.
    pub fn head(&mut self) -> Option<String> {
        let end = loop {
            if let Some(at) = find(&self.kept, b"\r\n\r\n") {
                break at + 4;
            }
            self.fill()?;
        };
        let head = String::from_utf8(self.kept.drain(..end).collect()).expect("text");
        self.heads.lock().unwrap().push(head.clone());
        Some(head)
    }

    /// So many bytes of content, framing included.
    pub fn content(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.kept.len() < bytes {
            self.fill()?;
        }
        Some(self.kept.drain(..bytes).collect())
    }

    /// Content up to the last chunk, framing included.
    pub fn chunks(&mut self) -> Option<Vec<u8>> {
        while !self.kept.ends_with(b"0\r\n\r\n") {
            self.fill()?;
        }
        Some(std::mem::take(&mut self.kept))
    }

    /// Says something; who has gone doesn't hear it.
    pub fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Ends the connection.
    pub fn end(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Says all back that comes, until leat ends its side.
    pub fn echo(&mut self) {
        loop {
            let kept = std::mem::take(&mut self.kept);
            self.say(kept);
            if self.fill().is_none() {
                return;
            }
        }
    }

    /// Waits for leat to end the connection.
    pub fn until_closed(&mut self) {
        while self.fill().is_some() {}
    }

    fn fill(&mut self) -> Option<()> {
        let mut piece = [0; 16 << 10];
        let count = self.stream.read(&mut piece).ok().filter(|&count| count > 0)?;
        self.kept.extend_from_slice(&piece[..count]);
        Some(())
    }
}
