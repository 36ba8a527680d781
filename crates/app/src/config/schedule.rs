//! The sections that say who gets how much of a worker: the order of work, and owners. What a site says of itself is in `site`.

use std::collections::HashMap;

use leat_logic::schedule::{DEPTH_MAX, PolicyKind, Share};

use super::kinds::{Choice, Count, NAME, Nested, OWNER, OrBlank, POLICY, Percent};
use super::quota::OwnerQuota;
use super::schema::{Fallback::*, section};

/// What is right below the root of a worker's tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum First {
    /// Owners and sites; each site's stages are below it.
    #[default]
    Sites,
    /// Stages; owners and sites are below each of them.
    Stages,
}

/// Owners above each other: the tree has three levels more.
pub const OWNER_LEVELS_MAX: usize = DEPTH_MAX - 3;

/// The weight of a site or an owner.
pub(super) const WEIGHT: Count<u32> = Count { min: 1, max: Share::WEIGHT_MAX };
/// The priority of a site or an owner.
pub(super) const PRIORITY: Count<u8> = Count { min: 0, max: u8::MAX };
/// A share that is kept back: most must be left to the sites.
const KEPT_SHARE: Percent = Percent(Count { min: 1, max: 40 });
/// How long requests may be waited for.
const GATHER_US: Count<u32> = Count { min: 0, max: 1_000 };

section! {
    /// The order of work on each worker: a tree whose nodes each have a policy. Nothing needs to be written here: sites that want more than
    /// there is get equal shares, or shares by their `weight`.
    Schedule "[schedule]" example "[schedule]\nroot = \"strict_priority\"\nadmin_share = \"10%\"\n" {
        /// What is right below the root. With `"sites"`, a share is one of everything that a worker does. With `"stages"`, each stage is
        /// shared by itself.
        first: First = Choice(&[("sites", First::Sites), ("stages", First::Stages)]), Toml("\"sites\"");
        /// The policy between what is right below the root: sites and owners, or stages. `weight` counts under `weighted_fair`,
        /// `priority` under `strict_priority`.
        root: PolicyKind = POLICY, Toml("\"weighted_fair\"");
        /// The policy between the stages of a site, where `first` is `"sites"`. They have equal weights. Under `strict_priority`, what has
        /// begun is finished first, and handlers compute when nothing else is to be done.
        stages: PolicyKind = POLICY, Toml("\"weighted_fair\"");
        /// The policy between sites and owners that have something to receive, where `first` is `"stages"`.
        receive: PolicyKind = POLICY, Toml("\"weighted_fair\"");
        /// The policy between sites and owners that have a request to serve, where `first` is `"stages"`.
        serve: PolicyKind = POLICY, Toml("\"weighted_fair\"");
        /// The policy between sites and owners that have more of a reply to send, where `first` is `"stages"`.
        transmit: PolicyKind = POLICY, Toml("\"weighted_fair\"");
        /// The policy between sites and owners whose handlers compute, where `first` is `"stages"`.
        compute: PolicyKind = POLICY, Toml("\"weighted_fair\"");
        /// What is kept of each worker for the admin address, so that it answers whatever the sites do. Unused, it is theirs.
        admin_share: u8 = KEPT_SHARE, Toml("\"5%\"");
        /// What is kept for requests whose head isn't complete, so that sites that are busy don't keep out those who connect. Unused, it is
        /// the sites'; and a request that becomes one of a site's counts as the site's from its first byte.
        unknown_share: u8 = KEPT_SHARE, Toml("\"20%\"");
        /// How long an idle worker may wait for further requests, in microseconds, so that one waking serves several: less processor time for
        /// each, and each somewhat later. 50 is a good value where that is wanted, 0 is never. It does so only while many come, most of them from
        /// clients that don't ask again at once. It takes `reactor = "io_uring"` and Linux 6.12; otherwise the first request wakes the worker.
        gather_us: u32 = GATHER_US, Toml("0");
    }
}

impl super::Config {
    /// For looking up many.
    pub(crate) fn owners_by_name(&self) -> OwnersByName<'_> {
        let numbers = self.owners.iter().enumerate().map(|(number, owner)| (owner.name.as_str(), number)).collect();
        OwnersByName { owners: &self.owners, numbers }
    }
}

/// See [`super::Config::owners_by_name`].
pub(crate) struct OwnersByName<'a> {
    owners: &'a [Owner],
    numbers: HashMap<&'a str, usize>,
}

impl<'a> OwnersByName<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&'a Owner> {
        self.number(name).map(|number| &self.owners[number])
    }

    /// Its place in the order of the configuration.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// The owner of that name, its owner, and so on.
    pub(crate) fn above(&self, name: &str) -> impl Iterator<Item = &'a Owner> {
        std::iter::successors(self.get(name), |owner| self.get(&owner.owner)).take(OWNER_LEVELS_MAX)
    }
}

section! {
    /// Somebody with several sites. An owner has one share, which is divided among that owner's sites and owners. There may be any number of
    /// them.
    Owner "[[owner]]" example "[[owner]]\nname = \"press\"\nweight = 300\n" {
        /// What `owner` of a site, or of another owner, refers to. No two are the same.
        name: String = OrBlank(NAME), Required;
        /// The owner that this one's share is part of; `""` for none.
        owner: String = OWNER, Toml("\"\"");
        /// The owner's share, in proportion to the weights of its siblings that have work.
        weight: u32 = WEIGHT, Toml("100");
        /// Those with a higher number are served before all with a lower one, under the policy `strict_priority`.
        priority: u8 = PRIORITY, Toml("0");
        /// The policy between the sites and owners below this one.
        policy: PolicyKind = POLICY, Toml("\"weighted_fair\"");
        /// What they may use at most.
        quota: OwnerQuota = Nested::<OwnerQuota>::new(), Otherwise("");
    }
}
