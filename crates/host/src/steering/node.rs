//! A server that may hold connections of VIPs whose packets arrive elsewhere: its programs and what they are told.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::Path;

use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::programs::tc::TcAttachType;
use leat_logic::time::Instant;

use super::attach::{Programs, RunTime};
use super::born::{Birth, Births, CookieKey, for_this_kernel};
use super::flows::FlowKey;
use super::layout::{
    CLOSING_MARK, NO_LEASE, RawService, RawServiceKey, SERVICE_FOREIGN, SERVICE_MARKED, SERVICE_OWN, node_counter,
    raw_ip, raw_port,
};
use super::replays::Replays;
use super::replies::{Replies, Reply};
use super::{Doing, Place, Result};

static OBJECT: &[u8] = aya::include_bytes_aligned!("programs/node.o");
static BORN_OBJECT: &[u8] = aya::include_bytes_aligned!("programs/node_born.o");
static REPLAYED_OBJECT: &[u8] = aya::include_bytes_aligned!("programs/node_replayed.o");

/// Maps that are pinned, with their sizes as the objects have them.
const MAPS: [(&str, Option<u32>); 3] = [("services", None), ("lease", None), ("node_counters", None)];
const BORN_MAPS: [(&str, Option<u32>); 3] = [("births", None), ("replies", None), ("watching", None)];

/// An address that this server answers for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The VIP.
    pub vip: SocketAddr,
    /// The address of this server's own under which the VIP's packets come, when the way here has routers. Its port is the VIP's.
    pub own: Option<std::net::IpAddr>,
    /// FIN and RST leave only from sockets that were closed on purpose ([`mark_closing`]). Not for servers that don't know of this.
    pub marked: bool,
    /// Where a server listens that isn't leat and is to have the connections that begin here: of the VIP's family. They stay there, whatever becomes of
    /// this process, and need no lease.
    pub foreign: Option<SocketAddr>,
}

/// What the programs have counted since the maps were made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Packets for the VIP that belonged to a connection.
    pub received: u64,
    /// Packets for the VIP that didn't: dropped.
    pub stray: u64,
    /// Packets that got the VIP back.
    pub restored: u64,
    /// Resets without a connection, kept back.
    pub resets: u64,
    /// Goodbyes of a process that died, kept back.
    pub goodbyes: u64,
    /// Packets that would have left past the lease, kept back.
    pub fenced: u64,
    /// Connections that began here.
    pub born: u64,
    /// Packets that would have made a connection once more: dropped.
    pub repeated: u64,
    /// Packets without a connection whose cookie isn't right: dropped.
    pub forged: u64,
    /// Connections that couldn't begin, as the foreign server didn't listen: refused.
    pub unheard: u64,
    /// Packets of connections that another server has been given: kept back.
    pub given: u64,
    /// Connections that had begun elsewhere and go on at a foreign server here.
    pub planted: u64,
    /// Handshakes that the kernel has had with the programs, in clients' places.
    pub replayed: u64,
    /// The same for which there was no room: refused.
    pub crowded: u64,
}

impl NodeCounters {
    /// What they're called, in the order of [`NodeCounters::values`].
    pub const NAMES: [&str; 14] = [
        "received", "stray", "restored", "resets", "goodbyes", "fenced", "born", "repeated", "forged", "unheard",
        "given", "planted", "replayed", "crowded",
    ];

    /// All of them.
    #[must_use]
    pub fn values(&self) -> [u64; Self::NAMES.len()] {
        let &NodeCounters {
            received,
            stray,
            restored,
            resets,
            goodbyes,
            fenced,
            born,
            repeated,
            forged,
            unheard,
            given,
            planted,
            replayed,
            crowded,
        } = self;
        [
            received, stray, restored, resets, goodbyes, fenced, born, repeated, forged, unheard, given, planted,
            replayed, crowded,
        ]
    }
}

/// See the module.
pub struct Node {
    pub(super) programs: Programs,
    services: HashMap<MapData, RawServiceKey, RawService>,
    lease: Array<MapData, u64>,
    /// All services are foreign servers'.
    needs_no_lease: bool,
    counters: PerCpuArray<MapData, u64>,
    births: Option<Births>,
    pub(super) replies: Option<Replies>,
    pub(super) replays: Option<Replays>,
}

impl Node {
    /// Loads the programs, and finds or makes the maps that are pinned in `directory`, on a BPF file system. A lease is needed before anything
    /// leaves under a VIP.
    ///
    /// # Errors
    /// Not allowed ([`super::Error::Forbidden`]), no BPF file system, an older kernel than 5.10.
    pub fn load(directory: &Path) -> Result<Node> {
        Node::new(Programs::load(OBJECT, directory, &MAPS)?, None, None)
    }

