//! The promises of the whole folder that need its insides: golden files are in `tests/config`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leat_logic::dispatch::{HealthSettings, PolicySettings};
use leat_logic::serve::hosts::HostTable;
use toml::de::DeValue;

use super::kinds::cores;
use super::load::{Part, first_role_of, parse};
use super::schema::{Fallback, Schema, Section};
use super::suggest::visit;
use super::{AccessLogFormat, Config, Reactor, Role, Site, from_directory};

/// A directory with a site: `site/index.html` and what the examples of the sections name.
fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/cases")
}

fn parsed(text: &str) -> Config {
    match parse("x.toml", text, &cases(), &Part::default()) {
        Ok((config, _)) => config,
        Err(mistakes) => panic!("{mistakes}\n{text}"),
    }
}

fn told(text: &str) -> String {
    match parse("x.toml", text, &cases(), &Part::default()) {
        Ok((_, warnings)) => warnings.to_string(),
        Err(mistakes) => mistakes.to_string(),
    }
}

#[test]
fn the_role_of_a_cluster_s_first_machine_is_known_though_the_file_has_mistakes() {
    for (text, role) in [
        ("role = 'connection_server'\nno_key = 1\n[split]\n", Role::ConnectionServer),
        ("[cluster]\n[split]\n", Role::ConnectionServer),
        ("[cluster]\n[[site]]\nroot = \n", Role::Dispatcher),
        ("role = 'dispatcher'\n[split]\n", Role::Dispatcher),
        ("role = 7\n", Role::Dispatcher),
    ] {
        assert_eq!(first_role_of(text), role, "{text}");
    }
}

fn schemas() -> Vec<&'static Schema> {
    let mut schemas = Vec::new();
    visit(Config::SCHEMA, &mut |schema| schemas.push(schema));
    schemas
}

#[test]
fn every_default_is_one_that_the_file_could_have() {
    // Making these reads every default.
    let config = Config { sites: vec![Site::default()], ..Config::default() };
    assert_eq!(config.limits.head_size, 16 * 1024);
    assert_eq!(config.sites[0].limits.body_size, 1 << 20);
    for key in schemas().iter().flat_map(|schema| schema.keys) {
        if let Fallback::Toml(text) | Fallback::Limits(text) | Fallback::Schedule(text) = key.fallback {
            assert!(DeValue::parse(text).is_ok(), "{}: {text}", key.name);
        }
    }
}

#[test]
fn every_key_has_a_sentence_that_ends() {
    for schema in schemas() {
        for key in schema.keys {
            let sentence = key.doc.concat();
            assert!(sentence.ends_with('.'), "{} `{}`: {sentence:?}", schema.header, key.name);
        }
    }
}

#[test]
fn every_example_of_a_section_is_right() {
    for schema in schemas() {
        let text = schema.example.replace("/srv/www", "site");
        let text = match schema.header {
            "[[site]]" => text,
            header if header.starts_with("[site.") || header.starts_with("[[site.") => {
                format!("[[site]]\nroot = \"site\"\n{text}")
            }
            _ => format!("{text}[[site]]\nroot = \"site\"\n"),
        };
        let told = told(&text);
        assert!(!told.contains("error"), "{told}\n{text}");
    }
}

#[test]
fn values_are_what_they_mean() {
    let config = parsed(
        "reactor = 'epoll'\n[limits]\nidle_timeout = '1m30s'\nbody_size = '2MB'\n[[site]]\nroot = 'site'\nhosts = ['B.Example.']\n\
         listen = '[::1]:80'\ntypes = { '.FOO' = 'text/x-foo' }\naccess_log = { path = 'a.log', format = 'json' }\n",
    );
    assert_eq!(config.reactor, Reactor::Epoll);
    assert_eq!(config.limits.idle_timeout, Duration::from_secs(90));
    let site = &config.sites[0];
    assert_eq!(site.name, "b.example");
    assert_eq!(site.root, cases().join("site"));
    assert_eq!(site.types[0].extension, "foo");
    assert_eq!(site.access_log.format, AccessLogFormat::Json);
    assert_eq!(site.limits.body_size, 2_000_000, "taken from [limits]");
    assert_eq!(site.limits.idle_timeout, Duration::from_secs(90), "taken from [limits]");
    assert_eq!(config.listeners[0].address, "[::1]:80".parse::<SocketAddr>().expect("an address"));
    assert_eq!(config.listeners[0].hosts.site(b"b.example:80"), Some(0));
    assert_eq!(config.listeners[0].hosts.site(b"c.example"), None);
}

