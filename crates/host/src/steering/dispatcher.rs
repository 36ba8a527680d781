//! The server where clients' packets arrive: its programs, its map of flows, its nodes, and what waits while flows change hands.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray};
use aya::programs::tc::TcAttachType;
use leat_logic::handoff::ServerId;
use leat_logic::time::Instant;

use super::attach::{Programs, RunTime};
use super::born::{Arrival, CookieKey, for_this_kernel};
use super::choice::{Begun, Choices, StandingChoice};
use super::flows::{Flow, FlowKey, Flows, Heard, Totals};
use super::held::{self, Held};
use super::kept::{Kept, KeptRequests, Said};
use super::layout::{
    HEIRS, NODE_NEIGHBOUR, NODE_PEER, NODE_ROUTED, RawHeir, RawNode, RawServiceKey, dispatcher_counter, raw_ip,
    raw_ipv4, raw_ipv6, raw_port,
};
use super::replays::Replays;
use super::transplant::Next;
use super::{Doing, Place, Result, change, interface_index};
use crate::lock::lock;

pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!("programs/dispatcher.o");
static BORN_OBJECT: &[u8] = aya::include_bytes_aligned!("programs/dispatcher_born.o");
static REPLAYED_OBJECT: &[u8] = aya::include_bytes_aligned!("programs/dispatcher_replayed.o");

/// How often it's looked at whether a packet that was put in has been seen: that takes as long as one look at the most.
const RESET_LOOKS: u32 = 50;

/// Interfaces and taps that there can be at a time, of this process and of those that it follows.
const TAPS_MAX: u32 = 4096;

/// How a node's packets get to it. A node without an address of a family gets no flows of that family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    /// The interface that leads to it.
    pub interface: String,
    /// Its IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// It's behind routers: packets travel under its own address, and the node's program puts the VIP back.
    pub routed: bool,
    /// It sends packets on as this host does, so each time counts as a hop: none goes round for ever. Not for one behind routers.
    pub forwards: bool,
}

/// What the programs have counted since the maps were made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DispatcherCounters {
    /// Packets sent to a node.
    pub steered: u64,
    /// Packets that had to wait.
    pub held: u64,
    /// Packets dropped, as their flow's node isn't known or can't be reached, or they couldn't wait.
    pub lost: u64,
    /// Entries deleted because the client used the port for a new connection.
    pub replaced: u64,
    /// ICMP messages sent after the flow they're about.
    pub errors: u64,
    /// Resets of flows that others hold, kept back.
    pub resets: u64,
    /// SYNs answered by a cookie.
    pub answered: u64,
    /// Handshakes that ended with such an answer.
    pub awaited: u64,
    /// Cookies that came back too late.
    pub stale: u64,
    /// Connections that were given to this server's own listener after all.
    pub admitted: u64,
    /// Packets of watched connections that waited for this server's word.
    pub asked: u64,
    /// Connections to be replayed to this host's own listener for which there was no room: refused.
    pub crowded: u64,
}

impl DispatcherCounters {
    /// What they're called, in the order of [`DispatcherCounters::values`].
    pub const NAMES: [&str; 12] = [
        "steered", "held", "lost", "replaced", "errors", "resets", "answered", "awaited", "stale", "admitted", "asked",
        "crowded",
    ];

    /// All of them.
    #[must_use]
    pub fn values(&self) -> [u64; Self::NAMES.len()] {
        let &DispatcherCounters {
            steered,
            held,
            lost,
            replaced,
            errors,
            resets,
            answered,
            awaited,
            stale,
            admitted,
            asked,
            crowded,
        } = self;
        [steered, held, lost, replaced, errors, resets, answered, awaited, stale, admitted, asked, crowded]
    }
}

/// A connection that another server has been given, as long as its client hasn't heard from that.
#[derive(Debug)]
pub struct Planted {
    key: FlowKey,
    serial: u64,
    holder: ServerId,
    acknowledged: u32,
    frames: Vec<Box<[u8]>>,
}

impl Planted {
    /// Whether nobody has heard of it since. Another worker may have given the connection to somebody else.
    fn is_last_of(&self, flow: &Flow) -> bool {
        let &Planted { serial, holder, acknowledged, .. } = self;
        flow.is_unheard() && (flow.id.serial, flow.holder, flow.heard.base) == (serial, holder, acknowledged)
    }
}

