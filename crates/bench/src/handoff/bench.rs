//! What the cases have in common: the lab, the proxies in it, the files, and load from the client's namespace.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leat::ctl::Command;

use super::HandoffOptions;
use crate::experiment::{self, Records, RunOptions};
use crate::lab::asking::ask_for;
use crate::lab::cost::{Meter, WholeMeter};
use crate::lab::placed::Placed;
use crate::lab::proxy::{Balance, Place, Proxy};
use crate::lab::steered::steered_us;
use crate::lab::{self, CLIENT, CLIENT_CORE, DISPATCHER, Lab};
use crate::load::{self, Outcome, Plan};
use crate::server::running::WorkFolder;
use crate::server::{self, Site};
use crate::workload::file_set::FileSet;
use crate::workload::mix::{CLOSE, Mix, Target};
use crate::workload::specweb99::SetFile;

pub(crate) const LEAT: &str = "leat";
pub(crate) const HAPROXY: &str = "haproxy";
/// A node itself, without anybody in between.
pub(super) const DIRECT: &str = "direct";

/// Name and address of each node.
pub(crate) const NODES: [(&str, &str); 2] = [("n1", "10.77.0.11"), ("n2", "10.77.0.12")];
const VIP: &str = "10.77.0.100";

/// A file for each size.
pub(crate) struct Size {
    pub(crate) name: &'static str,
    pub(super) file: &'static str,
    pub(super) bytes: u64,
}

impl Size {
    /// What is asked for, and how much comes.
    pub(super) fn wanted(&self) -> (&'static str, u64) {
        (self.file, self.bytes)
    }
}

pub(crate) const SIZES: [Size; 4] = [
    Size { name: "1 KB", file: "1k", bytes: 1 << 10 },
    Size { name: "64 KB", file: "64k", bytes: 64 << 10 },
    Size { name: "1 MB", file: "1m", bytes: 1 << 20 },
    Size { name: "10 MB", file: "10m", bytes: 10 << 20 },
];

/// Of these sizes, from the smallest on, there are as many files as contents that are spread over the nodes.
pub(super) const SPREAD_SIZES: usize = 3;
const SPREAD_FILES: usize = 24;

fn spread_file(size: &Size, number: usize) -> String {
    format!("spread/{}-{number}", size.file)
}

/// One measurement.
pub(super) struct Trial {
    pub(super) outcome: Outcome,
    pub(super) meter: Meter,
    /// Processor time of all within the window: servers, dispatchers, the client.
    pub(super) whole: Duration,
}

/// What the cases run on. Fields are dropped in this order: who runs first, then what they run in.
pub(crate) struct Bench {
    pub(super) options: HandoffOptions,
    pub(crate) records: Records,
    proxies: Vec<Proxy>,
    /// At the nodes, where these aren't leat's own.
    _servers: Vec<Placed>,
    pub(crate) lab: Lab,
    dispatcher: Vec<u32>,
    /// What the dispatcher's kernel takes for a packet that it sends on.
    pub(super) steered_us: f64,
    /// Of all nodes, or of each.
    files: Vec<FileSet>,
    _folder: WorkFolder,
    _programs_are_timed: std::os::fd::OwnedFd,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

impl Bench {
    pub(crate) fn new(options: HandoffOptions, program: &Path) -> io::Result<Self> {
        let programs_are_timed = leat_host::steering::measure_run_time().map_err(io::Error::other)?;
        let folder = WorkFolder::create("handoff")?;
        let roots: Vec<PathBuf> = match options.by_content {
            true => NODES.iter().map(|(name, _)| folder.path().join(format!("files-{name}"))).collect(),
            false => vec![folder.path().join("files")],
        };
        let seeds = options.run.seed..;
        let files = roots.iter().zip(seeds).map(|(root, seed)| FileSet::create(root, all_files(), seed));
        let files = files.collect::<io::Result<_>>()?;
        let lab = Lab::up(program, folder.path(), &[configuration(folder.path(), &roots[0], &options)])?;
        let servers = if options.nginx { nginx_at_nodes(&lab, &roots, folder.path())? } else { Vec::new() };
        let dispatcher = lab.processes(DISPATCHER)?;
        let mut records = Records::default();
        let place = Place { lab: &lab, folder: folder.path(), host: DISPATCHER, address: VIP, servers: &NODES };
        let balance = if options.by_content { Balance::ByContent } else { Balance::InTurn };
        let started = [Proxy::haproxy(place, balance), Proxy::nginx(place, balance)];
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
        let _servers = servers;
        Ok(Self {
            options,
            records,
            proxies,
            _servers,
            lab,
            dispatcher,
            steered_us,
            files,
            _folder,
            _programs_are_timed,
        })
    }

    pub(crate) fn run_options(&self) -> &RunOptions {
        &self.options.run
    }

