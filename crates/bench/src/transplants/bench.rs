//! What the cases run on: `handoff`'s lab of nodes with nginx, with proxies beside the dispatcher, or labs of their own where packets are lost and addresses are of
//! both families.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::TransplantOptions;
use crate::experiment::{self, Records};
use crate::handoff::HandoffOptions;
use crate::handoff::bench::Bench as Beside;
use crate::lab::placed::Placed;
use crate::lab::{self, CLIENT, CLIENT_CORE, Lab, faults};
use crate::load::{self, Outcome, Plan, Unobserved};
use crate::server::running::WorkFolder;
use crate::server::{self, Site};
use crate::workload::file_set::FileSet;
use crate::workload::mix::{Mix, Target};
use crate::workload::specweb99::SetFile;

/// The cluster's address in each family.
pub(super) const VIPS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 77, 0, 100)), IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0x100))];
/// Name and addresses of each node.
const NODES: [(&str, [IpAddr; 2]); 2] = [node("n1", 11), node("n2", 12)];
/// Where the servers listen.
const PORT: u16 = 8080;
/// What each node has for the dispatcher's checks.
const WELL: &str = "well";

const fn node(name: &str, last: u8) -> (&str, [IpAddr; 2]) {
    // Written as the lab does it: 10.77.0.11 and fd77::11.
    let hexadecimal = (last / 10 * 16 + last % 10) as u16;
    let v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, hexadecimal);
    (name, [IpAddr::V4(Ipv4Addr::new(10, 77, 0, last)), IpAddr::V6(v6)])
}

/// How often a size is asked for, of how many files, by Zipf with alpha 1.
struct Size {
    name: &'static str,
    bytes: u64,
    files: u32,
    weight: f64,
}

const SIZES: [Size; 6] = [
    Size { name: "1k", bytes: 1 << 10, files: 12, weight: 1.0 },
    Size { name: "4k", bytes: 4 << 10, files: 12, weight: 1.0 },
    Size { name: "16k", bytes: 16 << 10, files: 12, weight: 1.0 },
    Size { name: "64k", bytes: 64 << 10, files: 12, weight: 1.0 },
    Size { name: "1m", bytes: 1_000_000, files: 2, weight: 0.03 },
    Size { name: "10m", bytes: 10_000_000, files: 2, weight: 0.003 },
];

/// Who has what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Nodes serve different paths; what one has, the other hasn't.
    Paths,
    /// All have the same, and each content has its node by Mix-LARD. Bytes are each node's own, so that they say whose they are.
    MixLard,
}

impl Layout {
    pub(super) const ALL: [Layout; 2] = [Layout::Paths, Layout::MixLard];

    pub(super) fn name(self) -> &'static str {
        match self {
            Layout::Paths => "different paths",
            Layout::MixLard => "Mix-LARD",
        }
    }

    /// The folder below a node's root that has its files.
    fn folder(self, node: &str) -> &str {
        match self {
            Layout::Paths => node,
            Layout::MixLard => "all",
        }
    }

    /// What is in the configuration of a node.
    fn of_node(self, node: &str) -> String {
        match self {
            Layout::Paths => format!("paths = '/{}/*'\n", self.folder(node)),
            Layout::MixLard => String::new(),
        }
    }

    /// What is in that of the cluster. However many wait for lost packets, no node has too much to do: all contents would be at all nodes then, and no connection
    /// would have to go anywhere.
    fn of_cluster(self) -> &'static str {
        match self {
            Layout::Paths => "policy = 'round_robin'\n",
            Layout::MixLard => "policy = 'mix_lard'\n[cluster.mix_lard]\nload_low = 1000\nload_high = 2000\n",
        }
    }
}

pub(crate) struct Bench {
    pub(super) options: TransplantOptions,
    pub(crate) records: Records,
    program: std::path::PathBuf,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

impl Bench {
    pub(super) fn new(options: TransplantOptions, program: &Path) -> Self {
        Self { options, records: Records::default(), program: program.to_owned() }
    }

    /// Does something on a lab with proxies beside the dispatcher, and keeps what is written down there.
    ///
    /// # Errors
    /// The lab can't be built, and those of `work`.
    pub(super) fn beside_proxies(&mut self, work: impl FnOnce(&mut Beside) -> io::Result<()>) -> io::Result<()> {
        let mut beside = Beside::new(HandoffOptions::by_content_at_nginx(self.options.run.clone()), &self.program)?;
        let done = work(&mut beside);
        self.records.take_in(std::mem::take(&mut beside.records));
        done
    }

