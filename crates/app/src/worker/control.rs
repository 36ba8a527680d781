//! What the engine tells a worker: messages in a mailbox, and a bell that the worker's reactor hears.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use leat_host::lock::lock;
use leat_host::reactor::Token;
use leat_host::wake::Bell;
use leat_logic::handoff::Verdict;
use leat_logic::time::Instant;

use crate::access_log::AccessLogs;
use crate::config::Config;
use crate::ctl::Question;
use crate::ctl::http::Told;
use crate::listener::ListenerName;
use crate::passage::{Answer, Key, Passage, Passenger};

/// A message to a worker.
pub enum Control {
    /// Put this configuration in force. Sockets for new listeners come with it.
    Configure {
        /// The configuration.
        config: Arc<Config>,
        /// Access logs, opened.
        logs: Arc<AccessLogs>,
        /// Listeners that this worker is to accept from as well.
        listeners: Vec<(ListenerName, OwnedFd)>,
    },
    /// Accept no more; end by `deadline`.
    Drain {
        /// When what is left is cut.
        deadline: Instant,
        /// Keep idle connections until then: an upgrade drops nothing. Otherwise they are closed soon.
        keep_idle: bool,
        /// Where connections go meanwhile.
        passage: Option<Passage>,
    },
    /// Another process is about to have what this dispatcher has of nodes: give that up, and live on for what is its own.
    Resign {
        /// How long what is on its way has to get there.
        within: Duration,
        /// Dropped when it's given up.
        resigned: Arc<Resigned>,
    },
    /// There is no other process after all: have it again.
    Resume,
    /// This worker is to go: hand every connection over to the others as soon as it is between two requests.
    Retire {
        /// New connections don't come here any more, but handshakes under way do: accept until then.
        accept_until: Instant,
        /// When to begin a drain of what couldn't be handed over.
        deadline: Instant,
        /// The others.
        heirs: Vec<Arc<Mailbox>>,
        /// How connections get to those in the middle of what is under way.
        passage: Option<Passage>,
    },
    /// Somebody asks what only a dispatcher knows.
    Ask(Question),
    /// The answer to a command that came over the admin address.
    Told {
        /// The connection.
        token: Token,
        /// What is replied.
        told: Box<Told>,
    },
    /// A connection between two requests, from another worker.
    Adopt {
        /// Its socket.
        socket: OwnedFd,
        /// Where it was accepted.
        listener: ListenerName,
        /// The site of its last request, by name.
        site: String,
        /// What has been received of the next request.
        input: Vec<u8>,
        /// Who a balancer has said that the client is.
        client: Option<std::net::SocketAddr>,
    },
    /// A connection that was given to the next engine is that one's.
    Passed,
    /// A connection that was given to the next engine comes back.
    Returned {
        /// The connection.
        passenger: Passenger,
        /// The passage's number.
        number: u32,
        /// Why, if the next engine has said so. Else it has said nothing in time.
        verdict: Option<Verdict>,
    },
    /// Nothing more passes to the next engine this way.
    PassageEnded {
        /// The passage's number.
        number: u32,
    },
    /// The engine before this one offers a connection.
    Offered {
        /// The connection, not to be touched yet.
        passenger: Passenger,
        /// Names it.
        key: Key,
        /// Wants the verdict.
        answer: Answer,
    },
    /// The engine before this one has let go of a connection.
    Begin {
        /// Which one.
        key: Key,
    },
    /// The engine before this one keeps a connection.
    Withdraw {
        /// Which one.
        key: Key,
    },
    /// Weights to use on this worker, so that shares hold over all. Of an older configuration, they count for nothing.
    Weigh {
        /// Whose owners and sites they are, in this order.
        config: Arc<Config>,
        /// The owners' weights.
        owners: Vec<u32>,
        /// The sites' weights.
        sites: Vec<u32>,
    },
    /// Give a few connections of a site to another worker, each between two requests.
    Depart {
        /// The site, by name.
        site: String,
        /// How many connections.
        connections: u32,
        /// Who gets them.
        to: Arc<Mailbox>,
    },
}

/// Says, when the last worker has dropped it, that none has anything to do with nodes any more.
pub struct Resigned(Box<dyn Fn() + Send + Sync>);

impl Resigned {
    /// What is done then.
    pub fn new(say: impl Fn() + Send + Sync + 'static) -> Resigned {
        Resigned(Box::new(say))
    }
}

impl Drop for Resigned {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// See the module.
pub struct Mailbox {
    /// `None` once nobody takes any out.
    messages: Mutex<Option<Vec<Control>>>,
    bell: Bell,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Mailbox").field("bell", &self.bell).finish_non_exhaustive()
    }
}

impl Mailbox {
    /// An empty one.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new() -> io::Result<Mailbox> {
        Ok(Mailbox { messages: Mutex::new(Some(Vec::new())), bell: Bell::new()? })
    }

    /// Puts a message in and rings. To a worker that has ended, nothing matters any more: it's dropped.
    pub fn send(&self, message: Control) {
        drop(self.offer(message));
    }

    /// As [`Mailbox::send`]; returns the message if the worker has ended.
    #[must_use]
    pub fn offer(&self, message: Control) -> Option<Control> {
        match &mut *self.lock() {
            Some(messages) => messages.push(message),
            None => return Some(message),
        }
        self.bell.ring();
        None
    }

    /// Takes everything out.
    pub fn take(&self) -> Vec<Control> {
        self.bell.hear();
        self.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes no more, if nothing is in it. Whether it's closed.
    #[must_use]
    pub fn close(&self) -> bool {
        let mut messages = self.lock();
        messages.take_if(|messages| messages.is_empty());
        messages.is_none()
    }

    /// Whether somebody takes messages out.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Control>>> {
        lock(&self.messages)
    }

    /// What a reactor polls.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_ended_is_sent_nothing() {
        let mailbox = Mailbox::new().unwrap();
        mailbox.send(Control::Resume);
        assert!(!mailbox.close() && mailbox.is_open(), "what was sent before is taken out first");
        assert!(matches!(mailbox.take()[..], [Control::Resume]));
        assert!(mailbox.close() && !mailbox.is_open());
        assert!(matches!(mailbox.offer(Control::Passed), Some(Control::Passed)));
        assert!(mailbox.take().is_empty() && mailbox.close());
    }
}
