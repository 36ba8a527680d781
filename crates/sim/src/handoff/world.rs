//! Everything that happens: one agenda, and what each happening leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use leat_logic::handoff::{
    Birth, CutReason, Destination, Effect, FlowId, Generation, Home, HomeLimits, Image, Incarnation, Message, Node,
    NodeLimits, Question, RefuseReason, Rules, ServerId, SessionId, Target, There, Told, Witness, continue_from,
    is_untouched,
};

use super::client::{Client, Packet, REQUEST_BYTES, WINDOW_BYTES};
use super::kernel::{Socket, ThawRules, request};
use super::process::{Machine, Process};
use super::session::Sessions;
use super::{Defect, FAULTS_END_NS, Options, Summary};
use crate::agenda::{MILLISECOND, SECOND};
use crate::random::Random;

const HOME: usize = 0;
const TICK_NS: u64 = 100 * MILLISECOND;
/// No packet is longer on its way.
const LATENCY_NS_MAX: u64 = 200 * MILLISECOND;
/// A request that its client sends again comes within that.
const ASKED_AGAIN_WITHIN_NS: u64 = 5 * SECOND;
/// A connection that the client has left.
const STALL_NS: u64 = 40 * SECOND;

#[derive(Debug)]
pub(super) enum Happening {
    Deliver {
        session: SessionId,
        to_home: bool,
        bytes: Vec<u8>,
    },
    Opened(SessionId),
    Closed {
        session: SessionId,
        at_home: bool,
    },
    Wake(usize),
    Frozen {
        machine: usize,
        flow: FlowId,
        operation: u64,
    },
    Thawed {
        machine: usize,
        flow: FlowId,
        operation: u64,
        generation: Generation,
        image: Bytes,
    },
    Recovery {
        life: u64,
        flow: FlowId,
        image: Bytes,
        told: Told,
        birth: Birth,
        offered: Duration,
        is_probed: bool,
    },
    Steered {
        flow: FlowId,
        to: Target,
        generation: Generation,
    },
    SocketTick {
        machine: usize,
        flow: FlowId,
        generation: Generation,
        life: u64,
    },
    ToClient {
        flow: FlowId,
        start: u64,
        bytes: Vec<u8>,
        acknowledged: u64,
    },
    Reset(FlowId),
    AtHome(Packet),
    /// Whether it may begin a connection there.
    AtNode(usize, Packet, bool),
    Accept {
        machine: usize,
        flow: FlowId,
        life: u64,
    },
    TellBirths {
        machine: usize,
        life: u64,
    },
    ClientTick(FlowId),
    NewClient,
    Connect {
        node: usize,
        life: u64,
    },
    Crash(usize),
    /// A process of a node gets a follower, or ends without one.
    Upgrade(usize),
    Stop(usize),
    End {
        machine: usize,
        life: u64,
        is_followed: bool,
    },
    Expire {
        machine: usize,
        life: u64,
    },
    /// A process that ends tries to give a socket to the one that followed.
    Pass {
        machine: usize,
        life: u64,
        flow: FlowId,
        tries: u64,
    },
    /// A socket has come there.
    Passed {
        flow: FlowId,
        generation: Generation,
        /// Each with its life.
        from: (usize, u64),
        to: (usize, u64),
    },
    Start(usize),
    StandStill(usize, u64),
    CutSession(usize),
    /// Clients' packets are lost for a while, and at its end a machine dies.
    DeafThenCrash(usize),
    Recall,
    NewContent,
}

/// What the home's steering program has seen of a client.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Bytes.
    acknowledged: u64,
    sent: u64,
    /// From here on, the last of what it sent was kept.
    kept: u64,
}

