//! The entries of the dispatcher's map: who has which flow, and what its client said last.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aya::maps::{Array, HashMap, Map, MapData, MapError};
use leat_logic::handoff::{Ends, FlowId, Generation, ServerId, TcpState};
use leat_logic::time::Instant;

use super::batch::{self, Batch, Place};
use super::layout::{
    CHANGE_BEGINS, CHANGE_DELETES, CHANGE_HEARD, CHANGE_HOLDER, CHANGE_LOOKED, CHANGE_MAKES, CHANGE_REPLACES,
    FLOW_BORN, FLOW_CUT, FLOW_FOREIGN, FLOW_HELD, FLOW_HERE, FLOW_NODE_CLOSED, FLOW_OFFERED, FLOW_WATCHED, FLOWS_MADE,
    FLOWS_OVER, RawChange, RawFlow, RawKey, TURN_CLIENT, TURN_LEAT, TURN_NOBODY, TURN_PLANTED, TURN_PLANTING, raw_ip,
    raw_port, socket_address,
};
use super::{Doing, Error, Result, Said, change};
use crate::lock::lock;

/// An entry of a connection whose client says nothing stays this long: its cookie is known without it, if only by a first packet that neither is lost nor
/// overtaken.
const SILENT: Duration = Duration::from_secs(5);

/// The same where there are few entries: as long as the cookie is good (`COOKIE_LIFETIME_MS` in `programs/answer.h`).
const SILENT_AMONG_FEW: Duration = Duration::from_secs(64);

/// An entry whose flow is over both ways stays this long: the last acknowledgement may have to be repeated.
const OVER: Duration = Duration::from_secs(2);

/// An entry of a connection that was cut stays this long without a packet: its cookie would begin it anew (`COOKIE_LIFETIME_MS` in
/// `programs/answer.h`).
const CUT: Duration = Duration::from_secs(64);

/// An entry of which only one side has said that it's done stays this long without a packet: the other may be slow.
const HALF_OVER: Duration = Duration::from_secs(120);

/// The same where nobody says when the node is done. Clients that end their side first seldom wait long for the rest.
const HALF_OVER_FOREIGN: Duration = Duration::from_secs(15);

/// An entry of a connection of which nobody says when it ends stays this long without a packet.
const IDLE_FOREIGN: Duration = Duration::from_secs(3600);

/// A connection: who talks to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The client's address.
    pub client: SocketAddr,
    /// The address that it talks to.
    pub vip: SocketAddr,
}

impl FlowKey {
    /// The one of a frozen connection.
    #[must_use]
    pub fn of(state: &TcpState) -> FlowKey {
        FlowKey { client: state.remote, vip: state.local }
    }

    /// As nodes and fronts tell each other.
    #[must_use]
    pub fn ends(self) -> Ends {
        Ends { client: self.client, vip: self.vip }
    }

    pub(super) fn raw(self) -> RawKey {
        RawKey {
            client: raw_ip(self.client.ip()),
            vip: raw_ip(self.vip.ip()),
            client_port: raw_port(self.client),
            vip_port: raw_port(self.vip),
        }
    }
}

impl From<Ends> for FlowKey {
    fn from(Ends { client, vip }: Ends) -> FlowKey {
        FlowKey { client, vip }
    }
}

impl RawKey {
    pub(super) fn key(self) -> FlowKey {
        FlowKey { client: socket_address(self.client, self.client_port), vip: socket_address(self.vip, self.vip_port) }
    }
}

impl RawFlow {
    fn named(id: FlowId) -> RawFlow {
        RawFlow { serial: id.serial, home: id.home.0, ..RawFlow::default() }
    }

    fn id(&self) -> FlowId {
        FlowId { home: ServerId(self.home), serial: self.serial }
    }

    fn heard(self, heard: &Heard) -> RawFlow {
        let &Heard { client_next, acknowledged, window, timestamp, .. } = heard;
        RawFlow { client_next, acknowledged, base: acknowledged, window, timestamp, ..self }
    }

