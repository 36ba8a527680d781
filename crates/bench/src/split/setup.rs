//! The clusters that are compared: who is in them, what is delegated, and what their links carry.

use std::fmt::Write;
use std::path::Path;

use crate::lab::faults::Wire;
use crate::lab::{self, Lab};

/// How a cluster's requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each server on its own: what they do together is what splitting is compared with.
    Separate,
    /// The first machine has HAProxy, the others are behind it.
    Proxied,
    /// A connection server answers everything.
    Kept,
    /// As much is delegated as keeps all equally busy.
    Partial,
    /// All of it is; after so many requests a data server gives the connection back.
    Full(u32),
}

/// A cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) kind: Kind,
    /// Connection servers; where there are none, the machines that clients know.
    pub(super) connection_servers: usize,
    pub(super) data_servers: usize,
    /// Links carry packets as wires do.
    pub(super) wire: Option<Wire>,
}

/// A machine: its name in the lab, and the address at which clients reach it.
pub(super) struct Machine {
    pub(super) host: String,
    pub(super) address: Option<String>,
}

impl Setup {
    pub(super) const fn new(kind: Kind, connection_servers: usize, data_servers: usize) -> Self {
        Self { kind, connection_servers, data_servers, wire: None }
    }

    /// As in tables.
    pub(super) fn name(&self) -> String {
        let (first, second) = (self.connection_servers, self.data_servers);
        match self.kind {
            Kind::Separate if first == 1 => "1 server".to_owned(),
            Kind::Separate => format!("{first} separate"),
            Kind::Proxied => format!("haproxy+{second}"),
            Kind::Kept => format!("{first}+{second} none"),
            Kind::Partial => format!("{first}+{second} partial"),
            Kind::Full(1) => format!("{first}+{second} full, back at once"),
            Kind::Full(_) => format!("{first}+{second} full"),
        }
    }

    pub(super) fn machines(&self) -> usize {
        self.connection_servers + self.data_servers
    }

    /// Those that serve or pass on, the ones that clients know first.
    pub(super) fn hosts(&self) -> Vec<Machine> {
        let machine = |host: String, address| Machine { host, address };
        let known = (1..=self.connection_servers).map(|number| match self.kind {
            Kind::Separate => machine(format!("n{number}"), Some(format!("10.77.0.{}", 10 + number))),
            Kind::Proxied => machine("dispatcher".to_owned(), Some("10.77.0.100".to_owned())),
            _ if self.connection_servers == 1 => machine("cs".to_owned(), Some(vip(1))),
            _ => machine(format!("cs{number}"), Some(vip(number))),
        });
        let first = if self.kind == Kind::Proxied { "n" } else { "ds" };
        let behind = (1..=self.data_servers).map(|number| machine(format!("{first}{number}"), None));
        known.chain(behind).collect()
    }

    /// A configuration for each cluster of the lab: several where there are several connection servers.
    pub(super) fn configurations(&self, folder: &Path, root: &Path, link_mbit: Option<u32>) -> Vec<String> {
        let rate =
            link_mbit.map_or(String::new(), |rate| format!("node_rate_mbit = {rate}\ndispatcher_rate_mbit = {rate}\n"));
        let wire = self.wire.map(Wire::settings).unwrap_or_default();
        let text = |number: usize| {
            let socket = if number == 1 { Lab::socket(folder) } else { folder.join(format!("leat{number}.sock")) };
            let mut text = self.cluster(number);
            // Writing to a string can't fail.
            let _ = write!(
                text,
                "[admin]\nlisten = ''\nsocket = '{}'\n[[site]]\nroot = '{}'\nlisten = '{}:80'\n{}{rate}{wire}",
                socket.display(),
                root.display(),
                if self.connection_servers > 1 && self.is_split() { vip(number) } else { "0.0.0.0".to_owned() },
                match self.is_split() {
                    true => lab::own_processors(number, self.connection_servers, self.data_servers),
                    false => lab::processors(),
                },
            );
            text
        };
        let clusters = if self.is_split() { self.connection_servers } else { 1 };
        (1..=clusters).map(text).collect()
    }

    fn is_split(&self) -> bool {
        !matches!(self.kind, Kind::Separate | Kind::Proxied)
    }

    fn cluster(&self, number: usize) -> String {
        let node =
            |name: String, address: String| format!("[[cluster.node]]\nname = '{name}'\naddress = '{address}'\n");
        let rest = "key_file = 'cluster.key'\npolicy = 'least_connections'\n";
        if !self.is_split() {
            let servers = if self.kind == Kind::Separate { self.connection_servers } else { self.data_servers };
            let nodes: String =
                (1..=servers).map(|number| node(format!("n{number}"), format!("10.77.0.{}", 10 + number))).collect();
            return format!("[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\n{rest}{nodes}");
        }
        let nodes: String = (1..=self.data_servers)
            .map(|number| node(format!("ds{number}"), format!("10.99.0.{}", 10 + number)))
            .collect();
        let split = match self.kind {
            Kind::Kept => "load_min = 1000000".to_owned(),
            Kind::Full(requests_max) => format!("delegation = 'full'\nrequests_max = {requests_max}"),
            _ => String::new(),
        };
        format!(
            "role = 'connection_server'\n[cluster]\nvip = '{}:80'\ndispatchers = '10.99.0.{number}'\n{rest}{nodes}[split]\n{split}\n",
            vip(number)
        )
    }
}

/// What clients know a connection server by.
fn vip(number: usize) -> String {
    format!("10.77.0.{}", 99 + number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_of_a_setup_has_its_place() {
        let names = |setup: Setup| setup.hosts().into_iter().map(|machine| machine.host).collect::<Vec<_>>();
        assert_eq!(names(Setup::new(Kind::Separate, 2, 0)), ["n1", "n2"]);
        assert_eq!(names(Setup::new(Kind::Proxied, 1, 2)), ["dispatcher", "n1", "n2"]);
        assert_eq!(names(Setup::new(Kind::Partial, 1, 1)), ["cs", "ds1"]);
        assert_eq!(names(Setup::new(Kind::Full(10), 2, 1)), ["cs1", "cs2", "ds1"]);
        let texts = Setup::new(Kind::Partial, 2, 1).configurations(Path::new("/x"), Path::new("/y"), Some(50));
        assert_eq!(texts.len(), 2);
        assert!(
            texts[1].contains("vip = '10.77.0.101:80'") && texts[1].contains("node_rate_mbit = 50"),
            "{}",
            texts[1]
        );
    }
}