#[test]
fn defaults_give_way_to_what_is_written() {
    let config = parsed("[limits]\nhead_size = '4KiB'\n[files]\ncache_size = 0\n[[site]]\nroot = 'site'\n");
    assert_eq!(config.limits.target_size, 4096);
    assert_eq!(config.files.cache_file_size_max, 0);
}

#[test]
fn a_reload_can_tell_what_changed() {
    let one = "[[site]]\nroot = 'site'\nhosts = 'a.example'\n";
    assert_eq!(parsed(one), parsed(&format!("# the same\n{one}weight = 100\n")));
    let other = parsed(&one.replace("a.example", "b.example"));
    assert_ne!(parsed(one), other);
    assert_ne!(parsed(one).listeners, other.listeners);
}

#[test]
fn what_depends_on_the_machine_is_told() {
    let site = "[[site]]\nroot = 'site'\n";
    let more = cores() + 1;
    let warned = told(&format!("workers = {more}\n{site}"));
    assert!(warned.starts_with(&format!("x.toml:1:11: warning: `workers` is {more}, more than the cores")), "{warned}");
    let refused = told(&format!("workers = 3\n[limits]\nconnections = 2\n{site}"));
    assert!(refused.contains("x.toml:3:15: error: `connections` is 2, fewer than the 3 workers"), "{refused}");
}

#[test]
fn one_file_has_every_part_of_a_cluster() {
    let text = "[cluster]\nvip = '192.0.2.100:80'\nkey_file = 'cluster.key'\ndispatchers = '192.0.2.1'\n[[cluster.node]]\n\
                name = 'n1'\naddress = '192.0.2.11'\n[[site]]\nroot = 'site'\n";
    let part = |role, name: Option<&str>| {
        let part = Part { role: Some(role), name: name.map(str::to_owned), server: Vec::new() };
        parse("x.toml", text, &cases(), &part).map(|(config, warnings)| (config, warnings.to_string()))
    };
    let (dispatcher, warnings) = part(Role::Dispatcher, None).expect("it's a dispatcher's file");
    assert_eq!((dispatcher.role, warnings.as_str()), (Role::Dispatcher, ""));
    assert_eq!(dispatcher.summary(), "dispatcher: 1 node behind 1 address");
    let (node, _) = part(Role::Node, Some("n1")).expect("it's a node's file");
    assert_eq!((node.cluster.name.as_str(), node.sites.len()), ("n1", 1));
    let wrong = part(Role::Node, Some("n2")).expect_err("there is no such node").to_string();
    assert!(wrong.contains("no node has the name `n2`"), "{wrong}");
    let wrong = part(Role::Node, None).expect_err("it needs a name").to_string();
    assert!(wrong.contains("`name` is missing"), "{wrong}");
}

const NODE: &str = "[[cluster.node]]\nname = 'n1'\naddress = '127.0.0.2'\n";

#[test]
fn a_node_s_hosts_count_at_ports_whose_clients_name_one() {
    for (protocol, counts) in [("tcp", false), ("redis", false), ("iiop", false), ("tls", true), ("http", true)] {
        let port = format!("[[cluster.port]]\nlisten = '127.0.0.1:1'\nprotocol = '{protocol}'\n");
        let config = parsed(&format!("role = 'dispatcher'\n{NODE}hosts = 'a.example'\n{port}"));
        let targets = config.cluster.ports[0].targets(&config.cluster);
        assert_eq!(targets[0].0.serves.goes_by_host(), counts, "{protocol}");
    }
}

#[test]
fn a_store_s_node_that_is_back_has_its_part_at_once() {
    let port = |protocol: &str| format!("[[cluster.port]]\nlisten = '127.0.0.1:1'\nprotocol = '{protocol}'\n");
    let ports = port("redis") + &port("iiop").replace(":1", ":2");
    let config = parsed(&format!("role = 'dispatcher'\n{NODE}{ports}"));
    let slow_start = |place: usize| config.cluster.ports[place].settings(&config.cluster).health.slow_start;
    assert_eq!((slow_start(0), slow_start(1)), (Duration::ZERO, HealthSettings::default().slow_start));
}

