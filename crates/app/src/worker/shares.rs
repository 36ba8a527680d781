//! The worker's tree as the configuration wants it (decision 6): who is below whom, under which policy, with which share. What is done with
//! it is the tree's.

use std::collections::BTreeMap;

use leat_logic::schedule::{Cost, LeafId, NodeId, PolicyKind, Share, Tree};

use super::Stage;
use crate::config::{self, Config, First, Owner, OwnersByName};

/// How long sites together may keep the others waiting that haven't wanted all of their shares lately: what comes in a burst is served as if they
/// were alone, as long as it's within what they are due.
const LAG_MAX: Cost = Cost::from_ns(12_000_000);
/// Shares of everything, in hundredths.
const WHOLE: u32 = 100;

/// Where a site is in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The admin pages.
    Admin,
    /// Work whose site isn't known.
    Unknown,
    /// A configured site.
    Site {
        /// By name; empty for none.
        owner: String,
        share: Share,
        /// The policy between its stages.
        stages: PolicyKind,
    },
}

impl Place {
    pub(super) fn new(site: &config::Site) -> Place {
        let share = Share { weight: site.weight, priority: site.priority };
        Place::Site { owner: site.owner.clone(), share, stages: site.stages }
    }
}

/// A new tree.
pub(super) struct Planted<E> {
    pub(super) tree: Tree<E>,
    /// A leaf for each site and stage: in the order of the places, then by stage.
    pub(super) leaves: Vec<[LeafId; Stage::COUNT]>,
    /// The node of work whose site isn't known.
    pub(super) unknown: NodeId,
    pub(super) members: Members,
}

/// Whose weights can be changed while the tree stays, by name. Empty where stages are above sites.
#[derive(Default)]
pub(super) struct Members {
    root: Option<NodeId>,
    /// What sites and owners without an owner are below.
    top: Option<NodeId>,
    /// The only one of them, if it's right beside what is kept: its weight is what isn't.
    lone: Option<NodeId>,
    sites: Vec<SiteMember>,
    owners: BTreeMap<String, NodeId>,
}

/// A site's node.
struct SiteMember {
    place: usize,
    node: NodeId,
    /// As it's configured, or was.
    share: Share,
}

/// The weight of each place where owners and sites of the configuration have these; 0 where none is planned. `places`: each with its site's number in the
/// configuration. A site that has gone from there still has requests: it has the part of those around it that its own weight gave it beside theirs.
pub(super) fn weights_of_places<'a>(
    config: &Config,
    places: impl Iterator<Item = (Option<usize>, &'a Place)>,
    owners: &[u32],
    sites: &[u32],
) -> Vec<u32> {
    let mut around = None;
    let mut weight =
        |(number, place): (Option<usize>, &Place)| match (number.and_then(|number| sites.get(number)), place) {
            (Some(&weight), _) => weight,
            (None, Place::Site { owner, share, .. }) => {
                around.get_or_insert_with(|| Around::new(config, owners, sites)).weight_of_gone(owner, share.weight)
            }
            (None, Place::Admin | Place::Unknown) => 0,
        };
    places.map(&mut weight).collect()
}

/// What has been configured below each owner, and below none, and what is planned for that.
struct Around<'a> {
    owners: OwnersByName<'a>,
    sums: BTreeMap<Option<&'a str>, (u64, u64)>,
}

