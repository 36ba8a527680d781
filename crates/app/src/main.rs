//! The command line: what was asked for, and which exit code tells how it went.

mod cluster;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use leat::supervisor::{self, Source};
use leat::{config, console, engine, log, top};

/// A web server and balancer: sites, shares, workers, nodes.
#[derive(Parser)]
#[command(version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a directory, or the sites of a configuration.
    Serve(Serve),
    /// Be the dispatcher of a cluster: it has the address that clients know and chooses a node for each request.
    Dispatch(cluster::Dispatch),
    /// Serve, and have data servers answer some of the requests under this server's address.
    ConnectionServer(cluster::ConnectionServer),
    /// Be a node of a cluster: it serves what a dispatcher or a connection server hands over.
    Node(cluster::Node),
    /// Build a cluster on this machine, in network namespaces, and take it down again. Needs root.
    Lab(cluster::Lab),
    /// Show and change what a running leat does, or say what one with a configuration would do.
    Ctl(cluster::Ctl),
    /// Move every connection of a node to the others, and say when the machine is empty.
    Drain(cluster::Drain),
    /// Check a configuration: every mistake with its file, line and cure. Exit code 1 if there is one.
    Check(Check),
    /// Show what the running server does, for each site, stage and worker.
    Top(Top),
    /// Print a reference: of the configuration's keys, or of the metrics.
    Reference {
        /// Which one.
        #[arg(value_enum)]
        topic: Topic,
    },
    /// The process that serves; started by `leat serve`, which watches over it.
    #[command(hide = true)]
    Engine(Serve),
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Topic {
    Config,
    Metrics,
}

