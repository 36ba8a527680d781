//! What one worker may use of a site's quotas and its owners': when to go on, and how much at once. Nothing that was begun is broken off.
//!
//! While there is enough, what is used is taken from the aggregates as it's used. A worker where something waits, or has lately, uses only what it has
//! booked before, a place in the line of each aggregate, in proportion to its claim; what it uses beyond that is taken from its next places, however many
//! that takes. So workers share a quota by what waits on each, sites share their owner's by weight, and a worker that is busy with something else doesn't
//! come too late each time.

use std::sync::Arc;
use std::time::Duration;

use super::aggregate::{Aggregate, Bucket, Resource};
use super::limits::{CLAIM_PERIOD_NS, QUOTA_ROUNDS_EACH_SECOND, WAITING_CLAIM_MAX};
use crate::time::Instant;

/// A fixed point of claims.
const CLAIM_SHIFT: u32 = 16;

/// What a worker has of one resource of an aggregate.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Units that were booked and aren't used; those that were used beyond that are below 0.
    booked: i64,
    /// When they may be used.
    due: Instant,
}

impl Account {
    /// Takes `amount` from what was booked, or, for those who don't stand in line, from what there is.
    fn charge(&mut self, bucket: &Bucket, is_in_line: bool, now: Instant, amount: u64) {
        if self.booked == 0 && !is_in_line {
            bucket.book(now, amount);
        } else {
            self.booked = self.booked.saturating_sub_unsigned(amount);
        }
    }

    fn blocked_until(&self, bucket: &Bucket, is_in_line: bool, now: Instant) -> Option<Instant> {
        let until = match self.booked {
            0 if !is_in_line => bucket.empty_at(),
            // What was used beyond what was booked is made good by the next, which is booked when that is due; if it has been, it's to be settled.
            ..=0 if self.due <= now => Instant::NEVER,
            _ => self.due,
        };
        (until > now).then_some(until)
    }

    fn available(&self, bucket: &Bucket, is_in_line: bool, now: Instant) -> u64 {
        match (self.blocked_until(bucket, is_in_line, now), self.booked) {
            (Some(_), _) => 0,
            (None, booked @ 1..) => booked.unsigned_abs(),
            (None, _) => bucket.available(now).max(1),
        }
    }

    /// Books one `lease` after the other, each when the last is due, until one is left for who waits and nothing is owed. Who stands in line no more pays
    /// at once, and gives back what it doesn't use.
    fn settle(&mut self, bucket: &Bucket, now: Instant, lease: Option<u64>, is_waiting: bool) {
        let Some(lease) = lease.filter(|_| is_waiting || self.booked < 0) else {
            let is_unused = self.booked > 0 && now.since(self.due) >= Duration::from_nanos(CLAIM_PERIOD_NS);
            if is_unused || lease.is_none() && self.booked < 0 {
                self.leave(bucket);
            }
            return;
        };
        while self.due <= now && (self.booked < 0 || self.booked == 0 && is_waiting) {
            // What is saved up is there for whoever comes first.
            let amount = lease.max(self.booked.min(0).unsigned_abs().min(bucket.available(now)));
            self.due = bucket.book(now, amount);
            self.booked = self.booked.saturating_add_unsigned(amount);
        }
    }

    /// Settles at once.
    fn leave(&mut self, bucket: &Bucket) {
        match std::mem::take(&mut self.booked) {
            booked @ 0.. => bucket.give_back(booked.unsigned_abs()),
            owed => bucket.owe(owed.unsigned_abs()),
        }
    }
}

/// A worker's part in one aggregate.
#[derive(Debug)]
struct Seat {
    aggregate: Arc<Aggregate>,
    /// That of the site or the owner beside those with the same owner.
    weight: u32,
    accounts: [Account; Resource::COUNT],
    claim: u64,
}

/// What a worker may use for one site.
#[derive(Debug, Default)]
pub struct Quotas {
    /// The site's, its owner's, the owner's owner's and so on.
    seats: Vec<Seat>,
    /// How many wait on this worker: the most lately, and the most in the period that ends next.
    waiting: u32,
    waiting_next: u32,
    period_ends: Instant,
    /// Bytes of memory that are held on this worker.
    held: u64,
    is_full: bool,
}

