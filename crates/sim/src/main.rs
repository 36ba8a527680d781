//! Replays one run, or looks for one that fails.

use std::ops::Range;
use std::process::ExitCode;

use leat_sim::{Defect, Options, run};

const USAGE: &str =
    "usage: leat-sim (--seed N [--verbose] | --seeds A..B) [--defect trusts-files | queued-pages-change]";

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let defect = match arguments.iter().position(|argument| argument == "--defect") {
        None => Ok(None),
        Some(place) => {
            let rest = arguments.split_off(place);
            match rest.get(1).map(String::as_str) {
                Some("trusts-files") if rest.len() == 2 => Ok(Some(Defect::TrustsFiles)),
                Some("queued-pages-change") if rest.len() == 2 => Ok(Some(Defect::QueuedPagesChange)),
                _ => Err(()),
            }
        }
    };
    let (Some((seeds, verbose)), Ok(defect)) = (parse(&arguments), defect) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (mut replies, mut cuts) = (0, 0);
    for seed in seeds.clone() {
        match run(Options { seed, verbose, defect }) {
            Ok(summary) => {
                replies += summary.replies;
                cuts += summary.cuts;
                if seeds.end - seeds.start == 1 {
                    println!("{summary:?}");
                }
            }
            Err(failure) => {
                print!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{} runs, {replies} replies, {cuts} cut with reason", seeds.end - seeds.start);
    ExitCode::SUCCESS
}

fn parse(arguments: &[String]) -> Option<(Range<u64>, bool)> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--seed", seed] => one(seed).map(|seeds| (seeds, false)),
        ["--seed", seed, "--verbose"] | ["--verbose", "--seed", seed] => one(seed).map(|seeds| (seeds, true)),
        ["--seeds", seeds] => {
            let (first, end) = seeds.split_once("..")?;
            Some((first.parse().ok()?..end.parse().ok()?, false))
        }
        _ => None,
    }
}

fn one(seed: &str) -> Option<Range<u64>> {
    let seed: u64 = seed.parse().ok()?;
    Some(seed..seed.checked_add(1)?)
}
