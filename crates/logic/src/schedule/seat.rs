//! What is kept of each member of the tree, in 64 bytes: as much as a cache line, and one bounds check. The tree owns the seats; what `key`
//! and `next` mean is for the parent's policy to say.

use super::event_queue::Queue;
use super::share::Share;
use std::hint::cold_path;

/// No seat, no event, no policy.
pub(super) const NONE: u32 = u32::MAX;

/// Virtual time that passes for one nanosecond at weight 1. Divisible by every weight from 1 to 16, so that their shares are exact.
const VIRTUAL_PER_NS: u64 = 720_720;

/// The most that one cost is worth: 200 s at weight 1. A power of two.
pub(super) const VIRTUAL_MAX: u64 = 1 << 57;

/// The part of a weight's inverse behind the point, in bits.
const INVERSE_FRACTION_BITS: u32 = 32;

/// A leaf or an inner node, as the child of its parent.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Seat {
    /// Where the child stands in its policy's order: a virtual time, or an urgency.
    pub(super) key: u64,
    /// Virtual time for each nanosecond of cost, as a fixed-point number.
    inverse: u64,
    /// The child behind this one in a list of the policy's.
    pub(super) next: u32,
    /// The seat of the node that it's a child of; [`NONE`] for the root.
    pub(super) parent: u32,
    /// Where its policy is, for an inner node; [`NONE`] for a leaf.
    pub(super) policy: u32,
    /// Higher goes first.
    pub(super) priority: u8,
    /// Whether the parent knows it to have events: it's in the policy's order, or is being served.
    pub(super) pending: bool,
    /// Whether this leaf is listed for [`super::Tree::take_used`].
    pub(super) is_stirred: bool,
    /// The events of a leaf.
    pub(super) queue: Queue,
    /// Goes up when a member is removed, so that old names don't fit.
    pub(super) generation: u32,
    /// Events of this leaf that have been served; of an inner node, those of leaves below it that have been removed.
    pub(super) served: u64,
    /// What they cost, in nanoseconds.
    pub(super) charged_ns: u64,
}

impl Seat {
    pub(super) fn new(parent: u32, policy: u32, generation: u32, share: Share) -> Seat {
        let mut seat = Seat {
            key: 0,
            inverse: 0,
            next: NONE,
            parent,
            policy,
            priority: 0,
            pending: false,
            is_stirred: false,
            queue: Queue::EMPTY,
            generation,
            served: 0,
            charged_ns: 0,
        };
        seat.set_share(share);
        seat
    }

    /// Counts an event that has cost `cost_ns`; whether the leaf has more.
    #[inline]
    pub(super) fn serve(&mut self, cost_ns: u64) -> bool {
        self.served = self.served.wrapping_add(1);
        self.charged_ns = self.charged_ns.wrapping_add(cost_ns);
        self.queue.len > 0
    }

    pub(super) fn set_share(&mut self, share: Share) {
        let weight = u64::from(share.weight.clamp(1, Share::WEIGHT_MAX));
        self.inverse = (VIRTUAL_PER_NS << INVERSE_FRACTION_BITS) / weight;
        self.priority = share.priority;
    }

    /// The cost that `virtual_time` is worth to this child, in nanoseconds, rounded down.
    pub(super) fn cost_ns(&self, virtual_time: u64) -> u64 {
        let cost_ns = (u128::from(virtual_time) << INVERSE_FRACTION_BITS) / u128::from(self.inverse);
        u64::try_from(cost_ns).unwrap_or(u64::MAX)
    }

    /// The virtual time that `cost_ns` is worth to this child, no more than [`VIRTUAL_MAX`].
    #[inline]
    pub(super) fn virtual_time(&self, cost_ns: u64) -> u64 {
        let product = u128::from(cost_ns) * u128::from(self.inverse);
        let high = (product >> 64) as u64;
        // Costs are far below the limit: a shift tells.
        if high >> (INVERSE_FRACTION_BITS + VIRTUAL_MAX.trailing_zeros() - 64) != 0 {
            cold_path();
            return VIRTUAL_MAX;
        }
        // Rotated, as the upper half of `high` is empty: a processor's shift of two words at once takes longer.
        high.rotate_left(64 - INVERSE_FRACTION_BITS) | (product as u64) >> INVERSE_FRACTION_BITS
    }
}

/// The virtual time that passes while children of these weights together are served for `cost_ns`.
pub(super) fn virtual_time_of_all(cost_ns: u64, weights: u64) -> u64 {
    cost_ns.saturating_mul(VIRTUAL_PER_NS) / weights.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_as_large_as_a_cache_line() {
        assert_eq!(size_of::<Seat>(), 64);
    }

    #[test]
    fn virtual_time_is_exact_for_small_weights() {
        for weight in 1..=16 {
            let seat = Seat::new(NONE, NONE, 0, Share::weight(weight));
            assert_eq!(seat.virtual_time(1) * u64::from(weight), VIRTUAL_PER_NS);
        }
    }

    #[test]
    fn weights_out_of_range_are_the_nearest_in_range() {
        let at = |weight| Seat::new(NONE, NONE, 0, Share::weight(weight)).virtual_time(1_000_000);
        assert_eq!(at(0), at(1));
        assert_eq!(at(u32::MAX), at(Share::WEIGHT_MAX));
    }

    #[test]
    fn a_cost_without_end_is_cut() {
        let seat = Seat::new(NONE, NONE, 0, Share::weight(1));
        assert_eq!(seat.virtual_time(u64::MAX), VIRTUAL_MAX);
        assert_eq!(seat.virtual_time(VIRTUAL_MAX / VIRTUAL_PER_NS), VIRTUAL_MAX / VIRTUAL_PER_NS * VIRTUAL_PER_NS);
        assert_eq!(seat.virtual_time(VIRTUAL_MAX / VIRTUAL_PER_NS + 1), VIRTUAL_MAX);
    }
}
