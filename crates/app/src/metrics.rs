//! What leat counts, and how Prometheus reads it. Each worker counts for itself without atomic read-modify-write; a scrape adds up.

mod port;
mod upstream;
mod worker;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leat_logic::http::RejectReason;

pub use port::PortMetrics;
pub use upstream::UpstreamMetrics;

/// A number that one thread changes and any thread reads.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// Adds one. For the owner's thread only: two writers would lose counts.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`; as [`Number::increment`].
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets it.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets it to a ratio, in millionths.
    pub fn set_ratio(&self, ratio: f64) {
        self.set((ratio * 1e6) as u64);
    }

    /// Reads it.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the request time histogram, in microseconds.
pub const TIME_BOUNDS_US: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000];

/// Upper bounds of the queue delay histogram, in microseconds.
pub const DELAY_BOUNDS_US: [u64; 11] = [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 250_000, 1_000_000];

/// What is counted of a site at one worker.
#[derive(Debug, Default)]
pub struct SiteMetrics {
    /// The site's name.
    pub name: String,
    /// Requests answered, by the first digit of the status: `[0]` is 1xx.
    pub requests: [Number; 5],
    /// Content bytes that the kernel has taken.
    pub body_bytes: Number,
    /// Requests by time from the whole head to the last byte handed to the kernel; the last is those above all bounds.
    pub times: [Number; TIME_BOUNDS_US.len() + 1],
    /// The sum of those times.
    pub time_us: Number,
    /// Requests by the time that they waited for their turn, served or refused then; the last is those above all bounds.
    pub delays: [Number; DELAY_BOUNDS_US.len() + 1],
    /// The sum of those times.
    pub delay_us: Number,
    /// Requests answered with 503 because there was too much to do.
    pub refused: Number,
    /// Connections whose last request was the site's.
    pub connections: Number,
    /// Requests that wait for their turn now.
    pub waiting: Number,
    /// Requests that are being served now.
    pub started: Number,
    /// What the site was entitled to lately among those that wanted something, in millionths of the worker.
    pub share_given: Number,
    /// What it has used lately, in millionths of what all have.
    pub share_used: Number,
    /// By the stages' order: [`STAGES`].
    pub stages: [StageMetrics; STAGES.len()],
    /// Processor time of the site's handlers, in nanoseconds.
    pub compute_ns: Number,
    /// Slices that its handlers' programs got.
    pub slices: Number,
    /// Requests that are passed on.
    pub upstream: UpstreamMetrics,
    /// If it's a dispatcher's port for another protocol.
    pub port: PortMetrics,
    /// Access log lines that were dropped because the log couldn't keep up.
    pub log_lines_dropped: Number,
}

/// The stages of a request's life, by their names in metrics.
pub const STAGES: [&str; 4] = ["receive", "serve", "transmit", "compute"];

/// What is counted of a site at one stage at one worker.
#[derive(Debug, Default)]
pub struct StageMetrics {
    /// Events that were run.
    pub events: Number,
    /// Processor time charged, in nanoseconds.
    pub used_ns: Number,
    /// The sum of the times that events waited for their turn, in microseconds.
    pub waited_us: Number,
}

impl SiteMetrics {
    /// Counts a request that has waited so long for its turn.
    pub fn count_delay(&self, delay: Duration) {
        let delay_us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.delays[DELAY_BOUNDS_US.iter().take_while(|&&bound| delay_us > bound).count()].increment();
        self.delay_us.add(delay_us);
    }
}