impl Quotas {
    /// Puts other aggregates in force, each with its weight in the next: the site's, its owner's, and so on. None, if none of them has a limit.
    pub fn arrange(&mut self, path: Vec<(Arc<Aggregate>, u32)>) {
        let seat = |(aggregate, weight): (Arc<Aggregate>, u32)| {
            aggregate.hold(self.held);
            Seat { aggregate, weight, accounts: Default::default(), claim: 0 }
        };
        let seats = path.into_iter().map(seat).collect();
        self.leave();
        self.seats = seats;
        self.is_full = self.seats.iter().any(|seat| seat.aggregate.is_full());
    }

    /// Gives back everything.
    fn leave(&mut self) {
        for seat in &mut self.seats {
            for (account, bucket) in seat.accounts.iter_mut().zip(&seat.aggregate.buckets) {
                account.leave(bucket);
            }
            seat.aggregate.change_claim(seat.claim, 0);
            seat.aggregate.release(self.held);
        }
        self.seats.clear();
        (self.waiting, self.waiting_next) = (0, 0);
    }

    /// Whether there is any limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        !self.seats.is_empty()
    }

    /// Whether a resource has a limit.
    #[must_use]
    pub fn has_limit(&self, resource: Resource) -> bool {
        self.limited(resource).next().is_some()
    }

    /// Notes that `amount` of a resource was used. Tells for each aggregate that limits it, by its place, in how many nanoseconds as much comes in.
    pub fn charge(&mut self, resource: Resource, now: Instant, amount: u64, mut tell: impl FnMut(usize, u64)) {
        for (place, Seat { aggregate, accounts, claim, .. }) in self.seats.iter_mut().enumerate() {
            let bucket = &aggregate.buckets[resource as usize];
            if bucket.is_limited() {
                accounts[resource as usize].charge(bucket, *claim > 0, now, amount);
                tell(place, bucket.time_ns(amount));
            }
        }
    }

    /// The accounts of a resource that are limited, and whether they stand in line.
    fn limited(&self, resource: Resource) -> impl Iterator<Item = (&Account, &Bucket, bool)> {
        let place = resource as usize;
        let each =
            self.seats.iter().map(move |seat| (&seat.accounts[place], &seat.aggregate.buckets[place], seat.claim > 0));
        each.filter(|(_, bucket, _)| bucket.is_limited())
    }

    /// When a resource may be used again: `None` for now, [`Instant::NEVER`] for when it has been settled with somebody waiting.
    #[must_use]
    pub fn blocked_until(&self, resource: Resource, now: Instant) -> Option<Instant> {
        let limited = self.limited(resource);
        limited.filter_map(|(account, bucket, is_in_line)| account.blocked_until(bucket, is_in_line, now)).max()
    }

    /// How much of a resource may be used at once now, and at least one unit when anything may: for the size of the next piece.
    #[must_use]
    pub fn available(&self, resource: Resource, now: Instant) -> u64 {
        let limited = self.limited(resource);
        let amounts = limited.map(|(account, bucket, is_in_line)| account.available(bucket, is_in_line, now));
        amounts.min().unwrap_or(u64::MAX)
    }

    /// Pays for what was used and books for the `waiting` that can't go on. To be called each turn until the quotas are at rest.
    pub fn settle(&mut self, now: Instant, waiting: usize) {
        self.claim(now, u32::try_from(waiting).unwrap_or(u32::MAX).min(WAITING_CLAIM_MAX));
        for seat in &mut self.seats {
            let all = seat.aggregate.claims();
            for (account, bucket) in seat.accounts.iter_mut().zip(&seat.aggregate.buckets) {
                if bucket.is_limited() {
                    let round = u128::from(bucket.per_s() / QUOTA_ROUNDS_EACH_SECOND);
                    let lease = u64::try_from(round * u128::from(seat.claim) / u128::from(all)).unwrap_or(u64::MAX);
                    account.settle(bucket, now, (seat.claim > 0).then_some(lease.max(1)), waiting > 0);
                }
            }
        }
    }

    /// A claim is by what has waited at any time lately: who goes on for a moment has its claim all the same.
    fn claim(&mut self, now: Instant, waiting: u32) {
        self.waiting_next = self.waiting_next.max(waiting);
        if now >= self.period_ends {
            // Who owes stays in line for that: to all it would be more than its part.
            let kept = if self.owes() { self.waiting } else { 0 };
            self.waiting = std::mem::replace(&mut self.waiting_next, waiting).max(kept);
            self.period_ends = now.after(Duration::from_nanos(CLAIM_PERIOD_NS));
        }
        self.waiting = self.waiting.max(waiting);
        let mut claim = u64::from(self.waiting) << CLAIM_SHIFT;
        for seat in &mut self.seats {
            if claim != seat.claim {
                seat.aggregate.change_claim(seat.claim, claim);
                seat.claim = claim;
            }
            claim = u64::from(seat.weight) * ((claim << CLAIM_SHIFT) / seat.aggregate.claims());
        }
    }

    fn owes(&self) -> bool {
        self.seats.iter().any(|seat| seat.accounts.iter().any(|account| account.booked < 0))
    }

    /// When to settle again although nothing waits; `None` when there is nothing left to settle.
    #[must_use]
    pub fn settle_at(&self) -> Option<Instant> {
        let is_booked = || self.seats.iter().any(|seat| seat.accounts.iter().any(|account| account.booked != 0));
        (self.waiting.max(self.waiting_next) > 0 || is_booked()).then_some(self.period_ends)
    }

    /// Whether memory has a limit.
    #[must_use]
    pub fn has_memory_limit(&self) -> bool {
        self.seats.iter().any(|seat| seat.aggregate.has_memory_limit())
    }

    /// `bytes` more of memory are held.
    pub fn hold(&mut self, bytes: u64) {
        self.held += bytes;
        for seat in &self.seats {
            seat.aggregate.hold(bytes);
            self.is_full |= seat.aggregate.is_full();
        }
    }

    /// `bytes` are given back.
    pub fn release(&mut self, bytes: u64) {
        let bytes = bytes.min(self.held);
        self.held -= bytes;
        self.seats.iter().for_each(|seat| seat.aggregate.release(bytes));
    }

    /// Finds out whether reading may go on: another worker may have given back what it held.
    pub fn look_at_memory(&mut self) {
        self.is_full &= !self.seats.iter().all(|seat| seat.aggregate.has_room());
    }

    /// Whether the site's sockets shouldn't be read now, as too much memory is held.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether so many bytes may be held at all.
    #[must_use]
    pub fn can_hold(&self, bytes: u64) -> bool {
        self.seats.iter().all(|seat| seat.aggregate.can_hold(bytes))
    }

    /// Bytes of memory held on this worker.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held
    }
}

