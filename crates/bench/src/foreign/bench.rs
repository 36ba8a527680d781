//! What the cases have in common: the lab, the files, a server at the nodes, and load from the client's namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use leat::ctl;

use super::ForeignOptions;
use crate::experiment::{self, Records};
use crate::lab::cost::Meter;
use crate::lab::origin::{ADDRESS, Origin};
use crate::lab::placed::Placed;
use crate::lab::{self, CLIENT, CLIENT_CORE, Lab, faults};
use crate::load::{self, Outcome, Plan};
use crate::server::running::WorkFolder;
use crate::server::squid::Squid;
use crate::server::tomcat::Tomcat;
use crate::server::{self, Server, Site};
use crate::workload::content::Content;
use crate::workload::file_set::FileSet;
use crate::workload::mix::{Body, CLOSE, Mix, Target};

const VIP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 100));
/// Name and address of each node, and the core of its server.
pub(super) const NODES: [(&str, IpAddr, usize); 2] =
    [("n1", IpAddr::V4(Ipv4Addr::new(10, 77, 0, 11)), 2), ("n2", IpAddr::V4(Ipv4Addr::new(10, 77, 0, 12)), 3)];
/// Where the servers listen.
const PORT: u16 = 8080;

/// A file for each size.
pub(super) const SIZES: [(&str, &str, u64); 4] =
    [("1 KB", "1k", 1 << 10), ("4 KB", "4k", 4 << 10), ("16 KB", "16k", 16 << 10), ("64 KB", "64k", 64 << 10)];

/// Files that are much longer.
pub(super) const LARGE: [(&str, u64); 3] = [("1m", 1_000_000), ("10m", 10_000_000), ("100m", 100_000_000)];

/// What the cases run on. Fields are dropped in this order: who runs first, then what they run in.
pub(crate) struct Bench {
    pub(super) options: ForeignOptions,
    pub(crate) records: Records,
    _origin: Origin,
    lab: Lab,
    files: FileSet,
    site: Site,
    folder: WorkFolder,
    _programs_are_timed: std::os::fd::OwnedFd,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

impl Bench {
    pub(super) fn new(options: ForeignOptions, program: &Path) -> io::Result<Self> {
        let _programs_are_timed = leat_host::steering::measure_run_time().map_err(io::Error::other)?;
        let folder = WorkFolder::create("foreign")?;
        let root = folder.path().join("files");
        let sizes = [SIZES.map(|(_, file, bytes)| (file, bytes)).as_slice(), &LARGE].concat();
        let files = FileSet::of_sizes(&root, &sizes, options.run.seed)?;
        let lab = Lab::up(program, folder.path(), &[configuration(folder.path())])?;
        let _origin = Origin::start(&lab, &root)?;
        let site = Site { root, only_file: None, close: false };
        Ok(Self { options, records: Records::default(), _origin, lab, files, site, folder, _programs_are_timed })
    }

    /// The servers that are tried.
    pub(super) fn wanted_servers(&self) -> Vec<Box<dyn Server>> {
        let wanted = &self.options.server;
        let is_wanted = |server: &dyn Server| wanted.is_empty() || wanted.iter().any(|name| name == server.name());
        Self::servers().into_iter().filter(|server| is_wanted(server.as_ref())).collect()
    }

    /// Everybody's that is installed, and Squid before another server.
    pub(super) fn servers() -> Vec<Box<dyn Server>> {
        let all = server::all(None).present.into_iter();
        let peers = all.filter(|server| server::is_peer(server.name()) && !server::is_variant(server.name()));
        let squid = Squid { origin: ADDRESS, memory_mb: 16 };
        let others: [Box<dyn Server>; 2] = [Box::new(Tomcat), Box::new(squid)];
        peers.chain(others.into_iter().filter(|server| server.program().is_some())).collect()
    }

    /// Has a server run at the first `count` nodes; returns when the dispatcher gives connections to these and no others.
    ///
    /// # Errors
    /// It doesn't start, or isn't found well.
    pub(super) fn place(&self, server: &dyn Server, count: usize) -> io::Result<Vec<Placed>> {
        let start = |&(host, address, core): &(&str, IpAddr, usize)| {
            let at = (SocketAddr::new(address, PORT), core);
            Placed::start(&self.lab, host, server, &self.site, at, self.folder.path())
        };
        // The one before it has been seen to have ended.
        self.await_fit(0).map_err(|error| io::Error::other(format!("before {}: {error}", server.name())))?;
        let placed = NODES.iter().take(count).map(start).collect::<io::Result<Vec<_>>>()?;
        self.await_fit(count).map_err(|error| io::Error::other(format!("{}: {error}", server.name())))?;
        Ok(placed)
    }

