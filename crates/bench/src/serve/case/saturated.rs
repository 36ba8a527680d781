//! Processor time for each request: one file, a closed loop that saturates the server where the client can.

use std::io;
use std::time::Duration;

use super::{Case, Judge, LEAT, load_columns};
use crate::load::{Demand, Plan, Spacing};
use crate::result::Mark;
use crate::serve::bench::{Bench, GENERATOR, OFFER_FACTOR};
use crate::serve::samples::Samples;
use crate::server::{Site, is_peer};
use crate::workload::file_set::FileSet;
use crate::workload::mix::Mix;

const FILE: &str = "file.html";

/// One file's size and how it is asked for.
pub(super) struct Saturated {
    name: &'static str,
    title: &'static str,
    file_bytes: u64,
    connections: usize,
    /// Every request on a connection of its own.
    close: bool,
    marks: fn(&Judge) -> Vec<Mark>,
}

pub(super) fn all() -> Vec<Saturated> {
    vec![
        Saturated {
            name: "small",
            title: "612-byte file, 64 keep-alive connections",
            file_bytes: 612,
            connections: 64,
            close: false,
            marks: small_marks,
        },
        Saturated {
            name: "connection",
            title: "612-byte file, a connection for each request, all at two thirds of what the generator can open",
            file_bytes: 612,
            connections: 64,
            close: true,
            marks: |judge| {
                let beside = |peer: &'static str| {
                    LEAT.map(|leat| judge.beside(leat, peer, 1.0, &format!("less CPU a request than {peer}")))
                };
                [beside("nginx"), beside("h2o")].concat()
            },
        },
        Saturated {
            name: "8-kb",
            title: "8 KB file, 64 keep-alive connections",
            file_bytes: 8 << 10,
            connections: 64,
            close: false,
            marks: best_peer_marks,
        },
        Saturated {
            name: "64-kb",
            title: "64 KB file, 64 keep-alive connections",
            file_bytes: 64 << 10,
            connections: 64,
            close: false,
            marks: best_peer_marks,
        },
        Saturated {
            name: "1-mb",
            title: "1 MB file, 16 keep-alive connections",
            file_bytes: 1 << 20,
            connections: 16,
            close: false,
            marks: |judge| {
                let mut marks = best_peer_marks(judge);
                let text = "within 10 % of a bare sendfile loop";
                marks.extend(LEAT.map(|leat| judge.beside(leat, "nothing-sendfile", 1.1, text)));
                marks
            },
        },
    ]
}

fn small_marks(judge: &Judge) -> Vec<Mark> {
    let [io_uring, epoll] = LEAT;
    vec![
        judge.beside(io_uring, "nothing-epoll", 1.0, "no more CPU a request than a do-nothing epoll server"),
        judge.beside(io_uring, "h2o", 1.0 / 1.2, "1.2 times less CPU a request than h2o"),
        judge.beside(io_uring, "nginx", 1.0 / 1.7, "1.7 times less CPU a request than nginx"),
        judge.beside(epoll, "nothing-epoll", 1.15, "at most 1.15 times a do-nothing epoll server"),
        judge.beside(epoll, "h2o", 1.0, "less CPU a request than h2o"),
    ]
}

fn best_peer_marks(judge: &Judge) -> Vec<Mark> {
    LEAT.map(|leat| judge.below_best(leat, is_peer, "less CPU a request than the best peer")).into()
}

impl Case for Saturated {
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
            warm_up: Duration::from_millis(500),
            window: bench.window(),
            ..Plan::saturate(([127, 0, 0, 1], 0).into(), self.connections)
        };
        let shape = if self.close { self.within_proof(bench, &site, &shape, &mix)? } else { shape };
        bench.rounds(
            self.name,
            &site,
            |server| self.wants(server),
            |bench, server, round| {
                let running = bench.start(server, &site)?;
                let plan = Plan { address: running.address(), ..shape.clone() };
                let measured = bench.measure(&running, &plan, &mix)?;
                bench.record_load((self.name, "", round), server.name(), &measured);
                Ok(())
            },
        );
        if !self.close {
            bench.prove_offer((self.name, ""), &site, &shape, &mix);
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        (self.marks)(&Judge { samples, case: self.name, point: "", metric: "cpu_us", unit: "us" })
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        load_columns()
    }
}

impl Saturated {
    fn wants(&self, server: &str) -> bool {
        // Reads on a thread pool are for files that aren't in the page cache, sendfile for large ones.
        server != "nginx-threads" && (server != "nothing-sendfile" || self.file_bytes >= 1 << 20)
    }

    /// An open loop at a rate that leaves the generator its margin.
    ///
    /// Opening a connection costs the client as much as the server, as loopback does the handshake's work on the side
    /// that begins it: one client core can't saturate a good server, so all are compared at one rate below saturation.
    fn within_proof(&self, bench: &mut Bench, site: &Site, shape: &Plan, mix: &Mix) -> io::Result<Plan> {
        let server = crate::server::do_nothing("epoll");
        let running = bench.start(server.as_ref(), site)?;
        let measured = bench.measure(&running, &Plan { address: running.address(), ..shape.clone() }, mix)?;
        let offer_per_s = measured.outcome.answered_per_s();
        bench.record((self.name, "", 0), GENERATOR, "offer_per_s", offer_per_s);
        let demand = Demand::Rate { per_s: offer_per_s / OFFER_FACTOR, spacing: Spacing::Poisson };
        Ok(Plan { demand, connections: 4 * self.connections, ..shape.clone() })
    }
}
