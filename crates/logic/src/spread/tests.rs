//! Nodes of two workers that hand flows on to each other, and their fronts, in a world of messages that take their time: links break, nodes and fronts die, and
//! come back remembering nothing; one worker takes over from the other as an upgraded process does. What happens is drawn from a seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::{FRONT, Followed, Peer};
use crate::handoff::{
    CutReason, Effect, Ends, FlowId, Generation, Load, Message, Process, RefuseReason, ServerId, SessionId, Target,
};
use crate::time::Instant;

const NODES: usize = 3;
const WORKERS: usize = 2;
const PEERS: usize = NODES * WORKERS;
const FRONTS: usize = 2;

/// By a worker's place among all.
fn server(peer: usize) -> ServerId {
    ServerId::new((peer / WORKERS) as u32 + 1, (peer % WORKERS) as u32)
}

fn workers(node: usize) -> std::ops::Range<usize> {
    node * WORKERS..(node + 1) * WORKERS
}

fn ends(flow: FlowId) -> Ends {
    let port = (flow.home.server() * 1000) as u16 + flow.serial as u16;
    Ends { client: ([192, 0, 2, 1], port).into(), vip: ([10, 77, 0, 100], 80).into() }
}

/// What a worker has in its node's kernel.
#[derive(Default)]
struct Host {
    live: BTreeSet<FlowId>,
    frozen: BTreeSet<FlowId>,
    /// Flows that are to be frozen or thawed.
    awaited: Vec<(FlowId, bool)>,
}

/// Workers by their places, then fronts.
type Machine = usize;

struct World {
    now: Instant,
    random: u64,
    peers: Vec<Peer>,
    hosts: Vec<Host>,
    /// Each node's entries, its workers' together.
    steered: Vec<BTreeMap<FlowId, ServerId>>,
    fronts: Vec<Followed>,
    /// What each front's programs send where.
    followed: Vec<BTreeMap<Ends, (ServerId, bool)>>,
    /// Both ends of each link, with what is on its way to the second and to the first.
    links: BTreeMap<SessionId, (Machine, Machine, [VecDeque<Message>; 2])>,
    next_session: u64,
    next_serial: u64,
    next_process: u64,
    /// Flows that were cut as they were lost with their taker.
    cut: Vec<FlowId>,
}

impl World {
    fn new(seed: u64) -> World {
        let now = Instant { ns: 1 };
        let mut world = World {
            now,
            random: seed * 2 + 1,
            peers: Vec::new(),
            hosts: (0..PEERS).map(|_| Host::default()).collect(),
            steered: vec![BTreeMap::new(); NODES],
            fronts: (0..FRONTS).map(|_| Followed::new(now)).collect(),
            followed: vec![BTreeMap::new(); FRONTS],
            links: BTreeMap::new(),
            next_session: 0,
            next_serial: 0,
            next_process: 0,
            cut: Vec::new(),
        };
        world.peers = (0..PEERS).map(|_| world.new_peer()).collect();
        world.link_all();
        world
    }

    fn new_peer(&mut self) -> Peer {
        self.next_process += 1;
        let mut peer = Peer::new(self.now, FRONTS);
        peer.set_process(Process { number: self.next_process, is_only: false });
        peer
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % below
    }

