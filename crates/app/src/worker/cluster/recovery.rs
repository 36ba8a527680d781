//! Flows whose node is gone, at their home: what can be known of them goes on, and the client of any other is told at once that it doesn't.
//! And those that an earlier life of the home has left at nodes, as the kernel's entries of them say.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use leat_host::handoff::Freezer;
use leat_host::reactor::{Reactor, Token};
use leat_host::steering::{self, Flow, FlowKey, Heard};
use leat_logic::dispatch::Outcome;
use leat_logic::handoff::{
    self, Birth, CutReason, FlowId, HomeLimits, Image, Impossible, Reset, ServerId, Target, TcpState, TcpWindow, Told,
    Witness, as_it_was, is_untouched,
};
use leat_logic::time::Instant;

use super::super::{Host, Worker};
use super::home::Home;
use super::inquiry::Recovery;
use super::node::Borrowed;
use super::{Cluster, Part};

/// Of the segment that resets: it carries nothing.
const RESET_MSS: u16 = 536;

/// What a server has sent by the time that its connection is given up gets to its client within this time.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(500);

/// Clients that are told again at a time that they were cut.
const RESETS_AT_ONCE: usize = 64;

/// Entries that are read at a time.
const ENTRIES_COUNT: u32 = 4096;

/// What an earlier life of a home has left at nodes, as the kernel's entries say.
pub(super) struct Left {
    /// A home that knows the flows that are its own.
    pub(super) home: handoff::Home,
    /// Their names.
    pub(super) known: Vec<(FlowId, FlowKey)>,
    /// Those that no home will ever ask for: their clients are to be told.
    pub(super) lost: Vec<(FlowId, FlowKey)>,
}

impl Left {
    pub(super) fn nothing() -> Left {
        Left { home: handoff::Home::new(HomeLimits::default()), known: Vec::new(), lost: Vec::new() }
    }
}

