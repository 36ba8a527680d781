//! From starting the process to its first reply.

use std::io;

use super::{Case, Judge, LEAT};
use crate::experiment::Samples;
use crate::result::Mark;
use crate::serve::bench::{Bench, Turns};
use crate::server::{Site, is_variant};
use crate::workload::file_set::FileSet;

const NAME: &str = "start";
const LIMIT_MS: f64 = 50.0;

pub(super) struct Start;

impl Case<Bench> for Start {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "start of the process to its first reply"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let root = bench.folder().join(NAME);
        let _files = FileSet::of_sizes(&root, &[("file.html", 612)], bench.options.seed)?;
        let site = Site { root: root.clone(), only_file: Some(root.join("file.html")), close: false };
        bench.rounds(
            Turns { case: NAME, site: &site, rounds: bench.options.rounds },
            |server| !is_variant(server),
            |bench, server, round| {
                let start_ms = bench.start(server, &site)?.start_to_reply().as_secs_f64() * 1e3;
                eprintln!("  {:15} round {round} {start_ms:.1} ms", server.name());
                bench.record((NAME, "", round), server.name(), "start_ms", start_ms);
                Ok(())
            },
        );
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let judge = Judge { samples, case: NAME, point: "", metric: "start_ms", unit: "ms" };
        LEAT.map(|leat| judge.mark(leat, "under 50 ms", Some(LIMIT_MS), String::new())).into()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![("start_ms", "ms", 1)]
    }
}
