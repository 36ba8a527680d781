//! The page of a record, as far as figures can write it: what was run, and what came out. Reasons are for people to add.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use super::case::FACTOR;
use crate::result::{ExperimentResult, Mark};

/// Writes the page beside the result; one that is there already may have been worked on, and stays.
///
/// # Errors
/// The result can't be read, or the page written.
pub(super) fn write(folder: &Path) -> io::Result<()> {
    let page = folder.join("README.md");
    if page.exists() {
        eprintln!(
            "{} is left as it is: compare it with table.md, or remove it to have it written anew",
            page.display()
        );
        return Ok(());
    }
    let result = serde_json::from_str(&fs::read_to_string(folder.join("result.json"))?)?;
    fs::write(page, text(&result))
}

fn text(result: &ExperimentResult) -> String {
    let marks = &result.results;
    let met = marks.iter().filter(|mark| mark.met).count();
    let worst = marks
        .iter()
        .filter_map(|mark| Some((mark.value? / mark.limit?, mark)))
        .max_by(|left, right| left.0.total_cmp(&right.0));
    let worst = worst.map_or(String::new(), |(part, mark)| {
        format!(" Nearest to its limit, or farthest above: {}, {}, {part:.2} of it.", mark.subject, mark.case)
    });
    let ExperimentResult { commit, rounds, seconds, .. } = result;
    let mut text = format!(
        "# Passing requests on to a server behind\n\n**In short:** {met} of {} marks.{worst}\n\n## What is run\n\n\
         `cargo run --release -p leat-bench -- proxy`; the program is `crates/bench/src/proxy`. leat on both reactors (a site's handler `proxy`), nginx \
         and HAProxy each pass requests on over kept connections of HTTP/1.1, on loopback, one worker on one core. The client has another core, and the \
         server behind a third, or the client's where there are two: one thread that has its replies ready and sums up uploads. Each front begins anew for each measurement, in another order \
         in each round. Every reply's length is checked, every 64th byte by byte; the server behind tells each upload's length and sum.\n\n\
         ## What is counted\n\nThe front's user and system time by the scheduler's clock, for each request answered within the window: at most {FACTOR} \
         times that of the better of nginx and HAProxy, and known to be. At the shared rate latency counts from when a request was due; the p99 of the \
         median slice of 50 ms may be no worse than the best peer's.\n\n## What came out\n\nThe record is of {commit}, {rounds} rounds of {seconds} s; \
         [table.md](table.md) has it all. Values beside their limits:\n\n| | leat-io_uring | leat-epoll | limit |\n|---|---|---|---|\n",
        marks.len(),
    );
    let mut points: BTreeMap<&str, Vec<&Mark>> = BTreeMap::new();
    marks.iter().for_each(|mark| points.entry(&mark.case).or_default().push(mark));
    for (point, marks) in points {
        let cell = |who: &str| {
            let mark = marks.iter().find(|mark| mark.subject == who);
            let value = mark.and_then(|mark| mark.value).map_or("-".to_owned(), |value| format!("{value:.2}"));
            match mark {
                Some(mark) if mark.met => value,
                Some(mark) if !mark.note.is_empty() => format!("{value}, missed: {}", mark.note),
                _ => format!("{value}, missed"),
            }
        };
        let limit = marks.iter().find_map(|mark| mark.limit).map_or("-".to_owned(), |limit| format!("{limit:.2}"));
        let unit = marks.first().map_or("", |mark| mark.unit.as_str());
        // Writing to a string can't fail.
        let _ = writeln!(text, "| {point} | {} | {} | {limit} {unit} |", cell("leat-io_uring"), cell("leat-epoll"));
    }
    text
}
