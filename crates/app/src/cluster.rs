//! The command lines of a cluster's machines: which flags there are, and which configuration they stand for.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use leat::config::{self, ClusterFlags, NodeFlags, Part, Role};
use leat::supervisor::Source;
use leat::{console, ctl, lab};
use serde_json::Value;

/// `leat dispatch`.
#[derive(Args)]
pub(crate) struct Dispatch {
    /// The file with the cluster; the other flags stand for one.
    #[arg(long, value_name = "FILE", required_unless_present_all = ["vip", "node", "key_file"])]
    config: Option<PathBuf>,
    /// Which of several fronts (`spread = "l4"`) this is, where they run on one machine.
    #[arg(long, requires = "config")]
    name: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// How a node is chosen. [default: mix_lard]
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    policy: Option<String>,
}

/// `leat connection-server`.
#[derive(Args)]
pub(crate) struct ConnectionServer {
    /// The file with the cluster.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl ConnectionServer {
    /// The configuration that it stands for.
    pub(crate) fn source(self) -> Source {
        Source::Member(self.config, Part { role: Some(Role::ConnectionServer), name: None, server: Vec::new() })
    }
}

/// `leat node`.
#[derive(Args)]
pub(crate) struct Node {
    /// The directory to serve.
    #[arg(conflicts_with = "config", default_value = ".")]
    directory: PathBuf,
    /// The file with the cluster; the other flags stand for one.
    #[arg(long, value_name = "FILE", required_unless_present_all = ["vip", "node", "dispatcher", "key_file"])]
    config: Option<PathBuf>,
    /// Which of the nodes this machine is.
    #[arg(long)]
    name: String,
    /// Where a server listens on this machine that isn't leat and answers in its place; one of each family.
    #[arg(long = "for", value_name = "ADDR", conflicts_with = "directory")]
    server: Vec<SocketAddr>,
    /// Where a dispatcher is; may be repeated.
    #[arg(long, value_name = "IP", conflicts_with = "config")]
    dispatcher: Vec<IpAddr>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What all machines of a cluster are told alike.
#[derive(Args)]
struct ClusterArgs {
    /// An address and port that clients use; may be repeated.
    #[arg(long, value_name = "ADDR", conflicts_with = "config")]
    vip: Vec<SocketAddr>,
    /// A node and its addresses, as in n1=192.0.2.11,2001:db8::11; repeated for each node, in the same order at all machines. Further items say its weight and
    /// what it serves, as in n2=192.0.2.12,weight=200,hosts=a.example,paths=/a/*
    #[arg(long, value_name = "NAME=IP,...", value_parser = node, conflicts_with = "config")]
    node: Vec<NodeFlags>,
    /// The file with the key that all machines of the cluster share: 64 hexadecimal digits.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    key_file: Option<PathBuf>,
    /// Make a socket for `leat ctl` and `leat drain`; a node's has the node's name at its end.
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    socket: Option<PathBuf>,
}

impl ClusterArgs {
    fn flags(self) -> ClusterFlags {
        ClusterFlags {
            vip: texts(&self.vip),
            nodes: self.node,
            key_file: self.key_file.unwrap_or_default(),
            socket: self.socket,
        }
    }
}

fn node(text: &str) -> Result<NodeFlags, String> {
    let (name, items) = text.split_once('=').ok_or("write a name, =, and addresses, as in n1=192.0.2.11")?;
    let mut node = NodeFlags { name: name.to_owned(), ..NodeFlags::default() };
    for item in items.split(',') {
        match item.split_once('=') {
            None => node.addresses.push(item.to_owned()),
            Some(("weight", weight)) => {
                node.weight = Some(weight.parse().map_err(|_| format!("`{weight}` is no weight, as in weight=200"))?);
            }
            Some(("hosts", host)) => node.hosts.push(host.to_owned()),
            Some(("paths", path)) => node.paths.push(path.to_owned()),
            Some((other, _)) => return Err(format!("`{other}` isn't said here: weight, hosts and paths are")),
        }
    }
    Ok(node)
}

/// A role by its name.
pub(crate) fn role(text: &str) -> Result<Role, String> {
    Role::from_name(text).ok_or_else(|| "it is server, dispatcher, node or connection_server".to_owned())
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

impl Dispatch {
    /// The configuration that it stands for.
    pub(crate) fn source(self) -> Source {
        if let Some(file) = self.config {
            return Source::Member(file, Part { role: Some(Role::Dispatcher), name: self.name, server: Vec::new() });
        }
        Source::Text(config::dispatcher_text(&self.cluster.flags(), self.policy.as_deref()))
    }
}

impl Node {
    /// The configuration that it stands for.
    pub(crate) fn source(self) -> Source {
        if let Some(file) = self.config {
            return Source::Member(file, Part { role: Some(Role::Node), name: Some(self.name), server: self.server });
        }
        let (dispatchers, server) = (texts(&self.dispatcher), texts(&self.server));
        Source::Text(config::node_text(&self.cluster.flags(), &self.name, &dispatchers, &self.directory, &server))
    }
}

/// `leat lab`.
#[derive(Args)]
pub(crate) struct Lab {
    #[command(subcommand)]
    command: LabCommand,
    /// Which lab, where there are several.
    #[arg(long, global = true, default_value = "lab")]
    name: String,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Build the cluster of a file - clients, router, dispatcher, nodes - and start leat in it.
    Up {
        /// The file with the cluster; [lab] says what its machines can do. Several connection servers that share data servers have a file each.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// End everything that runs in a lab and remove it.
    Down,
    /// Show what there is of a lab.
    Status,
    /// Run a command at one of a lab's hosts: client, client2, router, dispatcher, or a node's name.
    Exec {
        /// Where.
        host: String,
        /// What.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Be the line between a client and its port of the switch.
    #[command(hide = true)]
    Line {
        client: String,
        port: String,
        #[arg(long)]
        delay_ms: u64,
        #[arg(long)]
        loss_percent: u8,
        #[arg(long)]
        reorder_percent: u8,
        #[arg(long)]
        offloads: bool,
    },
}

impl Lab {
    pub(crate) fn run(self) -> ExitCode {
        let done = lab::Lab::new(&self.name).and_then(|lab| match self.command {
            LabCommand::Up { files } => lab.up(&files),
            LabCommand::Down => lab.down().map(|()| String::new()),
            LabCommand::Status => lab.status(),
            LabCommand::Exec { host, command } => Err(lab.exec(&host, &command)),
            LabCommand::Line { client, port, delay_ms, loss_percent, reorder_percent, offloads } => {
                let traits = lab::Traits { delay: Duration::from_millis(delay_ms), loss_percent, reorder_percent };
                lab.be_line(&client, &port, traits, offloads).map(|()| String::new())
            }
        });
        match done {
            Ok(text) => {
                console::print(text);
                ExitCode::SUCCESS
            }
            Err(message) => {
                console::complain(format_args!("leat lab: {}\n", message.trim_end()));
                ExitCode::FAILURE
            }
        }
    }
}

/// The exit code of a command line that means nothing: clap's.
const USAGE: u8 = 2;

/// `leat ctl`.
#[derive(Args)]
pub(crate) struct Ctl {
    #[command(subcommand)]
    command: CtlCommand,
    /// The control socket of the running leat, as in [admin].
    #[arg(long, global = true, value_name = "PATH", default_value = "/run/leat.sock")]
    socket: PathBuf,
    /// Ask nobody: say what the dispatcher of this file would do, with every node up and nothing remembered.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the whole answer as JSON.
    #[arg(long, global = true)]
    json: bool,
}

/// A command of `leat ctl`, as its form has it, or what is wrong with what was written for it.
struct CtlCommand(Result<ctl::Command, String>);

impl Subcommand for CtlCommand {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        let command = command.subcommand_required(true).arg_required_else_help(true);
        ctl::Command::FORMS.iter().fold(command, |command, form| with_words(command, form.words, form))
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        ctl::Command::FORMS.iter().any(|form| form.words.first() == Some(&name))
    }
}

/// Adds the command that these words stand for.
fn with_words(command: clap::Command, words: &'static [&'static str], form: &'static ctl::Form) -> clap::Command {
    let about = |text: &str| text.trim().trim_end_matches('.').to_owned();
    let [word, rest @ ..] = words else { return command };
    let own = clap::Command::new(*word).about(about(form.about));
    if !rest.is_empty() {
        let own = own.subcommand_required(true).arg_required_else_help(true);
        return command.subcommand(with_words(own, rest, form));
    }
    let argument = |parameter: &'static ctl::Parameter| {
        let argument = clap::Arg::new(parameter.name).help(about(parameter.about));
        match parameter.default {
            Some(default) => {
                argument.long(parameter.name).default_value(default).hide_default_value(default.is_empty())
            }
            None => argument.required(true),
        }
    };
    command.subcommand(own.args(form.parameters.iter().map(argument)))
}

impl FromArgMatches for CtlCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<CtlCommand, clap::Error> {
        let (mut words, mut matches) = (Vec::new(), matches);
        while let Some((word, of_word)) = matches.subcommand() {
            words.push(word);
            matches = of_word;
        }
        let form = ctl::Command::FORMS.iter().find(|form| form.words == words).expect("clap knows no others");
        let command = form.command(|name| matches.get_one::<String>(name).map(String::as_str));
        // An error of clap's would be followed by the usage of `leat` itself.
        Ok(CtlCommand(command))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// `leat drain`.
#[derive(Args)]
pub(crate) struct Drain {
    /// The node's name.
    node: String,
    /// The control socket of the dispatcher, or behind fronts of the node itself, as in [admin].
    #[arg(long, value_name = "PATH", default_value = "/run/leat.sock")]
    socket: PathBuf,
    /// Give up after so many seconds; the node stays without new connections.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    timeout: u64,
}

/// Between two looks at what a drained node still has.
const DRAIN_LOOK: Duration = Duration::from_millis(100);

impl Drain {
    pub(crate) fn run(&self) -> ExitCode {
        match self.wait() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                console::complain(format_args!("leat: {error}\n"));
                ExitCode::FAILURE
            }
        }
    }

