//! leat itself, started in a lab's namespaces and stopped with them.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Host, HostKind, Lab, Member, Plan, ground, groups};
use crate::config::{self, ClusterNode, Config, Part, Role};

/// How long a member may take to listen, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Starts the dispatcher or connection servers, and every node, each with the file of its cluster; returns when all are ready.
///
/// # Errors
/// Who isn't ready, with the end of its log.
pub(super) fn start_all(lab: &Lab, files: &[PathBuf], configs: &[Config], plan: &Plan) -> Result<(), String> {
    let mut started = Vec::new();
    let all = start_each(lab, files, configs, plan, &mut started);
    let all = all.and_then(|()| started.iter_mut().try_for_each(wait_until_ready));
    if all.is_err() {
        // Who isn't yet where it's to run wouldn't be found, and would live on.
        started.iter_mut().for_each(|started| wait_until_inside(lab, started));
    }
    all
}

/// Starts the lines and the members, as far as that can be.
fn start_each<'a>(
    lab: &Lab,
    files: &[PathBuf],
    configs: &[Config],
    plan: &'a Plan,
    started: &mut Vec<Started<'a>>,
) -> Result<(), String> {
    start_lines(lab, &configs[0].lab, plan, started)?;
    for member in &plan.members {
        let arguments: Vec<&str> = match member.kind {
            HostKind::Node => vec!["node", "--name", &member.name],
            HostKind::Dispatcher if member.name.is_empty() => vec!["dispatch"],
            HostKind::Dispatcher => vec!["dispatch", "--name", &member.name],
            HostKind::ConnectionServer => vec!["connection-server"],
            _ => continue,
        };
        let (host, config, file) = (&plan.hosts[member.host], &configs[member.cluster], &files[member.cluster]);
        let root = if is_home(member.kind) { None } else { root_of_node(file, &member.name)? };
        let groups = held_to(lab, config, (host, member.host), root.as_deref())?;
        let copies = root.map_or(Ok(None), |root| copies(config, member, root))?;
        let path = file.to_str().ok_or_else(|| format!("{}: its name isn't UTF-8: give it another", file.display()))?;
        let place = Place { host, log: lab.log(&log_name(plan, member)), copies };
        let arguments: Vec<&str> = arguments.into_iter().chain(["--config", path]).collect();
        // A front waits for servers, and those that aren't leat are started by somebody else.
        let is_awaited = |node: &&ClusterNode| !config.cluster.is_spread() || node.server.is_empty();
        let nodes = if is_home(member.kind) { config.cluster.nodes.iter().filter(is_awaited).count() } else { 0 };
        let is_up = if config.cluster.is_spread() { ": it can be reached" } else { ": its link is up" };
        let process = start(lab, &place, &arguments, &groups)?;
        started.push(Started { place, process, awaits: (nodes, is_up) });
    }
    Ok(())
}

/// Starts the processes that carry what clients send and receive who are far away.
fn start_lines<'a>(
    lab: &Lab,
    settings: &config::Lab,
    plan: &'a Plan,
    started: &mut Vec<Started<'a>>,
) -> Result<(), String> {
    for (client, port) in &plan.lines {
        let host = plan.hosts.iter().find(|host| host.name == *client).ok_or("a line has no client")?;
        let place = Place { host, log: lab.log(&format!("{client}-line")), copies: None };
        let numbers = [
            format!("--delay-ms={}", settings.client_delay.as_millis()),
            format!("--loss-percent={}", settings.client_loss),
            format!("--reorder-percent={}", settings.client_reorder),
        ];
        let mut arguments = vec!["lab", "--name", &lab.name, "line", client, port];
        arguments.extend(numbers.iter().map(String::as_str));
        arguments.extend(settings.offloads.then_some("--offloads"));
        let process = start(lab, &place, &arguments, &[])?;
        started.push(Started { place, process, awaits: (0, "on") });
    }
    Ok(())
}

/// A member or a line that has been started.
struct Started<'a> {
    place: Place<'a>,
    process: Child,
    /// How often it says what, beside that it listens, once it's ready.
    awaits: (usize, &'static str),
}

/// Where a member runs and by what, and what it writes to.
struct Place<'a> {
    host: &'a Host,
    log: PathBuf,
    /// A directory of its own, and where it finds it.
    copies: Option<(PathBuf, PathBuf)>,
}

/// The host's, for the first member of a host; with the cluster's number, for others.
fn log_name(plan: &Plan, member: &Member) -> String {
    let name = &plan.hosts[member.host].name;
    let is_first = plan.members.iter().find(|other| other.host == member.host) == Some(member);
    if is_first { name.clone() } else { format!("{name}-{}", member.cluster + 1) }
}

/// Whether nodes have their links to it.
fn is_home(kind: HostKind) -> bool {
    matches!(kind, HostKind::Dispatcher | HostKind::ConnectionServer)
}