/// See the module. All its methods may be called from any thread.
pub struct Dispatcher {
    pub(super) programs: Mutex<Programs>,
    flows: Arc<Flows>,
    nodes: Mutex<Array<MapData, RawNode>>,
    heirs: Mutex<HashMap<MapData, RawServiceKey, RawHeir>>,
    totals: Arc<Totals>,
    pub(super) taps: Mutex<HashMap<MapData, u32, u32>>,
    counters: PerCpuArray<MapData, u64>,
    held: Mutex<Held>,
    kept: KeptRequests,
    /// The VIPs whose SYNs are answered without a socket, where that can be.
    answered: Option<Mutex<HashMap<MapData, RawServiceKey, u32>>>,
    /// The same.
    choices: Option<Choices>,
    /// Of this server's own connections, where the kernel can't be handed any.
    replays: Option<Mutex<Replays>>,
}

impl Dispatcher {
    /// Loads the programs, and finds or makes the maps that are pinned in `directory`, on a BPF file system. `capacity`: flows that there can
    /// be at a time, if the map isn't there yet; each takes some 150 bytes while it exists.
    ///
    /// # Errors
    /// Not allowed ([`super::Error::Forbidden`]), no BPF file system, an older kernel than 5.10.
    pub fn load(directory: &Path, capacity: u32) -> Result<Dispatcher> {
        Dispatcher::with_programs(OBJECT, directory, capacity, None)
    }

    /// As [`Dispatcher::load`], with programs that answer SYNs ([`Dispatcher::answer`]). Who has had an earlier process's answer at one of `vips` may go on
    /// from the moment on at which these are attached.
    ///
    /// # Errors
    /// As [`Dispatcher::load`], or an older kernel than 6.9.
    pub fn load_for_births(directory: &Path, capacity: u32, key: CookieKey, vips: &[SocketAddr]) -> Result<Dispatcher> {
        Dispatcher::with_programs(&for_this_kernel(BORN_OBJECT)?, directory, capacity, Some((key, vips)))
    }

    /// As [`Dispatcher::load_for_births`], for kernels that can't be handed a connection: those that are this host's own after all have their handshakes replayed, and
    /// can't be moved, as their sockets have other numbers than their clients ([`Dispatcher::can_move`]).
    ///
    /// # Errors
    /// As [`Dispatcher::load`], or an older kernel than 5.17.
    pub fn load_for_replays(
        directory: &Path,
        capacity: u32,
        key: CookieKey,
        vips: &[SocketAddr],
    ) -> Result<Dispatcher> {
        let mut dispatcher = Dispatcher::with_programs(REPLAYED_OBJECT, directory, capacity, Some((key, vips)))?;
        let replays = Replays::new(&mut lock(&dispatcher.programs))?;
        dispatcher.replays = Some(Mutex::new(replays));
        Ok(dispatcher)
    }

    pub(super) fn with_programs(
        object: &[u8],
        directory: &Path,
        capacity: u32,
        born: Option<(CookieKey, &[SocketAddr])>,
    ) -> Result<Dispatcher> {
        let maps = [
            ("flows", Some(capacity)),
            ("nodes", None),
            ("heirs", None),
            ("taps", Some(TAPS_MAX)),
            ("totals", None),
            ("dispatcher_counters", None),
            ("replays", None),
        ];
        let mut programs = Programs::load(object, directory, &maps)?;
        let choices = born.map(|(key, _)| Choices::new(&mut programs, key)).transpose()?;
        let answered = match born {
            Some((key, vips)) => {
                let doing = || "map of the cookies' key".to_owned();
                Array::try_from(programs.map("cookie_keys")?).doing(doing)?.set(0, key.raw(), 0).doing(doing)?;
                let doing = || "map of VIPs".to_owned();
                let mut answered = HashMap::try_from(programs.map("born_vips")?).doing(doing)?;
                vips.iter().try_for_each(|&vip| answered.insert(service_key(vip), 0, 0)).doing(doing)?;
                Some(Mutex::new(answered))
            }
            None => None,
        };
        let kept = KeptRequests::new(&mut programs)?;
        let totals = Array::try_from(programs.map("totals")?).doing(|| "map of numbers".to_owned())?;
        let totals = Arc::new(Mutex::new(totals));
        let flows = Flows::new(programs.map("flows")?, programs.descriptor(change::program())?, totals.clone())?;
        let mut taps: HashMap<_, u32, u32> =
            HashMap::try_from(programs.map("taps")?).doing(|| "map of taps".to_owned())?;
        let known: Vec<u32> = taps.keys().flatten().collect();
        // Each process that has ended has left some.
        for gone in known.into_iter().filter(|interface| held::is_gone(*interface)) {
            taps.remove(&gone).doing(|| "map of taps".to_owned())?;
        }
        Ok(Dispatcher {
            answered,
            replays: None,
            choices,
            flows: Arc::new(flows),
            nodes: Mutex::new(Array::try_from(programs.map("nodes")?).doing(|| "map of nodes".to_owned())?),
            heirs: Mutex::new(HashMap::try_from(programs.map("heirs")?).doing(|| "map of heirs".to_owned())?),
            totals,
            taps: Mutex::new(taps),
            counters: PerCpuArray::try_from(programs.map("dispatcher_counters")?)
                .doing(|| "map of counters".to_owned())?,
            held: Mutex::new(Held::new()),
            kept,
            programs: Mutex::new(programs),
        })
    }

