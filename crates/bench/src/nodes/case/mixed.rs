//! SPECweb99's 70 of a hundred requests for files and 30 that compute: Mix-LARD beside each of its two halves for everything.

use std::io;

use super::super::bench::{Bench, computing};
use super::super::setup::Policy;
use super::{COLUMNS, NODES, at_most, by_policy, percent};
use crate::experiment::{Case, Samples};
use crate::result::Mark;
use crate::workload::mix::Mix;

const NAME: &str = "mixed";
/// The half that goes by content, the half that goes by load, and the one that knows of neither.
const POLICIES: [Policy; 4] = [Policy::MixLard, Policy::Lard, Policy::LeastConnections, Policy::RoundRobin];
const DIRECTORIES: u32 = 36;
const DYNAMIC_SHARE: f64 = 0.3;
/// How long scripts compute, in microseconds, and how often each is asked for: those that take long are rare. They want as much of the processors as the files do:
/// with much more of it, nothing but processor time would bind, and no policy could be better than one that goes by load.
const SCRIPTS: [(u64, f64); 6] = [(50, 0.35), (125, 0.25), (250, 0.2), (500, 0.1), (1_000, 0.07), (2_000, 0.03)];

pub(super) struct Mixed;

impl Case<Bench> for Mixed {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "the same files, and three of ten requests compute"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let files = bench.specweb99(DIRECTORIES, NODES)?;
        let mut targets = files.all();
        let all: f64 = targets.iter().map(|(_, weight)| weight).sum();
        let dynamic = all * DYNAMIC_SHARE / (1.0 - DYNAMIC_SHARE);
        let scripts = SCRIPTS.iter().zip(1..);
        targets.extend(scripts.map(|(&(us, share), script)| (computing(script, us), dynamic * share)));
        let mix = Mix::new(targets);
        by_policy(bench, NAME, &POLICIES, (&files, &mix))
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let of = |policy: Policy| samples.median(NAME, "", policy.name(), "answered_per_s");
        let mark = |policy: &Policy| {
            let text = format!("what {} answers, of Mix-LARD's", policy.name());
            let doubt = samples.failures(NAME, "", Policy::MixLard.name());
            at_most((NAME, ""), &text, percent(of(*policy), of(Policy::MixLard)), 100.0, "%", doubt)
        };
        POLICIES[1..].iter().map(mark).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        COLUMNS.to_vec()
    }
}
