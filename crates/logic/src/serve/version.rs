//! What tells one state of a file from another without reading it.

use super::coding::CodingSet;
use crate::time::UnixTime;

/// Where a file is and when it was last touched: two equal versions are one content, but for what [`Version::is_settled_at`] says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// The file system's number.
    pub device: u64,
    /// The file's number in it.
    pub inode: u64,
    /// Size in bytes.
    pub len_bytes: u64,
    /// When the content was last written; anybody who may write the file can set it to anything.
    pub modified: UnixTime,
    /// When content, name count or attributes last changed; only the kernel sets it.
    pub changed: UnixTime,
}

impl Version {
    /// Whether a later write is certain to show. A file system's clock ticks every few milliseconds, so a write in the same tick as the
    /// one before leaves both times as they were: a version younger than `granularity_ns` proves nothing.
    #[must_use]
    pub fn is_settled_at(&self, now: UnixTime, granularity_ns: u64) -> bool {
        let latest = self.modified.max(self.changed);
        // A time in the future says nothing about when it was set: only the kernel's own stamp counts then.
        let latest = if latest > now { self.changed } else { latest };
        nanoseconds(now) - nanoseconds(latest) > i128::from(granularity_ns)
    }
}

/// What somebody knows who holds an answer and asks whether it's still so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The state of the file.
    pub version: Version,
    /// Whether the answer has an ETag: one without is worth replacing when the hash is done.
    pub tagged: bool,
    /// In which codings siblings were there.
    pub siblings: CodingSet,
}

fn nanoseconds(time: UnixTime) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_settles_when_the_clock_has_ticked() {
        let touched = UnixTime { seconds: 100, nanoseconds: 999_000_000 };
        let version =
            Version { modified: UnixTime { seconds: 5, nanoseconds: 0 }, changed: touched, ..Version::default() };
        assert!(!version.is_settled_at(touched, 20_000_000));
        assert!(!version.is_settled_at(UnixTime { seconds: 101, nanoseconds: 19_000_000 }, 20_000_000));
        assert!(version.is_settled_at(UnixTime { seconds: 101, nanoseconds: 19_000_001 }, 20_000_000));
    }

    #[test]
    fn a_modification_time_in_the_future_does_not_keep_a_version_unsettled() {
        let version = Version {
            modified: UnixTime { seconds: 9_999, nanoseconds: 0 },
            changed: UnixTime { seconds: 100, nanoseconds: 0 },
            ..Version::default()
        };
        assert!(version.is_settled_at(UnixTime { seconds: 101, nanoseconds: 0 }, 20_000_000));
    }
}
