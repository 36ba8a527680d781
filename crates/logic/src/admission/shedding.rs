//! What part of those who want to connect is let in at a listener, by how many wait there. The others are dropped before anything is known of them
//! and try again a second later. With a full queue alone, the kernel tells clients that they are connected and then doesn't hear what they say.
//!
//! Networks are let in by what each asks for: those from which most come lose first, down to what others have, so that one network's flood of
//! connections keeps nobody else out. Floods come in bursts, though, as those who were dropped together come again together: while others ask for
//! less, a burst is held back altogether, and those others go past the part of it that waits already.

use super::limits::{LISTENER_MANY, LISTENER_QUEUE_SHORT, LISTENER_QUEUE_SPARE};
use crate::client_prefix::ClientPrefix;
use crate::prefix_counts::PrefixCounts;

/// By how much the part falls with each look at which many wait, and rises when few do.
const FALL: f64 = 0.8;
const RISE: f64 = 1.5;
/// How many that is. As many may just have been accepted.
const MANY: u32 = LISTENER_MANY;
const FEW: u32 = LISTENER_MANY / 2;
const _: () = assert!(LISTENER_QUEUE_SPARE >= 8 * MANY, "a flood's burst leaves room for others");
/// A burst is held back from when so many wait, until no more than [`MANY`] do.
const BURST: u32 = LISTENER_QUEUE_SHORT;
/// Who asks for no more than one part in so many of what each network may have goes past the others: networks that ask for as much are never told apart by chance.
const LITTLE_PART: f64 = 2.0;
/// So many are let in at most where most are dropped.
const CROWDED_PART: f64 = 0.5;
/// However many come, some are let in, so that it's noticed when fewer do.
const PART_MIN: f64 = 1.0 / 4_096.0;
/// What is left of who came from a network with each look, so that about the last hundred count.
const KEPT: f64 = 0.99;
/// Networks of which a part of their own is let in: each is a few instructions for every packet of a new connection.
const NETWORKS_MAX: usize = 16;

/// What part is let in of those who want to connect, from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct LetIn {
    /// Of some networks' clients.
    pub networks: Vec<(ClientPrefix, f64)>,
    /// Of everybody else.
    pub others: f64,
}

impl LetIn {
    /// As much of every network.
    #[must_use]
    pub fn of_all(part: f64) -> LetIn {
        LetIn { networks: Vec::new(), others: part }
    }

    /// Of one network's clients.
    #[must_use]
    pub fn part(&self, network: ClientPrefix) -> f64 {
        self.networks.iter().find(|(known, _)| *known == network).map_or(self.others, |&(_, part)| part)
    }

    /// Nobody of those of whom not all are.
    fn held_back(mut self) -> LetIn {
        let held_back = |part: &mut f64| {
            if *part < 1.0 {
                *part = 0.0;
            }
        };
        self.networks.iter_mut().map(|(_, part)| part).for_each(held_back);
        held_back(&mut self.others);
        self
    }
}

/// One listener's.
#[derive(Clone, Debug, PartialEq)]
pub struct Shedding {
    /// Of the network from which most come.
    part: f64,
    let_in: LetIn,
    /// How many came lately from each network, as can be told from those who were let in.
    came: PrefixCounts,
    /// A network from which no more came asks for little.
    little: f64,
    /// Nobody of those of whom not all are is let in for now.
    is_held_back: bool,
}

impl Default for Shedding {
    fn default() -> Shedding {
        Shedding {
            part: 1.0,
            let_in: LetIn::of_all(1.0),
            came: PrefixCounts::default(),
            little: 0.0,
            is_held_back: false,
        }
    }
}

