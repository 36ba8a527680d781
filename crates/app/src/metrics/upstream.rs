//! What is counted of requests that are passed on to other servers, and how the page shows it.

use super::{Family, Number, ReadSite};

/// What is counted of a site's requests that are passed on, at one worker.
#[derive(Debug, Default)]
pub struct UpstreamMetrics {
    /// Connections that were begun to servers that requests are passed on to.
    pub connects: Number,
    /// Requests passed on over a connection that was kept.
    pub reuses: Number,
    /// Requests passed on once more.
    pub retries: Number,
    /// Requests that no server could answer, or whose reply was cut by one.
    pub failures: Number,
}

/// How the page and the reference show it.
pub(super) const FAMILIES: &[(&Family, ReadSite)] = &[
    (
        &Family {
            name: "leat_upstream_connects_total",
            kind: "counter",
            labels: "site",
            help: "Connections begun to servers that requests are passed on to.",
        },
        |site| &site.upstream.connects,
    ),
    (
        &Family {
            name: "leat_upstream_reuses_total",
            kind: "counter",
            labels: "site",
            help: "Requests passed on over a connection that was kept.",
        },
        |site| &site.upstream.reuses,
    ),
    (
        &Family {
            name: "leat_upstream_retries_total",
            kind: "counter",
            labels: "site",
            help: "Requests passed on once more, as a server couldn't be reached, had closed the connection, said nothing, or broke off its reply, the rest of which is asked for.",
        },
        |site| &site.upstream.retries,
    ),
    (
        &Family {
            name: "leat_upstream_failures_total",
            kind: "counter",
            labels: "site",
            help: "Requests that no server could answer, or whose reply ended too early.",
        },
        |site| &site.upstream.failures,
    ),
];
