//! The small file again, loaded by wrk and by h2load, so that nobody has to believe in one generator. Told, not judged: neither of them has
//! an open loop, so their servers are saturated.

use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::bench::{Bench, Turns};
use crate::experiment::{Case, Samples};
use crate::result::{Figure, Mark};
use crate::server::Site;
use crate::sys::process;
use crate::workload::file_set::FileSet;

const NAME: &str = "second-opinion";
const GENERATORS: [&str; 2] = ["wrk", "h2load"];
const SERVERS: [&str; 7] =
    ["leat-io_uring", "leat-epoll", "nginx", "h2o", "lighttpd", "nothing-epoll", "nothing-io_uring"];
/// Metric, words, decimals in the table, unit.
const METRICS: [(&str, &str, usize, &str); 3] = [
    ("cpu_us", "CPU us a request", 2, "us"),
    ("answered_per_s", "requests/s", 0, "1/s"),
    ("failures", "failures", 0, "requests"),
];

pub(super) struct SecondOpinion;

impl Case<Bench> for SecondOpinion {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "612-byte file, 64 keep-alive connections, by wrk and h2load"
    }

    /// A generator that isn't installed is noted, as is a server that it fails with.
    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let root = bench.folder().join(NAME);
        let _files = FileSet::of_sizes(&root, &[("file.html", 612)], bench.options.seed)?;
        let site = Site { root: root.clone(), only_file: Some(root.join("file.html")), close: false };
        for generator in GENERATORS {
            let turns = Turns { case: NAME, site: &site, rounds: bench.options.rounds };
            bench.rounds(
                turns,
                |server| SERVERS.contains(&server),
                |bench, server, round| {
                    let running = bench.start(server, &site)?;
                    let before = running.cpu_time();
                    let Counts { succeeded, failed } = load(generator, running.address(), bench)?;
                    let used = running.cpu_time().saturating_sub(before);
                    let cpu_us = used.as_secs_f64() * 1e6 / succeeded.max(1) as f64;
                    let per_s = succeeded as f64 / seconds(bench) as f64;
                    let name = server.name();
                    eprintln!("  {name:15} {generator:6} round {round} {cpu_us:8.2} us a request, {per_s:8.0}/s, {failed} failed");
                    for ((metric, ..), value) in METRICS.iter().zip([cpu_us, per_s, failed as f64]) {
                        bench.record((NAME, generator, round), name, metric, value);
                    }
                    Ok(())
                },
            );
        }
        Ok(())
    }

    fn marks(&self, _samples: &Samples) -> Vec<Mark> {
        Vec::new()
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let mut figures = Vec::new();
        for generator in GENERATORS {
            for subject in samples.servers(NAME) {
                for (metric, text, _, unit) in METRICS {
                    let Some(value) = samples.median(NAME, generator, &subject, metric) else { continue };
                    let (case, subject, unit) = (NAME.to_owned(), subject.clone(), unit.to_owned());
                    figures.push(Figure { case, subject, figure: format!("{text}, by {generator}"), value, unit });
                }
            }
        }
        figures
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        METRICS.map(|(metric, heading, decimals, _)| (metric, heading, decimals)).into()
    }
}

/// Both generators count whole seconds.
fn seconds(bench: &Bench) -> u64 {
    (bench.options.seconds.round() as u64).max(1)
}

/// Requests by how they ended.
#[derive(Debug, PartialEq)]
struct Counts {
    succeeded: u64,
    failed: u64,
}

/// Runs one generator.
fn load(generator: &str, address: SocketAddr, bench: &Bench) -> io::Result<Counts> {
    let url = format!("http://{address}/file.html");
    let seconds = seconds(bench).to_string();
    let mut command = Command::new(generator);
    match generator {
        "wrk" => command.args(["-t1", "-c64", "-d", &format!("{seconds}s"), &url]),
        _ => command.args(["--h1", "-t1", "-c64", "-D", &seconds, &url]),
    };
    process::start_on_cores(&mut command, &[bench.options.client_core]);
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{generator} doesn't run: {error}. Debian's packages are wrk and nghttp2-client"),
        )
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = if generator == "wrk" { wrk_counts(&text) } else { h2load_counts(&text) };
    counts.ok_or_else(|| io::Error::other(format!("{generator} gave no number of requests: {text}")))
}

/// Of `  252751 requests in 3.00s, 190.20MB read`, and lines that are only there when something failed:
/// `  Socket errors: connect 0, read 3, write 0, timeout 0` and `  Non-2xx or 3xx responses: 12`. The latter are among the requests.
fn wrk_counts(text: &str) -> Option<Counts> {
    let mut lines = text.lines().map(str::trim);
    let total: u64 = lines.clone().find_map(|line| line.split_once(" requests in "))?.0.parse().ok()?;
    let wrong = lines.clone().find_map(|line| line.strip_prefix("Non-2xx or 3xx responses: "));
    let wrong = wrong.and_then(|count| count.parse().ok()).unwrap_or(0);
    let errors = lines.find_map(|line| line.strip_prefix("Socket errors: ")).unwrap_or_default();
    let broken: u64 = errors.split([' ', ',']).filter_map(|word| word.parse::<u64>().ok()).sum();
    Some(Counts { succeeded: total.saturating_sub(wrong), failed: wrong + broken })
}

/// Of `requests: 252751 total, 252815 started, 252751 done, 252750 succeeded, 1 failed, 0 errored, 0 timeout`: an errored or timed out one
/// is among the failed.
fn h2load_counts(text: &str) -> Option<Counts> {
    let line = text.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let count = |kind: &str| line.split(", ").find_map(|part| part.strip_suffix(kind)?.trim().parse().ok());
    Some(Counts { succeeded: count("succeeded")?, failed: count("failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says_is_understood() {
        let well = "Running 1s test @ http://127.0.0.1:80/\n  1 threads and 64 connections\n  252751 requests in 3.00s, 190.20MB read\n";
        assert_eq!(wrk_counts(well), Some(Counts { succeeded: 252_751, failed: 0 }));
        let badly =
            format!("{well}  Socket errors: connect 1, read 3, write 0, timeout 2\n  Non-2xx or 3xx responses: 51\n");
        assert_eq!(wrk_counts(&badly), Some(Counts { succeeded: 252_700, failed: 57 }));
        assert_eq!(wrk_counts("unable to connect"), None);
    }

    #[test]
    fn what_h2load_says_is_understood() {
        let text = "finished in 1.00s\nrequests: 100 total, 164 started, 100 done, 97 succeeded, 3 failed, 2 errored, 1 timeout\n\
                    status codes: 97 2xx, 0 3xx, 1 4xx, 0 5xx\n";
        assert_eq!(h2load_counts(text), Some(Counts { succeeded: 97, failed: 3 }));
        assert_eq!(h2load_counts("Could not connect"), None);
    }
}
