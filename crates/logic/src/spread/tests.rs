//! Nodes that hand flows on to each other, and their fronts, in a world of messages that take their time: links break, nodes and fronts die, and come
//! back remembering nothing. What happens is drawn from a seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::{FRONT, Followed, Peer};
use crate::handoff::{Effect, Ends, FlowId, Load, Message, RefuseReason, ServerId, SessionId, Target};
use crate::time::Instant;

const NODES: usize = 3;
const FRONTS: usize = 2;

fn server(node: usize) -> ServerId {
    ServerId::new(node as u32 + 1, 0)
}

fn ends(flow: FlowId) -> Ends {
    let port = (flow.home.server() * 1000) as u16 + flow.serial as u16;
    Ends { client: ([192, 0, 2, 1], port).into(), vip: ([10, 77, 0, 100], 80).into() }
}

/// What a node's kernel has.
#[derive(Default)]
struct Host {
    live: BTreeSet<FlowId>,
    frozen: BTreeSet<FlowId>,
    steered: BTreeMap<FlowId, ServerId>,
    /// Flows that are to be frozen or thawed.
    awaited: Vec<(FlowId, bool)>,
}

/// Nodes by their places, then fronts.
type Machine = usize;

struct World {
    now: Instant,
    random: u64,
    peers: Vec<Peer>,
    hosts: Vec<Host>,
    fronts: Vec<Followed>,
    /// What each front's programs send where.
    followed: Vec<BTreeMap<Ends, (ServerId, bool)>>,
    /// Both ends of each link, with what is on its way to the second and to the first.
    links: BTreeMap<SessionId, (Machine, Machine, [VecDeque<Message>; 2])>,
    next_session: u64,
    next_serial: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let now = Instant { ns: 1 };
        let mut world = World {
            now,
            random: seed * 2 + 1,
            peers: (0..NODES).map(|_| Peer::new(now, FRONTS)).collect(),
            hosts: (0..NODES).map(|_| Host::default()).collect(),
            fronts: (0..FRONTS).map(|_| Followed::new(now)).collect(),
            followed: vec![BTreeMap::new(); FRONTS],
            links: BTreeMap::new(),
            next_session: 0,
            next_serial: 0,
        };
        world.link_all();
        world
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % below
    }

    /// Makes the links that there should be and aren't.
    fn link_all(&mut self) {
        let wanted = (0..NODES).flat_map(|node| (0..node).chain(NODES..NODES + FRONTS).map(move |to| (node, to)));
        for (from, to) in wanted.collect::<Vec<_>>() {
            if self.links.values().any(|(a, b, _)| (*a, *b) == (from, to)) {
                continue;
            }
            self.next_session += 1;
            let session = SessionId(self.next_session);
            self.links.insert(session, (from, to, Default::default()));
            match to.checked_sub(NODES) {
                Some(front) => {
                    self.peers[from].connected(self.now, session, ServerId(FRONT), Some(front));
                    self.fronts[front].connected(self.now, session, server(from));
                }
                None => {
                    self.peers[from].connected(self.now, session, server(to), None);
                    self.peers[to].connected(self.now, session, server(from), None);
                }
            }
        }
        self.settle();
    }

    /// Ends a link; what is on its way is lost.
    fn cut(&mut self, session: SessionId) {
        let Some((from, to, _)) = self.links.remove(&session) else { return };
        for end in [from, to] {
            match end.checked_sub(NODES) {
                Some(front) => self.fronts[front].disconnected(self.now, session),
                None => self.peers[end].disconnected(self.now, session),
            }
        }
        self.settle();
    }

    fn cut_all(&mut self, machine: Machine) {
        let of = |(_, (a, b, _)): &(&SessionId, &(Machine, Machine, _))| [*a, *b].contains(&machine);
        let sessions: Vec<_> = self.links.iter().filter(of).map(|(session, _)| *session).collect();
        sessions.into_iter().for_each(|session| self.cut(session));
    }

    fn kill_node(&mut self, node: usize) {
        self.peers[node] = Peer::new(self.now, FRONTS);
        self.hosts[node] = Host::default();
        self.cut_all(node);
    }

    fn kill_front(&mut self, front: usize) {
        self.fronts[front] = Followed::new(self.now);
        self.followed[front].clear();
        self.cut_all(NODES + front);
    }

    fn settle(&mut self) {
        for node in 0..NODES {
            while let Some(effect) = self.peers[node].poll_effect() {
                self.execute(node, effect);
            }
        }
        for front in 0..FRONTS {
            while let Some(effect) = self.fronts[front].poll_effect() {
                match effect {
                    Effect::Follow { ends, node, is_over } => drop(self.followed[front].insert(ends, (node, is_over))),
                    Effect::Unfollow { ends } => drop(self.followed[front].remove(&ends)),
                    effect => self.execute(NODES + front, effect),
                }
            }
        }
        for host in &self.hosts {
            for flow in &host.live {
                let holders = self.hosts.iter().filter(|host| host.live.contains(flow)).count();
                assert_eq!(holders, 1, "{flow} has two that speak");
            }
        }
    }

    fn execute(&mut self, machine: Machine, effect: Effect) {
        match effect {
            Effect::Send { session, message } => {
                if let Some((from, _, queues)) = self.links.get_mut(&session) {
                    queues[usize::from(*from != machine)].push_back(message);
                }
            }
            Effect::Disconnect { session } => self.cut(session),
            Effect::Freeze { flow } => self.hosts[machine].awaited.push((flow, true)),
            Effect::Thaw { flow, .. } => self.hosts[machine].awaited.push((flow, false)),
            Effect::Steer { flow, to: Target::Node(to), .. } => drop(self.hosts[machine].steered.insert(flow, to)),
            // An entry of a flow that is elsewhere is only closed: it goes once its packets do.
            Effect::Unsteer { flow, .. } if self.hosts[machine].live.contains(&flow) => {
                self.hosts[machine].steered.remove(&flow);
            }
            Effect::Unfreeze { flow, .. } => {
                assert!(self.hosts[machine].frozen.remove(&flow));
                self.hosts[machine].steered.remove(&flow);
                self.hosts[machine].live.insert(flow);
            }
            Effect::CloseSilently { flow } => assert!(self.hosts[machine].frozen.remove(&flow)),
            Effect::Unsteer { .. } | Effect::Load { .. } => {}
            effect => panic!("{effect:?}"),
        }
    }

    fn deliver(&mut self, session: SessionId, way: usize) {
        let Some((from, to, queues)) = self.links.get_mut(&session) else { return };
        let (machine, message) = ([*to, *from][way], queues[way].pop_front());
        let Some(message) = message else { return };
        match machine.checked_sub(NODES) {
            Some(front) => self.fronts[front].handle_message(self.now, session, message),
            None => self.peers[machine].handle_message(self.now, session, message),
        }
        self.settle();
    }

    /// A kernel does what was asked of it.
    fn work(&mut self, node: usize) {
        let count = self.hosts[node].awaited.len();
        if count == 0 {
            return;
        }
        let place = self.draw(count);
        let (flow, is_freeze) = self.hosts[node].awaited.remove(place);
        let fails = self.draw(10) == 0;
        let (host, peer) = (&mut self.hosts[node], &mut self.peers[node]);
        match (is_freeze, fails) {
            (true, false) if host.live.remove(&flow) => {
                host.frozen.insert(flow);
                peer.frozen(flow, Bytes::from_static(b"image"));
            }
            (true, _) => peer.freeze_failed(flow),
            (false, false) => {
                host.live.insert(flow);
                peer.thawed(flow, Some(ends(flow)));
            }
            (false, true) => peer.thaw_failed(flow, RefuseReason::Kernel),
        }
        self.settle();
    }

    fn begin(&mut self, node: usize) {
        self.next_serial += 1;
        let flow = FlowId { home: server(node), serial: self.next_serial };
        self.hosts[node].live.insert(flow);
        self.peers[node].begin(flow);
    }

    fn end(&mut self, node: usize, flow: FlowId) {
        self.hosts[node].live.remove(&flow);
        self.peers[node].ended(flow);
        self.settle();
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.peers.iter_mut().for_each(|peer| peer.handle_timeout(self.now));
        self.fronts.iter_mut().for_each(|front| front.handle_timeout(self.now));
        self.settle();
    }

    fn draw_live(&mut self) -> Option<(usize, FlowId)> {
        let node = self.draw(NODES);
        let count = self.hosts[node].live.len();
        let place = if count == 0 { return None } else { self.draw(count) };
        self.hosts[node].live.iter().nth(place).map(|flow| (node, *flow))
    }

    fn step(&mut self) {
        let node = self.draw(NODES);
        match self.draw(12) {
            0 => self.begin(node),
            1 | 2 => {
                if let Some((node, flow)) = self.draw_live() {
                    let to = (node + 1 + self.draw(NODES - 1)) % NODES;
                    self.peers[node].give(flow, server(to));
                    self.settle();
                }
            }
            3 if self.next_serial > 20 => {
                if let Some((node, flow)) = self.draw_live() {
                    self.end(node, flow);
                }
            }
            4 | 5 => self.work(node),
            6 => self.pass(Duration::from_millis(20)),
            _ => {
                let count = self.links.len();
                let (link, way) = (self.draw(count), self.draw(2));
                let session = *self.links.keys().nth(link).unwrap();
                self.deliver(session, way);
            }
        }
    }

    /// Until nothing is on its way.
    fn come_to_rest(&mut self) {
        self.link_all();
        for _ in 0..50 {
            while let Some((session, way)) = self.links.iter().find_map(|(session, (.., queues))| {
                (0..2).find(|way| !queues[*way].is_empty()).map(|way| (*session, way))
            }) {
                self.deliver(session, way);
            }
            (0..NODES).for_each(|node| (0..100).for_each(|_| self.work(node)));
            self.pass(Duration::from_millis(100));
        }
    }

    /// Where a flow's packet ends that arrives by a front: each node sends it on as its programs say.
    fn arrives(&self, front: usize, flow: FlowId) -> Option<usize> {
        let mut at = match self.followed[front].get(&ends(flow)) {
            Some((node, false)) => *node,
            _ => flow.home,
        };
        for _ in 0..=NODES {
            let node = at.server() as usize - 1;
            match self.hosts[node].steered.get(&flow) {
                Some(next) if !self.hosts[node].live.contains(&flow) => at = *next,
                _ => return self.hosts[node].live.contains(&flow).then_some(node),
            }
        }
        None
    }

    fn live(&self) -> Vec<(usize, FlowId)> {
        (0..NODES).flat_map(|node| self.hosts[node].live.iter().map(move |flow| (node, *flow))).collect()
    }
}

