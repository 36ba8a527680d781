//! A machine: a process with the real `Home` or `Node` in it, which can die, stand still and start again, and a kernel, which can't.

use std::collections::BTreeMap;

use leat_logic::handoff::{Effect, FlowId, Home, HomeCounters, Node, SessionId};
use leat_logic::time::Instant;

use super::kernel::Socket;
use crate::agenda::SECOND;
use crate::random::Random;

#[derive(Debug)]
pub(super) enum Process {
    Down,
    Home(Box<Home>),
    Node(Box<Node>),
}

#[derive(Debug)]
pub(super) struct Machine {
    /// Which of the cluster's servers it is: an upgraded one has several processes for a while, each with a part of its kernel's sockets.
    pub(super) server: usize,
    pub(super) process: Process,
    /// It's to end, and has been told so.
    pub(super) ends: bool,
    /// Until then it stays, as connections may begin with it: nobody else accepts them.
    pub(super) accepts_until_ns: u64,
    /// Counts the process's lives.
    pub(super) life: u64,
    /// The process does nothing until then; the kernel does.
    pub(super) stands_still_until_ns: u64,
    pub(super) session: Option<SessionId>,
    /// A freeze or thaw under way, by its number.
    pub(super) under_way: BTreeMap<FlowId, u64>,
    pub(super) sockets: BTreeMap<FlowId, Socket>,
    /// Until when the kernel lets out what sockets send, on its own clock.
    pub(super) lease_until: Instant,
    /// How many local nanoseconds pass in a million.
    pace: u64,
    offset_ns: u64,
    pub(super) next_wake_ns: u64,
}

impl Machine {
    pub(super) fn new(random: &mut Random, server: usize, pace_error: u64) -> Machine {
        Machine {
            server,
            process: Process::Down,
            ends: false,
            accepts_until_ns: 0,
            life: 0,
            stands_still_until_ns: 0,
            session: None,
            under_way: BTreeMap::new(),
            sockets: BTreeMap::new(),
            lease_until: Instant::default(),
            pace: 1_000_000 - pace_error + random.below(9_000) * if pace_error > 9_000 { 0 } else { 2 },
            offset_ns: random.below(1_000) * SECOND,
            next_wake_ns: u64::MAX,
        }
    }

    /// Another process of the same server.
    pub(super) fn follower(&self) -> Machine {
        Machine {
            server: self.server,
            process: Process::Down,
            ends: false,
            accepts_until_ns: 0,
            life: 0,
            stands_still_until_ns: 0,
            session: None,
            under_way: BTreeMap::new(),
            sockets: BTreeMap::new(),
            lease_until: Instant::default(),
            pace: self.pace,
            offset_ns: self.offset_ns,
            next_wake_ns: u64::MAX,
        }
    }

    /// What its clock shows.
    pub(super) fn clock(&self, now_ns: u64) -> Instant {
        Instant { ns: self.offset_ns + SECOND + (u128::from(now_ns) * u128::from(self.pace) / 1_000_000) as u64 }
    }

    /// When its clock will show that.
    pub(super) fn when(&self, local: Instant) -> u64 {
        let passed = local.ns.saturating_sub(self.offset_ns + SECOND);
        (u128::from(passed) * 1_000_000 / u128::from(self.pace)).min(u128::from(u64::MAX / 2)) as u64 + 1
    }

    pub(super) fn is_up(&self) -> bool {
        !matches!(self.process, Process::Down)
    }

    pub(super) fn poll_effect(&mut self) -> Option<Effect> {
        match &mut self.process {
            Process::Down => None,
            Process::Home(home) => home.poll_effect(),
            Process::Node(node) => node.poll_effect(),
        }
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        match &self.process {
            Process::Down => Instant::NEVER,
            Process::Home(home) => home.poll_timeout(),
            Process::Node(node) => node.poll_timeout(),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match &mut self.process {
            Process::Down => {}
            Process::Home(home) => home.handle_timeout(now),
            Process::Node(node) => node.handle_timeout(now),
        }
    }

    pub(super) fn home(&mut self) -> Option<&mut Home> {
        match &mut self.process {
            Process::Home(home) => Some(home),
            _ => None,
        }
    }

    pub(super) fn node(&mut self) -> Option<&mut Node> {
        match &mut self.process {
            Process::Node(node) => Some(node),
            _ => None,
        }
    }

    /// The process is gone, and with it its sockets, without a word.
    pub(super) fn die(&mut self) -> HomeCounters {
        let counters = self.home().map(|home| home.counters()).unwrap_or_default();
        self.process = Process::Down;
        self.ends = false;
        self.accepts_until_ns = 0;
        self.sockets.clear();
        self.under_way.clear();
        self.session = None;
        self.stands_still_until_ns = 0;
        counters
    }
}
