//! Shares: owners that don't exist or own each other, and keys that count for nothing under the policy they stand under.

use std::collections::BTreeMap;
use std::ops::Range;

use leat_logic::schedule::PolicyKind;

use super::check::{Judge, SiteTable, Table};
use super::kinds::show_size;
use super::quota::Quota;
use super::schedule::{First, OWNER_LEVELS_MAX, Owner};
use super::suggest;

/// A site's memory quota must hold a few requests, or nothing would ever be received.
const MEMORY_MIN: u64 = 256 * 1024;

type Owners<'a> = BTreeMap<&'a str, Table<'a, Owner>>;

pub(super) fn judge<'a>(judge: &mut Judge<'a>, sites: &[SiteTable<'a>]) {
    let tables = judge.tables("owner", &judge.config.owners);
    let owners = names(judge, &tables);
    for table in &tables {
        exists(judge, table, &table.section.owner, &owners);
        counts(judge, table, &table.section.owner, &owners);
        levels(judge, table, &owners);
        has_sites(judge, table, sites, &tables);
        quota(judge, table, &table.section.quota.0, &table.section.owner, &owners);
    }
    for table in sites {
        exists(judge, table, &table.section.owner, &owners);
        counts(judge, table, &table.section.owner, &owners);
        quota(judge, table, &table.section.quota, &table.section.owner, &owners);
    }
    order(judge, sites);
}

/// The owners by name; of two with the same name, the first.
fn names<'a>(judge: &mut Judge<'a>, tables: &[Table<'a, Owner>]) -> Owners<'a> {
    let mut owners = Owners::new();
    for table in tables {
        let Some(span) = table.written(judge, "name") else { continue };
        let name = table.section.name.as_str();
        match owners.get(name).and_then(|first| first.value("name")) {
            Some(first) => {
                let message = format!("two owners have the name `{name}`");
                let help = "write another name, or give its sites to the other";
                judge.error_with_note(span, message, help, (first.span(), "the other is"));
            }
            None => {
                owners.insert(name, *table);
            }
        }
    }
    owners
}

fn exists<T>(judge: &mut Judge<'_>, table: &Table<'_, T>, owner: &str, owners: &Owners<'_>) {
    let Some(span) = table.written(judge, "owner") else { return };
    if owner.is_empty() || owners.contains_key(owner) {
        return;
    }
    let help = match suggest::nearest(owner, owners.keys().copied()) {
        Some(name) => format!("did you mean \"{name}\"?"),
        None => format!("add [[owner]] with name = \"{owner}\", or take this out"),
    };
    judge.error(span, format!("there is no owner `{owner}`"), help);
}

/// Whether weight and priority mean something under the policies that they stand under.
fn counts<T>(judge: &mut Judge<'_>, table: &Table<'_, T>, owner: &str, owners: &Owners<'_>) {
    let schedule = &judge.config.schedule;
    let (policies, place) = match (owners.get(owner), schedule.first) {
        (Some(owner), _) => (vec![owner.section.policy], "policy = \"{}\" for its owner"),
        (None, First::Sites) => (vec![schedule.root], "root = \"{}\" in [schedule]"),
        (None, First::Stages) => (
            vec![schedule.receive, schedule.serve, schedule.transmit, schedule.compute],
            "serve = \"{}\" in [schedule]",
        ),
    };
    for (key, meant) in [("weight", PolicyKind::WeightedFair), ("priority", PolicyKind::StrictPriority)] {
        if let Some(span) = table.written(judge, key)
            && !policies.contains(&meant)
        {
            let message = format!("`{key}` counts for nothing under the policy {}", policies[0].name());
            judge.warning(span, message, format!("take it out, or write {}", place.replace("{}", meant.name())));
        }
    }
}

/// Whether an owner owns itself, or is too far below the root.
fn levels(judge: &mut Judge<'_>, table: &Table<'_, Owner>, owners: &Owners<'_>) {
    let Some(span) = table.written(judge, "owner") else { return };
    let name = table.section.name.as_str();
    let mut above = table.section;
    for level in 1.. {
        let Some(owner) = owners.get(above.owner.as_str()) else { return };
        above = owner.section;
        if above.name == name {
            judge.error(span, format!("the owner `{name}` is its own owner"), "take `owner` out of one of them");
            return;
        }
        if level >= OWNER_LEVELS_MAX {
            let message = format!("`{name}` is more than {OWNER_LEVELS_MAX} owners below the root");
            judge.error(span, message, "nest owners less deeply");
            return;
        }
    }
}

fn has_sites(judge: &mut Judge<'_>, table: &Table<'_, Owner>, sites: &[SiteTable<'_>], owners: &[Table<'_, Owner>]) {
    let Some(span) = table.written(judge, "name") else { return };
    let name = &table.section.name;
    let is_used =
        sites.iter().any(|site| site.section.owner == *name) || owners.iter().any(|o| o.section.owner == *name);
    if !is_used {
        let help = format!("write owner = \"{name}\" in a [[site]], or take it out");
        judge.warning(span, format!("the owner `{name}` has no sites"), help);
    }
}

/// A quota that lets nothing be received, or that an owner's keeps from being reached.
fn quota<T>(judge: &mut Judge<'_>, table: &Table<'_, T>, quota: &Quota, owner: &str, owners: &Owners<'_>) {
    let written = |key: &str| table.value("quota").and_then(|quota| quota.get_ref().get(key)).map(|value| value.span());
    let limits = |quota: &Quota| quota.limits().into_iter().filter_map(|(key, max)| Some((key, max?)));
    for (key, max) in limits(quota) {
        let Some(span) = written(key).filter(|span| judge.is_good(span)) else { continue };
        let shown = Quota::show(key, max);
        if key == "memory" && max < MEMORY_MIN {
            let message = format!("`memory` is {shown}, less than a few requests need");
            judge.error(span, message, format!("write {} or more, or 0", show_size(MEMORY_MIN)));
            continue;
        }
        let next = |owner: &Table<'_, Owner>| owners.get(owner.section.owner.as_str()).copied();
        let above = std::iter::successors(owners.get(owner).copied(), next).take(OWNER_LEVELS_MAX);
        let mut less = above.flat_map(|owner| limits(&owner.section.quota.0).map(move |limit| (owner.section, limit)));
        if let Some((owner, (_, less))) = less.find(|(_, (other, less))| *other == key && *less < max) {
            let message = format!("`{key}` is {shown}, more than its owner `{}` may use", owner.name);
            judge.warning(span, message, format!("take it out, or write less than {}", Quota::show(key, less)));
        }
    }
}

/// Policies of the order that isn't used.
fn order(judge: &mut Judge<'_>, sites: &[SiteTable<'_>]) {
    let (unused, other): (&[&str], _) = match judge.config.schedule.first {
        First::Sites => (&["receive", "serve", "transmit", "compute"], "stages"),
        First::Stages => (&["stages"], "sites"),
    };
    let mut odd: Vec<(&str, Range<usize>)> =
        unused.iter().filter_map(|key| Some((*key, judge.written("schedule", key)?))).collect();
    if other == "sites" {
        odd.extend(sites.iter().filter_map(|site| Some(("stages", site.written(judge, "stages")?))));
    }
    for (key, span) in odd {
        let message = format!("`{key}` counts for nothing in this order of sites and stages");
        judge.warning(span, message, format!("take it out, or write first = \"{other}\" in [schedule]"));
    }
}