    /// Without a flag, and with what was heard of it.
    fn of(flow: &Flow) -> RawFlow {
        RawFlow::named(flow.id).heard(&flow.heard).watched(&flow.watch)
    }

    fn watched(self, watch: &Watch) -> RawFlow {
        let &Watch { looked_to, turn, options, scale } = watch;
        RawFlow { looked_to, turn: turn as u8, options, scale, ..self }
    }

    fn flow(self) -> Flow {
        let has = |flag| self.flags & flag != 0;
        let RawFlow { client_next, acknowledged, window, timestamp, wraps, base, .. } = self;
        Flow {
            id: self.id(),
            holder: ServerId(self.holder),
            generation: Generation(self.generation),
            held: has(FLOW_HELD),
            born: has(FLOW_BORN) && !has(FLOW_HERE) && self.reset == 0,
            own: has(FLOW_HERE),
            foreign: has(FLOW_FOREIGN),
            client_fin: self.client_fin != 0,
            node_closed: has(FLOW_NODE_CLOSED),
            reset: self.reset != 0,
            cut: has(FLOW_CUT),
            heard: Heard { client_next, acknowledged, window, timestamp, wraps, base },
            repeats: self.repeats,
            watched: has(FLOW_WATCHED),
            watch: Watch {
                looked_to: self.looked_to,
                turn: Turn::of(self.turn),
                options: self.options,
                scale: self.scale,
            },
        }
    }
}

/// The largest window (RFC 7323 section 2.3).
const DRIFT_BYTES_MAX: u32 = 1 << 30;

/// What the client of a flow said last. A reply whose node has died goes on from there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heard {
    /// The sequence number that the client would use next.
    pub client_next: u32,
    /// The first one that the client hasn't acknowledged.
    pub acknowledged: u32,
    /// The client's window as it stood in the segment, unscaled.
    pub window: u16,
    /// The client's clock, 0 when it tells none.
    pub timestamp: u32,
    /// What it had acknowledged when the holder got the flow, and how often 2^32 bytes have been acknowledged since.
    pub(super) base: u32,
    pub(super) wraps: u16,
}

impl Heard {
    /// What is known of a connection that is over.
    #[must_use]
    pub fn last(acknowledged: u32, client_next: u32) -> Heard {
        Heard { client_next, acknowledged, ..Heard::default() }
    }

    /// The sequence number behind the client's last byte, if it `has_ended` its side or not: the end takes one as well.
    #[must_use]
    pub fn client_end(&self, has_ended: bool) -> u32 {
        self.client_next.wrapping_sub(has_ended.into())
    }

    /// What a frozen connection had heard.
    #[must_use]
    pub fn of(state: &TcpState) -> Heard {
        let scale = state.window_scale.map_or(0, |scale| scale.send);
        Heard {
            client_next: state.receive_next,
            acknowledged: state.unacknowledged(),
            window: u16::try_from(state.window.snd_wnd >> scale).unwrap_or(u16::MAX),
            timestamp: 0,
            base: state.unacknowledged(),
            wraps: 0,
        }
    }

    /// Takes in what the client has acknowledged since in packets that no program has looked at.
    pub fn hear(&mut self, said: &Said) {
        if self.base != 0 && said.acknowledged.wrapping_sub(self.base) < self.acknowledged.wrapping_sub(self.base) {
            self.wraps = self.wraps.wrapping_add(1);
        }
        (self.acknowledged, self.window) = (said.acknowledged, said.window);
    }