impl Shedding {
    /// Whether most of those who come are dropped.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let (all, let_in) = self
            .came
            .iter()
            .fold((0.0, 0.0), |(all, let_in), (network, came)| (all + came, let_in + came * self.let_in.part(network)));
        if all > 0.0 { let_in < all * CROWDED_PART } else { self.let_in.others < CROWDED_PART }
    }

    /// From where most come, and what part of those is let in, if not all are.
    #[must_use]
    pub fn most_dropped(&self) -> Option<(ClientPrefix, f64)> {
        self.let_in.networks.first().copied()
    }

    /// How many may wait while few are let in.
    #[must_use]
    pub fn queue_max(&self) -> u32 {
        let dropped = self.let_in.networks.len();
        let are_some_spared = dropped > 0 && self.let_in.others >= 1.0 && dropped < self.came.networks();
        if are_some_spared { LISTENER_QUEUE_SPARE } else { LISTENER_QUEUE_SHORT }
    }

    /// Whether there may be networks that ask for less than others.
    #[must_use]
    pub fn tells_apart(&self) -> bool {
        self.came.networks() > 1
    }

    /// Whether a network's clients are so few that they go before others who wait.
    #[must_use]
    pub fn asks_for_little(&self, network: ClientPrefix) -> bool {
        self.came.of(network).is_none_or(|came| came <= self.little)
    }

    /// One of a network's clients was let in, while fewer may wait than usual.
    pub fn count(&mut self, network: ClientPrefix) {
        self.came.add(network, 1.0 / self.let_in.part(network));
    }

    /// So many wait now, while few are to be let in (`is_few`), as there is too much to do, or all. Who is to be let in from now on, if that changes.
    pub fn look(&mut self, waiting: u32, is_few: bool) -> Option<LetIn> {
        let part = match waiting {
            _ if !is_few => 1.0,
            MANY.. => (self.part * FALL).max(PART_MIN),
            ..=FEW => (self.part * RISE).min(1.0),
            _ => self.part,
        };
        self.came.fade(if is_few { KEPT } else { 0.0 });
        self.little = largest_of(&self.came) * part.min(FALL) / LITTLE_PART;
        let was_held_back = self.is_held_back;
        self.is_held_back &= self.tells_apart();
        let is_new = part != self.part;
        self.part = part;
        if is_new {
            self.let_in = self.divide(part);
        }
        (is_new || was_held_back != self.is_held_back).then(|| self.whom())
    }

    /// So many wait between two looks, while few are to be let in and some networks ask for less than others. Who is let in from now on, if that changes.
    pub fn hold_back(&mut self, waiting: u32) -> Option<LetIn> {
        let is_burst = if self.is_held_back { waiting > MANY } else { waiting >= BURST };
        (std::mem::replace(&mut self.is_held_back, is_burst) != is_burst).then(|| self.whom())
    }

    fn whom(&self) -> LetIn {
        // Also while all are let in, as far as that could be seen at the last look.
        if self.is_held_back { self.divide(self.part.min(FALL)).held_back() } else { self.let_in.clone() }
    }

    /// Who is let in when `part` is of the network from which most come: as many of each other, or all where fewer come.
    fn divide(&self, part: f64) -> LetIn {
        let most = self.came.largest(NETWORKS_MAX + 1);
        let Some(&(_, largest)) = most.first() else { return LetIn::of_all(part) };
        let mut parts = most.into_iter().map(|(network, came)| (network, (part * largest / came).min(1.0)));
        let networks = parts.by_ref().take(NETWORKS_MAX).filter(|&(_, part)| part < 1.0).collect();
        // No more have come from any of them than from that one.
        let others = parts.next().map_or(1.0, |(_, part)| part);
        LetIn { networks, others }
    }
}

