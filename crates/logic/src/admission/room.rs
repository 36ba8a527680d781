//! Whose connections end so that new ones find room where there are as many as there may be: those that ask for nothing, first of the network that has
//! most. Which connections could end, and how, is the caller's to say.
//!
//! All are looked at twice, some in each turn: who has how many, and who goes. Nothing is kept of them in between.

use std::collections::{BTreeMap, BinaryHeap};

use crate::client_prefix::ClientPrefix;
use crate::time::Instant;

/// What little a connection loses that ends. The first go first, of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dispensable {
    /// Its last reply is out, and the client has been told that nothing follows.
    Ended,
    /// It waits for its next request.
    Idle,
    /// It has never sent a whole request, or a part of the next.
    Head,
}

/// What is known of one network.
#[derive(Debug)]
struct Crowd<T> {
    all: u32,
    dispensable: u32,
    /// Those that will soon be, unless something comes of them.
    young: u32,
    /// How many of its connections are to end.
    due: usize,
    /// Those, as far as they're known: what goes last comes first.
    chosen: BinaryHeap<(Dispensable, Instant, T)>,
}

impl<T: Ord> Default for Crowd<T> {
    fn default() -> Crowd<T> {
        Crowd { all: 0, dispensable: 0, young: 0, due: 0, chosen: BinaryHeap::new() }
    }
}

/// One search.
#[derive(Debug)]
pub struct Survey<T> {
    crowds: BTreeMap<ClientPrefix, Crowd<T>>,
}

impl<T: Ord> Default for Survey<T> {
    fn default() -> Survey<T> {
        Survey { crowds: BTreeMap::new() }
    }
}

impl<T: Copy + Ord> Survey<T> {
    /// The first look at a connection: whether it can end now, or soon; `None` if it's at work.
    pub fn count(&mut self, client: ClientPrefix, is_dispensable: Option<bool>) {
        let crowd = self.crowds.entry(client).or_default();
        crowd.all += 1;
        crowd.dispensable += u32::from(is_dispensable == Some(true));
        crowd.young += u32::from(is_dispensable == Some(false));
    }

    /// All have been counted, and `wanted` are to end: each of the network that has most by then. None of others while one has more that can end soon. Which
    /// comes first; `None` if all are at work.
    pub fn divide(&mut self, wanted: usize) -> Option<ClientPrefix> {
        let size = |all, dispensable, young| if dispensable > 0 { all } else { young };
        let crowds = self.crowds.iter().map(|(&client, crowd)| {
            (size(crowd.all, crowd.dispensable, crowd.young), client, crowd.dispensable, crowd.young)
        });
        let mut largest: BinaryHeap<_> = crowds.filter(|&(size, ..)| size > 0).collect();
        let first = largest.peek().map(|&(_, client, ..)| client);
        for _ in 0..wanted {
            let Some((all, client, dispensable, young)) =
                largest.pop().filter(|&(_, _, dispensable, _)| dispensable > 0)
            else {
                break;
            };
            if let Some(crowd) = self.crowds.get_mut(&client) {
                crowd.due += 1;
            }
            let left = size(all - 1, dispensable - 1, young);
            if left > 0 {
                largest.push((left, client, dispensable - 1, young));
            }
        }
        self.crowds.retain(|_, crowd| crowd.due > 0);
        first
    }

    /// The second look at a connection that could end, and has been as it is since then.
    pub fn consider(&mut self, client: ClientPrefix, what: Dispensable, since: Instant, connection: T) {
        let Some(crowd) = self.crowds.get_mut(&client) else { return };
        crowd.chosen.push((what, since, connection));
        if crowd.chosen.len() > crowd.due {
            crowd.chosen.pop();
        }
    }

    /// Those that are to end.
    #[must_use]
    pub fn chosen(self) -> Vec<T> {
        self.crowds.into_values().flat_map(|crowd| crowd.chosen).map(|(_, _, connection)| connection).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(number: u8) -> ClientPrefix {
        ClientPrefix::of([127, 0, number, 1].into())
    }

    /// Those of `connections` that go, if so many are to; each has its network's number and what it could lose, if it could end.
    fn chosen(connections: &[(u8, Option<Dispensable>)], wanted: usize) -> Vec<usize> {
        chosen_beside(connections, &[], wanted)
    }

    /// The same beside networks' connections that could end soon.
    fn chosen_beside(connections: &[(u8, Option<Dispensable>)], young: &[u8], wanted: usize) -> Vec<usize> {
        let mut survey = Survey::default();
        connections.iter().for_each(|&(network, what)| survey.count(prefix(network), what.map(|_| true)));
        young.iter().for_each(|&network| survey.count(prefix(network), Some(false)));
        survey.divide(wanted);
        for (number, &(network, what)) in connections.iter().enumerate() {
            if let Some(what) = what {
                survey.consider(prefix(network), what, Instant { ns: number as u64 }, number);
            }
        }
        let mut chosen = survey.chosen();
        chosen.sort_unstable();
        chosen
    }

    #[test]
    fn the_network_that_has_most_gives_what_it_misses_least() {
        use Dispensable::{Ended, Head, Idle};
        let mut connections =
            vec![(1, Some(Idle)), (2, Some(Head)), (2, Some(Idle)), (2, Some(Idle)), (2, Some(Ended))];
        assert_eq!(chosen(&connections, 1), [4]);
        assert_eq!(chosen(&connections, 2), [2, 4], "the longest idle one");
        assert_eq!(chosen(&connections, 3), [2, 3, 4], "and no head before the last of them");
        connections.truncate(3);
        assert_eq!(chosen(&connections, 1), [2], "who has one keeps it while another has two");
        assert_eq!(chosen(&connections, 9), [0, 1, 2]);
    }

    #[test]
    fn who_has_most_at_work_gives_nothing_of_that() {
        use Dispensable::Idle;
        let busy = [(1, None), (1, None), (1, None), (2, Some(Idle)), (2, Some(Idle)), (3, Some(Idle))];
        assert_eq!(chosen(&busy, 1), [3]);
        assert_eq!(chosen(&busy[..3], 5), []);
    }

    #[test]
    fn who_has_few_keeps_them_while_another_has_more_that_may_end_soon() {
        use Dispensable::Idle;
        assert_eq!(chosen_beside(&[(1, Some(Idle))], &[2, 2], 5), []);
        assert_eq!(chosen_beside(&[(1, Some(Idle)), (2, Some(Idle))], &[2, 2], 5), [1]);
        let busy = [(1, Some(Idle)), (1, Some(Idle)), (2, None), (2, None), (2, None)];
        assert_eq!(chosen_beside(&busy, &[2], 1), [0], "most of it is at work");
    }

    #[test]
    fn networks_become_alike() {
        use Dispensable::Idle;
        let connections: Vec<_> = (0..90_u16).map(|number| ((number / 30) as u8, Some(Idle))).collect();
        let chosen = chosen(&connections, 30);
        let of = |network: usize| chosen.iter().filter(|&&number| number / 30 == network).count();
        assert_eq!([of(0), of(1), of(2)], [10; 3]);
    }
}
