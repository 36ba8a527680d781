//! What comes back to the generator: replies, ends of connections, failures.

use std::io;
use std::os::fd::AsRawFd;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Demand;
use super::connection::Answered;
use super::generator::{DISCARD, GENERATION_MASK, Generator, IGNORED, KIND_SHIFT, RECEIVE, Role, Stage};
use super::outcome::Failure;
use super::reply::{Fault, REFUSAL};
use crate::sys::ring::Completion;

/// The run is given up after so many failures without one right reply between them.
const FAILURES_IN_A_ROW_MAX: u64 = 5_000;

impl Generator<'_> {
    pub(super) fn harvest(&mut self) -> io::Result<()> {
        // One at a time: handling one may need the ring.
        while let Some(completion) = self.ring.next_completion() {
            if completion.token == IGNORED {
                continue;
            }
            let index = completion.token as u32;
            let generation = (completion.token >> 32) as u32 & GENERATION_MASK;
            if generation == self.connections[index as usize].generation & GENERATION_MASK {
                self.received(index, completion);
            } else if let Some(filled) = completion.filled {
                self.ring.recycle(filled);
            }
        }
        if self.failures_in_a_row > FAILURES_IN_A_ROW_MAX && !self.plan.is_flood {
            Err(self.hopeless())
        } else {
            Ok(())
        }
    }

    pub(super) fn hopeless(&self) -> io::Error {
        io::Error::other(format!("{} fails every request: {:?}", self.plan.address, self.outcome.failures))
    }

    pub(super) fn received(&mut self, index: u32, completion: Completion) {
        let Completion { token, result, more, filled } = completion;
        let discard = token >> KIND_SHIFT == DISCARD;
        let role = self.role(index);
        let connection = &mut self.connections[index as usize];
        connection.armed = more;
        let mut answered = std::mem::take(&mut self.answered);
        let mut fault = None;
        if result > 0 {
            if self.window_ns.contains(&self.now_ns) {
                self.outcome.received_bytes += result as u64;
            }
            if discard {
                connection.discarded(result as u64, self.mix, &mut answered);
            } else if role == Role::SlowHead {
                // Whatever the server says to a head that has no end, it's over.
                fault = Some(Fault::MalformedHead);
            } else if let Some(filled) = &filled {
                fault = connection.read(self.ring.bytes(filled), self.mix, &mut answered).err();
            }
        }
        if let Some(filled) = filled {
            self.ring.recycle(filled);
        }
        for reply in answered.drain(..) {
            self.count(index, &reply);
        }
        self.answered = answered;
        if let Some(fault) = fault {
            self.give_up(index, fault);
        } else if result <= 0 && result != -libc::ENOBUFS {
            self.note_cut(index, result);
            self.ended(index);
        } else {
            self.receive_on(index);
        }
    }

    /// Submits the next receive if one is needed and none is under way.
    pub(super) fn receive_on(&mut self, index: u32) {
        let role = self.role(index);
        let connection = &mut self.connections[index as usize];
        if connection.armed || connection.socket.is_none() || role == Role::SlowHead {
            return;
        }
        let waits = !connection.outstanding.is_empty() || connection.slots_held > 0;
        if role == Role::Slow {
            if connection.reader.body_left().is_some() || waits {
                self.read_later(index);
            }
        } else if self.multishot {
            let token = self.token(RECEIVE, index);
            let connection = &mut self.connections[index as usize];
            connection.armed = true;
            if let Some(socket) = &connection.socket {
                self.ring.receive_multishot(socket.as_raw_fd(), token);
            }
        } else if waits {
            let want = connection.want(self.mix);
            self.arm(index, want);
        }
    }

    /// A right reply has come.
    pub(super) fn count(&mut self, index: u32, reply: &Answered) {
        self.failures_in_a_row = 0;
        let role = self.role(index);
        if role == Role::Slow {
            if self.stage == Stage::Running {
                self.dispatch(index, self.mix.longest(), 1, self.now_ns);
            }
            return;
        }
        self.in_flight -= 1;
        let latency_ns = self.now_ns - reply.request.intended_ns;
        let is_due = self.window_ns.contains(&reply.request.intended_ns);
        let is_counted = self.stage != Stage::Opening && self.window_ns.contains(&self.now_ns);
        if reply.is_refusal && !self.plan.may_be_refused {
            self.failed(Failure::Status(REFUSAL), 1);
        } else if reply.is_refusal {
            self.outcome.refused += u64::from(self.window_ns.contains(&self.now_ns));
            if self.plan.demand == Demand::Saturate {
                self.again.push(reply.request.target);
            }
            if is_counted {
                self.outcome.refused_ns.saturating_record(latency_ns);
            }
        } else if self.stage != Stage::Opening {
            if is_due {
                self.outcome.took(reply.request.intended_ns - self.window_ns.start, latency_ns);
                if let Some(body_bytes) = self.mix.target(reply.request.target).body_bytes {
                    self.outcome.was_long(body_bytes, latency_ns);
                }
            }
            if self.window_ns.contains(&self.now_ns) {
                self.outcome.answered += 1;
                self.outcome.changes += u64::from(reply.is_anothers);
                self.outcome.answered_ns.saturating_record(latency_ns);
                self.outcome.verified += u64::from(reply.request.verify);
            }
        }
        let last = self.plan.requests_per_connection;
        let connection = &mut self.connections[index as usize];
        if reply.close {
            connection.slots_held += 1;
        } else if last.is_some_and(|last| connection.requests >= last) && !connection.armed {
            self.close(index);
            self.freed.push(index);
        } else {
            self.freed.push(index);
        }
    }

    /// A reply was wrong: nothing more can be read from this connection.
    pub(super) fn give_up(&mut self, index: u32, fault: Fault) {
        let failure = match fault {
            Fault::MalformedHead => Failure::MalformedHead,
            Fault::Status(status) => Failure::Status(status),
            Fault::Length { .. } => Failure::Length,
            Fault::Body => Failure::Body,
        };
        self.failed(failure, 1);
        let connection = &mut self.connections[index as usize];
        let was_asked = connection.outstanding.pop_front().is_some();
        if was_asked && self.role(index) != Role::Slow {
            self.in_flight -= 1;
            self.freed.push(index);
        }
        self.ended(index);
    }

    /// If the connection ends with requests unanswered, says which it is, when, and how far it had come: enough to find it in logs and captures.
    fn note_cut(&mut self, index: u32, result: i32) {
        let connection = &self.connections[index as usize];
        let Some(socket) = connection.socket.as_ref().filter(|_| !connection.outstanding.is_empty()) else { return };
        self.outcome.was_cut(|| {
            let client = leat_host::socket::local_address(socket);
            let client = client.map_or("a client".to_owned(), |client| client.to_string());
            let how = if result == 0 { "ended".to_owned() } else { io::Error::from_raw_os_error(-result).to_string() };
            let left =
                connection.reader.body_left().map_or("no head".to_owned(), |left| format!("{left} bytes to come"));
            let (asked, unanswered) = (connection.requests, connection.outstanding.len());
            let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            format!("{client} at {at:.3}: {how}, {asked} requests asked, {unanswered} unanswered, {left}")
        });
    }

    /// The connection is over; what was outstanding on it has failed.
    pub(super) fn ended(&mut self, index: u32) {
        let role = self.role(index);
        let connection = &mut self.connections[index as usize];
        let unanswered = connection.outstanding.len();
        let held = std::mem::take(&mut connection.slots_held) as usize;
        connection.outstanding.clear();
        self.close(index);
        match role {
            Role::Slow => {
                self.failed(Failure::ClosedEarly, unanswered as u64);
                if self.plan.is_flood {
                    self.read_later(index);
                }
                return;
            }
            // Its next step opens it anew.
            Role::SlowHead => return,
            Role::Idle if self.stage == Stage::Running => self.outcome.fail(Failure::IdleClosed, 1),
            _ => {}
        }
        self.in_flight -= unanswered as u64;
        self.failed(Failure::ClosedEarly, unanswered as u64);
        self.freed.extend(std::iter::repeat_n(index, unanswered + held));
    }

    pub(super) fn close(&mut self, index: u32) {
        let receives = [self.token(RECEIVE, index), self.token(DISCARD, index)];
        let connection = &mut self.connections[index as usize];
        connection.generation = connection.generation.wrapping_add(1);
        let Some(socket) = connection.socket.take() else { return };
        if std::mem::take(&mut connection.armed) {
            // The receive, of either kind, holds the socket open until it completes.
            receives.into_iter().for_each(|token| self.ring.cancel(token, IGNORED));
        }
        self.ring.close(socket, IGNORED);
    }

    pub(super) fn failed(&mut self, failure: Failure, count: u64) {
        self.outcome.fail(failure, count);
        self.failures_in_a_row += count;
    }
}
