//! A client alone and beside others, in turns that are short and close together, so that the machine is the same to both. What is told is the quotient
//! of two turns; a pair of which either was spoilt by others is left out, and counted.

use std::io;

use super::bench::{Bench, Clients, Started, Trial};
use crate::experiment::{Records, Samples};
use crate::load::Outcome;

/// One pair of turns.
pub(super) struct Pair {
    alone: Trial,
    pub(super) beside: Trial,
}

/// What the table shows of a pair: metric, heading, decimals.
pub(super) const COLUMNS: [(&str, &str, usize); 11] = [
    ("kept", "answered / offered", 3),
    ("p99_us", "p99 us", 0),
    ("alone_server_p50_us", "p50 in the server alone, us", 0),
    ("server_p50_us", "p50 beside", 0),
    ("alone_server_p99_us", "p99 in the server alone, us", 0),
    ("server_p99_us", "p99 beside", 0),
    (RATIO, "p99 beside / alone", 2),
    ("other_per_s", "the others' answered/s", 0),
    ("share", "share of the CPU", 3),
    ("pairs", "pairs", 0),
    ("left_out", "left out", 0),
];
/// p99 in the server, beside and alone.
pub(super) const RATIO: &str = "ratio";

impl Bench {
    /// One pair: whose turn is first changes with the round. What is beside has an instance of the server's for itself, where the server remembers what was
    /// asked of it a second ago.
    ///
    /// # Errors
    /// As [`Bench::measure_watched`].
    pub(super) fn measure_pair(
        &self,
        [alone, beside]: [&Started; 2],
        client: &Clients,
        others: &Clients,
        round: u32,
    ) -> io::Result<Pair> {
        let measure_alone = || self.measure_watched(alone, std::slice::from_ref(client));
        let measure_beside = || self.measure_watched(beside, &[client.clone(), others.clone()]);
        let first = round.is_multiple_of(2).then(measure_alone).transpose()?;
        let beside = measure_beside()?;
        Ok(Pair { alone: first.map_or_else(measure_alone, Ok)?, beside })
    }
}

/// How many pairs of a point there were, and how many of them were left out.
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pairs: u32,
    left_out: u32,
}

impl Count {
    /// Records a pair: one that is left out, under a name of its own, which is returned.
    pub(super) fn take(&mut self, pair: &Pair, records: &mut Records, at: (&str, &str, u32), who: &str) -> String {
        self.pairs += 1;
        self.left_out += u32::from(pair.is_spoilt());
        let who = if pair.is_spoilt() { format!("{who}, left out") } else { who.to_owned() };
        pair.record(records, at, &who);
        who
    }

    /// There is nothing of a pair.
    pub(super) fn miss(&mut self) {
        self.pairs += 1;
        self.left_out += 1;
    }

    /// Records the numbers, after the last pair.
    pub(super) fn record(self, records: &mut Records, (case, point): (&str, &str), who: &str) {
        for (metric, count) in [("pairs", self.pairs), ("left_out", self.left_out)] {
            records.record((case, point, 0), who, metric, count.into());
        }
    }
}

/// Why the pairs that are left say too little, if they do.
pub(super) fn doubt(samples: &Samples, (case, point): (&str, &str), who: &str) -> String {
    let count = |metric| samples.median(case, point, who, metric).unwrap_or(0.0);
    let (pairs, left_out) = (count("pairs"), count("left_out"));
    if left_out * 2.0 > pairs { format!("{left_out} of {pairs} pairs were left out") } else { String::new() }
}

impl Pair {
    fn is_spoilt(&self) -> bool {
        [&self.alone, &self.beside].iter().any(|trial| trial.stalls.are_many(trial.outcomes[0].window))
    }

    fn record(&self, records: &mut Records, at: (&str, &str, u32), who: &str) {
        let outcome = &self.beside.outcomes[0];
        records.record(at, who, "kept", (outcome.answered as f64 / outcome.offered.max(1) as f64).min(1.0));
        // Where nobody got a connection, there are no times.
        if outcome.answered > 0 {
            records.record(at, who, "p99_us", outcome.latency_us(0.99));
        }
        for (of_alone, of_beside, percent) in
            [("alone_server_p50_us", "server_p50_us", 50), ("alone_server_p99_us", "server_p99_us", 99)]
        {
            let [alone, beside] = [&self.alone, &self.beside].map(|trial| trial.server_us(percent));
            alone.into_iter().for_each(|us| records.record(at, who, of_alone, us));
            beside.into_iter().for_each(|us| records.record(at, who, of_beside, us));
            if let (99, Some(alone), Some(beside)) = (percent, alone, beside) {
                records.record(at, who, RATIO, beside / alone);
            }
        }
        if let Some(other) = self.beside.outcomes.get(1).map(Outcome::answered_per_s) {
            records.record(at, who, "other_per_s", other);
        }
        for (trial, metrics) in [
            (&self.alone, ["alone_server_waited_us", "alone_client_waited_us", "alone_stolen_us"]),
            (&self.beside, ["server_waited_us", "client_waited_us", "stolen_us"]),
        ] {
            let [server, client] = trial.stalls.waited;
            for (metric, took) in metrics.into_iter().zip([server, client, trial.stalls.stolen]) {
                records.record(at, who, metric, took.as_secs_f64() * 1e6);
            }
        }
    }
}