    /// Makes the links that there should be and aren't.
    fn link_all(&mut self) {
        let before = |peer: usize| 0..peer / WORKERS * WORKERS;
        let wanted = (0..PEERS).flat_map(|peer| before(peer).chain(PEERS..PEERS + FRONTS).map(move |to| (peer, to)));
        for (from, to) in wanted.collect::<Vec<_>>() {
            let is_made = self.links.values().any(|(a, b, _)| (*a, *b) == (from, to));
            // Who leaves neither seeks nodes nor hears them.
            let leaves = to < PEERS && [from, to].iter().any(|peer| self.peers[*peer].is_leaving());
            if is_made || leaves {
                continue;
            }
            self.next_session += 1;
            let session = SessionId(self.next_session);
            self.links.insert(session, (from, to, Default::default()));
            match to.checked_sub(PEERS) {
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
            match end.checked_sub(PEERS) {
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

    /// Flows that nobody speaks for, as the link was lost by which they were offered.
    fn lost(&self) -> u64 {
        self.peers.iter().map(|peer| peer.counters().lost).sum()
    }

    fn kill_node(&mut self, node: usize) {
        workers(node).for_each(|peer| self.kill_worker(peer));
        self.steered[node].clear();
    }

    fn kill_worker(&mut self, peer: usize) {
        self.peers[peer] = self.new_peer();
        self.hosts[peer] = Host::default();
        self.cut_all(peer);
    }

    /// What can passes from a worker that leaves to the other one of its node.
    fn pass_flows(&mut self, from: usize, to: usize) {
        for flow in self.hosts[from].live.clone() {
            let Some(mut generation) = self.peers[from].pass(flow) else { continue };
            if generation != Generation::default() {
                generation = generation.next();
            }
            self.hosts[from].live.remove(&flow);
            self.hosts[to].live.insert(flow);
            self.peers[to].take_over(flow, generation, Some(ends(flow)));
        }
        self.settle();
    }

    fn kill_front(&mut self, front: usize) {
        self.fronts[front] = Followed::new(self.now);
        self.followed[front].clear();
        self.cut_all(PEERS + front);
    }

    fn settle(&mut self) {
        for peer in 0..PEERS {
            while let Some(effect) = self.peers[peer].poll_effect() {
                self.execute(peer, effect);
            }
        }
        for front in 0..FRONTS {
            while let Some(effect) = self.fronts[front].poll_effect() {
                match effect {
                    Effect::Follow { ends, node, is_over } => drop(self.followed[front].insert(ends, (node, is_over))),
                    Effect::Unfollow { ends } => drop(self.followed[front].remove(&ends)),
                    effect => self.execute(PEERS + front, effect),
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
            Effect::Steer { flow, to: Target::Node(to), .. } => {
                self.steered[machine / WORKERS].insert(flow, to);
            }
            // An entry of a flow that is elsewhere is only closed: it goes once its packets do.
            Effect::Unsteer { flow, .. } if self.hosts[machine].live.contains(&flow) => {
                self.steered[machine / WORKERS].remove(&flow);
            }
            Effect::Unfreeze { flow, .. } => {
                assert!(self.hosts[machine].frozen.remove(&flow));
                self.steered[machine / WORKERS].remove(&flow);
                self.hosts[machine].live.insert(flow);
            }
            Effect::CloseSilently { flow } => assert!(self.hosts[machine].frozen.remove(&flow)),
            Effect::Cut { flow, .. } => {
                assert!(self.hosts[machine].frozen.remove(&flow));
                self.cut.push(flow);
            }
            Effect::Unsteer { .. } | Effect::Load { .. } => {}
            effect => panic!("{effect:?}"),
        }
    }

    fn deliver(&mut self, session: SessionId, way: usize) {
        let Some((from, to, queues)) = self.links.get_mut(&session) else { return };
        let (machine, message) = ([*to, *from][way], queues[way].pop_front());
        let Some(message) = message else { return };
        match machine.checked_sub(PEERS) {
            Some(front) => self.fronts[front].handle_message(self.now, session, message),
            None => self.peers[machine].handle_message(self.now, session, message),
        }
        self.settle();
    }

    /// A kernel does what was asked of it.
    fn work(&mut self, peer: usize) {
        let count = self.hosts[peer].awaited.len();
        if count == 0 {
            return;
        }
        let place = self.draw(count);
        let (flow, is_freeze) = self.hosts[peer].awaited.remove(place);
        let fails = self.draw(10) == 0;
        let (host, peer) = (&mut self.hosts[peer], &mut self.peers[peer]);
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

    fn begin(&mut self, peer: usize) {
        self.next_serial += 1;
        let flow = FlowId { home: server(peer), serial: self.next_serial };
        self.hosts[peer].live.insert(flow);
        self.peers[peer].begin(flow);
    }

    fn end(&mut self, peer: usize, flow: FlowId) {
        self.hosts[peer].live.remove(&flow);
        self.peers[peer].ended(flow);
        self.settle();
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.peers.iter_mut().for_each(|peer| peer.handle_timeout(self.now));
        self.fronts.iter_mut().for_each(|front| front.handle_timeout(self.now));
        self.settle();
    }

    fn draw_live(&mut self) -> Option<(usize, FlowId)> {
        let peer = self.draw(PEERS);
        let count = self.hosts[peer].live.len();
        let place = if count == 0 { return None } else { self.draw(count) };
        self.hosts[peer].live.iter().nth(place).map(|flow| (peer, *flow))
    }

    fn step(&mut self) {
        let peer = self.draw(PEERS);
        match self.draw(12) {
            // Who leaves accepts nothing any more.
            0 if !self.peers[peer].is_leaving() => self.begin(peer),
            1 | 2 => {
                if let Some((peer, flow)) = self.draw_live() {
                    let node = (peer / WORKERS + 1 + self.draw(NODES - 1)) % NODES;
                    let to = node * WORKERS + self.draw(WORKERS);
                    self.peers[peer].give(flow, server(to));
                    self.settle();
                }
            }
            3 if self.next_serial > 20 => {
                if let Some((peer, flow)) = self.draw_live() {
                    self.end(peer, flow);
                }
            }
            4 | 5 => self.work(peer),
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
            (0..PEERS).for_each(|peer| (0..100).for_each(|_| self.work(peer)));
            self.pass(Duration::from_millis(100));
        }
    }

    fn is_live_at(&self, node: usize, flow: FlowId) -> bool {
        self.hosts[workers(node)].iter().any(|host| host.live.contains(&flow))
    }

    /// The node where a flow's packet ends that arrives by a front: each node sends it on as its programs say.
    fn arrives(&self, front: usize, flow: FlowId) -> Option<usize> {
        let mut at = match self.followed[front].get(&ends(flow)) {
            Some((node, false)) => *node,
            _ => flow.home,
        };
        for _ in 0..=NODES {
            let node = at.server() as usize - 1;
            match self.steered[node].get(&flow) {
                Some(next) if !self.is_live_at(node, flow) => at = *next,
                _ => return self.is_live_at(node, flow).then_some(node),
            }
        }
        None
    }

    fn live(&self) -> Vec<(usize, FlowId)> {
        (0..PEERS).flat_map(|peer| self.hosts[peer].live.iter().map(move |flow| (peer, *flow))).collect()
    }

    /// Each flow that lives is found by each front, and by nobody's leave but its holder's: its first node may die.
    fn assert_found(&self, seed: u64) {
        for (peer, flow) in self.live() {
            for front in 0..FRONTS {
                let node = peer / WORKERS;
                assert_eq!(self.arrives(front, flow), Some(node), "seed {seed}: {flow} by front {front}");
                let direct = self.followed[front].get(&ends(flow)).map(|(holder, _)| holder.server());
                let holder = server(peer).server();
                assert!(flow.home.server() == holder || direct == Some(holder), "seed {seed}: {flow}");
            }
        }
    }
}

const SEEDS: u64 = 40;

#[test]
fn packets_find_their_flow_by_any_front_and_past_its_first_node() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        (0..1500).for_each(|_| world.step());
        world.come_to_rest();
        assert!(!world.live().is_empty());
        world.assert_found(seed);
    }
}

#[test]
fn a_process_that_follows_another_has_its_flows_and_cuts_none() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        (0..600).for_each(|_| world.step());
        for _ in 0..2 {
            let from = world.draw(PEERS);
            let to = from ^ 1;
            world.peers[from].leave();
            // What can't pass now can later, and meanwhile everything goes on.
            for _ in 0..40 {
                world.pass_flows(from, to);
                (0..10).for_each(|_| world.step());
                world.pass(Duration::from_millis(1));
            }
            world.come_to_rest();
            world.pass_flows(from, to);
            world.come_to_rest();
            assert!(world.hosts[from].live.is_empty() && world.peers[from].has_left(), "seed {seed}");
            assert_eq!(world.lost(), 0, "seed {seed}: what others offered meanwhile is theirs");
            let before = world.live();
            world.kill_worker(from);
            world.come_to_rest();
            assert_eq!(world.live(), before, "seed {seed}");
            world.assert_found(seed);
            // Longer than fronts keep what a worker without a link has told them.
            (0..13).for_each(|_| world.come_to_rest());
            world.assert_found(seed);
            (0..300).for_each(|_| world.step());
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
            for peer in workers(0) {
                for flow in world.hosts[peer].live.clone() {
                    let to = WORKERS + world.draw(PEERS - WORKERS);
                    world.peers[peer].give(flow, server(to));
                    world.settle();
                }
            }
        }
        for peer in workers(0) {
            assert!(world.hosts[peer].live.is_empty(), "seed {seed}");
            assert_eq!(world.peers[peer].owned(), 0, "seed {seed}: nothing is its own, and nobody relies on it");
        }
        let before = world.live();
        world.kill_node(0);
        world.come_to_rest();
        assert_eq!(world.live(), before);
        world.assert_found(seed);
    }
}

#[test]
fn a_node_that_is_stopped_while_others_hand_on_to_it_cuts_nothing_of_theirs() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        (0..800).for_each(|_| world.step());
        for peer in workers(1) {
            world.peers[peer].set_load(Load { is_draining: true, ..Load::default() }, &[0, 1]);
        }
        (0..200).for_each(|_| world.step());
        for peer in workers(1) {
            let left: Vec<FlowId> = world.hosts[peer].live.iter().copied().collect();
            left.into_iter().for_each(|flow| world.end(peer, flow));
            world.peers[peer].leave();
        }
        // Others don't know yet, and it ends when it may.
        for _ in 0..400 {
            world.step();
            world.pass(Duration::from_millis(1));
        }
        world.come_to_rest();
        assert!(workers(1).all(|peer| world.peers[peer].has_left()), "seed {seed}");
        let left: Vec<_> = workers(1).map(|peer| world.hosts[peer].frozen.len()).collect();
        assert_eq!((world.lost(), left), (0, vec![0, 0]), "seed {seed}");
        assert!(world.hosts.iter().all(|host| host.frozen.is_empty()), "seed {seed}: nobody waits for an answer");
        let before: Vec<_> = world.live().into_iter().filter(|(peer, _)| !workers(1).contains(peer)).collect();
        world.kill_node(1);
        world.come_to_rest();
        assert_eq!(world.live(), before, "seed {seed}");
    }
}

#[test]
fn what_a_process_that_ends_hasnt_answered_goes_on_where_it_was_offered() {
    let (now, taker) = (Instant { ns: 1 }, SessionId(1));
    let mut peer = self::taker(taker);
    let flows = [1, 2].map(|serial| FlowId { home: server(2), serial });
    for flow in flows {
        peer.begin(flow);
        assert!(peer.give(flow, server(0)));
        peer.frozen(flow, Bytes::new());
    }
    while peer.poll_effect().is_some() {}
    peer.handle_message(now, taker, Message::Taken { flow: flows[0], generation: Generation(1) });
    peer.handle_message(now, taker, Message::Bequeath);
    let did: Vec<Effect> = std::iter::from_fn(|| peer.poll_effect()).collect();
    let [
        Effect::CloseSilently { flow: given },
        Effect::Unfreeze { flow: kept, .. },
        Effect::Disconnect { session },
        ..,
    ] = &did[..]
    else {
        panic!("{did:?}");
    };
    assert_eq!((*given, *kept, *session), (flows[0], flows[1], taker));
    assert_eq!(
        (peer.live().collect::<Vec<_>>(), peer.counters().refused, peer.counters().lost),
        (vec![kept.to_owned()], 1, 0)
    );
}

#[test]
fn links_nodes_and_fronts_may_die_and_no_flow_ever_has_two_that_speak() {
    let mut cut = 0;
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
        cut += world.cut.len();
        // A front that remembers nothing has been told by those who have the flows.
        for (peer, flow) in world.live().into_iter().filter(|(peer, flow)| flow.home != server(*peer)) {
            for front in 0..FRONTS {
                assert_eq!(world.followed[front].get(&ends(flow)), Some(&(server(peer), false)), "seed {seed}: {flow}");
            }
        }
        // Nothing stays when all is over.
        for (peer, flow) in world.live() {
            world.end(peer, flow);
        }
        world.come_to_rest();
        world.pass(Duration::from_secs(61));
        world.come_to_rest();
        world.pass(Duration::from_secs(61));
        let left: Vec<usize> =
            world.peers.iter().map(Peer::flow_count).chain(world.fronts.iter().map(Followed::len)).collect();
        assert_eq!(left, vec![0; PEERS + FRONTS], "seed {seed}");
        assert!(world.followed.iter().all(BTreeMap::is_empty), "seed {seed}");
        assert!(world.hosts.iter().all(|host| host.frozen.is_empty()), "seed {seed}: nobody waits for ever");
    }
    assert!(cut > 0, "of what dies with its taker its client is told");
}

