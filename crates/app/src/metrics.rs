//! What leat counts, and how Prometheus reads it. Each worker counts for itself without atomic read-modify-write; a scrape adds up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leat_logic::http::RejectReason;

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

    /// Reads it.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the request time histogram, in microseconds.
pub const TIME_BOUNDS_US: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000];

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
    /// Access log lines that were dropped because the log couldn't keep up.
    pub log_lines_dropped: Number,
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
    /// Connections open now.
    pub connections: Number,
    /// Requests refused, by reason.
    pub rejections: Vec<Number>,
    /// Requests answered from the worker's cache.
    pub cache_hits: Number,
    /// Requests for which the storage was asked.
    pub cache_misses: Number,
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
            connections: Number::default(),
            rejections: RejectReason::ALL.iter().map(|_| Number::default()).collect(),
            cache_hits: Number::default(),
            cache_misses: Number::default(),
            cache_bytes: Number::default(),
            torn_replies: Number::default(),
            cut_replies: Number::default(),
            stalled: Number::default(),
            storage_failures: Number::default(),
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

    /// The text of `/metrics`.
    #[must_use]
    pub fn render(&self) -> String {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut page = Page::default();
        page.family(&CONNECTIONS);
        for worker in &workers {
            page.line("", &[("worker", &worker.worker.to_string())], worker.connections.get());
        }
        for (family, read) in WORKER_FAMILIES {
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
        page.family(&LOG_LINES_DROPPED);
        for (name, parts) in &sites {
            page.line("", &[("site", name)], sum(parts, &|part| part.log_lines_dropped.get()));
        }
        page.family(&REQUEST_SECONDS);
        for (name, parts) in &sites {
            let mut count = 0;
            for (index, bound_us) in TIME_BOUNDS_US.iter().enumerate() {
                count += sum(parts, &|part| part.times[index].get());
                page.line("_bucket", &[("site", name), ("le", &seconds(*bound_us))], count);
            }
            count += sum(parts, &|part| part.times[TIME_BOUNDS_US.len()].get());
            page.line("_bucket", &[("site", name), ("le", "+Inf")], count);
            page.value("_sum", &[("site", name)], &seconds(sum(parts, &|part| part.time_us.get())));
            page.line("_count", &[("site", name)], count);
        }
    }
}

fn seconds(microseconds: u64) -> String {
    format!("{}", microseconds as f64 / 1e6)
}

/// A metric's name, kind and meaning: what the page, the reference and dashboards go by.
struct Family {
    name: &'static str,
    kind: &'static str,
    labels: &'static str,
    help: &'static str,
}

type Read = fn(&WorkerMetrics) -> &Number;

const CONNECTIONS: Family =
    Family { name: "leat_connections", kind: "gauge", labels: "worker", help: "Connections open now." };
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

/// The families that are one number of each worker.
const WORKER_FAMILIES: &[(&Family, Read)] = &[
    (&Family { name: "leat_accepted_total", kind: "counter", labels: "", help: "Connections accepted." }, |worker| {
        &worker.accepted
    }),
    (
        &Family {
            name: "leat_accept_failures_total",
            kind: "counter",
            labels: "",
            help: "Times that accepting failed, for want of descriptors mostly.",
        },
        |worker| &worker.accept_failures,
    ),
    (
        &Family {
            name: "leat_cache_hits_total",
            kind: "counter",
            labels: "",
            help: "Requests answered from a worker's cache of files.",
        },
        |worker| &worker.cache_hits,
    ),
    (
        &Family {
            name: "leat_cache_misses_total",
            kind: "counter",
            labels: "",
            help: "Requests for which the file system was asked.",
        },
        |worker| &worker.cache_misses,
    ),
    (
        &Family { name: "leat_cache_bytes", kind: "gauge", labels: "", help: "Bytes in the workers' caches of files." },
        |worker| &worker.cache_bytes,
    ),
    (
        &Family {
            name: "leat_torn_replies_total",
            kind: "counter",
            labels: "",
            help: "Replies cut because their file changed while it was being sent.",
        },
        |worker| &worker.torn_replies,
    ),
    (
        &Family {
            name: "leat_cut_replies_total",
            kind: "counter",
            labels: "",
            help: "Replies that didn't reach their end: the client went away or stalled, the file changed, a drain ran out of time.",
        },
        |worker| &worker.cut_replies,
    ),
    (
        &Family {
            name: "leat_stalled_connections_total",
            kind: "counter",
            labels: "",
            help: "Connections cut because no byte moved in time.",
        },
        |worker| &worker.stalled,
    ),
    (
        &Family {
            name: "leat_storage_failures_total",
            kind: "counter",
            labels: "",
            help: "Requests that the file system couldn't answer.",
        },
        |worker| &worker.storage_failures,
    ),
];

/// Every family, for the reference.
fn families() -> Vec<&'static Family> {
    let mut all = vec![&CONNECTIONS];
    all.extend(WORKER_FAMILIES.iter().map(|(family, _)| *family));
    all.extend([&REJECTIONS, &REQUESTS, &BODY_BYTES, &LOG_LINES_DROPPED, &REQUEST_SECONDS, &RELOADS, &STARTED]);
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
