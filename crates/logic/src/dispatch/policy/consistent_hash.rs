//! The content's hash says which node, and only the contents of a node that comes or goes move (highest random weight: Thaler and
//! Ravishankar, 1998). No node gets more than its part by so much (Mirrokni, Thorup and Zadimoghaddam, 2018): past that, the next one in the
//! content's order. Machines with the same key and the same nodes agree without talking.

use super::{Ask, Candidate, Plan, Policy, PolicySettings, Why};

pub(super) struct ConsistentHash {
    load_bound_percent: u64,
}

impl Policy for ConsistentHash {
    const NAME: &'static str = "consistent_hash";
    const ABOUT: &'static str =
        "the node that the content's hash says, within a bound on its load: right for several dispatchers";

    fn new(settings: &PolicySettings) -> Self {
        ConsistentHash { load_bound_percent: settings.load_bound_percent.max(100).into() }
    }

    fn configure(&mut self, settings: &PolicySettings) {
        *self = ConsistentHash::new(settings);
    }

    fn plan(&self, ask: &Ask<'_>) -> Plan {
        let (active, shares) = ask.candidates.iter().fold((1_u128, 0_u128), |(active, shares), c| {
            (active + u128::from(c.active), shares + u128::from(c.share))
        });
        // Rounded up, so that all together always have room for one more.
        let bound =
            |c: &Candidate| (u128::from(self.load_bound_percent) * active * u128::from(c.share)).div_ceil(100 * shares);
        let rank = |c: &Candidate| weighted_rank(c.affinity(ask.key), c.share);
        let order = |a: &&Candidate, b: &&Candidate| rank(a).total_cmp(&rank(b));
        let has_room = |c: &&Candidate| u128::from(c.active) < bound(c);
        let first = ask.candidates.iter().min_by(order).expect("a policy is asked only when there are candidates");
        match ask.candidates.iter().filter(has_room).min_by(order) {
            Some(chosen) if chosen.id != first.id => Plan::new(chosen, Why::PastFull(first.id)),
            _ => Plan::new(first, Why::Hashed),
        }
    }
}

/// An exponential variate of rate `share`: the least of several is each one's with a probability in proportion to its share.
fn weighted_rank(affinity: u64, share: u64) -> f64 {
    let uniform = ((affinity >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -uniform.ln() / share as f64
}
