//! Requests for which there is no node at the moment: they wait for one as long as a link that has just been lost may come back, as that of a node which stood
//! still or is started anew does. Those that this server has in hand wait here; of connections that are to begin at nodes the packets wait, so that they begin
//! there and needn't be moved, or proxied for good. What has waited in vain is refused as ever.

use std::time::Duration;

use leat_host::reactor::Token;
use leat_logic::dispatch::Refusal;
use leat_logic::time::Instant;

use super::super::{Host, Stage, Worker};
use super::Part;
use super::home::Home;

/// How long after the loss of a link: a node that still runs makes another within fractions of a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module. Connections are bounded, and each has one request at most that waits.
pub(super) struct Waiting {
    all: Vec<Token>,
    /// Connections that begin wait too.
    births: bool,
    until: Instant,
    /// The nodes that there were, when they were last looked at.
    changes_seen: u64,
}

impl Waiting {
    /// As if all links had been lost now: none is there yet.
    pub(super) fn new(now: Instant) -> Waiting {
        Waiting { all: Vec::new(), births: false, until: now.after(PATIENCE), changes_seen: 0 }
    }

    /// A link is lost.
    pub(super) fn link_lost(&mut self, now: Instant) {
        self.until = now.after(PATIENCE);
    }

    /// Whether a link that isn't there may be about to come back.
    pub(super) fn is_patient(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Whether a request that was refused may wait.
    pub(super) fn may_wait(&self, refusal: Refusal, now: Instant) -> bool {
        refusal == Refusal::NobodyUp && self.is_patient(now)
    }

    /// Takes in a request that was refused. False when it's refused for good.
    pub(super) fn add(&mut self, refusal: Refusal, token: Token, now: Instant) -> bool {
        let may_wait = self.may_wait(refusal, now);
        self.all.extend(may_wait.then_some(token));
        may_wait
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        if self.all.is_empty() && !self.births { Instant::NEVER } else { self.until }
    }
}

impl Home {
    /// Whether nodes have come or gone since this was last asked.
    pub(super) fn have_nodes_changed(&mut self) -> bool {
        let changes = self.dispatcher.changes();
        std::mem::replace(&mut self.waiting.changes_seen, changes) != changes
    }
}

impl<H: Host> Worker<H> {
    /// Whether connections that are to begin at nodes have waited until now.
    pub(super) fn have_births_waited(&self) -> bool {
        let part = self.cluster.as_ref().map(|cluster| &cluster.part);
        matches!(part, Some(Part::Home(home)) if home.waiting.births)
    }

    /// Whether connections that are to begin at nodes wait for the first of these.
    pub(super) fn have_births_to_wait(&mut self) -> bool {
        let is_ending = self.drain.is_some() || self.retiring.is_some() || !self.is_all_for_nodes();
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return false };
        // A connection server answers what no data server can.
        let may_wait = home.bears && home.split.is_none() && !home.is_resigning && !is_ending;
        home.waiting.births = may_wait && home.waiting.is_patient(now) && home.dispatcher.is_nobody_up(now);
        home.waiting.births
    }

    /// There may be a node now for those that wait, or it's too late for one.
    pub(super) fn dispatch_waiting(&mut self) {
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        for token in std::mem::take(&mut home.waiting.all) {
            // The client may have gone meanwhile.
            let connection = self.connections.get(token);
            if let Some(exchange) = connection.and_then(|connection| connection.exchange.as_mut()) {
                exchange.queued = self.now;
                self.queue(Stage::Serve, token);
            }
        }
        self.place_arrivals();
    }
}