pub(super) struct World {
    options: Options,
    random: Random,
    pub(super) now_ns: u64,
    serial: u64,
    agenda: BTreeMap<(u64, u64), Happening>,
    /// The home's, one for each node, and then those that have followed.
    machines: Vec<Machine>,
    nodes: usize,
    sessions: Sessions,
    /// Pinned: outlives the home's process.
    steering: BTreeMap<FlowId, (Target, Generation)>,
    clients: BTreeMap<FlowId, Client>,
    /// Of which nobody has anything yet, those that were to begin at a node, and which servers' processes have accepted them.
    unborn: BTreeSet<FlowId>,
    births: BTreeSet<FlowId>,
    /// Until when connections for a node begin there without the home being asked, and those that it hasn't read of.
    standing: BTreeMap<ServerId, u64>,
    begun: Vec<(FlowId, ServerId, Bytes)>,
    accepted: BTreeSet<(usize, FlowId)>,
    /// What the home's steering program has seen of each.
    seen: BTreeMap<FlowId, Seen>,
    /// The highest generation that has sent anything.
    highest: BTreeMap<FlowId, Generation>,
    /// Why a flow may have been cut.
    excuses: BTreeMap<FlowId, &'static str>,
    version: u8,
    limits: (HomeLimits, NodeLimits),
    faults: u64,
    /// Until then nothing that clients send arrives.
    deaf_until_ns: u64,
    operations: u64,
    summary: Summary,
    pub(super) failure: Option<String>,
}

impl World {
    pub(super) fn new(options: Options) -> World {
        let mut random = Random::new(options.seed);
        let nodes = random.between(1, 3) as usize;
        let slow = options.defect == Some(Defect::SlowClock);
        let machines = (0..=nodes)
            .map(|machine| Machine::new(&mut random, machine, if slow && machine != HOME { 200_000 } else { 9_000 }))
            .collect();
        let home = HomeLimits { kept_bytes_max: *random.pick(&[1 << 20, 1 << 20, 4_000]), ..HomeLimits::default() };
        let mut node = NodeLimits { offers_max: *random.pick(&[1, 3, 100]), ..NodeLimits::default() };
        if random.percent(20) {
            node.orphan_timeout = std::time::Duration::from_secs(2);
        }
        let mut world = World {
            options,
            random,
            now_ns: 0,
            serial: 0,
            agenda: BTreeMap::new(),
            machines,
            nodes,
            sessions: Sessions::default(),
            steering: BTreeMap::new(),
            clients: BTreeMap::new(),
            unborn: BTreeSet::new(),
            births: BTreeSet::new(),
            standing: BTreeMap::new(),
            begun: Vec::new(),
            accepted: BTreeSet::new(),
            seen: BTreeMap::new(),
            highest: BTreeMap::new(),
            excuses: BTreeMap::new(),
            version: 1,
            limits: (home, node),
            faults: 0,
            deaf_until_ns: 0,
            operations: 0,
            summary: Summary::default(),
            failure: None,
        };
        world.plan();
        world
    }

    /// Who comes when, and what goes wrong when.
    fn plan(&mut self) {
        for machine in 0..self.machines.len() {
            self.after(0, Happening::Start(machine));
        }
        for _ in 0..self.random.between(3, 25) {
            let at_ns = self.random.below(18 * SECOND);
            self.after(at_ns, Happening::NewClient);
        }
        let faults = if self.random.percent(15) { 0 } else { self.random.between(1, 12) };
        for _ in 0..faults {
            let at_ns = self.random.below(FAULTS_END_NS - SECOND);
            let machine = self.random.below(self.machines.len() as u64) as usize;
            let fault = match self.random.below(6) {
                5 => Happening::DeafThenCrash(machine),
                0 => Happening::Crash(machine),
                1 | 2 => Happening::CutSession(machine),
                3 => Happening::StandStill(
                    machine,
                    *self.random.pick(&[20 * MILLISECOND, 900 * MILLISECOND, 3 * SECOND]),
                ),
                _ => Happening::NewContent,
            };
            self.after(at_ns, fault);
        }
        for _ in 0..self.random.below(8) {
            let at_ns = self.random.below(FAULTS_END_NS);
            self.after(at_ns, Happening::Recall);
        }
        let ends = if self.random.percent(40) { 0 } else { self.random.between(1, 6) };
        for _ in 0..ends {
            let at_ns = self.random.below(FAULTS_END_NS - SECOND);
            let server = self.random.between(1, self.nodes as u64) as usize;
            let ending = if self.random.percent(70) { Happening::Upgrade(server) } else { Happening::Stop(server) };
            self.after(at_ns, ending);
        }
    }

