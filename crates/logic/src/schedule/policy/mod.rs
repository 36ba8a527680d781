//! The plug-in point for scheduling policies: which of its ready children a node serves next. One file for each policy; a new one is that
//! file and a line in the list below, and the configuration, the reference, the conformance test and the benchmark have it.
//!
//! A policy is told of each child that becomes ready (`ready`), is asked whom to serve (`take`), and is then told what that has cost and
//! whether there is more (`give_back`). Between the last two the child is neither in the policy's order nor idle: it's being served.

mod deadline;
mod most_urgent;
mod round_robin;
mod shortest_remaining;
mod strict_priority;
mod weighted_fair;

#[cfg(test)]
mod conformance;

use super::event_queue::Urgency;
use super::seat::Seat;
use super::share::Share;

/// What a node asks of its policy. A child is named by its seat's number; what the policy wants to remember of one is in the seat.
pub(super) trait Policy {
    /// As in the configuration.
    const NAME: &'static str;
    /// One line for the reference.
    const ABOUT: &'static str;

    fn new() -> Self;

    /// A child has been added below the node, idle as yet.
    fn join(&mut self, _seats: &mut [Seat], _child: u32) {}

    /// Whether no child is ready.
    fn is_empty(&self) -> bool;

    /// A child that was idle has events.
    fn ready(&mut self, seats: &mut [Seat], child: u32);

    /// Takes the child to be served out of the order.
    fn take(&mut self, seats: &mut [Seat]) -> Option<u32>;

    /// As [`Policy::take`] if that is done in a few instructions and without a call; otherwise nothing is.
    fn take_at_once(&mut self, _seats: &mut [Seat]) -> Option<u32> {
        None
    }

    /// As [`Policy::give_back`] if that is done in a few instructions and without a call, and whether any child is ready then; otherwise nothing is.
    fn give_back_at_once(&mut self, _seats: &mut [Seat], _child: u32, _cost_ns: u64, _is_ready: bool) -> Option<bool> {
        None
    }

    /// The child that was taken has been served for `cost_ns`; it goes back into the order if it `is_ready`, else it's idle.
    fn give_back(&mut self, seats: &mut [Seat], child: u32, cost_ns: u64, is_ready: bool);

    /// What a child's service cost turns out to be so much more or less than it was told. The child may be ready, being served or idle.
    fn correct(&mut self, _seats: &mut [Seat], _child: u32, _delta_ns: i64) {}

    /// How far a child that wakes may be behind what it would have had, in virtual time, where the policy has that.
    fn set_lag_max(&mut self, _virtual_time: u64) {}

    /// Takes a ready child out of the order without serving it.
    fn withdraw(&mut self, seats: &mut [Seat], child: u32);

    /// Gives a child another share. It may be ready (and so in the order), being served or idle.
    fn reshare(&mut self, seats: &mut [Seat], child: u32, share: Share, _is_ready: bool) {
        seats[child as usize].set_share(share);
    }

    /// Where an event stands in this policy's order, lowest first; `None` if the policy doesn't go by events. If it does, a child's key is
    /// set to its own before `ready`, `give_back` and `rekey`.
    fn urgency_key(_urgency: Urgency) -> Option<u64> {
        None
    }

    /// Calls `visit` with the children that make a node as urgent as it is: the one that would be served next, then the others that are ready unless
    /// the policy goes by urgency itself.
    fn each_urgent(&self, seats: &[Seat], visit: &mut dyn FnMut(u32));

    /// A ready child's key is another now, where the policy goes by events.
    fn rekey(&mut self, _seats: &mut [Seat], _child: u32) {}
}

