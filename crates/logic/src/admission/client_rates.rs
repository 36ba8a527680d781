//! How often each client asks, on all workers together: a table of fixed size with one word for each client, so that no flood of addresses takes
//! memory. Decides whether one more request is within the rate, and when else; which requests have a rate is `access`'s.
//!
//! Each word has a client's mark and the time until which what it has asked for takes at the rate (the generic cell rate algorithm): a client whose
//! time has passed has asked for nothing that counts, so its word is free. A full bucket of words loses whoever is nearest to that.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use foldhash::fast::FixedState;
use std::hash::BuildHasher;

use super::limits::{CLIENTS_MAX, CLIENTS_OF_BUCKET};
use crate::time::Instant;

/// What of an IPv6 address is one client's: those who have one have the network.
const V6_BITS: u32 = 64;

/// Bits of a word that are the time, in microseconds of the host's clock: it comes round in half a year, of which `ahead_us` takes account.
const TIME_BITS: u32 = 44;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// So many requests in such a time, and as many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientRate {
    /// At least 1.
    pub requests: u32,
    /// At least a millisecond, and a day at most.
    pub per: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct ClientRates {
    words: Box<[AtomicU64]>,
    hasher: FixedState,
    /// What one request takes.
    interval_us: u64,
    /// What all that may be asked for at once takes.
    window_us: u64,
}

impl ClientRates {
    /// Nobody has asked for anything. `seed`: a number that clients can't foresee.
    #[must_use]
    pub fn new(rate: ClientRate, seed: u64) -> ClientRates {
        let requests = u64::from(rate.requests.max(1));
        let interval_us = (rate.per.as_micros() as u64).div_ceil(requests).max(1);
        ClientRates {
            words: std::iter::repeat_with(AtomicU64::default).take(CLIENTS_MAX).collect(),
            hasher: FixedState::with_seed(seed),
            interval_us,
            window_us: interval_us * requests,
        }
    }

    /// Whether a client that asks now may.
    ///
    /// # Errors
    /// The time after which it may.
    pub fn check(&self, client: IpAddr, now: Instant) -> Result<(), Duration> {
        self.next(client, now).map(|_| ())
    }

    /// A client asks. Else, the time after which it may: what is refused doesn't count.
    ///
    /// # Errors
    /// That time.
    pub fn ask(&self, client: IpAddr, now: Instant) -> Result<(), Duration> {
        // Another worker that was faster has changed it: then it's looked at again.
        while let Some((word, value, next)) = self.next(client, now)? {
            if word.compare_exchange(value, next, Relaxed, Relaxed).is_ok() {
                break;
            }
        }
        Ok(())
    }

    /// The client's word, what is there, and what is to be there once it has asked.
    fn next(&self, client: IpAddr, now: Instant) -> Result<Option<(&AtomicU64, u64, u64)>, Duration> {
        let hash = self.hasher.hash_one(match client.to_canonical() {
            IpAddr::V4(v4) => (true, u64::from(v4.to_bits())),
            IpAddr::V6(v6) => (false, (v6.to_bits() >> (128 - V6_BITS)) as u64),
        });
        let (mark, now_us) = (hash & !TIME_MASK, now.ns / 1_000);
        let start = hash as usize % (CLIENTS_MAX / CLIENTS_OF_BUCKET) * CLIENTS_OF_BUCKET;
        let bucket = &self.words[start..start + CLIENTS_OF_BUCKET];
        let known = || bucket.iter().map(|word| (word, word.load(Relaxed)));
        let own = known().find(|(_, value)| value & !TIME_MASK == mark);
        let Some((word, value)) = own.or_else(|| known().min_by_key(|(_, value)| self.ahead_us(*value, now_us))) else {
            return Ok(None);
        };
        let ahead_us = if own.is_some() { self.ahead_us(value, now_us) } else { 0 } + self.interval_us;
        if ahead_us > self.window_us {
            return Err(Duration::from_micros(ahead_us - self.window_us));
        }
        Ok(Some((word, value, mark | (now_us.wrapping_add(ahead_us) & TIME_MASK))))
    }

