//! From a file to a [`Config`]: reading, parsing, judging, and the listeners that the sites make together.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use leat_host::reactor::Peer;
use leat_logic::serve::hosts::HostTable;
use toml::de::DeTable;

use super::check::judge;
use super::cluster::{Cluster, ClusterNode, Role};
use super::handler::{Handler, Proxy, Upstream};
use super::kinds::{is_directory, reason};
use super::mistake::{Mistake, Mistakes, Severity};
use super::port::name_ports;
use super::schema::{Context, Reader, Section};
use super::server::{Admin, Config, Listener, Reactor};
use super::site::{AccessLog, Site, SiteLimits};
use super::source::Source;
use super::syntax;

/// The largest file that is read: a hundred thousand sites fit.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// What a dispatcher's VIPs are called among its sites.
pub(super) const CLUSTER_SITE: &str = "cluster";

/// The configuration in `path`. Warnings are passed over: [`check`] has them.
///
/// # Errors
///
/// All that is wrong with the file, warnings included, or the reason why it can't be read.
pub fn load(path: &Path) -> Result<Config, Mistakes> {
    check(path).map(|(config, _)| config)
}

/// What the command line says about the part that a machine has in a cluster, whatever the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// In place of `role`.
    pub role: Option<Role>,
    /// In place of `cluster.name`.
    pub name: Option<String>,
    /// In place of the node's `for`.
    pub server: Vec<SocketAddr>,
}

/// The configuration in `path` for a machine that has this part. Warnings are passed over.
///
/// # Errors
///
/// As [`load`].
pub fn load_part(path: &Path, part: &Part) -> Result<Config, Mistakes> {
    check_part(path, part).map(|(config, _)| config)
}

/// The configuration that `path` had when it was this text, for a machine that has this part. Warnings are passed over.
///
/// # Errors
///
/// All that is wrong with it, warnings included.
pub fn load_text(path: &Path, text: &str, part: &Part) -> Result<Config, Mistakes> {
    check_text(path, text, part).map(|(config, _)| config)
}

/// The configuration in `text`, which stands on the command line. Relative paths start at the current directory.
///
/// # Errors
///
/// All that is wrong with it.
pub fn from_text(text: &str) -> Result<Config, Mistakes> {
    parse("command line", text, Path::new("."), &Part::default()).map(|(config, _)| config)
}

/// The configuration in `path`, and the warnings about it.
///
/// # Errors
///
/// All that is wrong with the file, warnings included, or the reason why it can't be read.
pub fn check(path: &Path) -> Result<(Config, Mistakes), Mistakes> {
    check_part(path, &Part::default())
}

/// The parts that the machines of a cluster have whose file leaves it to the command line to say which: its dispatcher's or connection server's, and
/// those of its nodes. Of any other file, the one that it says.
#[must_use]
pub fn parts(path: &Path) -> Vec<Part> {
    let alone = vec![Part::default()];
    // What is wrong with it is told when it's checked.
    let Ok(text) = read_text(path) else { return alone };
    let (document, _) = DeTable::parse_recoverable(&text);
    let root = document.get_ref();
    if root.contains_key("role") || !root.contains_key("cluster") {
        return alone;
    }
    let context = Context::new(path.parent().unwrap_or(Path::new(".")), Some(root));
    let cluster = Config::read(&Reader::new(root, document.span(), Config::SCHEMA, &context)).cluster;
    let mut parts = vec![Part { role: Some(first_role_in(root)), ..Part::default() }];
    // Behind ports alone, nodes are other servers.
    let nodes = cluster.nodes.into_iter().filter(|_| !cluster.vip.is_empty());
    parts.extend(nodes.map(|node| Part { role: Some(Role::Node), name: Some(node.name), ..Part::default() }));
    parts
}

/// The role of the machine that the others of a file's cluster go by, whatever else is wrong with the file.
#[must_use]
pub fn first_role(path: &Path) -> Role {
    first_role_of(&read_text(path).unwrap_or_default())
}

pub(super) fn first_role_of(text: &str) -> Role {
    first_role_in(DeTable::parse_recoverable(text).0.get_ref())
}

fn first_role_in(root: &DeTable<'_>) -> Role {
    let written = root.get("role").map(|role| role.get_ref().as_str());
    let is_split = written.map_or(root.contains_key("split"), |role| role == Some(Role::ConnectionServer.name()));
    if is_split { Role::ConnectionServer } else { Role::Dispatcher }
}

/// As [`check`], for a machine that has this part in the file's cluster.
///
/// # Errors
///
/// As [`check`].
pub fn check_part(path: &Path, part: &Part) -> Result<(Config, Mistakes), Mistakes> {
    check_text(path, &read_text(path)?, part)
}

