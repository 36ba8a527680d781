//! What part of a worker each site is entitled to among those that want something. The tree needs no such number: it's for admission control,
//! the metrics and the dashboard.

use leat_logic::schedule::{PolicyKind, Share};

use super::Stage;
use super::shares::{Place, stage_share};
use crate::config::{Config, First};

/// A child of a node: a site by its place, or an owner by its place.
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

/// The parts, from 0 to 1, in the order of `places`; 0 for those that want nothing. What is kept for the admin pages and for unknown work
/// is nobody's part, as it isn't used up.
pub(super) fn parts(config: &Config, places: &[&Place], wants: &[bool], planned: &PlanWeights) -> Vec<f64> {
    let schedule = &config.schedule;
    let mut division = Division { config, places, wants, planned, parts: vec![0.0; places.len()] };
    let policy = if schedule.first == First::Sites { schedule.root } else { schedule.serve };
    division.divide(None, policy, 1.0);
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
    places: &'a [&'a Place],
    wants: &'a [bool],
    planned: &'a PlanWeights,
    parts: Vec<f64>,
}

impl Division<'_> {
    /// The owner with that name.
    fn owner(&self, name: &str) -> Option<usize> {
        self.config.owners.iter().position(|owner| owner.name == name)
    }

    /// Divides `part` among all that is below an owner, or below the root.
    fn divide(&mut self, owner: Option<usize>, policy: PolicyKind, part: f64) {
        let mut children: Vec<(Child, Share)> = self.children(owner);
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
                Child::Owner(owner) => self.divide(Some(owner), self.config.owners[owner].policy, part),
            }
        }
    }

    /// What is right below an owner, or below the root, and wants something.
    fn children(&self, parent: Option<usize>) -> Vec<(Child, Share)> {
        let sites = self.places.iter().enumerate().filter_map(|(site, place)| match place {
            Place::Site { owner, share, .. } if self.wants[site] && self.owner(owner) == parent => {
                let planned = self.planned.sites.get(site).copied().filter(|&weight| weight > 0);
                Some((Child::Site(site), Share { weight: planned.unwrap_or(share.weight), ..*share }))
            }
            _ => None,
        });
        let owners = self.config.owners.iter().enumerate().filter_map(|(place, owner)| {
            let weight = self.planned.owners.get(place).copied().unwrap_or(owner.weight);
            let share = Share { weight, priority: owner.priority };
            let is_here = self.owner(&owner.owner) == parent && parent != Some(place);
            (is_here && !self.children(Some(place)).is_empty()).then_some((Child::Owner(place), share))
        });
        sites.chain(owners).collect()
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

    #[test]
    fn parts_follow_weights_among_those_that_want() {
        let config = config(PolicyKind::WeightedFair);
        let (admin, a, b) = (Place::Admin, site("", 100, 0), site("press", 100, 0));
        let (c, d) = (site("child", 50, 0), site("child", 150, 0));
        let places = [&admin, &a, &b, &c, &d];
        let all = parts(&config, &places, &[true; 5], &PlanWeights::default());
        assert_eq!(all, [0.0, 0.5, 0.25, 0.0625, 0.1875]);
        let few = parts(&config, &places, &[true, true, false, true, false], &PlanWeights::default());
        assert_eq!(few, [0.0, 0.5, 0.0, 0.5, 0.0]);
        assert_eq!(parts(&config, &places, &[false; 5], &PlanWeights::default()), [0.0; 5]);
    }

    #[test]
    fn parts_follow_the_policy() {
        let (a, b, c) = (site("", 300, 1), site("", 100, 1), site("", 100, 0));
        let places = [&a, &b, &c];
        assert_eq!(
            parts(&config(PolicyKind::StrictPriority), &places, &[true; 3], &PlanWeights::default()),
            [0.5, 0.5, 0.0]
        );
        assert_eq!(
            parts(&config(PolicyKind::StrictPriority), &places, &[false, false, true], &PlanWeights::default()),
            [0.0, 0.0, 1.0]
        );
        assert_eq!(
            parts(&config(PolicyKind::Deadline), &places, &[true, false, true], &PlanWeights::default()),
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

    #[test]
    fn parts_follow_the_weights_that_are_in_force() {
        let config = config(PolicyKind::WeightedFair);
        let (admin, a, b) = (Place::Admin, site("", 400, 0), site("press", 100, 0));
        let planned = PlanWeights { owners: vec![7, 30], sites: vec![0, 10, 50] };
        assert_eq!(parts(&config, &[&admin, &a, &b], &[true; 3], &planned), [0.0, 0.25, 0.75]);
    }
}
