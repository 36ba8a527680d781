//! What an experiment leaves behind for machines: `result.json`, and the list of marks that were missed.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::experiment::Conditions;

/// One mark and whether it was met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) case: String,
    /// Who has to meet it.
    pub(crate) subject: String,
    /// In words.
    pub(crate) mark: String,
    /// Median of the rounds; none when it wasn't measured.
    pub(crate) value: Option<f64>,
    /// What the value had to stay at or below.
    pub(crate) limit: Option<f64>,
    pub(crate) unit: String,
    pub(crate) met: bool,
    /// Why it is missing or doesn't count; empty otherwise.
    pub(crate) note: String,
}

impl Mark {
    /// The subject's `value` must be at most `limit`; `doubt` says why it doesn't count, and is empty otherwise.
    pub(crate) fn at_most(
        (case, subject): (String, &str),
        mark: &str,
        value: Option<f64>,
        limit: Option<f64>,
        unit: &str,
        doubt: String,
    ) -> Mark {
        let both = value.zip(limit);
        let note = if both.is_some() { doubt } else { "it wasn't measured".to_owned() };
        let met = note.is_empty() && both.is_some_and(|(value, limit)| value <= limit);
        let (subject, mark, unit) = (subject.to_owned(), mark.to_owned(), unit.to_owned());
        Mark { case, subject, mark, value, limit, unit, met, note }
    }
}

/// A figure that is told but not judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) case: String,
    pub(crate) subject: String,
    /// In words.
    pub(crate) figure: String,
    /// Median of the rounds.
    pub(crate) value: f64,
    pub(crate) unit: String,
}

/// An experiment's marks, and where and when they were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExperimentResult {
    pub(crate) experiment: String,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    /// TCP's congestion control: some pace what is sent, which costs timers.
    pub(crate) congestion_control: String,
    pub(crate) commit: String,
    /// UTC.
    pub(crate) date: String,
    pub(crate) rounds: u32,
    pub(crate) seconds: f64,
    /// Cases that the run had still before it when this was written: a whole run has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_run: Vec<String>,
    pub(crate) results: Vec<Mark>,
    pub(crate) informative: Vec<Figure>,
    /// What else the machine did, case by case.
    pub(crate) conditions: Vec<Conditions>,
}

impl ExperimentResult {
    /// Notes machine, commit and date: what is measured is what is there now, whatever becomes of the working tree meanwhile.
    pub(crate) fn begin(experiment: &str, rounds: u32, seconds: f64) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu_information = read("/proc/cpuinfo");
        let model = cpu_information.lines().find(|line| line.starts_with("model name"));
        Self {
            experiment: experiment.to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: model.and_then(|line| line.split_once(": ")).map_or_else(String::new, |(_, model)| model.to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned(),
            commit: commit(),
            date: utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())),
            rounds,
            seconds,
            not_run: Vec::new(),
            results: Vec::new(),
            informative: Vec::new(),
            conditions: Vec::new(),
        }
    }

    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        fs::write(folder.join("result.json"), text)
    }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match git(&["rev-parse", "--short=12", "HEAD"]) {
        Some(commit) if git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| text.is_empty()) => {
            commit
        }
        Some(commit) => format!("{commit} and changes"),
        None => "unknown".to_owned(),
    }
}

/// Seconds since 1970 as `2000-01-31T12:00:00Z`, by the civil calendar's 400-year cycle.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of the year 0, so that a leap day ends a year.
    let days = days + 719_468;
    let (cycle, day_of_cycle) = (days / 146_097, days % 146_097);
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

/// What a list of shortfalls wants of a `result.json`, whoever wrote it: experiments may be scripts with fields of their own.
#[derive(Debug, Deserialize)]
struct Judgement {
    experiment: String,
    date: String,
    #[serde(default)]
    not_run: Vec<String>,
    results: Vec<Mark>,
}

/// `leat-bench shortfalls`
#[derive(Args, Debug)]
pub(crate) struct ShortfallOptions {
    /// Folder whose sub-folders have the experiments' results.
    #[arg(default_value = "experiments")]
    folder: PathBuf,
}

/// Prints every mark that was missed or not measured, and how many.
///
/// # Errors
/// The folder can't be read, or a result isn't one.
pub(crate) fn print_shortfalls(options: &ShortfallOptions) -> io::Result<()> {
    unless_nobody_reads(write_shortfalls(&mut io::stdout().lock(), &options.folder))
}

/// What came of writing to standard output: whose reader has gone has read enough, as `head` has.
pub(crate) fn unless_nobody_reads(written: io::Result<()>) -> io::Result<()> {
    written.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

fn write_shortfalls(out: &mut dyn Write, folder: &Path) -> io::Result<()> {
    let (mut missed, mut all) = (0, 0);
    let mut folders: Vec<PathBuf> =
        fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?.iter().map(|entry| entry.path()).collect();
    folders.sort();
    for folder in folders {
        let Ok(text) = fs::read_to_string(folder.join("result.json")) else { continue };
        let result: Judgement = serde_json::from_str(&text)
            .map_err(|error| io::Error::other(format!("{}/result.json: {error}", folder.display())))?;
        for case in &result.not_run {
            writeln!(out, "{}/{case}: not run ({})", result.experiment, result.date)?;
        }
        for mark in &result.results {
            all += 1;
            if !mark.met {
                missed += 1;
                writeln!(out, "{} ({})", describe(&result.experiment, mark), result.date)?;
            }
        }
    }
    writeln!(out, "{missed} of {all} marks fall short")
}

fn describe(experiment: &str, mark: &Mark) -> String {
    let number = |value: Option<f64>| value.map_or("not measured".to_owned(), |value| format!("{value:.2}"));
    let note = if mark.note.is_empty() { String::new() } else { format!(" [{}]", mark.note) };
    format!(
        "{experiment}/{}: {}: {}: {} {}, limit {}{note}",
        mark.case,
        mark.subject,
        mark.mark,
        number(mark.value),
        mark.unit,
        number(mark.limit),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_709_251_200), "2024-03-01T00:00:00Z");
    }

    #[test]
    fn every_result_that_is_kept_can_be_read() {
        let mut list = Vec::new();
        write_shortfalls(&mut list, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments"))).unwrap();
        assert!(String::from_utf8(list).unwrap().ends_with(" marks fall short\n"));
    }

    #[test]
    fn a_shortfall_says_what_and_by_how_much() {
        let mark = Mark {
            case: "small".to_owned(),
            subject: "leat-epoll".to_owned(),
            mark: "less than h2o".to_owned(),
            value: Some(8.0),
            limit: Some(7.4),
            unit: "us".to_owned(),
            met: false,
            note: String::new(),
        };
        assert_eq!(describe("serve", &mark), "serve/small: leat-epoll: less than h2o: 8.00 us, limit 7.40");
    }
}
