//! The node with the fewest requests under way for its weight.

use super::{Ask, Candidate, Plan, Policy, PolicySettings, Why};

pub(super) struct LeastConnections;

impl Policy for LeastConnections {
    const NAME: &'static str = "least_connections";
    const ABOUT: &'static str = "the node with the fewest requests under way for its weight";

    fn new(_: &PolicySettings) -> Self {
        LeastConnections
    }

    fn plan(&self, ask: &Ask<'_>) -> Plan {
        // Equals are told apart by content, which costs nothing and helps caches.
        Plan::new(&ask.least(Candidate::crowding), Why::FewestUnderWay)
    }
}
