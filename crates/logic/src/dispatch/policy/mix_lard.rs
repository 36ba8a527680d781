//! Mix-LARD (CASS, "Mix-LARD Scheduling Policy"): static requests go where their content was sent last, dynamic ones by load. Replication is
//! LARD/R's (Pai et al., ASPLOS 1998, figure 3).

use std::time::Duration;

use super::super::limits::EXPIRED_PER_CHOICE;
use super::super::node::NodeSet;
use super::super::table::Table;
use super::{Ask, Candidate, Plan, Policy, PolicySettings, Why};

/// The parameters of the table and of replication. Loads are requests under way for a weight of 100.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixLardSettings {
    /// A node with less is one that could do more (T_low).
    pub load_low: u32,
    /// A node with more has too much, if another could do more; one with twice as much has in any case (T_high).
    pub load_high: u32,
    /// Content whose nodes haven't changed for so long loses one of several (K).
    pub replica_time: Duration,
    /// Content that wasn't asked for in so long is forgotten.
    pub entry_time: Duration,
    /// Contents remembered at once.
    pub entries_max: usize,
    /// A request on a connection whose node has memory for more may be served there, wherever its content is.
    pub may_stay: bool,
}

impl Default for MixLardSettings {
    fn default() -> Self {
        MixLardSettings {
            load_low: 25,
            load_high: 65,
            replica_time: Duration::from_secs(20),
            entry_time: Duration::from_secs(600),
            entries_max: 1 << 18,
            may_stay: true,
        }
    }
}

/// Nobody has too much with this load or less, however little others have.
const LOAD_SMALL: u64 = 8;

pub(super) struct MixLard {
    settings: MixLardSettings,
    table: Table,
}

impl MixLard {
    /// Whether content that is at `mine` wants one more node. LARD's marks are for as many requests as a cluster takes at most: with fewer, who has twice the mean
    /// while another has less than half of it would keep that one idle for long before it had that much. What the other was given since its last report counts:
    /// else all contents that are asked for until the next one would be replicated.
    fn has_too_much(&self, mine: &Candidate, least: &Candidate, candidates: &[Candidate]) -> bool {
        let (low, high) = (u64::from(self.settings.load_low), u64::from(self.settings.load_high));
        let mean = candidates.iter().map(Candidate::load).sum::<u64>() / candidates.len().max(1) as u64;
        let (has, other_has) = (mine.load(), least.load_with_unheard());
        let is_past = |few, many| has > many && other_has < few;
        is_past(low, high) || is_past(mean / 2, LOAD_SMALL.max(2 * mean)) || has >= 2 * high && other_has < has
    }
}

impl Policy for MixLard {
    const NAME: &'static str = "mix_lard";
    const ABOUT: &'static str = "static requests go where their content was sent last, to more nodes when these have too much to do; dynamic ones by load";

    fn new(settings: &PolicySettings) -> Self {
        let settings = settings.mix_lard.clone();
        MixLard { table: Table::new(settings.entries_max), settings }
    }

    fn configure(&mut self, settings: &PolicySettings) {
        self.settings = settings.mix_lard.clone();
        self.table.set_entries_max(self.settings.entries_max);
    }

    fn plan(&self, ask: &Ask<'_>) -> Plan {
        if ask.class.is_dynamic() {
            return Plan::new(&ask.least(Candidate::pressure), Why::LeastPressure);
        }
        let entry = self.table.get(ask.key).filter(|entry| ask.now.since(entry.used) <= self.settings.entry_time);
        let remembers =
            |c: &&Candidate| entry.is_some_and(|entry| entry.nodes.contains(c.id) && entry.used > c.forgotten);
        let nodes = ask.candidates.iter().filter(remembers).fold(NodeSet::EMPTY, |set, c| set.with(c.id));
        // Not to one node all that is new, or wants one more, until the next report.
        let least = ask.least(Candidate::load_with_unheard);
        let mine = ask.least(|c| (!nodes.contains(c.id), c.load()));
        let (Some(entry), false) = (entry, nodes.is_empty()) else {
            return Plan { nodes: NodeSet::EMPTY.with(least.id), ..Plan::new(&least, Why::New) };
        };
        let has_too_much = self.has_too_much(&mine, &least, ask.candidates);
        if has_too_much && !nodes.contains(least.id) {
            return Plan { nodes: nodes.with(least.id), ..Plan::new(&least, Why::Replicated(mine.load())) };
        }
        let is_settled = nodes == entry.nodes && ask.now.since(entry.changed) > self.settings.replica_time;
        let kept = if nodes.len() > 1 && is_settled {
            let most = ask.least(|c| (!nodes.contains(c.id), c.id == mine.id, u64::MAX - c.load()));
            nodes.without(most.id)
        } else {
            nodes
        };
        Plan { nodes: kept, ..Plan::new(&mine, Why::Remembered(nodes.len())) }
    }

