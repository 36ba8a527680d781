//! What a child of a node is entitled to, and what an event cost. Says nothing of how a policy makes it come true.

/// What a child is given by its parent's policy; each policy uses the part that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Relative to the weights of its siblings, 1 to [`Share::WEIGHT_MAX`]; anything else is taken as the nearest of these.
    pub weight: u32,
    /// Higher goes first.
    pub priority: u8,
}

impl Share {
    /// The greatest weight. Past it, a cost of a few hundred nanoseconds would be lost in rounding.
    pub const WEIGHT_MAX: u32 = 65_535;

    /// A share of `weight` with the lowest priority.
    #[must_use]
    pub const fn weight(weight: u32) -> Share {
        Share { weight, priority: 0 }
    }

    /// A share of `priority` with a weight of one.
    #[must_use]
    pub const fn priority(priority: u8) -> Share {
        Share { weight: 1, priority }
    }
}

impl Default for Share {
    fn default() -> Share {
        Share::weight(1)
    }
}

/// What running an event took, in nanoseconds of the worker's time (or of whatever the tree's owner shares out by it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Nanoseconds.
    pub ns: u64,
}

impl Cost {
    /// A cost of `ns` nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Cost {
        Cost { ns }
    }
}
