//! Rows and their order: what two readings of the metrics say of each owner, site, stage and worker. How it looks is `view`'s.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::column::{COLUMNS, Column, Level, Subject};
use super::fetch::Reading;

/// One line: a subject and its number in each of [`COLUMNS`], where it has one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Who.
    pub subject: Subject,
    /// In the order of [`COLUMNS`].
    pub values: [Option<f64>; COLUMNS.len()],
}

/// What stands below each site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grouping {
    /// A row for each stage.
    pub stages: bool,
    /// A row for each worker.
    pub workers: bool,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    /// An index of [`COLUMNS`]; none for the site's name.
    pub column: Option<usize>,
    /// Largest number, or last name, first.
    pub is_descending: bool,
}

/// All that two readings say.
#[derive(Clone, Debug)]
pub struct Table {
    /// Between the readings.
    pub(super) interval_s: f64,
    /// Which of [`COLUMNS`] the server has numbers for.
    pub(super) is_shown: [bool; COLUMNS.len()],
    rows: Vec<Row>,
    /// The owners above each owner and site that has any, the highest first.
    above: BTreeMap<Subject, Vec<String>>,
}

impl Table {
    /// Compares two readings, the older first.
    #[must_use]
    pub fn new(before: &Reading, after: &Reading) -> Table {
        // Two readings at one moment say nothing of rates; a division by zero would say something wrong.
        let interval_s = after.at.saturating_duration_since(before.at).as_secs_f64().max(1e-6);
        let mut rows: BTreeMap<Subject, Row> = BTreeMap::new();
        let blank = |subject: &Subject| Row { subject: subject.clone(), values: [None; COLUMNS.len()] };
        for level in levels() {
            for (at, column) in COLUMNS.iter().enumerate() {
                for (subject, value) in column.values(level, &before.page, &after.page, interval_s) {
                    rows.entry(subject).or_insert_with_key(blank).values[at] = value;
                }
            }
        }
        let is_shown = std::array::from_fn(|at| COLUMNS[at].is_on(&after.page));
        let owned = |subject: &Subject| {
            let above = match (&subject.owner, &subject.site) {
                (Some(owner), _) => after.page.owners_of_owner(owner),
                (None, Some(site)) => after.page.owners(site),
                (None, None) => Vec::new(),
            };
            let above: Vec<String> = above.into_iter().rev().map(str::to_owned).collect();
            (!above.is_empty()).then(|| (subject.clone(), above))
        };
        let above = rows.keys().filter(|subject| is_member(subject)).filter_map(owned).collect();
        Table { interval_s, is_shown, rows: rows.into_values().collect(), above }
    }

    /// How many owners are above a subject.
    #[must_use]
    pub(super) fn depth(&self, subject: &Subject) -> usize {
        let of = Subject { stage: None, worker: None, ..subject.clone() };
        self.above.get(&of).map_or(0, Vec::len)
    }

    /// A subject's number in the column of this name, where the server has it.
    #[must_use]
    pub fn value(&self, subject: &Subject, column: &str) -> Option<f64> {
        let at = COLUMNS.iter().position(|known| known.name == column)?;
        self.rows.iter().find(|row| row.subject == *subject)?.values[at]
    }

    /// The row of all sites together.
    #[must_use]
    pub(super) fn total(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.subject == Subject::default())
    }

    /// Owners and sites in order, each owner followed by those below it, each site by its parts.
    #[must_use]
    pub(super) fn rows(&self, grouping: Grouping, sorting: Sorting) -> Vec<&Row> {
        let mut rows = Vec::new();
        self.add_below(&[], grouping, sorting, &mut rows);
        rows
    }

    /// Adds what is right below the last of some owners, or below none.
    fn add_below<'a>(&'a self, owners: &[String], grouping: Grouping, sorting: Sorting, rows: &mut Vec<&'a Row>) {
        let is_here = |row: &&Row| {
            is_member(&row.subject) && self.above.get(&row.subject).map_or(&[][..], Vec::as_slice) == owners
        };
        let mut members: Vec<&Row> = self.rows.iter().filter(is_here).collect();
        members.sort_by(|left, right| sorting.compare(left, right));
        for member in members {
            rows.push(member);
            if let Some(owner) = &member.subject.owner {
                let owners = [owners, std::slice::from_ref(owner)].concat();
                self.add_below(&owners, grouping, sorting, rows);
                continue;
            }
            // In the order of names: stages and workers that changed places each second couldn't be read.
            rows.extend(self.rows.iter().filter(|row| {
                let Subject { owner: _, site, stage, worker } = &row.subject;
                let is_wanted = (stage.is_some() && grouping.stages) || (worker.is_some() && grouping.workers);
                *site == member.subject.site && is_wanted
            }));
        }
    }

    /// Every row at every level, as one JSON object. Numbers that nobody knows are null; columns that the server doesn't have are left out.
    #[must_use]
    pub(super) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let Subject { owner, site, stage, worker } = &row.subject;
            let mut object = Map::new();
            for (name, part) in [("owner", owner), ("site", site), ("stage", stage), ("worker", worker)] {
                object.insert(name.to_owned(), json!(part));
            }
            for (at, column) in COLUMNS.iter().enumerate().filter(|(at, _)| self.is_shown[*at]) {
                object.insert(column.name.to_owned(), json!(row.values[at]));
            }
            Value::Object(object)
        });
        json!({ "interval_s": self.interval_s, "rows": rows.collect::<Vec<_>>() })
    }
}

