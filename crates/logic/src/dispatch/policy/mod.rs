//! The plug-in point for dispatch policies: which of the nodes that may be chosen gets a request. One file for each policy; a new one is that
//! file and a line in the list below, and the configuration, the reference and the test that all must pass have it.
//!
//! A policy is asked for a plan, which changes nothing; only `commit` does. So the same code chooses and explains.

mod consistent_hash;
mod least_connections;
mod mix_lard;
mod power_of_two;
mod round_robin;

#[cfg(test)]
mod conformance;

use std::fmt;

use super::classify::Class;
use super::facts::ContentKey;
use super::node::{NodeId, NodeSet};
use super::table::Table;
use crate::time::Instant;

pub use mix_lard::MixLardSettings;

/// What policies can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// For `mix_lard`.
    pub mix_lard: MixLardSettings,
    /// For `consistent_hash`: the load that a node may have, in hundredths of the average; 100 and more.
    pub load_bound_percent: u32,
}

impl Default for PolicySettings {
    fn default() -> Self {
        PolicySettings { mix_lard: MixLardSettings::default(), load_bound_percent: 125 }
    }
}

/// A node that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: NodeId,
    /// Of its name; the same on every machine.
    pub(super) seed: u64,
    /// Its weight times the thousandths of it that count; at least 1.
    pub(super) share: u64,
    /// Requests under way.
    pub(super) active: u32,
    /// Requests given to it since it last said how many are under way, of whose ends nothing is heard.
    pub(super) unheard: u32,
    /// The busy part of its processors; 0 when unknown.
    pub(super) busy_permille: u16,
    /// What was remembered of it up to here holds no more.
    pub(super) forgotten: Instant,
}

/// The share of a node of weight 100 that isn't starting slowly.
const SHARE_ORDINARY: u64 = 100 * 1000;

impl Candidate {
    /// Requests under way for a weight of 100.
    pub(super) fn load(&self) -> u64 {
        u64::from(self.active) * SHARE_ORDINARY / self.share
    }

    /// What it had to do when it said so last, and what it was given since, for a weight of 100: where new things go evenly between two reports.
    pub(super) fn load_with_unheard(&self) -> u64 {
        (u64::from(self.active) + u64::from(self.unheard)) * SHARE_ORDINARY / self.share
    }

    /// Requests under way, this one included, over its share: for comparing. So that not all go between two reports to the one that had the fewest, what
    /// it was given since counts as well where nothing is heard of its end.
    fn crowding(&self) -> u64 {
        ((u64::from(self.active) + u64::from(self.unheard) + 1) << 24) / self.share
    }

    /// The same over the idle part of its processors.
    pub(super) fn pressure(&self) -> u64 {
        const IDLE_PERMILLE_MIN: u64 = 50;
        let idle = 1000_u64.saturating_sub(self.busy_permille.into()).max(IDLE_PERMILLE_MIN);
        self.crowding().saturating_mul(1000) / idle
    }

    /// A number that depends on content and node alone: the same on every machine.
    fn affinity(&self, key: ContentKey) -> u64 {
        // The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
        let mut mixed = key.0 ^ self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// What a policy is asked.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) key: ContentKey,
    pub(super) class: Class,
    /// At least one.
    pub(super) candidates: &'a [Candidate],
    /// Another number at each choice.
    pub(super) random: u64,
    pub(super) now: Instant,
}

impl Ask<'_> {
    /// The candidate with the least `measure`, the one with the highest affinity to the content among equals.
    fn least<K: Ord>(&self, measure: impl Fn(&Candidate) -> K) -> Candidate {
        let order = |c: &&Candidate| (measure(c), std::cmp::Reverse(c.affinity(self.key)));
        *self.candidates.iter().min_by_key(order).expect("a policy is asked only when there are candidates")
    }
}

/// What a policy would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) node: NodeId,
    pub(super) why: Why,
    /// What a policy with a table will remember of the content; else nothing.
    pub(super) nodes: NodeSet,
}

impl Plan {
    fn new(node: &Candidate, why: Why) -> Plan {
        Plan { node: node.id, why, nodes: NodeSet::EMPTY }
    }
}