    /// Bytes that the client has acknowledged since the holder got the flow as an image, of which this byte was the first that it hadn't. More than 2^32
    /// are told from fewer, but of an entry that a program without that made. None: it has acknowledged less than it had then.
    #[must_use]
    pub fn acknowledged_since(&self, first: u32) -> Option<u64> {
        // Packets of moments before may have come by, or been held: no more than a window.
        let drift = self.base.wrapping_sub(first).cast_signed();
        if self.base == 0 || drift.unsigned_abs() > DRIFT_BYTES_MAX {
            return Some(self.acknowledged.wrapping_sub(first).into());
        }
        let since_base = u64::from(self.wraps) << 32 | u64::from(self.acknowledged.wrapping_sub(self.base));
        since_base.checked_add_signed(drift.into())
    }
}

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Which flow of this key it is. One that no server has a socket of yet has no home either.
    pub id: FlowId,
    /// Its packets go there, unless they're held.
    pub holder: ServerId,
    /// Under which the holder has it.
    pub generation: Generation,
    /// Its packets wait.
    pub held: bool,
    /// No server has a socket of it yet.
    pub born: bool,
    /// It was given to this host's own listener ([`Flows::admit`]): whoever accepts there has it.
    pub own: bool,
    /// At a server that isn't leat: in nobody's books.
    pub foreign: bool,
    /// The client sends no more.
    pub client_fin: bool,
    /// Its node has closed it.
    pub node_closed: bool,
    /// The client has given it up.
    pub reset: bool,
    /// Nobody has it any more, and its client may not know.
    pub cut: bool,
    /// What the client said last.
    pub heard: Heard,
    /// How often the client has said nothing new, in segments with something in them; the count wraps.
    pub repeats: u8,
    /// This server is asked where each of its requests belongs.
    pub watched: bool,
    /// How that stands.
    pub(super) watch: Watch,
}

impl Flow {
    /// Its client's packets wait until this server has said where a request belongs, or until its new holder has been heard.
    pub(super) fn is_looked_at(&self) -> bool {
        self.foreign && self.watched && (self.watch.turn == Turn::Leat || self.is_planted())
    }

    /// A connection was made anew at its holder, and its client hasn't said anything since.
    #[must_use]
    pub fn is_planted(&self) -> bool {
        matches!(self.watch.turn, Turn::Planting | Turn::Planted)
    }

    /// And it hasn't acknowledged anything of that one's.
    pub(super) fn is_unheard(&self) -> bool {
        self.is_planted() && self.heard.acknowledged == self.heard.base && !self.reset
    }
}

/// What is looked at of a connection at a server that isn't leat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Watch {
    /// What its client has said before that sequence number is for its holder.
    pub(super) looked_to: u32,
    pub(super) turn: Turn,
    /// Its client's, as cookies have them.
    pub(super) options: u8,
    /// Of the windows that its client is told.
    pub(super) scale: u8,
}

/// Whose turn it is to say something of a connection that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(super) enum Turn {
    #[default]
    Client = TURN_CLIENT,
    Leat = TURN_LEAT,
    Planted = TURN_PLANTED,
    Nobody = TURN_NOBODY,
    Planting = TURN_PLANTING,
}

impl Turn {
    fn of(number: u8) -> Turn {
        match number {
            TURN_CLIENT => Turn::Client,
            TURN_LEAT => Turn::Leat,
            TURN_PLANTED => Turn::Planted,
            TURN_PLANTING => Turn::Planting,
            _ => Turn::Nobody,
        }
    }
}

/// All entries. Every one of them has the name that its flow's home gives: two flows of one key, one after the other, differ in it.
pub struct Flows {
    /// Only read: entries are changed by the program.
    map: HashMap<MapData, RawKey, RawFlow>,
    /// The same map, for reading many entries at once.
    descriptor: OwnedFd,
    pub(super) program: OwnedFd,
    /// Numbers by which programs know that there is no entry.
    totals: Arc<Totals>,
    capacity: u32,
}

/// What there is at all; `enum total` in `programs/flow.h`.
pub(super) type Totals = Mutex<Array<MapData, u64>>;