impl Drop for Quotas {
    /// The worker has ended: nobody waits for what it has booked.
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::super::aggregate::Rate;
    use super::*;

    const TICK_NS: u64 = 100_000;
    /// Bytes in a second.
    const RATE: u64 = 10_000_000;

    fn at_us(us: u64) -> Instant {
        Instant { ns: 1_000_000_000_000 + us * 1_000 }
    }

    fn limited(per_s: u64) -> Arc<Aggregate> {
        let aggregate = Aggregate::default();
        aggregate.set(Resource::Network, Some(Rate { per_s, burst: per_s / 20 }), at_us(0));
        Arc::new(aggregate)
    }

    /// A site on one worker, some of whose connections want to send all the time.
    struct Sender {
        quotas: Quotas,
        connections: usize,
        /// What is sent at once, if the quota lets it, and the least, whether it does or not.
        piece: u64,
        least: u64,
        /// The worker looks at each of so many ticks only.
        ticks: u64,
        sent: u64,
    }

    impl Sender {
        fn new(path: &[(&Arc<Aggregate>, u32)], connections: usize) -> Sender {
            let mut quotas = Quotas::default();
            quotas.arrange(path.iter().map(|&(aggregate, weight)| (aggregate.clone(), weight)).collect());
            Sender { quotas, connections, piece: 65_536, least: 1_024, ticks: 1, sent: 0 }
        }

