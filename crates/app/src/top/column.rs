//! What is shown of a site, a stage, a worker: each column is a metric, and how a number is made of it. Nothing else here knows metrics' names.

use std::collections::BTreeMap;

use super::page::{Page, Sample};

/// What a row, or a sum, is about; none means all of them together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// An owner's name: of all that is below it.
    pub owner: Option<String>,
    /// A site's name.
    pub site: Option<String>,
    /// A stage's name.
    pub stage: Option<String>,
    /// A worker's number.
    pub worker: Option<String>,
}

/// Which of a subject's parts are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) owner: bool,
    pub(super) site: bool,
    pub(super) stage: bool,
    pub(super) worker: bool,
}

impl Level {
    /// The subject that a sample counts for; none if the sample doesn't tell apart what this level does.
    fn subject(self, sample: &Sample) -> Option<Subject> {
        let part = |is_apart: bool, label: &str| match is_apart {
            true => sample.label(label).map(|value| Some(value.to_owned())),
            false => Some(None),
        };
        // An owner's numbers are those of its sites once more.
        (self.owner == sample.label("owner").is_some()).then_some(())?;
        Some(Subject {
            owner: part(self.owner, "owner")?,
            site: part(self.site, "site")?,
            stage: part(self.stage, "stage")?,
            worker: part(self.worker, "worker")?,
        })
    }
}

/// How a number is made of a metric's samples, before and after an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Measure {
    /// What it is now, added up.
    Sum,
    /// What it is now, averaged over workers and stages.
    Average,
    /// Its growth in a second.
    Rate,
    /// Its growth in a second, where that is the most of those that aren't told apart.
    Highest,
    /// Its growth as a part of the growth of all sites, stages and workers together.
    PartOfAll,
    /// Its growth for each of another metric's.
    Each(&'static str),
    /// A quantile of a histogram's growth.
    Quantile(f64),
}

/// A metric and what is made of it.
type Source = (&'static str, Measure);

/// How a number is written for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// 1 is 100 %.
    Part,
    /// Seconds.
    Time,
    /// A number, or a number in a second.
    Count,
    /// Bytes, or bytes in a second.
    Bytes,
}

/// One column.
#[derive(Debug)]
pub(super) struct Column {
    /// As `--sort` and the JSON output call it.
    pub name: &'static str,
    /// Above the column.
    pub heading: &'static str,
    /// How its numbers are written.
    pub unit: Unit,
    /// The first that tells apart what is asked for counts.
    sources: &'static [Source],
}

/// Every column, the more important first: a narrow terminal shows fewer. One whose metric isn't on the page isn't shown.
pub(super) const COLUMNS: [Column; 14] = [
    column(
        "share_given",
        "GIVEN",
        Unit::Part,
        &[("leat_share_given_ratio", Measure::Average), ("leat_stage_share_given_ratio", Measure::Average)],
    ),
    column(
        "share_used",
        "USED",
        Unit::Part,
        &[(PROCESSOR_SECONDS, Measure::PartOfAll), ("leat_share_used_ratio", Measure::Average)],
    ),
    column(
        "event_delay_mean_s",
        "DELAY",
        Unit::Time,
        &[("leat_event_wait_seconds_total", Measure::Each("leat_events_total"))],
    ),
    column("queue_delay_p99_s", "DELAY99", Unit::Time, &[("leat_queue_delay_seconds", Measure::Quantile(0.99))]),
    column("requests_per_s", "REQ/S", Unit::Count, &[("leat_requests_total", Measure::Rate)]),
    column("refused_per_s", "REFUSED", Unit::Count, &[("leat_refused_total", Measure::Rate)]),
    column("in_flight", "FLIGHT", Unit::Count, &[("leat_requests_started", Measure::Sum)]),
    column("bytes_per_s", "BYTES/S", Unit::Bytes, &[("leat_body_bytes_total", Measure::Rate)]),
    column("waiting", "WAITING", Unit::Count, &[("leat_requests_waiting", Measure::Sum)]),
    column("cores_used", "CPU", Unit::Part, &[(PROCESSOR_SECONDS, Measure::Rate)]),
    column(
        "quota_used",
        "QUOTA",
        Unit::Part,
        &[
            ("leat_owner_quota_used_seconds_total", Measure::Highest),
            ("leat_quota_used_seconds_total", Measure::Highest),
        ],
    ),
    column("quota_wait", "HELD", Unit::Part, &[("leat_quota_wait_seconds_total", Measure::Rate)]),
    column("memory_held_bytes", "MEMORY", Unit::Bytes, &[("leat_memory_held_bytes", Measure::Sum)]),
    column("request_time_p99_s", "TIME99", Unit::Time, &[("leat_request_seconds", Measure::Quantile(0.99))]),
];

