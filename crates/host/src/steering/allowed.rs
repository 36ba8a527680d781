//! What a process must be allowed for loading the steering programs, and which of that it isn't.

use rustix::thread::{CapabilitySet, capabilities};

/// What it takes, with the names by which it's given.
const NEEDED: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::BPF, "CAP_BPF"),
    // The programs compare pointers, which the verifier allows only to who may see kernel addresses anyway.
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
];

/// What this process lacks; empty if it lacks nothing, or nobody knows.
pub(super) fn lacking() -> String {
    capabilities(None).map(|sets| lacking_in(sets.effective)).unwrap_or_default()
}

fn lacking_in(effective: CapabilitySet) -> String {
    let implied = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let has = effective | if effective.contains(CapabilitySet::SYS_ADMIN) { implied } else { CapabilitySet::empty() };
    let lacking = NEEDED.iter().filter(|(one, _)| !has.contains(*one)).map(|(_, name)| *name);
    lacking.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_has_its_name() {
        let three = CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::PERFMON;
        assert_eq!(lacking_in(three), "");
        assert_eq!(lacking_in(CapabilitySet::all()), "");
        assert_eq!(lacking_in(CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN), "");
        assert_eq!(lacking_in(three - CapabilitySet::PERFMON), "CAP_PERFMON");
        assert_eq!(lacking_in(CapabilitySet::empty()), "CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON");
    }
}
