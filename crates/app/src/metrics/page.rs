//! How Prometheus reads what is counted: the families with their names and meanings, the page that a scrape gets, the reference.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use leat_host::lock::lock;
use leat_host::steering::{DispatcherCounters, NodeCounters};
use leat_logic::admission::{Denial, Resource};
use leat_logic::http::RejectReason;

use super::{
    DELAY_BOUNDS_US, HANDOFF_BOUNDS_US, Number, STAGES, ServerMetrics, SiteMetrics, StageMetrics, TIME_BOUNDS_US,
    TURN_BOUNDS_US, WorkerMetrics, owner, port, upstream, worker,
};

impl ServerMetrics {
    /// The text of `/metrics`.
    #[must_use]
    pub fn render(&self) -> String {
        let workers = lock(&self.workers).clone();
        let mut page = Page::default();
        let at_work: Vec<_> = workers.iter().filter(|worker| worker.ended.get() == 0).collect();
        page.family(&CONNECTIONS);
        for worker in &at_work {
            page.line("", &[("worker", &worker.worker.to_string())], worker.connections.get());
        }
        page.family(&COST_MODEL_ERROR);
        for worker in &at_work {
            let number = worker.worker.to_string();
            page.value("", &[("worker", &number)], &ratio(worker.cost_model_error.get()));
        }
        // One that has ended, and another that has its number since, are one series.
        let mut numbered: BTreeMap<usize, Vec<&WorkerMetrics>> = BTreeMap::new();
        workers.iter().for_each(|worker| numbered.entry(worker.worker).or_default().push(worker));
        page.family(&TURN_SECONDS);
        for (number, same) in &numbered {
            let turn = |index: usize| same.iter().map(|worker| worker.turns[index].get()).sum();
            let all_ns = same.iter().map(|worker| worker.turn_ns.get()).sum();
            page.histogram(("worker", &number.to_string()), &TURN_BOUNDS_US, turn, &seconds_of_ns(all_ns));
        }
        page.family(&HANDOFF_SECONDS);
        for (number, same) in &numbered {
            let handoff = |index: usize| same.iter().map(|worker| worker.handoff_times[index].get()).sum();
            let all_us = same.iter().map(|worker| worker.handoff_time_us.get()).sum();
            page.histogram(("worker", &number.to_string()), &HANDOFF_BOUNDS_US, handoff, &seconds(all_us));
        }
        for (family, read) in worker::FAMILIES {
            page.family(family);
            page.line("", &[], workers.iter().map(|worker| read(worker).get()).sum());
        }
        page.family(&STEERING);
        render_steering(&mut page, &workers);
        page.family(&REJECTIONS);
        for (index, reason) in RejectReason::ALL.iter().enumerate() {
            let count: u64 = workers.iter().map(|worker| worker.rejections[index].get()).sum();
            if count > 0 {
                page.line("", &[("reason", reason.label())], count);
            }
        }
        self.render_sites(&mut page, &workers);
        self.render_owners(&mut page, &workers);
        page.family(&RELOADS);
        page.line("", &[], self.reloads.load(Ordering::Relaxed));
        page.family(&STARTED);
        page.line("", &[], self.started_seconds.load(Ordering::Relaxed));
        page.text
    }

