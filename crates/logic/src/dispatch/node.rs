//! What is known of a node: what it serves, and how much it has to do. Whether it's fit is `health`'s.

use std::net::IpAddr;
use std::time::Duration;

use super::facts::Facts;
use super::health::Health;
use super::limits::NODES_MAX;
use crate::network::Network;
use crate::serve::hosts::{HostPattern, HostTable};
use crate::serve::path_pattern::PathPattern;
use crate::time::Instant;

/// A node's place in its dispatcher: below [`NODES_MAX`], the same as long as the node is configured, and given to another after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) u8);

impl NodeId {
    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Some of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(u64);

const _: () = assert!(NODES_MAX <= u64::BITS as usize);

impl NodeSet {
    /// None.
    pub const EMPTY: NodeSet = NodeSet(0);

    /// This set and `node`.
    #[must_use]
    pub fn with(self, node: NodeId) -> NodeSet {
        NodeSet(self.0 | 1 << node.0)
    }

    /// This set without `node`.
    #[must_use]
    pub fn without(self, node: NodeId) -> NodeSet {
        NodeSet(self.0 & !(1 << node.0))
    }

    /// Whatever is in either.
    #[must_use]
    pub fn or(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 | other.0)
    }

    /// Whether `node` is in it.
    #[must_use]
    pub fn contains(self, node: NodeId) -> bool {
        self.0 & 1 << node.0 != 0
    }

    /// How many there are.
    #[must_use]
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Lowest place first.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let place = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            u8::try_from(place).ok().filter(|place| *place < 64).map(NodeId)
        })
    }
}

/// What a node serves: requests for one of the hosts and one of the paths. No hosts are all hosts, no paths all paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serves {
    hosts: Option<HostTable>,
    paths: Vec<PathPattern>,
}

impl Serves {
    /// From the configuration's lists. Paths are compared with what the client sends, before anything is decoded.
    #[must_use]
    pub fn new(hosts: &[HostPattern], paths: &[PathPattern]) -> Serves {
        let table = || HostTable::new(hosts.iter().map(|host| (host.clone(), 0)), None);
        Serves { hosts: (!hosts.is_empty()).then(table), paths: paths.to_vec() }
    }

    /// Whether it has some hosts only.
    #[must_use]
    pub fn goes_by_host(&self) -> bool {
        self.hosts.is_some()
    }

    /// Whether it has what is asked for.
    #[must_use]
    pub fn has(&self, facts: &Facts<'_>) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.site(facts.host).is_some())
            && (self.paths.is_empty() || self.paths.iter().any(|paths| paths.split(facts.path).is_some()))
    }
}

/// What a node says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Requests under way, from all dispatchers and from elsewhere.
    pub active: u32,
    /// The part of its processors that was busy since the last report, in thousandths.
    pub busy_permille: u16,
    /// It has memory for more contents than those that it's given.
    pub has_memory: bool,
}

/// How much a node has to do: its last report and what this dispatcher has given it since.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Given by this dispatcher and not ended.
    under_way: u32,
    /// Given since the last report by this dispatcher, which won't hear of their ends.
    unheard: u32,
    report: Option<Reported>,
}

#[derive(Clone, Copy, Debug)]
struct Reported {
    at: Instant,
    report: LoadReport,
    /// `under_way` at that time.
    under_way: u32,
}

impl Load {
    pub(super) fn begin(&mut self) {
        self.under_way = self.under_way.saturating_add(1);
    }

    pub(super) fn begin_unheard(&mut self) {
        self.unheard = self.unheard.saturating_add(1);
    }

    pub(super) fn unheard(&self) -> u32 {
        self.unheard
    }

    pub(super) fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    pub(super) fn report(&mut self, report: LoadReport, now: Instant) {
        self.unheard = 0;
        self.report = Some(Reported { at: now, report, under_way: self.under_way });
    }

