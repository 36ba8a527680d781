//! Experiments beside peers: do-nothing servers, a load generator, the peers' set-up, tables and plots.
//!
//! `nothing` is the floor that a server stands on, `load` the generator, `serve` the experiment of serving files, `shares`
//! those of shares and overload, `handoff` those of a cluster, `nodes` those of its nodes, `foreign` those of nodes that run other servers, `iiop` that
//! of CORBA calls, `split` those of request splitting, `spread` those of fronts that see no request, `squid` that of a cluster cache, `proxy` that of a front before a server, `ways` that of
//! handing over or proxying, `transplants` that of connections that go from one such server to another, and `shortfalls` says which results miss their mark. Not shipped.
#![deny(unsafe_code)]

mod cleanup;
mod experiment;
mod foreign;
mod handoff;
mod iiop;
mod lab;
mod load;
mod nodes;
mod nothing;
mod proxy;
mod result;
mod serve;
mod server;
mod shares;
mod split;
mod spread;
mod squid;
#[allow(unsafe_code)]
mod sys;
mod transplants;
mod ways;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures leat beside its peers", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a server that does nothing but move bytes.
    Nothing(nothing::NothingOptions),
    /// Put load on a server.
    Load(load::LoadOptions),
    /// Measure serving files, beside the peers.
    Serve(serve::ServeOptions),
    /// Measure shares between sites, and what becomes of a server that has too much to do.
    Shares(shares::SharesOptions),
    /// Measure handing connections over, beside proxies.
    Handoff(handoff::HandoffOptions),
    /// Measure a cluster's throughput by the number of its nodes, and policies beside each other where memory is short.
    Nodes(nodes::NodesOptions),
    /// Hand connections over while packets are lost and nodes die, every reply compared.
    NodesFaults(nodes::FaultOptions),
    /// Measure and try nodes whose server isn't leat.
    Foreign(foreign::ForeignOptions),
    /// Measure CORBA calls by way of a port, beside HAProxy.
    Iiop(iiop::IiopOptions),
    /// Measure splitting requests, beside separate servers, HAProxy and the paper.
    Split(split::SplitOptions),
    /// Measure a cluster of Squid's caches, by how content is spread over them.
    Squid(squid::SquidOptions),
    /// Measure passing requests on to a server behind, beside nginx and HAProxy: GET, POST and chunks, over HTTP/1.1 on one machine.
    Proxy(proxy::ProxyOptions),
    /// Split requests while packets are lost and data servers die, every reply compared.
    SplitFaults(split::FaultOptions),
    /// Measure fronts that spread connections, beside HAProxy in TCP mode, and what becomes of connections while fronts and nodes come and go.
    Spread(experiment::RunOptions),
    /// Measure handing over, proxying, and what the cost model takes for the cheaper.
    Ways(experiment::RunOptions),
    /// Try and measure connections that go from one server that isn't leat to another, beside proxies.
    Transplants(transplants::TransplantOptions),
    /// Print every mark of every experiment that was missed.
    Shortfalls(result::ShortfallOptions),
}

fn main() -> ExitCode {
    let result = match CommandLine::parse().command {
        Command::Nothing(options) => nothing::run(&options),
        Command::Load(options) => load::run_command(&options),
        Command::Serve(options) => cleanup::watch().and_then(|()| serve::run(&options)),
        Command::Shares(options) => cleanup::watch().and_then(|()| shares::run(&options)),
        Command::Handoff(options) => cleanup::watch().and_then(|()| handoff::run(&options)),
        Command::Nodes(options) => cleanup::watch().and_then(|()| nodes::run(&options)),
        Command::NodesFaults(options) => cleanup::watch().and_then(|()| nodes::run_faults(&options)),
        Command::Foreign(options) => cleanup::watch().and_then(|()| foreign::run(&options)),
        Command::Iiop(options) => cleanup::watch().and_then(|()| iiop::run(&options)),
        Command::Split(options) => cleanup::watch().and_then(|()| split::run(&options)),
        Command::Squid(options) => cleanup::watch().and_then(|()| squid::run(&options)),
        Command::Proxy(options) => cleanup::watch().and_then(|()| proxy::run(&options)),
        Command::SplitFaults(options) => cleanup::watch().and_then(|()| split::run_faults(&options)),
        Command::Spread(options) => cleanup::watch().and_then(|()| spread::run(&options)),
        Command::Ways(options) => cleanup::watch().and_then(|()| ways::run(&options)),
        Command::Transplants(options) => cleanup::watch().and_then(|()| transplants::run(&options)),
        Command::Shortfalls(options) => result::print_shortfalls(&options),
    };
    experiment::account::close();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leat-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
