//! What part of a worker each site is entitled to among those that want something. The tree needs no such number: it's for admission control,
//! the metrics and the dashboard.

use leat_logic::schedule::{PolicyKind, Share};

use super::Stage;
use super::shares::{Place, stage_share};
use crate::config::{Config, First};

/// A child of a node: a site by its place among those that want something, or an owner by its number.
#[derive(Clone, Copy)]
enum Child {
    Site(usize),
    Owner(usize),
}

/// Weights that are in force in this worker instead of the configured ones, so that shares hold over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlanWeights {
    /// In the order of the configuration; empty for the configured ones.
    pub(super) owners: Vec<u32>,
    /// In the order of the places; 0 for the configured one.
    pub(super) sites: Vec<u32>,
}

/// Which owner each owner is below, and each site, by their numbers; those without one are below the root, whose number is that of owners. Worked out once,
/// as parts are every 10 ms and there may be thousands of each.
#[derive(Default)]
pub(super) struct Descent {
    of_owners: Vec<usize>,
    /// With the share that is configured; none for the admin pages and for unknown work.
    of_sites: Vec<Option<(usize, Share)>>,
}

impl Descent {
    /// `places`: in the order of the sites' numbers.
    pub(super) fn new<'a>(config: &Config, places: impl Iterator<Item = &'a Place>) -> Descent {
        let root = config.owners.len();
        let owners = config.owners_by_name();
        let above = |owner: &str| owners.number(owner).unwrap_or(root);
        let of_site = |place: &Place| match place {
            Place::Site { owner, share, .. } => Some((above(owner), *share)),
            Place::Admin | Place::Unknown => None,
        };
        Descent {
            of_owners: config.owners.iter().map(|owner| above(&owner.owner)).collect(),
            of_sites: places.map(of_site).collect(),
        }
    }
}

/// The parts, from 0 to 1, of those that want something, in their order. What is kept for the admin pages and for unknown work is nobody's part, as it isn't
/// used up.
pub(super) fn parts(config: &Config, descent: &Descent, wanting: &[usize], planned: &PlanWeights) -> Vec<f64> {
    let schedule = &config.schedule;
    let root = config.owners.len();
    let mut children = vec![Vec::new(); root + 1];
    let mut is_wanting = vec![false; root];
    for (place, &site) in wanting.iter().enumerate() {
        let Some((mut owner, share)) = descent.of_sites[site] else { continue };
        let weight = planned.sites.get(site).copied().filter(|&weight| weight > 0).unwrap_or(share.weight);
        children[owner].push((Child::Site(place), Share { weight, ..share }));
        while owner != root && !std::mem::replace(&mut is_wanting[owner], true) {
            owner = descent.of_owners[owner];
        }
    }
    for (number, owner) in config.owners.iter().enumerate().filter(|&(number, _)| is_wanting[number]) {
        let weight = planned.owners.get(number).copied().unwrap_or(owner.weight);
        let share = Share { weight, priority: owner.priority };
        children[descent.of_owners[number]].push((Child::Owner(number), share));
    }
    let mut division = Division { config, children, parts: vec![0.0; wanting.len()] };
    let policy = if schedule.first == First::Sites { schedule.root } else { schedule.serve };
    division.divide(root, policy, 1.0);
    division.parts
}

/// The parts of a site's that its stages are entitled to, which are alike but for their priorities.
pub(super) fn stage_parts(policy: PolicyKind, wants: [bool; Stage::COUNT]) -> [f64; Stage::COUNT] {
    let priority = |stage| if policy == PolicyKind::StrictPriority { stage_share(stage).priority } else { 0 };
    let wanting = || Stage::ALL.into_iter().filter(|&stage| wants[stage as usize]);
    let highest = wanting().map(priority).max();
    let is_entitled = |stage: Stage| wants[stage as usize] && Some(priority(stage)) == highest;
    let count = wanting().filter(|&stage| is_entitled(stage)).count();
    Stage::ALL.map(|stage| if is_entitled(stage) { 1.0 / count as f64 } else { 0.0 })
}

struct Division<'a> {
    config: &'a Config,
    children: Vec<Vec<(Child, Share)>>,
    parts: Vec<f64>,
}