    fn wait(&self) -> Result<(), String> {
        let started = Instant::now();
        let begun = self.ask(started, &ctl::Command::Drain { node: self.node.clone() })?;
        console::print(ctl::show(&begun, false));
        loop {
            let at_ports = ctl::left_at_ports(&self.ask(started, &ctl::Command::Ports)?, &self.node);
            let answer = match ctl::is_of_ports(&begun) {
                true => Value::Null,
                false => self.ask(started, &ctl::Command::Flows)?,
            };
            let left = answer["nodes"][&self.node].as_u64().unwrap_or(0) + at_ports.unwrap_or(0);
            let is_resumed = ctl::is_resumed(&answer, &self.node);
            // Who has none at the moment may not be known yet to take none.
            if left == 0 && !is_resumed && at_ports.is_some() && answer["may_begin"].as_u64().unwrap_or(0) == 0 {
                console::print(format_args!("{} is empty after {:.1} s\n", self.node, started.elapsed().as_secs_f64()));
                return Ok(());
            }
            if is_resumed || at_ports.is_none() || answer["is_in_use"].as_u64().unwrap_or(0) > 0 {
                return Err(format!(
                    "{} is given connections again: it was resumed, or its process has started anew; drain it again if that wasn't you",
                    self.node
                ));
            }
            if started.elapsed() > Duration::from_secs(self.timeout) {
                return Err(format!("{} still has {left} connections after {} s", self.node, self.timeout));
            }
            thread::sleep(DRAIN_LOOK);
        }
    }