const SEEDS: u64 = 40;

#[test]
fn packets_find_their_flow_by_any_front_and_past_its_first_node() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        (0..1500).for_each(|_| world.step());
        world.come_to_rest();
        let live = world.live();
        assert!(!live.is_empty());
        for (node, flow) in live {
            for front in 0..FRONTS {
                assert_eq!(world.arrives(front, flow), Some(node), "seed {seed}: {flow} by front {front}");
                // Not by way of its first node, which may die.
                let direct = world.followed[front].get(&ends(flow)).map(|(holder, _)| *holder);
                assert!(flow.home == server(node) || direct == Some(server(node)), "seed {seed}: {flow}");
            }
        }
    }
}

#[test]
fn a_node_that_has_given_everything_away_is_empty_once_all_fronts_know_and_its_death_cuts_nothing() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        (0..800).for_each(|_| world.step());
        for _ in 0..20 {
            world.come_to_rest();
            for flow in world.hosts[0].live.clone() {
                world.peers[0].give(flow, server(1 + world.random as usize % 2));
                world.settle();
            }
        }
        assert!(world.hosts[0].live.is_empty(), "seed {seed}");
        assert_eq!(world.peers[0].owned(), 0, "seed {seed}: nothing is its own, and nobody relies on it");
        let before = world.live();
        world.kill_node(0);
        world.come_to_rest();
        assert_eq!(world.live(), before);
        for (node, flow) in before {
            (0..FRONTS).for_each(|front| assert_eq!(world.arrives(front, flow), Some(node), "seed {seed}: {flow}"));
        }
    }
}

