//! Processor time for each request: one file, every server at the same offered rate.
//!
//! A server that is offered all it can take can't be compared where the generator, which has one core too, isn't shown
//! to offer half as much again. So marks are judged at two rates that it was shown to exceed: one that all main servers
//! can answer, for leat beside its peers, and a higher one for leat beside the servers that do nothing. A closed loop
//! before them finds what each server can answer; its processor times are told, not judged.

use std::io;
use std::time::Duration;

use super::{Case, Judge, LEAT, SATURATED, SATURATED_CAPTION, last, load_columns, saturated_figures};
use crate::experiment::GENERATOR;
use crate::experiment::Samples;
use crate::load::{Demand, Plan, Spacing};
use crate::result::{Figure, Mark};
use crate::serve::bench::{Bench, OFFER_FACTOR, Turns};
use crate::server::{Site, is_peer, is_variant};
use crate::workload::file_set::FileSet;
use crate::workload::mix::Mix;

/// Random arrivals exceed their rate at times: the rate that counts leaves room for it.
const ARRIVALS_MARGIN: f64 = 0.97;

const FILE: &str = "file.html";
/// The rate that all are offered.
const SHARED: &str = "shared rate";
/// The rate that leat and the do-nothing servers are offered.
const HIGH: &str = "high rate";
/// Whose capacity sets the shared rate, beside leat and the do-nothing servers.
const MAIN_PEERS: [&str; 3] = ["nginx", "h2o", "lighttpd"];
/// Part of the slowest one's capacity that is offered: far enough below for gaps between arrivals to be made up.
const SHARED_PART: f64 = 2.0 / 3.0;
const HIGH_PART: f64 = 0.9;

/// One file's size and how it is asked for.
pub(super) struct SingleFile {
    name: &'static str,
    title: &'static str,
    file_bytes: u64,
    connections: usize,
    /// Every request on a connection of its own.
    close: bool,
    /// Beside peers, and beside do-nothing servers.
    marks: fn(&Judge, &Judge) -> Vec<Mark>,
}

pub(super) fn all() -> Vec<SingleFile> {
    let kept = |name, title, file_bytes, connections, marks| SingleFile {
        name,
        title,
        file_bytes,
        connections,
        close: false,
        marks,
    };
    vec![
        kept("small", "612-byte file, 64 keep-alive connections", 612, 64, small_marks),
        SingleFile {
            name: "connection",
            title: "612-byte file, a connection for each request, all at two thirds of what the generator can open",
            file_bytes: 612,
            connections: 64,
            close: true,
            marks: |peers, _| {
                let beside = |peer: &'static str| {
                    LEAT.map(|leat| peers.beside(leat, peer, 1.0, &format!("less CPU a request than {peer}")))
                };
                [beside("nginx"), beside("h2o")].concat()
            },
        },
        kept("8-kb", "8 KB file, 64 keep-alive connections", 8 << 10, 64, |peers, _| best_peer_marks(peers)),
        kept("64-kb", "64 KB file, 64 keep-alive connections", 64 << 10, 64, |peers, _| best_peer_marks(peers)),
        kept("1-mb", "1 MB file, 16 keep-alive connections", 1 << 20, 16, |peers, nothing| {
            let mut marks = best_peer_marks(peers);
            let text = "within 10 % of a bare sendfile loop";
            marks.extend(LEAT.map(|leat| nothing.beside(leat, "nothing-sendfile", 1.1, text)));
            marks
        }),
    ]
}

fn small_marks(peers: &Judge, nothing: &Judge) -> Vec<Mark> {
    let [io_uring, epoll] = LEAT;
    vec![
        nothing.beside(io_uring, "nothing-epoll", 1.0, "no more CPU a request than a do-nothing epoll server"),
        peers.beside(io_uring, "h2o", 1.0 / 1.2, "1.2 times less CPU a request than h2o"),
        peers.beside(io_uring, "nginx", 1.0 / 1.7, "1.7 times less CPU a request than nginx"),
        nothing.beside(epoll, "nothing-epoll", 1.15, "at most 1.15 times a do-nothing epoll server"),
        peers.beside(epoll, "h2o", 1.0, "less CPU a request than h2o"),
    ]
}

fn best_peer_marks(judge: &Judge) -> Vec<Mark> {
    LEAT.map(|leat| judge.below_best(leat, is_peer, "less CPU a request than the best peer")).into()
}

