//! What the cases have in common: files, a lab for each setup, and load from the client's namespace with every machine's clock read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::SplitOptions;
use super::setup::{Kind, Setup};
use crate::experiment::{self, Records};
use crate::lab::cost::{LinkMeter, Meter, Spent, hop_us};
use crate::lab::proxy::{Balance, Place, Proxy};
use crate::lab::{CLIENT, CLIENT_CORE, Lab};
use crate::load::{self, Demand, Observer, Outcome, Plan, Spacing};
use crate::server::running::WorkFolder;
use crate::workload::file_set::FileSet;
use crate::workload::mix::{Body, CLOSE, Mix, Target};

/// A file for each size.
pub(super) struct Size {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    pub(super) bytes: u64,
}

/// The paper's, and the two of today.
pub(super) const SIZES: [Size; 8] = [
    Size { name: "4 KB", file: "4k", bytes: 4 << 10 },
    Size { name: "8 KB", file: "8k", bytes: 8 << 10 },
    Size { name: "16 KB", file: "16k", bytes: 16 << 10 },
    Size { name: "32 KB", file: "32k", bytes: 32 << 10 },
    Size { name: "64 KB", file: "64k", bytes: 64 << 10 },
    Size { name: "128 KB", file: "128k", bytes: 128 << 10 },
    Size { name: "1 MB", file: "1m", bytes: 1 << 20 },
    Size { name: "10 MB", file: "10m", bytes: 10 << 20 },
];

pub(super) fn size(name: &str) -> &'static Size {
    SIZES.iter().find(|size| size.name == name).expect("cases name sizes that there are")
}

/// What the cases run on.
pub(crate) struct Bench {
    pub(super) options: SplitOptions,
    pub(crate) records: Records,
    program: PathBuf,
    files: FileSet,
    folder: WorkFolder,
    /// What a hop more takes, by what links carry: the same for all setups, as two measurements of it differ by more than setups do.
    hops_us: RefCell<BTreeMap<Option<u32>, f64>>,
    _programs_are_timed: std::os::fd::OwnedFd,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

/// A load, on all connections together.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) connections: usize,
    /// Requests that a connection has; one is asked for to be the last. None: all that there is time for.
    pub(super) requests: Option<u32>,
    /// In a second, and none for a closed loop.
    pub(super) rate: Option<f64>,
    pub(super) warm_up: Duration,
    pub(super) window: Duration,
    /// How long replies are waited for after it.
    pub(super) drain: Duration,
    /// It ends early after so many on one machine.
    pub(super) requests_max: u64,
    /// The body of each n-th reply is compared.
    pub(super) verify_every: u64,
}

/// What a machine has spent on a request that the cluster has answered, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) process: f64,
    /// eBPF.
    pub(super) programs: f64,
    /// What the kernel does for packets that arrive, whoever's time that is.
    pub(super) packets: f64,
}

impl Cost {
    pub(super) fn total(&self) -> f64 {
        self.process + self.programs + self.packets
    }
}

/// One measurement.
pub(super) struct Trial {
    /// One for each machine that clients know.
    pub(super) outcomes: Vec<Outcome>,
    /// Of each machine, those that clients know first.
    pub(super) spent: Vec<Spent>,
    /// What all machines have sent on their links, where those are limited.
    pub(super) link_bytes: u64,
    pub(super) hop_us: f64,
}

impl Trial {
    pub(super) fn answered(&self) -> u64 {
        self.outcomes.iter().map(|outcome| outcome.answered).sum()
    }

    pub(super) fn answered_per_s(&self) -> f64 {
        self.outcomes.iter().map(Outcome::answered_per_s).sum()
    }

    /// Megabits of replies in a second.
    pub(super) fn mbit(&self) -> f64 {
        let of = |outcome: &Outcome| outcome.received_bytes as f64 * 8e-6 / outcome.window.as_secs_f64();
        self.outcomes.iter().map(of).sum()
    }

    /// Requests that went wrong; those that were under way when the time was up aren't among them.
    pub(super) fn failed(&self) -> u64 {
        self.outcomes.iter().map(|outcome| outcome.failed() - outcome.left_over()).sum()
    }

    pub(super) fn costs(&self) -> Vec<Cost> {
        let each = |value: f64| value / self.answered().max(1) as f64;
        let cost = |spent: &Spent| Cost {
            process: each(spent.process.as_secs_f64() * 1e6),
            programs: each(spent.programs.as_secs_f64() * 1e6),
            packets: each(spent.packets_in as f64) * self.hop_us,
        };
        self.spent.iter().map(cost).collect()
    }
}

/// A setup that is up. Fields are dropped in this order.
pub(super) struct Cluster {
    _proxy: Option<Proxy>,
    pub(super) lab: Lab,
    processes: Vec<Vec<u32>>,
    namespaces: Vec<PathBuf>,
    pub(super) addresses: Vec<SocketAddr>,
    hop_us: f64,
}

impl Bench {
    pub(super) fn new(options: SplitOptions, program: PathBuf) -> io::Result<Self> {
        let programs_are_timed = leat_host::steering::measure_run_time().map_err(io::Error::other)?;
        let folder = WorkFolder::create("split")?;
        let root = folder.path().join("files");
        let files = FileSet::of_sizes(&root, &SIZES.map(|size| (size.file, size.bytes)), options.run.seed)?;
        let (records, _programs_are_timed) = (Records::default(), programs_are_timed);
        Ok(Self { options, records, program, files, folder, hops_us: RefCell::default(), _programs_are_timed })
    }

