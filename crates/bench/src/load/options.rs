//! `leat-bench load`: a run from the command line.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;

use super::{Demand, Observer, Outcome, Plan, SIZES_BYTES, Spacing};
use crate::result;
use crate::sys::process;
use crate::workload::mix::{Body, Mix, Target};

/// Bodies up to this length are kept for comparison.
const KEPT_BODY_BYTES_MAX: usize = 4 << 20;

/// `leat-bench load`
#[derive(Args, Debug)]
pub(crate) struct LoadOptions {
    /// Server's address.
    address: SocketAddr,
    /// Paths to ask for, each with a weight if wanted: `/index.html` or `/index.html=3`. One with a query has none.
    #[arg(default_value = "/")]
    paths: Vec<String>,
    /// Open loop: requests per second. Without it, a closed loop.
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long, value_enum, default_value_t = Spacing::Poisson)]
    arrivals: Spacing,
    /// Connections that requests go out on.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Requests outstanding on a connection.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pipeline: u16,
    /// Close after so many requests (1 asks the server to close).
    #[arg(long)]
    requests_per_connection: Option<u32>,
    /// More connections that ask once and are then left alone.
    #[arg(long, default_value_t = 0)]
    idle: usize,
    /// More connections that read slowly.
    #[arg(long, default_value_t = 0)]
    slow: usize,
    #[arg(long, default_value_t = 10_000)]
    slow_bytes_per_s: u32,
    /// Seconds of load before measuring.
    #[arg(long, default_value_t = 0.5)]
    warm_up_s: f64,
    /// Seconds of measuring.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Stop sending after so many requests.
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    requests_max: u64,
    /// Compare the body of each n-th reply with the first one's.
    #[arg(long, default_value_t = 64)]
    verify_every: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stay on this processor.
    #[arg(long)]
    core: Option<usize>,
    /// Sleep when there is nothing to do instead of looking for work.
    #[arg(long)]
    sleep: bool,
    /// Tell the processor time of these processes for each request.
    #[arg(long)]
    server_pid: Vec<u32>,
}

/// Runs the generator and prints what it brought.
///
/// # Errors
/// The server can't be reached or fails every request; io_uring is refused.
pub(crate) fn run_command(options: &LoadOptions) -> io::Result<()> {
    if let Some(core) = options.core {
        process::pin_to_core(core)?;
    }
    let close = options.requests_per_connection == Some(1);
    let targets = options.paths.iter().map(|path| learn(options.address, path, close)).collect::<io::Result<_>>()?;
    let mix = Mix::new(targets);
    let demand = match options.rate {
        Some(per_s) if per_s > 0.0 => Demand::Rate { per_s, spacing: options.arrivals },
        Some(_) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "--rate must be above 0")),
        None => Demand::Saturate,
    };
    let plan = Plan {
        demand,
        pipeline: usize::from(options.pipeline),
        requests_per_connection: options.requests_per_connection,
        idle: options.idle,
        slow: options.slow,
        slow_bytes_per_s: options.slow_bytes_per_s,
        warm_up: Duration::from_secs_f64(options.warm_up_s),
        window: Duration::from_secs_f64(options.seconds),
        requests_max: options.requests_max,
        verify_every: options.verify_every,
        seed: options.seed,
        sleep: options.sleep,
        ..Plan::saturate(options.address, options.connections)
    };
    let mut times = ProcessTimes { pids: &options.server_pid, begin: Duration::ZERO, used: Duration::ZERO };
    let outcome = super::run(&plan, &mix, &mut times)?;
    let used = (!options.server_pid.is_empty()).then_some(times.used);
    result::unless_nobody_reads(print(&mut io::stdout().lock(), &outcome, used))
}

struct ProcessTimes<'a> {
    pids: &'a [u32],
    begin: Duration,
    used: Duration,
}

impl ProcessTimes<'_> {
    fn now(&self) -> Duration {
        self.pids.iter().filter_map(|&pid| process::cpu_time(pid).ok()).sum()
    }
}

impl Observer for ProcessTimes<'_> {
    fn window_begins(&mut self) {
        self.begin = self.now();
    }

    fn window_ends(&mut self) {
        self.used = self.now().saturating_sub(self.begin);
    }
}