/// What has been left. `homes`: the numbers of all homes; the first of them sees to what is of others. None at a connection server: a data server gives a lent
/// flow back to who has lent it, and one that starts again knows of none.
pub(super) fn take_up(
    steering: &steering::Dispatcher,
    own: ServerId,
    homes: &[u16],
    is_first: bool,
    now: Instant,
) -> Result<Left, String> {
    let (mut known, mut lost, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    for (key, flow) in live_entries(steering).map_err(|error| error.to_string())? {
        if flow.id.home == own && homes.contains(&own.worker()) {
            // It was never given to anybody if it has no holder: then only its first socket had it.
            let target = if flow.holder == ServerId(0) { Target::Hold } else { Target::Node(flow.holder) };
            entries.push((flow.id, target, flow.generation));
            known.push((flow.id, key));
        } else if is_first && !homes.contains(&flow.id.home.worker()) {
            lost.push((flow.id, key));
        }
    }
    Ok(Left { home: handoff::Home::recover(now, HomeLimits::default(), entries), known, lost })
}

/// Of which homes there are flows, by number.
pub(super) fn homes_left(steering: &steering::Dispatcher) -> Result<BTreeSet<u16>, steering::Error> {
    Ok(live_entries(steering)?.into_iter().map(|(_, flow)| flow.id.home.worker()).collect())
}

/// Forgets flows that another server has as its own since this one was stopped.
pub(super) fn forget_inherited(steering: &steering::Dispatcher) -> Result<(), steering::Error> {
    for (key, flow) in live_entries(steering)? {
        steering.flows().delete(key, flow.id)?;
    }
    Ok(())
}

/// Entries of flows that somebody has. What is over goes by itself, as does what nobody has yet; what servers have that aren't leat is in no books, nor is what
/// this host's own listener was given: it has a socket, of whichever process, or none any more that would be missed.
fn live_entries(steering: &steering::Dispatcher) -> Result<Vec<(FlowKey, Flow)>, steering::Error> {
    let is_live =
        |flow: &Flow| !flow.born && !flow.own && !flow.node_closed && !flow.reset && !flow.cut && !flow.foreign;
    let (mut entries, mut place) = (Vec::new(), None);
    loop {
        let (batch, next) = steering.flows().list(place, ENTRIES_COUNT)?;
        entries.extend(batch.into_iter().filter(|(_, flow)| is_live(flow)));
        place = next;
        if place.is_none() {
            return Ok(entries);
        }
    }
}

impl Home {
    /// A flow whose node is gone goes on from this image, or is cut.
    pub(super) fn recovers(&mut self, now: Instant, flow: FlowId, outcome: Result<Image, Impossible>) {
        let encoded = outcome.and_then(|image| {
            let is_doubtful = image.http.connection.expects_again();
            image.encode().map(|bytes| (bytes, is_doubtful)).map_err(|_| Impossible::Unknown)
        });
        match encoded {
            Ok((image, is_doubtful)) => self.flows.recovered(now, flow, image.into(), is_doubtful),
            Err(why) => self.flows.cut(flow, CutReason::Unrepeatable(why)),
        }
    }

    /// All that is known of a flow whose node is gone.
    fn known(
        &self,
        flow: FlowId,
        key: Option<FlowKey>,
        image: &Bytes,
        (kept, told): (Instant, &Told),
        now: Instant,
    ) -> Result<(Recovery, Witness), Impossible> {
        let steering = self.steering.as_ref().ok_or(Impossible::Unknown)?;
        let key = key.ok_or(Impossible::Unknown)?;
        let entry = steering.flows().get(key).ok().flatten();
        let entry = entry.filter(|entry| entry.id == flow).ok_or(Impossible::Unknown)?;
        let image = Image::decode(image).map_err(|_| Impossible::Unknown)?;
        let (heard, has_ended) = (entry.heard, entry.client_fin && !image.http.connection.has_input_ended());
        let recovery = Recovery {
            key,
            image,
            kept,
            told: told.read(),
            heard,
            has_ended,
            // Without it the connection goes on if its client says it again.
            client_said: steering.client_said(key, heard.client_end(has_ended)).unwrap_or_default(),
        };
        let seen = recovery.seen(false, now)?;
        Ok((recovery, seen))
    }

    /// A flow that a data server may have had, or that began at a node, is here, or over.
    pub(super) fn came_back(&mut self, flow: FlowId, now: Instant) {
        if let Some(node) = self.split.as_mut().and_then(|split| split.came_back(flow)) {
            self.dispatcher.end(node, Outcome::Served, now);
        }
        if let Some(node) = self.begun.remove(&flow) {
            self.dispatcher.end(node, Outcome::Unknown, now);
        }
    }
}

impl<H: Host> Worker<H> {
    /// A flow's node is gone, or never got it: goes on from what its client has acknowledged, if that can be known. `kept`: when the image was made, and
    /// what the node had made of it.
    pub(super) fn recover(&mut self, flow: FlowId, image: &Bytes, (kept, birth): (Instant, Birth), told: &Told) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let (key, was_reset) = (cluster.flows.key(flow), cluster.was_reset(flow));
        let Part::Home(home) = &mut cluster.part else { return };
        let asked = home.settled(flow, Outcome::Failed, now).map(|asked| asked.at);
        home.came_back(flow, now);
        if was_reset {
            return home.flows.forget(flow);
        }
        // Data servers tell of each reply before they send any of it. Nodes that tell of all have some that can't be told of: a program's, say.
        let is_silent = home.split.is_some() && told.is_empty();
        let offered = asked.or((is_silent || birth == Birth::Unknown).then_some(kept));
        let known = home.known(flow, key, image, (kept, told), now);
        let (recovery, seen) = match known {
            Ok(known) => known,
            Err(why) => return home.recovers(now, flow, Err(why)),
        };
        let is_as_it_was = match birth {
            // Nobody has acknowledged any of it either: what the client has sent since, it sends again.
            Birth::Denied => seen.acknowledged_bytes == 0,
            Birth::Known | Birth::Unknown => {
                offered.is_some_and(|offered| is_untouched(&recovery.image, &seen, now.since(offered)))
            }
        };
        if is_as_it_was {
            home.recovers(now, flow, Ok(as_it_was(recovery.image, &seen)));
        } else if recovery.wants_proof(&seen) {
            home.inquiries.add(flow, recovery, now);
        } else {
            home.recovers(now, flow, recovery.outcome(&seen));
        }
    }

    /// A connection can't go on. Its client may be waiting: it's told by a reset.
    pub(super) fn cut_flow(&mut self, flow: FlowId, reason: CutReason) {
        crate::log::warning(format_args!("a connection is cut: {reason}"));
        if let CutReason::LostWithTaker = reason {
            return self.cut_lost(flow);
        }
        let Some(cluster) = &mut self.cluster else { return };
        let heard = cluster.flows.key(flow).and_then(|key| {
            let heard = cluster.part.heard(flow, key);
            heard.iter().for_each(|heard| cluster.part.keep_cut(flow, key, heard, self.now));
            heard.map(|heard| (key, heard))
        });
        cluster.part.came_back(flow, self.now);
        cluster.flows.remove(flow);
        if let Some((key, heard)) = heard {
            self.reset_client(key, &heard);
        }
    }

    /// A frozen connection is reset by what its socket knows.
    fn cut_lost(&mut self, flow: FlowId) {
        self.unfreeze(flow);
        if let Some(token) = self.cluster.as_ref().and_then(|cluster| cluster.flows.token(flow)) {
            self.cut(token);
        }
    }

    /// What hasn't come back by now ends, but for what such nodes have: nodes drop it, and its clients are told by resets.
    pub(in crate::worker) fn give_up_flows(&mut self, is_kept: impl Fn(ServerId) -> bool) {
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Home(home) = &mut cluster.part else { return };
        let away = home.flows.give_up(is_kept);
        if away.is_empty() {
            return;
        }
        let count = away.len();
        crate::log::warning(format_args!(
            "{count} connections are cut: the servers that have them haven't given them back in time"
        ));
        home.given_up.extend(away.into_iter().filter_map(|flow| Some((flow, cluster.flows.key(flow)?))));
        home.reset_at = self.now.after(LAST_WORDS);
        self.run_effects();
    }

    /// Tells clients whose connections have been given up, once they've got what was on its way: a reset from before that would be an old one to them.
    pub(super) fn reset_given_up(&mut self) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if now < home.reset_at {
            return;
        }
        home.reset_at = Instant::NEVER;
        for (flow, key) in std::mem::take(&mut home.given_up) {
            let Some(cluster) = &mut self.cluster else { return };
            if let Some(heard) = cluster.part.heard(flow, key) {
                cluster.part.keep_cut(flow, key, &heard, now);
                self.reset_client(key, &heard);
            }
        }
    }

    /// Resets a connection of which there is no socket anywhere, and whose entry says that it was cut.
    pub(super) fn reset_client(&mut self, key: FlowKey, heard: &Heard) {
        let Some(cluster) = &mut self.cluster else { return };
        let Ok(socket) = cluster.freezer.thaw(&end_of(key, heard)) else { return };
        if let Ok(socket) = self.reactor.adopt(socket) {
            self.reactor.close(socket, true);
        }
    }

    /// Tells clients again whose connections were cut, as far as it's time for that.
    pub(super) fn repeat_resets(&mut self) {
        for _ in 0..RESETS_AT_ONCE {
            let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
            let Some(reset) = home.resets.poll(self.now) else { return };
            let key = FlowKey::from(reset.ends);
            let Some(heard) = self.waits_for_reset(&reset) else { continue };
            if let Some(cluster) = &self.cluster {
                probe_client(&cluster.freezer, key, &heard);
            }
            // A near one has answered by now.
            let Some(heard) = self.waits_for_reset(&reset) else { continue };
            self.reset_client(key, &heard);
            if let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) {
                home.resets.again(self.now, reset);
            }
        }
    }

    /// What was seen of the client of a connection that was cut, unless it knows, or has begun another.
    fn waits_for_reset(&self, reset: &Reset) -> Option<Heard> {
        let steering = self.cluster.as_ref()?.part.steering()?;
        let entry = steering.flows().get(FlowKey::from(reset.ends)).ok().flatten()?;
        (entry.id == reset.flow && entry.cut && !entry.reset).then_some(entry.heard)
    }

    /// A node has reset a connection.
    pub(super) fn was_reset(&mut self, flow: FlowId) {
        let Some(cluster) = &mut self.cluster else { return };
        if let Some(key) = cluster.flows.key(flow)
            && let Some(heard) = cluster.part.heard(flow, key)
        {
            cluster.part.keep_cut(flow, key, &heard, self.now);
        }
    }

    /// Of a flow's connection that is about to be reset here: what its client said last, if it may have to be told again.
    pub(in crate::worker) fn last_heard(&self, token: Token) -> Option<Heard> {
        let cluster = self.cluster.as_ref()?;
        cluster.flows.at(token)?;
        let numbers = leat_host::handoff::last_numbers(&Borrowed(self.connections[token].socket));
        let (acknowledged, client_next) = numbers.ok().flatten()?;
        Some(Heard::last(acknowledged, client_next))
    }
}