impl<'a> Around<'a> {
    fn new(config: &'a Config, owners: &[u32], sites: &[u32]) -> Around<'a> {
        let mut around = Around { owners: config.owners_by_name(), sums: BTreeMap::new() };
        let of_owners = config.owners.iter().zip(owners).map(|(owner, planned)| (&owner.owner, owner.weight, planned));
        let of_sites = config.sites.iter().zip(sites).map(|(site, planned)| (&site.owner, site.weight, planned));
        for (owner, configured, &planned) in of_owners.chain(of_sites) {
            let sum = around.sums.entry(around.owners.get(owner).map(|owner| owner.name.as_str())).or_default();
            *sum = (sum.0 + u64::from(configured), sum.1 + u64::from(planned));
        }
        around
    }

    fn weight_of_gone(&self, owner: &str, weight: u32) -> u32 {
        let above = self.owners.get(owner).map(|owner| owner.name.as_str());
        match self.sums.get(&above) {
            Some(&(configured, planned)) if configured > 0 => {
                (u64::from(weight) * planned / configured).clamp(1, u64::from(Share::WEIGHT_MAX)) as u32
            }
            _ => weight,
        }
    }
}

impl Members {
    /// Gives owners and sites other weights; sites by their places among those that were planted, 0 for none.
    pub(super) fn weigh<E: Copy>(&self, tree: &mut Tree<E>, config: &Config, owners: &[u32], of_places: &[u32]) {
        for (owner, &weight) in config.owners.iter().zip(owners) {
            let node = self.owners.get(&owner.name);
            if let Some(&node) = node.filter(|&&node| self.lone != Some(node)) {
                set_share(tree, node, Share { weight, priority: owner.priority });
            }
        }
        for site in self.sites.iter().filter(|site| self.lone != Some(site.node)) {
            let weight = of_places.get(site.place).copied().filter(|&weight| weight > 0);
            set_share(tree, site.node, Share { weight: weight.unwrap_or(site.share.weight), ..site.share });
        }
        self.let_lag(tree);
    }

    /// Bounds how far sites and owners may be behind, by the weights that they have now.
    fn let_lag<E: Copy>(&self, tree: &mut Tree<E>) {
        let nodes = self.owners.values().chain(&self.root).chain(&self.top).copied();
        tree.set_lag_max(nodes, LAG_MAX).expect("nothing has been removed since the tree was planted");
    }
}

fn set_share<E: Copy>(tree: &mut Tree<E>, node: NodeId, share: Share) {
    if tree.share(node) == Ok(share) {
        return;
    }
    tree.set_share(node, share).expect("nothing has been removed since the tree was planted");
}

/// A tree for sites in these places.
pub(super) fn plant<E: Copy>(config: &Config, places: &[&Place]) -> Planted<E> {
    let schedule = &config.schedule;
    let mut tree = Tree::new(PolicyKind::WeightedFair);
    let root = tree.root();
    let (admin, unknown) = (schedule.admin_share, schedule.unknown_share);
    let rest = Share::weight(WHOLE - u32::from(admin) - u32::from(unknown));
    let unknown = add_node(&mut tree, root, PolicyKind::WeightedFair, Share::weight(unknown.into()));
    tree.keep_charges(unknown).expect("it has just been added");
    let admin = add_leaf(&mut tree, root, Share::weight(admin.into()));
    // Each level costs every event some nanoseconds, so that one that is alone has none of its own.
    let owners = config.owners_by_name();
    let is_lone = schedule.first == First::Sites && count_below_top(config, &owners, places) == 1;
    let top = if is_lone { root } else { add_node(&mut tree, root, schedule.root, rest) };
    let branches = Branches::new(&mut tree, config, &owners, top);
    let mut sites = Vec::new();
    let leaves = places.iter().enumerate().map(|(number, place)| match place {
        Place::Admin => [admin; Stage::COUNT],
        Place::Unknown => [add_leaf(&mut tree, unknown, Share::default()); Stage::COUNT],
        Place::Site { owner, share, stages } => {
            let (node, leaves) = branches.add_site(&mut tree, owner, *share, *stages);
            sites.extend(node.map(|node| SiteMember { place: number, node, share: *share }));
            leaves
        }
    });
    let leaves = leaves.collect();
    let nodes = match branches {
        Branches::Sites(branch) => branch.owners,
        Branches::Stages(_) => BTreeMap::new(),
    };
    let lone = is_lone.then(|| {
        let owner = config.owners.iter().find(|owner| owners.get(&owner.owner).is_none());
        owner.map_or_else(|| sites.first().map(|site| site.node), |owner| nodes.get(&owner.name).copied())
    });
    let lone = lone.flatten();
    lone.into_iter().for_each(|node| set_share(&mut tree, node, rest));
    let members = Members { root: Some(root), top: Some(top), lone, sites, owners: nodes };
    members.let_lag(&mut tree);
    Planted { tree, leaves, unknown, members }
}

/// How many sites and owners have no owner above them.
fn count_below_top(config: &Config, known: &OwnersByName<'_>, places: &[&Place]) -> usize {
    let owners = config.owners.iter().filter(|owner| known.get(&owner.owner).is_none()).count();
    let is_site = |place: &&&Place| matches!(place, Place::Site { owner, .. } if known.get(owner).is_none());
    owners + places.iter().filter(is_site).count()
}

/// Stages are alike. Under strict priority what has begun is finished first, but for what may never end.
pub(super) fn stage_share(stage: Stage) -> Share {
    let priority = match stage {
        Stage::Compute => 0,
        Stage::Receive => 1,
        Stage::Serve => 2,
        Stage::Transmit => 3,
    };
    Share { weight: 100, priority }
}

/// The nodes that sites are put below.
enum Branches {
    /// Owners, and the node for sites without.
    Sites(Branch),
    /// The same below each stage.
    Stages([Branch; Stage::COUNT]),
}

struct Branch {
    top: NodeId,
    owners: BTreeMap<String, NodeId>,
}

impl Branches {
    fn new<E: Copy>(tree: &mut Tree<E>, config: &Config, owners: &OwnersByName<'_>, top: NodeId) -> Branches {
        let schedule = &config.schedule;
        if schedule.first == First::Sites {
            return Branches::Sites(Branch::new(tree, config, owners, top));
        }
        Branches::Stages(Stage::ALL.map(|stage| {
            let policy = match stage {
                Stage::Receive => schedule.receive,
                Stage::Serve => schedule.serve,
                Stage::Transmit => schedule.transmit,
                Stage::Compute => schedule.compute,
            };
            let node = add_node(tree, top, policy, stage_share(stage));
            Branch::new(tree, config, owners, node)
        }))
    }

