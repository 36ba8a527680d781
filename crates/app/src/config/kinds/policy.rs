//! Policies, by the names that `leat_logic` gives them: of scheduling, and of dispatching. And protocols, which have names and explanations too.

use leat_logic::dispatch::PolicyKind as DispatchPolicyKind;
use leat_logic::protocol::Protocol;
use leat_logic::schedule::PolicyKind;
use toml::Spanned;
use toml::de::DeValue;

use super::text::{code, word};
use super::{Describe, Kind};
use crate::config::schema::At;

/// The policies that a node of a worker's tree can be given.
pub(in crate::config) const POLICY: Policy<PolicyKind> = Policy(PolicyKind::ALL);

/// The policies that a dispatcher can be given.
pub(in crate::config) const DISPATCH_POLICY: Policy<DispatchPolicyKind> = Policy(DispatchPolicyKind::ALL);

/// The protocols that a dispatcher's port can have.
pub(in crate::config) const PROTOCOL: Policy<Protocol> = Policy(Protocol::ALL);

/// One of several policies.
pub(in crate::config) struct Policy<P: 'static>(&'static [P]);

/// What is said of a policy where it's implemented.
pub(in crate::config) trait Named: Copy {
    fn name(self) -> &'static str;
    fn about(self) -> &'static str;
}

impl Named for PolicyKind {
    fn name(self) -> &'static str {
        PolicyKind::name(self)
    }

    fn about(self) -> &'static str {
        PolicyKind::about(self)
    }
}

impl Named for DispatchPolicyKind {
    fn name(self) -> &'static str {
        DispatchPolicyKind::name(self)
    }

    fn about(self) -> &'static str {
        DispatchPolicyKind::about(self)
    }
}

impl Named for Protocol {
    fn name(self) -> &'static str {
        Protocol::name(self)
    }

    fn about(self) -> &'static str {
        Protocol::about(self)
    }
}

impl<P: Named> Policy<P> {
    fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.0.iter().map(|policy| policy.name())
    }
}

impl<P: Named> Describe for Policy<P> {
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

impl<P: Named> Kind for Policy<P> {
    type Value = P;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<P> {
        let name = word(value, self.names(), at)?;
        self.0.iter().copied().find(|policy| policy.name() == name)
    }
}