impl Division<'_> {
    /// Divides `part` among all that is below an owner, or below the root.
    fn divide(&mut self, owner: usize, policy: PolicyKind, part: f64) {
        let mut children = std::mem::take(&mut self.children[owner]);
        if policy == PolicyKind::StrictPriority {
            let highest = children.iter().map(|(_, share)| share.priority).max();
            children.retain(|(_, share)| Some(share.priority) == highest);
        }
        let weight = |share: &Share| if policy == PolicyKind::WeightedFair { f64::from(share.weight) } else { 1.0 };
        let all: f64 = children.iter().map(|(_, share)| weight(share)).sum();
        for (child, share) in &children {
            let part = part * weight(share) / all;
            match *child {
                Child::Site(site) => self.parts[site] = part,
                Child::Owner(owner) => self.divide(owner, self.config.owners[owner].policy, part),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Owner, Schedule};

    fn site(owner: &str, weight: u32, priority: u8) -> Place {
        let share = Share { weight, priority };
        Place::Site { owner: owner.to_owned(), share, stages: PolicyKind::RoundRobin }
    }

    fn config(root: PolicyKind) -> Config {
        let owner =
            |name: &str, owner: &str| Owner { name: name.to_owned(), owner: owner.to_owned(), ..Owner::default() };
        let schedule = Schedule { root, ..Schedule::default() };
        Config { schedule, owners: vec![owner("child", "press"), owner("press", "")], ..Config::default() }
    }

    /// By place, with those that want nothing.
    fn parts_of(config: &Config, places: &[&Place], wants: &[bool], planned: &PlanWeights) -> Vec<f64> {
        let descent = Descent::new(config, places.iter().copied());
        let wanting: Vec<usize> = (0..places.len()).filter(|&place| wants[place]).collect();
        let mut all = vec![0.0; places.len()];
        for (place, part) in wanting.iter().zip(parts(config, &descent, &wanting, planned)) {
            all[*place] = part;
        }
        all
    }

    #[test]
    fn parts_follow_weights_among_those_that_want() {
        let config = config(PolicyKind::WeightedFair);
        let (admin, a, b) = (Place::Admin, site("", 100, 0), site("press", 100, 0));
        let (c, d) = (site("child", 50, 0), site("child", 150, 0));
        let places = [&admin, &a, &b, &c, &d];
        let all = parts_of(&config, &places, &[true; 5], &PlanWeights::default());
        assert_eq!(all, [0.0, 0.5, 0.25, 0.0625, 0.1875]);
        let few = parts_of(&config, &places, &[true, true, false, true, false], &PlanWeights::default());
        assert_eq!(few, [0.0, 0.5, 0.0, 0.5, 0.0]);
        assert_eq!(parts_of(&config, &places, &[false; 5], &PlanWeights::default()), [0.0; 5]);
    }

    #[test]
    fn parts_follow_the_policy() {
        let (a, b, c) = (site("", 300, 1), site("", 100, 1), site("", 100, 0));
        let places = [&a, &b, &c];
        assert_eq!(
            parts_of(&config(PolicyKind::StrictPriority), &places, &[true; 3], &PlanWeights::default()),
            [0.5, 0.5, 0.0]
        );
        assert_eq!(
            parts_of(&config(PolicyKind::StrictPriority), &places, &[false, false, true], &PlanWeights::default()),
            [0.0, 0.0, 1.0]
        );
        assert_eq!(
            parts_of(&config(PolicyKind::Deadline), &places, &[true, false, true], &PlanWeights::default()),
            [0.5, 0.0, 0.5]
        );
    }

    #[test]
    fn stages_that_want_something_have_equal_parts_or_the_first_has_all() {
        let wants = [true, false, true, false];
        assert_eq!(stage_parts(PolicyKind::WeightedFair, wants), [0.5, 0.0, 0.5, 0.0]);
        assert_eq!(stage_parts(PolicyKind::StrictPriority, wants), [0.0, 0.0, 1.0, 0.0]);
        assert_eq!(stage_parts(PolicyKind::RoundRobin, [false; Stage::COUNT]), [0.0; Stage::COUNT]);
    }

    /// It's worked out every 10 ms: were each owner's children looked for among all, this would take minutes.
    #[test]
    fn of_hundreds_of_owners_with_sites_each_has_its_part() {
        let owners = (0..400).map(|number| Owner {
            name: format!("owner-{number}"),
            owner: if number < 200 { format!("owner-{}", 200 + number % 4) } else { String::new() },
            ..Owner::default()
        });
        let config = Config { owners: owners.collect(), ..Config::default() };
        let sites: Vec<Place> = (0..800).map(|number| site(&format!("owner-{}", number % 200), 100, 0)).collect();
        let places: Vec<&Place> = sites.iter().collect();
        for _ in 0..100 {
            let parts = parts_of(&config, &places, &[true; 800], &PlanWeights::default());
            assert!(parts.iter().all(|part| (part * 800.0 - 1.0).abs() < 1e-9));
        }
    }

    #[test]
    fn parts_follow_the_weights_that_are_in_force() {
        let config = config(PolicyKind::WeightedFair);
        let (admin, a, b) = (Place::Admin, site("", 400, 0), site("press", 100, 0));
        let planned = PlanWeights { owners: vec![7, 30], sites: vec![0, 10, 50] };
        assert_eq!(parts_of(&config, &[&admin, &a, &b], &[true; 3], &planned), [0.0, 0.25, 0.75]);
    }
}