    /// A site's node, if it has one, and its leaves.
    fn add_site<E: Copy>(
        &self,
        tree: &mut Tree<E>,
        owner: &str,
        share: Share,
        stages: PolicyKind,
    ) -> (Option<NodeId>, [LeafId; Stage::COUNT]) {
        match self {
            Branches::Sites(branch) => {
                let site = add_node(tree, branch.owner(owner), stages, share);
                (Some(site), Stage::ALL.map(|stage| add_leaf(tree, site, stage_share(stage))))
            }
            Branches::Stages(stages) => {
                (None, stages.each_ref().map(|branch| add_leaf(tree, branch.owner(owner), share)))
            }
        }
    }
}

impl Branch {
    fn new<E: Copy>(tree: &mut Tree<E>, config: &Config, owners: &OwnersByName<'_>, top: NodeId) -> Branch {
        let mut branch = Branch { top, owners: BTreeMap::new() };
        for owner in &config.owners {
            branch.add_owner(tree, owners, owner);
        }
        branch
    }

    /// Adds an owner below its own owner, which may come later in the file. Owners that own each other aren't let through by `check`.
    fn add_owner<E: Copy>(&mut self, tree: &mut Tree<E>, owners: &OwnersByName<'_>, owner: &Owner) {
        if self.owners.contains_key(&owner.name) {
            return;
        }
        if let Some(above) = owners.get(&owner.owner) {
            self.add_owner(tree, owners, above);
        }
        let share = Share { weight: owner.weight, priority: owner.priority };
        let node = add_node(tree, self.owner(&owner.owner), owner.policy, share);
        self.owners.insert(owner.name.clone(), node);
    }