#[test]
fn who_says_what_a_connection_is_about_has_it_go_by_that() {
    let policy = |keys: &str| {
        let port = format!("[[cluster.port]]\nlisten = '127.0.0.1:1'\n{keys}\n");
        parsed(&format!("role = 'dispatcher'\n{NODE}{port}")).cluster.ports[0].policy().name()
    };
    assert_eq!([policy(""), policy("protocol = 'tls'")], ["least_connections"; 2]);
    assert_eq!([policy("first_bytes = 4"), policy("protocol = 'redis'")], ["consistent_hash"; 2]);
    assert_eq!(policy("first_bytes = 4\npolicy = 'round_robin'"), "round_robin");
}

#[test]
fn a_cluster_is_what_the_dispatcher_goes_by() {
    let config = parsed(
        "[cluster.health]\nfall = 7\n[[cluster.node]]\nname = 'n1'\naddress = ['::1', '127.0.0.2']\n[[site]]\nroot = 'site'\n",
    );
    let (settings, defaults) = (config.cluster.settings(), Config::default().cluster.settings());
    assert_eq!((settings.health.fall, settings.report_age), (7, Duration::from_secs(2)));
    assert_eq!(defaults.parameters, PolicySettings::default());
    assert_eq!(defaults.health, HealthSettings::default());
    let node = &config.cluster.nodes[0];
    let proxied =
        |vip: &str| config.cluster.proxy_address(node, vip.parse().expect("an address")).map(|a| a.to_string());
    assert_eq!(proxied("192.0.2.1:81").as_deref(), Some("127.0.0.2:81"));
    assert_eq!(proxied("[2001:db8::1]:82").as_deref(), Some("[::1]:82"));
    let cluster =
        parse("x.toml", "[cluster]\nkey_file = 'cluster.key'\n[[site]]\nroot = 'site'\n", &cases(), &Part::default());
    let (cluster, _) = cluster.expect("the key is there");
    assert_eq!(cluster.cluster.key_file.as_ref().map(|key| key.bytes()[31]), Some(0x1f));
    assert!(format!("{cluster:?}").contains("key_file: Some(ClusterKey),"), "keys are never shown");
}

#[test]
fn a_directory_is_a_configuration() {
    let config = from_directory(&cases().join("site"), &[], None, None).expect("the directory exists");
    assert_eq!(config.summary(), "1 site on 1 address");
    assert_eq!(config.listeners[0].address, SocketAddr::from(([127, 0, 0, 1], 8080)));
    assert_eq!(config.listeners[0].hosts, HostTable::new([], Some(0)));
    assert!(config.sites[0].listing && config.admin.listen.is_none());
    for wrong in ["nowhere", "site/index.html"] {
        let told = from_directory(&cases().join(wrong), &[], None, None).expect_err("no directory").to_string();
        assert!(told.contains("error") && told.contains(wrong) && told.contains("help"), "{told}");
    }
}

#[test]
fn nothing_that_a_file_can_hold_panics() {
    let example = include_str!("../../../../examples/leat.toml");
    let good = include_str!("../../tests/config/cases/good.toml");
    let pieces = [
        "[[", "]]", "[", "]", "{", "}", "=", "\"", "'''", "\\", "\n", "\r", ".", ",", "#", "0", "-", "é", "\u{0}",
        "site", "*.",
    ];
    let mut seed: u64 = 0x1ea7;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below.max(1) as u64) as usize
    };
    for _ in 0..3000 {
        let mut text = [example, good][random(2)].to_owned();
        for _ in 0..=random(6) {
            let from = text.floor_char_boundary(random(text.len() + 1));
            let to = text.floor_char_boundary((from + random(40)).min(text.len()));
            let piece = match random(3) {
                0 => String::new(),
                1 => pieces[random(pieces.len())].to_owned(),
                _ => {
                    let start = text.floor_char_boundary(random(text.len()));
                    let end = text.floor_char_boundary((start + random(60)).min(text.len()));
                    text[start..end].to_owned()
                }
            };
            text.replace_range(from..to.max(from), &piece);
        }
        let (Ok((_, mistakes)) | Err(mistakes)) = parse("x.toml", &text, &cases(), &Part::default());
        assert!(mistakes.to_string().len() < 200 * (text.len() + 1000));
    }
}
