//! The section of request splitting: what a connection server has data servers answer in its place. Who they are is in `cluster`.

use leat_logic::serve::path_pattern::PathPattern;
use leat_logic::split::{Delegation, Near, Rules};

use super::kinds::{Choice, Count, ListOf, NAME, OrBlank, PATH_PATTERN, Percent, Size, TIB};
use super::schema::{Fallback::*, section};

section! {
    /// Request splitting: a connection server (`role = "connection_server"`) is a whole web server at the VIP. It may have a request answered by a data
    /// server, which is a `[[cluster.node]]` and answers under the VIP; the connection comes back with a request that isn't to be delegated.
    /// `policy` in `[cluster]` says how requests are spread. One file can serve all machines: `leat connection-server --config FILE`,
    /// `leat node --config FILE --name NAME`.
    Split "[split]" example "[split]\nsize_min = \"64KiB\"\npaths = [\"/files/*\", \"*.iso\"]\n" {
        /// How much of what may be delegated is: as much as keeps all servers equally busy, or all of it.
        delegation: Delegation = Choice(&[("partial", Delegation::Partial), ("full", Delegation::Full)]), Toml("\"partial\"");
        /// Paths that may be delegated, decoded; all when empty.
        paths: Vec<PathPattern> = ListOf(PATH_PATTERN), Toml("[]");
        /// The smallest resource that is delegated.
        size_min: u64 = Size::<u64>::between(0, TIB), Toml("\"0B\"");
        /// So much of the requests that may be delegated.
        fraction: u8 = Percent(Count { min: 1, max: 100 }), Toml("\"100%\"");
        /// Requests under way at the connection server, from which on it delegates.
        load_min: u32 = Count::<u32> { min: 0, max: 1_000_000 }, Toml("0");
        /// What it changes that a data server is near to the client (`near` in `[[cluster.node]]`). `"prefer"`: it gets what is delegated of that client's
        /// requests, and how much that is goes by its load beside this server's. `"always"`: it gets all that the other rules let through, but for `load_min` and
        /// the balance, which don't count. Where none is near, or none of those is up, the others get what is delegated.
        near: Near = Choice(&[("prefer", Near::Prefer), ("always", Near::Always)]), Toml("\"prefer\"");
        /// Requests that a data server answers on one connection before the connection goes back with the next. One, where `fraction` is less than all or data
        /// servers have `hosts` or `paths`: then the connection server looks at each.
        requests_max: u32 = Count::<u32> { min: 1, max: 1_000_000 }, Toml("10");
        /// The data server that goes on in the connection server's place when that is stopped (SIGTERM): it gets all connections, replies under way included,
        /// and those that begin. The stopped server ends when it has none left; while its machine is up, its kernel goes on sending packets to the peer, and if that
        /// gets the VIP the machine can go as well. Started again, it gets what begins. The peer needs all that the sites need: files, and programs of handlers.
        peer: String = OrBlank(NAME), Otherwise("none: connections end when the server does");
    }
}

impl Split {
    /// What connection server and data servers go by. `looks_at_each`: which data server may have a request isn't the same for all.
    #[must_use]
    pub fn rules(&self, looks_at_each: bool) -> Rules {
        // Only the connection server counts what it has delegated, and knows what each data server serves.
        let goes_back_each = looks_at_each || self.fraction < 100;
        Rules {
            delegation: self.delegation,
            paths: self.paths.clone(),
            size_bytes_min: self.size_min,
            fraction_percent: self.fraction,
            load_min: self.load_min,
            near: self.near,
            requests_max: if goes_back_each { 1 } else { self.requests_max },
        }
    }
}