    fn await_fit(&self, count: usize) -> io::Result<()> {
        self.lab.await_fit(&NODES.map(|(name, ..)| name)[..count])
    }

    /// Connections that have begun at nodes so far.
    pub(super) fn births(&self) -> io::Result<u64> {
        Ok(self.lab.ask(&ctl::Command::Flows)?["born"].as_u64().unwrap_or_default())
    }

    /// All of leat's at a node.
    pub(super) fn leat(&self, node: &str, server: &Placed) -> io::Result<Vec<u32>> {
        let servers = server.processes();
        let mut pids = self.lab.processes(node)?;
        pids.retain(|pid| !servers.contains(pid));
        Ok(pids)
    }

    /// Length and content of a file.
    pub(super) fn content(&self, file: &str) -> Option<(u64, Content)> {
        self.files.content(file)
    }

    /// Does something as the client.
    pub(super) fn at_client<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        self.lab.at(CLIENT, CLIENT_CORE, work)
    }

    /// Requests for these files, all equally often, on connections that the server closes after each where `close` says so.
    pub(super) fn requests(&self, files: &[&str], close: bool) -> Mix {
        let files: Vec<_> = files.iter().map(|&file| (file, 1.0)).collect();
        self.weighted(&files, close)
    }

    /// The same, each with its weight.
    pub(super) fn weighted(&self, files: &[(&str, f64)], close: bool) -> Mix {
        let fields = if close { CLOSE } else { "" };
        let target = |&(file, weight): &(&str, f64)| {
            let content = self.files.content(file);
            let body = content.map_or(Body::Unknown, |(_, content)| Body::Seeded(content));
            let target = Target::of_host("10.77.0.100", &format!("/{file}"), fields);
            (target.with_body(content.map(|(bytes, _)| bytes), body), weight)
        };
        Mix::new(files.iter().map(target).collect())
    }

    /// A closed loop of 16 connections, for one measurement. Every body is compared.
    pub(super) fn saturate(&self, address: SocketAddr, requests_per_connection: u32) -> Plan {
        Plan {
            warm_up: Duration::from_millis(200),
            window: Duration::from_secs_f64(self.options.run.seconds),
            drain: Duration::from_secs(10),
            verify_every: 1,
            seed: self.options.run.seed,
            sleep: true,
            requests_per_connection: Some(requests_per_connection),
            ..Plan::saturate(address, 16)
        }
    }

    /// Runs a load in the client's namespace, and reads what some processes spend meanwhile.
    ///
    /// # Errors
    /// The load can't run.
    pub(super) fn measure(&self, plan: &Plan, mix: &Mix, meters: &mut Meters) -> io::Result<Outcome> {
        self.lab.at(CLIENT, CLIENT_CORE, || load::run(plan, mix, meters))
    }

    /// As [`faults::lose_packets`].
    ///
    /// # Errors
    /// Likewise.
    pub(super) fn lose_packets(&self) -> io::Result<()> {
        faults::lose_packets(&self.lab, &NODES.map(|(name, ..)| name), &[VIP])
    }
}

/// What servers and leat beside them spend.
pub(super) struct Meters {
    pub(super) server: Meter,
    pub(super) leat: Meter,
}

impl load::Observer for Meters {
    fn window_begins(&mut self) {
        self.server.window_begins();
        self.leat.window_begins();
    }

    fn window_ends(&mut self) {
        self.server.window_ends();
        self.leat.window_ends();
    }
}

fn configuration(folder: &Path) -> String {
    let node = |(name, address, _): &(&str, IpAddr, usize)| {
        format!("[[cluster.node]]\nname = '{name}'\naddress = '{address}'\nport = {PORT}\nfor = '{address}:{PORT}'\n")
    };
    format!(
        "[admin]\nlisten = ''\nsocket = '{}'\n[cluster]\nvip = '{}'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n\
         policy = 'round_robin'\n[cluster.health]\npath = '/1k'\nslow_start = '0s'\n{}{}",
        Lab::socket(folder).display(),
        vip(),
        NODES.iter().map(node).collect::<String>(),
        lab::processors(),
    )
}

pub(super) fn vip() -> SocketAddr {
    SocketAddr::new(VIP, 80)
}

/// The first node's server, asked without anybody in between.
pub(super) fn direct() -> SocketAddr {
    SocketAddr::new(NODES[0].1, PORT)
}