#[test]
fn links_nodes_and_fronts_may_die_and_no_flow_ever_has_two_that_speak() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..1500 {
            world.step();
            match world.draw(150) {
                0 => {
                    let link = world.draw(world.links.len());
                    let session = *world.links.keys().nth(link).unwrap();
                    world.cut(session);
                    world.link_all();
                }
                1 if world.draw(4) == 0 => {
                    let node = world.draw(NODES);
                    world.kill_node(node);
                    world.link_all();
                }
                2 => {
                    let front = world.draw(FRONTS);
                    world.kill_front(front);
                    world.link_all();
                }
                _ => {}
            }
        }
        world.come_to_rest();
        // A front that remembers nothing has been told by those who have the flows.
        for (node, flow) in world.live().into_iter().filter(|(node, flow)| flow.home != server(*node)) {
            for front in 0..FRONTS {
                assert_eq!(world.followed[front].get(&ends(flow)), Some(&(server(node), false)), "seed {seed}: {flow}");
            }
        }
        // Nothing stays when all is over.
        for (node, flow) in world.live() {
            world.end(node, flow);
        }
        world.come_to_rest();
        world.pass(Duration::from_secs(61));
        world.come_to_rest();
        world.pass(Duration::from_secs(61));
        let left: Vec<usize> =
            world.peers.iter().map(Peer::flow_count).chain(world.fronts.iter().map(Followed::len)).collect();
        assert_eq!(left, vec![0; NODES + FRONTS], "seed {seed}");
        assert!(world.followed.iter().all(BTreeMap::is_empty), "seed {seed}");
    }
}

#[test]
fn who_drains_takes_nothing_and_who_is_silent_is_gone() {
    let mut world = World::new(1);
    world.peers[1].set_load(Load { is_draining: true, ..Load::default() }, &[0]);
    world.begin(0);
    let flow = *world.hosts[0].live.first().unwrap();
    assert!(world.peers[0].give(flow, server(1)));
    world.settle();
    world.come_to_rest();
    assert_eq!((world.live(), world.peers[0].counters().refused), (vec![(0, flow)], 1));
    // Nobody delivers anything for so long: all links end, and nothing can be given away.
    world.pass(Duration::from_secs(4));
    assert!(world.links.is_empty() && !world.peers[0].give(flow, server(2)));
}
