//! What the flags of `leat dispatch` and `leat node` say, as a file would say it: so there is one meaning and one judge. Which flags there are
//! is left to the command line.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::cluster::Role;

/// What all machines of a cluster are told alike. They know nodes by their places in the list.
pub struct ClusterFlags {
    /// Addresses and ports that clients use.
    pub vip: Vec<String>,
    /// In the same order everywhere.
    pub nodes: Vec<NodeFlags>,
    /// The file with the key that they share.
    pub key_file: PathBuf,
    /// Where `leat ctl` is heard.
    pub socket: Option<PathBuf>,
}

/// `--node NAME=IP,...`.
#[derive(Clone, Debug, Default)]
pub struct NodeFlags {
    /// How everybody calls it.
    pub name: String,
    /// Its own.
    pub addresses: Vec<String>,
    /// As written.
    pub weight: Option<u32>,
    /// What it serves; all when empty.
    pub hosts: Vec<String>,
    /// The same.
    pub paths: Vec<String>,
}

/// `leat dispatch --vip ADDR --node NAME=IP --key-file FILE`.
#[must_use]
pub fn dispatcher_text(cluster: &ClusterFlags, policy: Option<&str>) -> String {
    let mut text = start(Role::Dispatcher, cluster);
    if let Some(policy) = policy {
        set(&mut text, "policy", &quoted(policy));
    }
    cluster.nodes.iter().for_each(|node| add_node(&mut text, node));
    text
}

/// `leat node DIR --name NAME --dispatcher IP --vip ADDR --node NAME=IP --key-file FILE`, or with `--for ADDR` in the place of DIR.
#[must_use]
pub fn node_text(
    cluster: &ClusterFlags,
    name: &str,
    dispatchers: &[String],
    directory: &Path,
    server: &[String],
) -> String {
    let mut text = start(Role::Node, cluster);
    set(&mut text, "dispatchers", &list(dispatchers));
    set(&mut text, "name", &quoted(name));
    for node in &cluster.nodes {
        add_node(&mut text, node);
        if node.name == name && !server.is_empty() {
            set(&mut text, "for", &list(server));
        }
    }
    if server.is_empty() {
        text.push_str("[[site]]\n");
        set(&mut text, "root", &quoted(&directory.to_string_lossy()));
        set(&mut text, "listen", &list(&cluster.vip));
    }
    text
}

fn start(role: Role, cluster: &ClusterFlags) -> String {
    let mut text = String::new();
    set(&mut text, "role", &quoted(role.name()));
    if let Some(socket) = &cluster.socket {
        text.push_str("[admin]\n");
        set(&mut text, "socket", &quoted(&socket.to_string_lossy()));
    }
    text.push_str("[cluster]\n");
    set(&mut text, "vip", &list(&cluster.vip));
    set(&mut text, "key_file", &quoted(&cluster.key_file.to_string_lossy()));
    text
}

fn add_node(text: &mut String, node: &NodeFlags) {
    text.push_str("[[cluster.node]]\n");
    set(text, "name", &quoted(&node.name));
    set(text, "address", &list(&node.addresses));
    if let Some(weight) = node.weight {
        set(text, "weight", &weight.to_string());
    }
    set(text, "hosts", &list(&node.hosts));
    set(text, "paths", &list(&node.paths));
}

fn set(text: &mut String, key: &str, value: &str) {
    // Writing to a string can't fail.
    let _ = writeln!(text, "{key} = {value}");
}

fn list(items: &[String]) -> String {
    format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", "))
}

/// A TOML string.
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(text, "\\u{:04X}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::super::load::{Part, parse};
    use super::*;

    fn cases() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/cases")
    }

    #[test]
    fn flags_mean_what_a_file_would() {
        let texts = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect();
        let node = |name: &str, addresses| NodeFlags {
            name: name.to_owned(),
            addresses: texts(addresses),
            ..NodeFlags::default()
        };
        let big = NodeFlags {
            weight: Some(200),
            hosts: texts(&["a.example"]),
            paths: texts(&["/a/*", "*.css"]),
            ..node("n1", &["192.0.2.11", "2001:db8::11"])
        };
        let cluster = ClusterFlags {
            vip: texts(&["192.0.2.100:80"]),
            nodes: vec![big, node("n2", &["192.0.2.12"])],
            key_file: "cluster.key".into(),
            socket: Some("/run/leat.sock".into()),
        };
        let read = |text: &str| {
            parse("x", text, &cases(), &Part::default()).unwrap_or_else(|mistakes| panic!("{text}{mistakes}")).0
        };
        let config = read(&dispatcher_text(&cluster, Some("round_robin")));
        assert_eq!((config.role, config.cluster.nodes[0].address.len()), (Role::Dispatcher, 2));
        assert_eq!(config.cluster.policy.name(), "round_robin");
        let of = |place: usize| &config.cluster.nodes[place];
        assert_eq!((of(0).weight, of(0).hosts.len(), of(0).paths.len()), (200, 1, 2));
        assert_eq!((of(1).weight, of(1).hosts.len(), of(1).paths.len()), (100, 0, 0));
        assert_eq!(config.admin.socket.as_deref(), Some(Path::new("/run/leat.sock")));
        let dispatchers = ["192.0.2.1".to_owned()];
        let node = |server: &[String]| read(&node_text(&cluster, "n2", &dispatchers, Path::new("site"), server));
        let config = node(&[]);
        assert_eq!((config.role, config.cluster.name.as_str(), config.sites.len()), (Role::Node, "n2", 1));
        assert_eq!(config.cluster.own_node(), Some(&config.cluster.nodes[1]));
        let config = node(&["127.0.0.1:8080".to_owned()]);
        assert_eq!(config.cluster.own_node().map(|node| node.server.len()), Some(1));
        assert!(config.cluster.nodes[0].server.is_empty());
    }

    #[test]
    fn nothing_in_a_flag_breaks_out_of_its_string() {
        for odd in ["a\"b", "a\\", "\n[[site]]", "\u{7f}", "é"] {
            let text = format!("key = {}\n", quoted(odd));
            let table = toml::de::DeTable::parse(&text).unwrap_or_else(|error| panic!("{odd:?}: {error}"));
            assert_eq!(table.get_ref().get("key").and_then(|value| value.get_ref().as_str()), Some(odd));
        }
    }
}
