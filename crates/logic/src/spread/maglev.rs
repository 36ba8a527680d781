//! Maglev hashing (Eisenbud et al., NSDI 2016, section 3.4): each node takes buckets in an order of its own, in turns, until none is left. Whoever knows
//! the same nodes by the same names gets the same table, in whatever order it has them.

/// A prime, and some thousand times the nodes that there can be: parts differ from weights by less than a hundredth.
pub const BUCKETS: usize = 65_537;

/// A node that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taker<'a> {
    pub(super) number: u16,
    pub(super) name: &'a str,
    pub(super) weight: u32,
}

struct Turns {
    number: u16,
    name_hash: u64,
    /// Its next bucket, and the way from one to the next.
    at: usize,
    skip: usize,
    weight: u64,
    /// Turns that it has a right to, in units of the heaviest node's weight.
    credit: u64,
}

impl Turns {
    fn of(taker: &Taker<'_>) -> Turns {
        let hash = blake3::hash(taker.name.as_bytes());
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&hash.as_bytes()[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Turns {
            number: taker.number,
            name_hash: word(16),
            at: (word(0) % BUCKETS as u64) as usize,
            skip: (word(8) % (BUCKETS as u64 - 1)) as usize + 1,
            weight: u64::from(taker.weight.max(1)),
            credit: 0,
        }
    }
}

/// The owner of each bucket, nobody (0) if nobody takes part.
pub(super) fn fill(takers: &[Taker<'_>]) -> Vec<u16> {
    let mut owners = vec![0; BUCKETS];
    let mut turns: Vec<_> = takers.iter().map(Turns::of).collect();
    turns.sort_by_key(|turns| turns.name_hash);
    let heaviest = turns.iter().map(|turns| turns.weight).max().unwrap_or(1);
    let mut left = if turns.is_empty() { 0 } else { BUCKETS };
    while left > 0 {
        for node in &mut turns {
            node.credit += node.weight;
            if left == 0 || node.credit < heaviest {
                continue;
            }
            node.credit -= heaviest;
            while owners[node.at] != 0 {
                node.at = (node.at + node.skip) % BUCKETS;
            }
            owners[node.at] = node.number;
            left -= 1;
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 8] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];

    fn takers(count: usize) -> Vec<Taker<'static>> {
        let taker = |(place, name): (usize, &&'static str)| Taker { number: place as u16 + 1, name, weight: 100 };
        NAMES.iter().take(count).enumerate().map(taker).collect()
    }

    fn part(owners: &[u16], number: u16) -> usize {
        owners.iter().filter(|owner| **owner == number).count()
    }

    #[test]
    fn parts_are_as_weights() {
        let mut takers = takers(8);
        takers[3].weight = 300;
        takers[5].weight = 50;
        let all: u32 = takers.iter().map(|taker| taker.weight).sum();
        let owners = fill(&takers);
        for taker in takers {
            let right = BUCKETS as f64 * f64::from(taker.weight) / f64::from(all);
            let part = part(&owners, taker.number) as f64;
            assert!((part / right - 1.0).abs() < 0.01, "{} has {part} of {right}", taker.name);
        }
    }

    #[test]
    fn all_agree_in_whatever_order_they_know_the_nodes() {
        let mut others = takers(8);
        others.reverse();
        assert_eq!(fill(&takers(8)), fill(&others));
    }

    #[test]
    fn few_buckets_change_hands_but_those_of_the_node_that_comes_or_goes() {
        let (seven, eight) = (fill(&takers(7)), fill(&takers(8)));
        let changed = seven.iter().zip(&eight).filter(|(before, after)| before != after).count();
        let new = part(&eight, 8);
        assert!(changed - new < BUCKETS * 3 / 100, "{changed} changed, {new} of them to the new node");
    }

    #[test]
    fn nobody_owns_anything_without_nodes() {
        assert!(fill(&[]).iter().all(|owner| *owner == 0));
        assert!(fill(&takers(1)).iter().all(|owner| *owner == 1));
    }
}