/// What is counted at one worker.
#[derive(Debug)]
pub struct WorkerMetrics {
    /// The worker's number.
    pub worker: usize,
    /// Connections accepted.
    pub accepted: Number,
    /// Times that accepting failed.
    pub accept_failures: Number,
    /// Connections from balancers that didn't tell who the client is.
    pub headers_refused: Number,
    /// Connections open now.
    pub connections: Number,
    /// Requests refused, by reason.
    pub rejections: Vec<Number>,
    /// Flows that are elsewhere or on their way, at a dispatcher; that are here, at a node.
    pub flows: Number,
    /// Entries by which packets are steered, of all workers: the first tells.
    pub flow_entries: Number,
    /// Packets that a front has sent to nodes by its table.
    pub packets_spread: Number,
    /// Packets that a node has sent on to the one that had their connection.
    pub packets_passed_on: Number,
    /// Packets of either whose node isn't known.
    pub packets_unreached: Number,
    /// Connections given to a node, or taken by one.
    pub handoffs: Number,
    /// Connections that began at a node.
    pub births: Number,
    /// Offers that were refused or lost.
    pub handoffs_refused: Number,
    /// Connections that came back from a node.
    pub handoffs_returned: Number,
    /// Connections whose turn to change hands hasn't come.
    pub handoffs_waiting: Number,
    /// Requests on connections at nodes whose place was asked for.
    pub questions: Number,
    /// Replies that a node fetched from a peer.
    pub fetches: Number,
    /// Replies that another server had begun.
    pub replies_continued: Number,
    /// Connections that went on although their node had died.
    pub flows_recovered: Number,
    /// Connections that couldn't go on.
    pub flows_cut: Number,
    /// Connections that the next engine has taken.
    pub connections_passed: Number,
    /// Connections that the next engine didn't take, or not as they were.
    pub connections_returned: Number,
    /// Connections taken from the engine before.
    pub connections_taken: Number,
    /// Requests that a connection server had data servers answer.
    pub requests_delegated: Number,
    /// Requests that it could have delegated and answered itself.
    pub requests_kept: Number,
    /// Waits for several requests instead of the first.
    pub gathers: Number,
    /// Requests answered from the worker's cache.
    pub cache_hits: Number,
    /// Requests for which the storage was asked for a file.
    pub cache_misses: Number,
    /// Requests for which the storage was asked whether the cache is right.
    pub cache_checks: Number,
    /// Bytes in the cache.
    pub cache_bytes: Number,
    /// Replies cut because the file had changed.
    pub torn_replies: Number,
    /// Replies that didn't reach their end, for whatever reason.
    pub cut_replies: Number,
    /// Connections cut because no byte moved in time.
    pub stalled: Number,
    /// Requests that the storage couldn't answer.
    pub storage_failures: Number,
    /// How far off the cost model's predictions were lately, in millionths of what was measured.
    pub cost_model_error: Number,
    /// Programs of handlers that haven't ended.
    pub programs: Number,
    /// Programs started.
    pub program_starts: Number,
    /// Responders that ended, to be started again.
    pub program_restarts: Number,
    sites: Mutex<Vec<Arc<SiteMetrics>>>,
}

impl WorkerMetrics {
    /// All at zero.
    #[must_use]
    pub fn new(worker: usize) -> WorkerMetrics {
        WorkerMetrics {
            worker,
            accepted: Number::default(),
            accept_failures: Number::default(),
            headers_refused: Number::default(),
            connections: Number::default(),
            rejections: RejectReason::ALL.iter().map(|_| Number::default()).collect(),
            flows: Number::default(),
            flow_entries: Number::default(),
            packets_spread: Number::default(),
            packets_passed_on: Number::default(),
            packets_unreached: Number::default(),
            handoffs: Number::default(),
            births: Number::default(),
            handoffs_refused: Number::default(),
            handoffs_returned: Number::default(),
            handoffs_waiting: Number::default(),
            questions: Number::default(),
            fetches: Number::default(),
            replies_continued: Number::default(),
            flows_recovered: Number::default(),
            flows_cut: Number::default(),
            connections_passed: Number::default(),
            connections_returned: Number::default(),
            connections_taken: Number::default(),
            requests_delegated: Number::default(),
            requests_kept: Number::default(),
            gathers: Number::default(),
            cache_hits: Number::default(),
            cache_misses: Number::default(),
            cache_checks: Number::default(),
            cache_bytes: Number::default(),
            torn_replies: Number::default(),
            cut_replies: Number::default(),
            stalled: Number::default(),
            storage_failures: Number::default(),
            cost_model_error: Number::default(),
            programs: Number::default(),
            program_starts: Number::default(),
            program_restarts: Number::default(),
            sites: Mutex::default(),
        }
    }