    /// Builds a setup, with links as fast as they can be or of so many megabits a second. Several may be up at a time.
    ///
    /// # Errors
    /// What leat or the proxy says.
    pub(super) fn up(&self, setup: &Setup, link_mbit: Option<u32>) -> io::Result<Cluster> {
        let folder = &self.folder.path().join(setup.name());
        fs::create_dir_all(folder)?;
        let files = self.folder.path().join("files");
        let lab = Lab::up(&self.program, folder, &setup.configurations(folder, &files, link_mbit))?;
        let machines = setup.hosts();
        let port = if setup.kind == Kind::Proxied { 81 } else { 80 };
        let known = machines.iter().filter_map(|machine| machine.address.as_deref());
        let socket_address = |address: &str| Ok(SocketAddr::new(address.parse().map_err(io::Error::other)?, port));
        let addresses = known.map(socket_address).collect::<io::Result<Vec<_>>>()?;
        let servers: Vec<_> =
            (1..=setup.data_servers).map(|number| (format!("n{number}"), format!("10.77.0.{}", 10 + number))).collect();
        let servers: Vec<_> = servers.iter().map(|(name, address)| (name.as_str(), address.as_str())).collect();
        let place = Place { lab: &lab, folder, host: &machines[0].host, address: "10.77.0.100", servers: &servers };
        let proxy = if setup.kind == Kind::Proxied { Some(Proxy::haproxy(place, Balance::InTurn)?) } else { None };
        let mut processes =
            machines.iter().map(|machine| lab.processes(&machine.host)).collect::<io::Result<Vec<_>>>()?;
        if let Some(proxy) = &proxy {
            processes[0] = proxy.processes();
        }
        let first = machines[0].address.clone().unwrap_or_default();
        let known = self.hops_us.borrow().get(&link_mbit).copied();
        let hop_us = known.map_or_else(|| hop_us(&lab, (&machines[0].host, &first)), Ok)?;
        self.hops_us.borrow_mut().insert(link_mbit, hop_us);
        let namespaces = machines.iter().map(|machine| lab.namespace(&machine.host)).collect();
        Ok(Cluster { _proxy: proxy, lab, processes, namespaces, addresses, hop_us })
    }

    fn target(&self, file: &str, close: bool) -> Target {
        let content = self.files.content(file);
        let body = content.map_or(Body::Unknown, |(_, content)| Body::Seeded(content));
        let target = Target::of_host("localhost", &format!("/{file}"), if close { CLOSE } else { "" });
        target.with_body(content.map(|(bytes, _)| bytes), body)
    }

    /// Puts a load on all machines that clients know, evenly.
    ///
    /// # Errors
    /// The load can't run.
    pub(super) fn measure(&self, cluster: &Cluster, size: &Size, load: &Load) -> io::Result<Trial> {
        self.measure_mix(cluster, &[(size, 1.0)], load)
    }

    /// The same with several sizes, each with its weight.
    ///
    /// # Errors
    /// As [`Bench::measure`].
    pub(super) fn measure_mix(&self, cluster: &Cluster, sizes: &[(&Size, f64)], load: &Load) -> io::Result<Trial> {
        let close = load.requests == Some(1);
        let mix = Mix::new(sizes.iter().map(|(size, weight)| (self.target(size.file, close), *weight)).collect());
        let known = cluster.addresses.len();
        let plan = |address: &SocketAddr| Plan {
            demand: load.rate.map_or(Demand::Saturate, |rate| Demand::Rate {
                per_s: rate / known as f64,
                spacing: Spacing::Poisson,
            }),
            requests_per_connection: load.requests,
            warm_up: load.warm_up,
            window: load.window,
            drain: load.drain,
            requests_max: load.requests_max,
            verify_every: load.verify_every,
            seed: self.options.run.seed,
            sleep: true,
            ..Plan::saturate(*address, (load.connections / known).max(1))
        };
        let plans: Vec<Plan> = cluster.addresses.iter().map(plan).collect();
        let parts: Vec<_> = plans.iter().map(|plan| (plan, &mix)).collect();
        let mut meters = Meters {
            machines: cluster.processes.iter().map(|pids| Meter::new(pids.clone())).collect(),
            links: cluster.namespaces.iter().cloned().map(LinkMeter::new).collect(),
        };
        let outcomes = cluster.lab.at(CLIENT, CLIENT_CORE, || load::run_together(&parts, &mut meters))?;
        let spent = meters.machines.iter().map(|meter| meter.spent).collect();
        let link_bytes = meters.links.iter().map(|link| link.sent_bytes).sum();
        Ok(Trial { outcomes, spent, link_bytes, hop_us: cluster.hop_us })
    }
}

/// Reads the clocks of all machines, and what they send.
struct Meters {
    machines: Vec<Meter>,
    links: Vec<LinkMeter>,
}

impl Observer for Meters {
    fn window_begins(&mut self) {
        self.links.iter_mut().for_each(Observer::window_begins);
        self.machines.iter_mut().for_each(Observer::window_begins);
    }

    fn window_ends(&mut self) {
        self.machines.iter_mut().for_each(Observer::window_ends);
        self.links.iter_mut().for_each(Observer::window_ends);
    }
}