    /// The node of an owner; without one, that of all.
    fn owner(&self, name: &str) -> NodeId {
        self.owners.get(name).copied().unwrap_or(self.top)
    }
}

fn add_node<E: Copy>(tree: &mut Tree<E>, parent: NodeId, policy: PolicyKind, share: Share) -> NodeId {
    tree.add_node(parent, policy, share).expect("nothing has been removed, and `check` bounds the levels")
}

fn add_leaf<E: Copy>(tree: &mut Tree<E>, parent: NodeId, share: Share) -> LeafId {
    tree.add_leaf(parent, share).expect("nothing has been removed")
}

#[cfg(test)]
mod tests {
    use leat_logic::schedule::Cost;

    use super::*;
    use crate::config::Schedule;

    const EVENT_NS: u64 = 1_000;

    fn site(owner: &str, weight: u32) -> Place {
        Place::Site { owner: owner.to_owned(), share: Share::weight(weight), stages: PolicyKind::RoundRobin }
    }

    fn owner(name: &str, owner: &str, weight: u32) -> Owner {
        Owner { name: name.to_owned(), owner: owner.to_owned(), weight, ..Owner::default() }
    }

    /// How many of `events` each place gets, in hundredths, if all always want more; `stages` are the stages with work.
    fn served(config: &Config, places: &[Place], stages: &[Stage], events: usize) -> Vec<u64> {
        let Planted { mut tree, leaves, .. } = plant(config, &places.iter().collect::<Vec<_>>());
        for (place, leaves) in leaves.iter().enumerate() {
            for &stage in stages {
                tree.push(leaves[stage as usize], (place, stage)).unwrap();
            }
        }
        let mut counts = vec![0; places.len()];
        for _ in 0..events {
            let (leaf, (place, stage)) = tree.pop().unwrap();
            counts[place] += 1;
            tree.push(leaf, (place, stage)).unwrap();
            tree.charge(leaf, Cost::from_ns(EVENT_NS));
        }
        counts.iter().map(|count| (count * 100 + events as u64 / 2) / events as u64).collect()
    }

    #[test]
    fn sites_are_equal_when_nothing_is_said() {
        let places = [site("", 100), site("", 100), site("", 100), site("", 100)];
        assert_eq!(served(&Config::default(), &places, &[Stage::Serve], 10_000), [25, 25, 25, 25]);
        assert_eq!(served(&Config::default(), &places, &Stage::ALL, 12_000), [25, 25, 25, 25]);
    }

    #[test]
    fn a_share_of_an_owner_is_divided_among_its_sites_and_owners() {
        let config = Config {
            // The child comes before its parent, as it may in a file.
            owners: vec![owner("child", "press", 100), owner("press", "", 300)],
            ..Config::default()
        };
        let places = [site("", 100), site("press", 200), site("child", 50), site("child", 150)];
        for first in [First::Sites, First::Stages] {
            let schedule = Schedule { first, ..Schedule::default() };
            let config = Config { schedule, ..config.clone() };
            // A quarter; two thirds of three quarters; a quarter and three quarters of a third of three quarters.
            assert_eq!(served(&config, &places, &Stage::ALL, 48_000), [25, 50, 6, 19], "{first:?}");
        }
    }

    #[test]
    fn who_wanted_less_comes_first_for_no_longer_than_it_may_whatever_the_weights() {
        let names = ["a", "b"].map(str::to_owned);
        let sites = names.clone().map(|name| config::Site { name, ..config::Site::default() });
        let config = Config { sites: sites.into(), ..Config::default() };
        for (a, b) in [(100, 100), (40_000, 10_000), (10, 40), (60_000, 60_000)] {
            let Planted { mut tree, leaves, members, .. } = plant(&config, &[&site("", 100), &site("", 100)]);
            let serve = |tree: &mut Tree<usize>, places: &[usize], events: usize| -> Vec<usize> {
                for &place in places {
                    (0..events).for_each(|_| tree.push(leaves[place][0], place).unwrap());
                }
                let pop = |_| {
                    let (leaf, place) = tree.pop().unwrap();
                    tree.charge(leaf, Cost::from_ns(100_000));
                    place
                };
                (0..events).map(pop).collect()
            };
            serve(&mut tree, &[0], 500);
            members.weigh(&mut tree, &config, &[], &[a, b]);
            let order = serve(&mut tree, &[0, 1], 1_000);
            let waits = order.iter().position(|&place| place == 0).unwrap();
            assert!(waits <= 122, "{a}:{b}: {waits} events of 0.1 ms");
            let rest = order[200..].iter().filter(|&&place| place == 0).count() as f64 / 800.0;
            assert!((rest - f64::from(a) / f64::from(a + b)).abs() < 0.01, "{a}:{b}: {rest}");
        }
    }