fn check_text(path: &Path, text: &str, part: &Part) -> Result<(Config, Mistakes), Mistakes> {
    let base = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    parse(&path.display().to_string(), text, base, part)
}

/// What is wrong where leat is started with the value of `key` of `[section]` in a file with this name and text.
#[must_use]
pub fn mistake_at(name: &str, text: &str, (section, key): (&str, &str), message: String, help: &str) -> Mistakes {
    let (document, _) = DeTable::parse_recoverable(text);
    let span = document.get_ref().get(section).and_then(|table| table.get_ref().get(key)).map(|value| value.span());
    let mistake = Mistake { severity: Severity::Error, span, message, help: help.to_owned(), note: None };
    Mistakes::new(Source::new(name, text), vec![mistake])
}

/// What stands in `path`.
///
/// # Errors
///
/// The reason why it can't be read.
pub fn read_text(path: &Path) -> Result<String, Mistakes> {
    let name = path.display().to_string();
    let bytes =
        read(path).map_err(|(message, help)| Mistakes::of_file(Source::new(name.clone(), ""), message, help))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let source = Source::new(name, String::from_utf8_lossy(error.as_bytes()));
        let mistake = Mistake::new(Severity::Error, valid..valid + 1, "this isn't UTF-8", "save the file in UTF-8");
        Mistakes::new(source, vec![mistake])
    })
}

fn read(path: &Path) -> Result<Vec<u8>, (String, String)> {
    let help = "write the path of a configuration file that leat may read; docs/config.md has its keys".to_owned();
    let wrong = |error: std::io::Error| (format!("can't be read: {}", reason(&error)), help.clone());
    let metadata = fs::metadata(path).map_err(wrong)?;
    if !metadata.is_file() {
        return Err(("isn't a regular file".to_owned(), help));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err((format!("is larger than {} bytes", FILE_BYTES_MAX), help));
    }
    fs::read(path).map_err(wrong)
}

/// The configuration in `text`, and the warnings about it. `name` is for messages; relative paths start at `base`.
pub(super) fn parse(name: &str, text: &str, base: &Path, part: &Part) -> Result<(Config, Mistakes), Mistakes> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let source = Source::new(name, text);
    let root = document.get_ref();
    let is_whole = errors.is_empty();
    let context = Context { is_whole, ..Context::new(base, Some(root)) };
    let mut config = Config::read(&Reader::new(root, document.span(), Config::SCHEMA, &context));
    config.role = part.role.unwrap_or(config.role);
    if let Some(name) = &part.name {
        config.cluster.name.clone_from(name);
    }
    let name = &config.cluster.name;
    if let (false, Some(node)) =
        (part.server.is_empty(), config.cluster.nodes.iter_mut().find(|node| node.name == *name))
    {
        node.server.clone_from(&part.server);
    }
    let mut mistakes = syntax::mistakes(&errors, &source, root);
    // What stands on such a line was guessed: no more can be said about it.
    let guessed: Vec<_> =
        mistakes.iter().filter_map(|mistake| mistake.span.as_ref()).map(|s| source.line(s.start)).collect();
    let is_read = |mistake: &Mistake| {
        let start = mistake.span.as_ref().map_or(0, |span| span.start);
        guessed.iter().all(|line| !(line.start..=line.end).contains(&start))
    };
    mistakes.extend(context.mistakes.into_inner().into_iter().filter(is_read));
    name_sites(&mut config.sites);
    name_ports(&mut config.cluster.ports);
    judge(root, is_whole, &config, &mut mistakes);
    if config.role != Role::Server && root.get("workers").is_none() {
        // Connections can begin at a node where each side has one; more are for who needs them.
        config.workers = 1;
    }
    complete(&mut config);
    let mistakes = Mistakes::new(source, mistakes);
    if mistakes.errors() > 0 { Err(mistakes) } else { Ok((config, mistakes)) }
}

