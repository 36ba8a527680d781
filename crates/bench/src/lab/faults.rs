//! What goes wrong in a lab on purpose, while every byte of every reply is compared: packets are lost and overtaken, servers die, or are upgraded and reloaded. And
//! what is told of it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{CLIENT, DISPATCHER, Lab, ROUTER};
use crate::experiment::{Records, Samples};
use crate::load::{Failure, Outcome};
use crate::server::running::descendants;
use crate::sys::process;

/// From one server's death to the next one's: its supervisor starts it again meanwhile.
const DEATH_EVERY: Duration = Duration::from_secs(5);

/// What tables show.
pub(crate) const COLUMNS: [(&str, &str, usize); 13] = [
    ("asked", "asked", 0),
    ("answered", "answered", 0),
    ("compared", "compared byte for byte", 0),
    ("wrong", "wrong", 0),
    ("refused", "not 200", 0),
    ("deaths", "deaths of servers", 0),
    ("upgrades", "upgrades", 0),
    ("reloads", "reloads", 0),
    ("cut", "connections cut", 0),
    ("unanswered", "never answered", 0),
    ("answered_per_s", "answered/s", 0),
    ("p99_ms", "p99 ms", 0),
    ("longest_ms", "longest ms", 0),
];

/// How clients are linked where packets are those of the wire, none larger than a frame. Between servers none is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    /// Of a hundred packets, each way.
    pub(crate) lost_percent: u32,
    /// Those that others overtake.
    pub(crate) overtaken_percent: u32,
}

impl Wire {
    /// As the lab's configuration has it.
    pub(crate) fn settings(self) -> String {
        let Self { lost_percent, overtaken_percent } = self;
        format!("offloads = false\nclient_loss = '{lost_percent}%'\nclient_reorder = '{overtaken_percent}%'\n")
    }
}

/// What is done to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its engine is killed.
    Death,
    /// To the same binary.
    Upgrade,
    /// To the same configuration.
    Reload,
}

/// What is done to which hosts, one after the other and from the first again; nothing if there are none.
pub(crate) struct Storm {
    pub(crate) each: Vec<(Fault, String)>,
    pub(crate) every: Duration,
}

/// How often something was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Happened {
    deaths: u64,
    upgrades: u64,
    reloads: u64,
}

impl Storm {
    /// Servers die in turn.
    pub(crate) fn of_deaths(hosts: Vec<String>) -> Storm {
        Storm { each: hosts.into_iter().map(|host| (Fault::Death, host)).collect(), every: DEATH_EVERY }
    }

    /// Does some work meanwhile.
    ///
    /// # Errors
    /// Those of `work`, and a server that can't be sent a signal.
    pub(crate) fn beside<T>(&self, lab: &Lab, work: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Happened)> {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let storm = scope.spawn(|| self.run(lab, &ended));
            let done = work();
            ended.store(true, Ordering::Relaxed);
            storm.thread().unpark();
            let happened = storm.join().map_err(|_| io::Error::other("the thread that sends signals panicked"))??;
            Ok((done?, happened))
        })
    }

    fn run(&self, lab: &Lab, ended: &AtomicBool) -> io::Result<Happened> {
        let mut happened = Happened::default();
        for (fault, host) in self.each.iter().cycle() {
            std::thread::park_timeout(self.every);
            if ended.load(Ordering::Relaxed) {
                break;
            }
            // A supervisor has its engines for children.
            let is_engine = |&pid: &u32| descendants(pid).len() == 1;
            let is_meant = |pid: &u32| is_engine(pid) == (*fault == Fault::Death);
            let Some(process) = lab.processes(host)?.into_iter().find(is_meant) else { continue };
            let (signal, count) = match fault {
                Fault::Death => (libc::SIGKILL, &mut happened.deaths),
                Fault::Upgrade => (libc::SIGUSR2, &mut happened.upgrades),
                Fault::Reload => (libc::SIGHUP, &mut happened.reloads),
            };
            process::signal(process, signal)?;
            *count += 1;
        }
        Ok(happened)
    }
}

