//! Connections spread over nodes by a table, at fronts and between nodes: the programs of `programs/spread.c` and what they are told. What is in the
//! table is decided elsewhere (`leat_logic::spread`).

use std::net::SocketAddr;
use std::path::Path;

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray};
use aya::programs::tc::TcAttachType;
use aya::util::KernelVersion;
use leat_logic::spread::Owners;

use super::attach::{Programs, RunTime};
use super::dispatcher::Reach;
use super::flows::FlowKey;
use super::layout::{
    RawBucketKey, RawKey, RawMoved, RawNode, RawOwners, RawServiceKey, RawSpreadService, SPREAD_OWN, SPREAD_REFUSES,
    raw_ip, raw_port,
};
use super::{Doing, Result};

/// An entry that isn't there isn't made (include/uapi/linux/bpf.h).
const BPF_EXIST: u64 = 2;

static OBJECT: &[u8] = aya::include_bytes_aligned!("programs/spread.o");
static SERVED_OBJECT: &[u8] = aya::include_bytes_aligned!("programs/spread_served.o");

/// Whether the kernel gives a packet to a listener that may share its address with others (`SO_REUSEPORT`); Linux 6.6.
#[must_use]
pub fn gives_to_shared_listeners() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0))
}

/// Which of the programs a machine has its packets pass through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadPart {
    /// Clients' packets arrive here, and go to nodes.
    Front,
    /// Fronts' packets arrive here; those of connections that another node has go on to that.
    Peer,
    /// The same, and connections begin at a server that isn't leat.
    Served,
}

impl SpreadPart {
    fn program(self) -> &'static str {
        match self {
            SpreadPart::Front => "front_ingress",
            SpreadPart::Peer | SpreadPart::Served => "peer_ingress",
        }
    }

    fn object(self) -> &'static [u8] {
        match self {
            SpreadPart::Front | SpreadPart::Peer => OBJECT,
            SpreadPart::Served => SERVED_OBJECT,
        }
    }
}

/// An address whose packets are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadService {
    /// A VIP, or this node's own address at which fronts see whether it's well.
    pub at: SocketAddr,
    /// Whether it's the node's own: refused while the node isn't well, and of no interest to other nodes.
    pub is_own: bool,
    /// Where the server listens that is to have the connections which begin here, if that isn't leat ([`SpreadPart::Served`]): of the same family.
    pub server: Option<SocketAddr>,
}

impl SpreadService {
    fn raw(self, refuses: bool) -> (RawServiceKey, RawSpreadService) {
        let mut raw = RawSpreadService::default();
        if let Some(server) = self.server {
            raw.server = raw_ip(server.ip());
            raw.server_port = raw_port(server);
        }
        if self.is_own {
            raw.flags = SPREAD_OWN | if refuses { SPREAD_REFUSES } else { 0 };
        }
        (RawServiceKey { address: raw_ip(self.at.ip()), port: raw_port(self.at) }, raw)
    }
}

/// What the programs have counted since the maps were made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpreadCounters {
    /// Packets that a front has sent to their bucket's owner.
    pub spread: u64,
    /// Packets without a connection that a node has sent on to the previous owner.
    pub passed_on: u64,
    /// Packets dropped, as their node isn't known.
    pub unreached: u64,
    /// Packets that a front has sent after their connection.
    pub followed: u64,
    /// Packets that a node has given to the listener of a server that isn't leat: those with which connections begin.
    pub served: u64,
    /// The same, where that server didn't listen or the kernel wouldn't give it the packet.
    pub unserved: u64,
}

/// See the module.
pub struct Spread {
    pub(super) programs: Programs,
    part: SpreadPart,
    services: HashMap<MapData, RawServiceKey, RawSpreadService>,
    known: Vec<SpreadService>,
    refuses: bool,
    nodes: Array<MapData, RawNode>,
    buckets: Array<MapData, RawOwners>,
    moved: HashMap<MapData, RawKey, RawMoved>,
    keys: Array<MapData, RawBucketKey>,
    key: RawBucketKey,
    counters: PerCpuArray<MapData, u64>,
}

fn doing_services() -> String {
    "map of addresses".to_owned()
}

fn doing_moved() -> String {
    "map of connections that have moved".to_owned()
}

fn doing_key() -> String {
    "map of the buckets' key".to_owned()
}

impl Spread {
    /// Loads the programs, and finds or makes the maps that are pinned in `directory`, on a BPF file system. `key`: the same at all fronts.
    ///
    /// # Errors
    /// Not allowed ([`super::Error::Forbidden`]), no BPF file system, an older kernel than 5.10.
    pub fn load(directory: &Path, part: SpreadPart, key: [u8; 16]) -> Result<Spread> {
        let maps =
            ["spread_services", "nodes", "buckets", "bucket_keys", "moved", "spread_counters"].map(|name| (name, None));
        let mut programs = Programs::load(part.object(), directory, &maps)?;
        let moved = HashMap::<_, RawKey, RawMoved>::try_from(programs.map("moved")?).doing(doing_moved)?;
        let mut keys = Array::try_from(programs.map("bucket_keys")?).doing(doing_key)?;
        let number = u128::from_le_bytes(key);
        let has_moved = u64::from(moved.keys().next().is_some());
        let key = RawBucketKey { halves: [number as u64, (number >> 64) as u64], has_moved };
        keys.set(0, key, 0).doing(doing_key)?;
        let services = HashMap::<_, _, RawSpreadService>::try_from(programs.map("spread_services")?);
        let services = services.doing(doing_services)?;
        let refuses = services.iter().any(|entry| entry.is_ok_and(|(_, raw)| raw.flags & SPREAD_REFUSES != 0));
        Ok(Spread {
            part,
            services,
            known: Vec::new(),
            refuses,
            moved,
            keys,
            key,
            nodes: Array::try_from(programs.map("nodes")?).doing(|| "map of nodes".to_owned())?,
            buckets: Array::try_from(programs.map("buckets")?).doing(|| "map of buckets".to_owned())?,
            counters: PerCpuArray::try_from(programs.map("spread_counters")?).doing(|| "map of counters".to_owned())?,
            programs,
        })
    }

