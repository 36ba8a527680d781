//! What an idle keep-alive connection takes of a server's own memory.

use std::io;
use std::time::Duration;

use super::{Case, Judge, LEAT};
use crate::experiment::Samples;
use crate::load::Plan;
use crate::result::Mark;
use crate::serve::bench::{Bench, Turns};
use crate::server::{Site, is_variant};
use crate::workload::file_set::FileSet;

const NAME: &str = "idle";
const CONNECTIONS: usize = 15_000;
/// Connections that come and go before the first look, so that what is set up once isn't counted.
const WARM_UP_CONNECTIONS: usize = 64;
const LIMIT_BYTES: f64 = 400.0;

pub(super) struct Idle;

impl Case<Bench> for Idle {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "15,000 idle keep-alive connections (lighttpd: as many as it takes): private dirty memory for each"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let root = bench.folder().join(NAME);
        let files = FileSet::of_sizes(&root, &[("file.html", 612)], bench.options.seed)?;
        let site = Site { root: root.clone(), only_file: Some(root.join("file.html")), close: false };
        let mix = files.mix(false, |_| true);
        bench.rounds(
            Turns { case: NAME, site: &site, rounds: 1 },
            |server| !is_variant(server) && !server.contains("sendfile"),
            |bench, server, round| {
                let running = bench.start(server, &site)?;
                let window = Duration::from_millis(100);
                let before = Plan { window, ..Plan::saturate(running.address(), WARM_UP_CONNECTIONS) };
                bench.measure(&running, &before, &mix)?;
                let before_bytes = running.own_memory_bytes();
                let connections = CONNECTIONS.min(server.connections_max());
                let plan =
                    Plan { idle: connections, window, warm_up: Duration::ZERO, ..Plan::saturate(running.address(), 1) };
                let measured = bench.measure(&running, &plan, &mix)?;
                let bytes = measured.memory_bytes.saturating_sub(before_bytes) as f64 / connections as f64;
                eprintln!("  {:15} round {round} {bytes:.0} bytes each {:?}", server.name(), measured.outcome.failures);
                bench.record((NAME, "", round), server.name(), "bytes_each", bytes);
                bench.record((NAME, "", round), server.name(), "memory_bytes", measured.memory_bytes as f64);
                bench.record((NAME, "", round), server.name(), "failures", measured.outcome.failed() as f64);
                Ok(())
            },
        );
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let judge = Judge { samples, case: NAME, point: "", metric: "bytes_each", unit: "bytes" };
        let text = "400 bytes or less of user memory for each idle connection";
        LEAT.map(|leat| judge.mark(leat, text, Some(LIMIT_BYTES), String::new())).into()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![("bytes_each", "bytes each", 0), ("memory_bytes", "bytes in all", 0), ("failures", "failures", 0)]
    }
}
