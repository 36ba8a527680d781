//! What a site or an owner may use at most. What is done with it is admission control's.

use super::kinds::{Count, Percent, Rate, Size, TIB, show_size};
use super::schema::{Fallback::*, Reader, Schema, Section, section};

section! {
    /// What the `[[site]]` above it may use at most, whether others want it or not, on all workers together. A site that is over it waits; nothing is
    /// broken off.
    Quota "[site.quota]" example "[site.quota]\ncpu = \"50%\"\nnetwork_rate = \"10MiB/s\"\nmemory = \"64MiB\"\n" {
        /// Processor time, of what all workers have.
        cpu: u8 = Percent(Count { min: 1, max: 100 }), Toml("\"100%\"");
        /// Bytes of replies. 0 for no limit.
        network_rate: u64 = RATE, Toml("0");
        /// Bytes read from disk to serve files: with what the kernel reads ahead, and without what it has in memory. Files over 4 MiB have an entity tag
        /// once they are in memory. 0 for no limit.
        disk_rate: u64 = RATE, Toml("0");
        /// Memory held for connections: what has been received and not been processed, and what programs and other servers have said and clients
        /// haven't taken. Past it, nothing is received from either until some of it is free. 0 for no limit.
        memory: u64 = Size::<u64>::between(0, TIB), Toml("0");
    }
}

impl Quota {
    /// Whether it limits anything.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.limits().iter().any(|(_, limit)| limit.is_some())
    }

    /// What is limited, by key.
    pub(super) fn limits(&self) -> [(&'static str, Option<u64>); 4] {
        let limit = |max: u64| (max > 0).then_some(max);
        let cpu = (self.cpu < 100).then_some(self.cpu.into());
        let (network, disk, memory) = (limit(self.network_rate), limit(self.disk_rate), limit(self.memory));
        [("cpu", cpu), ("network_rate", network), ("disk_rate", disk), ("memory", memory)]
    }

    /// A limit as it's written.
    pub(super) fn show(key: &str, max: u64) -> String {
        match key {
            "cpu" => format!("{max}%"),
            "memory" => show_size(max),
            _ => format!("{}/s", show_size(max)),
        }
    }
}

/// What the sites and owners below an owner may use together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnerQuota(pub Quota);

impl Section for OwnerQuota {
    const SCHEMA: &'static Schema = &Schema {
        header: "[owner.quota]",
        doc: &[
            " What the sites and owners below the `[[owner]]` above it may use together, beside what each of them may by itself. Those that wait for it have",
            " parts of it by weight, or equal ones of a quota of less than some megabytes a second.",
        ],
        example: "[[owner]]\nname = \"press\"\n[owner.quota]\nnetwork_rate = \"50MiB/s\"\n",
        keys: <Quota as Section>::SCHEMA.keys,
    };

    fn read(reader: &Reader<'_>) -> OwnerQuota {
        OwnerQuota(Quota::read(reader))
    }
}

/// A rate that a site may be held to.
const RATE: Rate = Rate(Size::between(0, TIB));
