//! The table with its two generations: who owns a bucket, and who had it before. Connections that began before a change are still with the latter.
//!
//! A table that has just been made remembers nothing. It takes for a bucket's previous owner whoever had it when the last of the nodes wasn't there yet, and where
//! that's no other, whoever would have it without its owner. So a front that starts after a node was added, at the list's end, knows what the others do.

use super::maglev::{self, BUCKETS, Taker};

/// What a node may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Whatever comes.
    Takes,
    /// Packets of connections that it has: it drains.
    Keeps,
    /// Nothing.
    Gone,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number in the kernel's tables; not 0.
    pub number: u16,
    /// How all fronts call it.
    pub name: String,
    /// Its part of the connections, in proportion to the others'.
    pub weight: u32,
    /// Whether it's fit.
    pub standing: Standing,
}

/// Whose a bucket is, by number; 0 is nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Who gets new connections.
    pub current: u16,
    /// Who gets packets of which the former has no connection.
    pub previous: u16,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    buckets: Vec<Owners>,
    /// What the nodes were at the last update.
    members: Vec<Member>,
}

impl Default for Table {
    fn default() -> Table {
        Table::left(Vec::new())
    }
}

impl Table {
    /// The table that an earlier process has left: its numbers are those of the first update.
    #[must_use]
    pub fn left(mut buckets: Vec<Owners>) -> Table {
        buckets.resize(BUCKETS, Owners::default());
        Table { buckets, members: Vec::new() }
    }

    /// The owners of each bucket.
    #[must_use]
    pub fn buckets(&self) -> &[Owners] {
        &self.buckets
    }

    /// Takes up what the nodes are now, and says which buckets have other owners than before, and which. When no node takes anything, all owners stay: which
    /// node is back first, nobody knows.
    pub fn update(&mut self, members: &[Member]) -> Vec<(u32, Owners)> {
        let takers: Vec<_> =
            members.iter().filter(|member| member.standing == Standing::Takes).map(Member::taker).collect();
        if takers.is_empty() || self.members == members {
            return Vec::new();
        }
        let before = self.buckets.clone();
        self.rename(members);
        let is_there =
            |number: u16| members.iter().any(|member| member.number == number && member.standing != Standing::Gone);
        for (bucket, owner) in self.buckets.iter_mut().zip(maglev::fill(&takers)) {
            let Owners { current, previous } = *bucket;
            let former = [current, previous].into_iter().find(|number| *number != owner && is_there(*number));
            *bucket = Owners { current: owner, previous: former.unwrap_or(0) };
        }
        self.guess_previous(&takers);
        self.members = members.to_vec();
        self.changes_since(&before)
    }

    /// Takes up nothing but other numbers of the nodes, and says what [`Table::update`] says: of the buckets of one that isn't there any more, its second.
    pub fn renumber(&mut self, members: &[Member]) -> Vec<(u32, Owners)> {
        let before = self.buckets.clone();
        self.rename(members);
        self.changes_since(&before)
    }

    fn changes_since(&self, before: &[Owners]) -> Vec<(u32, Owners)> {
        let pairs = (0..).zip(before.iter().zip(&self.buckets));
        pairs.filter(|(_, (before, after))| before != after).map(|(bucket, (_, after))| (bucket, *after)).collect()
    }

    /// Where nothing is remembered: who had the bucket before the last of the nodes came, or who would have it without its owner.
    fn guess_previous(&mut self, takers: &[Taker<'_>]) {
        let is_open = |bucket: &Owners, owner: u16| bucket.current == owner && bucket.previous == 0;
        let without = |taker: &Taker<'_>| {
            maglev::fill(&takers.iter().filter(|other| *other != taker).copied().collect::<Vec<_>>())
        };
        if let Some(last) = takers.last().filter(|_| self.buckets.iter().any(|bucket| bucket.previous == 0)) {
            let open = self.buckets.iter_mut().zip(without(last)).filter(|(bucket, _)| bucket.previous == 0);
            open.filter(|(bucket, former)| bucket.current != *former)
                .for_each(|(bucket, former)| bucket.previous = former);
        }
        for taker in takers {
            if self.buckets.iter().any(|bucket| is_open(bucket, taker.number)) {
                let open = self.buckets.iter_mut().zip(without(taker));
                open.filter(|(bucket, _)| is_open(bucket, taker.number))
                    .for_each(|(bucket, second)| bucket.previous = second);
            }
        }
    }

    /// A configuration that was read anew may have given nodes other numbers.
    fn rename(&mut self, members: &[Member]) {
        let keeps = |old: &Member| members.iter().any(|new| (new.number, &new.name) == (old.number, &old.name));
        if self.members.iter().all(keeps) {
            return;
        }
        let number_of = |old: u16| {
            let old = self.members.iter().find(|member| member.number == old)?;
            members.iter().find(|member| member.name == old.name).map(|member| member.number)
        };
        for bucket in &mut self.buckets {
            let [current, previous] = [bucket.current, bucket.previous].map(number_of);
            *bucket = match current {
                Some(current) => Owners { current, previous: previous.unwrap_or(0) },
                None => Owners { current: previous.unwrap_or(0), previous: 0 },
            };
        }
        self.members.retain_mut(|old| match members.iter().find(|new| new.name == old.name) {
            Some(new) => {
                old.number = new.number;
                true
            }
            None => false,
        });
    }
}