    /// As [`Node::load`], with programs by which connections begin here ([`Node::birth`]).
    ///
    /// # Errors
    /// As [`Node::load`], or an older kernel than 6.9.
    pub fn load_for_births(directory: &Path, key: CookieKey) -> Result<Node> {
        let maps: Vec<_> = MAPS.into_iter().chain(BORN_MAPS).collect();
        Node::born(Programs::load(&for_this_kernel(BORN_OBJECT)?, directory, &maps)?, key, false)
    }

    /// As [`Node::load_for_births`], with programs that make a server's listener the offer of a connection which its client has made before, as the kernel can't be
    /// handed one, and translate its packets from then on. Connections begin at servers that aren't leat only. Entries need a [`Node::sweep`] now and then.
    ///
    /// # Errors
    /// As [`Node::load`], or an older kernel than 5.17.
    pub fn load_for_replays(directory: &Path, key: CookieKey) -> Result<Node> {
        Node::load_with_room(directory, key, None)
    }

    /// The same for so many connections at a time.
    pub(super) fn load_with_room(directory: &Path, key: CookieKey, connections: Option<u32>) -> Result<Node> {
        let maps: Vec<_> = MAPS.into_iter().chain(BORN_MAPS).chain([("replays", connections)]).collect();
        Node::born(Programs::load(REPLAYED_OBJECT, directory, &maps)?, key, true)
    }

    fn born(mut programs: Programs, key: CookieKey, replays: bool) -> Result<Node> {
        let births = Births::new(&mut programs, key)?;
        let replies = Replies::new(&mut programs)?;
        let replays = if replays { Some(Replays::new(&mut programs)?) } else { None };
        Node::new(programs, Some((births, replies)), replays)
    }

    fn new(mut programs: Programs, born: Option<(Births, Replies)>, replays: Option<Replays>) -> Result<Node> {
        let (births, replies) = born.unzip();
        Ok(Node {
            births,
            replies,
            replays,
            services: HashMap::try_from(programs.map("services")?).doing(|| "map of services".to_owned())?,
            needs_no_lease: false,
            lease: Array::try_from(programs.map("lease")?).doing(|| "map of the lease".to_owned())?,
            counters: PerCpuArray::try_from(programs.map("node_counters")?).doing(|| "map of counters".to_owned())?,
            programs,
        })
    }

    /// Guards an interface, also after this process has ended.
    ///
    /// # Errors
    /// No such interface, or not allowed.
    pub fn attach(&mut self, interface: &str) -> Result<()> {
        self.programs.attach("node_egress", interface, TcAttachType::Egress)?;
        self.programs.attach("node_ingress", interface, TcAttachType::Ingress)
    }

    /// Lets an interface's packets pass again.
    ///
    /// # Errors
    /// What the kernel says; not that nothing was attached.
    pub fn detach(&mut self, interface: &str) -> Result<()> {
        self.programs.detach("node_ingress", interface, TcAttachType::Ingress)?;
        self.programs.detach("node_egress", interface, TcAttachType::Egress)
    }