impl Sorting {
    /// By name.
    pub const BY_NAME: Sorting = Sorting { column: None, is_descending: false };

    /// By the column of this name.
    #[must_use]
    pub fn by(name: &str) -> Option<Sorting> {
        match COLUMNS.iter().position(|column| column.name == name) {
            Some(at) => Some(Sorting { column: Some(at), is_descending: true }),
            None => (name == "site").then_some(Sorting::BY_NAME),
        }
    }

    /// Ties, and numbers that nobody knows, by name.
    fn compare(self, left: &Row, right: &Row) -> Ordering {
        let value = |row: &Row| self.column.and_then(|at| row.values[at]).unwrap_or(f64::NEG_INFINITY);
        let by_name = left.subject.cmp(&right.subject);
        let by_value = match self.column {
            Some(_) => value(left).total_cmp(&value(right)),
            None => by_name,
        };
        if self.is_descending { by_value.reverse() } else { by_value }.then(by_name)
    }

    /// By the column to the right, or to the left, among those that are shown; the name stands before the first.
    #[must_use]
    pub fn beside(self, shown: &[usize], by: isize) -> Sorting {
        let places = shown.len() + 1;
        let place = self.column.and_then(|at| shown.iter().position(|&shown| shown == at)).map_or(0, |at| at + 1);
        let place = (place as isize + by).rem_euclid(places as isize) as usize;
        let column = place.checked_sub(1).map(|at| shown[at]);
        Sorting { column, is_descending: column.is_some() }
    }
}

/// Whether it's an owner or a site, and no part of one.
fn is_member(subject: &Subject) -> bool {
    (subject.owner.is_some() || subject.site.is_some()) && subject.stage.is_none() && subject.worker.is_none()
}

/// All together, owners, sites, and each site's stages and workers.
fn levels() -> [Level; 5] {
    let site = Level { site: true, ..Level::default() };
    let owner = Level { owner: true, ..Level::default() };
    [Level::default(), owner, site, Level { stage: true, ..site }, Level { worker: true, ..site }]
}