    /// The numbers of a site, which stay over reloads.
    #[must_use]
    pub fn site(&self, name: &str) -> Arc<SiteMetrics> {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(site) = sites.iter().find(|site| site.name == name) {
            return site.clone();
        }
        let site = Arc::new(SiteMetrics { name: name.to_owned(), ..SiteMetrics::default() });
        sites.push(site.clone());
        site
    }

    fn sites(&self) -> Vec<Arc<SiteMetrics>> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What is counted of the whole engine.
#[derive(Debug, Default)]
pub struct ServerMetrics {
    workers: Mutex<Vec<Arc<WorkerMetrics>>>,
    /// Configurations put in force since the engine's start.
    pub reloads: AtomicU64,
    /// Seconds since 1970 at the engine's start.
    pub started_seconds: AtomicU64,
}

impl ServerMetrics {
    /// Counts a new worker's numbers in. Those of workers that have gone stay: a counter never goes back.
    pub fn add_worker(&self, metrics: Arc<WorkerMetrics>) {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(metrics);
    }

    /// Connections that the next engine has taken.
    #[must_use]
    pub fn connections_passed(&self) -> u64 {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.iter().map(|worker| worker.connections_passed.get()).sum()
    }

    /// The text of `/metrics`.
    #[must_use]
    pub fn render(&self) -> String {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut page = Page::default();
        page.family(&CONNECTIONS);
        for worker in &workers {
            page.line("", &[("worker", &worker.worker.to_string())], worker.connections.get());
        }
        page.family(&COST_MODEL_ERROR);
        for worker in &workers {
            let number = worker.worker.to_string();
            page.value("", &[("worker", &number)], &ratio(worker.cost_model_error.get()));
        }
        for (family, read) in worker::FAMILIES {
            page.family(family);
            page.line("", &[], workers.iter().map(|worker| read(worker).get()).sum());
        }
        page.family(&REJECTIONS);
        for (index, reason) in RejectReason::ALL.iter().enumerate() {
            let count: u64 = workers.iter().map(|worker| worker.rejections[index].get()).sum();
            if count > 0 {
                page.line("", &[("reason", reason.label())], count);
            }
        }
        self.render_sites(&mut page, &workers);
        page.family(&RELOADS);
        page.line("", &[], self.reloads.load(Ordering::Relaxed));
        page.family(&STARTED);
        page.line("", &[], self.started_seconds.load(Ordering::Relaxed));
        page.text
    }

