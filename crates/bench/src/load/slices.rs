//! Latencies slice by slice: a stall of the machine spoils the slices that it lies in, and leaves the others' percentiles alone.
//!
//! What the slices say together (their median, the share with a stall) is for whoever judges.

use std::time::Duration;

/// Length of a slice: long enough for a p99 at a few thousand requests a second, short enough for a stall to be one of many.
pub(crate) const SLICE: Duration = Duration::from_millis(50);
/// A slice with fewer requests has no p99.
const REQUESTS_MIN: usize = 100;
/// A slice whose p99 is above this had a stall, or a server that is behind: the floor is some ten times lower.
const STALL_US: f64 = 1_000.0;

/// Latencies of the requests of a window, by the slice in which they were due.
#[derive(Default)]
pub(crate) struct Slices {
    latencies_ns: Vec<Vec<u64>>,
}

impl Slices {
    /// `due_ns` counts from the window's begin.
    pub(crate) fn record(&mut self, due_ns: u64, latency_ns: u64) {
        let index = (due_ns / SLICE.as_nanos() as u64) as usize;
        if self.latencies_ns.len() <= index {
            self.latencies_ns.resize_with(index + 1, Vec::new);
        }
        self.latencies_ns[index].push(latency_ns);
    }

    /// Takes in what another generator saw of the same window.
    pub(crate) fn add(&mut self, other: &Slices) {
        if self.latencies_ns.len() < other.latencies_ns.len() {
            self.latencies_ns.resize_with(other.latencies_ns.len(), Vec::new);
        }
        self.latencies_ns.iter_mut().zip(&other.latencies_ns).for_each(|(all, latencies)| all.extend(latencies));
    }

    /// The p99 of every slice that lies wholly within `window` and has enough requests for one, in microseconds.
    pub(crate) fn p99s_us(&self, window: Duration) -> Vec<f64> {
        let whole = (window.as_nanos() / SLICE.as_nanos()) as usize;
        let slices = self.latencies_ns.iter().take(whole).filter(|slice| slice.len() >= REQUESTS_MIN);
        slices.map(|slice| p99_us(slice.clone())).collect()
    }
}

fn p99_us(mut latencies_ns: Vec<u64>) -> f64 {
    // The least value that 99 of 100 are at or below.
    let rank = (latencies_ns.len() * 99).div_ceil(100) - 1;
    *latencies_ns.select_nth_unstable(rank).1 as f64 / 1e3
}

/// The share of slices with a stall; 0 where there are no slices.
pub(crate) fn stalled_share(p99s_us: &[f64]) -> f64 {
    let stalled = p99s_us.iter().filter(|p99_us| **p99_us > STALL_US).count();
    stalled as f64 / p99s_us.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::samples::median;

    /// 20,000 requests a second for a second, each of 60 us, but that nothing is answered from one millisecond to another.
    fn second_with_stalls(stalls_ms: &[(u64, u64)]) -> Slices {
        let mut slices = Slices::default();
        for due_ns in (0..1_000_000_000).step_by(50_000) {
            let stall = stalls_ms.iter().find(|(begin, end)| (*begin..*end).contains(&(due_ns / 1_000_000)));
            let stall_ns = stall.map_or(0, |(_, end)| end * 1_000_000 - due_ns);
            slices.record(due_ns, 60_000 + stall_ns);
        }
        slices
    }

    #[test]
    fn a_p99_is_exact() {
        assert_eq!(p99_us((1..=100).rev().map(|us| us * 1_000).collect()), 99.0);
        assert_eq!(p99_us((1..=1_000).map(|us| us * 1_000).collect()), 990.0);
        assert_eq!(p99_us(vec![5_000]), 5.0);
    }

    #[test]
    fn only_whole_slices_with_enough_requests_count() {
        let slices = second_with_stalls(&[]);
        assert_eq!(slices.p99s_us(Duration::from_millis(1_000)), vec![60.0; 20]);
        assert_eq!(slices.p99s_us(Duration::from_millis(999)).len(), 19);
        let mut few = Slices::default();
        (0..REQUESTS_MIN as u64 - 1).for_each(|number| few.record(number, 1_000));
        assert_eq!(few.p99s_us(SLICE), Vec::<f64>::new());
        few.record(0, 1_000);
        assert_eq!(few.p99s_us(SLICE), [1.0]);
        assert_eq!(stalled_share(&[]), 0.0);
    }

    #[test]
    fn a_stall_spoils_its_slice_and_no_other() {
        let p99s_us = second_with_stalls(&[(420, 435), (900, 904)]).p99s_us(Duration::from_secs(1));
        assert_eq!(median(p99s_us.clone()), Some(60.0));
        assert_eq!(stalled_share(&p99s_us), 0.1);
        // One across a border spoils both.
        let p99s_us = second_with_stalls(&[(440, 460)]).p99s_us(Duration::from_secs(1));
        assert_eq!(p99s_us.iter().filter(|p99_us| **p99_us > STALL_US).count(), 2);
    }

    #[test]
    fn a_stall_in_most_slices_shows_in_the_median() {
        let stalls: Vec<_> = (0..20).filter(|slice| slice % 5 != 0).map(|slice| (slice * 50, slice * 50 + 5)).collect();
        let p99s_us = second_with_stalls(&stalls).p99s_us(Duration::from_secs(1));
        assert!(median(p99s_us.clone()).is_some_and(|median| median > 4_000.0), "{p99s_us:?}");
        assert_eq!(stalled_share(&p99s_us), 0.8);
    }
}
