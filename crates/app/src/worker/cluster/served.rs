//! A node behind fronts whose server isn't leat: how it's emptied. Fronts and such a node don't talk, so what they see of it is what it has refused their probes:
//! decides when they must have noticed, and that nothing is left. What the server has it keeps until client or server end it.

use std::time::Duration;

use leat_host::steering;
use leat_logic::time::Instant;
use serde_json::Value;

use super::foreign::Foreign;
use crate::config::Cluster;
use crate::ctl::{self, Command};

/// So many packets in a row that the kernel gave to no listener, though the server listens, are no accident.
const UNSERVED_MAX: u64 = 3;

/// See the module: one worker's part of it.
pub(super) struct Served {
    /// At the first worker, for all.
    foreign: Option<Foreign>,
    /// While it's emptied: by when fronts have noticed.
    unknown_until: Option<Instant>,
    /// Packets with which connections begin, so far, and when the last was seen.
    begun: u64,
    begun_at: Instant,
    unserved: Unserved,
}

/// Packets that should have begun connections, and that the kernel didn't give to a server that listens.
#[derive(Default)]
struct Unserved {
    /// What was counted so far.
    last: Option<(u64, u64)>,
    /// Since one was given.
    in_a_row: u64,
}

impl Served {
    pub(super) fn new(foreign: Option<Foreign>) -> Served {
        Served { foreign, unknown_until: None, begun: 0, begun_at: Instant::default(), unserved: Unserved::default() }
    }

    /// Whether fronts are to find the node well; none before that's known.
    pub(super) fn is_well(&self) -> Option<bool> {
        let is_well = self.foreign.as_ref()?.is_well();
        if self.unknown_until.is_some() { Some(false) } else { is_well }
    }

    /// Connections of the VIPs that the server has; none at a worker that doesn't know.
    pub(super) fn connections(&self) -> Option<u32> {
        self.foreign.as_ref().map(Foreign::connections)
    }

    /// So many packets have begun connections here so far, and so many should have.
    pub(super) fn has_begun(&mut self, packets: u64, unserved: u64, now: Instant) {
        if std::mem::replace(&mut self.begun, packets) != packets {
            self.begun_at = now;
        }
        let is_well = self.is_well() == Some(true);
        if self.unserved.is_stuck(packets, unserved, is_well) && !steering::gives_to_shared_listeners() {
            crate::log::warning(format_args!(
                "the kernel gives no connection to this node's server, which listens: before Linux 6.6 it does so only where \
                 that listens without SO_REUSEPORT (nginx: `listen` without `reuseport`)"
            ));
        }
    }

    /// Whether a connection may still begin, or have begun since the server's were counted last.
    fn may_begin(&self, cluster: &Cluster, now: Instant) -> bool {
        // Counted twice since then, as the first time may have been under way.
        let counted = self.begun_at.after(cluster.report_interval * 2);
        self.foreign.is_some() && self.unknown_until.is_none_or(|until| now < until.max(counted))
    }

    pub(super) fn answer(&mut self, command: &Command, cluster: &Cluster, now: Instant) -> Result<Value, String> {
        let (name, connections) = (&cluster.name, u64::from(self.connections().unwrap_or(0)));
        match command {
            Command::Flows => {
                let mut flows = ctl::list_flows([connections, 0, 0], &[(name.clone(), connections)]);
                flows["may_begin"] = u64::from(self.may_begin(cluster, now)).into();
                flows["is_in_use"] = u64::from(self.foreign.is_some() && self.unknown_until.is_none()).into();
                Ok(flows)
            }
            Command::Drain { node } | Command::Resume { node } if node != name => {
                Err(format!("this is {name}: {node} is drained where it is, by its own control socket"))
            }
            Command::Drain { node } => {
                let notice = notice(cluster).ok_or(
                    "fronts don't look at this node, as `interval` in [cluster.health] is 0: drain it at each front",
                )?;
                self.unknown_until.get_or_insert(now.after(notice));
                Ok(ctl::drain(node, connections))
            }
            Command::Resume { node } => {
                self.unknown_until = None;
                Ok(ctl::done(format!("{node} may be chosen again")))
            }
            _ => Err("this node's server isn't leat: leat knows its connections, and of requests nothing".to_owned()),
        }
    }
}

impl Unserved {
    /// Whether that is to be said: once, until the server is given something.
    fn is_stuck(&mut self, served: u64, unserved: u64, is_well: bool) -> bool {
        let (served_before, unserved_before) = self.last.replace((served, unserved)).unwrap_or((served, unserved));
        if !is_well || served != served_before {
            self.in_a_row = 0;
            return false;
        }
        let before = self.in_a_row;
        self.in_a_row += unserved.saturating_sub(unserved_before);
        before < UNSERVED_MAX && self.in_a_row >= UNSERVED_MAX
    }
}

/// How long it takes fronts to see that the node refuses their probes: the first of them may come just after one that was answered.
fn notice(cluster: &Cluster) -> Option<Duration> {
    let checks = &cluster.health;
    let last = (checks.interval + checks.timeout) * (checks.fall + 1);
    (!checks.interval.is_zero()).then(|| last + cluster.report_interval * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_nothing_is_given_to_a_server_that_listens_is_said_once() {
        let mut packets = Unserved::default();
        let mut said = |served, unserved, is_well| packets.is_stuck(served, unserved, is_well);
        assert!(!said(5, 100, true), "what an earlier process has counted");
        assert!(!said(5, 102, true));
        assert!(said(5, 103, true));
        assert!(!said(5, 200, true), "once");
        assert!(!said(6, 200, true), "it's given something");
        assert!(!said(6, 202, true) && !said(6, 205, false) && !said(6, 207, true), "it doesn't listen");
        assert!(said(6, 208, true));
    }

    #[test]
    fn fronts_have_noticed_when_as_many_probes_have_failed_as_it_takes() {
        let mut cluster = Cluster { report_interval: Duration::from_millis(500), ..Cluster::default() };
        (cluster.health.interval, cluster.health.timeout) = (Duration::from_secs(2), Duration::from_secs(1));
        cluster.health.fall = 3;
        assert_eq!(notice(&cluster), Some(Duration::from_secs(13)));
        cluster.health.interval = Duration::ZERO;
        assert_eq!(notice(&cluster), None);
        let mut served = Served::new(None);
        let drain = Command::Drain { node: cluster.name.clone() };
        let error = served.answer(&drain, &cluster, Instant::default()).expect_err("nobody would notice");
        assert!(error.ends_with("drain it at each front"), "{error}");
        let other = Command::Drain { node: "n9".to_owned() };
        assert!(served.answer(&other, &cluster, Instant::default()).is_err());
    }
}
