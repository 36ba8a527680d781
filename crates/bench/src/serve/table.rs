//! The table for readers: marks first, then every case with medians and the range of the rounds.

use std::fmt::Write;

use super::bench::{Bench, GENERATOR};
use super::case::Case;
use super::second_opinion;
use crate::result::{ExperimentResult, Mark};

/// Markdown of a whole run.
pub(crate) fn markdown(result: &ExperimentResult, cases: &[Box<dyn Case>], bench: &Bench) -> String {
    let mut text = format!(
        "# Serving files, beside the peers\n\nLinux {}, {}, {} cores, {}, {}, commit {}. {} rounds of {} s, medians, range in \
         brackets. Server on one core, client on another.\n\n",
        result.kernel,
        result.cpu,
        result.cores,
        result.congestion_control,
        result.date,
        result.commit,
        result.rounds,
        result.seconds
    );
    if !result.results.is_empty() {
        text.push_str("## Marks\n\n| case | who | mark | value | limit | met |\n|---|---|---|---|---|---|\n");
        result.results.iter().for_each(|mark| text.push_str(&mark_row(mark)));
        text.push('\n');
    }
    for case in cases {
        let points: Vec<_> = case
            .points(&bench.samples)
            .into_iter()
            .map(|point| {
                let caption = case.caption(&point, &bench.samples);
                (point, caption)
            })
            .collect();
        section(&mut text, (case.name(), case.title()), &points, &case.columns(), bench);
    }
    let columns = [("cpu_us", "CPU us a request", 2), ("answered_per_s", "requests/s", 0)];
    let title = "the small file again, by wrk and h2load";
    let points = bench.samples.points(second_opinion::NAME).into_iter().map(|point| (point.clone(), point));
    section(&mut text, (second_opinion::NAME, title), &points.collect::<Vec<_>>(), &columns, bench);
    text
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

fn section(
    text: &mut String,
    (case, title): (&str, &str),
    points: &[(String, String)],
    columns: &[(&str, &str, usize)],
    bench: &Bench,
) {
    let samples = &bench.samples;
    let notes: Vec<_> = bench.notes.iter().filter(|(of, _)| of == case).collect();
    if samples.servers(case).is_empty() && notes.is_empty() {
        return;
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
        let _ = writeln!(text, "| server |{headings}\n|---|{}", "---|".repeat(shown.len()));
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
    for conditions in bench.conditions.iter().filter(|conditions| conditions.case == case) {
        let _ = writeln!(text, "{}\n", conditions.describe());
    }
    for (_, note) in notes {
        let _ = writeln!(text, "Note: {note}\n");
    }
}