/// Its taker can't be asked any more: which processes of that node live is what tells.
#[test]
fn a_flow_that_was_on_its_way_to_a_node_that_died_is_cut_once_that_is_known() {
    let (now, before, after) = (Instant { ns: 1 }, SessionId(1), SessionId(2));
    let flow = FlowId { home: server(2), serial: 1 };
    let lost = |says: Option<Process>| {
        let mut peer = taker(before);
        let present = |process| Message::Present { load: Load::default(), process, workers: Vec::new() };
        says.iter().for_each(|process| peer.handle_message(now, before, present(*process)));
        peer.begin(flow);
        assert!(peer.give(flow, server(0)));
        peer.frozen(flow, Bytes::new());
        peer.disconnected(now, before);
        (peer, present)
    };
    let did = |peer: &mut Peer| -> Vec<Effect> {
        let did = std::iter::from_fn(|| peer.poll_effect());
        did.filter(|effect| matches!(effect, Effect::CloseSilently { .. } | Effect::Cut { .. })).collect()
    };
    let (silently, cut) = (Effect::CloseSilently { flow }, Effect::Cut { flow, reason: CutReason::LostWithTaker });
    let of = |number, is_only| Process { number, is_only };
    for (who, process, then) in [
        (0, of(1, true), Some(&silently)),
        (0, of(2, false), Some(&cut)),
        (1, of(1, false), Some(&silently)),
        (1, of(2, true), Some(&cut)),
        (1, of(2, false), None),
        (WORKERS, of(2, true), None),
    ] {
        let (mut peer, present) = lost(Some(of(1, true)));
        assert_eq!((did(&mut peer), peer.counters().lost, peer.owned()), (vec![], 1, 0), "it may live there");
        peer.connected(now, after, server(who), None);
        peer.handle_message(now, after, present(process));
        assert_eq!(did(&mut peer).first(), then, "{who} {process:?}");
        assert_eq!(peer.flow_count(), usize::from(then.is_none()), "{who} {process:?}");
        peer.handle_timeout(now.after(super::peer::LOST_PATIENCE));
        assert_eq!(did(&mut peer).first(), then.is_none().then_some(&silently), "nobody says what has become of it");
        assert_eq!(peer.flow_count(), 0);
    }
    let (mut peer, _) = lost(None);
    assert_eq!((did(&mut peer), peer.flow_count()), (vec![silently], 0), "it isn't known whose word would count");
    // Who has taken it may give it back.
    let (mut peer, _) = lost(Some(of(1, true)));
    peer.connected(now, after, server(WORKERS), None);
    let offer = Message::Offer { flow, generation: Generation(2), image: Bytes::new(), is_lent: false };
    peer.handle_message(now, after, offer);
    let effects: Vec<Effect> = std::iter::from_fn(|| peer.poll_effect()).collect();
    assert!(effects.contains(&Effect::CloseSilently { flow }), "{effects:?}");
    assert!(matches!(effects.last(), Some(Effect::Thaw { .. })), "{effects:?}");
}

