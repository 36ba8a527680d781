//! A dispatcher's process that another one follows: each worker gives up its home and goes on without it. What nodes hold is the next process's from then on,
//! which takes it up as after a death; what is this one's own, it answers by passing it on, as where nothing can be handed over, and gives to the next one as
//! soon as that can be (`passage`). Should there be no next one after all, the home is taken up again here.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use leat_logic::dispatch::Outcome;
use leat_logic::handoff::{self, HomeLimits, Resets};
use leat_logic::time::Instant;

use super::super::control::Resigned;
use super::super::{Host, Worker};
use super::Part;
use super::born;
use super::direct::Probes;
use super::flows::Flows;
use super::home::Home;
use super::inquiry::Inquiries;
use super::standing::Standing;

/// How often it's looked whether something is still on its way: it takes a few round trips to nodes.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// So often packets that wait are taken in at the end: as many as have room where they lie.
const HELD_ROUNDS_MAX: usize = 8;

/// See the module.
pub(super) struct Resignation {
    stage: Stage,
    /// Dropped when this worker has nothing more to do with nodes.
    resigned: Option<Arc<Resigned>>,
}

enum Stage {
    /// What is on its way gets there, until then at the most.
    Settling {
        look_at: Instant,
        until: Instant,
    },
    /// The reactor may look at these until its next turn.
    Closing {
        _taps: Vec<OwnedFd>,
    },
    Done,
}

impl Resignation {
    pub(super) fn poll_timeout(&self) -> Instant {
        match self.stage {
            Stage::Settling { look_at, .. } => look_at,
            Stage::Closing { .. } => Instant::default(),
            Stage::Done => Instant::NEVER,
        }
    }
}

impl Home {
    /// From now on it's as if nothing could be handed over. What the dispatcher knows of nodes is all that stays.
    fn resign(&mut self, now: Instant) {
        self.steering = None;
        self.flows = handoff::Home::new(HomeLimits::default());
        self.dispatcher.set_first_ways(born::first_ways(None, false));
        for node in mem::take(&mut self.begun).into_values() {
            self.dispatcher.end(node, Outcome::Unknown, now);
        }
        for asked in mem::take(&mut self.asked).into_values() {
            self.dispatcher.end(asked.node, Outcome::Unknown, now);
        }
        self.linked.clear();
        self.standing = Standing::default();
        self.given_up.clear();
        (self.reset_at, self.recall_at) = (Instant::NEVER, Instant::NEVER);
        self.probes = Probes::default();
        self.taken_back.clear();
        self.inquiries = Inquiries::default();
        self.resets = Resets::default();
        self.has_taken_in = false;
    }
}

impl<H: Host> Worker<H> {
    /// Another process is about to have this home: gives nothing away any more, and gives up the home once nothing is on its way, or after `within`.
    pub(in crate::worker) fn resign_home(&mut self, within: Duration, resigned: Arc<Resigned>) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Home(home) = &mut cluster.part else { return };
        if home.split.is_some() || cluster.resignation.is_some() {
            return;
        }
        home.is_resigning = true;
        home.recall_at = Instant::NEVER;
        let stage = Stage::Settling { look_at: now, until: now.after(within) };
        cluster.resignation = Some(Resignation { stage, resigned: Some(resigned) });
    }

    /// Goes on with that, if it's time.
    pub(super) fn handle_resignation(&mut self) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let (Some(resignation), Part::Home(home)) = (&mut cluster.resignation, &mut cluster.part) else { return };
        match &mut resignation.stage {
            Stage::Settling { look_at, until } if now >= *look_at => {
                let is_settled = home.flows.is_settled();
                if !is_settled && now < *until {
                    *look_at = now.after(LOOK_PAUSE);
                    return;
                }
                if !is_settled {
                    crate::log::warning(
                        "connections are lost that have been on their way to or from nodes for too long",
                    );
                }
                self.give_up_home();
            }
            Stage::Closing { .. } => {
                resignation.stage = Stage::Done;
                resignation.resigned = None;
            }
            Stage::Settling { .. } | Stage::Done => {}
        }
    }

    fn give_up_home(&mut self) {
        let now = self.now;
        // Who has come by now begins as ever. More can't lie there than that.
        for _ in 0..HELD_ROUNDS_MAX {
            self.receive_held_packets();
            if self.cluster.as_ref().is_none_or(|cluster| cluster.receive_at == Instant::NEVER) {
                break;
            }
        }
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        // Those that wait for their turn to be frozen are answered here.
        for flow in home.flows.freezing() {
            self.freeze_failed(flow);
        }
        self.run_effects();
        // What nodes have been told last gets there before the ends of their links.
        self.flush_links();
        self.streams.flush_now(&mut self.reactor);
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Home(home) = &mut cluster.part else { return };
        home.resign(now);
        cluster.flows = Flows::default();
        let taps = mem::take(&mut cluster.taps);
        self.end_links();
        self.stop_polling_held_packets(&taps);
        if let Some(resignation) = self.cluster.as_mut().and_then(|cluster| cluster.resignation.as_mut()) {
            resignation.stage = Stage::Closing { _taps: taps };
        }
        self.dispatch_waiting();
    }

    /// There is no other process: has its home as before.
    pub(in crate::worker) fn resume_home(&mut self) {
        let config = self.config.clone();
        let Some(cluster) = &mut self.cluster else { return };
        let (Some(resignation), Part::Home(home)) = (cluster.resignation.take(), &mut cluster.part) else { return };
        let serial = home.next_serial;
        if let Stage::Settling { .. } = resignation.stage {
            home.is_resigning = false;
            home.recall_at = self.now;
            return;
        }
        match self.make_cluster(&config, Some(serial)) {
            Ok(cluster) => self.begin_cluster(cluster),
            Err(error) => crate::log::error(format_args!("connections can't be handed over any more: {error}")),
        }
    }
}
