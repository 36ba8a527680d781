//! Who a client is: whoever the socket says, or, where that is a balancer that is believed, whoever it tells before the client's first byte, or in each
//! request.

use std::net::{IpAddr, SocketAddr};

use leat_host::reactor::{Reactor, Socket, Token};
use leat_logic::http::client::Teller;
use leat_logic::http::{Request, forwarded};
use leat_logic::protocol::proxy_header;

use super::{Host, Worker};

impl<H: Host> Worker<H> {
    /// A client's address, or `None` where that isn't known any more.
    pub(super) fn client(&self, token: Token) -> Option<SocketAddr> {
        let connection = &self.connections[token];
        connection.client.or_else(|| self.reactor.peer(connection.socket))
    }

    /// Who asks by a request: the client, or whoever a balancer or a server of this cluster says that it's asked by.
    pub(super) fn asking(&self, token: Token, request: &Request<'_>) -> Option<SocketAddr> {
        let client = self.client(token)?;
        if self.teller(token) == Teller::Nobody {
            return Some(client);
        }
        let asking = forwarded::client(request, client.ip(), |address| self.config.forwarded.believes(address));
        Some(SocketAddr::new(asking, 0))
    }

    /// Whose word counts of where requests on a connection come from.
    pub(super) fn teller(&self, token: Token) -> Teller {
        if self.is_from_cluster(token) {
            return Teller::Cluster;
        }
        let is_any = !self.config.forwarded.from.is_empty();
        let client = is_any.then(|| self.client(token)).flatten().map(|client| client.ip());
        client.filter(|&client| self.config.forwarded.believes(client)).map_or(Teller::Nobody, Teller::Balancer)
    }

    /// Whether whoever is at the other end of a listener's new connection must tell who the client is. Who has reset it already isn't known any more: what
    /// it has said may begin with a header.
    pub(super) fn must_tell(&self, listener: usize, socket: Socket) -> bool {
        let tellers = &self.listeners[listener].sites.tellers;
        let is_teller = |peer: SocketAddr| tellers.iter().any(|network| network.contains(peer.ip()));
        !tellers.is_empty() && self.reactor.peer(socket).is_none_or(is_teller)
    }

    /// Reads what a balancer tells. False until that is there, and when it's no such thing: then the connection is cut.
    pub(super) fn hear_of_client(&mut self, token: Token) -> bool {
        let connection = &mut self.connections[token];
        let read = proxy_header::read(connection.inbox.bytes(&self.reactor));
        match read {
            Ok(Some((bytes, ends))) => {
                connection.inbox.consume(&mut self.reactor, bytes);
                connection.flags.untold = false;
                if let Some((client, _)) = ends {
                    self.know_client(token, client);
                }
                true
            }
            Ok(None) if connection.flags.ended => {
                self.close(token);
                false
            }
            Ok(None) => {
                connection.inbox.keep(&mut self.reactor);
                self.arm_receive(token);
                false
            }
            Err(error) => {
                self.refuse_header(self.reactor.peer(self.connections[token].socket), error);
                self.cut(token);
                false
            }
        }
    }

    /// What waits of it, until its site is known, waits where others of its network do.
    pub(super) fn know_client(&mut self, token: Token, client: SocketAddr) {
        let leaf = self.leaf_of_client(client.ip(), self.connections[token].listener);
        let connection = &mut self.connections[token];
        connection.client = Some(client);
        connection.flags.told = true;
        connection.leaf = leaf.or(connection.leaf);
    }

    /// Says and counts that a balancer hasn't told who its client is; once in a second.
    pub(super) fn refuse_header(&mut self, peer: Option<SocketAddr>, error: proxy_header::BadHeader) {
        self.metrics.headers_refused.increment();
        if self.rations.proxy_headers.take(self.second, 1) {
            let peer = peer.map_or_else(|| "a balancer".to_owned(), |peer| IpAddr::to_string(&peer.ip()));
            crate::log::warning(format_args!(
                "a connection from {peer} is cut: {error}; have it send the PROXY protocol, or take it out of `from` in [proxy_protocol]"
            ));
        }
    }
}