    fn render_sites(&self, page: &mut Page, workers: &[Arc<WorkerMetrics>]) {
        let mut sites: Vec<SiteParts> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for site in workers.iter().flat_map(|worker| worker.sites()) {
            let place = *places.entry(site.name.clone()).or_insert(sites.len());
            match sites.get_mut(place) {
                Some((_, parts)) => parts.push(site),
                None => sites.push((site.name.clone(), vec![site])),
            }
        }
        page.family(&REQUESTS);
        for (name, parts) in &sites {
            for (class, label) in ["1xx", "2xx", "3xx", "4xx", "5xx", "other"].iter().enumerate() {
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
            page.line("", &[("site", name)], sum(parts, &|part| part.log_lines_dropped.load(Ordering::Relaxed)));
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
        page.family(&QUOTA_USED);
        for (name, parts) in &sites {
            for (resource, label) in RESOURCES.iter().enumerate() {
                let used_ns = sum(parts, &|part| part.quota_used_ns[resource].get());
                if used_ns > 0 {
                    page.value("", &[("site", name), ("resource", label)], &seconds_of_ns(used_ns));
                }
            }
        }
        page.family(&QUOTA_WAIT);
        for (name, parts) in &sites {
            page.value("", &[("site", name)], &seconds_of_ns(sum(parts, &|part| part.quota_wait_ns.get())));
        }
        // Counters of a site that a reload has taken away stay; what it has now is told as long as that is something.
        let is_configured = self.configured();
        let is_told = |family: &Family, name: &str, value| family.kind != "gauge" || value > 0 || is_configured(name);
        for (family, read) in SITE_GAUGES.iter().chain(upstream::FAMILIES) {
            page.family(family);
            for (name, parts) in &sites {
                let value = sum(parts, &|part| read(part).get());
                if is_told(family, name, value) {
                    page.line("", &[("site", name)], value);
                }
            }
        }
        for (family, read) in port::FAMILIES {
            page.family(family);
            // Clients may have come from the engine before this one.
            let had = |part: &SiteMetrics| part.port.accepted.get() + part.port.open.get() + part.port.sent_bytes.get();
            for (name, parts) in sites.iter().filter(|(_, parts)| sum(parts, &had) > 0) {
                let value = sum(parts, &|part| read(part).get());
                if is_told(family, name, value) {
                    page.line("", &[("site", name)], value);
                }
            }
        }
        self.render_shares(page, workers);
        render_refusals_and_delays(page, &sites);
    }

    /// What each site is given and uses at each worker.
    fn render_shares(&self, page: &mut Page, workers: &[Arc<WorkerMetrics>]) {
        let is_configured = self.configured();
        for (family, read) in SHARE_FAMILIES {
            page.family(family);
            for worker in workers.iter().filter(|worker| worker.ended.get() == 0) {
                for site in worker.sites().iter().filter(|site| is_configured(&site.name)) {
                    let labels = [("site", site.name.as_str()), ("worker", &worker.worker.to_string())];
                    page.value("", &labels, &ratio(read(site).get()));
                }
            }
        }
        page.family(&STAGE_SHARE_GIVEN);
        for worker in workers.iter().filter(|worker| worker.ended.get() == 0) {
            for site in worker.sites().iter().filter(|site| is_configured(&site.name)) {
                for (stage, label) in site.stages.iter().zip(STAGES).filter(|(stage, _)| stage.events.get() > 0) {
                    let labels = [("site", &*site.name), ("stage", label), ("worker", &worker.worker.to_string())];
                    page.value("", &labels, &ratio(stage.share_given.get()));
                }
            }
        }
    }
}

/// A site's parts: one at each worker.
type SiteParts = (String, Vec<Arc<SiteMetrics>>);

/// What the parts of a site come to together.
fn sum(parts: &[Arc<SiteMetrics>], read: &dyn Fn(&SiteMetrics) -> u64) -> u64 {
    parts.iter().map(|part| read(part)).sum()
}

/// What sites have refused, and how long their requests took.
fn render_refusals_and_delays(page: &mut Page, sites: &[SiteParts]) {
    page.family(&REFUSED);
    for (name, parts) in sites {
        // Nothing is refused while it computes.
        for (stage, label) in STAGES[..3].iter().enumerate() {
            let refused = sum(parts, &|part| part.stages[stage].refused.get());
            page.line("", &[("site", name), ("stage", label)], refused);
        }
    }
    page.family(&DENIED);
    for (name, parts) in sites {
        for (index, label) in Denial::LABELS.iter().enumerate() {
            let denied = sum(parts, &|part| part.denied[index].get());
            if denied > 0 {
                page.line("", &[("site", name), ("reason", label)], denied);
            }
        }
    }
    page.family(&QUEUE_DELAY_SECONDS);
    for (name, parts) in sites {
        let count = |index: usize| sum(parts, &|part| part.delays[index].get());
        let sum_us = sum(parts, &|part| part.delay_us.get());
        page.histogram(("site", name), &DELAY_BOUNDS_US, count, &seconds(sum_us));
    }
    page.family(&REQUEST_SECONDS);
    for (name, parts) in sites {
        let count = |index: usize| sum(parts, &|part| part.times[index].get());
        let sum_us = sum(parts, &|part| part.time_us.get());
        page.histogram(("site", name), &TIME_BOUNDS_US, count, &seconds(sum_us));
    }
}

fn seconds(microseconds: u64) -> String {
    format!("{}", microseconds as f64 / 1e6)
}

pub(super) fn seconds_of_ns(nanoseconds: u64) -> String {
    format!("{}", nanoseconds as f64 / 1e9)
}

fn ratio(millionths: u64) -> String {
    format!("{}", millionths as f64 / 1e6)
}

/// A metric's name, kind and meaning: what the page, the reference and dashboards go by.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) labels: &'static str,
    pub(super) help: &'static str,
}

pub(super) type Read = fn(&WorkerMetrics) -> &Number;
pub(super) type ReadSite = fn(&SiteMetrics) -> &Number;
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
const TURN_SECONDS: Family = Family {
    name: "leat_turn_seconds",
    kind: "histogram",
    labels: "worker",
    help: "Time from when a worker looks at what has come to when it looks again, or has nothing to do: whoever comes meanwhile waits for the rest of it.",
};
const HANDOFF_SECONDS: Family = Family {
    name: "leat_handoff_seconds",
    kind: "histogram",
    labels: "worker",
    help: "Time for which a connection is nobody's: from when it's frozen here to when the word has come that another server has it. Connections that begin at nodes aren't among them.",
};
const STEERING: Family = Family {
    name: "leat_steering_total",
    kind: "counter",
    labels: "program, what",
    help: "What the programs in the kernel have counted since their maps were made, by whichever process, at a `dispatcher` and at a `node`. Packets mostly: `steered` to a node, \
           `received` by a connection, `held` until it's known where they go, `lost`, `stray`, `forged`, `repeated`, `fenced` (without a lease), `given` (their connection is another's); \
           connections that began (`born`, `planted`, `replayed`, `admitted`) or couldn't (`unheard`: the server doesn't listen, `crowded`: there's no room for more \
           that are translated).",
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
    help: "Requests answered, by site and class of status; `other` from 600 on, as some servers behind `proxy` say. What a cluster's server fetches from another, or passes on to one, counts there alone; a dispatcher counts under `cluster` what it answers and what it passes on.",
};
const BODY_BYTES: Family = Family {
    name: "leat_body_bytes_total",
    kind: "counter",
    labels: "site",
    help: "Content bytes of replies that the kernel has taken, of those in `leat_requests_total`.",
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
    help: "Time from a request's whole head to its reply's last byte handed to the kernel, for those in `leat_requests_total`.",
};
/// By the order of `admission::Resource`.
pub(super) const RESOURCES: [&str; Resource::COUNT] = ["network_rate", "disk_rate", "cpu"];
const QUOTA_USED: Family = Family {
    name: "leat_quota_used_seconds_total",
    kind: "counter",
    labels: "site, resource",
    help: "Time in which as much comes in as a site has used of its quota, or of its owner's if that is less. Its rate is the part of the quota that is used.",
};
const QUOTA_WAIT: Family = Family {
    name: "leat_quota_wait_seconds_total",
    kind: "counter",
    labels: "site",
    help: "Time in which something of a site's was held back by its quotas or its owners', added up over the workers.",
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
    (
        &Family {
            name: "leat_memory_held_bytes",
            kind: "gauge",
            labels: "site",
            help: "Memory held for a site's connections, where its quota bounds that.",
        },
        |site| &site.memory_held_bytes,
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
const STAGE_SHARE_GIVEN: Family = Family {
    name: "leat_stage_share_given_ratio",
    kind: "gauge",
    labels: "site, stage, worker",
    help: "The part of the worker to which a stage of a site is entitled, beside the site's other stages that want something.",
};
const REFUSED: Family = Family {
    name: "leat_refused_total",
    kind: "counter",
    labels: "site, stage",
    help: "Requests answered with 503 because there was too much to do: when they had been received, when they were to be served, or before their reply was sent.",
};
const DENIED: Family = Family {
    name: "leat_denied_total",
    kind: "counter",
    labels: "site, reason",
    help: "Requests answered with 403 because of their client's address, or with 429 because it asked too often, by [[site.access]].",
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
    all.extend(owner::FAMILIES);
    all.extend(upstream::FAMILIES.iter().chain(port::FAMILIES).map(|(family, _)| *family));
    all.extend([&COST_MODEL_ERROR, &TURN_SECONDS, &HANDOFF_SECONDS]);
    all.extend([
        &STEERING,
        &REJECTIONS,
        &REQUESTS,
        &BODY_BYTES,
        &COMPUTE_SECONDS,
        &SLICES,
        &QUOTA_USED,
        &QUOTA_WAIT,
        &LOG_LINES_DROPPED,
        &STAGE_SHARE_GIVEN,
        &REFUSED,
        &DENIED,
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

/// Workers may have read the kernel's numbers at different times.
fn render_steering(page: &mut Page, workers: &[Arc<WorkerMetrics>]) {
    let mut render = |program, names: &[&str], read: &dyn Fn(&WorkerMetrics) -> &[Number]| {
        for (index, what) in names.iter().enumerate() {
            let count = workers.iter().map(|worker| read(worker)[index].get()).max().unwrap_or(0);
            if count > 0 {
                page.line("", &[("program", program), ("what", what)], count);
            }
        }
    };
    render("dispatcher", &DispatcherCounters::NAMES, &|worker| &worker.dispatcher_counts);
    render("node", &NodeCounters::NAMES, &|worker| &worker.node_counts);
}

/// Prometheus's text exposition format, version 0.0.4.
#[derive(Default)]
pub(super) struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    pub(super) fn family(&mut self, family: &Family) {
        self.name = family.name;
        self.text.push_str(&format!("# HELP {0} {1}\n# TYPE {0} {2}\n", family.name, family.help, family.kind));
    }

    pub(super) fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: u64) {
        self.value(suffix, labels, &value.to_string());
    }

    /// A histogram of times: how many are in each of the buckets that `bounds_us` separates, and their sum.
    fn histogram(&mut self, of: (&str, &str), bounds_us: &[u64], bucket: impl Fn(usize) -> u64, sum: &str) {
        let mut count = 0;
        for (index, &bound_us) in bounds_us.iter().enumerate() {
            count += bucket(index);
            self.line("_bucket", &[of, ("le", &seconds(bound_us))], count);
        }
        count += bucket(bounds_us.len());
        self.line("_bucket", &[of, ("le", "+Inf")], count);
        self.value("_sum", &[of], sum);
        self.line("_count", &[of], count);
    }

    pub(super) fn value(&mut self, suffix: &str, labels: &[(&str, &str)], value: &str) {
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
    use crate::config::{Config, Site};
    use std::time::Duration;

    #[test]
    fn workers_add_up_and_labels_are_escaped() {
        let server = ServerMetrics::default();
        for worker in 0..2 {
            let metrics = Arc::new(WorkerMetrics::new(worker));
            metrics.accepted.add(3);
            metrics.site("a \"b\"").requests[1].add(5);
            metrics.site("a \"b\"").times[0].add(5);
            metrics.site("a \"b\"").stages[1].refused.add(2);
            metrics.count_turn(Duration::from_nanos(50_001));
            metrics.count_turn(Duration::from_millis(60));
            server.add_worker(metrics);
        }
        let page = server.render();
        assert!(page.contains("\nleat_accepted_total 6\n"), "{page}");
        assert!(page.contains("\nleat_requests_total{site=\"a \\\"b\\\"\",status=\"2xx\"} 10\n"), "{page}");
        assert!(page.contains("\nleat_request_seconds_bucket{site=\"a \\\"b\\\"\",le=\"0.00005\"} 10\n"), "{page}");
        assert!(page.contains("\nleat_request_seconds_count{site=\"a \\\"b\\\"\"} 10\n"), "{page}");
        assert!(page.contains("\nleat_refused_total{site=\"a \\\"b\\\"\",stage=\"serve\"} 4\n"), "{page}");
        for turns in [
            "_bucket{worker=\"1\",le=\"0.00005\"} 0",
            "_bucket{worker=\"1\",le=\"0.000075\"} 1",
            "_count{worker=\"1\"} 2",
        ] {
            assert!(page.contains(&format!("\nleat_turn_seconds{turns}\n")), "{page}");
        }
        assert!(page.contains("\nleat_turn_seconds_sum{worker=\"0\"} 0.060050001\n"), "{page}");
    }

    #[test]
    fn of_a_site_that_has_gone_counters_stay_and_gauges_go() {
        let server = ServerMetrics::default();
        let metrics = Arc::new(WorkerMetrics::new(0));
        for name in ["(admin)", "stays", "goes"] {
            let site = metrics.site(name);
            site.body_bytes.add(7);
            site.share_given.set_ratio(0.5);
            site.stages[1].events.add(1);
            site.port.accepted.add(1);
        }
        metrics.site("goes").started.set(2);
        server.add_worker(metrics.clone());
        let site = |name: &str| Site { name: name.into(), ..Site::default() };
        let gauges_of = |name: &str| {
            let page = server.render();
            let kinds: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
            let is_gauge = |line: &&str| {
                kinds.iter().any(|(family, kind)| *kind == "gauge" && line.split('{').next() == Some(family))
            };
            let has_it = |line: &&str| line.contains(&format!("{{site=\"{name}\""));
            assert!(page.contains(&format!("leat_body_bytes_total{{site=\"{name}\"}} 7\n")), "{page}");
            page.lines().filter(has_it).filter(is_gauge).map(str::to_owned).collect::<Vec<_>>()
        };
        server.set_configured(&Config { sites: vec![site("stays"), site("goes")], ..Config::default() });
        let all = gauges_of("goes").len();
        assert!(all > 5 && gauges_of("(admin)").len() == all, "{:?}", gauges_of("goes"));
        server.set_configured(&Config { sites: vec![site("stays")], ..Config::default() });
        assert_eq!([gauges_of("(admin)").len(), gauges_of("stays").len()], [all, all]);
        assert_eq!(gauges_of("goes"), ["leat_requests_started{site=\"goes\"} 2"], "its requests are under way");
        metrics.site("goes").started.set(0);
        assert_eq!(gauges_of("goes"), Vec::<String>::new());
        let of_worker = || server.render().lines().filter(|line| line.contains("worker=\"0\"}")).count();
        assert!(of_worker() > 4);
        metrics.ended.set(1);
        assert_eq!(of_worker(), 4, "the sums and the counts of its turns and hand-overs stay");
        let next = Arc::new(WorkerMetrics::new(0));
        next.count_turn(Duration::from_millis(1));
        next.ended.set(1);
        server.add_worker(next);
        assert_eq!(of_worker(), 4, "another of its number has none of its own");
        assert!(server.render().contains("\nleat_turn_seconds_count{worker=\"0\"} 1\n"));
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