    fn render_sites(&self, page: &mut Page, workers: &[Arc<WorkerMetrics>]) {
        let mut sites: Vec<(String, Vec<Arc<SiteMetrics>>)> = Vec::new();
        for site in workers.iter().flat_map(|worker| worker.sites()) {
            match sites.iter_mut().find(|(name, _)| *name == site.name) {
                Some((_, parts)) => parts.push(site),
                None => sites.push((site.name.clone(), vec![site])),
            }
        }
        let sum = |parts: &[Arc<SiteMetrics>], read: &dyn Fn(&SiteMetrics) -> u64| -> u64 {
            parts.iter().map(|part| read(part)).sum()
        };
        page.family(&REQUESTS);
        for (name, parts) in &sites {
            for (class, label) in ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().enumerate() {
                let count = sum(parts, &|part| part.requests[class].get());
                if count > 0 {
                    page.line("", &[("site", name), ("status", label)], count);
                }
            }
        }
        page.family(&BODY_BYTES);
        for (name, parts) in &sites {
            page.line("", &[("site", name)], sum(parts, &|part| part.body_bytes.get()));
        }
        page.family(&COMPUTE_SECONDS);
        for (name, parts) in &sites {
            let nanoseconds = sum(parts, &|part| part.compute_ns.get());
            page.value("", &[("site", name)], &seconds(nanoseconds / 1000));
        }
        page.family(&SLICES);
        for (name, parts) in &sites {
            page.line("", &[("site", name)], sum(parts, &|part| part.slices.get()));
        }
        page.family(&LOG_LINES_DROPPED);
        for (name, parts) in &sites {
            page.line("", &[("site", name)], sum(parts, &|part| part.log_lines_dropped.get()));
        }
        for (family, read, show) in STAGE_FAMILIES {
            page.family(family);
            for (name, parts) in &sites {
                for (stage, label) in STAGES.iter().enumerate() {
                    let value = sum(parts, &|part| read(&part.stages[stage]).get());
                    if value > 0 {
                        page.value("", &[("site", name), ("stage", label)], &show(value));
                    }
                }
            }
        }
        for (family, read) in SITE_GAUGES.iter().chain(upstream::FAMILIES) {
            page.family(family);
            for (name, parts) in &sites {
                page.line("", &[("site", name)], sum(parts, &|part| read(part).get()));
            }
        }
        for (family, read) in port::FAMILIES {
            page.family(family);
            for (name, parts) in sites.iter().filter(|(_, parts)| sum(parts, &|part| part.port.accepted.get()) > 0) {
                page.line("", &[("site", name)], sum(parts, &|part| read(part).get()));
            }
        }
        for (family, read) in SHARE_FAMILIES {
            page.family(family);
            for worker in workers {
                for site in worker.sites() {
                    let labels = [("site", site.name.as_str()), ("worker", &worker.worker.to_string())];
                    page.value("", &labels, &ratio(read(&site).get()));
                }
            }
        }
        page.family(&REFUSED);
        for (name, parts) in &sites {
            page.line("", &[("site", name)], sum(parts, &|part| part.refused.get()));
        }
        page.family(&QUEUE_DELAY_SECONDS);
        for (name, parts) in &sites {
            let count = |index: usize| sum(parts, &|part| part.delays[index].get());
            page.histogram(name, &DELAY_BOUNDS_US, count, sum(parts, &|part| part.delay_us.get()));
        }
        page.family(&REQUEST_SECONDS);
        for (name, parts) in &sites {
            let count = |index: usize| sum(parts, &|part| part.times[index].get());
            page.histogram(name, &TIME_BOUNDS_US, count, sum(parts, &|part| part.time_us.get()));
        }
    }
}

fn seconds(microseconds: u64) -> String {
    format!("{}", microseconds as f64 / 1e6)
}

fn seconds_of_ns(nanoseconds: u64) -> String {
    format!("{}", nanoseconds as f64 / 1e9)
}

fn ratio(millionths: u64) -> String {
    format!("{}", millionths as f64 / 1e6)
}

/// A metric's name, kind and meaning: what the page, the reference and dashboards go by.
struct Family {
    name: &'static str,
    kind: &'static str,
    labels: &'static str,
    help: &'static str,
}

type Read = fn(&WorkerMetrics) -> &Number;
type ReadSite = fn(&SiteMetrics) -> &Number;
type ReadStage = fn(&StageMetrics) -> &Number;
/// From what is counted to what the page says.
type Show = fn(u64) -> String;

const CONNECTIONS: Family =
    Family { name: "leat_connections", kind: "gauge", labels: "worker", help: "Connections open now." };
const COST_MODEL_ERROR: Family = Family {
    name: "leat_cost_model_error_ratio",
    kind: "gauge",
    labels: "worker",
    help: "How far off the prices of operations were lately, as a part of the processor time that was measured. Shares go by what was measured.",
};
const REJECTIONS: Family = Family {
    name: "leat_rejections_total",
    kind: "counter",
    labels: "reason",
    help: "Requests refused before their site was known, by reason.",
};
const REQUESTS: Family = Family {
    name: "leat_requests_total",
    kind: "counter",
    labels: "site, status",
    help: "Requests answered, by site and class of status.",
};
const BODY_BYTES: Family = Family {
    name: "leat_body_bytes_total",
    kind: "counter",
    labels: "site",
    help: "Content bytes of replies that the kernel has taken.",
};
const COMPUTE_SECONDS: Family = Family {
    name: "leat_compute_seconds_total",
    kind: "counter",
    labels: "site",
    help: "Processor time of a site's handlers, in the workers and in programs that leat starts.",
};
const SLICES: Family = Family {
    name: "leat_compute_slices_total",
    kind: "counter",
    labels: "site",
    help: "Slices of a core that programs of a site's handlers got.",
};
const LOG_LINES_DROPPED: Family = Family {
    name: "leat_access_log_lines_dropped_total",
    kind: "counter",
    labels: "site",
    help: "Access log lines dropped because the log couldn't keep up.",
};
const REQUEST_SECONDS: Family = Family {
    name: "leat_request_seconds",
    kind: "histogram",
    labels: "site",
    help: "Time from a request's whole head to its reply's last byte handed to the kernel.",
};
/// The families that are one number of each site and stage.
const STAGE_FAMILIES: &[(&Family, ReadStage, Show)] = &[
    (
        &Family {
            name: "leat_events_total",
            kind: "counter",
            labels: "site, stage",
            help: "Events that were run: pieces of requests, in the order that the tree gives them.",
        },
        |stage| &stage.events,
        |count| count.to_string(),
    ),
    (
        &Family {
            name: "leat_processor_seconds_total",
            kind: "counter",
            labels: "site, stage",
            help: "Processor time charged, that of the kernel included.",
        },
        |stage| &stage.used_ns,
        seconds_of_ns,
    ),
    (
        &Family {
            name: "leat_event_wait_seconds_total",
            kind: "counter",
            labels: "site, stage",
            help: "Time that events waited for their turn, added up.",
        },
        |stage| &stage.waited_us,
        seconds,
    ),
];
/// The families that are one number of each site, added up over the workers.
const SITE_GAUGES: &[(&Family, ReadSite)] = &[
    (
        &Family {
            name: "leat_requests_waiting",
            kind: "gauge",
            labels: "site",
            help: "Requests that wait for their turn now.",
        },
        |site| &site.waiting,
    ),
    (
        &Family {
            name: "leat_requests_started",
            kind: "gauge",
            labels: "site",
            help: "Requests that are being served now.",
        },
        |site| &site.started,
    ),
];
/// The families that are one ratio of each site at each worker.
const SHARE_FAMILIES: &[(&Family, ReadSite)] = &[
    (
        &Family {
            name: "leat_share_given_ratio",
            kind: "gauge",
            labels: "site, worker",
            help: "The part of a worker that a site is entitled to among those that want something.",
        },
        |site| &site.share_given,
    ),
    (
        &Family {
            name: "leat_share_used_ratio",
            kind: "gauge",
            labels: "site, worker",
            help: "The part that a site has had lately of what a worker did for all.",
        },
        |site| &site.share_used,
    ),
];
const REFUSED: Family = Family {
    name: "leat_refused_total",
    kind: "counter",
    labels: "site",
    help: "Requests answered with 503 because there was too much to do.",
};
const QUEUE_DELAY_SECONDS: Family = Family {
    name: "leat_queue_delay_seconds",
    kind: "histogram",
    labels: "site",
    help: "Time that requests waited for their turn, from the last of the head that arrived to when they were served, or refused; and, of replies that take turns to be sent, until the first.",
};
const RELOADS: Family = Family {
    name: "leat_reloads_total",
    kind: "counter",
    labels: "",
    help: "Configurations put in force since the engine's start, the first included.",
};
const STARTED: Family = Family {
    name: "leat_start_time_seconds",
    kind: "gauge",
    labels: "",
    help: "Seconds since 1970 at the engine's start.",
};

/// Every family, for the reference.
fn families() -> Vec<&'static Family> {
    let mut all = vec![&CONNECTIONS];
    all.extend(worker::FAMILIES.iter().map(|(family, _)| *family));
    all.extend(STAGE_FAMILIES.iter().map(|(family, ..)| *family));
    all.extend(SITE_GAUGES.iter().chain(SHARE_FAMILIES).map(|(family, _)| *family));
    all.extend(upstream::FAMILIES.iter().chain(port::FAMILIES).map(|(family, _)| *family));
    all.push(&COST_MODEL_ERROR);
    all.extend([
        &REJECTIONS,
        &REQUESTS,
        &BODY_BYTES,
        &COMPUTE_SECONDS,
        &SLICES,
        &LOG_LINES_DROPPED,
        &REFUSED,
        &QUEUE_DELAY_SECONDS,
        &REQUEST_SECONDS,
        &RELOADS,
        &STARTED,
    ]);
    all
}

