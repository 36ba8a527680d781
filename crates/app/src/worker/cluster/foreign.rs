//! Beside a server that isn't leat (`for` of a node): whether it answers, and how much it has to do, for the node's reports and for fronts. Asking may take its
//! time, so that a thread of its own does it. What follows from that is the dispatcher's to say, or the fronts'. `docs/decisions/0015-foreign.md` has the reasons.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use leat_host::steering::gives_to_shared_listeners;
use leat_host::{clock, connections};
use leat_logic::dispatch::{Health, State};
use leat_logic::handoff::Load;

use super::checks::{self, Ill};
use super::shared::NodeGuard;
use crate::config::{ClusterNode, Config, HealthChecks};

/// Time between two looks at a server that hasn't answered yet.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Counting connections takes no more than this part of a processor. The kernel goes through its whole table each time, which takes milliseconds where it has
/// hundreds of thousands of places, and more beside a server that is busy, or where many connections have just ended.
const COUNTING_PART: u32 = 200;

/// See the module. The thread ends with it.
pub(super) struct Foreign {
    seen: Arc<Seen>,
    _alive: mpsc::Sender<()>,
}

struct Seen {
    connections: AtomicU32,
    busy: AtomicU32,
    is_failing: AtomicBool,
    /// Its listeners share their address, and the kernel gives none of them what a program says.
    is_unreachable: AtomicBool,
    /// It was looked at.
    is_known: AtomicBool,
}

/// What can be said of a server in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Well,
    Failing,
}

/// What was said of it last; nothing at first, as nobody knows what it was started with.
#[derive(Default)]
struct Told(Option<Finding>);

impl Told {
    /// Whether that wasn't said last. It is now.
    fn is_new(&mut self, finding: Finding) -> bool {
        self.0.replace(finding) != Some(finding)
    }
}

/// What the thread goes by.
struct Watch {
    vips: Vec<SocketAddr>,
    servers: Vec<SocketAddr>,
    checks: HealthChecks,
    pause: Duration,
    seen: Arc<Seen>,
    guard: Option<Arc<NodeGuard>>,
}

impl Foreign {
    /// Begins to watch a node's server, and what programs have begun there.
    pub(super) fn watch(config: &Config, node: &ClusterNode, guard: Option<Arc<NodeGuard>>) -> io::Result<Foreign> {
        let seen = Arc::new(Seen {
            connections: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            // Until it has answered.
            is_failing: AtomicBool::new(true),
            is_unreachable: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
        });
        let watch = Watch {
            vips: config.cluster.vip.clone(),
            servers: node.server.clone(),
            checks: config.cluster.health.clone(),
            pause: config.cluster.report_interval,
            seen: seen.clone(),
            guard,
        };
        let (alive, ended) = mpsc::channel();
        thread::Builder::new().name("leat-foreign".to_owned()).spawn(move || watch.run(&ended))?;
        Ok(Foreign { seen, _alive: alive })
    }

    /// Connections of the VIPs that it has.
    pub(super) fn connections(&self) -> u32 {
        self.seen.connections.load(Ordering::Relaxed)
    }

    /// Whether it answers; none before it was looked at.
    pub(super) fn is_well(&self) -> Option<bool> {
        let is_known = self.seen.is_known.load(Ordering::Acquire);
        is_known.then(|| !self.seen.is_failing.load(Ordering::Relaxed))
    }

    /// What a report says of it.
    pub(super) fn load(&self, can_bear: bool) -> Load {
        Load {
            flows: self.connections(),
            requests: self.seen.busy.load(Ordering::Relaxed),
            is_foreign: true,
            can_bear: can_bear && !self.seen.is_unreachable.load(Ordering::Relaxed),
            is_failing: self.seen.is_failing.load(Ordering::Relaxed),
            ..Load::default()
        }
    }
}