    /// Has an interface's packets steered, also after this process has ended.
    ///
    /// # Errors
    /// No such interface, or not allowed.
    pub fn attach(&self, interface: &str) -> Result<()> {
        let uplink = interface_index(interface)?;
        let tap = held::make_tap()?;
        let other = interface_index(tap.name())?;
        let mut taps = lock(&self.taps);
        let doing = || format!("noting the tap of {interface}, one of {TAPS_MAX} interfaces and taps at the most");
        taps.insert(other, uplink, 0).doing(doing)?;
        // The tap dies with this process, so its program needn't outlive it.
        let mut programs = lock(&self.programs);
        programs.attach_for_now("tap_ingress", tap.name(), TcAttachType::Ingress)?;
        taps.insert(uplink, other, 0).doing(doing)?;
        lock(&self.held).add(tap);
        programs.attach("dispatcher_egress", interface, TcAttachType::Egress)?;
        programs.attach("dispatcher_ingress", interface, TcAttachType::Ingress)
    }

    /// Gives up what is pinned to the process that loads it next: that finds it as left ([`Dispatcher::was_left`]), though this process goes on. Until then
    /// packets that would have to wait are lost, and their clients send them again. Nothing is to be steered by this any more.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn resign(&self) -> Result<()> {
        let own = self.own_taps();
        let mut taps = lock(&self.taps);
        let known: Vec<(u32, u32)> = taps.iter().flatten().collect();
        for (one, other) in known.into_iter().filter(|(one, other)| own.contains(one) || own.contains(other)) {
            taps.remove(&one).doing(|| format!("forgetting the tap of interface {one} or {other}"))?;
        }
        Ok(())
    }

    /// Lets an interface's packets pass again.
    ///
    /// # Errors
    /// What the kernel says; not that nothing was attached.
    pub fn detach(&self, interface: &str) -> Result<()> {
        let mut programs = lock(&self.programs);
        programs.detach("dispatcher_ingress", interface, TcAttachType::Ingress)?;
        programs.detach("dispatcher_egress", interface, TcAttachType::Egress)
    }

    /// Has another program change entries.
    #[cfg(test)]
    pub(super) fn change_by(&mut self, program: &str) -> Result<()> {
        let program = lock(&self.programs).descriptor(program)?;
        Arc::get_mut(&mut self.flows).expect("nobody else has it").program = program;
        Ok(())
    }

    /// The entries.
    #[must_use]
    pub fn flows(&self) -> &Arc<Flows> {
        &self.flows
    }

    /// Whether no other process steers by the entries that there are: who made them has died or given them up ([`Dispatcher::resign`]), if it wasn't this one.
    #[must_use]
    pub fn was_left(&self) -> bool {
        let own = self.own_taps();
        let known: Vec<u32> = lock(&self.taps).keys().flatten().collect();
        !known.into_iter().any(|interface| !own.contains(&interface) && held::is_tap(interface))
    }

    fn own_taps(&self) -> Vec<u32> {
        lock(&self.held).names().filter_map(|name| interface_index(name).ok()).collect()
    }

    /// Says how a node is reached, at once for all its flows.
    ///
    /// # Errors
    /// No such interface, or a number that is too large.
    pub fn set_node(&self, number: u32, reach: &Reach) -> Result<()> {
        lock(&self.nodes).set(number, reach.raw()?, 0).doing(|| format!("node {number}"))
    }

    /// From now on connections to a VIP begin at this node, and it gets whatever comes of those of which there is neither an entry nor a socket here; also
    /// after this process has ended. It is on the same network.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn bequeath(&self, vip: SocketAddr, node: u32) -> Result<()> {
        let mut heirs = lock(&self.heirs);
        heirs.insert(service_key(vip), RawHeir { node, begins: 1 }, 0).doing(|| format!("VIP {vip}"))?;
        self.count_heirs(&heirs)
    }

    /// Connections to a VIP begin here again. Who had them in between ([`Dispatcher::bequeath`]), if it's this node, still gets what comes of those. Whether
    /// they have begun elsewhere until now.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn reclaim(&self, vip: SocketAddr, node: Option<u32>) -> Result<bool> {
        let (mut heirs, key) = (lock(&self.heirs), service_key(vip));
        let has_begun_elsewhere = match heirs.get(&key, 0) {
            Ok(heir) => {
                let done = match Some(heir.node) == node {
                    true => heirs.insert(key, RawHeir { begins: 0, ..heir }, 0),
                    false => heirs.remove(&key),
                };
                done.map(|()| heir.begins != 0)
            }
            Err(MapError::KeyNotFound) => Ok(false),
            Err(error) => Err(error),
        }
        .doing(|| format!("VIP {vip}"))?;
        self.count_heirs(&heirs)?;
        Ok(has_begun_elsewhere)
    }

    /// The programs look for heirs only where there are any.
    fn count_heirs(&self, heirs: &HashMap<MapData, RawServiceKey, RawHeir>) -> Result<()> {
        lock(&self.totals).set(HEIRS, heirs.keys().count() as u64, 0).doing(|| "number of heirs".to_owned())
    }

    /// Descriptors that become readable when packets wait: then [`Dispatcher::receive`] is to be called. One for each interface.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn descriptors(&self) -> Result<Vec<OwnedFd>> {
        lock(&self.held)
            .descriptors()
            .map(|descriptor| descriptor.try_clone_to_owned())
            .collect::<std::io::Result<_>>()
            .doing(|| "copying a descriptor".to_owned())
    }

    /// Takes in packets that wait. Returns whether there may be more: who is told only of what comes has to ask again.
    pub fn receive(&self, now: Instant) -> bool {
        lock(&self.held).receive(&self.flows, now)
    }

    /// Sends the packets of a flow that have waited to where its entry says; to this server itself, if it has none.
    pub fn release(&self, key: FlowKey, now: Instant) {
        let mut held = lock(&self.held);
        held.receive(&self.flows, now);
        held.release(key);
    }

    /// What a flow's client has said last, up to the sequence number `end`, in packets that acknowledge the same. Nothing if that wasn't kept, or there's no room for
    /// all and others have said something since.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn client_said(&self, key: FlowKey, end: u32) -> Result<Kept> {
        self.kept.of(key, end)
    }

    /// How many packets of a flow wait.
    #[must_use]
    pub fn held_count(&self, key: FlowKey) -> usize {
        lock(&self.held).count(key)
    }

    /// What a flow's client has said last in those packets that have come after `count` of them.
    #[must_use]
    pub fn said_since(&self, key: FlowKey, count: usize) -> Option<Said> {
        lock(&self.held).said_since(key, count)
    }

    /// From now on connections to a VIP begin without a socket: its SYNs are answered as long as somebody listens there, and who gets the
    /// connection is decided when its request has come ([`Dispatcher::poll_arrival`]). Does nothing without [`Dispatcher::load_for_births`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn answer(&self, vip: SocketAddr) -> Result<()> {
        self.set_answered(vip, 1)
    }

    /// From now on connections to a VIP begin with its listener's answer. Who has got another by then may go on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn stop_answering(&self, vip: SocketAddr) -> Result<()> {
        self.set_answered(vip, 0)
    }

    fn set_answered(&self, vip: SocketAddr, is_answered: u32) -> Result<()> {
        let Some(vips) = &self.answered else { return Ok(()) };
        lock(vips).insert(service_key(vip), is_answered, 0).doing(|| format!("VIP {vip}"))
    }

    /// Whether connections can begin without a socket here.
    #[must_use]
    pub fn can_bear(&self) -> bool {
        self.answered.is_some()
    }

    /// Whether this server's own connections can be moved: not if their handshakes may have been replayed.
    #[must_use]
    pub fn can_move(&self) -> bool {
        self.replays.is_none()
    }

    /// Forgets connections that have ended, of those whose handshakes were replayed: some are looked at, from where the last call stopped. `now`: by the monotonic
    /// clock. Returns how many are left of these, and where to go on, nowhere when all have been seen.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn sweep_replays(&self, from: Option<Place>, now: Instant) -> Result<(u64, Option<Place>)> {
        self.replays.as_ref().map_or(Ok((0, None)), |replays| lock(replays).sweep(from, now))
    }

    /// A flow whose request has come and that no server has yet: [`Flows::bear`] or [`Flows::admit`] is to be said, then
    /// [`Dispatcher::deliver`].
    #[must_use]
    pub fn poll_arrival(&self) -> Option<Arrival> {
        lock(&self.held).poll_arrival()
    }

    /// What a connection to a VIP is for that begins with these bytes, by which standing choices are known; none where there can't be one.
    #[must_use]
    pub fn content(&self, vip: SocketAddr, payload: &[u8]) -> Option<u64> {
        self.choices.as_ref()?.content(vip, payload)
    }

    /// From now on connections whose first bytes are for that begin where the choice says. Each is to be read ([`Dispatcher::poll_begun`]) before anything
    /// that its holder says of it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn choose_for(&self, content: u64, choice: &StandingChoice<'_>) -> Result<()> {
        self.choices.as_ref().map_or(Ok(()), |choices| choices.set(content, choice))
    }

    /// A connection of a home's that has begun by a standing choice.
    #[must_use]
    pub fn poll_begun(&self, home: ServerId) -> Option<Begun> {
        self.choices.as_ref()?.poll(home)
    }

    /// What a client says next on a connection at a server that isn't leat ([`Flows::entrust`]), if a standing choice doesn't say that it belongs there:
    /// [`Dispatcher::let_go_on`] or [`Dispatcher::plant`] is to be said, or [`Dispatcher::drop_waiting`]; it doesn't come again before.
    #[must_use]
    pub fn poll_next(&self) -> Option<Next> {
        lock(&self.held).poll_next(&self.flows)
    }

    /// The same of one connection, as it is by now.
    #[must_use]
    pub fn next_of(&self, key: FlowKey) -> Option<Next> {
        lock(&self.held).next_of(key, &self.flows)
    }

    /// So many bytes of what a client says are for the server that has its connection. What follows is looked at again, unless it `stays` there as well, or has
    /// begun in the same packet.
    ///
    /// # Errors
    /// What the kernel says, or [`super::Error::Gone`].
    pub fn let_go_on(&self, next: &Next, bytes: usize, stays: bool) -> Result<()> {
        let (key, end) = (next.arrival.key, next.sequence().wrapping_add(bytes as u32));
        let mut held = lock(&self.held);
        let stays = stays || held.is_within_packet(key, end);
        let done = self.flows.let_go_on(key, &next.arrival.flow, end, stays);
        held.seen_to(key);
        held.release(key);
        done
    }

    /// What waits isn't all yet: it comes again ([`Dispatcher::poll_next`]) with the next packet.
    pub fn await_more(&self, key: FlowKey) {
        lock(&self.held).seen_to(key);
    }

    /// Takes a connection from the server that has it, and gives it to nobody: its kernel is told that the client has reset it. Returns what the client has
    /// said, by which it can be reset as well.
    pub fn give_up(&self, next: &Next) -> Heard {
        self.reset_holder(next);
        self.drop_waiting(next.arrival.key);
        Heard { client_next: next.end(), ..next.heard() }
    }

    /// What waits of a connection comes again by another way.
    pub fn drop_waiting(&self, key: FlowKey) {
        let mut held = lock(&self.held);
        held.seen_to(key);
        held.forget(key);
    }

    /// Takes a connection from the server that has it and gives it to another that isn't leat either, with what its client says next. The one that has had it
    /// has nothing left to say: its kernel is told that the client has reset it. Returns what the other one may not have got yet, to be sent again
    /// ([`Dispatcher::plant_again`]) until the client has heard from it: nobody else sends it.
    ///
    /// # Errors
    /// What the kernel says, or [`super::Error::Gone`].
    pub fn plant(&self, next: &Next, to: (ServerId, ServerId)) -> Result<Planted> {
        if !next.arrival.flow.is_planted() {
            self.reset_holder(next);
        }
        let frames = self.frames(next, false);
        let planted = self.flows.plant(next.arrival.key, &next.arrival.flow, to, &next.heard(), next.end());
        let mut held = lock(&self.held);
        held.forget(next.arrival.key);
        held.seen_to(next.arrival.key);
        planted?;
        held.put_in(&frames);
        let Arrival { key, flow, .. } = &next.arrival;
        let (serial, holder, acknowledged) = (flow.id.serial, to.1, next.acknowledged());
        Ok(Planted { key: *key, serial, holder, acknowledged, frames })
    }

    /// Takes a connection from the server that has it: this host's own listener gets it, with what its client says next.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take_back(&self, next: &Next) -> Result<()> {
        self.reset_holder(next);
        // As long as there is the entry, whatever else the client says waits.
        lock(&self.held).put_in(&self.frames(next, true));
        let deleted = self.flows.delete(next.arrival.key, next.arrival.flow.id);
        let mut held = lock(&self.held);
        held.seen_to(next.arrival.key);
        held.release(next.arrival.key);
        deleted.map(drop)
    }

    /// Tells the kernel of the server that has a connection that its client has reset it.
    fn reset_holder(&self, next: &Next) {
        lock(&self.held).put_in(&[next.planting().reset()]);
        // It goes where the entry still says.
        let has_gone = || self.flows.get(next.arrival.key).ok().flatten().is_none_or(|flow| flow.reset);
        let _ = (0..RESET_LOOKS).any(|_| has_gone());
    }

    fn frames(&self, next: &Next, is_here: bool) -> Vec<Box<[u8]>> {
        let key = self.choices.as_ref().map(|choices| choices.key);
        key.map(|key| next.planting().frames(&next.arrival.payload, key, is_here)).unwrap_or_default()
    }

    /// Sends once more what a server may not have got. False when its client has heard from that one, or has gone.
    pub fn plant_again(&self, planted: &Planted) -> bool {
        let is_unheard = self.flows.get(planted.key).ok().flatten().is_some_and(|flow| planted.is_last_of(&flow));
        if is_unheard {
            lock(&self.held).put_in(&planted.frames);
        }
        is_unheard
    }

    /// Sends the packets of an arrival to where its entry says by now.
    pub fn deliver(&self, key: FlowKey) {
        lock(&self.held).release(key);
    }

    /// What was counted.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn counters(&self) -> Result<DispatcherCounters> {
        let count = |which| super::sum(&self.counters, which);
        Ok(DispatcherCounters {
            steered: count(dispatcher_counter::STEERED)?,
            held: count(dispatcher_counter::HELD)?,
            lost: count(dispatcher_counter::LOST)?,
            replaced: count(dispatcher_counter::REPLACED)?,
            errors: count(dispatcher_counter::ERRORS)?,
            resets: count(dispatcher_counter::RESETS)?,
            answered: count(dispatcher_counter::ANSWERED)?,
            awaited: count(dispatcher_counter::AWAITED)?,
            stale: count(dispatcher_counter::STALE)?,
            admitted: count(dispatcher_counter::ADMITTED)?,
            asked: count(dispatcher_counter::ASKED)?,
            crowded: count(dispatcher_counter::CROWDED)?,
        })
    }

    /// What the programs have cost.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn run_time(&self) -> Result<RunTime> {
        lock(&self.programs).run_time()
    }
}

fn service_key(vip: SocketAddr) -> RawServiceKey {
    RawServiceKey { address: raw_ip(vip.ip()), port: raw_port(vip) }
}

impl Reach {
    /// Whether a node can be sent packets for this VIP.
    #[must_use]
    pub fn serves(&self, vip: IpAddr) -> bool {
        match vip.to_canonical() {
            // An IPv4 packet may have an IPv6 neighbour as its next hop.
            IpAddr::V4(_) => self.ipv4.is_some() || self.ipv6.is_some() && !self.routed,
            IpAddr::V6(_) => self.ipv6.is_some(),
        }
    }
    /// As the programs have it.
    pub(super) fn raw(&self) -> Result<RawNode> {
        Ok(RawNode {
            address6: raw_ipv6(self.ipv6),
            address4: raw_ipv4(self.ipv4),
            ifindex: interface_index(&self.interface)?,
            reach: match (self.routed, self.forwards) {
                (true, _) => NODE_ROUTED,
                (false, true) => NODE_PEER,
                (false, false) => NODE_NEIGHBOUR,
            },
        })
    }
}
