//! Scheduling policies, by the names that `leat_logic::schedule` gives them.

use leat_logic::schedule::PolicyKind;
use toml::Spanned;
use toml::de::DeValue;

use super::text::{code, word};
use super::{Describe, Kind};
use crate::config::schema::At;

/// The policies that a worker's tree can be given. Those that go by an event's deadline or size aren't among them: nothing sets these yet.
pub(in crate::config) const POLICY: Policy =
    Policy(&[PolicyKind::RoundRobin, PolicyKind::WeightedFair, PolicyKind::StrictPriority]);

/// One of several policies.
pub(in crate::config) struct Policy(&'static [PolicyKind]);

impl Policy {
    fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.0.iter().map(|policy| policy.name())
    }
}

impl Describe for Policy {
    fn describe(&self) -> String {
        code(self.names())
    }

    fn words(&self) -> Vec<(&'static str, &'static str)> {
        self.0.iter().map(|policy| (policy.name(), policy.about())).collect()
    }

    fn example(&self) -> String {
        self.names().next().map_or_else(String::new, |name| format!("\"{name}\""))
    }
}

impl Kind for Policy {
    type Value = PolicyKind;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<PolicyKind> {
        let name = word(value, self.names(), at)?;
        self.0.iter().copied().find(|policy| policy.name() == name)
    }
}