    /// Begins to answer for a VIP.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn add_service(&mut self, service: &Service) -> Result<()> {
        let doing = || format!("service {}", service.vip);
        let vip = raw_ip(service.vip.ip());
        let port = raw_port(service.vip);
        let mut raw =
            RawService { vip, flags: if service.marked { SERVICE_MARKED } else { 0 }, ..RawService::default() };
        if let Some(server) = service.foreign {
            raw.flags |= SERVICE_FOREIGN;
            raw.listener = raw_ip(server.ip());
            raw.listener_port = raw_port(server);
        }
        // One that needs a lease isn't let out before it has one.
        if service.foreign.is_none() && self.lease.get(&0, 0).unwrap_or(NO_LEASE) == NO_LEASE {
            self.lease.set(0, 0, 0).doing(doing)?;
        }
        self.services.insert(RawServiceKey { address: vip, port }, raw, 0).doing(doing)?;
        if let Some(own) = service.own {
            let key = RawServiceKey { address: raw_ip(own), port };
            let raw = RawService { flags: raw.flags & SERVICE_FOREIGN | SERVICE_OWN, ..raw };
            self.services.insert(key, raw, 0).doing(doing)?;
        }
        // Those of a process before this one are among them.
        let is_foreign = |raw: &RawService| raw.flags & SERVICE_FOREIGN != 0;
        self.needs_no_lease = self.services.iter().all(|entry| entry.is_ok_and(|(_, raw)| is_foreign(&raw)));
        if self.needs_no_lease {
            self.lease.set(0, NO_LEASE, 0).doing(doing)?;
        }
        Ok(())
    }

    /// Nothing guards a VIP any more.
    ///
    /// # Errors
    /// It wasn't there.
    pub fn remove_service(&mut self, service: &Service) -> Result<()> {
        let doing = || format!("service {}", service.vip);
        let port = raw_port(service.vip);
        for ip in service.own.into_iter().chain([service.vip.ip()]) {
            self.services.remove(&RawServiceKey { address: raw_ip(ip), port }).doing(doing)?;
        }
        Ok(())
    }

    /// Says which workers there are, in the order in which their listeners began to listen: a packet that begins a connection names one of them, and
    /// the kernel gives it to that one's listener ([`crate::reuseport::share_out`]).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_workers(&mut self, numbers: &[u16]) -> Result<()> {
        self.births.as_mut().map_or(Ok(()), |births| births.set_workers(numbers))
    }

    /// What an accepted connection is that began by a cookie, none if it didn't. From now on no packet makes it once more.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn birth(&self, key: FlowKey) -> Result<Option<Birth>> {
        self.births.as_ref().map_or(Ok(None), |births| births.accept(key))
    }

    /// Whether connections can begin here.
    #[must_use]
    pub fn has_births(&self) -> bool {
        self.births.is_some()
    }

    /// Whether connections begin here by handshakes that are replayed.
    #[must_use]
    pub fn has_replays(&self) -> bool {
        self.replays.is_some()
    }

    /// Forgets connections that have ended, of those whose handshakes were replayed: some are looked at, from where the last call stopped. `now`: by the monotonic
    /// clock. Returns how many are left of these, and where to go on, nowhere when all have been seen.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn sweep(&mut self, from: Option<Place>, now: Instant) -> Result<(u64, Option<Place>)> {
        self.replays.as_mut().map_or(Ok((0, None)), |replays| replays.sweep(from, now))
    }

    /// Notes from now on what is said on connections of servers that aren't leat ([`Node::last_reply`]), or doesn't.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn watch(&mut self, is_watching: bool) -> Result<()> {
        self.replies.as_mut().map_or(Ok(()), |replies| replies.watch(is_watching))
    }

    /// What was said last on a connection that is watched.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn last_reply(&self, key: FlowKey) -> Result<Option<Reply>> {
        self.replies.as_ref().map_or(Ok(None), |replies| replies.last(key))
    }

    /// Nothing leaves any more on a connection that is watched, until its client's reset has come; or does again.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_given(&self, key: FlowKey, is_given: bool) -> Result<()> {
        self.replies.as_ref().map_or(Ok(()), |replies| replies.set_given(key, is_given))
    }

    /// Until when this server may speak for its VIPs, by [`boot_clock_ns`]. Past it the kernel lets nothing out. With [`NO_LEASE`] nobody else speaks for
    /// them, and it needs none, also after this process has ended. Means nothing where all servers are foreign.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_lease(&mut self, until_ns: u64) -> Result<()> {
        if self.needs_no_lease {
            return Ok(());
        }
        self.lease.set(0, until_ns, 0).doing(|| "the lease".to_owned())
    }

    /// What was said last, by this process or one before it. [`Node::add_service`] has [`NO_LEASE`] forgotten.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn lease(&self) -> Result<u64> {
        self.lease.get(&0, 0).doing(|| "the lease".to_owned())
    }

    /// What was counted.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn counters(&self) -> Result<NodeCounters> {
        let count = |which| super::sum(&self.counters, which);
        Ok(NodeCounters {
            received: count(node_counter::RECEIVED)?,
            stray: count(node_counter::STRAY)?,
            restored: count(node_counter::RESTORED)?,
            resets: count(node_counter::RESETS)?,
            goodbyes: count(node_counter::GOODBYES)?,
            fenced: count(node_counter::FENCED)?,
            born: count(node_counter::BORN)?,
            repeated: count(node_counter::REPEATED)?,
            forged: count(node_counter::FORGED)?,
            unheard: count(node_counter::UNHEARD)?,
            given: count(node_counter::GIVEN)?,
            planted: count(node_counter::PLANTED)?,
            replayed: count(node_counter::REPLAYED)?,
            crowded: count(node_counter::CROWDED)?,
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

/// The clock of leases: it goes on while the machine sleeps.
#[must_use]
pub fn boot_clock_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Has the kernel forget what a process that died has left of a VIP's connections: it would try to end each for minutes, in vain, and none of them could come
/// back here. Those that were closed on purpose end in order.
///
/// # Errors
/// As [`crate::connections::forget_orphans`].
pub fn forget_dead(vip: SocketAddr) -> io::Result<usize> {
    crate::connections::forget_orphans(vip, CLOSING_MARK)
}

/// Whether [`forget_dead`] does anything, on this kernel.
#[must_use]
pub fn can_forget_dead() -> bool {
    crate::connections::can_forget_orphans()
}

/// Says that a connection is about to be closed on purpose, so that its FIN or RST may leave. The kernel closes those of a process that died
/// without this. Replaces the socket's own mark, if it has one.
///
/// # Errors
/// Not allowed (`CAP_NET_ADMIN`).
pub fn mark_closing(socket: &impl AsRawFd) -> io::Result<()> {
    crate::socket::set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MARK, CLOSING_MARK.cast_signed())
}
