//! Balancers before leat, which say who their clients are.

use std::net::SocketAddr;

use leat_logic::network::Network;
use leat_logic::protocol::proxy_header::Version;

use super::kinds::{ADDRESS, Choice, ListOf, NETWORK};
use super::schema::{Fallback::*, section};

/// Whether whoever is behind is told of the client in turn, and in which version.
pub(super) const SEND_PROXY: Choice<Option<Version>> =
    Choice(&[("none", None), ("v1", Some(Version::V1)), ("v2", Some(Version::V2))]);

section! {
    /// Balancers in front that tell the client's address by the PROXY protocol (version 1 or 2). Their connections must begin with it, and are cut else; to
    /// everybody else it's no protocol at all. At a dispatcher it counts at each `[[cluster.port]]`, and not at VIPs. The address that is told counts in
    /// logs, for fairness between clients, and for what applications and nodes are told.
    ProxyProtocol "[proxy_protocol]" example "[proxy_protocol]\nfrom = [\"10.0.0.0/8\", \"2001:db8::7\"]\nlisten = \"0.0.0.0:80\"\n" {
        /// The balancers' own addresses or networks.
        from: Vec<Network> = ListOf(NETWORK), Toml("[]");
        /// Addresses at which they connect, as in the `listen` of a site or a `[[cluster.port]]`; all of those when empty.
        listen: Vec<SocketAddr> = ListOf(ADDRESS), Toml("[]");
    }
}

impl ProxyProtocol {
    /// Who must tell the client's address at this address to listen on; nobody when empty.
    #[must_use]
    pub fn tellers(&self, listen: SocketAddr) -> &[Network] {
        if self.listen.is_empty() || self.listen.contains(&listen) { &self.from } else { &[] }
    }
}