const PROCESSOR_SECONDS: &str = "leat_processor_seconds_total";

const fn column(name: &'static str, heading: &'static str, unit: Unit, sources: &'static [Source]) -> Column {
    Column { name, heading, unit, sources }
}

impl Column {
    /// Whether the page has what it shows.
    #[must_use]
    pub(super) fn is_on(&self, page: &Page) -> bool {
        let is_there = |metric: &str| {
            let bucket = format!("{metric}_bucket");
            page.samples(metric).chain(page.samples(&bucket)).next().is_some()
        };
        self.sources.iter().any(|(metric, _)| is_there(metric))
    }

    /// Its number for every subject that a metric tells of; none for a part or a quantile of nothing.
    #[must_use]
    pub(super) fn values(&self, level: Level, before: &Page, after: &Page, interval_s: f64) -> Values {
        let interval = Interval { level, before, after, interval_s };
        let values = self.sources.iter().map(|&(metric, measure)| interval.values(metric, measure));
        values.into_iter().find(|values| !values.is_empty()).unwrap_or_default()
    }
}

type Values = BTreeMap<Subject, Option<f64>>;

/// Two pages, and which subjects are told apart.
struct Interval<'a> {
    level: Level,
    before: &'a Page,
    after: &'a Page,
    interval_s: f64,
}

impl Interval<'_> {
    fn values(&self, metric: &str, measure: Measure) -> Values {
        match measure {
            Measure::Sum => self.now(metric).map(|(at, sum, _)| (at, Some(sum))).collect(),
            Measure::Average => {
                // All sites together have no share.
                let is_of_one = self.level != Level::default();
                self.now(metric).map(|(at, sum, count)| (at, is_of_one.then_some(sum / count))).collect()
            }
            Measure::Rate => self.growth(metric).map(|(at, growth)| (at, Some(growth / self.interval_s))).collect(),
            Measure::Highest => {
                let mut values = Values::new();
                for sample in self.after.samples(metric) {
                    let labels: Vec<_> = sample.labels.iter().map(|(name, value)| (&**name, &**value)).collect();
                    let growth = (sample.value - self.before.sum(metric, &labels).unwrap_or_default()).max(0.0);
                    if let Some(subject) = self.level.subject(sample) {
                        let highest = values.entry(subject).or_default();
                        *highest = Some(highest.unwrap_or_default().max(growth / self.interval_s));
                    }
                }
                values
            }
            Measure::PartOfAll => {
                let all: f64 =
                    Interval { level: Level::default(), ..*self }.growth(metric).map(|(_, growth)| growth).sum();
                self.growth(metric).map(|(at, growth)| (at, (all > 0.0).then_some(growth / all))).collect()
            }
            Measure::Each(other) => {
                let others: BTreeMap<Subject, f64> = self.growth(other).collect();
                let each = |(at, growth): (Subject, f64)| {
                    let other = others.get(&at).copied().filter(|&other| other > 0.0);
                    (at, other.map(|other| growth / other))
                };
                self.growth(metric).map(each).collect()
            }
            Measure::Quantile(quantile) => {
                let before = buckets(self.before, metric, self.level);
                let nothing = Buckets::new();
                let of = |(at, after): (Subject, Buckets)| {
                    let value = find_quantile(quantile, before.get(&at).unwrap_or(&nothing), &after);
                    (at, value)
                };
                buckets(self.after, metric, self.level).into_iter().map(of).collect()
            }
        }
    }

    /// For each subject, the sum of what its samples are now, and how many they are.
    fn now(&self, metric: &str) -> impl Iterator<Item = (Subject, f64, f64)> {
        sums(self.after, metric, self.level).into_iter().map(|(subject, (sum, count))| (subject, sum, count))
    }

    /// For each subject, how much more its samples are than before.
    fn growth(&self, metric: &str) -> impl Iterator<Item = (Subject, f64)> {
        let before = sums(self.before, metric, self.level);
        self.now(metric).map(move |(subject, sum, _)| {
            // Less than before: another process has begun to count anew.
            let growth = (sum - before.get(&subject).map_or(0.0, |before| before.0)).max(0.0);
            (subject, growth)
        })
    }
}