    /// Builds a lab in which nothing else runs.
    ///
    /// # Errors
    /// What leat says, or nginx isn't installed.
    pub(super) fn up(&self, layout: Layout) -> io::Result<Cluster> {
        let folder = WorkFolder::create("transplants")?;
        let roots = NODES.map(|(name, _)| folder.path().join(format!("files-{name}")));
        let seeds = self.options.run.seed..;
        let made = roots.iter().zip(NODES).zip(seeds);
        let files = made.map(|((root, (name, _)), seed)| FileSet::create(root, files(layout.folder(name)), seed));
        let files = files.collect::<io::Result<Vec<_>>>()?;
        let lab = Lab::up(&self.program, folder.path(), &[configuration(layout, folder.path())])?;
        let start = |((host, [v4, v6]), root): ((&str, [IpAddr; 2]), _)| {
            let nginx = server::nginx(Some(SocketAddr::new(v6, PORT)))?;
            let site = Site { root, only_file: None, close: false };
            let at = (SocketAddr::new(v4, PORT), lab::node_core());
            Placed::start(&lab, host, nginx.as_ref(), &site, at, folder.path())
        };
        let servers = NODES.into_iter().zip(roots).map(start).collect::<io::Result<Vec<_>>>()?;
        lab.await_fit(&NODES.map(|(name, _)| name))?;
        Ok(Cluster { layout, _servers: servers, lab, files, folder })
    }
}

/// A lab that is up. Fields are dropped in this order: who runs first, then what they run in.
pub(super) struct Cluster {
    layout: Layout,
    _servers: Vec<Placed>,
    pub(super) lab: Lab,
    files: Vec<FileSet>,
    folder: WorkFolder,
}

impl Cluster {
    /// Requests for all there is on kept connections, whose node is another one than the last one's every second time or nearly so.
    pub(super) fn requests(&self) -> Mix {
        let folders = NODES.map(|(name, _)| self.layout.folder(name));
        let mut paths: Vec<(String, f64)> = folders.iter().flat_map(|folder| paths(folder)).collect();
        if self.layout == Layout::MixLard {
            // Both have the same.
            paths.truncate(paths.len() / NODES.len());
        }
        let target = |(path, weight): (String, f64)| {
            let (bytes, body) = FileSet::body(&self.files, &path);
            (Target::of_host("leat.test", &format!("/{path}"), "").with_body(bytes, body), weight)
        };
        Mix::new(paths.into_iter().map(target).collect())
    }

    /// From now on packets are lost, as [`faults::lose_packets`] says.
    ///
    /// # Errors
    /// Likewise.
    pub(super) fn lose_packets(&self) -> io::Result<()> {
        faults::lose_packets(&self.lab, &NODES.map(|(name, _)| name), &VIPS)
    }

    /// # Errors
    /// The load can't run.
    pub(super) fn run(&self, plan: &Plan, mix: &Mix) -> io::Result<Outcome> {
        self.lab.at(CLIENT, CLIENT_CORE, || load::run(plan, mix, &mut Unobserved))
    }

    /// What the nodes' servers complain of, each with its node.
    ///
    /// # Errors
    /// A log can't be read.
    pub(super) fn complaints(&self) -> io::Result<Vec<String>> {
        let of = |(name, _): (&str, _)| {
            let log = std::fs::read_to_string(self.folder.path().join(format!("nginx-{name}/error.log")))?;
            Ok(log.lines().map(|line| format!("{name}: {line}")).collect::<Vec<_>>())
        };
        Ok(NODES.into_iter().map(of).collect::<io::Result<Vec<_>>>()?.concat())
    }
}

/// All files of a folder, and how often each is asked for.
fn paths(folder: &str) -> impl Iterator<Item = (String, f64)> {
    let of = move |size: &'static Size| {
        let number =
            move |number: u32| (format!("{folder}/{}-{number}", size.name), size.weight / f64::from(number + 1));
        (0..size.files).map(number)
    };
    SIZES.iter().flat_map(of)
}

fn files(folder: &str) -> Vec<SetFile> {
    let bytes = SIZES.iter().flat_map(|size| (0..size.files).map(|_| size.bytes));
    let file = |((path, weight), bytes)| SetFile { path, bytes, weight };
    let well = SetFile { path: WELL.to_owned(), bytes: 1, weight: 0.0 };
    paths(folder).zip(bytes).map(file).chain([well]).collect()
}

/// Both families' addresses as the configuration has them.
fn both(addresses: [IpAddr; 2], port: Option<u16>) -> String {
    let text = addresses.map(|address| match port {
        Some(port) => format!("'{}'", SocketAddr::new(address, port)),
        None => format!("'{address}'"),
    });
    format!("[{}]", text.join(", "))
}

fn configuration(layout: Layout, folder: &Path) -> String {
    let node = |(name, addresses): (&str, [IpAddr; 2])| {
        let (address, server) = (both(addresses, None), both(addresses, Some(PORT)));
        let paths = layout.of_node(name);
        format!("[[cluster.node]]\nname = '{name}'\naddress = {address}\nport = {PORT}\nfor = {server}\n{paths}")
    };
    format!(
        "[admin]\nlisten = ''\nsocket = '{}'\n[cluster]\nvip = {}\ndispatchers = ['10.77.0.1', 'fd77::1']\nkey_file = 'cluster.key'\n\
         {}[cluster.health]\npath = '/{WELL}'\nslow_start = '0s'\n{}{}",
        Lab::socket(folder).display(),
        both(VIPS, Some(80)),
        layout.of_cluster(),
        NODES.into_iter().map(node).collect::<String>(),
        lab::processors(),
    )
}

/// A closed loop of so many connections, for so many requests or so long. Every body is compared.
pub(super) fn plan(vip: IpAddr, connections: usize, requests: u64, longest: Duration) -> Plan {
    Plan {
        warm_up: Duration::ZERO,
        window: longest,
        drain: Duration::from_secs(60),
        requests_max: requests,
        verify_every: 1,
        sleep: true,
        ..Plan::saturate(SocketAddr::new(vip, 80), connections)
    }
}
