//! Who may ask for some paths of a site, and how often.

use std::time::Duration;

use leat_logic::network::Network;
use leat_logic::serve::path_pattern::PathPattern;

use super::kinds::{BELOW, Count, ListOf, NETWORK, Period};
use super::schema::{Fallback::*, section};

section! {
    /// Who may ask for some paths of the `[[site]]` above it, and how often. There may be any number of them; all whose `path` fits must let a request
    /// in. Clients are told apart by their address, which is the one that a balancer tells if `[proxy_protocol]` or `[forwarded]` has it.
    Access "[[site.access]]" example "[[site.access]]\npath = \"/inside/*\"\nallow = [\"10.0.0.0/8\", \"2001:db8::/32\"]\n\n\
        [[site.access]]\npath = \"/login/*\"\nrequests = 10\nper = \"1m\"\n" {
        /// The paths as they are asked for: one and all below it. An index or a compressed sibling has a path of its own, so it's a directory that is
        /// kept from somebody, not a file.
        path: PathPattern = BELOW, Toml("\"/*\"");
        /// Who may; everybody when empty. Others are answered with 403.
        allow: Vec<Network> = ListOf(NETWORK), Toml("[]");
        /// Who may not, even if `allow` has them.
        deny: Vec<Network> = ListOf(NETWORK), Toml("[]");
        /// How many requests each client may make in the time of `per`, evenly, and as many at once after a pause. More are answered with 429, which says
        /// when to ask again. 0 for any number. All workers count together, each server of a cluster by itself. An IPv6 client is a network of 64 bits.
        requests: u32 = Count::<u32> { min: 0, max: 1_000_000 }, Toml("0");
        /// The time for `requests`.
        per: Duration = Period { min_ms: 1_000, max_ms: 86_400_000 }, Toml("\"1s\"");
    }
}
