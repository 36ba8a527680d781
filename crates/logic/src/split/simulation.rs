//! Servers and their clients as queues: whether the balance keeps all busy, never costs more than it brings, and follows the load. Clients ask again as soon as they
//! have their replies, so what is answered in a second is what the servers can do.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::{Asked, Balance, DELEGATING, Loads, Rules};
use crate::dispatch::cost::{Side, Work};

/// What a request takes, in nanoseconds: of a processor to serve it, of the connection server's and of a data server's to delegate it; of a link; of
/// all clients together.
#[derive(Clone, Copy)]
struct Costs {
    serving_ns: u64,
    delegating_ns: u64,
    taking_ns: u64,
    link_ns: u64,
    asking_ns: u64,
}

/// One server: a processor, then a link, each with its queue.
#[derive(Clone, Copy, Default)]
struct Server {
    processor_free_ns: u64,
    link_free_ns: u64,
    under_way: u32,
    at_link: u32,
    busy_ns: u64,
}

impl Server {
    /// When a request that comes now leaves the processor.
    fn compute(&mut self, now_ns: u64, cost_ns: u64) -> u64 {
        self.processor_free_ns = self.processor_free_ns.max(now_ns) + cost_ns;
        self.busy_ns += cost_ns;
        self.processor_free_ns
    }

    /// Time without work so far: of what it has been given, some may still wait.
    fn idle(&self, now_ns: u64) -> Duration {
        let waiting_ns = self.processor_free_ns.saturating_sub(now_ns);
        Duration::from_nanos(now_ns - (self.busy_ns - waiting_ns))
    }

    fn send(&mut self, now_ns: u64, cost_ns: u64) -> u64 {
        self.at_link += 1;
        self.link_free_ns = self.link_free_ns.max(now_ns) + cost_ns;
        self.link_free_ns
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A client asks.
    Ask,
    /// The connection server has looked at a request.
    Decide,
    /// A data server has one.
    Taken(usize),
    /// A reply has been made, at the connection server or a data server.
    Made(Option<usize>),
    /// It has left.
    Sent(Option<usize>),
    /// Its client has it.
    Done(Option<usize>),
}

struct World {
    agenda: BinaryHeap<Reverse<(u64, u64, Step)>>,
    count: u64,
    own: Server,
    data: Vec<Server>,
    balance: Balance,
    is_splitting: bool,
    costs: Costs,
    clients_free_ns: u64,
    done: VecDeque<u64>,
    next: usize,
}

/// Looking at a request before anything is decided.
const LOOK_NS: u64 = 3_000;
const SECOND_NS: u64 = 1_000_000_000;
const CLIENTS: u32 = 48;

impl World {
    fn new(data_servers: usize, costs: Costs, is_splitting: bool, clients: u32) -> World {
        let mut balance = Balance::default();
        balance.configure(Rules::default());
        // As measured: what isn't known is learnt from a few of them.
        for _ in 0..64 {
            for work in DELEGATING {
                balance.measured(work, Side::Dispatcher, Duration::from_nanos(costs.delegating_ns / 2));
            }
            balance.measured(Work::Steered, Side::Dispatcher, Duration::ZERO);
        }
        let mut world = World {
            agenda: BinaryHeap::new(),
            count: 0,
            own: Server::default(),
            data: vec![Server::default(); data_servers],
            balance,
            is_splitting,
            costs,
            clients_free_ns: 0,
            done: VecDeque::new(),
            next: 0,
        };
        for client in 0..clients {
            world.at(u64::from(client) * 1_000, Step::Ask);
        }
        world
    }

    fn server(&mut self, place: Option<usize>) -> &mut Server {
        place.map_or(&mut self.own, |place| &mut self.data[place])
    }

    fn at(&mut self, time_ns: u64, step: Step) {
        self.count += 1;
        self.agenda.push(Reverse((time_ns, self.count, step)));
    }

    fn run_until(&mut self, end_ns: u64) {
        while let Some(&Reverse((now_ns, _, step))) = self.agenda.peek() {
            if now_ns > end_ns {
                return;
            }
            self.agenda.pop();
            self.step(now_ns, step);
        }
    }

    fn step(&mut self, now_ns: u64, step: Step) {
        match step {
            Step::Ask => {
                self.own.under_way += 1;
                let looked_ns = self.own.compute(now_ns, LOOK_NS);
                self.at(looked_ns, Step::Decide);
            }
            Step::Decide if self.is_splitting && self.is_delegated(now_ns) => {
                let given_ns = self.own.compute(now_ns, self.costs.delegating_ns);
                self.own.under_way -= 1;
                self.next = (self.next + 1) % self.data.len();
                self.data[self.next].under_way += 1;
                self.at(given_ns, Step::Taken(self.next));
            }
            Step::Decide => {
                let made_ns = self.own.compute(now_ns, self.costs.serving_ns);
                self.at(made_ns, Step::Made(None));
            }
            Step::Taken(server) => {
                let made_ns = self.data[server].compute(now_ns, self.costs.serving_ns + self.costs.taking_ns);
                self.at(made_ns, Step::Made(Some(server)));
            }
            Step::Made(place) => {
                let link_ns = self.costs.link_ns;
                let sent_ns = self.server(place).send(now_ns, link_ns);
                self.at(sent_ns, Step::Sent(place));
            }
            Step::Sent(place) => {
                self.server(place).at_link -= 1;
                self.clients_free_ns = self.clients_free_ns.max(now_ns) + self.costs.asking_ns;
                self.at(self.clients_free_ns, Step::Done(place));
            }
            Step::Done(place) => {
                self.server(place).under_way -= 1;
                self.done.push_back(now_ns);
                self.at(now_ns + 1_000, Step::Ask);
            }
        }
    }