    /// Has an interface's packets pass through, also after this process has ended.
    ///
    /// # Errors
    /// No such interface, or not allowed.
    pub fn attach(&mut self, interface: &str) -> Result<()> {
        self.programs.attach(self.part.program(), interface, TcAttachType::Ingress)
    }

    /// Undoes that, and leaves what the maps say to the next process.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn detach(&mut self, interface: &str) -> Result<()> {
        self.programs.detach(self.part.program(), interface, TcAttachType::Ingress)
    }

    /// Packets to these addresses, and to no others, are meant.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_services(&mut self, services: &[SpreadService]) -> Result<()> {
        self.known = services.to_vec();
        let known = self.services.keys().collect::<std::result::Result<Vec<_>, _>>().doing(doing_services)?;
        let wanted: Vec<_> = services.iter().map(|service| service.raw(self.refuses)).collect();
        for old in known.iter().filter(|old| !wanted.iter().any(|(key, _)| key == *old)) {
            self.services.remove(old).doing(doing_services)?;
        }
        wanted.iter().try_for_each(|(key, raw)| self.services.insert(key, raw, 0).doing(doing_services))
    }

    /// Whether fronts are to find this node well. An earlier process's word counts until then.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_well(&mut self, is_well: bool) -> Result<()> {
        if self.refuses != is_well {
            return Ok(());
        }
        let known = self.known.clone();
        self.refuses = !is_well;
        // What the kernel doesn't know is to be said again.
        self.set_services(&known).inspect_err(|_| self.refuses = is_well)
    }

    /// Says how a node is reached. It is on the same network: routers would be asked for the VIP itself.
    ///
    /// # Errors
    /// No such interface.
    pub fn set_node(&mut self, number: u32, reach: &Reach) -> Result<()> {
        self.nodes.set(number, reach.raw()?, 0).doing(|| format!("node {number}"))
    }

    /// There is no way to a node now: what is for it is dropped.
    ///
    /// # Errors
    /// A number that is too large.
    pub fn lose_node(&mut self, number: u32) -> Result<()> {
        self.nodes.set(number, RawNode::default(), 0).doing(|| format!("node {number}"))
    }

    /// Whose each bucket is by now, also by what an earlier process has left.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn buckets(&self) -> Result<Vec<Owners>> {
        let owners = |raw: RawOwners| Owners { current: raw.current, previous: raw.previous };
        (0..self.buckets.len())
            .map(|bucket| self.buckets.get(&bucket, 0).map(owners).doing(|| "map of buckets".to_owned()))
            .collect()
    }

    /// Gives a bucket to others.
    ///
    /// # Errors
    /// There is no such bucket.
    pub fn set_bucket(&mut self, bucket: u32, owners: Owners) -> Result<()> {
        let raw = RawOwners { current: owners.current, previous: owners.previous };
        self.buckets.set(bucket, raw, 0).doing(|| format!("bucket {bucket}"))
    }

    /// Has a connection's packets go to a node, whoever has its bucket.
    ///
    /// # Errors
    /// There are a million of them, or what else the kernel says.
    pub fn set_moved(&mut self, key: FlowKey, number: u16) -> Result<()> {
        self.moved.insert(key.raw(), RawMoved { number, is_over: 0 }, 0).doing(doing_moved)?;
        if self.key.has_moved == 0 {
            self.key.has_moved = 1;
            self.keys.set(0, self.key, 0).doing(doing_key)?;
        }
        Ok(())
    }

    /// Its node has closed it: what is left of it goes there, until its client begins anew.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn end_moved(&mut self, key: FlowKey, number: u16) -> Result<()> {
        match self.moved.insert(key.raw(), RawMoved { number, is_over: 1 }, BPF_EXIST) {
            // Its client has begun anew already.
            Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            ended => ended.doing(doing_moved),
        }
    }

    /// Has a connection's packets go where its bucket says.
    ///
    /// # Errors
    /// What the kernel says; not that there is no such connection.
    pub fn remove_moved(&mut self, key: FlowKey) -> Result<()> {
        match self.moved.remove(&key.raw()) {
            Err(MapError::KeyNotFound) => Ok(()),
            Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            removed => removed.doing(doing_moved),
        }
    }

    /// Connections that don't go by their bucket, also those that an earlier process was told of.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn moved(&self) -> Result<Vec<FlowKey>> {
        self.moved.keys().map(|key| key.map(RawKey::key).doing(doing_moved)).collect()
    }

    /// What was counted.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn counters(&self) -> Result<SpreadCounters> {
        let count = |which| super::sum(&self.counters, which);
        Ok(SpreadCounters {
            spread: count(0)?,
            passed_on: count(1)?,
            unreached: count(2)?,
            followed: count(3)?,
            served: count(4)?,
            unserved: count(5)?,
        })
    }

    /// What the programs have cost.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn run_time(&self) -> Result<RunTime> {
        self.programs.run_time()
    }
}