impl Watch {
    fn run(&self, ended: &mpsc::Receiver<()>) {
        let mut health = Health::new(clock::now());
        // Until it has answered once.
        health.set_failing(true, clock::now());
        let (mut is_new, mut told) = (true, Told::default());
        let mut count_at = clock::now();
        while ended.recv_timeout(if is_new { FIRST_PAUSE } else { self.pause }) == Err(RecvTimeoutError::Timeout) {
            if clock::now() >= count_at {
                let before = clock::thread_processor_time();
                if let Err(error) = self.count() {
                    crate::log::warning(format_args!("connections can't be counted: {error}"));
                }
                let took = clock::thread_processor_time().saturating_sub(before);
                count_at = clock::now().after(pause_after(took, self.pause));
            }
            if let Some(guard) = self.guard.as_ref().filter(|guard| guard.has_replays()) {
                guard.sweep(clock::now());
            }
            let found = self.look(&mut health, &mut is_new);
            let is_failing = health.state(clock::now()) == State::Failing;
            self.seen.is_failing.store(is_failing, Ordering::Relaxed);
            self.seen.is_known.store(true, Ordering::Release);
            match found {
                Err(why) if is_failing && told.is_new(Finding::Failing) => {
                    crate::log::warning(format_args!("{why}: this node is given nothing new"));
                }
                _ if !is_failing && told.is_new(Finding::Well) => {
                    crate::log::info(format_args!("the server of this node answers"));
                }
                _ => {}
            }
        }
    }

    /// Whether it listens, and answers if it's time to ask. One that's new, or that didn't listen, is well with its first answer.
    fn look(&self, health: &mut Health, is_new: &mut bool) -> Result<(), String> {
        let settings = self.checks.settings();
        if let Some(silent) = self.servers.iter().find(|server| !connections::has_listener(**server).unwrap_or(true)) {
            *is_new = true;
            health.set_failing(true, clock::now());
            return Err(format!("nothing listens at {silent}"));
        }
        if !health.begin_probe(&settings, clock::now()) && !*is_new {
            return Ok(());
        }
        let probed = match settings.interval.is_zero() {
            true => Ok(()),
            false => self.servers.iter().try_for_each(|&server| checks::ask(server, &self.checks, |_| ())),
        };
        health.probe_ended(probed.is_ok(), &settings, clock::now());
        if *is_new && probed.is_ok() {
            *is_new = false;
            self.look_whether_it_shares();
            health.set_failing(false, clock::now());
        }
        probed.map_err(|Ill { why, .. }| why)
    }

    /// Before Linux 6.6 a program can't give a handshake to one of several listeners.
    fn look_whether_it_shares(&self) {
        let must_not = self.guard.as_ref().is_some_and(|guard| guard.has_replays()) && !gives_to_shared_listeners();
        let shared = self.servers.iter().find(|server| must_not && connections::is_shared(**server));
        if let Some(server) = shared {
            crate::log::warning(format_args!(
                "connections are proxied to {server}, and none begins there: before Linux 6.6 they do so only where the server listens without SO_REUSEPORT \
                 (nginx: `listen` without `reuseport`)"
            ));
        }
        self.seen.is_unreachable.store(shared.is_some(), Ordering::Relaxed);
    }

    fn count(&self) -> io::Result<()> {
        let open = connections::open_at(&self.vips)?;
        self.seen.connections.store(open.connections, Ordering::Relaxed);
        self.seen.busy.store(open.busy, Ordering::Relaxed);
        Ok(())
    }
}

/// Time until connections are counted again: no less than `report`, from one report to the next, however soon the server is looked at again.
fn pause_after(took: Duration, report: Duration) -> Duration {
    report.max(took * COUNTING_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_takes_little_of_a_processor_whatever_the_kernel_has() {
        let report = Duration::from_millis(500);
        assert_eq!(pause_after(Duration::from_micros(400), report), report);
        assert_eq!(pause_after(Duration::from_millis(5), report), Duration::from_secs(1));
        assert_eq!(pause_after(Duration::from_millis(300), report), Duration::from_secs(60));
    }

    #[test]
    fn each_finding_is_told_once_and_the_first_one_whatever_it_is() {
        for first in [Finding::Failing, Finding::Well] {
            let mut told = Told::default();
            assert!(told.is_new(first) && !told.is_new(first), "{first:?}");
            let other = if first == Finding::Well { Finding::Failing } else { Finding::Well };
            assert!(told.is_new(other) && !told.is_new(other) && told.is_new(first), "{first:?}");
        }
    }
}
