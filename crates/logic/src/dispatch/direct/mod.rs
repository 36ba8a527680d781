//! Whether nodes' own replies reach clients, which packets under another machine's address may not. Decides which clients' requests are proxied to a node
//! because of that, and when it's tried again. Sending probes, and seeing what clients say, is for others.
//!
//! | file | decides |
//! |---|---|
//! | `probe` | when a node is to send something under the VIP to this dispatcher |
//! | `look` | what a client of a node shows of what it hears |
//!
//! What one client shows counts for its prefix, as anybody can pretend to hear nothing. Only if nobody else hears a node either is it cut off for all.

mod look;
mod probe;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::node::NodeId;
use crate::client_prefix::ClientPrefix;
use crate::time::Instant;

use look::Shown;
pub use look::{Look, Said};
use probe::{Probe, Turn};

/// From a connection's coming to a node to the first look, and from one to the next: a client repeats what isn't acknowledged after 200 ms, and then later.
const LOOK_PAUSE: Duration = Duration::from_millis(300);
/// Those of so long are looked at together: to wake for each takes more than the look.
const LOOK_TOGETHER: Duration = Duration::from_millis(20);
/// Connections that are looked at.
const LOOKS_MAX: usize = 1 << 16;
/// One of so many is looked at where nothing but knowledge can come of it.
const LOOKED_AT_EVERY: u32 = 8;
/// Connections of a prefix that hear nothing before its others are proxied, and prefixes before all are.
const UNHEARD_FLOWS: u32 = 2;
const UNHEARD_PREFIXES: usize = 3;
/// For so long nobody else may have heard a node before it's taken to be heard by nobody.
const MUTE_AFTER: Duration = Duration::from_secs(2);
/// Prefixes that are remembered for hearing nothing. What goes beyond that is only taken back.
const PREFIXES_MAX: usize = 1024;
/// One connection that heard nothing is forgotten after so long, and a prefix that hasn't come back after so long.
const DOUBT_TIME: Duration = Duration::from_secs(60);
const TRIAL_TIME: Duration = Duration::from_secs(3600);
/// So long after a server has had no room for a connection, who says nothing new is taken to find none: what is said waits longer each time, up to this
/// while it's looked at.
const CROWDED_TIME: Duration = Duration::from_secs(3);
/// Time between two looks at what is to be forgotten.
const FORGET_PAUSE: Duration = Duration::from_secs(1);
/// Until one connection is tried; each time twice as long.
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Clients whose way to a node is the same, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// All of IPv4 or of IPv6.
    All(Family),
    /// Those of one network.
    Prefix(ClientPrefix),
}

/// Which addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// An address's.
    #[must_use]
    pub fn of(address: IpAddr) -> Family {
        if address.to_canonical().is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whom::All(Family::V4) => f.write_str("all IPv4 clients"),
            Whom::All(Family::V6) => f.write_str("all IPv6 clients"),
            Whom::Prefix(prefix) => write!(f, "clients in {prefix}"),
        }
    }
}

/// Why a node's replies are taken not to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// No probe has.
    #[error("what it sends under the VIP doesn't get to this dispatcher")]
    Probes,
    /// Clients have repeated what the node had.
    #[error("clients hear nothing of it and repeat themselves")]
    Clients,
}

/// For whom a node is proxied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detour {
    /// Of several, one that tells most.
    pub whom: Whom,
    /// Why.
    pub cause: Cause,
    /// How many others there are.
    pub more: usize,
}

impl fmt::Display for Detour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxied for {}", self.whom)?;
        if self.more > 0 {
            write!(f, " and {} more", self.more)?;
        }
        write!(f, ": {}", self.cause)
    }
}

/// Something that its keeper wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whose replies.
    pub node: NodeId,
    /// To whom.
    pub whom: Whom,
    /// Why they don't arrive; none if they do again, or nobody remembers that they didn't.
    pub cause: Option<Cause>,
}

/// What is to become of a connection that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, now.
    Wait,
    /// Its client hears nothing: it's to go on elsewhere.
    TakeBack,
    /// Its node may have said something that its client hasn't acknowledged: it's to be asked for the connection. [`Direct::was_unheard`] if so.
    Ask,
    /// So it is, as with others, and nobody can go on with it.
    GiveUp,
}

/// When clients may have their replies directly again.
#[derive(Clone, Copy, Debug)]
struct Trial {
    at: Instant,
    pause: Duration,
    is_under_way: bool,
}

impl Trial {
    fn new(now: Instant) -> Trial {
        Trial { at: now.after(PAUSE_MIN), pause: PAUSE_MIN, is_under_way: false }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.at <= now && !self.is_under_way
    }

