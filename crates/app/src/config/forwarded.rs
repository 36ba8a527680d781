//! Balancers before leat that speak HTTP, and say who their clients are.

use leat_logic::network::Network;

use super::kinds::{ListOf, NETWORK};
use super::schema::{Fallback::*, section};

section! {
    /// Balancers in front that speak HTTP, as those that end TLS, and tell in each request who asks and how: in `X-Forwarded-For`, to which each adds the address
    /// that it was asked from, `X-Forwarded-Proto` and `X-Forwarded-Host`. The client is then the last address that isn't of `from`: in logs, for `[[site.access]]`, for
    /// programs (which are told of `https` by `HTTPS` and `REQUEST_SCHEME` too) and for the servers that requests are passed on to. What anybody else says there counts for
    /// nothing. In a cluster the nodes want the section as the dispatcher does: a connection that begins at one, or is handed to it, is the balancer's there too.
    Forwarded "[forwarded]" example "[forwarded]\nfrom = [\"10.0.0.0/8\", \"2001:db8::7\"]\n" {
        /// The balancers' own addresses or networks.
        from: Vec<Network> = ListOf(NETWORK), Toml("[]");
    }
}

impl Forwarded {
    /// Whether what an address says of others is believed.
    #[must_use]
    pub fn believes(&self, address: std::net::IpAddr) -> bool {
        self.from.iter().any(|network| network.contains(address))
    }
}
