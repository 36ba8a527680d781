//! A cluster whose nodes have a processor, a disk and a memory each, asked by clients that each wait for their reply, in virtual time: what the policies
//! are worth where one of the three binds. The files and how often each is asked for are SPECweb99's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::*;
use crate::time::Instant;

const NODES: usize = 4;
const CLIENTS: usize = 96;
/// Of a core, and bytes a second.
const SPEED: f64 = 0.4;
const DISK_BYTES_PER_S: f64 = (2 << 20) as f64;
/// So many times faster disks are while memories are filled.
const FILLING_TIMES: f64 = 8.0;
const MEMORY_BYTES: u64 = 48 << 20;
/// What a static request takes of a core, for each request and byte; reading from a disk costs as much again for a byte.
const STATIC_NS: f64 = 90_000.0;
const BYTE_NS: f64 = 0.7;
/// From a reply to the next request's arrival at its node, and to the home's knowing that it has ended.
const ROUND_NS: u64 = 300_000;
const TELL_NS: u64 = 5_000_000;
const REPORT_NS: u64 = 250_000_000;
/// How long scripts compute, in microseconds, and how often each is asked for: all together as much as the files want.
const SCRIPTS: [(u64, f64); 6] = [(50, 0.35), (125, 0.25), (250, 0.2), (500, 0.1), (1_000, 0.07), (2_000, 0.03)];

/// What is asked for.
struct Content {
    path: String,
    bytes: u64,
    /// Of a script.
    compute_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ask,
    HasRead { node: usize, content: usize },
    HasReplied { node: usize },
    IsTold { node: usize },
    Reports { node: usize },
}

#[derive(Default)]
struct Server {
    processor_free_ns: u64,
    disk_free_ns: u64,
    under_way: u32,
    read_bytes: u64,
    memory: VecDeque<usize>,
    memory_bytes: u64,
}

struct Cluster {
    dispatcher: Dispatcher,
    ids: Vec<NodeId>,
    servers: Vec<Server>,
    contents: Vec<Content>,
    cumulative: Vec<f64>,
    now_ns: u64,
    random: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    answered: u64,
    disk_bytes_per_s: f64,
}

/// What a while has brought.
#[derive(Debug)]
struct Brought {
    answered_per_s: f64,
    bytes_read_each: f64,
}

fn contents(directories: usize, dynamic_share: f64) -> (Vec<Content>, Vec<f64>) {
    const CLASS_SHARE: [f64; 4] = [0.35, 0.50, 0.14, 0.01];
    const CLASS_UNIT_BYTES: [u64; 4] = [102, 1_024, 10_240, 102_400];
    const FILE_SHARE: [f64; 9] = [0.039, 0.059, 0.088, 0.177, 0.353, 0.118, 0.071, 0.050, 0.045];
    let (mut contents, mut weights) = (Vec::new(), Vec::new());
    let all: f64 = (1..=directories).map(|rank| 1.0 / rank as f64).sum();
    for directory in 0..directories {
        for (class, (unit_bytes, class_share)) in CLASS_UNIT_BYTES.into_iter().zip(CLASS_SHARE).enumerate() {
            for (file, file_share) in (1..).zip(FILE_SHARE) {
                let path = format!("/dir{directory:05}/class{class}_{file}");
                contents.push(Content { path, bytes: unit_bytes * file, compute_ns: 0 });
                let share = class_share * file_share / (directory + 1) as f64 / all;
                weights.push(share * (1.0 - dynamic_share));
            }
        }
    }
    for (number, (us, share)) in SCRIPTS.into_iter().enumerate() {
        contents.push(Content { path: format!("/cgi-bin/app{number}"), bytes: 0, compute_ns: us * 1000 });
        weights.push(share * dynamic_share);
    }
    let mut sum = 0.0;
    weights.iter_mut().for_each(|weight| {
        sum += *weight;
        *weight = sum;
    });
    (contents, weights)
}

impl Cluster {
    fn new(settings: Settings, directories: usize, dynamic_share: f64) -> Cluster {
        let mut dispatcher = Dispatcher::new(settings, &[3; 32], 11);
        let node = |name: &str| NodeSettings {
            name: name.to_owned(),
            weight: 100,
            serves: Serves::default(),
            near: Vec::new(),
        };
        let names: Vec<String> = (1..=NODES).map(|number| format!("n{number}")).collect();
        dispatcher.set_nodes(&names.iter().map(|name| node(name)).collect::<Vec<_>>(), Instant::default());
        let ids = names.iter().map(|name| dispatcher.find(name).expect("configured")).collect();
        let (contents, cumulative) = contents(directories, dynamic_share);
        let mut cluster = Cluster {
            dispatcher,
            ids,
            servers: (0..NODES).map(|_| Server::default()).collect(),
            contents,
            cumulative,
            now_ns: 60_000_000_000,
            random: 5,
            agenda: BinaryHeap::new(),
            scheduled: 0,
            answered: 0,
            disk_bytes_per_s: DISK_BYTES_PER_S * FILLING_TIMES,
        };
        (0..CLIENTS).for_each(|_| cluster.after(0, Event::Ask));
        (0..NODES).for_each(|node| cluster.after(60_000_000 * node as u64, Event::Reports { node }));
        cluster
    }

    fn at(&mut self, ns: u64, event: Event) {
        self.scheduled += 1;
        self.agenda.push(Reverse((ns, self.scheduled, event)));
    }

    fn after(&mut self, ns: u64, event: Event) {
        self.at(self.now_ns + ns, event);
    }