    fn is_delegated(&mut self, now_ns: u64) -> bool {
        let loads = Loads {
            own: self.own.under_way,
            at_link: self.own.at_link,
            idle: self.own.idle(now_ns),
            servers_percent: 100 * self.data.len() as u32,
            delegated: self.data.iter().map(|server| server.under_way).sum(),
            is_near: false,
        };
        let asked = Asked { path: b"/", bytes: 1, serving: Duration::from_nanos(self.costs.serving_ns), is_here: true };
        self.balance.decide(&asked, &loads).delegates()
    }

    /// Replies a second within a time.
    fn rate(&self, from_ns: u64, to_ns: u64) -> f64 {
        let count = self.done.iter().filter(|&&done_ns| (from_ns..to_ns).contains(&done_ns)).count();
        count as f64 * 1e9 / (to_ns - from_ns) as f64
    }
}

/// Replies a second once it has settled.
fn rate(data_servers: usize, costs: Costs, is_splitting: bool) -> f64 {
    let mut world = World::new(data_servers, costs, is_splitting, CLIENTS);
    world.run_until(SECOND_NS / 2);
    world.rate(SECOND_NS / 10, SECOND_NS / 2)
}

/// A reply of so many KiB: of the processor as leat's own takes, on a link of so many megabits a second.
fn costs(kib: u64, delegating_us: u64, link_mbit: u64) -> Costs {
    let link_ns = kib * 1024 * 8 * 1000 / link_mbit;
    Costs {
        serving_ns: 7_000 + kib * 150,
        delegating_ns: delegating_us * 1000,
        taking_ns: 40_000,
        link_ns,
        asking_ns: 0,
    }
}

#[test]
fn links_are_all_filled() {
    for (servers, kib) in [(1, 64), (3, 64), (3, 1024), (7, 256)] {
        // A link that the processor can fill several times over.
        let costs = costs(kib, 60, 1000);
        let (split, most) = (rate(servers, costs, true), (servers + 1) as f64 * 1e9 / costs.link_ns as f64);
        assert!(split >= 0.97 * most, "{servers} data servers, {kib} KiB: {split:.0} of {most:.0} a second");
    }
}

#[test]
fn it_is_never_worse_than_no_delegation_whatever_the_size() {
    for link_mbit in [1_000, 10_000, 1_000_000] {
        for delegating_us in [10, 60, 200] {
            for kib in [1, 4, 16, 64, 128, 1024] {
                for servers in [1, 3] {
                    let costs = costs(kib, delegating_us, link_mbit);
                    let (split, alone) = (rate(servers, costs, true), rate(servers, costs, false));
                    assert!(
                        split >= 0.98 * alone,
                        "{servers} servers, {kib} KiB, {delegating_us} us, {link_mbit} Mbit/s: {split:.0} for {alone:.0}"
                    );
                }
            }
        }
    }
}

#[test]
fn where_clients_bind_nothing_is_spent_on_delegating() {
    for (kib, delegating_us) in [(4, 60), (16, 60), (64, 200)] {
        // They keep each server idle for a third of the time.
        let costs = costs(kib, delegating_us, 1_000_000);
        let costs = Costs { asking_ns: (LOOK_NS + costs.serving_ns) * 3 / 2, ..costs };
        let spent = |is_splitting| {
            let mut world = World::new(3, costs, is_splitting, CLIENTS);
            world.run_until(SECOND_NS / 2);
            world.own.busy_ns as f64 / world.done.len() as f64
        };
        let (split, alone) = (spent(true), spent(false));
        assert!(split <= 1.02 * alone, "{kib} KiB, {delegating_us} us: {split:.0} ns for {alone:.0} a request");
    }
}

#[test]
fn processors_are_all_used_where_that_pays() {
    // 1 MiB takes 160 us to serve and 30 to give away: at most 1 / (0.5 * 160 + 0.5 * 30) a second with one data server that were free.
    let costs = Costs { serving_ns: 160_000, delegating_ns: 30_000, taking_ns: 40_000, link_ns: 0, asking_ns: 0 };
    let (split, alone) = (rate(1, costs, true), rate(1, costs, false));
    // Own time: (1 - p) * 163 + p * 33, the other's p * 200: equal at p = 0.494.
    let most = 1e9 / (0.494 * 200_000.0);
    assert!(split >= 0.97 * most && split > 1.5 * alone, "{split:.0} of {most:.0}, {alone:.0} alone");
}

#[test]
fn it_follows_a_change_of_load_within_a_second() {
    let mut world = World::new(3, costs(64, 60, 1000), true, 1);
    world.run_until(SECOND_NS);
    assert_eq!(world.data.iter().map(|server| server.busy_ns).sum::<u64>(), 0, "one client is served here");
    for client in 1..u64::from(CLIENTS) {
        world.at(SECOND_NS + client, Step::Ask);
    }
    world.run_until(3 * SECOND_NS);
    let most = 4.0 * 1e9 / world.costs.link_ns as f64;
    let soon = world.rate(SECOND_NS + SECOND_NS / 10, SECOND_NS + SECOND_NS / 2);
    assert!(soon >= 0.95 * most, "{soon:.0} of {most:.0} a second");
    // Sizes change: the processor binds from now on, and what doesn't pay ends.
    world.costs = costs(1, 60, 1_000_000);
    world.run_until(6 * SECOND_NS);
    let alone = rate(3, world.costs, false);
    let later = world.rate(4 * SECOND_NS, 6 * SECOND_NS);
    assert!(later >= 0.98 * alone, "{later:.0} for {alone:.0} alone");
}