fn print(out: &mut dyn Write, outcome: &Outcome, server_time: Option<Duration>) -> io::Result<()> {
    writeln!(
        out,
        "requests    offered {:.0}/s, sent {:.0}/s, answered {:.0}/s ({} in {:.2} s), {:.1} MB/s",
        outcome.offered_per_s(),
        outcome.sent_per_s(),
        outcome.answered_per_s(),
        outcome.answered,
        outcome.window.as_secs_f64(),
        outcome.received_bytes as f64 / 1e6 / outcome.window.as_secs_f64(),
    )?;
    let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|quantile| outcome.latency_us(quantile));
    let max = outcome.latency_ns.max() as f64 / 1e3;
    writeln!(out, "latency us  p50 {p50:.0}, p90 {p90:.0}, p99 {p99:.0}, p99.9 {p999:.0}, max {max:.0}")?;
    let slices = outcome.slice_p99s_us();
    if let Some(middle) = crate::experiment::samples::median(slices.clone()) {
        let stalled = super::stalled_share(&slices) * 100.0;
        writeln!(
            out,
            "slices      of {} ms: p99 {middle:.0} us in the median one, {stalled:.0} % with a stall",
            super::SLICE.as_millis()
        )?;
    }
    print_by_size(out, outcome)?;
    writeln!(
        out,
        "generator   {:.2} us a request, {:.0} % busy, late by {:.1} us at p99; {} bodies compared, {} connections opened",
        outcome.generator_us_per_request(),
        100.0 * outcome.busy.as_secs_f64() / outcome.window.as_secs_f64(),
        outcome.lateness_us(0.99),
        outcome.verified,
        outcome.connects,
    )?;
    writeln!(out, "failures    {:?}", outcome.failures)?;
    if let Some(used) = server_time {
        let per_request_us = used.as_secs_f64() * 1e6 / outcome.answered.max(1) as f64;
        let share = used.as_secs_f64() / outcome.window.as_secs_f64();
        writeln!(out, "server      {per_request_us:.2} us of CPU a request, {:.0} % of a core", share * 100.0)?;
    }
    Ok(())
}

/// Which replies are the slow ones: where bodies are of several sizes.
fn print_by_size(out: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let p99_ns = outcome.latency_ns.value_at_quantile(0.99);
    let slow = |sizes: &Histogram<u64>| sizes.len() - sizes.count_between(0, p99_ns);
    let all_slow = outcome.by_size_ns.iter().map(slow).sum::<u64>().max(1);
    if outcome.by_size_ns.iter().filter(|sizes| !sizes.is_empty()).count() < 2 {
        return Ok(());
    }
    for (class, sizes) in outcome.by_size_ns.iter().enumerate().filter(|(_, sizes)| !sizes.is_empty()) {
        let size = SIZES_BYTES.get(class).map_or_else(|| "longer".into(), |size| format!("<= {} KB", size / 1000));
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|quantile| sizes.value_at_quantile(quantile) as f64 / 1e3);
        writeln!(
            out,
            "{size:<12}{:.1} % of replies, {:.0} % of those beyond p99; p50 {p50:.0}, p90 {p90:.0}, p99 {p99:.0} us",
            100.0 * sizes.len() as f64 / outcome.latency_ns.len() as f64,
            100.0 * slow(sizes) as f64 / all_slow as f64,
        )?;
    }
    Ok(())
}

/// Asks once for `path[=weight]`, to know the body that every later reply must have.
fn learn(address: SocketAddr, path: &str, close: bool) -> io::Result<(Target, f64)> {
    let weighted = path.rsplit_once('=').filter(|_| !path.contains('?'));
    let (path, weight) = match weighted.map(|(path, weight)| (path, weight.parse::<f64>())) {
        Some((path, Ok(weight))) if weight > 0.0 => (path, weight),
        _ => (path, 1.0),
    };
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut reply = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    let (head_bytes, body_bytes) = loop {
        let count = stream.read(&mut chunk)?;
        reply.extend_from_slice(&chunk[..count]);
        if let Some((head_bytes, body_bytes)) = super::reply::lengths(&reply).map_err(io::Error::other)?
            && reply.len() as u64 >= head_bytes as u64 + body_bytes
        {
            break (head_bytes, body_bytes);
        }
        if count == 0 {
            return Err(io::Error::other(format!("{address} ended its reply for {path} early")));
        }
    };
    let body = &reply[head_bytes..head_bytes + body_bytes as usize];
    let body = if body.len() <= KEPT_BODY_BYTES_MAX { Body::Bytes(body.into()) } else { Body::Unknown };
    Ok((Target::new(path, close, Some(body_bytes), body), weight))
}

impl std::fmt::Display for Spacing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value();
        formatter.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