    #[test]
    fn what_is_kept_is_kept_under_every_policy() {
        let schedule = Schedule { admin_share: 10, unknown_share: 30, ..Schedule::default() };
        let places = [Place::Unknown, Place::Admin, site("", 1), site("", 3)];
        let config = Config { schedule, ..Config::default() };
        assert_eq!(served(&config, &places, &[Stage::Receive], 10_000), [30, 10, 15, 45]);
        let places = [Place::Unknown, Place::Admin, site("", 100), site("", 300)];
        assert_eq!(served(&config, &places, &[Stage::Receive], 10_000), [30, 10, 15, 45]);
        for root in [PolicyKind::StrictPriority, PolicyKind::RoundRobin] {
            let config = Config { schedule: Schedule { root, ..config.schedule.clone() }, ..config.clone() };
            assert_eq!(served(&config, &places, &[Stage::Receive], 10_000), [30, 10, 30, 30], "{root:?}");
        }
        let heavy = [Place::Unknown, Place::Admin, site("", 65_535), site("", 65_535), site("", 65_535)];
        assert_eq!(served(&config, &heavy, &[Stage::Receive], 10_000), [30, 10, 20, 20, 20]);
    }

    #[test]
    fn what_is_kept_is_no_more_when_few_of_many_want_something() {
        let schedule = Schedule { admin_share: 10, unknown_share: 30, ..Schedule::default() };
        let config = Config { schedule, owners: vec![owner("press", "", 500)], ..Config::default() };
        let alone = Config { owners: Vec::new(), ..config.clone() };
        let among = |config: &Config, sites: usize| {
            let mut places = vec![Place::Unknown, Place::Admin, site("press", 100)];
            places.resize(2 + sites, site("", 100));
            let Planted { mut tree, leaves, .. } = plant(config, &places.iter().collect::<Vec<_>>());
            let mut counts = [0; 3];
            (0..3).for_each(|place| tree.push(leaves[place][0], place).unwrap());
            for _ in 0..10_000 {
                let (leaf, place) = tree.pop().unwrap();
                counts[place] += 1;
                tree.push(leaf, place).unwrap();
                tree.charge(leaf, Cost::from_ns(EVENT_NS));
            }
            counts.map(|count| (count + 50) / 100)
        };
        for sites in [1, 2, 20, 300] {
            assert_eq!((among(&config, sites), among(&alone, sites)), ([30, 10, 60], [30, 10, 60]), "{sites} sites");
        }
    }

    #[test]
    fn what_is_kept_is_kept_whatever_weights_are_planned() {
        const SITES: usize = 60;
        let schedule = Schedule { admin_share: 5, unknown_share: 40, ..Schedule::default() };
        let names: Vec<String> = (0..SITES).map(|number| number.to_string()).collect();
        let sites = names.iter().map(|name| config::Site { name: name.clone(), ..config::Site::default() }).collect();
        let config = Config { schedule, sites, ..Config::default() };
        let mut places = vec![Place::Unknown, Place::Admin];
        places.resize(2 + SITES, site("", 100));
        let Planted { mut tree, leaves, members, .. } = plant(&config, &places.iter().collect::<Vec<_>>());
        // One has twice what the others have, which is nearly the most that a plan says.
        let mut planned = vec![15_000; SITES];
        planned[7] = 30_000;
        let numbers = [None, None].into_iter().chain((0..SITES).map(Some));
        members.weigh(&mut tree, &config, &[], &weights_of_places(&config, numbers.zip(&places), &[], &planned));
        leaves.iter().enumerate().for_each(|(place, leaves)| tree.push(leaves[0], place).unwrap());
        let mut counts = vec![0; places.len()];
        for _ in 0..61_000 {
            let (leaf, place) = tree.pop().unwrap();
            counts[place] += 1;
            tree.push(leaf, place).unwrap();
            tree.charge(leaf, Cost::from_ns(EVENT_NS));
        }
        let expected = |place| match place {
            0 => 0.40,
            1 => 0.05,
            9 => 0.55 * 2.0 / 61.0,
            _ => 0.55 / 61.0,
        };
        for (place, &count) in counts.iter().enumerate() {
            let part = f64::from(count) / 61_000.0 / expected(place);
            assert!((part - 1.0).abs() < 0.02, "{place}: {part}");
        }
    }