impl Case<Bench> for SingleFile {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let root = bench.folder().join(self.name);
        let files = FileSet::of_sizes(&root, &[(FILE, self.file_bytes)], bench.options.seed)?;
        let site = Site { root: root.clone(), only_file: Some(root.join(FILE)), close: self.close };
        let mix = files.mix(self.close, |_| true);
        // Only the shape of the load is wanted here: each server has its own address.
        let shape = Plan {
            requests_per_connection: self.close.then_some(1),
            warm_up: Duration::from_millis(300),
            window: bench.window(),
            drain: Duration::from_millis(200),
            ..Plan::saturate(([127, 0, 0, 1], 0).into(), self.connections)
        };
        let all = |server: &str| self.wants(server);
        if self.close {
            let plan = self.openable(bench, &site, &shape, &mix)?;
            self.measure(bench, &site, &mix, (SHARED, bench.options.rounds), &plan, all);
            return Ok(());
        }
        self.measure(bench, &site, &mix, (SATURATED, bench.few_rounds()), &shape, all);
        let Some(rates) = self.rates(bench, &site, &shape, &mix) else { return Ok(()) };
        let rounds = bench.options.rounds;
        self.measure(bench, &site, &mix, (SHARED, rounds), &at_rate(&shape, rates.shared_per_s), all);
        let floor = |server: &str| self.wants(server) && !is_peer(server);
        self.measure(bench, &site, &mix, (HIGH, rounds), &at_rate(&shape, rates.high_per_s), floor);
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let judge = |point| Judge { samples, case: self.name, point, metric: "cpu_us", unit: "us" };
        (self.marks)(&judge(SHARED), &judge(HIGH))
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        saturated_figures(samples, self.name)
    }

    fn points(&self, samples: &Samples) -> Vec<String> {
        last(samples.points(self.name), SATURATED)
    }

    fn caption(&self, point: &str, samples: &Samples) -> String {
        let rate = samples.median(self.name, point, GENERATOR, "rate_per_s").unwrap_or(0.0);
        match point {
            SHARED => {
                format!("**Shared rate**: every server is offered {rate:.0}/s. Marks beside peers are judged here")
            }
            HIGH => format!(
                "**High rate**: leat and the do-nothing servers are offered {rate:.0}/s. Marks beside these are judged here"
            ),
            _ => SATURATED_CAPTION.to_owned(),
        }
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        load_columns()
    }
}

struct Rates {
    shared_per_s: f64,
    high_per_s: f64,
}

impl SingleFile {
    fn wants(&self, server: &str) -> bool {
        // Sendfile pays for large files only.
        !is_variant(server) && (server != "nothing-sendfile" || self.file_bytes >= 1 << 20)
    }

    fn measure(
        &self,
        bench: &mut Bench,
        site: &Site,
        mix: &Mix,
        (point, rounds): (&str, u32),
        shape: &Plan,
        wanted: impl Fn(&str) -> bool,
    ) {
        bench.rounds(Turns { case: self.name, site, rounds }, wanted, |bench, server, round| {
            let running = bench.start(server, site)?;
            let plan = Plan { address: running.address(), seed: 1 + u64::from(round), ..shape.clone() };
            let measured = bench.measure_undisturbed(&running, &plan, mix)?;
            bench.record_load((self.name, point, round), server.name(), &measured);
            Ok(())
        });
    }

    /// The two rates, from what each server answered when saturated and what the generator is shown to offer.
    fn rates(&self, bench: &mut Bench, site: &Site, shape: &Plan, mix: &Mix) -> Option<Rates> {
        let floor = |server: &str| !is_peer(server);
        let main = |server: &str| floor(server) || MAIN_PEERS.contains(&server);
        let capacity = |bench: &Bench, among: &dyn Fn(&str) -> bool| {
            bench.records.samples.least(self.name, SATURATED, "answered_per_s", among).map(|(_, per_s)| per_s)
        };
        let slowest_per_s = capacity(bench, &main)?;
        let high_per_s = HIGH_PART * capacity(bench, &floor).unwrap_or(slowest_per_s);
        let offer_per_s = bench.shown_offer(self.name, site, shape, mix, high_per_s);
        // Without proof there are still figures; they don't count, and say so.
        let counts_per_s = if offer_per_s > 0.0 { offer_per_s / OFFER_FACTOR * ARRIVALS_MARGIN } else { f64::INFINITY };
        let rates = Rates {
            shared_per_s: (SHARED_PART * slowest_per_s).min(counts_per_s),
            high_per_s: high_per_s.min(counts_per_s),
        };
        for (point, rate_per_s) in [(SHARED, rates.shared_per_s), (HIGH, rates.high_per_s)] {
            bench.record((self.name, point, 0), GENERATOR, "offer_per_s", offer_per_s);
            bench.record((self.name, point, 0), GENERATOR, "rate_per_s", rate_per_s);
        }
        Some(rates)
    }

    /// An open loop at a rate that leaves the generator its margin.
    ///
    /// Opening a connection costs the client as much as the server, as loopback does the handshake's work on the side
    /// that begins it: one client core can't saturate a good server.
    fn openable(&self, bench: &mut Bench, site: &Site, shape: &Plan, mix: &Mix) -> io::Result<Plan> {
        let server = crate::server::do_nothing("epoll");
        let running = bench.start(server.as_ref(), site)?;
        let measured = bench.measure(&running, &Plan { address: running.address(), ..shape.clone() }, mix)?;
        let offer_per_s = measured.outcome.answered_per_s();
        let rate_per_s = offer_per_s / OFFER_FACTOR * ARRIVALS_MARGIN;
        bench.record((self.name, SHARED, 0), GENERATOR, "offer_per_s", offer_per_s);
        bench.record((self.name, SHARED, 0), GENERATOR, "rate_per_s", rate_per_s);
        Ok(Plan { connections: 4 * self.connections, ..at_rate(shape, rate_per_s) })
    }
}

fn at_rate(shape: &Plan, per_s: f64) -> Plan {
    Plan { demand: Demand::Rate { per_s, spacing: Spacing::Poisson }, ..shape.clone() }
}