/// The configuration of `leat serve DIR`: one site for every host, with listings, no admin address and everything else at its default.
/// `workers` and `reactor` are the defaults too when `None`; `listen` is 127.0.0.1:8080 when empty.
///
/// # Errors
///
/// One entry when `directory` isn't a directory.
pub fn from_directory(
    directory: &Path,
    listen: &[SocketAddr],
    workers: Option<usize>,
    reactor: Option<Reactor>,
) -> Result<Config, Mistakes> {
    let refuse = |message: String| {
        let source = Source::new(directory.display().to_string(), "");
        Mistakes::of_file(source, message, "write a directory that leat may read, or --config and a file")
    };
    if !is_directory(directory).map_err(|error| refuse(format!("can't be served: {}", reason(&error))))? {
        return Err(refuse("isn't a directory".to_owned()));
    }
    let root =
        std::path::absolute(directory).map_err(|error| refuse(format!("can't be served: {}", reason(&error))))?;
    let listen = if listen.is_empty() { vec![SocketAddr::from(([127, 0, 0, 1], 8080))] } else { listen.to_vec() };
    let defaults = Config::default();
    let mut config = Config {
        workers: workers.unwrap_or(defaults.workers),
        reactor: reactor.unwrap_or(defaults.reactor),
        admin: Admin { listen: None, ..Admin::default() },
        sites: vec![Site { listen, root, listing: true, ..Site::default() }],
        ..defaults
    };
    name_sites(&mut config.sites);
    complete(&mut config);
    Ok(config)
}

/// Gives each site the name that the file doesn't.
fn name_sites(sites: &mut [Site]) {
    for site in sites.iter_mut().filter(|site| site.name.is_empty()) {
        site.name = site.hosts.first().map_or_else(|| "default".to_owned(), ToString::to_string);
    }
}

/// Fills in what one key takes from another.
fn complete(config: &mut Config) {
    // Where these are written and too large, `check` says so: this is for defaults.
    config.limits.target_size = config.limits.target_size.min(config.limits.head_size);
    config.files.cache_file_size_max = config.files.cache_file_size_max.min(config.files.cache_size);
    if config.role == Role::Dispatcher {
        // What the file says of sites is for the nodes: here there is one, which is all of them.
        let limits = SiteLimits { body_size: u64::MAX, ..SiteLimits::default() };
        // A front has no connections.
        let listen = if config.cluster.is_spread() { Vec::new() } else { config.cluster.vip.clone() };
        let log = &config.cluster.access_log;
        let access_log = AccessLog { path: log.path.clone(), format: log.format };
        config.sites = vec![Site { name: CLUSTER_SITE.to_owned(), listen, limits, access_log, ..Site::default() }];
        config.sites.extend(config.cluster.ports.iter().enumerate().map(|(place, port)| port.as_site(place)));
    }
    if let (Role::Node, Some(node)) = (config.role, config.cluster.own_node().filter(|node| !node.server.is_empty())) {
        // Behind fronts every connection begins at that server.
        let is_proxied = !config.cluster.is_spread();
        config.sites = in_front_of(node, &config.cluster).filter(|_| is_proxied).into_iter().collect();
    }
    if let (Role::Node | Role::Dispatcher, false, Some(socket)) =
        (config.role, config.cluster.name.is_empty(), &mut config.admin.socket)
    {
        // One file may serve a dispatcher and nodes on one machine.
        *socket = socket.with_added_extension(&config.cluster.name);
    }
    config.listeners = listeners(&config.sites);
}

/// What leat serves beside a server that isn't leat: requests that are proxied to this node, where that server doesn't take them itself.
fn in_front_of(node: &ClusterNode, cluster: &Cluster) -> Option<Site> {
    let mut listen: Vec<SocketAddr> = cluster.vip.iter().filter_map(|&vip| cluster.proxy_address(node, vip)).collect();
    listen.sort_unstable();
    listen.dedup();
    listen.retain(|address| !node.server.contains(address));
    let to = node.server.iter().map(|&address| Upstream::At(Peer::Internet(address))).collect();
    let proxy = Proxy { to, connections: usize::MAX, ..Proxy::default() };
    let handlers = vec![Handler { proxy: Some(proxy), ..Handler::default() }];
    let limits = SiteLimits { body_size: u64::MAX, ..SiteLimits::default() };
    let site = Site { name: node.name.clone(), listen, handlers, limits, ..Site::default() };
    (!site.listen.is_empty()).then_some(site)
}

/// The addresses of all sites, in their order, each with its table of hosts.
fn listeners(sites: &[Site]) -> Vec<Listener> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in sites.iter().flat_map(|site| &site.listen) {
        if !addresses.contains(address) {
            addresses.push(*address);
        }
    }
    let on = |address: SocketAddr| {
        let sites = sites.iter().enumerate().filter(move |(_, site)| site.listen.contains(&address));
        sites.map(|(index, site)| (u32::try_from(index).unwrap_or(u32::MAX), site))
    };
    let table = |address: SocketAddr| {
        let hosts = on(address).flat_map(|(index, site)| site.hosts.iter().map(move |host| (host.clone(), index)));
        let default = on(address).find(|(_, site)| site.hosts.is_empty()).map(|(index, _)| index);
        HostTable::new(hosts, default)
    };
    addresses.into_iter().map(|address| Listener { address, hosts: table(address) }).collect()
}
