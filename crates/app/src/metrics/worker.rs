//! The families that are one number of each worker: how each is called, and which number it is. The numbers are the workers'.

use super::{Family, Read};

/// The families that are one number of each worker.
pub(super) const FAMILIES: &[(&Family, Read)] = &[
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
            name: "leat_displaced_connections_total",
            kind: "counter",
            labels: "",
            help: "Connections that asked for nothing and were ended, as there was no room for new ones (limits.connections).",
        },
        |worker| &worker.displaced,
    ),
    (
        &Family {
            name: "leat_proxy_headers_refused_total",
            kind: "counter",
            labels: "",
            help: "Connections that were cut, as they came from a balancer of [proxy_protocol] and didn't begin with the client's address.",
        },
        |worker| &worker.headers_refused,
    ),
    (
        &Family {
            name: "leat_flows",
            kind: "gauge",
            labels: "",
            help: "Connections that a dispatcher has given away, or that a node holds for one; that a server has which isn't leat, at a node behind fronts.",
        },
        |worker| &worker.flows,
    ),
    (
        &Family {
            name: "leat_flow_entries",
            kind: "gauge",
            labels: "",
            help: "Connections whose packets the kernel of a dispatcher sends elsewhere or holds, those that have just ended among them.",
        },
        |worker| &worker.flow_entries,
    ),
    (
        &Family {
            name: "leat_packets_spread_total",
            kind: "counter",
            labels: "",
            help: "Packets that a front of spread = \"l4\" has sent to nodes.",
        },
        |worker| &worker.packets_spread,
    ),
    (
        &Family {
            name: "leat_packets_followed_total",
            kind: "counter",
            labels: "",
            help: "Packets that a front of spread = \"l4\" has sent after connections which nodes have handed on.",
        },
        |worker| &worker.packets_followed,
    ),
    (
        &Family {
            name: "leat_packets_passed_on_total",
            kind: "counter",
            labels: "",
            help: "Packets without a connection here that a node has sent on to the one that had their bucket before.",
        },
        |worker| &worker.packets_passed_on,
    ),
    (
        &Family {
            name: "leat_packets_unreached_total",
            kind: "counter",
            labels: "",
            help: "Packets of either that were dropped, as no node has their bucket or it isn't known where that is.",
        },
        |worker| &worker.packets_unreached,
    ),
    (
        &Family {
            name: "leat_packets_served_total",
            kind: "counter",
            labels: "",
            help: "Packets with which connections begin that a node behind fronts has given to a server that isn't leat.",
        },
        |worker| &worker.packets_served,
    ),
    (
        &Family {
            name: "leat_packets_unserved_total",
            kind: "counter",
            labels: "",
            help: "The same, where that server didn't listen: its clients are refused.",
        },
        |worker| &worker.packets_unserved,
    ),
    (
        &Family {
            name: "leat_handoffs_total",
            kind: "counter",
            labels: "",
            help: "Connections given to a node, at a dispatcher; taken, at a node.",
        },
        |worker| &worker.handoffs,
    ),
    (
        &Family {
            name: "leat_births_total",
            kind: "counter",
            labels: "",
            help: "Connections that began at a node, without a socket at the dispatcher.",
        },
        |worker| &worker.births,
    ),
    (
        &Family {
            name: "leat_births_unasked_total",
            kind: "counter",
            labels: "",
            help: "The same at a dispatcher, where a choice stood: its kernel sent them there without asking.",
        },
        |worker| &worker.births_unasked,
    ),
    (
        &Family {
            name: "leat_births_put_off_total",
            kind: "counter",
            labels: "",
            help: "Requests that a dispatcher dropped, as so many connections as may were on their way to begin at the same node. Clients say them again.",
        },
        |worker| &worker.births_put_off,
    ),
    (
        &Family {
            name: "leat_handoffs_refused_total",
            kind: "counter",
            labels: "",
            help: "Handoffs that weren't taken: refused, or lost with a link.",
        },
        |worker| &worker.handoffs_refused,
    ),
    (
        &Family {
            name: "leat_handoffs_returned_total",
            kind: "counter",
            labels: "",
            help: "Connections that a node gave back.",
        },
        |worker| &worker.handoffs_returned,
    ),
    (
        &Family {
            name: "leat_connections_inherited_total",
            kind: "counter",
            labels: "",
            help: "Connections that a connection server which was stopped has left to its peer for good.",
        },
        |worker| &worker.connections_inherited,
    ),
    (
        &Family {
            name: "leat_handoffs_waiting",
            kind: "gauge",
            labels: "",
            help: "Idle connections of a node that drains, or that come from one, whose turn hasn't come: requests have theirs meanwhile.",
        },
        |worker| &worker.handoffs_waiting,
    ),
    (
        &Family {
            name: "leat_node_waits_total",
            kind: "counter",
            labels: "",
            help: "Requests for which a dispatcher had no node and that waited, as links had just been lost.",
        },
        |worker| &worker.node_waits,
    ),
    (
        &Family {
            name: "leat_questions_total",
            kind: "counter",
            labels: "",
            help: "Requests on connections that a node has, of which it asked where they belong.",
        },
        |worker| &worker.questions,
    ),
    (
        &Family {
            name: "leat_fetches_total",
            kind: "counter",
            labels: "",
            help: "Requests that a node had answered by another, as that has the content.",
        },
        |worker| &worker.fetches,
    ),
    (
        &Family {
            name: "leat_replies_continued_total",
            kind: "counter",
            labels: "",
            help: "Replies under way that went on here: another server had begun them.",
        },
        |worker| &worker.replies_continued,
    ),
    (
        &Family {
            name: "leat_rests_told_total",
            kind: "counter",
            labels: "",
            help: "Connections with nothing to do of which a node has told how far they have come, so that they go on if it dies.",
        },
        |worker| &worker.rests_told,
    ),
    (
        &Family {
            name: "leat_requests_delegated_total",
            kind: "counter",
            labels: "",
            help: "Requests for files that a connection server offered to a data server.",
        },
        |worker| &worker.requests_delegated,
    ),
    (
        &Family {
            name: "leat_requests_kept_total",
            kind: "counter",
            labels: "",
            help: "Requests for files that a connection server answered itself without asking a data server.",
        },
        |worker| &worker.requests_kept,
    ),
    (
        &Family {
            name: "leat_knocks_dropped_total",
            kind: "counter",
            labels: "",
            help: "Packets of those who wanted to connect that the kernel dropped while there was too much to do. They try again.",
        },
        |worker| &worker.knocks_dropped,
    ),
    (
        &Family {
            name: "leat_gathers_total",
            kind: "counter",
            labels: "",
            help: "Times that an idle worker waited for several requests rather than the first (`gather_us`).",
        },
        |worker| &worker.gathers,
    ),
    (
        &Family {
            name: "leat_flows_recovered_total",
            kind: "counter",
            labels: "",
            help: "Connections that went on at another node when theirs had died.",
        },
        |worker| &worker.flows_recovered,
    ),
    (
        &Family {
            name: "leat_flows_cut_total",
            kind: "counter",
            labels: "",
            help: "Connections that were cut, as nobody could go on with them.",
        },
        |worker| &worker.flows_cut,
    ),
    (
        &Family {
            name: "leat_flows_taken_back_total",
            kind: "counter",
            labels: "",
            help: "Connections that a dispatcher took back because their clients heard nothing of the node that had them.",
        },
        |worker| &worker.flows_taken_back,
    ),
    (
        &Family {
            name: "leat_transplants_total",
            kind: "counter",
            labels: "",
            help: "Connections that went from a server that isn't leat to another one between two requests: given to it (dispatcher), given up (node).",
        },
        |worker| &worker.transplants,
    ),
    (
        &Family {
            name: "leat_transplants_impossible_total",
            kind: "counter",
            labels: "",
            help: "Connections at servers that aren't leat whose requests aren't looked at any more, as it can't be told where they begin or whether they're answered.",
        },
        |worker| &worker.transplants_impossible,
    ),
    (
        &Family {
            name: "leat_transplants_cut_total",
            kind: "counter",
            labels: "",
            help: "Connections at servers that aren't leat that a dispatcher reset, as their next request was for what another one has and they couldn't go there.",
        },
        |worker| &worker.transplants_cut,
    ),
    (
        &Family {
            name: "leat_replies_unheard_total",
            kind: "counter",
            labels: "",
            help: "Connections that a dispatcher reset because their clients heard nothing of a node that had closed them, or wasn't leat.",
        },
        |worker| &worker.replies_unheard,
    ),
    (
        &Family {
            name: "leat_nodes_unwell",
            kind: "gauge",
            labels: "",
            help: "Nodes whose own health checks fail, so that they are given nothing new; at such a node, that one. Each worker counts.",
        },
        |worker| &worker.nodes_unwell,
    ),
    (
        &Family {
            name: "leat_detours",
            kind: "gauge",
            labels: "",
            help: "Networks of clients, or all of IPv4 or IPv6, that a node's own replies don't reach, so that it's proxied for them; each node and worker counts.",
        },
        |worker| &worker.detours,
    ),
    (
        &Family {
            name: "leat_connections_passed_total",
            kind: "counter",
            labels: "",
            help: "Connections that the next engine has taken, after an upgrade or a restart of the workers, or workers that stay, when others go.",
        },
        |worker| &worker.connections_passed,
    ),
    (
        &Family {
            name: "leat_connections_returned_total",
            kind: "counter",
            labels: "",
            help: "Connections that the next engine, or workers that stay, didn't take, or not as they were.",
        },
        |worker| &worker.connections_returned,
    ),
    (
        &Family {
            name: "leat_connections_taken_total",
            kind: "counter",
            labels: "",
            help: "Connections taken from the engine before, or from workers that go.",
        },
        |worker| &worker.connections_taken,
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
            help: "Requests whose file wasn't in a worker's cache, or had changed.",
        },
        |worker| &worker.cache_misses,
    ),
    (
        &Family {
            name: "leat_cache_checks_total",
            kind: "counter",
            labels: "",
            help: "Requests for which the file system was asked whether what the cache has is still the same.",
        },
        |worker| &worker.cache_checks,
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
    (
        &Family {
            name: "leat_programs",
            kind: "gauge",
            labels: "",
            help: "Programs of handlers, started by leat, that haven't ended.",
        },
        |worker| &worker.programs,
    ),
    (
        &Family {
            name: "leat_program_starts_total",
            kind: "counter",
            labels: "",
            help: "Programs started for handlers.",
        },
        |worker| &worker.program_starts,
    ),
    (
        &Family {
            name: "leat_program_restarts_total",
            kind: "counter",
            labels: "",
            help: "FastCGI programs that ended by themselves or were killed, and are started again.",
        },
        |worker| &worker.program_restarts,
    ),
];