    fn begin(&mut self, now: Instant) -> bool {
        let begins = self.is_due(now);
        self.is_under_way |= begins;
        begins
    }

    /// It has shown nothing.
    fn end(&mut self, now: Instant) {
        (self.at, self.is_under_way) = (now.after(self.pause), false);
    }

    fn fail(&mut self, now: Instant) {
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.end(now);
    }
}

/// Clients of one prefix that hear nothing of a node.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// Connections.
    unheard: u32,
    first: Instant,
    last: Instant,
    trial: Option<Trial>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Direct {
    probes: BTreeMap<(NodeId, Family), Probe>,
    /// Nodes that no client hears.
    mute: BTreeMap<(NodeId, Family), Trial>,
    doubts: BTreeMap<(NodeId, ClientPrefix), Doubt>,
    /// So many of them are proxied.
    detoured: usize,
    /// When a node was last heard by anybody.
    heard: BTreeMap<(NodeId, Family), Instant>,
    /// When a node's server last had no room for a connection.
    crowded: BTreeMap<NodeId, Instant>,
    /// In the order of their times.
    looks: VecDeque<(Instant, Look)>,
    looked_at: u32,
    forget_at: Instant,
    events: VecDeque<Event>,
}

impl Direct {
    /// Whether a node may have the connection of a client: its replies arrive, or it's time to try.
    #[must_use]
    pub fn allows(&self, node: NodeId, client: IpAddr, now: Instant) -> bool {
        let (prefix, place) = (ClientPrefix::of(client), (node, Family::of(client)));
        let may_try = |trial: &Trial| trial.is_due(now);
        !self.probes.get(&place).is_some_and(Probe::has_failed)
            && self.mute.get(&place).is_none_or(may_try)
            && self.doubts.get(&(node, prefix)).and_then(|doubt| doubt.trial.as_ref()).is_none_or(may_try)
    }

    /// Whether all nodes may have everybody's connections.
    #[must_use]
    pub fn allows_all(&self) -> bool {
        self.detoured == 0 && self.mute.is_empty() && !self.probes.values().any(Probe::has_failed)
    }

    /// For whom a node is proxied, if for anybody.
    #[must_use]
    pub fn detour(&self, node: NodeId) -> Option<Detour> {
        let probes = self.probes.iter().filter(|((known, _), probe)| *known == node && probe.has_failed());
        let probes = probes.map(|((_, family), _)| (Whom::All(*family), Cause::Probes));
        let mute = self.mute.keys().filter(|(known, _)| *known == node);
        let mute = mute.map(|(_, family)| (Whom::All(*family), Cause::Clients));
        let doubts = self.doubts.iter().filter(|((known, _), doubt)| *known == node && doubt.trial.is_some());
        let doubts = doubts.map(|((_, prefix), _)| (Whom::Prefix(*prefix), Cause::Clients));
        let mut all = probes.chain(mute).chain(doubts);
        let (whom, cause) = all.next()?;
        Some(Detour { whom, cause, more: all.count() })
    }

    /// For how many clients or prefixes nodes are proxied, each node by itself.
    #[must_use]
    pub fn detours(&self) -> usize {
        let probes = self.probes.values().filter(|probe| probe.has_failed()).count();
        probes + self.mute.len() + self.detoured
    }

    /// A node's link is up: it's probed for these. [`Direct::is_probed`] says when enough is known.
    pub fn begin_probes(&mut self, node: NodeId, families: &[Family], now: Instant) {
        for &family in families {
            self.probes.entry((node, family)).or_insert_with(Probe::new).begin(now);
        }
    }

    /// A node's link is down.
    pub fn end_probes(&mut self, node: NodeId) {
        let of_node = self.probes.iter_mut().filter(|((known, _), _)| *known == node);
        of_node.for_each(|(_, probe)| probe.stop());
    }

    /// Whether no probe is awaited before a node is used. Those that are tried again aren't.
    #[must_use]
    pub fn is_probed(&self, node: NodeId) -> bool {
        let mut of_node = self.probes.iter().filter(|((known, _), _)| *known == node);
        of_node.all(|(_, probe)| !probe.is_under_way() || probe.has_failed())
    }

    /// A node that is to send a probe now.
    pub fn poll_probe(&mut self, now: Instant) -> Option<(NodeId, Family)> {
        for (&(node, family), probe) in &mut self.probes {
            while let Some(turn) = probe.poll(now) {
                match turn {
                    Turn::Send => return Some((node, family)),
                    Turn::Failed => {
                        let whom = Whom::All(family);
                        self.events.push_back(Event { node, whom, cause: Some(Cause::Probes) });
                    }
                    Turn::Unknown => {}
                }
            }
        }
        None
    }

