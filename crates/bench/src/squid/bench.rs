//! What the cases have in common: documents, a lab for each setup with Squid at its nodes and an origin behind them, and load from the client.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SquidOptions;
use crate::experiment::{self, Records};
use crate::lab::cost::Meter;
use crate::lab::origin::{ADDRESS, Origin};
use crate::lab::placed::Placed;
use crate::lab::{self, CLIENT, CLIENT_CORE, Lab};
use crate::load::{self, Outcome, Plan};
use crate::server::running::WorkFolder;
use crate::server::squid::Squid;
use crate::server::{Server, Site};
use crate::workload::file_set::FileSet;
use crate::workload::mix::CLOSE;
use crate::workload::specweb99::SetFile;

const VIP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 100));
/// Name and address of each node, and the core of its Squid.
const NODES: [(&str, IpAddr, usize); 2] =
    [("n1", IpAddr::V4(Ipv4Addr::new(10, 77, 0, 11)), 2), ("n2", IpAddr::V4(Ipv4Addr::new(10, 77, 0, 12)), 3)];
const PORT: u16 = 8080;
/// Squid keeps content in pages of so many bytes, a reply's head before it.
const PAGE_BYTES: u64 = 4 << 10;
const HEAD_BYTES: u64 = 400;
/// Lengths of documents, in turn: they fill 1, 2, 4 and 8 pages but for a head.
const PAGES: [u64; 4] = [1, 2, 4, 8];
/// How popularity falls with rank (Zipf): what Breslau et al. found for caches' clients, 0.64 to 0.83 (INFOCOM 1999).
const ALPHA: f64 = 0.8;
const CONNECTIONS: usize = 32;
const WARM_UP: Duration = Duration::from_secs(2);

/// A cluster that is compared.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    pub(super) policy: &'static str,
    pub(super) nodes: usize,
    /// What each node may keep, in what one of two may.
    pub(super) memory: u32,
}

/// One cache of the summed size, and two of half of it behind each policy.
pub(super) const ONE: Setup = Setup { name: "one cache, summed size", policy: "round_robin", nodes: 1, memory: 2 };
pub(super) const LARD: Setup = Setup { name: "two, mix_lard", policy: "mix_lard", nodes: 2, memory: 1 };
pub(super) const HASH: Setup = Setup { name: "two, consistent_hash", policy: "consistent_hash", nodes: 2, memory: 1 };
pub(super) const TURNS: Setup = Setup { name: "two, round_robin", policy: "round_robin", nodes: 2, memory: 1 };

/// What the cases run on.
pub(crate) struct Bench {
    pub(super) options: SquidOptions,
    pub(crate) records: Records,
    program: PathBuf,
    files: FileSet,
    site: Site,
    folder: WorkFolder,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

/// What one measurement brought.
pub(super) struct Trial {
    pub(super) outcome: Outcome,
    /// Requests that came to the origin within the window.
    pub(super) missed: u64,
    /// Processor time of all Squids, and of the dispatcher's processes, within the window.
    pub(super) squids: Duration,
    pub(super) dispatcher: Duration,
}

impl Bench {
    pub(super) fn new(options: SquidOptions, program: PathBuf) -> io::Result<Self> {
        let folder = WorkFolder::create("squid")?;
        let root = folder.path().join("files");
        let files = FileSet::create(&root, documents(u64::from(options.memory_mb) << 21), options.run.seed)?;
        let site = Site { root, only_file: None, close: true };
        Ok(Self { options, records: Records::default(), program, files, site, folder })
    }

