//! Reads a metrics page in Prometheus's text format: names, labels, values. What they mean is for others.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::config::OWNER_LEVELS_MAX;

/// A line that isn't in the format.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line} of the metrics page isn't in Prometheus's text format: {text:?}")]
pub struct PageError {
    line: usize,
    text: String,
}

/// One number of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// With `_bucket`, `_sum` or `_count`, where it's a histogram's.
    pub name: String,
    /// In the order of the page.
    pub labels: Vec<(String, String)>,
    /// In the unit that the name ends in.
    pub value: f64,
}

impl Sample {
    /// A label's value.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Whether it has all of these labels with these values.
    #[must_use]
    pub fn has(&self, wanted: &[(&str, &str)]) -> bool {
        wanted.iter().all(|(name, value)| self.label(name) == Some(value))
    }
}

/// All numbers of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    samples: Vec<Sample>,
    /// Of owners.
    sums: Vec<Sample>,
    owner_of_site: BTreeMap<String, String>,
    owner_of_owner: BTreeMap<String, String>,
}

impl Page {
    /// Reads the text exposition format, version 0.0.4, but for timestamps, which leat doesn't write.
    ///
    /// # Errors
    /// The first line that isn't in it.
    pub fn parse(text: &str) -> Result<Page, PageError> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let samples = lines.map(|(number, line)| {
            sample(line).ok_or_else(|| PageError { line: number + 1, text: line.chars().take(200).collect() })
        });
        let mut page = Page { samples: samples.collect::<Result<_, _>>()?, ..Page::default() };
        page.add_owners();
        Ok(page)
    }

    /// Adds up what the sites below each owner have. A site's use of quotas isn't its owner's.
    fn add_owners(&mut self) {
        let pairs = |name, label, owner| {
            let pair = move |sample: &Sample| Some((sample.label(label)?.to_owned(), sample.label(owner)?.to_owned()));
            self.samples(name).filter_map(pair).collect::<BTreeMap<String, String>>()
        };
        let of_owners = pairs("leat_owner_info", "owner", "parent");
        self.owner_of_site = pairs("leat_site_info", "site", "owner");
        self.owner_of_owner = of_owners;
        let mut sums: BTreeMap<(String, Vec<(String, String)>), f64> = BTreeMap::new();
        let is_added = |sample: &&Sample| sample.label("owner").is_none() && sample.label("resource").is_none();
        for sample in self.samples.iter().filter(is_added) {
            let Some(site) = sample.label("site") else { continue };
            let others = sample.labels.iter().filter(|(name, _)| name != "site");
            for owner in self.owners(site) {
                let label = ("owner".to_owned(), owner.to_owned());
                let labels = std::iter::once(label).chain(others.clone().cloned()).collect();
                *sums.entry((sample.name.clone(), labels)).or_default() += sample.value;
            }
        }
        self.sums = sums.into_iter().map(|((name, labels), value)| Sample { name, labels, value }).collect();
    }

    /// The owner of a site, the owner's owner and so on.
    pub(super) fn owners(&self, site: &str) -> Vec<&str> {
        self.and_above(self.owner_of_site.get(site))
    }

    /// The owner of an owner, that one's owner and so on.
    pub(super) fn owners_of_owner(&self, owner: &str) -> Vec<&str> {
        self.and_above(self.owner_of_owner.get(owner))
    }

    fn and_above<'a>(&'a self, first: Option<&'a String>) -> Vec<&'a str> {
        let above = std::iter::successors(first, |owner| self.owner_of_owner.get(*owner));
        above.map(String::as_str).take_while(|name| !name.is_empty()).take(OWNER_LEVELS_MAX).collect()
    }

    /// The samples of a name, and, for owners, what their sites have together: with a label `owner` in the place of `site`.
    pub(super) fn samples_for<'a>(&'a self, owners: bool, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples(name).chain(self.sums.iter().filter(move |sample| owners && sample.name == name))
    }

    /// The samples of a name.
    pub fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.name == name)
    }

    /// The sum of a name's samples that have these labels; none when there are none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.samples(name)
            .filter(|sample| sample.has(labels))
            .map(|sample| sample.value)
            .reduce(|sum, value| sum + value)
    }

    /// The values that a label has anywhere on the page, in order of appearance.
    #[must_use]
    pub fn values(&self, label: &str) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::new();
        for value in self.samples.iter().filter_map(|sample| sample.label(label)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }
}

fn sample(line: &str) -> Option<Sample> {
    let name_end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label.to_owned(), value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.trim().parse().ok()?;
    (!name.is_empty()).then(|| Sample { name: name.to_owned(), labels, value })
}

/// A label's value up to its closing quote, and what follows that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{ServerMetrics, WorkerMetrics};
    use std::sync::Arc;

    #[test]
    fn leats_own_page_is_read_whole() {
        let server = ServerMetrics::default();
        let metrics = Arc::new(WorkerMetrics::new(0));
        metrics.site("a \"b\"\\,}\n").body_bytes.add(7);
        metrics.accepted.add(3);
        server.add_worker(metrics);
        let page = Page::parse(&server.render()).expect("leat writes the format");
        assert_eq!(page.sum("leat_accepted_total", &[]), Some(3.0));
        assert_eq!(page.sum("leat_body_bytes_total", &[("site", "a \"b\"\\,}\n")]), Some(7.0));
        assert_eq!(page.sum("leat_body_bytes_total", &[("site", "a")]), None);
        assert_eq!(page.values("site"), ["a \"b\"\\,}\n"]);
    }

    #[test]
    fn what_is_not_the_format_is_told_by_its_line() {
        for bad in ["x", "x{", "x{a=\"b} 1", "x{a=\"\\", "x one", "{a=\"b\"} 1", "x{a} 1", "x{a=\"b\"}"] {
            let error = Page::parse(&format!("# HELP x y\n\n{bad}\n")).expect_err(bad);
            assert_eq!(error, PageError { line: 3, text: bad.to_owned() });
        }
        let page = Page::parse("x{a=\"b\",} +Inf\ny NaN\n").expect("a comma may end the labels");
        assert_eq!(page.sum("x", &[("a", "b")]), Some(f64::INFINITY));
    }
}