#[derive(clap::Args)]
struct Serve {
    /// The directory to serve.
    #[arg(default_value = ".", conflicts_with = "config")]
    directory: PathBuf,
    /// Serve the sites of this file instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "workers", "reactor"])]
    config: Option<PathBuf>,
    /// The part of this machine in the file's cluster.
    #[arg(long, hide = true, requires = "config", value_parser = cluster::role)]
    role: Option<config::Role>,
    /// Which of its nodes this machine is.
    #[arg(long, hide = true, requires = "config")]
    name: Option<String>,
    /// Where the server listens that answers in place of this node.
    #[arg(long = "for", hide = true, requires = "config")]
    server: Vec<SocketAddr>,
    /// A configuration itself.
    #[arg(long, hide = true, conflicts_with = "config")]
    text: Option<String>,
    /// An address to listen on; may be repeated. Port 0 takes any free port. [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", value_parser = config::address_argument)]
    listen: Vec<SocketAddr>,
    /// Threads that serve. [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Follow symbolic links that lead out of the directory.
    #[arg(long, conflicts_with = "config")]
    follow_symlinks: bool,
    /// How workers wait for the network. [default: io_uring, or epoll where that is refused]
    #[arg(long, value_enum)]
    reactor: Option<ReactorChoice>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ReactorChoice {
    #[value(name = "io_uring", alias = "io-uring")]
    IoUring,
    Epoll,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Check {
    /// The configuration file.
    file: Option<PathBuf>,
    /// The same, as other commands take it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Top {
    /// The admin address of the running server.
    #[arg(default_value = "127.0.0.1:9180", value_name = "ADDR")]
    address: SocketAddr,
    /// Take the admin address from this configuration file instead.
    #[arg(long, value_name = "FILE", conflicts_with = "address")]
    config: Option<PathBuf>,
    /// Print one sample as a table and end; needs no terminal.
    #[arg(long)]
    once: bool,
    /// Print one sample as a line of JSON and end: every site, stage and worker.
    #[arg(long)]
    json: bool,
    /// Seconds between readings.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_interval_s)]
    interval: f64,
    /// A row for each stage below each site.
    #[arg(long)]
    stages: bool,
    /// A row for each worker below each site.
    #[arg(long)]
    workers: bool,
    /// Sort by this column.
    #[arg(long, value_name = "COLUMN", default_value = "site", value_parser = top::sort_names())]
    sort: String,
}

fn parse_interval_s(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(interval_s) if (0.1..=3600.0).contains(&interval_s) => Ok(interval_s),
        _ => Err("give a number of seconds from 0.1 to 3600".to_owned()),
    }
}

impl Top {
    fn run(self) -> ExitCode {
        let address = match self.config.as_deref().map(config::check) {
            None => self.address,
            Some(Ok((config, _))) => match config.admin.listen {
                Some(address) => address,
                None => {
                    console::complain(
                        "leat top: the configuration turns the admin address off: give `listen` under [admin] a value\n",
                    );
                    return ExitCode::FAILURE;
                }
            },
            Some(Err(mistakes)) => {
                console::complain(mistakes);
                return ExitCode::FAILURE;
            }
        };
        top::run(&top::Options {
            address,
            interval: Duration::from_secs_f64(self.interval),
            grouping: top::Grouping { stages: self.stages, workers: self.workers },
            sorting: top::Sorting::by(&self.sort).unwrap_or(top::Sorting::BY_NAME),
            output: match (self.json, self.once) {
                (true, _) => top::Output::Json,
                (_, true) => top::Output::Plain,
                _ => top::Output::Terminal,
            },
        })
    }
}

impl Serve {
    fn source(self) -> Source {
        match (self.config, self.text) {
            (Some(file), _) if self.role.is_none() && self.name.is_none() => Source::File(file),
            (Some(file), _) => {
                Source::Member(file, config::Part { role: self.role, name: self.name, server: self.server })
            }
            (None, Some(text)) => Source::Text(text),
            (None, None) => Source::Directory {
                directory: self.directory,
                listen: self.listen,
                workers: self.workers.map(usize::from),
                follow_symlinks: self.follow_symlinks,
                reactor: self.reactor.map(|reactor| match reactor {
                    ReactorChoice::IoUring => config::Reactor::IoUring,
                    ReactorChoice::Epoll => config::Reactor::Epoll,
                }),
            },
        }
    }
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(serve) => supervisor::run(&serve.source()),
        Command::Dispatch(dispatch) => supervisor::run(&dispatch.source()),
        Command::ConnectionServer(server) => supervisor::run(&server.source()),
        Command::Node(node) => supervisor::run(&node.source()),
        Command::Lab(lab) => lab.run(),
        Command::Ctl(ctl) => ctl.run(),
        Command::Drain(drain) => drain.run(),
        Command::Engine(serve) => run_engine(&serve.source()),
        Command::Check(Check { file, config }) => check(&file.or(config).unwrap_or_default()),
        Command::Top(top) => top.run(),
        Command::Reference { topic: Topic::Config } => print(&config::reference()),
        Command::Reference { topic: Topic::Metrics } => print(&leat::metrics::reference()),
    }
}

fn run_engine(source: &Source) -> ExitCode {
    if let Err(error) = log::start_thread() {
        log::error(format_args!("the engine can't be started: {error}"));
        return ExitCode::FAILURE;
    }
    let code = engine::run(source);
    log::finish();
    code
}

fn print(text: &str) -> ExitCode {
    console::print(text);
    ExitCode::SUCCESS
}

fn check(file: &std::path::Path) -> ExitCode {
    let mut told = Vec::new();
    // Most is the same for all machines of a cluster.
    let mut tell = |mistakes: String| {
        if !told.contains(&mistakes) {
            console::complain(&mistakes);
            told.push(mistakes);
        }
    };
    let mut code = ExitCode::SUCCESS;
    for part in config::parts(file) {
        match config::check_part(file, &part) {
            Ok((config, warnings)) => {
                tell(warnings.to_string());
                console::print(format_args!("{} is well: {}\n", file.display(), config.summary()));
            }
            Err(mistakes) => {
                tell(mistakes.to_string());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
