//! How many have come lately from each network of clients: counts that fade, in a table of bounded size. What is counted, and how fast that fades, is
//! for others to say.

use std::collections::BTreeMap;

use crate::client_prefix::ClientPrefix;

/// Networks that are counted at once. Others aren't, until some are forgotten.
const NETWORKS_MAX: usize = 512;
/// What is taken for nothing.
const FORGOTTEN: f64 = 0.5;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrefixCounts {
    counts: BTreeMap<ClientPrefix, f64>,
}

impl PrefixCounts {
    /// So many more have come from there.
    pub fn add(&mut self, network: ClientPrefix, count: f64) {
        if self.counts.len() < NETWORKS_MAX || self.counts.contains_key(&network) {
            *self.counts.entry(network).or_default() += count;
        }
    }

    /// Leaves such a part of each count, from 0 to 1.
    pub fn fade(&mut self, part: f64) {
        self.counts.retain(|_, count| {
            *count *= part;
            *count >= FORGOTTEN
        });
    }

    /// How many have come from a network; `None` if that isn't counted.
    #[must_use]
    pub fn of(&self, network: ClientPrefix) -> Option<f64> {
        self.counts.get(&network).copied()
    }

    /// How many networks are counted.
    #[must_use]
    pub fn networks(&self) -> usize {
        self.counts.len()
    }

    /// Each network, and how many have come from there.
    pub fn iter(&self) -> impl Iterator<Item = (ClientPrefix, f64)> + '_ {
        self.counts.iter().map(|(&network, &count)| (network, count))
    }

    /// So many networks at most from which most have come, most first.
    #[must_use]
    pub fn largest(&self, most: usize) -> Vec<(ClientPrefix, f64)> {
        let mut largest: Vec<_> = self.iter().collect();
        let by_count = |a: &(ClientPrefix, f64), b: &(ClientPrefix, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if most < largest.len() {
            largest.select_nth_unstable_by(most, by_count);
            largest.truncate(most);
        }
        largest.sort_unstable_by(by_count);
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: u32) -> ClientPrefix {
        ClientPrefix::of(std::net::Ipv4Addr::from_bits((10 << 24) + (number << 8)).into())
    }

    #[test]
    fn counts_fade_until_they_are_forgotten() {
        let mut counts = PrefixCounts::default();
        counts.add(network(1), 1.0);
        counts.add(network(2), 1.5);
        counts.add(network(2), 2.5);
        assert_eq!((counts.of(network(1)), counts.of(network(2)), counts.of(network(3))), (Some(1.0), Some(4.0), None));
        counts.fade(0.25);
        assert_eq!(counts.iter().collect::<Vec<_>>(), [(network(2), 1.0)]);
    }

    #[test]
    fn the_largest_come_first() {
        let mut counts = PrefixCounts::default();
        (0..50).for_each(|number| counts.add(network(number), f64::from(number * 7 % 50)));
        let largest: Vec<f64> = counts.largest(3).into_iter().map(|(_, count)| count).collect();
        assert_eq!(largest, [49.0, 48.0, 47.0]);
        assert_eq!(counts.largest(100).len(), 50);
        assert_eq!(PrefixCounts::default().largest(3), []);
    }

    #[test]
    fn no_flood_of_networks_takes_memory_and_those_that_are_counted_go_on() {
        let mut counts = PrefixCounts::default();
        let all = 2 * NETWORKS_MAX as u32;
        (0..all).for_each(|number| counts.add(network(number), 1.0));
        counts.add(network(0), 1.0);
        assert_eq!(
            (counts.networks(), counts.of(network(0)), counts.of(network(all - 1))),
            (NETWORKS_MAX, Some(2.0), None)
        );
        counts.fade(0.3);
        counts.add(network(all - 1), 1.0);
        assert_eq!((counts.networks(), counts.of(network(all - 1))), (2, Some(1.0)));
    }
}