    /// A node says that it has sent a probe.
    pub fn probe_sent(&mut self, node: NodeId, family: Family) {
        if let Some(probe) = self.probes.get_mut(&(node, family)) {
            probe.sent();
        }
    }

    /// A probe has arrived.
    pub fn probe_arrived(&mut self, node: NodeId, family: Family) {
        if self.probes.get_mut(&(node, family)).is_some_and(Probe::arrived) {
            self.events.push_back(Event { node, whom: Whom::All(family), cause: None });
        }
    }

    /// A node is given a connection: whether its client hears it will be looked at.
    pub fn watch(&mut self, mut look: Look, now: Instant) {
        let [mute, doubt] = self.trials(&look);
        // Both, whether the other begins or not.
        let begins = [mute, doubt].map(|trial| trial.is_some_and(|trial| trial.begin(now)));
        look.is_trial = begins.contains(&true);
        if self.looks.len() < LOOKS_MAX {
            self.looks.push_back((now.after(LOOK_PAUSE), look));
        } else if look.is_trial {
            self.end_trials(&look, now);
        }
    }

    /// A connection that is to be looked at now. [`Direct::looked`], [`Direct::put_off`] or [`Direct::left`] gets it back. `is_doubted`: another worker has
    /// found somebody who hears nothing.
    pub fn poll_look(&mut self, is_doubted: bool, now: Instant) -> Option<Look> {
        let (_, mut look) = self.looks.pop_front_if(|(at, _)| *at <= now)?;
        self.looked_at = self.looked_at.wrapping_add(1);
        if self.forget_at <= now && self.has_doubts() {
            self.forget_at = now.after(FORGET_PAUSE);
            self.forget_doubts(now);
        }
        let is_sample = self.looked_at.is_multiple_of(LOOKED_AT_EVERY);
        look.matters |= look.is_trial || is_doubted || is_sample || self.has_doubts();
        Some(look)
    }

    /// Whether anybody has been found who hears nothing.
    #[must_use]
    pub fn has_doubts(&self) -> bool {
        !self.doubts.is_empty()
    }

    /// A connection isn't looked at, as it doesn't matter yet.
    pub fn put_off(&mut self, mut look: Look, now: Instant) {
        match look.delay() {
            true => self.look_again(look, now),
            false => self.left(&look, now),
        }
    }

    /// A node's server has had no room for connections that were to begin there: who says the same again isn't there yet, and says nothing of what is heard.
    pub fn was_crowded(&mut self, node: NodeId, now: Instant) {
        self.crowded.insert(node, now);
    }

    /// Whether that is so by now.
    #[must_use]
    pub fn is_crowded(&self, node: NodeId, now: Instant) -> bool {
        self.crowded.get(&node).is_some_and(|at| now.since(*at) < CROWDED_TIME)
    }

    /// What a node was asked about has shown that its client hears nothing.
    pub fn was_unheard(&mut self, look: &Look, now: Instant) {
        self.is_unheard(look, now);
    }

    /// `said`: what the client has said by now; none while the node doesn't have the connection. `can_come_back`: the node can be asked for it.
    pub fn looked(&mut self, mut look: Look, said: Option<Said>, can_come_back: bool, now: Instant) -> Verdict {
        let is_crowded = self.is_crowded(look.node, now);
        let said = said.map(|said| Said { repeats: said.repeats.filter(|_| !is_crowded), ..said });
        match look.judge(said) {
            Shown::Heard => self.is_heard(&look, now),
            shown if shown == Shown::Unheard || shown == Shown::Silent && !can_come_back && look.is_long_silent() => {
                if !std::mem::replace(&mut look.is_counted, true) {
                    self.is_unheard(&look, now);
                }
                if can_come_back {
                    return Verdict::TakeBack;
                }
                // A node or a network that stands still for a moment is no reason.
                if !look.is_last() {
                    self.look_again(look, now);
                } else if self.is_cut_off(&look) {
                    return Verdict::GiveUp;
                }
            }
            Shown::Silent if can_come_back => {
                // It may be long before an answer comes, if one does.
                self.left(&look, now);
                return Verdict::Ask;
            }
            Shown::Enough => self.left(&look, now),
            _ => self.look_again(look, now),
        }
        Verdict::Wait
    }

    fn look_again(&mut self, look: Look, now: Instant) {
        self.looks.push_back((now.after(LOOK_PAUSE), look));
    }

