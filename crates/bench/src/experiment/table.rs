//! The table for readers: marks first, then every case with medians and the range of the rounds.

use std::fmt::Write;

use super::{Case, GENERATOR, Records};
use crate::result::{ExperimentResult, Mark};

/// Where and when it was measured, in words.
pub(crate) fn heading(title: &str, result: &ExperimentResult, how: &str) -> String {
    let ExperimentResult { kernel, cpu, cores, congestion_control, date, commit, rounds, seconds, .. } = result;
    let missing = match result.not_run.as_slice() {
        [] => String::new(),
        cases => format!("**Ended before its end. Not run: {}.**\n\n", cases.join(", ")),
    };
    format!(
        "# {title}\n\nLinux {kernel}, {cpu}, {cores} cores, {congestion_control}, {date}, commit {commit}. {rounds} rounds of {seconds} s, \
         medians, range in brackets. {how}\n\n{missing}"
    )
}

/// All marks; nothing where there are none.
pub(crate) fn marks(result: &ExperimentResult) -> String {
    if result.results.is_empty() {
        return String::new();
    }
    let rows: String = result.results.iter().map(mark_row).collect();
    format!("## Marks\n\n| case | who | mark | value | limit | met |\n|---|---|---|---|---|---|\n{rows}\n")
}

/// What a case measured, point by point.
pub(crate) fn case<B>(case: &dyn Case<B>, records: &Records, result: &ExperimentResult) -> String {
    let samples = &records.samples;
    let points: Vec<_> = case
        .points(samples)
        .into_iter()
        .map(|point| {
            let caption = case.caption(&point, samples);
            (point, caption)
        })
        .collect();
    section((case.name(), case.title()), &points, &case.columns(), records, result)
}

fn mark_row(mark: &Mark) -> String {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2} {}", mark.unit));
    let met = match (mark.met, mark.note.as_str()) {
        (true, _) => "yes".to_owned(),
        (false, "") => "**no**".to_owned(),
        (false, note) => format!("**no**: {note}"),
    };
    format!(
        "| {} | {} | {} | {} | {} | {met} |\n",
        mark.case,
        mark.subject,
        mark.mark,
        number(mark.value),
        number(mark.limit)
    )
}

/// What was measured under a name, point by point; a point has a caption.
pub(crate) fn section(
    (case, title): (&str, &str),
    points: &[(String, String)],
    columns: &[(&str, &str, usize)],
    records: &Records,
    result: &ExperimentResult,
) -> String {
    let mut text = String::new();
    let samples = &records.samples;
    let notes: Vec<_> = records.notes(case).collect();
    if samples.servers(case).is_empty() && notes.is_empty() {
        return text;
    }
    // Writing to a string can't fail, here and below.
    let _ = writeln!(text, "## {case}: {title}\n");
    for (point, caption) in points {
        let metrics = samples.metrics(case, point);
        let shown: Vec<_> = columns.iter().filter(|(metric, ..)| metrics.contains(metric)).collect();
        if !caption.is_empty() {
            let _ = writeln!(text, "{caption}:\n");
        }
        let headings: String = shown.iter().map(|(_, heading, _)| format!(" {heading} |")).collect();
        let _ = writeln!(text, "| who |{headings}\n|---|{}", "---|".repeat(shown.len()));
        for server in samples.servers(case).iter().filter(|server| *server != GENERATOR) {
            let cells = shown.iter().map(|&&(metric, _, decimals)| {
                samples.spread(case, point, server, metric).map(|spread| {
                    if spread.min == spread.max {
                        return format!(" {:.decimals$} |", spread.median);
                    }
                    format!(" {:.decimals$} ({:.decimals$}-{:.decimals$}) |", spread.median, spread.min, spread.max)
                })
            });
            let cells: Vec<_> = cells.collect();
            if cells.iter().any(Option::is_some) {
                let row: String = cells.into_iter().map(|cell| cell.unwrap_or(" - |".to_owned())).collect();
                let _ = writeln!(text, "| {server} |{row}");
            }
        }
        if let Some(offer) = samples.median(case, point, GENERATOR, "offer_per_s") {
            let _ = writeln!(text, "\nThe generator was shown to offer {offer:.0}/s to a do-nothing server.");
        }
        text.push('\n');
    }
    for conditions in result.conditions.iter().filter(|conditions| conditions.case == case) {
        let _ = writeln!(text, "{}\n", conditions.describe());
    }
    for note in notes {
        let _ = writeln!(text, "Note: {note}\n");
    }
    text
}