        fn step(&mut self, now: Instant) {
            for _ in 0..16 {
                for _ in 0..16 {
                    if self.connections == 0 || self.quotas.blocked_until(Resource::Network, now).is_some() {
                        break;
                    }
                    let amount =
                        self.quotas.available(Resource::Network, now).clamp(self.least, self.piece.max(self.least));
                    self.quotas.charge(Resource::Network, now, amount, |_, _| ());
                    self.sent += amount;
                }
                self.quotas.settle(now, self.connections);
            }
        }
    }

    /// What each sends in a second, when it has gone on for one; in any 100 ms all together send what they may.
    fn run(senders: &mut [Sender]) -> Vec<f64> {
        run_from(senders, 0)
    }

    fn run_from(senders: &mut [Sender], start_us: u64) -> Vec<f64> {
        let mut before = Vec::new();
        for tick in 0..20_000 {
            if tick == 10_000 {
                before = senders.iter().map(|sender| sender.sent).collect();
            }
            for sender in senders.iter_mut().filter(|sender| tick % sender.ticks == 0) {
                sender.step(at_us(start_us + tick * TICK_NS / 1_000));
            }
        }
        senders.iter().zip(before).map(|(sender, before)| (sender.sent - before) as f64 / RATE as f64).collect()
    }

    fn assert_about(found: &[f64], wanted: &[f64]) {
        let is_about = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 0.03);
        assert!(is_about && found.iter().sum::<f64>() < 1.01, "{found:?} instead of {wanted:?}");
    }

    #[test]
    fn one_worker_of_several_may_use_all_and_all_together_no_more() {
        let site = limited(RATE);
        let mut senders: Vec<Sender> = (0..4).map(|_| Sender::new(&[(&site, 1)], 0)).collect();
        senders[2].connections = 1;
        assert_about(&run(&mut senders), &[0.0, 0.0, 1.0, 0.0]);
        senders.iter_mut().for_each(|sender| sender.connections = 1);
        assert_about(&run_from(&mut senders, 2_000_000), &[0.25; 4]);
        senders[2].connections = 0;
        assert_about(&run_from(&mut senders, 4_000_000), &[1.0 / 3.0, 1.0 / 3.0, 0.0, 1.0 / 3.0]);
    }

    #[test]
    fn workers_share_by_what_waits_on_each_however_they_look_and_whatever_they_send_at_once() {
        let site = limited(RATE);
        let mut senders = [3, 1].map(|connections| Sender::new(&[(&site, 1)], connections));
        assert_about(&run(&mut senders), &[0.75, 0.25]);
        let site = limited(RATE);
        let mut senders = [1, 1, 1, 1].map(|connections| Sender::new(&[(&site, 1)], connections));
        senders[1].ticks = 10;
        senders[2].piece = 1_024;
        senders[3].piece = 300_000;
        assert_about(&run(&mut senders), &[0.25; 4]);
    }

    #[test]
    fn sites_share_their_owners_quota_by_weight_wherever_they_are() {
        let senders = |workers: &[(usize, u32, usize)]| -> Vec<Sender> {
            let (owner, sites) = (limited(RATE), [Arc::default(), Arc::default()]);
            let sender = |&(site, weight, connections): &(usize, u32, usize)| {
                Sender::new(&[(&sites[site], weight), (&owner, 1)], connections)
            };
            workers.iter().map(sender).collect()
        };
        assert_about(&run(&mut senders(&[(0, 300, 5), (0, 300, 5), (0, 300, 5), (1, 100, 5)])), &[0.25; 4]);
        assert_about(&run(&mut senders(&[(0, 100, 100), (1, 300, 1), (1, 300, 1)])), &[0.25, 0.375, 0.375]);
        let mut late = senders(&[(0, 300, 1), (0, 300, 1), (1, 100, 1), (1, 100, 1)]);
        late.iter_mut().zip([30, 60, 30, 60]).for_each(|(sender, ticks)| sender.ticks = ticks);
        assert_about(&run(&mut late), &[0.375, 0.375, 0.125, 0.125]);
    }

    #[test]
    fn weights_hold_where_one_piece_is_more_than_a_round() {
        for (per_s, weights) in
            [(100_000, [400, 100]), (100_000, [100, 100]), (500_000, [300, 100]), (2_000_000, [300, 100])]
        {
            let (owner, sites) = (limited(per_s), [Arc::default(), Arc::default()]);
            let sender = |(site, weight)| Sender::new(&[(site, weight), (&owner, 1)], 1);
            let mut senders: Vec<Sender> = sites.iter().zip(weights).map(sender).collect();
            senders.iter_mut().for_each(|sender| sender.least = 16_384);
            const SECONDS: u64 = 30;
            for ms in 0..SECONDS * 1_000 {
                senders.iter_mut().for_each(|sender| sender.step(at_us(ms * 1_000)));
            }
            let [a, b] = [0, 1].map(|place: usize| senders[place].sent as f64 / (per_s * SECONDS) as f64);
            let due = f64::from(weights[0]) / f64::from(weights[0] + weights[1]);
            assert!((a - due).abs() < 0.02 && (b - 1.0 + due).abs() < 0.02, "{weights:?} at {per_s}: {a} and {b}");
        }
    }

    #[test]
    fn who_pauses_after_each_piece_has_no_more_than_its_weight() {
        for pause_ms in [0, 50, 100, 150, 300] {
            let (owner, sites) = (limited(100_000), [Arc::default(), Arc::default()]);
            let sender = |(site, weight)| Sender::new(&[(site, weight), (&owner, 1)], 1);
            let mut senders: Vec<Sender> = sites.iter().zip([400, 100]).map(sender).collect();
            senders.iter_mut().for_each(|sender| sender.least = 16_384);
            let (mut goes_on_ms, mut sent) = (0, 0);
            for ms in 0..60_000 {
                senders[1].connections = usize::from(ms >= goes_on_ms);
                senders.iter_mut().for_each(|sender| sender.step(at_us(ms * 1_000)));
                if std::mem::replace(&mut sent, senders[1].sent) != sent {
                    goes_on_ms = ms + pause_ms;
                }
            }
            let part = senders[1].sent as f64 / (senders[0].sent + senders[1].sent) as f64;
            assert!(part < 0.22, "{part} with pauses of {pause_ms} ms");
        }
    }

    #[test]
    fn what_was_used_too_much_is_owed_by_who_leaves() {
        let site = limited(RATE);
        let mut quotas = Sender::new(&[(&site, 1)], 1).quotas;
        quotas.charge(Resource::Network, at_us(0), RATE / 20, |_, _| ());
        quotas.settle(at_us(0), 1);
        quotas.charge(Resource::Network, at_us(0), RATE, |_, _| ());
        quotas.arrange(vec![(site.clone(), 1)]);
        let until = quotas.blocked_until(Resource::Network, at_us(0)).unwrap();
        assert!(until.since(at_us(0)).abs_diff(Duration::from_secs(1)) < Duration::from_millis(1), "{until:?}");
    }

    #[test]
    fn what_is_below_its_own_quota_leaves_the_rest_of_its_owners() {
        let (owner, a, b) = (limited(RATE), limited(RATE / 10), Arc::default());
        let path = |site, weight| Sender::new(&[(site, weight), (&owner, 1)], 2);
        assert_about(&run(&mut [path(&a, 300), path(&b, 100)]), &[0.1, 0.9]);
    }

    #[test]
    fn owners_below_an_owner_share_its_quota_by_weight() {
        let (top, left, right) = (limited(RATE), Arc::default(), limited(RATE / 4));
        let sites: [Arc<Aggregate>; 3] = Default::default();
        let path = |site: usize, weight, owner, of_owner| {
            Sender::new(&[(&sites[site], weight), (owner, of_owner), (&top, 1)], 1)
        };
        let mut senders = [path(0, 100, &left, 100), path(1, 300, &left, 100), path(2, 100, &right, 400)];
        // The right one would have four fifths.
        assert_about(&run(&mut senders), &[0.1875, 0.5625, 0.25]);
    }

    #[test]
    fn what_nobody_uses_is_given_back() {
        let site = limited(RATE);
        let (mut gone, mut left) = (Sender::new(&[(&site, 1)], 50), Sender::new(&[(&site, 1)], 1));
        for tick in 0..1_000 {
            gone.step(at_us(tick * 100));
            left.step(at_us(tick * 100));
        }
        drop(gone);
        left.sent = 0;
        (1_000..2_000).for_each(|tick| left.step(at_us(tick * 100)));
        let part = left.sent as f64 / (RATE as f64 / 10.0);
        assert!((0.8..=1.1).contains(&part), "{part} within the next 100 ms");
        left.connections = 0;
        (2_000..3_000).for_each(|tick| left.step(at_us(tick * 100)));
        assert_eq!(left.quotas.settle_at(), None);
        assert_eq!(left.quotas.available(Resource::Network, at_us(1_000_000)), RATE / 20);
    }

    #[test]
    fn memory_pauses_above_the_high_mark_and_goes_on_at_the_low_one_on_all_workers() {
        let site = Arc::new(Aggregate::default());
        site.set_memory(Some(800));
        let mut workers = [0, 1].map(|_| Quotas::default());
        workers[0].hold(100);
        workers.iter_mut().for_each(|worker| worker.arrange(vec![(site.clone(), 1)]));
        workers[1].hold(700);
        assert!(!workers[0].is_full() && !workers[1].is_full());
        workers[1].hold(1);
        assert!(!workers[0].is_full() && workers[1].is_full(), "who has too much is who has taken it");
        let mut goes_on = |release: [u64; 2]| {
            workers.iter_mut().zip(release).for_each(|(worker, bytes)| worker.release(bytes));
            workers[1].look_at_memory();
            !workers[1].is_full()
        };
        assert!(!goes_on([100, 0]), "701 are more than seven eighths");
        assert!(goes_on([0, 1]));
        workers[1].arrange(Vec::new());
        workers[1].release(10_000);
        workers[0].hold(800);
        assert_eq!((workers[0].is_full(), workers[0].held(), workers[1].held()), (false, 800, 0));
    }

    #[test]
    fn where_nothing_waits_there_is_nothing_to_do_but_to_leave_the_line() {
        let site = limited(RATE);
        let mut sender = Sender::new(&[(&site, 1)], 1);
        (0..100).for_each(|tick| sender.step(at_us(tick * 100)));
        sender.connections = 0;
        let mut looks = 0;
        while let Some(at) = sender.quotas.settle_at() {
            let until = sender.quotas.blocked_until(Resource::Network, at).unwrap_or(at).min(at);
            sender.quotas.settle(until, 0);
            looks += 1;
        }
        assert!(looks < 10, "{looks} looks until it rests");
    }

    #[test]
    fn what_has_no_quota_is_not_limited() {
        let site = Arc::new(Aggregate::default());
        site.set(Resource::Disk, Some(Rate { per_s: 10, burst: 10 }), at_us(0));
        let mut quotas = Quotas::default();
        assert!(!quotas.is_limited());
        quotas.arrange(vec![(site.clone(), 1)]);
        let mut told = Vec::new();
        for resource in Resource::ALL {
            quotas.charge(resource, at_us(0), 20, |place, ns| told.push((resource, place, ns)));
        }
        assert_eq!(told, [(Resource::Disk, 0, 2_000_000_000)]);
        assert_eq!(quotas.blocked_until(Resource::Network, at_us(0)), None);
        assert_eq!(quotas.available(Resource::Cpu, at_us(0)), u64::MAX);
        assert_eq!(quotas.blocked_until(Resource::Disk, at_us(0)), Some(at_us(1_000_000)));
        assert_eq!(quotas.available(Resource::Disk, at_us(0)), 0);
        assert_eq!(quotas.available(Resource::Disk, at_us(1_000_000)), 1);
    }
}
