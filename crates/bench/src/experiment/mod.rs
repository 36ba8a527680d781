//! What all experiments share: cases that leave samples, marks that judge them, and the files that tell of both.
//!
//! A case is told its bench (the servers and settings of its experiment), collects samples, and judges them afterwards. Nothing here
//! knows what is measured.

mod clocks;
pub(crate) mod leat_build;
mod machine;
mod options;
pub(crate) mod plot;
mod records;
pub(crate) mod samples;
pub(crate) mod table;

use std::fs;
use std::io;
use std::path::Path;

pub(crate) use clocks::Clocks;
use machine::Watch;
pub(crate) use machine::{Conditions, stolen_s};
pub(crate) use options::{About, RunOptions, run_cases};
pub(crate) use plot::Plot;
pub(crate) use records::Records;
pub(crate) use samples::Samples;

use crate::result::{ExperimentResult, Figure, Findings, Mark};
use crate::sys::process;

/// The generator's own name in samples.
pub(crate) const GENERATOR: &str = "generator";

/// What a case runs on.
pub(crate) trait Bench {
    fn records(&mut self) -> &mut Records;
}

/// One case of an experiment.
pub(crate) trait Case<B> {
    /// As on the command line and in results.
    fn name(&self) -> &'static str;
    /// In words.
    fn title(&self) -> &'static str;
    /// Collects samples.
    fn run(&self, bench: &mut B) -> io::Result<()>;
    /// Judges them.
    fn marks(&self, samples: &Samples) -> Vec<Mark>;
    /// Figures to tell that no mark is judged by.
    fn figures(&self, _samples: &Samples) -> Vec<Figure> {
        Vec::new()
    }
    /// The case's points in the order in which the table has them.
    fn points(&self, samples: &Samples) -> Vec<String> {
        samples.points(self.name())
    }
    /// What a point is, for the table; empty for a case's only one.
    fn caption(&self, point: &str, _samples: &Samples) -> String {
        point.to_owned()
    }
    /// What the table shows: metric, heading, decimals.
    fn columns(&self) -> Vec<(&'static str, &'static str, usize)>;
    /// What is drawn.
    fn plots(&self, _samples: &Samples) -> Vec<Plot> {
        Vec::new()
    }
}

/// The cases of these names, or all where there are none.
///
/// # Errors
/// A name that no case has.
pub(crate) fn select<B>(cases: Vec<Box<dyn Case<B>>>, wanted: &[String]) -> io::Result<Vec<Box<dyn Case<B>>>> {
    if let Some(unknown) = wanted.iter().find(|name| cases.iter().all(|case| case.name() != name.as_str())) {
        let message = format!("no case is named {unknown}: `--list` names them all");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let is_wanted = |name| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    Ok(cases.into_iter().filter(|case| is_wanted(case.name())).collect())
}

/// Runs cases one after the other. One that ends early is noted, and judged by what it has left.
pub(crate) fn run<B: Bench>(cases: &[Box<dyn Case<B>>], bench: &mut B) -> Findings {
    let mut findings = Findings { marks: Vec::new(), figures: Vec::new(), conditions: Vec::new() };
    for case in cases {
        eprintln!("case {}: {}", case.name(), case.title());
        let watch = Watch::begin();
        if let Err(error) = case.run(bench) {
            eprintln!("case {} ended early: {error}", case.name());
            bench.records().note(case.name(), &format!("ended early: {error}"));
        }
        let conditions = watch.end(case.name());
        eprintln!("  {}", conditions.describe());
        findings.conditions.push(conditions);
        findings.marks.extend(case.marks(&bench.records().samples));
        findings.figures.extend(case.figures(&bench.records().samples));
    }
    findings
}

/// Writes `result.json`, `samples.csv`, `table.md` and the plots of the cases. The table begins with a title, and how it was measured.
///
/// # Errors
/// The folder can't be written.
pub(crate) fn write<B>(
    folder: &Path,
    (title, how): (&str, &str),
    result: &ExperimentResult,
    cases: &[Box<dyn Case<B>>],
    records: &Records,
) -> io::Result<()> {
    let samples = &records.samples;
    let mut text = table::heading(title, result, how) + &table::marks(result);
    text.extend(cases.iter().map(|case| table::case(case.as_ref(), records, result)));
    fs::create_dir_all(folder)?;
    result.write(folder)?;
    let of_these = |case: &str| cases.iter().any(|known| known.name() == case);
    fs::write(folder.join("samples.csv"), samples.csv(of_these))?;
    fs::write(folder.join("table.md"), &text)?;
    for plot in cases.iter().flat_map(|case| case.plots(samples)) {
        plot.write(folder).map_err(io::Error::other)?;
    }
    println!("{text}");
    Ok(())
}

/// Runs `work` on a thread of its own that stays on some processors and goes before what others run.
pub(crate) fn on_cores<T: Send>(cores: &[usize], work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            process::pin_to_cores(cores)?;
            process::prefer();
            work()
        });
        thread.join().map_err(|_| io::Error::other("the measuring thread panicked"))?
    })
}