    /// How far a word's time is ahead; nothing if it has passed. It's never further than the window: what seems to be has passed long ago.
    fn ahead_us(&self, value: u64, now_us: u64) -> u64 {
        let ahead_us = value.wrapping_sub(now_us) & TIME_MASK;
        if ahead_us <= self.window_us { ahead_us } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(requests: u32, per_ms: u64) -> ClientRates {
        ClientRates::new(ClientRate { requests, per: Duration::from_millis(per_ms) }, 7)
    }

    fn at_ms(ms: u64) -> Instant {
        Instant { ns: ms * 1_000_000 }
    }

    fn client(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_may_ask_so_often_at_once_and_then_as_the_rate_says() {
        let (rates, one) = (rates(5, 1000), client("192.0.2.1"));
        let asked = |from: u64, to: u64| (from..to).filter(|&ms| rates.ask(one, at_ms(ms)).is_ok()).count();
        assert_eq!((0..9).filter(|_| rates.ask(one, at_ms(0)).is_ok()).count(), 5);
        assert_eq!(rates.ask(one, at_ms(50)), Err(Duration::from_millis(150)));
        assert_eq!(asked(50, 10_000), 49, "one each 200 ms, the first after 150");
        assert_eq!(rates.ask(one, at_ms(20_000)), Ok(()));
        assert_eq!(asked(20_000, 20_001), 1);
    }

    #[test]
    fn each_client_has_the_rate_for_itself() {
        let rates = rates(1, 60_000);
        for other in ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1", "::1"] {
            assert_eq!(rates.ask(client(other), at_ms(5)), Ok(()), "{other}");
        }
        for same in ["192.0.2.1", "::ffff:192.0.2.2", "2001:db8::ffff:ffff:0:1"] {
            assert_eq!(rates.ask(client(same), at_ms(10)), Err(Duration::from_millis(59_995)), "{same}");
        }
    }

    #[test]
    fn nobody_is_refused_for_others() {
        let rates = rates(2, 3_600_000);
        // Far more than there are words.
        for number in 0..400_000_u32 {
            assert_eq!(rates.ask(IpAddr::V4(number.into()), at_ms(1_000)), Ok(()), "{number}");
        }
    }

    #[test]
    fn a_crowd_of_as_many_as_half_of_the_words_is_known_one_by_one() {
        let rates = rates(1, 3_600_000);
        let crowd = || (0..CLIENTS_MAX as u32 / 2).map(|number| IpAddr::V4((number * 7919).into()));
        crowd().for_each(|one| assert_eq!(rates.ask(one, at_ms(1_000)), Ok(())));
        let forgotten = crowd().filter(|one| rates.ask(*one, at_ms(2_000)).is_ok()).count();
        assert!(forgotten < CLIENTS_MAX / 50, "{forgotten} were");
    }

    #[test]
    fn a_word_from_before_the_clock_came_round_is_free() {
        let (rates, one) = (rates(1, 1000), client("192.0.2.1"));
        let round_ms = (1 << TIME_BITS) / 1000;
        for ms in [round_ms - 1, round_ms + 2_000, round_ms * 3 / 2, round_ms * 2 + 3_000] {
            assert_eq!(rates.ask(one, at_ms(ms)), Ok(()), "{ms}");
            assert_eq!(rates.ask(one, at_ms(ms + 1)), Err(Duration::from_millis(999)));
        }
    }

    #[test]
    fn workers_count_together() {
        let (rates, one) = (rates(1_000, 3_600_000), client("192.0.2.1"));
        let ask = || (0..1_000).filter(|_| rates.ask(one, at_ms(1)).is_ok()).count();
        let asked: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(asked, 1_000);
    }
}
