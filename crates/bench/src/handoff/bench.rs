//! What the cases have in common: the lab, the proxies in it, the files, and load from the client's namespace.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use leat::ctl::Command;

use super::HandoffOptions;
use crate::experiment::{self, Records};
use crate::lab::asking::ask_for;
use crate::lab::cost::Meter;
use crate::lab::placed::Placed;
use crate::lab::proxy::{Place, Proxy};
use crate::lab::steered::steered_us;
use crate::lab::{self, CLIENT, CLIENT_CORE, DISPATCHER, Lab};
use crate::load::{self, Outcome, Plan};
use crate::server::running::WorkFolder;
use crate::server::{self, Site};
use crate::workload::file_set::FileSet;
use crate::workload::mix::{Body, CLOSE, Mix, Target};
use crate::workload::specweb99::SetFile;

pub(super) const LEAT: &str = "leat";
pub(super) const HAPROXY: &str = "haproxy";
/// A node itself, without anybody in between.
pub(super) const DIRECT: &str = "direct";

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
}

/// What the cases run on. Fields are dropped in this order: who runs first, then what they run in.
pub(crate) struct Bench {
    pub(super) options: HandoffOptions,
    pub(crate) records: Records,
    proxies: Vec<Proxy>,
    /// At the nodes, where these aren't leat's own.
    _servers: Vec<Placed>,
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
        let files = FileSet::create(&root, all_files(), options.run.seed)?;
        let lab = Lab::up(program, folder.path(), &[configuration(folder.path(), &root, &options)])?;
        let servers = if options.nginx { nginx_at_nodes(&lab, &root, folder.path())? } else { Vec::new() };
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

    /// Requests for files by their weights, on connections that the server closes after each where `close` says so.
    pub(super) fn requests(&self, files: &[(&str, f64)], close: bool) -> Mix {
        let fields = if close { CLOSE } else { "" };
        let target = |&(file, weight): &(&str, f64)| {
            let content = self.files.content(file);
            let body = content.map_or(Body::Unknown, |(_, content)| Body::Seeded(content));
            let target = Target::of_host(VIP, &format!("/{file}"), fields);
            (target.with_body(content.map(|(bytes, _)| bytes), body), weight)
        };
        Mix::new(files.iter().map(target).collect())
    }

    /// Requests for many files of a size, by Zipf with alpha 1.
    pub(super) fn spread_requests(&self, size: &Size) -> Mix {
        let names: Vec<String> = (0..SPREAD_FILES).map(|number| spread_file(size, number)).collect();
        let weights = (1..).map(|rank| 1.0 / f64::from(rank));
        self.requests(&names.iter().map(String::as_str).zip(weights).collect::<Vec<_>>(), false)
    }

    /// How often connections have come to a node so far, and requests have been answered there.
    pub(super) fn changes(&self) -> io::Result<Changes> {
        let answer = self.lab.ask(&Command::Flows)?;
        let number = |key: &str| answer[key].as_u64().unwrap_or_default() as f64;
        Ok(Changes { moved: number("moved"), born: number("born") })
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
        let mut meter = Meter::new(self.processes(name));
        let outcome = self.lab.at(CLIENT, CLIENT_CORE, || load::run(plan, mix, &mut meter))?;
        Ok(Trial { outcome, meter })
    }
}

/// Flows that came to nodes: moved ones, and those that began there.
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

/// Has nginx serve `root` at all nodes; returns when the dispatcher gives them connections.
fn nginx_at_nodes(lab: &Lab, root: &Path, folder: &Path) -> io::Result<Vec<Placed>> {
    let nginx = server::nginx(None)?;
    let site = Site { root: root.to_owned(), only_file: None, close: false };
    let start = |(host, address): (&str, &str)| {
        let address = SocketAddr::new(address.parse().map_err(io::Error::other)?, 80);
        Placed::start(lab, host, nginx.as_ref(), &site, (address, lab::node_core()), folder)
    };
    let placed = NODES.into_iter().map(start).collect::<io::Result<Vec<_>>>()?;
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
    let site = format!("[[site]]\nroot = '{}'\nlisten = '0.0.0.0:80'\n", root.display());
    format!(
        "[admin]\nlisten = ''\nsocket = '{}'\n[cluster]\nvip = '{VIP}:80'\ndispatchers = '10.77.0.1'\n\
         key_file = 'cluster.key'\npolicy = 'round_robin'\n{health}{nodes}{}{}{}",
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