impl<F> Cluster<F> {
    /// Whether a flow's client has reset it while nobody heard: a frozen socket, or a server that was dead. It's over then.
    pub(super) fn was_reset(&self, flow: FlowId) -> bool {
        let entry = self.flows.key(flow).and_then(|key| self.part.steering()?.flows().get(key).ok().flatten());
        entry.is_some_and(|entry| entry.id == flow && entry.reset)
    }
}

impl Part {
    /// A connection was cut, and its client has been told once: whatever that still says is answered by a reset, and it's told again.
    pub(super) fn keep_cut(&mut self, flow: FlowId, key: FlowKey, heard: &Heard, now: Instant) {
        let Part::Home(home) = self else { return };
        let Some(steering) = &home.steering else { return };
        match steering.flows().cut(key, flow, heard) {
            Ok(()) => home.resets.add(now, flow, key.ends()),
            Err(error) => crate::log::warning(format_args!("a client may not hear that it was cut: {error}")),
        }
        self.release(key, now);
    }

    /// What was seen of a client that isn't served here.
    fn heard(&self, flow: FlowId, key: FlowKey) -> Option<Heard> {
        let Part::Home(home) = self else { return None };
        let entry = home.steering.as_ref()?.flows().get(key).ok().flatten();
        // Its client may have begun another connection.
        entry.filter(|entry| entry.id == flow).map(|entry| entry.heard)
    }
}