fn held_to(
    lab: &Lab,
    config: &Config,
    (host, number): (&Host, usize),
    root: Option<&Path>,
) -> Result<Vec<PathBuf>, String> {
    let name = lab.namespace(&host.name);
    if is_home(host.kind) {
        let group = groups::for_processors(&name, &config.lab.dispatcher_cpus, "dispatcher_cpus")?;
        return Ok(group.into_iter().collect());
    }
    let turn = groups::Turn { number, workers: config.workers };
    groups::for_node(&name, &config.lab, turn, root.unwrap_or(Path::new("/")))
}

/// Where a node's first site has its files, which a dispatcher's configuration doesn't say; none where its server isn't leat.
fn root_of_node(file: &Path, name: &str) -> Result<Option<PathBuf>, String> {
    let part = Part { role: Some(Role::Node), name: Some(name.to_owned()), server: Vec::new() };
    let config = config::load_part(file, &part).map_err(|mistakes| mistakes.to_string())?;
    Ok(config.sites.into_iter().next().map(|site| site.root).filter(|root| root.is_dir()))
}

/// A node's own files, and whose place they take.
fn copies(config: &Config, member: &Member, root: PathBuf) -> Result<Option<(PathBuf, PathBuf)>, String> {
    let Some(files) = &config.lab.node_files else { return Ok(None) };
    let own = files.join(&member.name);
    let help = "create it, or take `node_files` out of [lab]";
    if own.is_dir() { Ok(Some((own, root))) } else { Err(format!("{} isn't a directory: {help}", own.display())) }
}

fn start(lab: &Lab, place: &Place<'_>, arguments: &[&str], groups: &[PathBuf]) -> Result<Child, String> {
    let Place { host, log, copies } = place;
    let output = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;
    let program = std::env::current_exe().map_err(|error| format!("the program can't be found: {error}"))?;
    // A process goes into its groups before it becomes leat, so that not even its start is free.
    let script = "for group in $GROUPS; do echo $$ > $group/cgroup.procs || exit 1; done; \
                  [ -z \"$COPIES\" ] || mount --bind \"$COPIES\" \"$ROOT\" || exit 1; exec \"$@\"";
    let groups: Vec<_> = groups.iter().map(|group| group.display().to_string()).collect();
    // What is mounted in a namespace of a process's own ends with it.
    let mut command = Command::new(if copies.is_some() { "unshare" } else { "sh" });
    if let Some((own, root)) = copies {
        command.args(["--mount", "sh"]).env("COPIES", own).env("ROOT", root);
    }
    command
        .args(["-c", script, "sh", "nsenter", &ground::enter(&lab.namespace(&host.name))])
        .arg(program)
        .args(arguments)
        .env("GROUPS", groups.join(" "))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .map_err(|error| format!("sh or unshare (it's in the package util-linux) can't be run: {error}"))
}

/// A member is ready when it listens, and a dispatcher when it has said of every node that it's up.
fn wait_until_ready(Started { place, process, awaits }: &mut Started<'_>) -> Result<(), String> {
    let (nodes, is_up) = *awaits;
    let until = Instant::now() + PATIENCE;
    loop {
        let said = fs::read_to_string(&place.log).unwrap_or_default();
        if said.contains("listening on ") && said.matches(is_up).count() >= nodes {
            return Ok(());
        }
        let ended = process.try_wait().ok().flatten();
        if ended.is_some() || Instant::now() > until {
            let what = if ended.is_some() { "has ended" } else { "isn't ready" };
            return Err(format!("{} {what}; it said:\n{said}", place.host.name));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Until it's in its namespace, or has ended.
fn wait_until_inside(lab: &Lab, Started { place, process, .. }: &mut Started<'_>) {
    let (namespace, until) = (lab.namespace(&place.host.name), Instant::now() + PATIENCE);
    while process.try_wait().is_ok_and(|ended| ended.is_none())
        && !ground::is_inside(&namespace, process.id())
        && Instant::now() < until
    {
        thread::sleep(LOOK_EVERY);
    }
}

/// Ends every process in these namespaces: politely, and after a while not.
///
/// # Errors
/// Who doesn't end.
pub(super) fn stop_all(namespaces: &[String]) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    let mut told = false;
    loop {
        let left: Vec<String> = ground::processes(namespaces)?.iter().flatten().map(ToString::to_string).collect();
        if left.is_empty() {
            return Ok(());
        }
        let is_late = Instant::now() + PATIENCE / 2 > until;
        if Instant::now() > until {
            return Err(format!("these processes don't end: {}", left.join(" ")));
        }
        if !told || is_late {
            let signal = if is_late { "-KILL" } else { "-TERM" };
            // One that has ended meanwhile is no failure.
            let _ = ground::run(&format!("kill {signal} {}", left.join(" ")));
            told = true;
        }
        thread::sleep(LOOK_EVERY);
    }
}