    #[test]
    fn who_has_gone_from_the_configuration_keeps_its_part_beside_planned_weights() {
        let named = |name: &str, owner: &str, weight| config::Site {
            name: name.to_owned(),
            owner: owner.to_owned(),
            weight,
            ..config::Site::default()
        };
        let config = Config {
            owners: vec![owner("press", "", 300), owner("alone", "", 100)],
            sites: vec![named("a", "", 100), named("b", "press", 50), named("c", "press", 150)],
            ..Config::default()
        };
        let places = [
            ("a", &site("", 100)),
            ("gone", &site("", 200)),
            ("b", &site("press", 50)),
            ("gone below", &site("press", 100)),
            ("c", &site("press", 150)),
            ("gone alone", &site("alone", 70)),
            ("gone with its owner", &site("gone", 50)),
            ("light", &site("press", 1)),
            (UNKNOWN, &Place::Unknown),
        ];
        let number = |name: &str| config.sites.iter().position(|site| site.name == name);
        let weights = |owners: &[u32], sites: &[u32]| {
            weights_of_places(&config, places.iter().map(|&(name, place)| (number(name), place)), owners, sites)
        };
        assert_eq!(weights(&[30_000, 10_000], &[10_000, 100, 500]), [10_000, 20_000, 100, 300, 500, 70, 5_000, 3, 0]);
        assert_eq!(weights(&[40_000, 100], &[9_900, 1, 1]), [9_900, 20_000, 1, 1, 1, 70, 5_000, 1, 0]);
        assert_eq!(weights(&[65_535, 65_535], &[65_535, 1, 1])[1], 65_535, "the most that there is");
    }

    const UNKNOWN: &str = "(unknown)";

    #[test]
    fn under_strict_priority_what_has_begun_is_finished_first() {
        let place = Place::Site { owner: String::new(), share: Share::default(), stages: PolicyKind::StrictPriority };
        let Planted { mut tree, leaves, .. } = plant(&Config::default(), &[&place]);
        for stage in Stage::ALL {
            tree.push(leaves[0][stage as usize], stage).unwrap();
        }
        let order: Vec<Stage> = std::iter::from_fn(|| tree.pop()).map(|(_, stage)| stage).collect();
        assert_eq!(order, [Stage::Transmit, Stage::Serve, Stage::Receive, Stage::Compute]);
    }

    #[test]
    fn the_deepest_owners_that_check_lets_through_fit() {
        let owners: Vec<Owner> = (0..config::OWNER_LEVELS_MAX)
            .map(|level| owner(&level.to_string(), &level.checked_sub(1).map_or(String::new(), |l| l.to_string()), 1))
            .collect();
        let deepest = site(&owners.last().unwrap().name.clone(), 1);
        for (first, root) in [(First::Sites, PolicyKind::Deadline), (First::Stages, PolicyKind::RoundRobin)] {
            let schedule = Schedule { first, root, ..Schedule::default() };
            let config = Config { schedule, owners: owners.clone(), ..Config::default() };
            let Planted { mut tree, leaves, .. } = plant(&config, &[&deepest]);
            tree.push(leaves[0][0], ()).unwrap();
            assert!(tree.pop().is_some());
        }
    }
}
