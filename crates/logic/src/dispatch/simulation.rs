//! A cluster in virtual time: Zipf over nodes with caches, a node that dies, loads that skew. Says what the policies are worth, and how large
//! the table gets; the nodes are as simple as can be.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::time::Instant;

/// Requests for contents by Zipf's law, of nodes that each hold so many of them in memory.
struct Cluster {
    dispatcher: Dispatcher,
    now: Instant,
    seed: u64,
    /// Of the contents' frequencies, in 2^32 parts.
    cumulative: Vec<u64>,
    /// By node's name, most recently used first.
    caches: BTreeMap<String, VecDeque<usize>>,
    under_way: VecDeque<(Instant, NodeId)>,
    hits: usize,
}

const CACHE_CONTENTS: usize = 250;
const CONTENTS: usize = 1000;

impl Cluster {
    fn new(policy: PolicyKind, nodes: &[&str]) -> Cluster {
        let now = Instant { ns: 1_000_000_000 };
        let mut dispatcher = Dispatcher::new(Settings { policy, ..Settings::default() }, &[3; 32], 11);
        let serves = Serves::default();
        let node = |name: &&str| NodeSettings {
            name: name.to_string(),
            weight: 100,
            serves: serves.clone(),
            near: Vec::new(),
        };
        dispatcher.set_nodes(&nodes.iter().map(node).collect::<Vec<_>>(), now);
        let (mut sum, weight) = (0.0, |rank: usize| 1.0 / (rank as f64 + 1.0).powf(0.8));
        let total: f64 = (0..CONTENTS).map(weight).sum();
        let cumulative = (0..CONTENTS).map(|rank| {
            sum += weight(rank);
            (sum / total * 4_294_967_296.0) as u64
        });
        let cumulative = cumulative.collect();
        let (caches, under_way) = (BTreeMap::new(), VecDeque::new());
        Cluster { dispatcher, now, seed: 5, cumulative, caches, under_way, hits: 0 }
    }

    /// One request: 0.2 ms after the last one, takes 1 ms with its content in memory and 10 ms without.
    fn request(&mut self) -> Result<String, Refusal> {
        self.now.ns += 200_000;
        while self.under_way.front().is_some_and(|(end, _)| *end <= self.now) {
            if let Some((_, node)) = self.under_way.pop_front() {
                self.dispatcher.end(node, Outcome::Served, self.now);
            }
        }
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let content = self.cumulative.partition_point(|mark| *mark <= self.seed >> 32).min(CONTENTS - 1);
        let path = format!("/files/{content}.html");
        let facts = Facts { method: b"GET", host: b"www", path: path.as_bytes(), ..Facts::default() };
        let choice = self.dispatcher.choose(&facts, self.now)?;
        self.dispatcher.begin(choice.node);
        let name = self.dispatcher.name(choice.node).to_owned();
        let cache = self.caches.entry(name.clone()).or_default();
        let place = cache.iter().position(|cached| *cached == content);
        if let Some(place) = place {
            cache.remove(place);
            self.hits += 1;
        }
        cache.push_front(content);
        cache.truncate(CACHE_CONTENTS);
        let end = Instant { ns: self.now.ns + if place.is_some() { 1_000_000 } else { 10_000_000 } };
        let after = self.under_way.partition_point(|(other, _)| *other <= end);
        self.under_way.insert(after, (end, choice.node));
        Ok(name)
    }

    fn hit_percent(&mut self, requests: usize) -> usize {
        self.hits = 0;
        (0..requests).for_each(|_| drop(self.request().expect("there is a node")));
        self.hits * 100 / requests
    }

    fn spread(&mut self, requests: usize) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..requests {
            *counts.entry(self.request().expect("there is a node")).or_default() += 1;
        }
        counts
    }
}

#[test]
fn locality_makes_one_cache_of_all() {
    let nodes = ["a", "b", "c", "d"];
    let hits = |policy| {
        let mut cluster = Cluster::new(policy, &nodes);
        cluster.hit_percent(20_000);
        cluster.hit_percent(20_000)
    };
    let (lard, turns) = (hits(PolicyKind::MixLard), hits(PolicyKind::RoundRobin));
    assert!(lard >= 95, "{lard} %: four caches of a quarter each hold everything");
    assert!(turns <= 70, "{turns} %: each cache has a quarter of the contents");
    assert!(hits(PolicyKind::ConsistentHash) > turns + 10);
}

#[test]
fn a_node_dies_and_its_contents_find_others() {
    let mut cluster = Cluster::new(PolicyKind::MixLard, &["a", "b", "c", "d"]);
    cluster.hit_percent(20_000);
    let dead = cluster.dispatcher.find("b").expect("configured");
    assert!(cluster.dispatcher.link_changed(dead, false, cluster.now));
    let spread = cluster.spread(10_000);
    assert_eq!(spread.keys().map(String::as_str).collect::<Vec<_>>(), ["a", "c", "d"]);
    assert!(spread.values().all(|count| *count > 2000), "{spread:?}");
    cluster.dispatcher.link_changed(dead, true, cluster.now);
    let spread = cluster.spread(30_000);
    assert!(spread.get("b").is_none_or(|count| *count < 3000), "what others have stays with them: {spread:?}");
}

#[test]
fn a_node_that_is_busy_otherwise_sheds_its_contents() {
    let mut cluster = Cluster::new(PolicyKind::MixLard, &["a", "b", "c", "d"]);
    cluster.hit_percent(20_000);
    let before = cluster.spread(5000)["a"];
    let busy = cluster.dispatcher.find("a").expect("configured");
    let mut after = 0;
    for _ in 0..25 {
        // 200 requests take 40 ms: the report is always fresh.
        cluster.dispatcher.report(
            busy,
            LoadReport { active: 150, busy_permille: 1000, has_memory: false },
            cluster.now,
        );
        after += cluster.spread(200).get("a").copied().unwrap_or(0);
    }
    assert!(after * 10 < before, "{before} requests of 5000 before, {after} while it was busy");
}

#[test]
fn what_an_entry_takes() {
    let mut dispatcher = Dispatcher::new(Settings::default(), &[3; 32], 11);
    let node =
        |name: &str| NodeSettings { name: name.to_owned(), weight: 100, serves: Serves::default(), near: Vec::new() };
    dispatcher.set_nodes(&["a", "b"].map(node), Instant::default());
    let entries_max = MixLardSettings::default().entries_max;
    let now = Instant { ns: 1_000_000_000 };
    for number in 0..entries_max + 1000 {
        let path = format!("/{number}");
        let facts = Facts { path: path.as_bytes(), ..Facts::default() };
        dispatcher.choose(&facts, now).expect("there is a node");
    }
    let (entries, bytes) = dispatcher.table_size();
    assert_eq!(entries, entries_max, "the bound holds");
    let bytes_each = bytes / entries;
    assert!(bytes_each <= 64, "{bytes_each} bytes for each entry");
}