impl Flows {
    pub(super) fn new(map: Map, program: OwnedFd, totals: Arc<Totals>) -> Result<Flows> {
        let doing = || "map of flows".to_owned();
        let Map::HashMap(data) = map else {
            return Err(Error::Kernel { doing: doing(), reason: "isn't a hash map".to_owned() });
        };
        let capacity = data.info().doing(doing)?.max_entries();
        let descriptor = data.fd().as_fd().try_clone_to_owned().doing(doing)?;
        let map = HashMap::try_from(Map::HashMap(data)).doing(doing)?;
        Ok(Flows { map, descriptor, program, totals, capacity })
    }

    /// How many there can be.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// A flow's entry.
    ///
    /// # Errors
    /// What the kernel says; not that there is none.
    pub fn get(&self, key: FlowKey) -> Result<Option<Flow>> {
        Ok(self.look_up(&key.raw())?.map(RawFlow::flow))
    }

    /// Has a flow's packets wait from now on. The entry is made if there is none, or one of an earlier flow.
    ///
    /// # Errors
    /// [`Error::Full`]: the flow's packets come here as before.
    pub fn hold(&self, key: FlowKey, id: FlowId) -> Result<()> {
        let to = RawFlow { flags: FLOW_HELD, ..RawFlow::named(id) };
        self.change(key, id, CHANGE_REPLACES, FLOW_OFFERED, to).map(drop)
    }

    /// As [`Flows::hold`], of a flow whose packets go elsewhere.
    ///
    /// # Errors
    /// What the kernel says, or [`Error::Gone`]: the client has begun another connection.
    pub fn hold_again(&self, key: FlowKey, id: FlowId) -> Result<()> {
        self.change_its_own(key, id, 0, FLOW_OFFERED, RawFlow { flags: FLOW_HELD, ..RawFlow::named(id) })
    }

