//! Deadline: the child goes first below which an event should have been served earliest (earliest deadline first; Liu and Layland, 1973).
//! Events without a deadline wait for all that have one; of the others none waits for what is queued after its deadline.

use super::most_urgent::{Measure, MostUrgent};
use crate::schedule::event_queue::Urgency;

/// Goes by deadlines.
pub(in crate::schedule) enum ByDeadline {}

/// The ready children by their first event's deadline.
pub(in crate::schedule) type Deadline = MostUrgent<ByDeadline>;

impl Measure for ByDeadline {
    const NAME: &'static str = "deadline";
    const ABOUT: &'static str = "the child is served with the earliest deadline among the events that are next at its leaves: when it was queued and `max_queue_delay` of its site; those \
         of a site without one come last";

    #[inline]
    fn key(urgency: Urgency) -> u64 {
        urgency.deadline_ns
    }
}