    fn commit(&mut self, ask: &Ask<'_>, plan: &Plan) {
        if !plan.nodes.is_empty() {
            self.table.put(ask.key, plan.nodes, ask.now);
        }
        self.table.expire(self.settings.entry_time, ask.now, EXPIRED_PER_CHOICE);
    }

    fn table(&self) -> Option<&Table> {
        Some(&self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::classify::{Class, Rule};
    use super::super::super::facts::ContentKey;
    use super::super::super::node::NodeId;
    use super::*;
    use crate::time::Instant;

    struct Lab {
        policy: MixLard,
        candidates: Vec<Candidate>,
        now: Instant,
    }

    impl Lab {
        fn new(loads: &[u32]) -> Lab {
            let candidate = |(place, active): (usize, &u32)| Candidate {
                id: NodeId(place as u8),
                seed: place as u64 * 0x9e37_79b9,
                share: 100_000,
                active: *active,
                unheard: 0,
                busy_permille: 0,
                forgotten: Instant::default(),
            };
            let candidates = loads.iter().enumerate().map(candidate).collect();
            let now = Instant::default().after(Duration::from_secs(1000));
            Lab { policy: MixLard::new(&PolicySettings::default()), candidates, now }
        }

        fn ask(&self, key: u64, class: Class) -> Ask<'_> {
            Ask { key: ContentKey(key), class, candidates: &self.candidates, random: 0, now: self.now }
        }

        fn choose(&mut self, key: u64) -> (u8, Why) {
            let ask = Ask {
                key: ContentKey(key),
                class: Class::Static,
                candidates: &self.candidates,
                random: 0,
                now: self.now,
            };
            let plan = self.policy.plan(&ask);
            assert_eq!(plan, self.policy.plan(&ask));
            self.policy.commit(&ask, &plan);
            (plan.node.0, plan.why)
        }

        fn pass(&mut self, seconds: u64) {
            self.now = self.now.after(Duration::from_secs(seconds));
        }

        fn load(&mut self, loads: &[u32]) {
            for (candidate, load) in self.candidates.iter_mut().zip(loads) {
                candidate.active = *load;
            }
        }

        fn nodes(&self, key: u64) -> Vec<u8> {
            let entry = self.policy.table.get(ContentKey(key));
            entry.into_iter().flat_map(|entry| entry.nodes.iter()).map(|node| node.0).collect()
        }
    }

    #[test]
    fn content_goes_where_it_was_sent_last_until_it_is_forgotten() {
        let mut lab = Lab::new(&[5, 3, 4]);
        assert_eq!(lab.choose(1), (1, Why::New));
        lab.load(&[20, 60, 20]);
        for _ in 0..3 {
            lab.pass(600);
            assert_eq!(lab.choose(1), (1, Why::Remembered(1)), "each use refreshes the timer");
        }
        lab.load(&[9, 60, 8]);
        lab.pass(601);
        assert_eq!(lab.choose(1), (2, Why::New));
    }

    #[test]
    fn on_an_idle_cluster_contents_are_spread() {
        let mut lab = Lab::new(&[0, 0, 0, 0]);
        let mut counts = [0; 4];
        for key in 0..4000_u64 {
            counts[usize::from(lab.choose(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).0)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn between_two_reports_new_contents_are_spread() {
        let mut lab = Lab::new(&[2, 0]);
        let mut counts = [0_u32; 2];
        for key in 0..100 {
            let node = usize::from(lab.choose(key).0);
            counts[node] += 1;
            lab.candidates[node].unheard += 1;
        }
        assert_eq!(counts, [49, 51]);
    }

    #[test]
    fn between_two_reports_contents_are_replicated_as_far_as_the_other_has_room() {
        for (loads, room) in [([0, 31], 7), ([24, 90], 1), ([100, 131], 31)] {
            let mut lab = Lab::new(&[9, 0]);
            assert!((0..100).all(|key| lab.choose(key) == (1, Why::New)));
            lab.load(&loads);
            let mut replicated = 0;
            for key in 0..100 {
                let (node, _) = lab.choose(key);
                lab.candidates[usize::from(node)].unheard += 1;
                replicated += u32::from(node == 0);
            }
            assert_eq!(replicated, room, "{loads:?}");
        }
    }

    #[test]
    fn replicas_go_to_all_nodes_that_have_room() {
        let mut lab = Lab::new(&[0, 9, 9]);
        assert!((0..100).all(|key| lab.choose(key) == (0, Why::New)));
        lab.load(&[31, 0, 1]);
        let mut replicated = [0; 3];
        for key in 0..100 {
            let (node, _) = lab.choose(key);
            lab.candidates[usize::from(node)].unheard += 1;
            replicated[usize::from(node)] += 1;
        }
        assert_eq!(replicated[1] - replicated[2], 1, "both have as much: {replicated:?}");
        assert!(replicated[2] > 0, "{replicated:?}");
    }

    #[test]
    fn overload_replicates_and_calm_takes_replicas_back() {
        let mut lab = Lab::new(&[0, 9, 9]);
        assert_eq!(lab.choose(1), (0, Why::New));
        lab.load(&[66, 25, 25]);
        assert_eq!(lab.choose(1), (0, Why::Remembered(1)), "nobody could do more");
        lab.load(&[66, 24, 30]);
        assert_eq!(lab.choose(1), (1, Why::Replicated(66)));
        assert_eq!(lab.nodes(1), [0, 1]);
        lab.load(&[130, 129, 80]);
        assert_eq!(lab.choose(1), (1, Why::Remembered(2)));
        lab.load(&[130, 130, 80]);
        assert_eq!(lab.choose(1).1, Why::Replicated(130), "twice the upper mark, whatever the others have");
        assert_eq!(lab.nodes(1), [0, 1, 2]);
        lab.load(&[10, 3, 5]);
        lab.pass(20);
        assert_eq!(lab.choose(1), (1, Why::Remembered(3)));
        lab.pass(1);
        assert_eq!(lab.choose(1), (1, Why::Remembered(3)));
        assert_eq!(lab.nodes(1), [1, 2], "the most loaded one is dropped");
        lab.pass(21);
        lab.choose(1);
        assert_eq!(lab.nodes(1), [1]);
        lab.pass(21);
        lab.choose(1);
        assert_eq!(lab.nodes(1), [1], "the last one stays");
    }

    #[test]
    fn with_few_under_way_who_has_twice_the_mean_has_too_much() {
        let mut lab = Lab::new(&[0, 9, 9]);
        assert_eq!(lab.choose(1), (0, Why::New));
        lab.load(&[30, 11, 6]);
        assert_eq!(lab.choose(1), (0, Why::Remembered(1)), "not twice 15");
        lab.load(&[31, 10, 7]);
        assert_eq!(lab.choose(1), (0, Why::Remembered(1)), "twice 16 isn't passed");
        lab.load(&[40, 12, 8]);
        assert_eq!(lab.choose(1), (0, Why::Remembered(1)), "twice 20 isn't passed");
        lab.load(&[41, 11, 8]);
        assert_eq!(lab.choose(1), (2, Why::Replicated(41)));
        lab.load(&[0, 9, 9]);
        assert_eq!(lab.choose(2), (0, Why::New));
        lab.load(&[8, 0, 0]);
        assert_eq!(lab.choose(2), (0, Why::Remembered(1)), "so few are nobody's too much");
    }

    #[test]
    fn loads_count_by_weight() {
        let mut lab = Lab::new(&[10, 30]);
        lab.candidates[1].share = 400_000;
        assert_eq!(lab.choose(1).0, 1);
        assert_eq!(lab.policy.plan(&lab.ask(2, Class::Dynamic(Rule::Path))).node, NodeId(1));
        lab.candidates[1].busy_permille = 900;
        assert_eq!(lab.policy.plan(&lab.ask(2, Class::Dynamic(Rule::Path))).node, NodeId(0));
    }

    #[test]
    fn a_dead_node_is_forgotten_and_dynamic_requests_never_remembered() {
        let mut lab = Lab::new(&[0, 9]);
        assert_eq!(lab.choose(1), (0, Why::New));
        let plan = lab.policy.plan(&lab.ask(5, Class::Dynamic(Rule::Query)));
        assert_eq!((plan.why, plan.nodes), (Why::LeastPressure, NodeSet::EMPTY));
        lab.pass(1);
        lab.candidates[0].forgotten = lab.now;
        lab.load(&[9, 0]);
        lab.pass(1);
        assert_eq!(lab.choose(1), (1, Why::New), "it died and came back in between");
        lab.pass(1);
        let alone = lab.candidates.remove(1);
        assert_eq!(lab.choose(1), (0, Why::New), "who can't be chosen doesn't count");
        lab.candidates.push(alone);
        assert_eq!(lab.nodes(1), [0]);
    }
}