/// For each subject, the sum of a metric's samples and how many they are.
fn sums(page: &Page, metric: &str, level: Level) -> BTreeMap<Subject, (f64, f64)> {
    let mut sums: BTreeMap<Subject, (f64, f64)> = BTreeMap::new();
    for sample in page.samples_for(level.owner, metric) {
        if let Some(subject) = level.subject(sample) {
            let (sum, count) = sums.entry(subject).or_default();
            *sum += sample.value;
            *count += 1.0;
        }
    }
    sums
}

/// Requests at or below a bound, by the bound's bits: positive floating-point numbers are in the order of their bits.
type Buckets = BTreeMap<u64, f64>;

fn buckets(page: &Page, metric: &str, level: Level) -> BTreeMap<Subject, Buckets> {
    let mut all: BTreeMap<Subject, Buckets> = BTreeMap::new();
    for sample in page.samples_for(level.owner, &format!("{metric}_bucket")) {
        let bound = sample.label("le").and_then(|bound| bound.parse::<f64>().ok());
        if let Some((subject, bound)) = level.subject(sample).zip(bound) {
            *all.entry(subject).or_default().entry(bound.to_bits()).or_default() += sample.value;
        }
    }
    all
}

/// As Prometheus estimates it: evenly spread within the bucket; the last bound for what lies above it.
fn find_quantile(quantile: f64, before: &Buckets, after: &Buckets) -> Option<f64> {
    let growth = |bits: &u64, count: f64| (count - before.get(bits).copied().unwrap_or(0.0)).max(0.0);
    let all = after.iter().next_back().map(|(bits, &count)| growth(bits, count)).filter(|&all| all > 0.0)?;
    let wanted = all * quantile;
    let (mut lower, mut below) = (0.0, 0.0);
    for (bits, &count) in after {
        let (bound, up_to) = (f64::from_bits(*bits), growth(bits, count));
        if up_to >= wanted && up_to > below {
            let share = (wanted - below) / (up_to - below);
            return Some(if bound.is_finite() { lower + (bound - lower) * share } else { lower });
        }
        (lower, below) = (if bound.is_finite() { bound } else { lower }, up_to);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "leat_requests_total{site=\"a\",status=\"2xx\",worker=\"0\"} 10\n\
        leat_requests_total{site=\"a\",status=\"4xx\",worker=\"0\"} 5\n";
    const AFTER: &str = "leat_requests_total{site=\"a\",status=\"2xx\",worker=\"0\"} 20\n\
        leat_requests_total{site=\"a\",status=\"4xx\",worker=\"0\"} 7\n\
        leat_requests_total{site=\"b\",status=\"2xx\",worker=\"0\"} 4\n";
    const SITES: Level = Level { owner: false, site: true, stage: false, worker: false };

    fn page(text: &str) -> Page {
        Page::parse(text).expect("the format")
    }

    fn values(column: &Column, level: Level, before: &str, after: &str) -> Vec<(String, Option<f64>)> {
        let values = column.values(level, &page(before), &page(after), 2.0).into_iter();
        values.map(|(subject, value)| (subject.site.unwrap_or_default(), value)).collect()
    }

    #[test]
    fn rates_are_of_the_interval_and_a_restart_counts_from_zero() {
        let column = column("", "", Unit::Count, &[("leat_requests_total", Measure::Rate)]);
        assert_eq!(values(&column, SITES, BEFORE, AFTER), [("a".into(), Some(6.0)), ("b".into(), Some(2.0))]);
        assert_eq!(values(&column, Level::default(), BEFORE, AFTER), [(String::new(), Some(8.0))]);
        assert_eq!(values(&column, SITES, AFTER, BEFORE), [("a".into(), Some(0.0))]);
        let by_stage = Level { stage: true, ..SITES };
        assert_eq!(
            values(&column, by_stage, BEFORE, AFTER),
            [],
            "a metric that doesn't know stages says nothing of them"
        );
        assert!(column.is_on(&page(AFTER)) && !column.is_on(&page("leat_other 1\n")));
    }

    #[test]
    fn of_several_quotas_the_one_that_is_used_most_is_shown() {
        let column = column("", "", Unit::Part, &[("q", Measure::Highest)]);
        let page =
            |a: f64, b: f64| format!("q{{site=\"a\",resource=\"cpu\"}} {a}\nq{{site=\"a\",resource=\"disk\"}} {b}\n");
        let of = |before: &str, after: &str| values(&column, SITES, before, after)[0].1;
        assert_eq!(of(&page(1.0, 5.0), &page(3.0, 6.0)), Some(1.0));
        assert_eq!(of("", &page(0.5, 1.0)), Some(0.5), "it has just begun");
    }

    #[test]
    fn parts_add_up_to_one_and_parts_of_nothing_are_unknown() {
        let column = column("", "", Unit::Part, &[("leat_requests_total", Measure::PartOfAll)]);
        assert_eq!(values(&column, SITES, BEFORE, AFTER), [("a".into(), Some(0.75)), ("b".into(), Some(0.25))]);
        assert_eq!(values(&column, SITES, BEFORE, BEFORE), [("a".into(), None)]);
    }

    #[test]
    fn a_quantile_is_of_what_came_between() {
        let page = |counts: [u32; 3]| {
            let [low, high, all] = counts;
            format!(
                "t_bucket{{site=\"a\",le=\"0.1\"}} {low}\nt_bucket{{site=\"a\",le=\"0.2\"}} {high}\nt_bucket{{site=\"a\",le=\"+Inf\"}} {all}\n"
            )
        };
        let median = column("", "", Unit::Time, &[("t", Measure::Quantile(0.5))]);
        let of = |before, after| values(&median, SITES, &page(before), &page(after))[0].1;
        assert_eq!(of([0, 0, 0], [10, 10, 10]), Some(0.05));
        assert_eq!(of([100, 100, 100], [100, 110, 110]), Some(0.15000000000000002));
        assert_eq!(of([0, 0, 0], [0, 0, 10]), Some(0.2), "above the last bound, that bound");
        assert_eq!(of([5, 5, 5], [5, 5, 5]), None);
        assert!(median.is_on(&super::Page::parse(&page([0, 0, 0])).expect("the format")));
    }

    #[test]
    fn the_first_source_that_tells_apart_what_is_asked_for_counts() {
        const SOURCES: &[Source] = &[("leat_requests_total", Measure::Rate), ("g", Measure::Average)];
        let after = format!("{AFTER}g{{site=\"a\",stage=\"s\"}} 0.25\ng{{site=\"a\",stage=\"s\"}} 0.75\n");
        let column = column("", "", Unit::Part, SOURCES);
        assert_eq!(values(&column, SITES, BEFORE, &after)[0], ("a".into(), Some(6.0)));
        assert_eq!(values(&column, Level { stage: true, ..SITES }, BEFORE, &after), [("a".into(), Some(0.5))]);
    }

    #[test]
    fn a_mean_is_of_what_came_between() {
        let page = |waited: f64, events: u32| format!("w{{site=\"a\"}} {waited}\ne{{site=\"a\"}} {events}\n");
        let mean = column("", "", Unit::Time, &[("w", Measure::Each("e"))]);
        let of = |before: &str, after: &str| values(&mean, SITES, before, after)[0].1;
        assert_eq!(of(&page(1.0, 10), &page(2.0, 14)), Some(0.25));
        assert_eq!(of(&page(1.0, 10), &page(1.0, 10)), None);
    }
}