    /// Who stands between client and nodes, and where.
    pub(crate) fn dispatchers(&self) -> Vec<(&'static str, SocketAddr)> {
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

    /// Requests for files by their weights, on connections that the server closes after each where `close` says so.
    pub(super) fn requests(&self, files: &[(&str, f64)], close: bool) -> Mix {
        let fields = if close { CLOSE } else { "" };
        let target = |&(file, weight): &(&str, f64)| {
            let (bytes, body) = FileSet::body(&self.files, file);
            (Target::of_host(VIP, &format!("/{file}"), fields).with_body(bytes, body), weight)
        };
        Mix::new(files.iter().map(target).collect())
    }

    /// Requests for many files of a size, by Zipf with alpha 1.
    pub(crate) fn spread_requests(&self, size: &Size) -> Mix {
        let names: Vec<String> = (0..SPREAD_FILES).map(|number| spread_file(size, number)).collect();
        let weights = (1..).map(|rank| 1.0 / f64::from(rank));
        self.requests(&names.iter().map(String::as_str).zip(weights).collect::<Vec<_>>(), false)
    }

    /// How often connections have come to a node so far, and requests have been answered there.
    pub(super) fn changes(&self) -> io::Result<Changes> {
        let answer = self.lab.ask(&Command::Flows)?;
        let number = |key: &str| answer[key].as_u64().unwrap_or_default() as f64;
        let transplants = self.lab.number("leat_transplants_total")? as f64;
        Ok(Changes { moved: number("moved") + transplants, born: number("born") })
    }

    /// The dispatcher's histogram of hand-overs so far.
    pub(super) fn handoffs(&self) -> io::Result<Handoffs> {
        let answer = self.lab.ask(&Command::Counters)?;
        let text = answer["text"].as_str().unwrap_or_default();
        let sum = |suffix| -> f64 {
            let lines = text.lines().filter_map(|line| line.strip_prefix("leat_handoff_seconds")?.strip_prefix(suffix));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        Ok(Handoffs { count: sum("_count"), sum_s: sum("_sum") })
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
        let [(n1, _), (n2, _)] = NODES;
        let whole = WholeMeter::new(&self.lab, &[CLIENT, DISPATCHER, n1, n2])?;
        let mut meters = (Meter::new(self.processes(name)), whole);
        let outcome = self.lab.at(CLIENT, CLIENT_CORE, || load::run(plan, mix, &mut meters))?;
        let (meter, whole) = meters;
        Ok(Trial { outcome, meter, whole: whole.spent })
    }
}

/// Flows that came to nodes: those that were moved or went on there, and those that began there.
#[derive(Clone, Copy)]
pub(super) struct Changes {
    moved: f64,
    born: f64,
}

impl Changes {
    pub(super) fn since(self, before: Changes) -> Changes {
        Changes { moved: self.moved - before.moved, born: self.born - before.born }
    }

    /// Moves for each request, where all connections begin at nodes and have so many.
    pub(super) fn for_each_of(self, requests: u32) -> f64 {
        self.moved / (self.born * f64::from(requests)).max(1.0)
    }
}

/// Hand-overs and their times in sum.
#[derive(Clone, Copy)]
pub(super) struct Handoffs {
    pub(super) count: f64,
    sum_s: f64,
}

impl Handoffs {
    pub(super) fn since(self, before: Handoffs) -> Handoffs {
        Handoffs { count: self.count - before.count, sum_s: self.sum_s - before.sum_s }
    }

    pub(super) fn mean_us(self) -> f64 {
        self.sum_s * 1e6 / self.count.max(1.0)
    }
}

fn all_files() -> Vec<SetFile> {
    let file = |path, bytes| SetFile { path, bytes, weight: 1.0 };
    let spread = SIZES[..SPREAD_SIZES]
        .iter()
        .flat_map(|size| (0..SPREAD_FILES).map(move |number| file(spread_file(size, number), size.bytes)));
    SIZES.iter().map(|size| file(size.file.to_owned(), size.bytes)).chain(spread).collect()
}

/// Has nginx serve the nodes' roots, or the one of all, at all nodes; returns when the dispatcher gives them connections.
fn nginx_at_nodes(lab: &Lab, roots: &[PathBuf], folder: &Path) -> io::Result<Vec<Placed>> {
    let nginx = server::nginx(None)?;
    let start = |((host, address), root): ((&str, &str), &PathBuf)| {
        let site = Site { root: root.clone(), only_file: None, close: false };
        let address = SocketAddr::new(address.parse().map_err(io::Error::other)?, 80);
        Placed::start(lab, host, nginx.as_ref(), &site, (address, lab::node_core()), folder)
    };
    let placed = NODES.into_iter().zip(roots.iter().cycle()).map(start).collect::<io::Result<Vec<_>>>()?;
    lab.await_fit(&NODES.map(|(name, _)| name))?;
    Ok(placed)
}

/// All nodes serve `root`, by themselves or by nginx.
fn configuration(folder: &Path, root: &Path, options: &HandoffOptions) -> String {
    let server = |address| if options.nginx { format!("port = 80\nfor = '{address}:80'\n") } else { String::new() };
    let node =
        |(name, address)| format!("[[cluster.node]]\nname = '{name}'\naddress = '{address}'\n{}", server(address));
    let nodes: String = NODES.into_iter().map(node).collect();
    let health = if options.nginx { "[cluster.health]\npath = '/1k'\nslow_start = '0s'\n" } else { "" };
    let policy = if options.by_content { "mix_lard" } else { "round_robin" };
    let site = format!("[[site]]\nroot = '{}'\nlisten = '0.0.0.0:80'\n", root.display());
    format!(
        "[admin]\nlisten = ''\nsocket = '{}'\n[cluster]\nvip = '{VIP}:80'\ndispatchers = '10.77.0.1'\n\
         key_file = 'cluster.key'\npolicy = '{policy}'\n{health}{nodes}{}{}{}",
        Lab::socket(folder).display(),
        if options.nginx { "" } else { &site },
        lab::processors(),
        if options.frames { "offloads = false\n" } else { "" },
    )
}

/// leat's address.
pub(super) fn vip() -> SocketAddr {
    SocketAddr::new(VIP.parse().expect("it's written as an address"), 80)
}