impl Member {
    fn taker(&self) -> Taker<'_> {
        Taker { number: self.number, name: &self.name, weight: self.weight }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u16) -> Vec<Member> {
        let member = |number| Member { number, name: format!("n{number}"), weight: 100, standing: Standing::Takes };
        (1..=count).map(member).collect()
    }

    fn table(members: &[Member]) -> Table {
        let mut table = Table::default();
        table.update(members);
        table
    }

    /// Buckets of which a connection that began under `before` is found by neither name under `after`.
    fn cut(before: &Table, after: &Table) -> usize {
        let found = |before: &Owners, after: &Owners| [after.current, after.previous].contains(&before.current);
        before.buckets().iter().zip(after.buckets()).filter(|(before, after)| !found(before, after)).count()
    }

    #[test]
    fn a_node_that_comes_cuts_nothing() {
        let before = table(&members(3));
        let mut after = before.clone();
        let changed = after.update(&members(4)).len();
        assert!((BUCKETS / 4 - 1000..BUCKETS / 3).contains(&changed), "{changed} of {BUCKETS} changed hands");
        assert_eq!(cut(&before, &after), 0);
        // Once more the same, and nothing changes.
        let same = after.clone();
        assert!(after.update(&members(4)).is_empty());
        assert_eq!(after, same);
    }

    #[test]
    fn a_node_that_drains_cuts_nothing_and_gets_nothing_new() {
        let before = table(&members(3));
        let mut draining = members(3);
        draining[1].standing = Standing::Keeps;
        let mut after = before.clone();
        after.update(&draining);
        assert_eq!(cut(&before, &after), 0);
        assert!(after.buckets().iter().all(|owners| owners.current != 2));
        // When it's gone, so is its name.
        draining[1].standing = Standing::Gone;
        after.update(&draining);
        assert!(after.buckets().iter().all(|owners| owners.current != 2 && owners.previous != 2));
    }

    #[test]
    fn a_node_that_was_away_for_a_moment_cuts_nothing_that_others_have() {
        let before = table(&members(3));
        let mut table = before.clone();
        let mut without = members(3);
        without[2].standing = Standing::Gone;
        table.update(&without);
        let meanwhile = table.clone();
        table.update(&members(3));
        assert_eq!(cut(&meanwhile, &table), 0, "what began while it was away");
        assert_eq!(cut(&before, &table), 0, "what it had, if it was only the way to it that was lost");
    }

    #[test]
    fn a_front_that_starts_after_a_node_was_added_finds_all() {
        let before = table(&members(3));
        let mut others = before.clone();
        others.update(&members(4));
        let late = table(&members(4));
        assert!(late.buckets().iter().zip(others.buckets()).all(|(late, other)| late.current == other.current));
        assert_eq!(cut(&before, &late), 0);
    }

    #[test]
    fn a_front_that_starts_after_another_node_came_back_finds_nearly_all() {
        let mut without_first = members(4);
        without_first[0].standing = Standing::Keeps;
        let (before, late) = (table(&without_first), table(&members(4)));
        let lost = cut(&before, &late);
        assert!(lost < BUCKETS * 3 / 100, "{lost} of {BUCKETS}");
    }

    #[test]
    fn with_no_node_that_takes_anything_all_stays() {
        let before = table(&members(2));
        let mut table = before.clone();
        let mut gone = members(2);
        gone.iter_mut().for_each(|member| member.standing = Standing::Gone);
        assert!(table.update(&gone).is_empty());
        assert_eq!(table, before);
    }

    #[test]
    fn what_an_earlier_process_has_left_is_gone_on_with() {
        let mut before = table(&members(3));
        before.update(&members(4));
        let mut next = Table::left(before.buckets().to_vec());
        assert!(next.update(&members(4)).is_empty());
        assert_eq!(next, before);
    }

    #[test]
    fn nodes_may_get_other_numbers() {
        let before = table(&members(3));
        let mut others = members(3);
        others.remove(0);
        others[0].number = 1;
        others[1].number = 2;
        let mut after = before.clone();
        after.update(&others);
        for (before, after) in before.buckets().iter().zip(after.buckets()) {
            if before.current > 1 {
                let now = before.current - 1;
                assert!(after.current == now || after.previous == now, "{before:?} became {after:?}");
            }
        }
        // Also before it's known who can be reached: then nothing else changes.
        let mut renumbered = before.clone();
        renumbered.renumber(&others);
        for (before, after) in before.buckets().iter().zip(renumbered.buckets()) {
            let expected = if before.current > 1 { before.current } else { before.previous };
            assert_eq!(after.current, expected - 1, "{before:?} became {after:?}");
        }
        assert!(renumbered.renumber(&others).is_empty());
    }
}