    /// The timeout is that of the whole command: who doesn't answer is waited for no longer than there is time left, or a moment if there is none.
    fn ask(&self, started: Instant, command: &ctl::Command) -> Result<Value, String> {
        let timeout = Duration::from_secs(self.timeout);
        let left = timeout.saturating_sub(started.elapsed()).max(DRAIN_LOOK);
        ctl::ask_within(&self.socket, command, left).map_err(|error| match started.elapsed() >= timeout {
            true => format!("{error}; {} may still have connections after {} s", self.node, self.timeout),
            false => error,
        })
    }
}

impl Ctl {
    pub(crate) fn run(self) -> ExitCode {
        let command = match self.command.0 {
            Ok(command) => command,
            Err(message) => {
                console::complain(format_args!("leat ctl: {message}\n"));
                return ExitCode::from(USAGE);
            }
        };
        let answer = match &self.config {
            None => ctl::ask(&self.socket, &command),
            Some(file) => {
                config::load_part(file, &Part { role: Some(Role::Dispatcher), name: None, server: Vec::new() })
                    .map_err(|mistakes| mistakes.to_string())
                    .and_then(|config| ctl::offline(&config.cluster, &command))
            }
        };
        match answer {
            Ok(answer) => {
                console::print(ctl::show(&answer, self.json));
                ExitCode::SUCCESS
            }
            Err(message) => {
                console::complain(format_args!("leat ctl: {}\n", message.trim_end()));
                ExitCode::FAILURE
            }
        }
    }
}
