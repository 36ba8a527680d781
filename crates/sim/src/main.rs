//! Replays one run, or looks for one that fails; or has a worker answer for whoever counts its instructions.

use std::fmt::{Debug, Display};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use leat_logic::schedule::PolicyKind;
use leat_sim::crowd::{Asking, Demand, What, run_under};
use leat_sim::{Defect, handoff};

const USAGE: &str = "usage: leat-sim [--handoff [--pipelined]] (--seed N [--verbose] | --seeds A..B) [--defect NAME]
       leat-sim --crowd POLICY

  without --handoff  workers; NAME: trusts-files, queued-pages-change
  with --handoff     handoffs between servers; NAME: steers-late, no-fence, slow-clock, forgets-list, forgets-resend,
                     trusts-content, probes-early, overlooks-others
  with --pipelined   clients ask for all that they want at once, and nodes tell their home of every reply
  with --crowd       one worker for a second of virtual time, with that policy at its root, two sites and 32 connections that ask
                     for small files again and again: always the same requests, so that two policies' instructions can be compared";

const WORKER_DEFECTS: [(&str, Defect); 2] =
    [("trusts-files", Defect::TrustsFiles), ("queued-pages-change", Defect::QueuedPagesChange)];

/// What the command line asks for.
#[derive(Default)]
struct Arguments {
    handoff: bool,
    pipelined: bool,
    verbose: bool,
    seeds: Range<u64>,
    defect: Option<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, policy] = &words[..]
        && flag == "--crowd"
    {
        return PolicyKind::from_name(policy).map_or_else(refuse, crowd);
    }
    let Some(arguments) = parse(words.into_iter()) else { return refuse() };
    let seeds = arguments.seeds.clone();
    let Arguments { verbose, pipelined, .. } = arguments;
    if arguments.handoff {
        let Some(defect) = find(&handoff::Defect::ALL, arguments.defect) else { return refuse() };
        return run_all(seeds, |seed| handoff::run(handoff::Options { seed, verbose, defect, pipelined }));
    }
    let Some(defect) = find(&WORKER_DEFECTS, arguments.defect).filter(|_| !pipelined) else { return refuse() };
    run_all(seeds, |seed| leat_sim::run(leat_sim::Options { seed, verbose, defect }))
}

/// What figure 12 of the paper is about (`leat-bench shares --case policy-cost`), without the kernel.
fn crowd(policy: PolicyKind) -> ExitCode {
    const WINDOW: Duration = Duration::from_secs(1);
    let demand = |weight| Demand { weight, asking: Asking::Again(16), what: What::Page };
    let arrange = |config: &mut leat::config::Config| config.schedule.root = policy;
    match run_under(arrange, &[demand(200), demand(100)], 1, Duration::ZERO, WINDOW) {
        Ok(got) => {
            let answered: usize = got.iter().map(|got| got.answered_ns.len()).sum();
            println!("{policy}: {answered} requests");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("the run has failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn refuse() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// The defect of that name, if one is named. `None` when it's unknown.
fn find<D: Copy>(defects: &[(&str, D)], name: Option<String>) -> Option<Option<D>> {
    let Some(name) = name else { return Some(None) };
    defects.iter().find(|(known, _)| *known == name).map(|(_, defect)| Some(*defect))
}

/// A run's counts, added up.
trait Counts: Debug + Default {
    fn add(&mut self, other: &Self);
}

impl Counts for leat_sim::Summary {
    fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.replies += other.replies;
        self.cuts += other.cuts;
    }
}

impl Counts for handoff::Summary {
    fn add(&mut self, other: &Self) {
        self.flows += other.flows;
        self.served += other.served;
        self.cut += other.cut;
        self.lost_with_home += other.lost_with_home;
        self.born += other.born;
        self.unasked += other.unasked;
        self.changes += other.changes;
        self.recovered += other.recovered;
        self.lent += other.lent;
        self.asked += other.asked;
        self.upgrades += other.upgrades;
        self.passed += other.passed;
        self.expired += other.expired;
    }
}

fn run_all<S: Counts, F: Display>(seeds: Range<u64>, run: impl Fn(u64) -> Result<S, F>) -> ExitCode {
    let is_alone = seeds.end - seeds.start == 1;
    let mut sum = S::default();
    for seed in seeds.clone() {
        match run(seed) {
            Ok(summary) if is_alone => sum = summary,
            Ok(summary) => sum.add(&summary),
            Err(failure) => {
                print!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{} runs: {sum:?}", seeds.end - seeds.start);
    ExitCode::SUCCESS
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--handoff" => arguments.handoff = true,
            "--pipelined" => arguments.pipelined = true,
            "--verbose" => arguments.verbose = true,
            "--defect" => arguments.defect = Some(words.next()?),
            "--seed" => {
                let seed: u64 = words.next()?.parse().ok()?;
                arguments.seeds = seed..seed.checked_add(1)?;
            }
            "--seeds" => {
                let seeds = words.next()?;
                let (first, end) = seeds.split_once("..")?;
                arguments.seeds = first.parse().ok()?..end.parse().ok()?;
            }
            _ => return None,
        }
    }
    (!arguments.seeds.is_empty()).then_some(arguments)
}
