//! How busy others kept the machine while a case ran: what a reader must know before believing a figure.

use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::account;

/// Above these shares of the machine, latencies and close calls mean little.
const OTHERS_SHARE_MAX: f64 = 0.05;
const STEAL_SHARE_MAX: f64 = 0.02;
/// The kernel's tick in /proc/stat, on every architecture that Rust has.
const TICKS_PER_S: f64 = 100.0;

/// What else the machine did during one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conditions {
    pub(crate) case: String,
    pub(crate) wall_s: f64,
    /// One-minute load average when the case began, before it added its own.
    pub(crate) load_average: f64,
    /// Processor time of other programs, of all that all processors have. Not the kernel's in interrupts: it carries the case's own packets in
    /// them, and charges them to nobody.
    pub(crate) others_share: f64,
    /// Processor time that the hypervisor gave to other machines, likewise.
    pub(crate) steal_share: f64,
}

impl Conditions {
    /// For the table.
    pub(crate) fn describe(&self) -> String {
        let busy = self.others_share > OTHERS_SHARE_MAX || self.steal_share > STEAL_SHARE_MAX;
        format!(
            "{}Other programs took {:.0} % of the machine, its hypervisor {:.1} %; load average {:.2} at the start; {:.0} s.",
            if busy { "**The machine was busy: believe neither latencies nor close calls.** " } else { "" },
            self.others_share * 100.0,
            self.steal_share * 100.0,
            self.load_average,
            self.wall_s,
        )
    }
}

/// A look at the counters when a case begins.
pub(crate) struct Watch {
    began: Instant,
    load_average: f64,
    ticks: Ticks,
    own_s: f64,
}

impl Watch {
    pub(crate) fn begin() -> Self {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            began: Instant::now(),
            load_average: load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0),
            ticks: Ticks::now(),
            own_s: account::spent().as_secs_f64(),
        }
    }

    /// Without an account all servers of the case must have ended: until then their time counts as that of others.
    pub(crate) fn end(&self, case: &str) -> Conditions {
        let ticks = Ticks::now();
        let all_s = (ticks.all - self.ticks.all).max(1.0) / TICKS_PER_S;
        let busy_s = (ticks.busy - self.ticks.busy) / TICKS_PER_S;
        let own_s = account::spent().as_secs_f64() - self.own_s;
        Conditions {
            case: case.to_owned(),
            wall_s: self.began.elapsed().as_secs_f64(),
            load_average: self.load_average,
            others_share: ((busy_s - own_s) / all_s).max(0.0),
            steal_share: (ticks.steal - self.ticks.steal) / TICKS_PER_S / all_s,
        }
    }
}

/// Seconds of these processors that the hypervisor gave to other machines since this one started. In steps of a hundredth.
pub(crate) fn stolen_s(cores: &[usize]) -> f64 {
    stolen_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default(), cores) / TICKS_PER_S
}

fn stolen_ticks(text: &str, cores: &[usize]) -> f64 {
    let lines =
        cores.iter().filter_map(|core| text.lines().find(|line| line.split(' ').next() == Some(&format!("cpu{core}"))));
    lines.map(|line| Ticks::parse(line).steal).sum()
}

/// Sums over all processors since the machine started. `busy` is that of programs and of the kernel on their behalf.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    all: f64,
    busy: f64,
    steal: f64,
}

impl Ticks {
    fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// A line: user, nice, system, idle, iowait, irq, softirq, steal; guests are within user and nice.
    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let values: Vec<f64> = line.split_whitespace().skip(1).take(8).filter_map(|value| value.parse().ok()).collect();
        let &[user, nice, system, idle, wait, interrupts, soft_interrupts, steal] = values.as_slice() else {
            return Self::default();
        };
        let busy = user + nice + system;
        Self { all: busy + interrupts + soft_interrupts + idle + wait + steal, busy, steal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed() {
        let ticks = Ticks::parse("cpu  10 1 20 100 5 2 3 4 7 8\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        assert_eq!(ticks, Ticks { all: 145.0, busy: 31.0, steal: 4.0 });
        assert_eq!(Ticks::parse("nothing"), Ticks::default());
    }

    #[test]
    fn stolen_time_is_that_of_the_cores_in_use() {
        let text =
            "cpu  1 1 1 1 1 1 1 9 0 0\ncpu0 1 1 1 1 1 1 1 2 0 0\ncpu1 1 1 1 1 1 1 1 3 0 0\ncpu10 1 1 1 1 1 1 1 4 0 0\n";
        assert_eq!(stolen_ticks(text, &[0, 1]), 5.0);
        assert_eq!(stolen_ticks(text, &[10]), 4.0);
        assert_eq!(stolen_ticks(text, &[7]), 0.0);
    }

    #[test]
    fn a_busy_machine_is_told() {
        let quiet = Conditions {
            case: "small".to_owned(),
            wall_s: 1.0,
            load_average: 0.0,
            others_share: 0.01,
            steal_share: 0.0,
        };
        assert!(!quiet.describe().contains("busy"));
        assert!(Conditions { steal_share: 0.1, ..quiet.clone() }.describe().contains("busy"));
        assert!(Conditions { others_share: 0.5, ..quiet }.describe().contains("busy"));
    }
}
