//! Deadline: the child whose first event should have been served earliest goes first (earliest deadline first; Liu and Layland, 1973).
//! Events without a deadline wait for all that have one.

use super::most_urgent::{Measure, MostUrgent};
use crate::schedule::event_queue::Urgency;

/// Goes by deadlines.
pub(in crate::schedule) enum ByDeadline {}

/// The ready children by their first event's deadline.
pub(in crate::schedule) type Deadline = MostUrgent<ByDeadline>;

impl Measure for ByDeadline {
    const NAME: &'static str = "deadline";
    const ABOUT: &'static str = "the child whose first event has the earliest deadline is served; events without one come last. \
         Workers name none yet, so it is first come, first served";

    #[inline]
    fn key(urgency: Urgency) -> u64 {
        urgency.deadline_ns
    }

    fn urgency(deadline_ns: u64) -> Urgency {
        Urgency { deadline_ns, ..Urgency::NONE }
    }
}