/// Why a node was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The content was sent there last; it's remembered at so many nodes.
    Remembered(u32),
    /// The content isn't remembered anywhere; this node has the least to do.
    New,
    /// All nodes that the content is remembered at have too much to do; the least loaded of them has this load.
    Replicated(u64),
    /// A dynamic request, and this node has the least to do.
    LeastPressure,
    /// Its turn.
    Turn,
    /// The fewest requests under way for its weight.
    FewestUnderWay,
    /// Of two drawn, it has less to do than the other.
    LessThan(NodeId),
    /// There is no other.
    Only,
    /// The content's hash says so.
    Hashed,
    /// The content's hash says another, which has its part already.
    PastFull(NodeId),
    /// It has the connection, and any node would do.
    HasConnection,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Remembered(1) => f.write_str("its content was sent there last"),
            Why::Remembered(nodes) => write!(f, "its content is at {nodes} nodes, of which this has the least to do"),
            Why::New => f.write_str("its content is nowhere yet, and this node has the least to do"),
            Why::Replicated(load) => {
                write!(f, "its content gets one more node, as those that it's at have a load of {load} or more")
            }
            Why::LeastPressure => f.write_str("a dynamic request, and this node has the least to do"),
            Why::Turn => f.write_str("it's this node's turn"),
            Why::FewestUnderWay => f.write_str("it has the fewest requests under way for its weight"),
            Why::LessThan(_) => f.write_str("of two drawn it has less to do"),
            Why::Only => f.write_str("there is no other"),
            Why::Hashed => f.write_str("its content's hash says so"),
            Why::HasConnection => f.write_str("it has the connection, and any node would do"),
            Why::PastFull(_) => f.write_str("its content's hash says another, which has its part already"),
        }
    }
}

/// What the dispatcher asks of a policy.
pub(super) trait Policy {
    /// As in the configuration.
    const NAME: &'static str;
    /// One line for the reference.
    const ABOUT: &'static str;

    fn new(settings: &PolicySettings) -> Self;

    /// Other settings, while it runs.
    fn configure(&mut self, _settings: &PolicySettings) {}

    /// Which candidate it would choose. The same question gets the same answer until the next `commit`.
    fn plan(&self, ask: &Ask<'_>) -> Plan;

    /// The plan that it made for this question is carried out.
    fn commit(&mut self, _ask: &Ask<'_>, _plan: &Plan) {}

    /// What it remembers of contents.
    fn table(&self) -> Option<&Table> {
        None
    }
}

/// Makes the list of policies into one type. The first is the default.
macro_rules! policies {
    ($first:ident in $first_module:ident, $($variant:ident in $module:ident),+ $(,)?) => {
        /// A dispatch policy.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub enum PolicyKind {
            #[doc = concat!("See `policy/", stringify!($first_module), ".rs`.")]
            #[default]
            $first,
            $(#[doc = concat!("See `policy/", stringify!($module), ".rs`.")] $variant,)+
        }

        impl PolicyKind {
            /// All that there are, in the order of the reference.
            pub const ALL: &'static [PolicyKind] = &[PolicyKind::$first, $(PolicyKind::$variant),+];

            /// Its name in the configuration and the metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    PolicyKind::$first => <$first_module::$first as Policy>::NAME,
                    $(PolicyKind::$variant => <$module::$variant as Policy>::NAME,)+
                }
            }

            /// One line for the reference.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self {
                    PolicyKind::$first => <$first_module::$first as Policy>::ABOUT,
                    $(PolicyKind::$variant => <$module::$variant as Policy>::ABOUT,)+
                }
            }

            /// A policy of this kind that remembers nothing yet.
            pub(super) fn start(self, settings: &PolicySettings) -> Box<dyn AnyPolicy> {
                match self {
                    PolicyKind::$first => Box::new($first_module::$first::new(settings)),
                    $(PolicyKind::$variant => Box::new($module::$variant::new(settings)),)+
                }
            }
        }
    };
}

policies! {
    MixLard in mix_lard,
    RoundRobin in round_robin,
    LeastConnections in least_connections,
    PowerOfTwo in power_of_two,
    ConsistentHash in consistent_hash,
}

impl PolicyKind {
    /// Whether the same content goes to the same nodes.
    #[must_use]
    pub fn goes_by_content(self) -> bool {
        matches!(self, PolicyKind::MixLard | PolicyKind::ConsistentHash)
    }

    /// The policy that the configuration calls `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<PolicyKind> {
        PolicyKind::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Any policy, as the dispatcher holds it: one call through a pointer for each choice.
pub(super) trait AnyPolicy: Send {
    fn configure(&mut self, settings: &PolicySettings);
    fn plan(&self, ask: &Ask<'_>) -> Plan;
    fn commit(&mut self, ask: &Ask<'_>, plan: &Plan);
    fn table(&self) -> Option<&Table>;
}

impl<P: Policy + Send> AnyPolicy for P {
    fn configure(&mut self, settings: &PolicySettings) {
        Policy::configure(self, settings);
    }

    fn plan(&self, ask: &Ask<'_>) -> Plan {
        Policy::plan(self, ask)
    }

    fn commit(&mut self, ask: &Ask<'_>, plan: &Plan) {
        Policy::commit(self, ask, plan);
    }

    fn table(&self) -> Option<&Table> {
        Policy::table(self)
    }
}
