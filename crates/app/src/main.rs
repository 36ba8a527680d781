//! The command line: what was asked for, and which exit code tells how it went.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use leat::supervisor::{self, Source};
use leat::{config, engine};

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
    /// Check a configuration: every mistake with its file, line and cure. Exit code 1 if there is one.
    Check {
        /// The configuration file.
        file: PathBuf,
    },
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
    /// An address to listen on; may be repeated. Port 0 takes any free port. [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
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

impl Serve {
    fn source(self) -> Source {
        match self.config {
            Some(file) => Source::File(file),
            None => Source::Directory {
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
        Command::Engine(serve) => engine::run(&serve.source()),
        Command::Check { file } => check(&file),
        Command::Reference { topic: Topic::Config } => print(&config::reference()),
        Command::Reference { topic: Topic::Metrics } => print(&leat::metrics::reference()),
    }
}

fn print(text: &str) -> ExitCode {
    use std::io::Write;
    // A reader that has seen enough (`| head`) is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn check(file: &std::path::Path) -> ExitCode {
    match config::check(file) {
        Ok((config, warnings)) => {
            eprint!("{warnings}");
            println!("{}: {} is well", file.display(), config.summary());
            ExitCode::SUCCESS
        }
        Err(mistakes) => {
            eprint!("{mistakes}");
            ExitCode::FAILURE
        }
    }
}