/// From now on one packet in a hundred is dropped, on the router between client and servers and on the way from dispatcher to node, and none put together.
///
/// # Errors
/// nft or ethtool are missing, or refuse.
pub(crate) fn lose_packets(lab: &Lab, nodes: &[&str], vips: &[IpAddr]) -> io::Result<()> {
    let single = "for device in $(ip -o link | cut -d: -f2 | cut -d@ -f1); do [ $device = lo ] || \
                  ethtool -K $device tso off gso off gro off || exit 1; done";
    let hosts = [CLIENT, ROUTER, "switch", DISPATCHER].into_iter().chain(nodes.iter().copied());
    hosts.into_iter().try_for_each(|host| lab.run_at(host, single))?;
    let some = "numgen random mod 100 < 1 drop";
    let forwarded =
        format!("nft 'table inet loss {{ chain every {{ type filter hook forward priority 0; {some}; }}; }}'");
    lab.run_at(ROUTER, &forwarded)?;
    let to = |vip: &IpAddr| format!("{} daddr {vip} {some};", if vip.is_ipv4() { "ip" } else { "ip6" });
    let rules: String = vips.iter().map(to).collect();
    let hook = "type filter hook egress device eth0 priority 0";
    lab.run_at(DISPATCHER, &format!("nft 'table netdev loss {{ chain every {{ {hook}; {rules} }}; }}'"))
}

/// Writes down what became of the requests of the case's only round, and why `home`, which clients know, has cut connections.
///
/// # Errors
/// Its log can't be read.
pub(crate) fn record(
    records: &mut Records,
    (case, name): (&str, &str),
    (lab, home): (&Lab, &str),
    (outcome, happened): (&Outcome, Happened),
) -> io::Result<()> {
    let count = |is_meant: fn(&Failure) -> bool| {
        outcome.failures.iter().filter(|(kind, _)| is_meant(kind)).map(|(_, count)| count).sum::<u64>() as f64
    };
    let found = [
        ("asked", outcome.sent as f64),
        ("answered", outcome.answered as f64),
        ("compared", outcome.verified as f64),
        ("wrong", count(|kind| matches!(kind, Failure::Body | Failure::Length | Failure::MalformedHead))),
        ("refused", count(|kind| matches!(kind, Failure::Status(_)))),
        ("cut", count(|kind| matches!(kind, Failure::ClosedEarly | Failure::Connect))),
        ("unanswered", count(|kind| matches!(kind, Failure::Unanswered))),
        ("deaths", happened.deaths as f64),
        ("upgrades", happened.upgrades as f64),
        ("reloads", happened.reloads as f64),
        ("answered_per_s", outcome.answered_per_s()),
        ("p99_ms", outcome.latency_us(0.99) / 1e3),
        ("longest_ms", outcome.latency_ns.max() as f64 / 1e6),
    ];
    for (metric, value) in found {
        records.record((case, "", 0), name, metric, value);
    }
    if outcome.failed() > 0 {
        records.note(case, &format!("{name}: what failed, by kind: {:?}", outcome.failures));
    }
    if !outcome.cut.is_empty() {
        records.note(case, &format!("{name}: connections that were cut, of the first of them: {:?}", outcome.cut));
    }
    let log = lab.log(home)?;
    let mut reasons = BTreeMap::<_, u64>::new();
    for (_, reason) in log.lines().filter_map(|line| line.split_once("a connection is cut: ")) {
        *reasons.entry(reason).or_default() += 1;
    }
    if !reasons.is_empty() {
        records.note(case, &format!("{name}: connections that {home} has cut so far, by reason: {reasons:?}"));
    }
    Ok(())
}

/// What is asked of a case: its words, what was counted, and what it may be at most.
pub(crate) fn judged(samples: &Samples, case: &str, name: &str, requests: f64) -> [(String, Option<f64>, f64); 5] {
    let of = |metric| samples.median(case, "", name, metric);
    let missing = of("asked").map(|asked| (requests - asked).max(0.0));
    [
        ("replies with a wrong byte".to_owned(), of("wrong"), 0.0),
        ("connections cut".to_owned(), of("cut"), 0.0),
        ("requests that were never answered".to_owned(), of("unanswered"), 0.0),
        ("requests that were refused".to_owned(), of("refused"), 0.0),
        (format!("requests that are missing to {requests}"), missing, 0.0),
    ]
}
