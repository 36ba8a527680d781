//! The small file again, loaded by wrk and by h2load, so that nobody has to believe in one generator.

use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::bench::{Bench, Turns};
use crate::experiment::{Records, table};
use crate::result::ExperimentResult;
use crate::server::{Site, is_variant};
use crate::sys::process;
use crate::workload::file_set::FileSet;

const NAME: &str = "second-opinion";
const GENERATORS: [&str; 2] = ["wrk", "h2load"];

/// Measures every server with each of the generators that are installed.
pub(crate) fn run(bench: &mut Bench) -> io::Result<()> {
    eprintln!("case {NAME}: 612-byte file, 64 keep-alive connections, by wrk and h2load");
    let root = bench.folder().join(NAME);
    let _files = FileSet::of_sizes(&root, &[("file.html", 612)], bench.options.seed)?;
    let site = Site { root: root.clone(), only_file: Some(root.join("file.html")), close: false };
    for generator in GENERATORS {
        bench.rounds(
            Turns { case: NAME, site: &site, rounds: bench.options.rounds },
            |server| !is_variant(server),
            |bench, server, round| {
                let running = bench.start(server, &site)?;
                let before = running.cpu_time();
                let requests = load(generator, running.address(), bench)?;
                let cpu_us = (running.cpu_time().saturating_sub(before)).as_secs_f64() * 1e6 / requests.max(1.0);
                let per_s = requests / bench.options.seconds;
                eprintln!(
                    "  {:15} {generator:6} round {round} {cpu_us:8.2} us a request, {per_s:8.0}/s",
                    server.name()
                );
                bench.record((NAME, generator, round), server.name(), "cpu_us", cpu_us);
                bench.record((NAME, generator, round), server.name(), "answered_per_s", per_s);
                Ok(())
            },
        );
    }
    Ok(())
}

/// What they found; nothing when they weren't asked.
pub(crate) fn table(records: &Records, result: &ExperimentResult) -> String {
    let columns = [("cpu_us", "CPU us a request", 2), ("answered_per_s", "requests/s", 0)];
    let title = "the small file again, by wrk and h2load";
    let points = records.samples.points(NAME).into_iter().map(|point| (point.clone(), point));
    table::section((NAME, title), &points.collect::<Vec<_>>(), &columns, records, result)
}

/// Runs one generator and gives the number of requests that were answered.
fn load(generator: &str, address: SocketAddr, bench: &Bench) -> io::Result<f64> {
    let url = format!("http://{address}/file.html");
    let seconds = (bench.options.seconds.round() as u64).max(1).to_string();
    let mut command = Command::new(generator);
    match generator {
        "wrk" => command.args(["-t1", "-c64", "-d", &format!("{seconds}s"), &url]),
        _ => command.args(["--h1", "-t1", "-c64", "-D", &seconds, &url]),
    };
    process::start_on_cores(&mut command, &[bench.options.client_core]);
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let requests = match generator {
        // "  252751 requests in 3.00s, ..."
        "wrk" => {
            text.lines().find(|line| line.contains(" requests in ")).and_then(|line| line.split_whitespace().next())
        }
        // "requests: 252751 total, 252751 started, 252751 done, 252751 succeeded, ..."
        _ => text
            .lines()
            .find(|line| line.starts_with("requests:"))
            .and_then(|line| line.split(", ").find(|part| part.ends_with("succeeded"))?.split_whitespace().next()),
    };
    requests
        .and_then(|requests| requests.parse().ok())
        .ok_or_else(|| io::Error::other(format!("{generator} gave no number of requests: {text}")))
}
