//! Numbers and names for people: at most seven characters for a number, so that eight columns fit a plain terminal.

use super::column::{COLUMNS, Subject, Unit};
use super::table::{Grouping, Row, Sorting, Table};

/// A column of numbers, with the space before it.
pub(super) const NUMBER_WIDTH: usize = 8;
/// Columns are left out before names get less than this.
pub(super) const NAME_WIDTH_MIN: usize = 12;
/// What names have in a table that isn't for a terminal.
const NAME_WIDTH: usize = 24;

/// A number in its unit; a dash for what nobody knows.
pub(super) fn number(value: Option<f64>, unit: Unit) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match unit {
        Unit::Part => format!("{:.1}%", value * 100.0),
        Unit::Time if value >= 0.999_5 => format!("{value:.2}s"),
        Unit::Time if value >= 0.000_999_5 => format!("{:.1}ms", value * 1e3),
        Unit::Time => format!("{:.0}us", value * 1e6),
        Unit::Count if value < 10.0 && value.fract() != 0.0 => format!("{value:.1}"),
        Unit::Count => scaled(value),
        Unit::Bytes => format!("{}B", scaled(value)),
    }
}

fn scaled(value: f64) -> String {
    // 99,999 still fits; above, three digits tell enough.
    let (divisor, suffix) = match value {
        value if value < 99_999.5 => return format!("{value:.0}"),
        value if value < 999.95e3 => (1e3, "k"),
        value if value < 999.95e6 => (1e6, "M"),
        _ => (1e9, "G"),
    };
    format!("{:.1}{suffix}", value / divisor)
}

/// What a row is about; what is below an owner stands below it, set in, and so do a site's parts.
pub(super) fn name(subject: &Subject, depth: usize) -> String {
    let name = match subject {
        Subject { owner: Some(owner), .. } => format!("[{owner}]"),
        Subject { stage: Some(stage), .. } => format!("  {stage}"),
        Subject { worker: Some(worker), .. } => format!("  worker {worker}"),
        Subject { site: Some(site), .. } => site.clone(),
        Subject { site: None, .. } => "all".to_owned(),
    };
    let name = format!("{:width$}{name}", "", width = 2 * depth);
    // What a configuration calls a site may hold what a terminal takes for an order.
    name.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

/// The numbers of a row, in the columns that are shown.
pub(super) fn cells(row: &Row, shown: &[usize]) -> Vec<String> {
    shown.iter().map(|&at| number(row.values[at], COLUMNS[at].unit)).collect()
}

/// Columns that the server has numbers for and that fit beside a name of some length.
pub(super) fn shown(table: &Table, width: usize) -> Vec<usize> {
    let count = width.saturating_sub(NAME_WIDTH_MIN) / NUMBER_WIDTH;
    (0..COLUMNS.len()).filter(|&at| table.is_shown[at]).take(count).collect()
}

/// The whole table as plain lines.
pub(super) fn plain(table: &Table, grouping: Grouping, sorting: Sorting) -> String {
    let shown = shown(table, usize::MAX);
    let headings = shown.iter().map(|&at| COLUMNS[at].heading.to_owned()).collect();
    let mut text = line("SITE", headings);
    for row in table.total().into_iter().chain(table.rows(grouping, sorting)) {
        text += &line(&name(&row.subject, table.depth(&row.subject)), cells(row, &shown));
    }
    text
}

fn line(name: &str, cells: Vec<String>) -> String {
    let cells: String = cells.into_iter().map(|cell| format!("{cell:>NUMBER_WIDTH$}")).collect();
    format!("{name:NAME_WIDTH$}{cells}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_say_their_unit() {
        let cases = [
            (0.0, Unit::Count, "0"),
            (0.25, Unit::Count, "0.2"),
            (12.6, Unit::Count, "13"),
            (99_999.0, Unit::Count, "99999"),
            (123_456.0, Unit::Count, "123.5k"),
            (2.5e9, Unit::Bytes, "2.5GB"),
            (999e6, Unit::Bytes, "999.0MB"),
            (0.000_05, Unit::Time, "50us"),
            (0.012, Unit::Time, "12.0ms"),
            (3.0, Unit::Time, "3.00s"),
            (0.333, Unit::Part, "33.3%"),
        ];
        for (value, unit, text) in cases {
            assert_eq!(number(Some(value), unit), text);
            assert!(text.len() < NUMBER_WIDTH);
        }
        assert_eq!(number(None, Unit::Part), "-");
    }

    #[test]
    fn a_name_gives_the_terminal_no_orders() {
        let subject = Subject { site: Some("a\u{1b}[2Jb".to_owned()), ..Subject::default() };
        assert_eq!(name(&subject, 0), "a?[2Jb");
        let stage = Subject { stage: Some("serve".to_owned()), ..subject.clone() };
        assert_eq!(name(&stage, 0), "  serve");
        assert_eq!(name(&Subject { worker: Some("1".to_owned()), ..subject }, 1), "    worker 1");
        assert_eq!(name(&Subject { owner: Some("o\n".to_owned()), ..Subject::default() }, 2), "    [o?]");
    }
}
