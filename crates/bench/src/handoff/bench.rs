//! What the cases have in common: the lab, the proxies in it, the files, and load from the client's namespace.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::HandoffOptions;
use crate::experiment::{self, Records};
use crate::lab::asking::ask_for;
use crate::lab::cost::Meter;
use crate::lab::proxy::{Place, Proxy};
use crate::lab::steered::steered_us;
use crate::lab::{self, CLIENT, CLIENT_CORE, Lab};
use crate::load::{self, Outcome, Plan};
use crate::server::running::WorkFolder;
use crate::workload::file_set::FileSet;
use crate::workload::mix::{Body, CLOSE, Mix, Target};

pub(super) const LEAT: &str = "leat";
pub(super) const HAPROXY: &str = "haproxy";
/// A node itself, without anybody in between.
pub(super) const DIRECT: &str = "direct";

const DISPATCHER: &str = "dispatcher";
/// Name and address of each node.
pub(super) const NODES: [(&str, &str); 2] = [("n1", "10.77.0.11"), ("n2", "10.77.0.12")];
const VIP: &str = "10.77.0.100";

/// A file for each size.
pub(super) struct Size {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    pub(super) bytes: u64,
}

impl Size {
    /// What is asked for, and how much comes.
    pub(super) fn wanted(&self) -> (&'static str, u64) {
        (self.file, self.bytes)
    }
}

pub(super) const SIZES: [Size; 4] = [
    Size { name: "1 KB", file: "1k", bytes: 1 << 10 },
    Size { name: "64 KB", file: "64k", bytes: 64 << 10 },
    Size { name: "1 MB", file: "1m", bytes: 1 << 20 },
    Size { name: "10 MB", file: "10m", bytes: 10 << 20 },
];

/// One measurement.
pub(super) struct Trial {
    pub(super) outcome: Outcome,
    pub(super) meter: Meter,
}

/// What the cases run on. Fields are dropped in this order: who runs first, then what they run in.
pub(crate) struct Bench {
    pub(super) options: HandoffOptions,
    pub(crate) records: Records,
    proxies: Vec<Proxy>,
    pub(super) lab: Lab,
    dispatcher: Vec<u32>,
    /// What the dispatcher's kernel takes for a packet that it sends on.
    pub(super) steered_us: f64,
    files: FileSet,
    _folder: WorkFolder,
    _programs_are_timed: std::os::fd::OwnedFd,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

impl Bench {
    pub(super) fn new(options: HandoffOptions, program: &Path) -> io::Result<Self> {
        let programs_are_timed = leat_host::steering::measure_run_time().map_err(io::Error::other)?;
        let folder = WorkFolder::create("handoff")?;
        let root = folder.path().join("files");
        let files = FileSet::of_sizes(&root, &SIZES.map(|size| (size.file, size.bytes)), options.run.seed)?;
        let lab = Lab::up(program, folder.path(), &[configuration(folder.path(), &root)])?;
        let dispatcher = lab.processes(DISPATCHER)?;
        let mut records = Records::default();
        let place = Place { lab: &lab, folder: folder.path(), host: DISPATCHER, address: VIP, servers: &NODES };
        let started = [Proxy::haproxy(place), Proxy::nginx(place)];
        let proxies = started.into_iter().filter_map(|proxy| {
            proxy.inspect_err(|error| records.note(super::case::COST, &format!("a proxy doesn't start: {error}"))).ok()
        });
        let proxies = proxies.collect();
        let [n1, n2] = NODES.map(|(name, _)| lab.processes(name));
        let steered_us = steered_us(&lab, &[&dispatcher[..], &n1?, &n2?].concat(), || {
            let begin = |address| {
                let mut stream = TcpStream::connect(address)?;
                ask_for(&mut stream, SIZES[0].wanted()).map(|_| stream)
            };
            Ok([begin(vip())?, begin(Self::node())?])
        })?;
        let _folder = folder;
        let _programs_are_timed = programs_are_timed;
        Ok(Self { options, records, proxies, lab, dispatcher, steered_us, files, _folder, _programs_are_timed })
    }

    /// Who stands between client and nodes, and where.
    pub(super) fn dispatchers(&self) -> Vec<(&'static str, SocketAddr)> {
        let proxies = self.proxies.iter().map(|proxy| (proxy.name, proxy.address));
        std::iter::once((LEAT, vip())).chain(proxies).collect()
    }

    /// One of the nodes.
    pub(super) fn node() -> SocketAddr {
        SocketAddr::new(NODES[0].1.parse().expect("it's written as an address"), 80)
    }

    fn processes(&self, name: &str) -> Vec<u32> {
        let proxy = self.proxies.iter().find(|proxy| proxy.name == name);
        proxy.map_or_else(|| self.dispatcher.clone(), Proxy::processes)
    }

    /// Requests for one file, on connections that the server closes after each where `close` says so.
    pub(super) fn requests(&self, file: &str, close: bool) -> Mix {
        let content = self.files.content(file);
        let body = content.map_or(Body::Unknown, |(_, content)| Body::Seeded(content));
        let fields = if close { CLOSE } else { "" };
        let target = Target::of_host(VIP, &format!("/{file}"), fields);
        Mix::new(vec![(target.with_body(content.map(|(bytes, _)| bytes), body), 1.0)])
    }

    /// A closed loop, for one measurement. Every eighth body is compared.
    pub(super) fn saturate(&self, address: SocketAddr, connections: usize) -> Plan {
        Plan {
            warm_up: Duration::from_millis(200),
            window: Duration::from_secs_f64(self.options.run.seconds),
            drain: Duration::from_secs(2),
            verify_every: 8,
            seed: self.options.run.seed,
            sleep: true,
            ..Plan::saturate(address, connections)
        }
    }

    /// Runs a load in the client's namespace, and reads what `name` spends meanwhile.
    ///
    /// # Errors
    /// The load can't run, or a reply failed.
    pub(super) fn measure(&self, name: &str, plan: &Plan, mix: &Mix) -> io::Result<Trial> {
        let mut meter = Meter::new(self.processes(name));
        let outcome = self.lab.at(CLIENT, CLIENT_CORE, || load::run(plan, mix, &mut meter))?;
        Ok(Trial { outcome, meter })
    }
}

/// All nodes serve `root`.
fn configuration(folder: &Path, root: &Path) -> String {
    let nodes: String = NODES
        .iter()
        .map(|(name, address)| format!("[[cluster.node]]\nname = '{name}'\naddress = '{address}'\n"))
        .collect();
    format!(
        "[admin]\nlisten = ''\nsocket = '{}'\n[cluster]\nvip = '{VIP}:80'\ndispatchers = '10.77.0.1'\n\
         key_file = 'cluster.key'\npolicy = 'round_robin'\n{nodes}[[site]]\nroot = '{}'\nlisten = '0.0.0.0:80'\n{}",
        Lab::socket(folder).display(),
        root.display(),
        lab::processors(),
    )
}

/// leat's address.
pub(super) fn vip() -> SocketAddr {
    SocketAddr::new(VIP.parse().expect("it's written as an address"), 80)
}
