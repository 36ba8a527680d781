//! What is counted of a dispatcher's ports for other protocols, and how the page shows it.

use super::{Family, Number, ReadSite};

/// What is counted of a port, at one worker.
#[derive(Debug, Default)]
pub struct PortMetrics {
    /// Clients' connections.
    pub accepted: Number,
    /// Those that are open.
    pub open: Number,
    /// Requests that were given to nodes; where they aren't told apart, connections.
    pub requests: Number,
    /// Bytes from clients.
    pub received_bytes: Number,
    /// Bytes to clients.
    pub sent_bytes: Number,
    /// Connections begun to nodes.
    pub connects: Number,
    /// Those that weren't made.
    pub connect_failures: Number,
    /// Clients that were cut as no node could answer, or as theirs had gone.
    pub failures: Number,
    /// Clients that were cut as they, or their node, didn't keep to the protocol.
    pub mistakes: Number,
}

/// How the page and the reference show it. A port is named like a site.
pub(super) const FAMILIES: &[(&Family, ReadSite)] = &[
    (
        &Family {
            name: "leat_port_accepted_total",
            kind: "counter",
            labels: "site",
            help: "Connections accepted at a port of a dispatcher.",
        },
        |site| &site.port.accepted,
    ),
    (
        &Family {
            name: "leat_port_connections",
            kind: "gauge",
            labels: "site",
            help: "Connections of a port that are open now.",
        },
        |site| &site.port.open,
    ),
    (
        &Family {
            name: "leat_port_requests_total",
            kind: "counter",
            labels: "site",
            help: "Requests that were given to a port's nodes; connections where requests aren't told apart.",
        },
        |site| &site.port.requests,
    ),
    (
        &Family {
            name: "leat_port_received_bytes_total",
            kind: "counter",
            labels: "site",
            help: "Bytes passed from a port's clients to nodes.",
        },
        |site| &site.port.received_bytes,
    ),
    (
        &Family {
            name: "leat_port_sent_bytes_total",
            kind: "counter",
            labels: "site",
            help: "Bytes passed from a port's nodes to clients.",
        },
        |site| &site.port.sent_bytes,
    ),
    (
        &Family {
            name: "leat_port_connects_total",
            kind: "counter",
            labels: "site",
            help: "Connections begun to a port's nodes.",
        },
        |site| &site.port.connects,
    ),
    (
        &Family {
            name: "leat_port_connect_failures_total",
            kind: "counter",
            labels: "site",
            help: "Connections to a port's nodes that couldn't be made; another node was tried.",
        },
        |site| &site.port.connect_failures,
    ),
    (
        &Family {
            name: "leat_port_failures_total",
            kind: "counter",
            labels: "site",
            help: "Connections of a port that were cut, as no node could be reached or theirs broke off.",
        },
        |site| &site.port.failures,
    ),
    (
        &Family {
            name: "leat_port_mistakes_total",
            kind: "counter",
            labels: "site",
            help: "Connections of a port that were cut, as the client or the node didn't keep to the protocol.",
        },
        |site| &site.port.mistakes,
    ),
];
