//! Shortest remaining first: the child goes first whose next event is for the request with the least left to do, which gives the lowest
//! mean response time (Schrage, 1968; for web servers Harchol-Balter and others, 2003). Under a load that never ends, long requests wait
//! for as long as it takes: put such a node under a weighted fair one.

use super::most_urgent::{Measure, MostUrgent};
use crate::schedule::event_queue::Urgency;

/// Goes by what is left to do.
pub(in crate::schedule) enum ByRemaining {}

/// The ready children by their first event's remaining work.
pub(in crate::schedule) type ShortestRemaining = MostUrgent<ByRemaining>;

impl Measure for ByRemaining {
    const NAME: &'static str = "shortest_remaining";
    const ABOUT: &'static str = "the child is served whose next event is for the request with the fewest bytes of its reply left to send. \
         Requests whose reply isn't known yet have none left; those whose handlers compute, and replies whose length isn't known, come last";

    #[inline]
    fn key(urgency: Urgency) -> u64 {
        urgency.remaining
    }
}
