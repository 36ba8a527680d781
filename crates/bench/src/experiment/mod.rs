//! What all experiments share: cases that leave samples, marks that judge them, and the files that tell of both.
//!
//! A case is told its bench (the servers and settings of its experiment), collects samples, and judges them afterwards. Nothing here
//! knows what is measured.

pub(crate) mod account;
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

use crate::result::{ExperimentResult, Figure, Mark};
use crate::sys::process;

/// The generator's own name in samples.
pub(crate) const GENERATOR: &str = "generator";

/// What a case runs on.
pub(crate) trait Bench {
    fn records(&mut self) -> &mut Records;
    /// A case has ended, and is about to be written down.
    fn case_ended(&mut self, _case: &str) {}
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

/// Runs cases one after the other, and writes what there is after each: a run that is ended keeps what it had. A case that ends early is noted, and
/// judged by what it has left.
///
/// # Errors
/// The folder can't be written.
pub(crate) fn run<B: Bench>(
    folder: &Path,
    heading: (&str, &str),
    mut result: ExperimentResult,
    cases: &[Box<dyn Case<B>>],
    bench: &mut B,
) -> io::Result<()> {
    let mut text = String::new();
    for (before, case) in cases.iter().enumerate() {
        run_case(case.as_ref(), bench, &mut result);
        result.not_run = cases[before + 1..].iter().map(|case| case.name().to_owned()).collect();
        text = write(folder, heading, &result, &cases[..=before], bench.records())?;
    }
    println!("{text}");
    Ok(())
}

fn run_case<B: Bench>(case: &dyn Case<B>, bench: &mut B, result: &mut ExperimentResult) {
    eprintln!("case {}: {}", case.name(), case.title());
    let watch = Watch::begin();
    if let Err(error) = case.run(bench) {
        eprintln!("case {} ended early: {error}", case.name());
        bench.records().note(case.name(), &format!("ended early: {error}"));
    }
    let conditions = watch.end(case.name());
    eprintln!("  {}", conditions.describe());
    result.conditions.push(conditions);
    bench.case_ended(case.name());
    let samples = &bench.records().samples;
    result.results.extend(case.marks(samples));
    result.informative.extend(case.figures(samples));
}

/// Writes `result.json`, `samples.csv`, `table.md` and the plots of the cases. The table, which it returns, begins with a title, and how it was
/// measured.
fn write<B>(
    folder: &Path,
    (title, how): (&str, &str),
    result: &ExperimentResult,
    cases: &[Box<dyn Case<B>>],
    records: &Records,
) -> io::Result<String> {
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
    Ok(text)
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing(Records);

    impl Bench for Nothing {
        fn records(&mut self) -> &mut Records {
            &mut self.0
        }
    }

    /// Reads what has been written before it.
    struct Reader(&'static str, std::path::PathBuf);

    impl Case<Nothing> for Reader {
        fn name(&self) -> &'static str {
            self.0
        }

        fn title(&self) -> &'static str {
            "what has been written"
        }

        fn run(&self, bench: &mut Nothing) -> io::Result<()> {
            let text = fs::read_to_string(self.1.join("samples.csv")).unwrap_or_default();
            bench.0.record((self.0, "", 0), "leat", "rows", text.lines().count() as f64);
            Ok(())
        }

        fn marks(&self, samples: &Samples) -> Vec<Mark> {
            let value = samples.median(self.0, "", "leat", "rows");
            vec![Mark::at_most((self.0.to_owned(), "leat"), "rows", value, Some(9.0), "", String::new())]
        }

        fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
            vec![("rows", "rows", 0)]
        }
    }

    #[test]
    fn what_a_case_has_brought_is_written_before_the_next_begins() {
        let folder = crate::server::running::WorkFolder::create("written").unwrap();
        let out = folder.path().join("out");
        let cases: Vec<Box<dyn Case<Nothing>>> =
            ["first", "second"].map(|name| Box::new(Reader(name, out.clone())) as _).into_iter().collect();
        let result = ExperimentResult::begin("reading", 1, 1.0);
        run(&out, ("Reading", "Here."), result, &cases, &mut Nothing(Records::default())).unwrap();
        let written: ExperimentResult =
            serde_json::from_str(&fs::read_to_string(out.join("result.json")).unwrap()).unwrap();
        let values: Vec<_> = written.results.iter().map(|mark| (mark.case.as_str(), mark.value)).collect();
        assert_eq!(values, [("first", Some(0.0)), ("second", Some(2.0))], "a heading and a row of the first");
        assert_eq!(written.conditions.len(), 2);
    }
}