/// Has a client say what it has got, whatever that is: by a segment from before it, with nothing in it (RFC 9293, section 3.10.7.4). Nothing is left here that
/// hears the answer, so the kernel resets it by that.
fn probe_client(freezer: &Freezer, key: FlowKey, heard: &Heard) {
    // Who is thawed with something that wasn't acknowledged asks for that.
    let asking = TcpState { sent: vec![0], ..end_of(key, heard) };
    if let Ok(socket) = freezer.thaw(&asking)
        && let Ok(frozen) = freezer.freeze(socket)
    {
        frozen.close_silently();
    }
}

/// A connection in which nothing is left but to end it.
fn end_of(key: FlowKey, heard: &Heard) -> TcpState {
    let Heard { client_next, acknowledged, window, .. } = *heard;
    let window = u32::from(window);
    TcpState {
        local: key.vip,
        remote: key.client,
        send_next: acknowledged,
        receive_next: client_next,
        window: TcpWindow {
            snd_wl1: client_next,
            snd_wnd: window,
            max_window: window,
            rcv_wnd: 0,
            rcv_wup: client_next,
        },
        mss: RESET_MSS,
        window_scale: None,
        sack: false,
        timestamp: None,
        unread: Vec::new(),
        sent: Vec::new(),
        unsent: Vec::new(),
    }
}
