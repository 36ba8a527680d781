//! What was done between two readings of the clock, and who was charged for it. Divides an error among those who were charged; what the
//! operations ought to cost is in `fit`.

use super::Operation;
use crate::schedule::{Cost, LeafId};

/// Operations and charges since the last measurement.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    counts: [u32; Operation::COUNT],
    bytes: [u64; Operation::COUNT],
    /// What each leaf was charged, in nanoseconds; each leaf is here once.
    charges: Vec<(LeafId, u64)>,
    /// For each leaf by its index, where in `charges` it may be: right only if it's indeed there, so that nothing has to be cleared.
    places: Vec<u32>,
    charged_ns: u64,
}

impl Batch {
    /// A batch of nothing.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Counts an operation that is charged to nobody, or to be charged by [`Batch::charge`].
    #[inline]
    pub fn count(&mut self, operation: Operation, bytes: u64) {
        self.counts[operation.index()] = self.counts[operation.index()].saturating_add(1);
        self.bytes[operation.index()] = self.bytes[operation.index()].saturating_add(bytes);
    }

    /// Notes that `leaf` has been charged `cost` for something that was counted.
    #[inline]
    pub fn charge(&mut self, leaf: LeafId, cost: Cost) {
        self.charged_ns = self.charged_ns.saturating_add(cost.ns);
        let index = leaf.index as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, 0);
        }
        match self.charges.get_mut(self.places[index] as usize) {
            Some((known, charged_ns)) if *known == leaf => *charged_ns = charged_ns.saturating_add(cost.ns),
            _ => {
                self.places[index] = self.charges.len() as u32;
                self.charges.push((leaf, cost.ns));
            }
        }
    }

    /// Notes that `to` pays so much of what `from` was charged, if that was since the last measurement.
    pub fn transfer(&mut self, from: LeafId, to: LeafId, ns: u64) {
        let place = self.places.get(from.index as usize).copied().unwrap_or(0) as usize;
        let Some((known, charged_ns)) = self.charges.get_mut(place) else { return };
        if *known == from {
            let moved_ns = ns.min(*charged_ns);
            *charged_ns -= moved_ns;
            self.charged_ns -= moved_ns;
            self.charge(to, Cost::from_ns(moved_ns));
        }
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }

    /// How many operations of a kind there were.
    #[must_use]
    pub fn operations(&self, operation: Operation) -> u32 {
        self.counts[operation.index()]
    }

    /// On how many bytes.
    #[must_use]
    pub fn bytes(&self, operation: Operation) -> u64 {
        self.bytes[operation.index()]
    }

    /// What all leaves were charged together, in nanoseconds.
    #[must_use]
    pub fn charged_ns(&self) -> u64 {
        self.charged_ns
    }

    /// Divides `error_ns` among the leaves in proportion to what each was charged, to the last nanosecond: for `Tree::correct`. A batch that
    /// charged nobody has nobody to correct.
    pub fn corrections(&self, error_ns: i64) -> impl Iterator<Item = (LeafId, i64)> + '_ {
        let total_ns = u128::from(self.charged_ns.max(1));
        let mut before_ns = 0_u128;
        let mut given_ns = 0_i64;
        self.charges.iter().map(move |&(leaf, charged_ns)| {
            before_ns += u128::from(charged_ns);
            let due_ns = (u128::from(error_ns.unsigned_abs()) * before_ns / total_ns) as i64 * error_ns.signum();
            let delta_ns = due_ns - given_ns;
            given_ns = due_ns;
            (leaf, delta_ns)
        })
    }

    /// Makes it a batch of nothing, and keeps its memory.
    pub fn clear(&mut self) {
        self.counts = [0; Operation::COUNT];
        self.bytes = [0; Operation::COUNT];
        self.charges.clear();
        self.charged_ns = 0;
    }
}