    pub(super) fn after(&mut self, delay_ns: u64, happening: Happening) {
        self.at(self.now_ns + delay_ns, happening);
    }

    fn at(&mut self, at_ns: u64, happening: Happening) {
        self.serial += 1;
        self.agenda.insert((at_ns.max(self.now_ns), self.serial), happening);
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.options.verbose {
            eprintln!("{:12.6} {}", self.now_ns as f64 / SECOND as f64, what());
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.options.defect == Some(defect)
    }

    fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    /// The next thing that happens. False when nothing ever will.
    pub(super) fn step(&mut self) -> bool {
        let Some(((at_ns, serial), happening)) = self.agenda.pop_first() else { return false };
        self.now_ns = at_ns;
        self.summary.fingerprint = (self.summary.fingerprint ^ at_ns ^ serial).wrapping_mul(0x0100_0000_01B3);
        let process = self.process_of(&happening);
        if process == Some(HOME) {
            self.read_begun();
        }
        if let Some(machine) = process
            && self.machines[machine].stands_still_until_ns > at_ns
        {
            let until_ns = self.machines[machine].stands_still_until_ns;
            self.at(until_ns, happening);
            return true;
        }
        self.happen(happening);
        for machine in 0..self.machines.len() {
            self.settle(machine);
        }
        true
    }

    /// The process without which it can't happen.
    fn process_of(&self, happening: &Happening) -> Option<usize> {
        let end = |session: &SessionId, at_home: bool| match at_home {
            true => Some(HOME),
            false => self.sessions.get(*session).map(|session| session.node),
        };
        match happening {
            Happening::Deliver { session, to_home, .. } => end(session, *to_home),
            Happening::Closed { session, at_home } => end(session, *at_home),
            Happening::Opened(_) | Happening::Recovery { .. } | Happening::Recall => Some(HOME),
            Happening::Wake(machine)
            | Happening::Frozen { machine, .. }
            | Happening::Thawed { machine, .. }
            | Happening::Connect { node: machine, .. }
            | Happening::Accept { machine, .. }
            | Happening::TellBirths { machine, .. }
            | Happening::Pass { machine, .. }
            | Happening::Passed { to: (machine, _), .. }
            | Happening::End { machine, .. } => Some(*machine),
            _ => None,
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Deliver { session, to_home, bytes } => self.deliver(session, to_home, &bytes),
            Happening::Opened(session) => self.session_opened(session),
            Happening::Closed { session, at_home } => self.session_closed(session, at_home),
            Happening::Wake(machine) => {
                self.wake(machine);
            }
            Happening::Frozen { machine, flow, operation } => self.freeze_done(machine, flow, operation),
            Happening::Thawed { machine, flow, operation, generation, image } => {
                self.thaw_done(machine, flow, operation, generation, &image);
            }
            Happening::Recovery { life, flow, image, told, birth, offered, is_probed } => {
                if self.machines[HOME].life == life {
                    self.recover(flow, &image, &told, (birth, offered), is_probed);
                }
            }
            Happening::Steered { flow, to, generation } => self.steer(flow, to, generation),
            Happening::SocketTick { machine, flow, generation, life } => self.tick(machine, flow, generation, life),
            Happening::ToClient { flow, start, bytes, acknowledged } => {
                self.client_receives(flow, start, &bytes, acknowledged);
            }
            Happening::Reset(flow) => self.client_reset(flow),
            Happening::AtHome(packet) => self.packet_at_home(packet),
            Happening::AtNode(node, packet, may_begin) => {
                let receiver = self.receiver(node, packet.flow);
                if self.machines[receiver].sockets.contains_key(&packet.flow) {
                    self.packet_at(receiver, packet);
                } else if may_begin {
                    self.begin_at(node, packet);
                }
            }
            Happening::Accept { machine, flow, life } => self.accept(machine, flow, life),
            Happening::TellBirths { machine, life } => self.tell_births(machine, life),
            Happening::ClientTick(flow) => self.client_tick(flow),
            Happening::NewClient => self.new_client(),
            Happening::Connect { node, life } => self.connect(node, life),
            Happening::Crash(server) => {
                let machine = self.process_at(server);
                self.crash(machine);
            }
            Happening::Upgrade(server) => self.upgrade(server),
            Happening::Stop(server) => self.stop(server),
            Happening::End { machine, life, is_followed } => self.end(machine, life, is_followed),
            Happening::Expire { machine, life } => self.expire(machine, life),
            Happening::Pass { machine, life, flow, tries } => self.pass(machine, life, flow, tries),
            Happening::Passed { flow, generation, from, to } => self.passed(flow, generation, from, to),
            Happening::Start(machine) => self.start(machine),
            Happening::StandStill(server, duration_ns) => {
                self.faults += 1;
                let machine = self.process_at(server);
                self.trace(|| format!("{machine} stands still for {} ms", duration_ns / MILLISECOND));
                let until_ns = &mut self.machines[machine].stands_still_until_ns;
                *until_ns = (*until_ns).max(self.now_ns + duration_ns);
            }
            Happening::CutSession(server) => {
                self.faults += 1;
                let machine = self.process_at(server);
                for session in self.sessions.of_node(machine) {
                    self.cut_session(session);
                }
            }
            Happening::DeafThenCrash(machine) => {
                self.deaf_until_ns = self.now_ns + 30 * MILLISECOND;
                self.after(30 * MILLISECOND, Happening::Crash(machine));
            }
            Happening::Recall => self.recall(),
            Happening::NewContent => self.version = self.version.wrapping_add(1),
        }
    }

    /// Does what a process wants done, and sees to its next waking.
    fn settle(&mut self, machine: usize) {
        if self.machines[machine].stands_still_until_ns > self.now_ns {
            return;
        }
        while let Some(effect) = self.machines[machine].poll_effect() {
            self.trace(|| format!("{machine}: {}", summarise(&effect)));
            self.execute(machine, effect);
        }
        self.exit_if_done(machine);
        let state = &self.machines[machine];
        let due = state.poll_timeout();
        if due < leat_logic::time::Instant::NEVER {
            let at_ns = state.when(due).max(self.now_ns + 1);
            if at_ns < state.next_wake_ns {
                self.machines[machine].next_wake_ns = at_ns;
                self.at(at_ns, Happening::Wake(machine));
            }
        }
    }

    fn execute(&mut self, machine: usize, effect: Effect) {
        match effect {
            Effect::Freeze { flow } => {
                if let Some(socket) = self.machines[machine].sockets.get_mut(&flow) {
                    socket.is_freezing = true;
                    socket.is_asking = false;
                }
                if self.has_heir(machine) && self.random.percent(50) {
                    // What is under way lets nobody else have it: it may go with its socket.
                    let (life, tries) = (self.machines[machine].life, 50);
                    self.after(0, Happening::Pass { machine, life, flow, tries });
                } else {
                    self.begin_freezing(machine, flow);
                }
            }
            Effect::Thaw { flow, generation, image } => {
                let operation = self.begin_operation(machine, flow);
                let delay_ns = self.operation_time();
                self.after(delay_ns, Happening::Thawed { machine, flow, operation, generation, image });
            }
            Effect::Steer { flow, to, generation } if self.has(Defect::SteersLate) => {
                self.after(100 * MILLISECOND, Happening::Steered { flow, to, generation });
            }
            Effect::Steer { flow, to, generation } => self.steer(flow, to, generation),
            Effect::Unsteer { flow, generation } => {
                if self.steering.get(&flow).is_some_and(|&(_, entry)| entry <= generation) {
                    self.steering.remove(&flow);
                }
            }
            Effect::Unfreeze { flow, generation } => {
                if let Some(socket) = self.machines[machine].sockets.get_mut(&flow) {
                    socket.is_frozen = false;
                    socket.is_freezing = false;
                    socket.generation = generation;
                    self.start_ticking(machine, flow);
                }
            }
            Effect::CloseSilently { flow } => {
                self.machines[machine].under_way.remove(&flow);
                self.machines[machine].sockets.remove(&flow);
            }
            Effect::Place { flow, giver, image } => self.place(flow, giver, &image),
            Effect::Recover { flow, image, kept, told, birth } => {
                let offered = self.machines[HOME].clock(self.now_ns).since(kept);
                let is_probed = self.random.percent(50);
                let wait_ns = if is_probed && !self.has(Defect::ProbesEarly) { LATENCY_NS_MAX } else { 0 };
                let life = self.machines[HOME].life;
                self.after(wait_ns, Happening::Recovery { life, flow, image, told, birth, offered, is_probed });
            }
            Effect::Cut { flow, reason } => {
                if self.faults == 0 && reason != CutReason::NoPlace {
                    self.fail(format!("{flow} is cut, and nothing has gone wrong: {reason}"));
                }
                self.excuses.entry(flow).or_insert("cut");
                self.after(MILLISECOND, Happening::Reset(flow));
            }
            Effect::LeaseUntil { until } => self.machines[machine].lease_until = until,
            Effect::Send { session, message } => self.send(machine, session, message),
            Effect::Disconnect { session } => {
                if self.machines[machine].session == Some(session) {
                    self.machines[machine].session = None;
                    self.reconnect(machine);
                }
                self.cut_session(session);
            }
            Effect::Where { flow, question, .. } => {
                let there = [There::Stay, There::Fetch(ServerId(1)), There::Move, There::Nowhere];
                let there = *self.random.pick(&there);
                if let Some(home) = self.machines[machine].home() {
                    home.tell(flow, question.number, there);
                }
            }
            Effect::Told { flow, there } => self.told(machine, flow, there),
            Effect::AcceptAll => self.accept_all(machine),
            Effect::Load { .. }
            | Effect::Lapsed { .. }
            | Effect::Rules(_)
            | Effect::Seen(_)
            | Effect::Inherit { .. } => {}
            Effect::Reset { .. }
            | Effect::Probe { .. }
            | Effect::Probed { .. }
            | Effect::Yield { .. }
            | Effect::Yielded { .. } => unreachable!("nobody asks for it"),
            Effect::Follow { .. } | Effect::Unfollow { .. } => unreachable!("there is no front"),
        }
    }

    fn wake(&mut self, machine: usize) {
        let state = &mut self.machines[machine];
        let orphaned = |state: &mut Machine| state.node().map_or(0, |node| node.counters().orphaned);
        let before = orphaned(state);
        state.next_wake_ns = u64::MAX;
        state.handle_timeout(state.clock(self.now_ns));
        if orphaned(state) > before {
            let flows = state.sockets.keys().chain(state.under_way.keys());
            self.excuses.extend(flows.map(|&flow| (flow, "its home didn't come back")));
        }
    }

    fn begin_freezing(&mut self, machine: usize, flow: FlowId) {
        let operation = self.begin_operation(machine, flow);
        let delay_ns = self.operation_time();
        self.after(delay_ns, Happening::Frozen { machine, flow, operation });
    }

    fn begin_operation(&mut self, machine: usize, flow: FlowId) -> u64 {
        self.operations += 1;
        self.machines[machine].under_way.insert(flow, self.operations);
        self.operations
    }

    fn operation_time(&mut self) -> u64 {
        let most_ns = *self.random.pick(&[50_000, MILLISECOND, 150 * MILLISECOND]);
        self.random.below(most_ns)
    }

    fn steer(&mut self, flow: FlowId, to: Target, generation: Generation) {
        let entry = self.steering.entry(flow).or_insert((to, generation));
        if entry.1 <= generation {
            *entry = (to, generation);
        }
    }

    fn freeze_done(&mut self, machine: usize, flow: FlowId, operation: u64) {
        if self.machines[machine].under_way.get(&flow) != Some(&operation) {
            return;
        }
        self.machines[machine].under_way.remove(&flow);
        let fails = self.random.percent(3);
        let in_kernel = *self.random.pick(&[0, 10, 500]);
        let client = &self.clients[&flow];
        let state = &mut self.machines[machine];
        let Some(socket) = state.sockets.get_mut(&flow) else { return };
        socket.is_freezing = false;
        socket.is_frozen = !fails;
        if !fails && machine != HOME {
            socket.rebase();
        }
        let image = socket.read_out(client, in_kernel);
        let now = state.clock(self.now_ns);
        match (&mut state.process, fails) {
            (Process::Home(home), false) => home.frozen(now, flow, image),
            (Process::Home(home), true) => home.freeze_failed(flow),
            (Process::Node(node), false) => node.frozen(flow, image),
            (Process::Node(node), true) => node.freeze_failed(flow),
            (Process::Down, _) => {}
        }
    }

    fn thaw_done(&mut self, machine: usize, flow: FlowId, operation: u64, generation: Generation, image: &[u8]) {
        if self.machines[machine].under_way.get(&flow) != Some(&operation) {
            return;
        }
        self.machines[machine].under_way.remove(&flow);
        let rules = ThawRules {
            version: self.version,
            trusts_content: self.has(Defect::TrustsContent),
            forgets_resend: self.has(Defect::ForgetsResend),
        };
        let socket = Socket::thaw(image, rules, generation, self.now_ns)
            .filter(|_| !self.random.percent(4) && !self.is_taken(machine, flow))
            .filter(|_| !self.machines[machine].sockets.contains_key(&flow));
        let is_made = socket.is_some();
        self.machines[machine].sockets.extend(socket.map(|socket| (flow, socket)));
        match (&mut self.machines[machine].process, is_made) {
            (Process::Home(home), true) => home.thawed(flow),
            (Process::Home(home), false) => home.thaw_failed(flow),
            (Process::Node(node), true) => node.thawed(flow),
            (Process::Node(node), false) => node.thaw_failed(flow, RefuseReason::Kernel),
            (Process::Down, _) => {}
        }
        if is_made {
            self.summary.changes += 1;
            self.start_ticking(machine, flow);
        }
    }

    fn recover(
        &mut self,
        flow: FlowId,
        image: &[u8],
        told: &Told,
        (birth, offered): (Birth, Duration),
        is_probed: bool,
    ) {
        let image = Image::decode(image).expect("written here");
        let tcp = image.tcp.as_ref().expect("every image here has one");
        let Seen { mut acknowledged, sent, kept } = self.seen.get(&flow).copied().unwrap_or_default();
        // Of a client that was silent for long, what it said isn't there any more.
        let kept_requests = if self.random.percent(80) { sent / REQUEST_BYTES - kept / REQUEST_BYTES } else { 0 };
        let client = &self.clients[&flow];
        let answers = is_probed && !client.is_over && self.now_ns < client.vanishes_ns;
        if answers {
            acknowledged = client.received;
        }
        let seen = Witness {
            acknowledged_bytes: acknowledged.saturating_sub(u64::from(tcp.unacknowledged())),
            window_bytes: WINDOW_BYTES as u32,
            client_bytes: sent.saturating_sub(u64::from(tcp.first_unread())),
            has_ended: false,
            client_said: (0..kept_requests).flat_map(|_| request()).collect(),
            unkept_bytes: 0,
            timestamp: None,
            is_exact: answers,
        };
        let is_as_it_was = match birth {
            Birth::Denied => seen.acknowledged_bytes == 0,
            Birth::Unknown => is_untouched(&image, &seen, offered),
            Birth::Known => false,
        };
        let outcome = if is_as_it_was { Ok(image) } else { continue_from(image, told.read(), &seen) };
        if is_as_it_was
            && birth == Birth::Unknown
            && let Some(client) = self.clients.get_mut(&flow)
        {
            // What it acknowledged may have been lost.
            client.expects_another();
        }
        self.trace(|| format!("{flow} after its node's death, {seen:?}: {:?}", outcome.as_ref().err()));
        let now = self.machines[HOME].clock(self.now_ns);
        let Some(home) = self.machines[HOME].home() else { return };
        match outcome {
            Ok(image) => {
                self.summary.recovered += 1;
                if image.http.connection.flags & 8 != 0 || image.http.connection.expects_again() {
                    self.excuses.insert(flow, "a request died with its node");
                }
                let is_doubtful = image.http.connection.expects_again();
                home.recovered(now, flow, image.encode().expect("within the limits").into(), is_doubtful);
            }
            Err(why) => home.cut(flow, CutReason::Unrepeatable(why)),
        }
    }

    /// Where a flow goes that is at the home as an image: where its next request is wanted; at the second try, where it's safe.
    fn place(&mut self, flow: FlowId, giver: Option<ServerId>, image: &[u8]) {
        let number = Image::decode(image).map(|image| image.http.connection.requests as usize).unwrap_or_default();
        let wanted = self.clients[&flow].asked.get(number).map_or(ServerId(0), |asked| asked.wanted);
        let first = if self.random.percent(30) { giver.unwrap_or(wanted) } else { wanted };
        let stays = self.random.percent(5);
        let Some(home) = self.machines[HOME].home() else { return };
        // Nobody but its process can have it there, and that ends.
        let is_followed = !stays && giver == Some(first) && home.is_giver_followed(flow);
        if first != ServerId(0) && !is_followed && home.place(flow, Destination::Node(first)).is_ok() {
            return;
        }
        let _ = home.place(flow, Destination::Here);
    }

    fn send(&mut self, machine: usize, session: SessionId, message: Message) {
        let to_home = machine != HOME;
        if to_home != message.is_from_node() {
            self.fail(format!("{machine} says {message:?}, which isn't its to say"));
        }
        let message = match message {
            Message::Holding { is_last, .. } if self.has(Defect::ForgetsList) => {
                Message::Holding { flows: Vec::new(), is_last }
            }
            message => message,
        };
        if let Some(at_ns) = self.sessions.arrival(&mut self.random, self.now_ns, session, to_home) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            self.at(at_ns, Happening::Deliver { session, to_home, bytes });
        }
    }

    fn deliver(&mut self, session: SessionId, to_home: bool, bytes: &[u8]) {
        let Some(state) = self.sessions.get(session) else { return };
        let (machine, life) = if to_home { (HOME, state.lives.1) } else { (state.node, state.lives.0) };
        if (state.is_cut && !state.delivers_rest) || self.machines[machine].life != life {
            return;
        }
        let Ok(Some((_, Some(message)))) = Message::decode(bytes) else {
            return self.fail(format!("a message can't be read: {bytes:?}"));
        };
        let now = self.machines[machine].clock(self.now_ns);
        match &mut self.machines[machine].process {
            Process::Home(home) => home.handle_message(now, session, message),
            Process::Node(node) => node.handle_message(now, session, message),
            Process::Down => {}
        }
    }
}

fn summarise(effect: &Effect) -> String {
    let mut text = format!("{effect:?}");
    text.truncate(text.char_indices().nth(180).map_or(text.len(), |(end, _)| end));
    text
}

mod births;
mod faults;
mod lives;
mod traffic;