    fn draw(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn compute(&mut self, node: usize, content: usize, was_read: bool) {
        let Content { bytes, compute_ns, .. } = self.contents[content];
        let byte_ns = bytes as f64 * BYTE_NS * if was_read { 2.0 } else { 1.0 };
        let ns = ((STATIC_NS + byte_ns + compute_ns as f64) / SPEED) as u64;
        let server = &mut self.servers[node];
        server.processor_free_ns = server.processor_free_ns.max(self.now_ns) + ns;
        let done_ns = server.processor_free_ns;
        self.at(done_ns, Event::HasReplied { node });
    }

    fn ask(&mut self) {
        let drawn = self.draw();
        let content = self.cumulative.partition_point(|mark| *mark <= drawn).min(self.contents.len() - 1);
        let path = self.contents[content].path.clone();
        let query = (self.contents[content].compute_ns > 0).then_some(&b"us=1"[..]);
        let facts = Facts { method: b"GET", host: b"www", path: path.as_bytes(), query, ..Facts::default() };
        let chosen = self.dispatcher.choose(&facts, Instant { ns: self.now_ns }).expect("there is a node");
        self.dispatcher.begin(chosen.node);
        let node = self.ids.iter().position(|id| *id == chosen.node).expect("one of them");
        let bytes = self.contents[content].bytes;
        let server = &mut self.servers[node];
        server.under_way += 1;
        let place = server.memory.iter().position(|held| *held == content);
        match place {
            _ if bytes == 0 => self.compute(node, content, false),
            Some(place) => {
                server.memory.remove(place);
                server.memory.push_front(content);
                self.compute(node, content, false);
            }
            None => {
                server.memory.push_front(content);
                server.memory_bytes += bytes;
                while server.memory_bytes > MEMORY_BYTES {
                    let gone = server.memory.pop_back().expect("something is in memory");
                    server.memory_bytes -= self.contents[gone].bytes;
                }
                server.read_bytes += bytes;
                server.disk_free_ns =
                    server.disk_free_ns.max(self.now_ns) + (bytes as f64 / self.disk_bytes_per_s * 1e9) as u64;
                let read_ns = server.disk_free_ns;
                self.at(read_ns, Event::HasRead { node, content });
            }
        }
    }

    fn run(&mut self, time: Duration) -> Brought {
        let (begin_ns, answered) = (self.now_ns, self.answered);
        let until_ns = begin_ns + time.as_nanos() as u64;
        self.servers.iter_mut().for_each(|server| server.read_bytes = 0);
        while let Some(Reverse((at_ns, _, event))) = self.agenda.pop() {
            self.now_ns = at_ns;
            let now = Instant { ns: at_ns };
            match event {
                Event::Ask => self.ask(),
                Event::HasRead { node, content } => self.compute(node, content, true),
                Event::HasReplied { node } => {
                    self.servers[node].under_way -= 1;
                    self.answered += 1;
                    self.after(ROUND_NS, Event::Ask);
                    self.after(TELL_NS, Event::IsTold { node });
                }
                Event::IsTold { node } => {
                    self.dispatcher.end(self.ids[node], Outcome::Served, now);
                }
                Event::Reports { node } => {
                    let report = LoadReport { active: self.servers[node].under_way, ..LoadReport::default() };
                    self.dispatcher.report(self.ids[node], report, now);
                    self.after(REPORT_NS, event);
                }
            }
            if at_ns >= until_ns {
                break;
            }
        }
        let answered = (self.answered - answered) as f64;
        Brought {
            answered_per_s: answered * 1e9 / (self.now_ns - begin_ns) as f64,
            bytes_read_each: self.servers.iter().map(|server| server.read_bytes as f64).sum::<f64>() / answered,
        }
    }
}

/// What a policy brings once memories are full.
fn brought(settings: Settings, directories: usize, dynamic_share: f64) -> Brought {
    let mut cluster = Cluster::new(settings, directories, dynamic_share);
    cluster.run(Duration::from_secs(8));
    cluster.disk_bytes_per_s = DISK_BYTES_PER_S;
    cluster.run(Duration::from_secs(4));
    cluster.run(Duration::from_secs(6))
}

fn by(policy: PolicyKind) -> Settings {
    Settings { policy, ..Settings::default() }
}

#[test]
fn more_files_than_a_memory_holds_are_read_by_one_node_each() {
    let lard = brought(by(PolicyKind::MixLard), 36, 0.0);
    for policy in [PolicyKind::RoundRobin, PolicyKind::LeastConnections] {
        let other = brought(by(policy), 36, 0.0);
        assert!(lard.answered_per_s > 2.0 * other.answered_per_s, "{lard:?} {other:?}");
        assert!(lard.bytes_read_each < 0.25 * other.bytes_read_each, "{lard:?} {other:?}");
    }
}

#[test]
fn content_costs_no_balance_where_every_memory_holds_all() {
    let lard = brought(by(PolicyKind::MixLard), 4, 0.0);
    let fewest = brought(by(PolicyKind::LeastConnections), 4, 0.0);
    assert!(lard.answered_per_s > 0.99 * fewest.answered_per_s, "{lard:?} {fewest:?}");
}

#[test]
fn files_by_content_and_scripts_by_load_is_better_than_all_by_load_and_no_worse_than_all_by_content() {
    let mixed = brought(by(PolicyKind::MixLard), 36, 0.3);
    let by_content = DynamicRules { query: QueryRule::Never, ..DynamicRules::default() };
    let lard = brought(Settings { rules: by_content, ..by(PolicyKind::MixLard) }, 36, 0.3);
    let fewest = brought(by(PolicyKind::LeastConnections), 36, 0.3);
    assert!(mixed.answered_per_s > 0.99 * lard.answered_per_s, "{mixed:?} {lard:?}");
    assert!(mixed.answered_per_s > 1.2 * fewest.answered_per_s, "{mixed:?} {fewest:?}");
}