/// `docs/metrics.md`.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from(
        "# Metrics\n\nServed at `/metrics` on the admin address, in Prometheus's text format. This page is generated: `leat reference metrics`.\n\n\
         | name | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for family in families() {
        text.push_str(&format!("| `{}` | {} | {} | {} |\n", family.name, family.kind, family.labels, family.help));
    }
    text
}

/// Prometheus's text exposition format, version 0.0.4.
#[derive(Default)]
struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    fn family(&mut self, family: &Family) {
        self.name = family.name;
        self.text.push_str(&format!("# HELP {0} {1}\n# TYPE {0} {2}\n", family.name, family.help, family.kind));
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: u64) {
        self.value(suffix, labels, &value.to_string());
    }

    /// A histogram of times: how many are in each of the buckets that `bounds_us` separates, and their sum.
    fn histogram(&mut self, site: &str, bounds_us: &[u64], bucket: impl Fn(usize) -> u64, sum_us: u64) {
        let mut count = 0;
        for (index, &bound_us) in bounds_us.iter().enumerate() {
            count += bucket(index);
            self.line("_bucket", &[("site", site), ("le", &seconds(bound_us))], count);
        }
        count += bucket(bounds_us.len());
        self.line("_bucket", &[("site", site), ("le", "+Inf")], count);
        self.value("_sum", &[("site", site)], &seconds(sum_us));
        self.line("_count", &[("site", site)], count);
    }

    fn value(&mut self, suffix: &str, labels: &[(&str, &str)], value: &str) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (place, (name, label)) in labels.iter().enumerate() {
            let escaped = label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let open = if place == 0 { '{' } else { ',' };
            self.text.push_str(&format!("{open}{name}=\"{escaped}\""));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        self.text.push_str(&format!(" {value}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up_and_labels_are_escaped() {
        let server = ServerMetrics::default();
        for worker in 0..2 {
            let metrics = Arc::new(WorkerMetrics::new(worker));
            metrics.accepted.add(3);
            metrics.site("a \"b\"").requests[1].add(5);
            metrics.site("a \"b\"").times[0].add(5);
            server.add_worker(metrics);
        }
        let page = server.render();
        assert!(page.contains("\nleat_accepted_total 6\n"), "{page}");
        assert!(page.contains("\nleat_requests_total{site=\"a \\\"b\\\"\",status=\"2xx\"} 10\n"), "{page}");
        assert!(page.contains("\nleat_request_seconds_bucket{site=\"a \\\"b\\\"\",le=\"0.00005\"} 10\n"), "{page}");
        assert!(page.contains("\nleat_request_seconds_count{site=\"a \\\"b\\\"\"} 10\n"), "{page}");
    }

    #[test]
    fn docs_metrics_md_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(found == reference(), "docs/metrics.md is stale: run `cargo xtask reference`");
    }

    #[test]
    fn the_reference_has_every_family_of_the_page() {
        let server = ServerMetrics::default();
        let metrics = Arc::new(WorkerMetrics::new(0));
        let _ = metrics.site("x");
        server.add_worker(metrics);
        let (page, reference) = (server.render(), reference());
        let names: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        assert_eq!(names.len(), families().len());
        for name in names {
            assert!(reference.contains(&format!("| `{name}` |")), "{name}");
        }
    }
}
