//! Each node in its turn, as often as its weight says, and never twice in a row where it can be helped: everybody earns their share at each
//! choice, whoever has most is chosen and pays what all have earned.

use super::super::limits::NODES_MAX;
use super::{Ask, Candidate, Plan, Policy, PolicySettings, Why};

pub(super) struct RoundRobin {
    credits: [i64; NODES_MAX],
}

/// No absence earns or costs more than this.
const CREDIT_MAX: i64 = 1 << 40;

impl RoundRobin {
    fn credit(&self, candidate: &Candidate) -> i64 {
        self.credits[candidate.id.index()] + earning(candidate)
    }
}

fn earning(candidate: &Candidate) -> i64 {
    i64::try_from(candidate.share).unwrap_or(CREDIT_MAX)
}

impl Policy for RoundRobin {
    const NAME: &'static str = "round_robin";
    const ABOUT: &'static str = "each node in its turn, as often as its weight says";

    fn new(_: &PolicySettings) -> Self {
        RoundRobin { credits: [0; NODES_MAX] }
    }

    fn plan(&self, ask: &Ask<'_>) -> Plan {
        // The first of equals, whatever is asked for.
        let order = |c: &&Candidate| (-self.credit(c), c.id);
        let chosen = ask.candidates.iter().min_by_key(order).expect("a policy is asked only when there are candidates");
        Plan::new(chosen, Why::Turn)
    }

    fn commit(&mut self, ask: &Ask<'_>, plan: &Plan) {
        let total: i64 = ask.candidates.iter().map(earning).sum();
        for candidate in ask.candidates {
            let paid = if candidate.id == plan.node { total } else { 0 };
            let credit = self.credit(candidate) - paid;
            self.credits[candidate.id.index()] = credit.clamp(-CREDIT_MAX, CREDIT_MAX);
        }
    }
}