    /// Requests under way as far as can be known.
    pub(super) fn active(&self, now: Instant, age_max: Duration) -> u32 {
        match self.fresh(now, age_max) {
            Some(reported) => {
                let ended = reported.under_way.saturating_sub(self.under_way);
                let begun = self.under_way.saturating_sub(reported.under_way);
                reported.report.active.saturating_sub(ended).saturating_add(begun)
            }
            None => self.under_way,
        }
    }

    /// The busy part of its processors in thousandths; 0 when it hasn't said so lately.
    pub(super) fn busy_permille(&self, now: Instant, age_max: Duration) -> u16 {
        self.fresh(now, age_max).map_or(0, |reported| reported.report.busy_permille.min(1000))
    }

    /// Whether it has said lately that it has memory for more.
    pub(super) fn has_memory(&self, now: Instant, age_max: Duration) -> bool {
        self.fresh(now, age_max).is_some_and(|reported| reported.report.has_memory)
    }

    /// Time since the last report.
    pub(super) fn report_age(&self, now: Instant) -> Option<Duration> {
        self.report.map(|reported| now.since(reported.at))
    }

    fn fresh(&self, now: Instant, age_max: Duration) -> Option<&Reported> {
        self.report.as_ref().filter(|reported| now.since(reported.at) <= age_max)
    }
}

/// A configured node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    /// 1 to `WEIGHT_MAX`.
    pub(super) weight: u32,
    /// Of its name; the same on every machine.
    pub(super) seed: u64,
    /// Whose clients it's near to.
    pub(super) near: Vec<Network>,
    pub(super) is_draining: bool,
    /// While it has no room for more, what it fails to take is no fault of its.
    pub(super) is_excused: bool,
    pub(super) health: Health,
    pub(super) load: Load,
    /// What was remembered of it up to here holds no more.
    pub(super) forgotten: Instant,
}

impl Node {
    /// How near it is to a client: the prefix of the smallest of its networks that has it.
    pub(super) fn nearness(&self, client: IpAddr) -> Option<u8> {
        self.near.iter().filter(|network| network.contains(client)).map(Network::prefix).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_lists_what_was_put_in() {
        let set = NodeSet::EMPTY.with(NodeId(63)).with(NodeId(0)).with(NodeId(7)).without(NodeId(7));
        assert_eq!(set.iter().collect::<Vec<_>>(), [NodeId(0), NodeId(63)]);
        assert!(set.contains(NodeId(63)) && !set.contains(NodeId(7)) && set.len() == 2 && !set.is_empty());
        assert_eq!(NodeSet::EMPTY.iter().count(), 0);
    }

    #[test]
    fn a_node_serves_what_it_is_said_to() {
        let hosts: Vec<HostPattern> = ["*.example.org", "example.org"].map(|host| host.parse().expect("a host")).into();
        let serves = Serves::new(&hosts, &[PathPattern::parse("/images/*").expect("a pattern")]);
        let has = |text: &'static str| serves.has(&Facts::written(text).expect("it has a path"));
        assert!(has("http://www.EXAMPLE.org/images/a.png") && has("http://example.org/images/"));
        assert!(!has("http://www.example.org/") && !has("http://example.net/images/") && !has("/images/"));
        assert!(Serves::default().has(&Facts::default()));
    }

    #[test]
    fn a_report_is_brought_up_to_date_by_what_came_after() {
        let (mut load, age_max) = (Load::default(), Duration::from_secs(3));
        let at = |seconds: u64| Instant { ns: seconds * 1_000_000_000 };
        load.begin();
        load.begin();
        assert_eq!(load.active(at(0), age_max), 2);
        load.report(LoadReport { active: 10, busy_permille: 1500, has_memory: false }, at(1));
        load.begin();
        assert_eq!((load.active(at(1), age_max), load.busy_permille(at(1), age_max)), (11, 1000));
        load.end();
        load.end();
        assert_eq!(load.active(at(4), age_max), 9);
        assert_eq!((load.active(at(5), age_max), load.busy_permille(at(5), age_max)), (1, 0), "too old to count");
        load.end();
        load.end();
        assert_eq!(load.active(at(5), age_max), 0);
    }
}