/// As much as has come from any network.
fn largest_of(came: &PrefixCounts) -> f64 {
    came.iter().map(|(_, came)| came).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_let_in_until_many_wait_in_a_queue_that_is_cut_and_once_it_is_cut_no_more() {
        let mut shedding = Shedding::default();
        assert_eq!(shedding.look(4_096, false), None);
        assert_eq!(shedding.look(7, true), None);
        assert_eq!(shedding.look(8, true), Some(LetIn::of_all(FALL)));
        assert_eq!(shedding.look(6, true), None, "neither many nor few");
        assert_eq!(shedding.look(17, false), Some(LetIn::of_all(1.0)));
    }

    fn network(number: u32) -> ClientPrefix {
        ClientPrefix::of(std::net::Ipv4Addr::from_bits((10 << 24) + (number << 8)).into())
    }

    /// What became of one network's clients, as parts of them.
    #[derive(Clone, Copy, Debug, Default)]
    struct Got {
        accepted: f64,
        overflowed: f64,
    }

    /// From network n `each_s[n]` come each second, in a random order. What became of them, and the part of the time in which nobody waited.
    fn run(each_s: &[u32], accepted_each_ms: usize) -> (Vec<Got>, f64) {
        const STEPS: u32 = 4_000;
        let (mut shedding, mut let_in) = (Shedding::default(), LetIn::of_all(1.0));
        let (mut queue, mut idle, mut state) = (Vec::new(), 0, 7_u64);
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / f64::from(1 << 24)
        };
        let mut got = vec![Got::default(); each_s.len()];
        let all_each_s: u32 = each_s.iter().sum();
        for ms in 0..STEPS {
            let coming = all_each_s * (ms + 1) / 1_000 - all_each_s * ms / 1_000;
            for _ in 0..coming {
                let mut place = random() * f64::from(all_each_s);
                let from = each_s.iter().position(|&each_s| {
                    place -= f64::from(each_s);
                    place < 0.0
                });
                let from = from.unwrap();
                if random() < let_in.part(network(from as u32)) {
                    match queue.len() <= shedding.queue_max() as usize {
                        true => queue.push(from),
                        false => got[from].overflowed += 1.0,
                    }
                }
            }
            idle += u32::from(queue.len() < accepted_each_ms);
            for from in queue.drain(..queue.len().min(accepted_each_ms)) {
                shedding.count(network(from as u32));
                got[from].accepted += 1.0;
            }
            if ms % 10 == 0 {
                let_in = shedding.look(queue.len() as u32, true).unwrap_or(let_in);
            }
        }
        for (got, &each_s) in got.iter_mut().zip(each_s) {
            let all = f64::from(each_s) * f64::from(STEPS) / 1_000.0;
            *got = Got { accepted: got.accepted / all, overflowed: got.overflowed / all };
        }
        (got, f64::from(idle) / f64::from(STEPS))
    }

    #[test]
    fn few_find_the_queue_full_and_it_rarely_runs_dry_however_many_come() {
        for (each_s, accepted_each_ms) in [(4_000, 3), (14_000, 3), (100_000, 3), (1_000_000, 3), (40_000, 8)] {
            let (got, idle) = run(&[each_s], accepted_each_ms);
            let wanted = accepted_each_ms as f64 / f64::from(each_s) * 1e3;
            assert!(got[0].accepted > wanted * 0.9, "{each_s}: {got:?}");
            assert!(got[0].overflowed < 0.1, "{each_s}: {got:?}");
            assert!(idle < 0.25, "{each_s}: dry for {idle}");
        }
    }

    #[test]
    fn a_networks_flood_keeps_nobody_else_out() {
        for flood in [10_000, 100_000] {
            let (got, idle) = run(&[200, flood, 50], 3);
            assert!(got[0].accepted > 0.9 && got[2].accepted > 0.9, "{flood}: {got:?}");
            let left = (3_000.0 - 250.0) / f64::from(flood);
            assert!(got[1].accepted > left * 0.85 && idle < 0.25, "{flood}: {got:?}, dry for {idle}");
        }
    }

    #[test]
    fn networks_that_want_more_than_there_is_get_as_much_each_however_many_they_are() {
        // Each of two has half of what those leave who want less, though one asks for nine times as much.
        let (got, _) = run(&[27_000, 3_000, 300], 3);
        let each = (got[0].accepted * 27_000.0, got[1].accepted * 3_000.0);
        assert!((0.7..1.4).contains(&(each.0 / each.1)), "{each:?}");
        assert!(got[2].accepted > 0.9, "{got:?}");
        // More than are told apart.
        let many = [500; 3 * NETWORKS_MAX];
        let (got, idle) = run(&many, 3);
        let (least, most) =
            got.iter().fold((1.0_f64, 0.0_f64), |(least, most), got| (least.min(got.accepted), most.max(got.accepted)));
        assert!(least > 0.06 && most < 0.2 && idle < 0.25, "{least} to {most} of each, dry for {idle}");
    }

    #[test]
    fn more_may_wait_only_while_some_networks_are_let_in_and_others_are_not() {
        let mut shedding = Shedding::default();
        (0..100).for_each(|_| shedding.count(network(1)));
        shedding.look(MANY, true);
        assert_eq!(shedding.queue_max(), LISTENER_QUEUE_SHORT, "all are dropped alike");
        shedding.count(network(2));
        assert_eq!(shedding.queue_max(), LISTENER_QUEUE_SPARE);
        (0..100).for_each(|_| _ = shedding.look(MANY, true));
        assert_eq!(shedding.queue_max(), LISTENER_QUEUE_SHORT, "nobody has come since");
    }

    #[test]
    fn a_burst_is_held_back_until_most_of_it_has_gone_and_others_are_let_in_meanwhile() {
        let mut shedding = Shedding::default();
        (0..100).for_each(|_| shedding.count(network(1)));
        shedding.count(network(2));
        assert_eq!(shedding.hold_back(BURST - 1), None);
        let whom = shedding.hold_back(BURST).expect("it's held back, though all were let in so far");
        assert_eq!((whom.part(network(1)), whom.part(network(2)), whom.part(network(3))), (0.0, 1.0, 1.0));
        assert_eq!(shedding.hold_back(MANY + 1), None);
        assert_eq!(shedding.look(MANY, true).map(|whom| whom.part(network(1))), Some(0.0), "a look lets none of it in");
        assert_eq!(shedding.hold_back(MANY).map(|whom| whom.part(network(1))), Some(FALL));
    }

    #[test]
    fn nothing_is_held_back_any_more_when_nobody_else_comes_or_all_are_let_in() {
        for is_few in [true, false] {
            let mut shedding = Shedding::default();
            (0..1_000).for_each(|_| shedding.count(network(1)));
            shedding.count(network(2));
            shedding.hold_back(BURST).expect("it's held back");
            let whom = (0..100).filter_map(|_| shedding.look(0, is_few)).last();
            assert_eq!(whom, Some(LetIn::of_all(1.0)), "{is_few}");
        }
    }

    #[test]
    fn who_asks_for_little_is_known_by_what_each_may_have() {
        let mut shedding = Shedding::default();
        (0..1_000).for_each(|_| shedding.count(network(1)));
        (0..300).for_each(|_| shedding.count(network(2)));
        (0..10).for_each(|_| shedding.count(network(3)));
        shedding.look(FEW + 1, true);
        let little = |shedding: &Shedding| [1, 2, 3, 4].map(|number| shedding.asks_for_little(network(number)));
        assert_eq!(little(&shedding), [false, true, true, true]);
        (0..5).for_each(|_| _ = shedding.look(MANY, true));
        assert_eq!(little(&shedding), [false, false, true, true], "when each may have less");
        // Nobody is told from others who ask for as much.
        let mut alike = Shedding::default();
        for number in 0..50 {
            (0..20).for_each(|_| alike.count(network(number)));
        }
        alike.look(FEW + 1, true);
        assert!((0..50).all(|number| !alike.asks_for_little(network(number))));
    }

    #[test]
    fn who_came_counts_for_as_long_as_few_are_let_in() {
        let mut shedding = Shedding::default();
        shedding.count(network(1));
        shedding.look(0, true);
        assert_eq!(shedding.came.networks(), 1);
        shedding.look(0, false);
        assert_eq!(shedding.came.networks(), 0);
    }

    #[test]
    fn those_who_come_when_the_flood_is_over_are_let_in() {
        let mut shedding = Shedding::default();
        for _ in 0..1_000 {
            shedding.look(17, true);
        }
        assert_eq!(shedding.part, PART_MIN);
        let looks = (1..).find(|_| shedding.look(0, true) == Some(LetIn::of_all(1.0)));
        assert!(looks.is_some_and(|looks| looks < 50), "{looks:?} looks");
    }
}