    /// Builds a cluster, has each document asked for once, then puts a load on it: one request a connection, as a connection stays at the
    /// node of its first.
    ///
    /// # Errors
    /// What leat or Squid says, or the load can't run.
    pub(super) fn measure(&self, setup: Setup, (pause, at_once): (Duration, usize)) -> io::Result<Trial> {
        let folder = self.folder.path();
        let lab = Lab::up(&self.program, folder, &[configuration(folder, setup)])?;
        let origin = Origin::start(&lab, &self.site.root)?;
        let memory_mb = self.options.memory_mb * setup.memory;
        let squid = Squid { origin: ADDRESS, memory_mb };
        if squid.program().is_none() {
            return Err(io::Error::other("Squid isn't installed. As root: apt-get install squid"));
        }
        let start = |&(host, address, core): &(&str, IpAddr, usize)| {
            let at = (SocketAddr::new(address, PORT), core);
            Placed::start(&lab, host, &squid, &self.site, at, folder)
        };
        let squids = NODES.iter().take(setup.nodes).map(start).collect::<io::Result<Vec<_>>>()?;
        lab.await_fit(&NODES.map(|(name, ..)| name)[..setup.nodes])?;
        let mix = self.files.mix(true, |_| true);
        lab.at(CLIENT, CLIENT_CORE, || self.visit())?;
        origin.pause(pause, at_once);
        let plan = Plan {
            warm_up: WARM_UP,
            window: Duration::from_secs_f64(self.options.run.seconds),
            drain: Duration::from_secs(5),
            verify_every: 8,
            seed: self.options.run.seed,
            sleep: true,
            requests_per_connection: Some(1),
            ..Plan::saturate(vip(), CONNECTIONS)
        };
        let squids = Meter::new(squids.iter().flat_map(Placed::processes).collect());
        let dispatcher = Meter::new(lab.processes("dispatcher")?);
        let mut spent = Spent { origin: &origin, begin: 0, missed: 0, squids, dispatcher };
        let outcome = lab.at(CLIENT, CLIENT_CORE, || load::run(&plan, &mix, &mut spent))?;
        let Spent { missed, squids, dispatcher, .. } = spent;
        Ok(Trial { outcome, missed, squids: squids.spent.process, dispatcher: dispatcher.spent.process })
    }

    /// Asks for every document once, the least popular first. Squid 5.7 says 502 to one of its first requests now and then, with or without leat
    /// before it, so each has a second try.
    fn visit(&self) -> io::Result<()> {
        let paths: Vec<&str> = self.files.paths().collect();
        paths.into_iter().rev().try_for_each(|path| ask_once(path).or_else(|_| ask_once(path)))
    }
}

fn ask_once(path: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(vip())?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\n{CLOSE}\r\n").as_bytes())?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    let first = String::from_utf8_lossy(&reply[..reply.len().min(200)]);
    match reply.starts_with(b"HTTP/1.1 200") {
        true => Ok(()),
        false => Err(io::Error::other(format!("/{path} isn't to be had: {first:?}"))),
    }
}

/// What comes to the origin within the window, and what time everybody takes for it.
struct Spent<'a> {
    origin: &'a Origin,
    begin: u64,
    missed: u64,
    squids: Meter,
    dispatcher: Meter,
}

impl load::Observer for Spent<'_> {
    fn window_begins(&mut self) {
        self.begin = self.origin.requests();
        self.squids.window_begins();
        self.dispatcher.window_begins();
    }

    fn window_ends(&mut self) {
        self.missed = self.origin.requests() - self.begin;
        self.squids.window_ends();
        self.dispatcher.window_ends();
    }
}

/// As many as fill a cache of so many bytes, the most popular first; lengths and popularity have nothing to do with each other.
fn documents(cache_bytes: u64) -> Vec<SetFile> {
    let pages = PAGES.into_iter().cycle().scan(0, |filled, pages| {
        *filled += pages * PAGE_BYTES;
        (*filled <= cache_bytes).then_some(pages)
    });
    let document = |(rank, pages): (usize, u64)| SetFile {
        path: format!("d{rank:05}"),
        bytes: pages * PAGE_BYTES - HEAD_BYTES,
        weight: 1.0 / ((rank + 1) as f64).powf(ALPHA),
    };
    pages.enumerate().map(document).collect()
}

fn configuration(folder: &Path, setup: Setup) -> String {
    let node = |(name, address, _): &(&str, IpAddr, usize)| {
        format!("[[cluster.node]]\nname = '{name}'\naddress = '{address}'\nport = {PORT}\nfor = '{address}:{PORT}'\n")
    };
    format!(
        "[admin]\nlisten = ''\nsocket = '{}'\n[cluster]\nvip = '{}'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n\
         policy = '{}'\n[cluster.health]\npath = '/d00000'\nslow_start = '0s'\n{}{}",
        Lab::socket(folder).display(),
        vip(),
        setup.policy,
        NODES.iter().take(setup.nodes).map(node).collect::<String>(),
        lab::processors(),
    )
}

fn vip() -> SocketAddr {
    SocketAddr::new(VIP, 80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_fill_what_they_are_to_fill() {
        let documents = documents(1 << 20);
        let filled: u64 = documents.iter().map(|document| (document.bytes + HEAD_BYTES).div_ceil(PAGE_BYTES)).sum();
        assert!((250..=256).contains(&filled), "{filled} pages of 256");
        assert!(documents.windows(2).all(|pair| pair[0].weight > pair[1].weight));
    }
}