    /// Whether it isn't the only one that hears nothing.
    fn is_cut_off(&mut self, look: &Look) -> bool {
        let place = (look.node, Family::of(look.ends.client.ip()));
        self.probes.get(&place).is_some_and(Probe::has_failed) || self.trials(look).iter().any(Option::is_some)
    }

    /// A connection isn't its node's any more, and shows nothing.
    pub fn left(&mut self, look: &Look, now: Instant) {
        if look.is_trial {
            self.end_trials(look, now);
        }
    }

    /// What has changed.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When there is something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        if !self.events.is_empty() {
            return Instant::default();
        }
        let look = self.looks.front().map_or(Instant::NEVER, |(at, _)| at.rounded_up(LOOK_TOGETHER));
        self.probes.values().map(Probe::poll_timeout).fold(look, Instant::min)
    }

    fn trials(&mut self, look: &Look) -> [Option<&mut Trial>; 2] {
        let client = look.ends.client.ip();
        let doubt = self.doubts.get_mut(&(look.node, ClientPrefix::of(client)));
        [self.mute.get_mut(&(look.node, Family::of(client))), doubt.and_then(|doubt| doubt.trial.as_mut())]
    }

    fn end_trials(&mut self, look: &Look, now: Instant) {
        self.trials(look).into_iter().flatten().for_each(|trial| trial.end(now));
    }

    /// Who hasn't come back isn't remembered for ever.
    fn forget_doubts(&mut self, now: Instant) {
        let time = |doubt: &Doubt| if doubt.trial.is_some() { TRIAL_TIME } else { DOUBT_TIME };
        let old = self.doubts.extract_if(.., |_, doubt| now.since(doubt.last) >= time(doubt));
        for ((node, prefix), _) in old.filter(|(_, doubt)| doubt.trial.is_some()) {
            self.detoured -= 1;
            self.events.push_back(Event { node, whom: Whom::Prefix(prefix), cause: None });
        }
    }

    fn is_heard(&mut self, look: &Look, now: Instant) {
        let (node, client) = (look.node, look.ends.client.ip());
        let (prefix, family) = (ClientPrefix::of(client), Family::of(client));
        self.heard.insert((node, family), now);
        let had_doubt = self.doubts.remove(&(node, prefix)).is_some_and(|doubt| doubt.trial.is_some());
        self.detoured -= usize::from(had_doubt);
        let was_mute = self.mute.remove(&(node, family)).is_some();
        let back = [(had_doubt, Whom::Prefix(prefix)), (was_mute, Whom::All(family))];
        let back = back.into_iter().filter(|(is_back, _)| *is_back);
        self.events.extend(back.map(|(_, whom)| Event { node, whom, cause: None }));
    }

    fn is_unheard(&mut self, look: &Look, now: Instant) {
        let (node, client) = (look.node, look.ends.client.ip());
        let (prefix, family) = (ClientPrefix::of(client), Family::of(client));
        if look.is_trial {
            self.trials(look).into_iter().flatten().for_each(|trial| trial.fail(now));
        }
        let is_full = self.doubts.len() >= PREFIXES_MAX;
        let doubt = match self.doubts.get_mut(&(node, prefix)) {
            None if is_full => return,
            Some(doubt) => doubt,
            None => {
                self.doubts.entry((node, prefix)).or_insert(Doubt { unheard: 0, first: now, last: now, trial: None })
            }
        };
        (doubt.unheard, doubt.last) = (doubt.unheard.saturating_add(1), now);
        if doubt.trial.is_none() && doubt.unheard >= UNHEARD_FLOWS {
            doubt.trial = Some(Trial::new(now));
            self.detoured += 1;
            self.events.push_back(Event { node, whom: Whom::Prefix(prefix), cause: Some(Cause::Clients) });
        }
        let place = (node, family);
        let heard = self.heard.get(&place).copied().unwrap_or_default();
        let hears_nothing = |((known, prefix), doubt): &(&(NodeId, ClientPrefix), &Doubt)| {
            (*known, prefix.is_v4()) == (node, family == Family::V4)
                && doubt.trial.is_some()
                && doubt.first > heard
                && now.since(doubt.first) >= MUTE_AFTER
        };
        let is_mute = self.doubts.iter().filter(hears_nothing).count() >= UNHEARD_PREFIXES;
        if is_mute && !self.mute.contains_key(&place) {
            self.mute.insert(place, Trial::new(now));
            self.events.push_back(Event { node, whom: Whom::All(family), cause: Some(Cause::Clients) });
        }
    }
}

#[cfg(test)]
mod tests;
