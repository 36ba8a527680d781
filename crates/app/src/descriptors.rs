//! How the descriptors that the process may have are divided: files kept open get a quarter at most, what comes and goes (files being opened, pipes,
//! other servers' connections) has some to spare, and clients' connections get the rest. Whoever takes the last descriptor for a connection
//! can't open the file that it asks for.

use leat_logic::protocol::LEGS_MAX;

use crate::config::{ClusterPort, Config, Role};
use crate::log;

/// Descriptors for what is neither a client's connection nor a file kept open, where there are enough.
const SPARE: usize = 256;

/// Descriptors that a start wants for connections and files, or nobody would be served.
const ROOM_MIN: usize = 8;

/// Descriptors of what a cluster's member has beside its workers: links, programs and their maps.
const CLUSTER: usize = 32;

/// Whether `limit` leaves room for clients, where an engine that starts has opened `open` and will open `more`.
pub(crate) fn suffice(config: &Config, limit: u64, open: usize, more: usize) -> Result<(), String> {
    let more = if config.role == Role::Server { more } else { more + CLUSTER };
    let wanted = (open + more + ROOM_MIN) as u64;
    match limit < wanted {
        true => Err(format!(
            "this process may have {limit} descriptors, and needs {wanted} before the first connection: raise the limit (ulimit -Hn, or LimitNOFILE in \
             systemd), to some thousands rather than to that"
        )),
        false => Ok(()),
    }
}

/// Lowers what a configuration allows to what `limit`, the process's limit on descriptors, has room for, and says so unless it's as `before`.
pub(crate) fn fit(config: &mut Config, limit: u64, before: Option<&Config>) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let (connections, files) = divide(limit, config.files.open_files_max);
    let connections = (connections / of_a_client(config)).max(1);
    config.files.open_files_max = files;
    if connections < config.limits.connections {
        let wanted = std::mem::replace(&mut config.limits.connections, connections);
        if before.is_some_and(|before| before.limits.connections == connections) {
            return;
        }
        log::info(format_args!(
            "limits.connections = {wanted} is more than the {limit} descriptors that this process may have leave room for: {connections} connections \
             are accepted at once; raise the limit (ulimit -Hn, or LimitNOFILE in systemd) for more"
        ));
    }
}

/// Descriptors that a client takes for as long as it's there: one at a port of a dispatcher has its nodes' connections with it.
fn of_a_client(config: &Config) -> usize {
    let nodes = |port: &ClusterPort| match port.is_by_request() {
        true => port.targets(&config.cluster).len().min(LEGS_MAX),
        false => 1,
    };
    1 + config.cluster.ports.iter().map(nodes).max().unwrap_or(0)
}

/// How many connections and how many files kept open `limit` has room for, where `files` are wanted.
fn divide(limit: usize, files: usize) -> (usize, usize) {
    let files = files.min(limit / 4);
    ((limit - files - SPARE.min(limit / 4)).max(1), files)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use leat_logic::protocol::Protocol;

    use super::*;
    use crate::config::ClusterNode;

    #[test]
    fn connections_get_what_files_and_others_leave() {
        assert_eq!(divide(20_000, 4096), (20_000 - 4096 - 256, 4096));
        assert_eq!(divide(1024, 4096), (512, 256));
        assert_eq!(divide(1024, 10), (1024 - 10 - 256, 10));
        assert_eq!(divide(64, 4096), (32, 16));
        assert_eq!(divide(0, 4096), (1, 0));
    }

    #[test]
    fn a_client_of_a_port_brings_its_nodes_connections() {
        let node = |name: &str| ClusterNode {
            name: name.to_owned(),
            address: vec![IpAddr::from([10, 0, 0, 1])],
            ..ClusterNode::default()
        };
        let port = ClusterPort { listen: vec![([127, 0, 0, 1], 1).into()], ..ClusterPort::default() };
        let mut config = Config::default();
        config.cluster.nodes = ["a", "b", "c"].map(node).into();
        assert_eq!(of_a_client(&config), 1);
        config.cluster.ports = vec![port.clone()];
        assert_eq!(of_a_client(&config), 2);
        config.cluster.ports.push(ClusterPort { protocol: Protocol::Redis, ..port });
        assert_eq!(of_a_client(&config), 4);
        fit(&mut config, 1024, None);
        assert_eq!(config.limits.connections, 128);
    }
}