/// Makes the list of policies into one type, so that a call is a jump and not a pointer chase. Those that take and give back at once are named again:
/// they are few enough to be found by comparisons, and as no other is called on the way, an event spares its registers.
macro_rules! policies {
    ($($variant:ident in $module:ident),+ $(,)?; at once: $($at_once:ident),+) => {
        /// A scheduling policy that a node may have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum PolicyKind {
            $(#[doc = concat!("See `policy/", stringify!($module), ".rs`.")] $variant,)+
        }

        impl PolicyKind {
            /// All that there are, in the order of the reference.
            pub const ALL: &'static [PolicyKind] = &[$(PolicyKind::$variant),+];

            /// Its name in the configuration, the metrics and the dashboard.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(PolicyKind::$variant => <$module::$variant as Policy>::NAME,)+ }
            }

            /// One line for the reference.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(PolicyKind::$variant => <$module::$variant as Policy>::ABOUT,)+ }
            }
        }

        /// A node's policy with its state. With a tag of its own, as working one out of a field's spare values takes longer than the jump.
        #[repr(u8)]
        #[expect(clippy::large_enum_variant, reason = "nearly all nodes have the largest, and it's at hand for each event")]
        pub(super) enum AnyPolicy {
            $($variant($module::$variant),)+
        }

        impl AnyPolicy {
            pub(super) fn new(kind: PolicyKind) -> AnyPolicy {
                match kind { $(PolicyKind::$variant => AnyPolicy::$variant($module::$variant::new()),)+ }
            }

            pub(super) fn kind(&self) -> PolicyKind {
                match self { $(AnyPolicy::$variant(_) => PolicyKind::$variant,)+ }
            }

            pub(super) fn join(&mut self, seats: &mut [Seat], child: u32) {
                match self { $(AnyPolicy::$variant(policy) => policy.join(seats, child),)+ }
            }

            pub(super) fn is_empty(&self) -> bool {
                match self { $(AnyPolicy::$variant(policy) => policy.is_empty(),)+ }
            }

            #[inline(always)]
            pub(super) fn take_at_once(&mut self, seats: &mut [Seat]) -> Option<u32> {
                match self {
                    $(AnyPolicy::$at_once(policy) => policy.take_at_once(seats),)+
                    _ => None,
                }
            }

            #[inline(always)]
            pub(super) fn give_back_at_once(&mut self, seats: &mut [Seat], child: u32, cost_ns: u64, is_ready: bool) -> Option<bool> {
                match self {
                    $(AnyPolicy::$at_once(policy) => policy.give_back_at_once(seats, child, cost_ns, is_ready),)+
                    _ => None,
                }
            }

            #[inline(always)]
            pub(super) fn ready(&mut self, seats: &mut [Seat], child: u32) {
                match self { $(AnyPolicy::$variant(policy) => policy.ready(seats, child),)+ }
            }

            #[inline(always)]
            pub(super) fn take(&mut self, seats: &mut [Seat]) -> Option<u32> {
                match self { $(AnyPolicy::$variant(policy) => policy.take(seats),)+ }
            }

            /// Also says whether any child is ready now.
            #[inline(always)]
            pub(super) fn give_back(&mut self, seats: &mut [Seat], child: u32, cost_ns: u64, is_ready: bool) -> bool {
                match self {
                    $(AnyPolicy::$variant(policy) => {
                        policy.give_back(seats, child, cost_ns, is_ready);
                        is_ready || !policy.is_empty()
                    })+
                }
            }

            pub(super) fn correct(&mut self, seats: &mut [Seat], child: u32, delta_ns: i64) {
                match self { $(AnyPolicy::$variant(policy) => policy.correct(seats, child, delta_ns),)+ }
            }

            pub(super) fn set_lag_max(&mut self, virtual_time: u64) {
                match self { $(AnyPolicy::$variant(policy) => policy.set_lag_max(virtual_time),)+ }
            }

            pub(super) fn withdraw(&mut self, seats: &mut [Seat], child: u32) {
                match self { $(AnyPolicy::$variant(policy) => policy.withdraw(seats, child),)+ }
            }

            pub(super) fn reshare(&mut self, seats: &mut [Seat], child: u32, share: Share, is_ready: bool) {
                match self { $(AnyPolicy::$variant(policy) => policy.reshare(seats, child, share, is_ready),)+ }
            }

            pub(super) fn urgency_key(&self, urgency: Urgency) -> Option<u64> {
                match self { $(AnyPolicy::$variant(_) => <$module::$variant as Policy>::urgency_key(urgency),)+ }
            }

            pub(super) fn each_urgent(&self, seats: &[Seat], visit: &mut dyn FnMut(u32)) {
                match self { $(AnyPolicy::$variant(policy) => policy.each_urgent(seats, visit),)+ }
            }

            pub(super) fn rekey(&mut self, seats: &mut [Seat], child: u32) {
                match self { $(AnyPolicy::$variant(policy) => policy.rekey(seats, child),)+ }
            }
        }
    };
}

policies! {
    RoundRobin in round_robin,
    WeightedFair in weighted_fair,
    StrictPriority in strict_priority,
    Deadline in deadline,
    ShortestRemaining in shortest_remaining;
    at once: RoundRobin, WeightedFair, StrictPriority
}

#[cfg(test)]
impl AnyPolicy {
    /// A weighted fair policy that has been at work for long.
    pub(super) fn weighted_fair_at(virtual_time: u64) -> AnyPolicy {
        AnyPolicy::WeightedFair(weighted_fair::WeightedFair::starting_at(virtual_time))
    }

    /// By how much virtual times may differ that are taken for equal.
    pub(super) fn virtual_width(&self) -> u64 {
        match self {
            AnyPolicy::WeightedFair(policy) => policy.width(),
            _ => 1,
        }
    }
}

impl PolicyKind {
    /// The policy that the configuration calls `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<PolicyKind> {
        PolicyKind::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

impl std::fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