    /// Has the packets of a flow that is frozen here, and held, go to a node's worker as soon as that has it: they wait until [`Flows::unhold`], but for
    /// acknowledgements of what only the new holder can have said. `heard` is what the frozen socket knows of the client, and `said` the sequence
    /// number behind all that it can have sent.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn offer(&self, key: FlowKey, id: FlowId, to: (ServerId, Generation), heard: Heard, said: u32) -> Result<()> {
        let (holder, generation, flags) = (to.0.0, to.1.0, FLOW_HELD | FLOW_OFFERED);
        let to = RawFlow { holder, generation, flags, said, ..RawFlow::named(id) }.heard(&heard);
        self.change(key, id, CHANGE_REPLACES | CHANGE_HOLDER | CHANGE_HEARD, 0, to).map(drop)
    }

    /// Has a flow's packets go to a node's worker from now on, which has it under that generation; what was held is for
    /// [`super::Dispatcher::release`]. What packets said of the client stays.
    ///
    /// # Errors
    /// What the kernel says, or [`Error::Gone`]: the client has begun another connection, whose entry isn't this flow's to change.
    pub fn steer(&self, key: FlowKey, id: FlowId, to: (ServerId, Generation)) -> Result<()> {
        let to = RawFlow { holder: to.0.0, generation: to.1.0, ..RawFlow::named(id) };
        self.change_its_own(key, id, CHANGE_HOLDER, FLOW_HELD | FLOW_OFFERED, to)
    }

    /// Has a connection that no server has a socket of yet begin at a node's worker, for a home here: its first packet, which waits, goes there and
    /// names both ([`super::can_name`]).
    ///
    /// # Errors
    /// What the kernel says, or [`Error::Gone`]: the client has begun another connection, or somebody has this one.
    pub fn bear(&self, key: FlowKey, flow: &Flow, home: ServerId, holder: ServerId) -> Result<()> {
        self.begin(
            key,
            flow,
            RawFlow { home: home.0, holder: holder.0, generation: Generation::BORN.0, ..RawFlow::of(flow) },
        )
    }

    /// As [`Flows::bear`], at a node that says nothing of it: the entry is over by what its client says or leaves unsaid. `is_watched`: what follows
    /// after so many bytes waits here ([`super::Dispatcher::poll_next`]).
    ///
    /// # Errors
    /// As [`Flows::bear`].
    pub fn entrust(
        &self,
        key: FlowKey,
        flow: &Flow,
        (home, node): (ServerId, ServerId),
        bytes: usize,
        is_watched: bool,
    ) -> Result<()> {
        let generation = Generation::BORN.0;
        let flags = FLOW_FOREIGN | if is_watched { FLOW_WATCHED } else { 0 };
        let looked_to = flow.heard.client_next.wrapping_add(bytes as u32);
        let to = RawFlow { home: home.0, holder: node.0, generation, flags, looked_to, ..RawFlow::of(flow) };
        self.begin_with(key, flow, to, CHANGE_LOOKED)
    }

    /// What a client has said before that sequence number is for its holder. `stays`: and all that follows.
    ///
    /// # Errors
    /// What the kernel says, or [`Error::Gone`].
    pub(super) fn let_go_on(&self, key: FlowKey, flow: &Flow, looked_to: u32, stays: bool) -> Result<()> {
        let turn = if stays { Turn::Nobody } else { Turn::Client };
        let to = RawFlow::named(flow.id).watched(&Watch { looked_to, turn, ..flow.watch });
        self.change_its_own(key, flow.id, CHANGE_LOOKED, 0, to)
    }

    /// A flow's packets go to another server that isn't leat, which has had nothing of it before that; its client goes on from what was `heard`, and what it
    /// has said before `looked_to` is that server's. What it says waits until it has heard that one.
    ///
    /// # Errors
    /// What the kernel says, or [`Error::Gone`].
    pub(super) fn plant(
        &self,
        key: FlowKey,
        flow: &Flow,
        (home, node): (ServerId, ServerId),
        heard: &Heard,
        looked_to: u32,
    ) -> Result<()> {
        let generation = Generation::BORN.0;
        let watch = Watch { looked_to, turn: Turn::Planting, ..flow.watch };
        let to = RawFlow { holder: node.0, generation, ..RawFlow::named(flow.id) };
        let to = RawFlow { home: home.0, ..to.heard(heard).watched(&watch) };
        self.change_its_own(key, flow.id, CHANGE_HOLDER | CHANGE_HEARD | CHANGE_LOOKED, 0, to)
    }

    /// Has it begin here: at this host's own listener.
    ///
    /// # Errors
    /// As [`Flows::bear`].
    pub fn admit(&self, key: FlowKey, flow: &Flow) -> Result<()> {
        let generation = Generation::BORN.0;
        self.begin(key, flow, RawFlow { generation, flags: FLOW_BORN | FLOW_HERE, ..RawFlow::of(flow) })
    }

    fn begin(&self, key: FlowKey, flow: &Flow, to: RawFlow) -> Result<()> {
        self.begin_with(key, flow, to, 0)
    }

    fn begin_with(&self, key: FlowKey, flow: &Flow, to: RawFlow, what: u8) -> Result<()> {
        self.change_its_own(key, flow.id, CHANGE_MAKES | CHANGE_HOLDER | CHANGE_BEGINS | what, u8::MAX, to)
    }

    fn change_its_own(&self, key: FlowKey, id: FlowId, what: u8, cleared: u8, to: RawFlow) -> Result<()> {
        self.change(key, id, what, cleared, to)?.then_some(()).ok_or(Error::Gone)
    }

    /// Has the packets of a flow that waits go to its holder. A flow that isn't there any more is no error.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn unhold(&self, key: FlowKey, id: FlowId) -> Result<()> {
        self.change(key, id, 0, FLOW_HELD | FLOW_OFFERED, RawFlow::named(id)).map(drop)
    }

    /// Remembers that a flow's node has closed it: the entry goes once the client has, too, and nothing waits for anybody any more. A flow that isn't there
    /// any more is no error.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn close(&self, key: FlowKey, id: FlowId) -> Result<()> {
        let to = RawFlow { flags: FLOW_NODE_CLOSED, ..RawFlow::named(id) };
        self.change(key, id, 0, FLOW_HELD | FLOW_OFFERED, to).map(drop)
    }

    /// Has whatever the client of a flow that nobody has any more still says answered with a reset, by this host's kernel. What packets said of the client
    /// stays; the entry is made, with what was `heard`, if there is none. One of a later flow stays as it is.
    ///
    /// # Errors
    /// [`Error::Full`], or what the kernel says.
    pub fn cut(&self, key: FlowKey, id: FlowId, heard: &Heard) -> Result<()> {
        let to = RawFlow { flags: FLOW_CUT, ..RawFlow::named(id) }.heard(heard);
        self.change(key, id, CHANGE_MAKES, FLOW_HELD | FLOW_OFFERED | FLOW_NODE_CLOSED, to).map(drop)
    }

    /// Lets a node's probe be seen ([`Flows::has_probe`]): one byte with this number, from a VIP to an address of this host's own. Nobody gets it. To be
    /// deleted as any other entry.
    ///
    /// # Errors
    /// [`Error::Full`], or what the kernel says.
    pub fn await_probe(&self, key: FlowKey, id: FlowId, sequence: u32) -> Result<()> {
        // In no books, and of a node that there isn't.
        let to = RawFlow { flags: FLOW_FOREIGN, client_next: sequence, ..RawFlow::named(id) };
        self.change(key, id, CHANGE_REPLACES, 0, to).map(drop)
    }

    /// Whether that probe has arrived.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn has_probe(&self, key: FlowKey, id: FlowId, sequence: u32) -> Result<bool> {
        let entry = self.look_up(&key.raw())?.filter(|flow| flow.id() == id);
        Ok(entry.is_some_and(|flow| flow.client_next == sequence.wrapping_add(1)))
    }

    /// Deletes a flow's entry: its packets come here. One of a later flow stays; returns whether there was one of this.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn delete(&self, key: FlowKey, id: FlowId) -> Result<bool> {
        self.change(key, id, CHANGE_DELETES, 0, RawFlow::named(id))
    }

    /// Deletes the entry of a connection whose socket is here by now, whichever flow it's of: an earlier one between the same ports may have left it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn clear(&self, key: FlowKey) -> Result<()> {
        let Some(entry) = self.look_up(&key.raw())? else { return Ok(()) };
        self.delete(key, entry.id()).map(drop)
    }

    /// Looks for entries of flows that are over, and deletes those. At most some `count` entries are looked at, from where the last call
    /// stopped; returns how many are left of these, and where to go on, nowhere when all have been seen.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn sweep(&self, from: Option<Place>, count: u32, now: Instant) -> Result<(u64, Option<Place>)> {
        let (now_ns, doing) = (now.ns, || "numbers of flows".to_owned());
        let total = |which| lock(&self.totals).get(&which, 0).doing(doing);
        // Before they're looked at: an entry that is made meanwhile may be missed, and isn't among these.
        let made = total(FLOWS_MADE)?;
        if from.is_none() && made == total(FLOWS_OVER)? {
            return Ok((0, None));
        }
        let (entries, next) = self.read(from, count)?;
        let silent = if from.is_none() && next.is_none() { SILENT_AMONG_FEW } else { SILENT };
        let is_over = |flow: &RawFlow| is_over(flow, now_ns, silent);
        let mut left = entries.len() as u64;
        for (key, seen) in entries.iter().filter(|(_, flow)| is_over(flow)) {
            // Looked at again, as there may have been packets since.
            let is_still = self.look_up(key)?.is_some_and(|flow| is_over(&flow));
            if is_still && self.delete(key.key(), seen.id())? {
                left -= 1;
            }
        }
        if from.is_none() && next.is_none() && left == 0 {
            lock(&self.totals).set(FLOWS_OVER, made, 0).doing(doing)?;
        }
        Ok((left, next))
    }

    /// All entries, a run of them at a time, as [`Flows::sweep`]. Entries that are made meanwhile may be missed.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn list(&self, from: Option<Place>, count: u32) -> Result<Batch<(FlowKey, Flow)>> {
        let (entries, next) = self.read(from, count)?;
        Ok((entries.iter().map(|(key, raw)| (key.key(), raw.flow())).collect(), next))
    }

    fn read(&self, from: Option<Place>, count: u32) -> Result<Batch<(RawKey, RawFlow)>> {
        batch::read(self.descriptor.as_fd(), from, count).doing(|| "reading entries of flows".to_owned())
    }

    /// Whether there was such an entry, or is by now.
    fn change(&self, key: FlowKey, id: FlowId, what: u8, cleared: u8, to: RawFlow) -> Result<bool> {
        let to = RawFlow { seen_ns: crate::clock::now().ns, ..to };
        let change = RawChange { ethernet: [0; 14], what, cleared, key: key.raw(), home: id.home.0, to };
        change::apply(&self.program, &change, self.capacity)
    }

    fn look_up(&self, key: &RawKey) -> Result<Option<RawFlow>> {
        match self.map.get(key, 0) {
            Ok(flow) => Ok(Some(flow)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(error).doing(|| "looking up a flow".to_owned()),
        }
    }
}