/// The names that `--sort` takes.
#[must_use]
pub fn sort_names() -> Vec<&'static str> {
    let names = COLUMNS.iter().map(|column: &Column| column.name);
    std::iter::once("site").chain(names).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::Page;
    use std::time::{Duration, Instant};

    fn table() -> Table {
        let start = Instant::now();
        let reading = |second: u64| {
            let mut text = String::new();
            for (site, each) in [("a", 1), ("b", 3)] {
                for stage in ["receive", "serve"] {
                    for worker in 0..2 {
                        let seconds = second * each;
                        text += &format!(
                            "leat_processor_seconds_total{{site=\"{site}\",stage=\"{stage}\",worker=\"{worker}\"}} {seconds}\n"
                        );
                    }
                }
                text += &format!("leat_requests_total{{site=\"{site}\",status=\"2xx\"}} {second}\n");
            }
            Reading { at: start + Duration::from_secs(second), page: Page::parse(&text).expect("the format") }
        };
        Table::new(&reading(1), &reading(3))
    }

    fn names(rows: &[&Row]) -> Vec<String> {
        let part = |part: &Option<String>| part.clone().unwrap_or("-".to_owned());
        rows.iter().map(|Row { subject: s, .. }| [&s.site, &s.stage, &s.worker].map(part).concat()).collect()
    }

    #[test]
    fn what_is_below_a_site_is_what_was_asked_for() {
        let table = table();
        let names = |stages, workers| names(&table.rows(Grouping { stages, workers }, Sorting::BY_NAME));
        assert_eq!(names(false, false), ["a--", "b--"]);
        assert_eq!(names(true, false), ["a--", "areceive-", "aserve-", "b--", "breceive-", "bserve-"]);
        assert_eq!(names(false, true), ["a--", "a-0", "a-1", "b--", "b-0", "b-1"]);
        assert_eq!(names(true, true)[..5], ["a--", "a-0", "a-1", "areceive-", "aserve-"]);
        let by_use = Sorting::by("share_used").expect("a column");
        assert_eq!(super::tests::names(&table.rows(Grouping::default(), by_use)), ["b--", "a--"]);
    }

    /// Three owners, one below another, with a site that belongs to nobody.
    #[test]
    fn owners_stand_above_what_belongs_to_them_with_all_of_it_together() {
        let start = Instant::now();
        let reading = |second: u64| {
            let mut text = String::new();
            for (owner, parent) in [("press", ""), ("daily", "press"), ("shop", "")] {
                text += &format!("leat_owner_info{{owner=\"{owner}\",parent=\"{parent}\"}} 1\n");
            }
            text +=
                &format!("leat_owner_quota_used_seconds_total{{owner=\"press\",resource=\"cpu\"}} {}\n", second / 2);
            let sites = [("free", "", 1), ("a", "press", 2), ("b", "daily", 3), ("c", "daily", 1), ("d", "shop", 3)];
            for (site, owner, part) in sites {
                if !owner.is_empty() {
                    text += &format!("leat_site_info{{site=\"{site}\",owner=\"{owner}\"}} 1\n");
                }
                for worker in 0..2 {
                    text += &format!("leat_share_given_ratio{{site=\"{site}\",worker=\"{worker}\"}} 0.{part}\n");
                }
                text += &format!("leat_quota_used_seconds_total{{site=\"{site}\",resource=\"cpu\"}} {second}\n");
                let used = part * second;
                text += &format!("leat_processor_seconds_total{{site=\"{site}\",stage=\"serve\"}} {used}\n");
            }
            Reading { at: start + Duration::from_secs(second), page: Page::parse(&text).expect("the format") }
        };
        let table = Table::new(&reading(2), &reading(4));
        let shown = |row: &&Row| crate::top::text::name(&row.subject, table.depth(&row.subject));
        let rows = table.rows(Grouping::default(), Sorting::BY_NAME);
        let names: Vec<String> = rows.iter().map(shown).collect();
        assert_eq!(names, ["free", "[press]", "  a", "  [daily]", "    b", "    c", "[shop]", "  d"]);
        let by_use =
            table.rows(Grouping { stages: true, workers: false }, Sorting::by("share_used").expect("a column"));
        assert_eq!(by_use.iter().map(shown).collect::<Vec<_>>()[..4], ["[press]", "  [daily]", "    b", "      serve"]);
        let owner =
            |name: &str, column| table.value(&Subject { owner: Some(name.into()), ..Subject::default() }, column);
        for (name, part) in [("press", 0.6), ("daily", 0.4), ("shop", 0.3)] {
            assert!((owner(name, "share_used").unwrap() - part).abs() < 1e-9, "{name}");
            assert!((owner(name, "share_given").unwrap() - part).abs() < 1e-9, "{name}");
        }
        assert_eq!((owner("press", "quota_used"), owner("shop", "quota_used")), (Some(0.5), None));
    }

    #[test]
    fn the_json_has_every_level_and_no_column_that_the_server_lacks() {
        let table = table();
        let json = table.json();
        let rows = json["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 1 + 2 + 4 + 4);
        let find = |site: &str, stage: Value| {
            let found = rows.iter().find(|row| row["site"] == site && row["stage"] == stage && row["worker"].is_null());
            found.unwrap_or_else(|| panic!("{site} {stage}"))
        };
        assert_eq!(find("b", Value::Null)["share_used"], json!(0.75));
        assert_eq!(find("b", json!("serve"))["share_used"], json!(0.375));
        assert_eq!(find("a", json!("serve"))["requests_per_s"], Value::Null, "not counted by stage");
        assert_eq!(find("a", Value::Null)["requests_per_s"], json!(1.0));
        assert!(!rows[0].as_object().expect("an object").contains_key("in_flight"));
        assert_eq!(json["interval_s"], json!(2.0));
    }
}
