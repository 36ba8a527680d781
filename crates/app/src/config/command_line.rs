//! What the flags of `leat dispatch` and `leat node` say, as a file would say it: so there is one meaning and one judge. Which flags there are
//! is left to the command line.

use std::fmt::Write as _;
use std::path::Path;

use super::cluster::Role;

/// `leat dispatch --vip ADDR --node NAME=IP --key-file FILE`.
#[must_use]
pub fn dispatcher_text(
    vip: &[String],
    nodes: &[(String, Vec<String>)],
    key_file: &Path,
    policy: Option<&str>,
) -> String {
    let mut text = start(Role::Dispatcher, vip, key_file);
    if let Some(policy) = policy {
        set(&mut text, "policy", &quoted(policy));
    }
    for (name, addresses) in nodes {
        text.push_str("[[cluster.node]]\n");
        set(&mut text, "name", &quoted(name));
        set(&mut text, "address", &list(addresses));
    }
    text
}

/// `leat node DIR --vip ADDR --dispatcher IP --name NAME --key-file FILE`.
#[must_use]
pub fn node_text(directory: &Path, vip: &[String], dispatchers: &[String], name: &str, key_file: &Path) -> String {
    let mut text = start(Role::Node, vip, key_file);
    set(&mut text, "dispatchers", &list(dispatchers));
    set(&mut text, "name", &quoted(name));
    text.push_str("[[site]]\n");
    set(&mut text, "root", &quoted(&directory.to_string_lossy()));
    set(&mut text, "listen", &list(vip));
    text
}

fn start(role: Role, vip: &[String], key_file: &Path) -> String {
    let mut text = String::new();
    set(&mut text, "role", &quoted(role.name()));
    text.push_str("[cluster]\n");
    set(&mut text, "vip", &list(vip));
    set(&mut text, "key_file", &quoted(&key_file.to_string_lossy()));
    text
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
        let vip = ["192.0.2.100:80".to_owned()];
        let nodes = [("n1".to_owned(), vec!["192.0.2.11".to_owned(), "2001:db8::11".to_owned()])];
        let text = dispatcher_text(&vip, &nodes, Path::new("cluster.key"), Some("round_robin"));
        let (config, _) = parse("x", &text, &cases(), &Part::default()).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        assert_eq!((config.role, config.cluster.nodes[0].address.len()), (Role::Dispatcher, 2));
        assert_eq!(config.cluster.policy.name(), "round_robin");
        let dispatchers = ["192.0.2.1".to_owned()];
        let text = node_text(Path::new("site"), &vip, &dispatchers, "n1", Path::new("cluster.key"));
        let (config, _) = parse("x", &text, &cases(), &Part::default()).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        assert_eq!((config.role, config.cluster.name.as_str(), config.sites.len()), (Role::Node, "n1", 1));
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
