//! Connections on their way from one engine to the next: what goes, and the threads that carry it, so that no worker waits for the other
//! process. What is said is `handoff::PassageMessage`'s to say; which connections go, and what is made of them, the workers'.

mod giver;
mod taker;

use std::os::fd::OwnedFd;
use std::sync::mpsc::{SendError, Sender};
use std::sync::{Arc, Mutex};

use leat_host::lock::lock;
use leat_logic::handoff::{FileState, Generation, ServerEnd, Verdict};

use crate::listener::ListenerName;
use crate::worker::control::Mailbox;

pub use giver::give;
pub use taker::take;

/// A connection that is in no worker: nobody reads or writes it.
#[derive(Debug)]
pub struct Passenger {
    /// Its socket.
    pub socket: OwnedFd,
    /// The file that its reply is from, and what was true of it when it was opened.
    pub file: Option<(OwnedFd, FileState)>,
    /// Where it was accepted.
    pub listener: ListenerName,
    /// The site of its last request, by name.
    pub site: String,
    /// It's a flow that other servers know of: how often it has changed hands.
    pub generation: Option<Generation>,
    /// Only the next engine's worker of this number can have it.
    pub worker: Option<u16>,
    /// The socket of the server that answers its client, and what lies between them.
    pub server: Option<(OwnedFd, ServerEnd)>,
    /// A `handoff::Image`; of the client of a port, a `handoff::RelayState`.
    pub image: Vec<u8>,
}

/// What wakes a giver.
enum Told {
    Offered {
        passenger: Box<Passenger>,
        from: Arc<Mailbox>,
    },
    Answered(Vec<(u64, Verdict)>),
    /// Nothing more can pass, and why.
    Ended(String),
    /// Nobody gives anything any more.
    Left,
}

/// A worker's way to the next engine.
#[derive(Clone, Debug)]
pub struct Passage {
    /// Tells it from others.
    pub number: u32,
    way: Arc<Way>,
}

/// Ends the threads that carry connections when the last who gives has gone.
#[derive(Debug)]
struct Way(Sender<Told>);

impl Drop for Way {
    fn drop(&mut self) {
        // It has ended by itself.
        let _ = self.0.send(Told::Left);
    }
}

impl Passage {
    /// Sends a connection on its way; `from` hears what becomes of it. Returns it if there is no way any more.
    #[must_use]
    pub fn offer(&self, passenger: Passenger, from: Arc<Mailbox>) -> Option<Passenger> {
        match self.way.0.send(Told::Offered { passenger: Box::new(passenger), from }) {
            Err(SendError(Told::Offered { passenger, .. })) => Some(*passenger),
            _ => None,
        }
    }

    /// Nothing more is to go this way. What is under way comes back.
    pub fn end(&self) {
        // It has ended by itself.
        let _ = self.way.0.send(Told::Ended("another engine takes over".to_owned()));
    }
}

/// A worker that takes connections: its number, and where they come in.
pub type Door = (u16, Arc<Mailbox>);

/// The workers that take connections, one after the other.
#[derive(Debug, Default)]
pub struct Doors(Mutex<(Vec<Door>, usize)>);

impl Doors {
    /// These from now on; none when the engine is about to go itself.
    pub fn set(&self, doors: Vec<Door>) {
        lock(&self.0).0 = doors;
    }

    /// The worker of that number, or the next one.
    fn open(&self, worker: Option<u16>) -> Option<Arc<Mailbox>> {
        let mut state = lock(&self.0);
        let (doors, next) = &mut *state;
        let place = match worker {
            Some(worker) => doors.iter().position(|(number, _)| *number == worker)?,
            None => {
                *next = next.wrapping_add(1);
                next.checked_rem(doors.len())?
            }
        };
        doors.get(place).map(|(_, mailbox)| mailbox.clone())
    }
}

/// Says a worker's verdict on a connection that was offered to it. Dropped without one, it says no.
#[derive(Debug)]
pub struct Answer {
    number: u64,
    mailbox: Arc<Mailbox>,
    sender: Option<Sender<taker::Told>>,
}

impl Answer {
    /// Says it.
    pub fn say(mut self, verdict: Verdict) {
        self.send(verdict);
    }

    fn send(&mut self, verdict: Verdict) {
        if let Some(sender) = self.sender.take() {
            // The thread stays until everything is answered.
            let _ = sender.send(taker::Told::Answered { number: self.number, verdict, by: self.mailbox.clone() });
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.send(Verdict::Refused);
    }
}

/// Names an offer in a worker: the passage, and the number in it.
pub type Key = (u32, u64);

#[cfg(test)]
mod tests;