fn is_over(flow: &RawFlow, now_ns: u64, silent: Duration) -> bool {
    let quiet = Duration::from_nanos(now_ns.saturating_sub(flow.seen_ns));
    let has = |flag| flow.flags & flag != 0;
    if has(FLOW_BORN) {
        return quiet >= silent;
    }
    // In the middle of a handoff, unless its node has closed it. No handoff takes that long: who had this one in its books is dead, and nobody takes up
    // what its client has given up.
    if has(FLOW_HELD) && !has(FLOW_NODE_CLOSED) {
        return flow.reset != 0 && quiet >= HALF_OVER;
    }
    if has(FLOW_CUT) && flow.reset == 0 {
        return quiet >= CUT;
    }
    let client_fin = flow.client_fin != 0;
    if flow.reset != 0 || client_fin && has(FLOW_NODE_CLOSED) {
        return quiet >= OVER;
    }
    if has(FLOW_FOREIGN) {
        return quiet >= if client_fin { HALF_OVER_FOREIGN } else { IDLE_FOREIGN };
    }
    (client_fin || has(FLOW_NODE_CLOSED)) && quiet >= HALF_OVER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_is_counted_from_where_the_holder_got_it_unless_the_entry_is_from_before_that_was_kept() {
        let since = |acknowledged: u32, base: u32, wraps: u16, first: u32| {
            Heard { acknowledged, base, wraps, ..Heard::default() }.acknowledged_since(first)
        };
        assert_eq!(since(1_500, 1_000, 0, 1_000), Some(500));
        assert_eq!(since(1_500, 1_000, 2, 1_000), Some((2 << 32) + 500));
        // Round the end of the numbers.
        assert_eq!(since(100, u32::MAX - 99, 0, u32::MAX - 99), Some(200));
        // A packet of moments before came by, or was held.
        assert_eq!(since(1_500, 1_200, 0, 1_000), Some(500));
        assert_eq!(since(1_500, 900, 0, 1_000), Some(500));
        assert_eq!(since(950, 900, 0, 1_000), None, "less than it had then");
        // An entry without a base, whatever was counted by zero.
        assert_eq!(since(1_500, 0, 3, 1_000), Some(500));
        // One whose base is of another holder's time.
        assert_eq!(since(1_500, 1_000 + (1 << 30) + 1, 1, 1_000), Some(500));
    }
}
