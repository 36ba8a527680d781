//! The new engine's end: puts what is offered before its workers, tells what they say, and has them go on once the old engine has let go.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use leat_host::channel::{self, Packet};
use leat_logic::handoff::{Offer, PassageMessage, Verdict};

use super::{Answer, Doors, Passenger};
use crate::log;
use crate::worker::control::{Control, Mailbox};

/// What wakes a taker.
pub(super) enum Told {
    Packet(Packet),
    Answered { number: u64, verdict: Verdict, by: Arc<Mailbox> },
    Ended,
}

struct Taker {
    number: u32,
    stream: UnixStream,
    doors: Arc<Doors>,
    sender: Sender<Told>,
    /// Offers that a worker hasn't answered.
    asked: usize,
    /// Those that wait for the old engine to let go, with the worker that has them.
    taken: BTreeMap<u64, Arc<Mailbox>>,
    answers: Vec<(u64, Verdict)>,
    has_ended: bool,
}

/// Starts to take the connections that the engine at the other end of `stream` offers.
///
/// # Errors
/// Those of starting a thread, and of fcntl(2).
pub fn take(number: u32, stream: UnixStream, doors: Arc<Doors>) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel();
    let (reading, told) = (stream.try_clone()?, sender.clone());
    std::thread::Builder::new().name("offers".into()).spawn(move || {
        while let Ok(Some(packet)) = channel::receive_bytes(&reading) {
            if told.send(Told::Packet(packet)).is_err() {
                return;
            }
        }
        // Nobody listens any more: everything has been answered.
        let _ = told.send(Told::Ended);
    })?;
    let (taken, answers) = (BTreeMap::new(), Vec::new());
    let mut taker = Taker { number, stream, doors, sender, asked: 0, taken, answers, has_ended: false };
    std::thread::Builder::new().name("passage".into()).spawn(move || taker.run(&receiver))?;
    Ok(())
}

impl Taker {
    fn run(&mut self, receiver: &Receiver<Told>) {
        while !(self.has_ended && self.asked == 0) {
            let Ok(told) = receiver.recv() else { return };
            self.handle(told);
            while let Ok(told) = receiver.try_recv() {
                self.handle(told);
            }
            if !self.answers.is_empty() {
                let answers = PassageMessage::Answer(std::mem::take(&mut self.answers));
                if channel::send_bytes(&self.stream, &answers.encode(), &[]).is_err() {
                    // The other thread notices.
                    let _ = self.stream.shutdown(Shutdown::Both);
                }
            }
        }
    }

    fn handle(&mut self, told: Told) {
        match told {
            Told::Packet(Packet { bytes, descriptors }) => match PassageMessage::decode(&bytes) {
                Ok(PassageMessage::Offer(offers)) => self.offered(offers, descriptors),
                Ok(PassageMessage::Go(numbers)) => {
                    for number in numbers {
                        if let Some(worker) = self.taken.remove(&number) {
                            worker.send(Control::Begin { key: (self.number, number) });
                        }
                    }
                }
                Ok(PassageMessage::Answer(_)) => self.refuse_all("it answers what it wasn't asked"),
                Err(error) => self.refuse_all(&error.to_string()),
            },
            Told::Answered { number, verdict, by } => {
                self.asked -= 1;
                if verdict == Verdict::Taken {
                    self.taken.insert(number, by);
                }
                self.answers.push((number, verdict));
                if self.has_ended {
                    self.withdraw_all();
                }
            }
            Told::Ended => {
                self.has_ended = true;
                self.withdraw_all();
            }
        }
    }

    fn offered(&mut self, offers: Vec<Offer>, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        for offer in offers {
            let Offer { number, listener, site, file, generation, worker, server, image } = offer;
            // A process with no descriptors left gets fewer than were sent, the first ones.
            let socket = descriptors.next();
            let file = file.map(|state| descriptors.next().map(|descriptor| (descriptor, state)).ok_or(()));
            let server = server.map(|server| descriptors.next().map(|descriptor| (descriptor, server)).ok_or(()));
            let (Some(socket), Ok(file), Ok(server), Ok(listener), Some(mailbox)) =
                (socket, file.transpose(), server.transpose(), listener.parse(), self.doors.open(worker))
            else {
                self.answers.push((number, Verdict::Refused));
                continue;
            };
            self.asked += 1;
            let answer = Answer { number, mailbox: mailbox.clone(), sender: Some(self.sender.clone()) };
            let passenger = Passenger { socket, file, listener, site, generation, worker, server, image };
            mailbox.send(Control::Offered { passenger, key: (self.number, number), answer });
        }
    }

    /// The old engine keeps what it hasn't let go of.
    fn withdraw_all(&mut self) {
        for (number, worker) in std::mem::take(&mut self.taken) {
            worker.send(Control::Withdraw { key: (self.number, number) });
        }
    }

    fn refuse_all(&mut self, reason: &str) {
        log::warning(format_args!("connections of the old engine can't be taken, and stay there: {reason}"));
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
