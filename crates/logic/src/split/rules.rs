//! What of all requests may be delegated: by path, by the size of the reply, and how many of those. A connection server and its data servers go by
//! the same rules: a data server that has a connection gives it back for a request that they leave out.

use super::Reason;
use crate::serve::path_pattern::PathPattern;

/// How much of what may be delegated is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delegation {
    /// As much as keeps all servers equally busy.
    #[default]
    Partial,
    /// All of it.
    Full,
}

/// What a data server that is near to the client changes, beside whose the request is if it's delegated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Near {
    /// Nothing: how much is delegated goes by the loads.
    #[default]
    Prefer,
    /// What may be delegated is, whatever there is to do.
    Always,
}

/// What may be delegated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How much of it is.
    pub delegation: Delegation,
    /// Paths, decoded; every path when there are none.
    pub paths: Vec<PathPattern>,
    /// Bytes of the resource, from which on.
    pub size_bytes_min: u64,
    /// Of those that the other rules let through, so many of a hundred.
    pub fraction_percent: u8,
    /// Requests under way at the connection server, from which on.
    pub load_min: u32,
    /// What nearness changes.
    pub near: Near,
    /// Requests that a data server answers on one connection before it gives it back; 1 and more.
    pub requests_max: u32,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            delegation: Delegation::default(),
            paths: Vec::new(),
            size_bytes_min: 0,
            fraction_percent: 100,
            load_min: 0,
            near: Near::default(),
            requests_max: 10,
        }
    }
}

impl Rules {
    /// Whether a request for a resource of so many bytes at `path` may be delegated.
    ///
    /// # Errors
    /// The rule that leaves it out.
    pub fn allow(&self, path: &[u8], bytes: u64) -> Result<(), Reason> {
        if !self.paths.is_empty() && !self.paths.iter().any(|pattern| pattern.split(path).is_some()) {
            return Err(Reason::Path);
        }
        if bytes < self.size_bytes_min { Err(Reason::Small) } else { Ok(()) }
    }

    /// Whether a data server that has answered so many requests of a connection answers this one too.
    #[must_use]
    pub fn stays(&self, answered: u32, path: &[u8], bytes: u64) -> bool {
        answered < self.requests_max && self.allow(path, bytes).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_leaves_out_what_it_says() {
        let paths = ["/files/*", "*.iso"].map(|written| PathPattern::parse(written).expect("a pattern")).into();
        let rules = Rules { paths, size_bytes_min: 4096, ..Rules::default() };
        assert_eq!(rules.allow(b"/files/a", 4096), Ok(()));
        assert_eq!(rules.allow(b"/b.iso", 1 << 30), Ok(()));
        assert_eq!(rules.allow(b"/files/a", 4095), Err(Reason::Small));
        assert_eq!(rules.allow(b"/b", 1 << 30), Err(Reason::Path));
        assert_eq!(Rules::default().allow(b"/", 0), Ok(()), "without rules nothing is left out");
    }

    #[test]
    fn a_connection_stays_for_so_many_requests() {
        let rules = Rules { requests_max: 2, size_bytes_min: 10, ..Rules::default() };
        assert!(rules.stays(1, b"/", 10));
        assert!(!rules.stays(2, b"/", 10), "it has answered two");
        assert!(!rules.stays(1, b"/", 9), "the connection server answers small ones");
    }
}
