//! The old engine's end: offers what its workers give, keeps it until the new engine has taken it, and gives back what it doesn't take.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{io, mem};

use leat_host::channel;
use leat_logic::handoff::{OFFER_BYTES_MAX, OFFERS_MAX, Offer, PassageMessage, Verdict};

use super::{Passage, Passenger, Told, Way};
use crate::log;
use crate::worker::control::{Control, Mailbox};

/// A new engine that says nothing for so long takes nothing any more.
const PATIENCE: Duration = Duration::from_secs(5);

type Given = (Passenger, Arc<Mailbox>);

struct Giver {
    number: u32,
    /// None when nothing more can pass: then everything comes back at once.
    stream: Option<UnixStream>,
    workers: Vec<Arc<Mailbox>>,
    next: u64,
    unsent: Vec<(u64, Given)>,
    /// The new engine has them; nobody touches them.
    offered: BTreeMap<u64, Given>,
    /// When it last said anything, or had nothing to say.
    heard: Instant,
    gone: u64,
    /// Nobody gives anything any more.
    is_left: bool,
}

/// Starts to pass what `workers` give to the engine at the other end of `stream`.
///
/// # Errors
/// Those of starting a thread, and of fcntl(2).
pub fn give(number: u32, stream: UnixStream, workers: Vec<Arc<Mailbox>>) -> io::Result<Passage> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (sender, receiver) = mpsc::channel();
    let (reading, told) = (stream.try_clone()?, sender.clone());
    std::thread::Builder::new().name("answers".into()).spawn(move || {
        let reason = loop {
            let answers = match channel::receive_bytes(&reading) {
                Ok(Some(packet)) => match PassageMessage::decode(&packet.bytes) {
                    Ok(PassageMessage::Answer(answers)) => answers,
                    Ok(_) => break "it offers connections itself".to_owned(),
                    Err(error) => break error.to_string(),
                },
                Ok(None) => break "it has ended, or takes none".to_owned(),
                Err(error) => break error.to_string(),
            };
            if told.send(Told::Answered(answers)).is_err() {
                return;
            }
        };
        // Nobody listens any more: everything has passed.
        let _ = told.send(Told::Ended(reason));
    })?;
    let mut giver = Giver {
        number,
        stream: Some(stream),
        workers,
        next: 0,
        unsent: Vec::new(),
        offered: BTreeMap::new(),
        heard: Instant::now(),
        gone: 0,
        is_left: false,
    };
    std::thread::Builder::new().name("passage".into()).spawn(move || giver.run(&receiver))?;
    Ok(Passage { number, way: Arc::new(Way(sender)) })
}

impl Giver {
    /// Until every worker has gone, or passes to another engine, and all that they have given is settled: what they give after the end comes back too.
    fn run(&mut self, receiver: &Receiver<Told>) {
        loop {
            let told = if self.offered.is_empty() {
                receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                receiver.recv_timeout(PATIENCE.saturating_sub(self.heard.elapsed()))
            };
            match told {
                Ok(told) => self.handle(told),
                Err(RecvTimeoutError::Timeout) => self.end("it doesn't answer"),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while self.unsent.len() < OFFERS_MAX
                && let Ok(told) = receiver.try_recv()
            {
                self.handle(told);
            }
            self.send_offers();
            if self.is_left && self.offered.is_empty() {
                // Has the other threads end, here and at the other end.
                let _ = self.stream.take().map(|stream| stream.shutdown(Shutdown::Both));
                return;
            }
        }
    }

    fn handle(&mut self, told: Told) {
        match told {
            Told::Offered { passenger, from } => {
                self.next += 1;
                self.unsent.push((self.next, (*passenger, from)));
            }
            Told::Answered(answers) => self.answered(&answers),
            Told::Ended(reason) => self.end(&reason),
            Told::Left => self.is_left = true,
        }
    }

    fn send_offers(&mut self) {
        let Some(stream) = &self.stream else { return self.give_back_all() };
        if self.offered.is_empty() {
            self.heard = Instant::now();
        }
        let mut rest = mem::take(&mut self.unsent).into_iter().peekable();
        while rest.peek().is_some() {
            let (mut offers, mut descriptors, mut bytes) = (Vec::new(), Vec::new(), 0);
            let mut batch = Vec::new();
            while let Some(given) = rest.next_if(|_| batch.len() < OFFERS_MAX && bytes < OFFER_BYTES_MAX) {
                let Passenger { image, server, .. } = &given.1.0;
                bytes += image.len() + server.as_ref().map_or(0, |(_, server)| server.held_bytes());
                batch.push(given);
            }
            for (number, (passenger, _)) in &batch {
                let Passenger { socket, file, listener, site, generation, worker, server, image } = passenger;
                descriptors.push(socket.as_fd());
                descriptors.extend(file.as_ref().map(|(descriptor, _)| descriptor.as_fd()));
                descriptors.extend(server.as_ref().map(|(descriptor, _)| descriptor.as_fd()));
                let file = file.as_ref().map(|(_, state)| *state);
                let server = server.as_ref().map(|(_, server)| server.clone());
                let (listener, site, image) = (listener.to_string(), site.clone(), image.clone());
                let (generation, worker) = (*generation, *worker);
                offers.push(Offer { number: *number, listener, site, file, generation, worker, server, image });
            }
            let sent = channel::send_bytes(stream, &PassageMessage::Offer(offers).encode(), &descriptors);
            drop(descriptors);
            self.offered.extend(batch);
            if let Err(error) = sent {
                self.unsent = rest.collect();
                return self.end(&error.to_string());
            }
        }
    }

    fn answered(&mut self, answers: &[(u64, Verdict)]) {
        self.heard = Instant::now();
        let mut taken = Vec::new();
        for &(number, verdict) in answers {
            match verdict {
                Verdict::Taken if self.offered.contains_key(&number) => taken.push(number),
                Verdict::Taken => return self.end("it takes what it wasn't offered"),
                Verdict::Unwanted | Verdict::Refused => {
                    if let Some(given) = self.offered.remove(&number) {
                        self.give_back(given, Some(verdict));
                    }
                }
            }
        }
        let Some(stream) = &self.stream else { return };
        if taken.is_empty() {
            return;
        }
        // Let go only when the message is whole with the kernel: as long as it isn't, the new engine can't know of it.
        if let Err(error) = channel::send_bytes(stream, &PassageMessage::Go(taken.clone()).encode(), &[]) {
            return self.end(&error.to_string());
        }
        for number in taken {
            let Some((_, from)) = self.offered.remove(&number) else { continue };
            self.gone += 1;
            from.send(Control::Passed);
        }
    }

    /// Nothing more passes.
    fn end(&mut self, reason: &str) {
        if let Some(stream) = self.stream.take() {
            // What hasn't been answered by now is withdrawn: the new engine drops it untouched.
            let _ = stream.shutdown(Shutdown::Both);
            let (gone, back) = (self.gone, self.offered.len() + self.unsent.len());
            log::info(format_args!("{gone} connections have gone to the new engine, {back} come back: {reason}"));
            for worker in &self.workers {
                worker.send(Control::PassageEnded { number: self.number });
            }
        }
        self.give_back_all();
    }

    fn give_back_all(&mut self) {
        let unsent = mem::take(&mut self.unsent).into_iter();
        for (_, given) in mem::take(&mut self.offered).into_iter().chain(unsent) {
            self.give_back(given, None);
        }
    }

    fn give_back(&self, (passenger, from): Given, verdict: Option<Verdict>) {
        from.send(Control::Returned { passenger, number: self.number, verdict });
    }
}