#[test]
fn who_drains_takes_nothing_and_who_is_silent_is_gone() {
    let mut world = World::new(1);
    world.peers[WORKERS].set_load(Load { is_draining: true, ..Load::default() }, &[0]);
    world.begin(0);
    let flow = *world.hosts[0].live.first().unwrap();
    assert!(world.peers[0].give(flow, server(WORKERS)));
    world.settle();
    world.come_to_rest();
    assert_eq!((world.live(), world.peers[0].counters().refused), (vec![(0, flow)], 1));
    // Nobody delivers anything for so long: all links end, and nothing can be given away.
    world.pass(Duration::from_secs(4));
    assert!(world.links.is_empty() && !world.peers[0].give(flow, server(2 * WORKERS)));
}

/// A worker with a link to a giver and none to a front, and what it does but for saying that it's there.
fn taker(giver: SessionId) -> Peer {
    let mut peer = Peer::new(Instant { ns: 1 }, 0);
    peer.connected(Instant { ns: 1 }, giver, server(0), None);
    while peer.poll_effect().is_some() {}
    peer
}

#[test]
fn of_what_could_not_be_thawed_the_record_stays_as_it_was() {
    let (now, giver) = (Instant { ns: 1 }, SessionId(1));
    let mut peer = taker(giver);
    let flow = FlowId { home: server(0), serial: 1 };
    let offer = |generation| Message::Offer { flow, generation, image: Bytes::new(), is_lent: false };
    let reason = RefuseReason::Kernel;
    let refused = |generation| Effect::Send { session: giver, message: Message::Refused { flow, generation, reason } };
    // One that was never here is nowhere.
    peer.handle_message(now, giver, offer(Generation(1)));
    assert!(matches!(peer.poll_effect(), Some(Effect::Thaw { .. })));
    peer.thaw_failed(flow, reason);
    assert_eq!((peer.poll_effect(), peer.flow_count()), (Some(refused(Generation(1))), 0));
    // One that was sent on from here still is: whoever doesn't know better looks for it here.
    peer.handle_message(now, giver, offer(Generation(2)));
    peer.thawed(flow, Some(ends(flow)));
    assert!(peer.give(flow, server(0)));
    peer.frozen(flow, Bytes::new());
    peer.handle_message(now, giver, Message::Taken { flow, generation: Generation(3) });
    while peer.poll_effect().is_some() {}
    peer.handle_message(now, giver, offer(Generation(4)));
    assert!(matches!(peer.poll_effect(), Some(Effect::Thaw { .. })));
    peer.thaw_failed(flow, reason);
    assert_eq!((peer.poll_effect(), peer.flow_count()), (Some(refused(Generation(4))), 1));
    assert!(peer.live().next().is_none(), "it isn't here");
    // Its holder may offer it again, and what ends there is forgotten here.
    peer.handle_message(now, giver, offer(Generation(4)));
    assert!(matches!(peer.poll_effect(), Some(Effect::Thaw { .. })));
    peer.thaw_failed(flow, reason);
    while peer.poll_effect().is_some() {}
    peer.handle_message(now, giver, Message::Ended { flow, generation: Generation(3), is_cut: false });
    let did: Vec<Effect> = std::iter::from_fn(|| peer.poll_effect()).collect();
    assert!(matches!(did.last(), Some(Effect::Unsteer { .. })) && peer.flow_count() == 0, "{did:?}");
}
