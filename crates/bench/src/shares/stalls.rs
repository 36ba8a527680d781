//! Whether a measurement was kept from its processors, by the hypervisor or by other programs: looked at beside it, never in what it brought. The kernel
//! says how long threads have waited while others ran, and what the hypervisor took.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::experiment::stolen_s;

/// So much of a window may the server's busiest thread, or the client's, have waited while others had its processor. The kernel's own threads count among
/// those, one of which deals with packets at times, so it isn't less.
const WAITED_SHARE_MAX: f64 = 0.02;

/// What others took during a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Stalls {
    /// How long the server's busiest thread waited for its processor, and the client's. The server's others wait for that one, the longer the more it does.
    pub(super) waited: [Duration; 2],
    /// What the hypervisor took of all processors in use, to a hundredth of a second.
    pub(super) stolen: Duration,
}

impl Stalls {
    /// Whether what was measured within `window` says more of the machine than of the server.
    pub(super) fn are_many(&self, window: Duration) -> bool {
        !self.stolen.is_zero() || self.waited.iter().any(|waited| *waited > window.mul_f64(WAITED_SHARE_MAX))
    }

    fn since(self, begin: Self) -> Self {
        let waited = [0, 1].map(|who| self.waited[who].saturating_sub(begin.waited[who]));
        Self { waited, stolen: self.stolen.saturating_sub(begin.stolen) }
    }
}

/// Watches some processors, a server, and the thread that says when the window begins and ends: the client's.
pub(super) struct StallWatch {
    cores: Vec<usize>,
    server: Vec<u32>,
    begin: Stalls,
    pub(super) seen: Stalls,
}

impl StallWatch {
    pub(super) fn new(cores: Vec<usize>, server: Vec<u32>) -> Self {
        Self { cores, server, begin: Stalls::default(), seen: Stalls::default() }
    }

    pub(super) fn window_begins(&mut self) {
        self.begin = self.now();
    }

    pub(super) fn window_ends(&mut self) {
        self.seen = self.now().since(self.begin);
    }

    /// Since the threads and the machine were started.
    fn now(&self) -> Stalls {
        let folders = self.server.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
        let threads = folders.flatten().filter_map(|task| Some(task.ok()?.path().join("schedstat")));
        let of_server = threads.filter_map(ran_and_waited).max().unwrap_or_default();
        let of_client = ran_and_waited("/proc/thread-self/schedstat".into()).unwrap_or_default();
        let stolen = Duration::from_secs_f64(stolen_s(&self.cores));
        Stalls { waited: [of_server.1, of_client.1], stolen }
    }
}

/// How long a thread has run, and how long it has waited: a schedstat file. None of one that has ended.
fn ran_and_waited(path: PathBuf) -> Option<(Duration, Duration)> {
    let text = fs::read_to_string(path).ok()?;
    let mut numbers = text.split_whitespace().map_while(|number| number.parse().ok()).map(Duration::from_nanos);
    numbers.next().zip(numbers.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_others_had_spoils_a_window() {
        let window = Duration::from_millis(250);
        let with = |server_us, client_us, stolen_ms| {
            let waited = [server_us, client_us].map(Duration::from_micros);
            Stalls { waited, stolen: Duration::from_millis(stolen_ms) }.are_many(window)
        };
        assert!(!with(0, 0, 0) && !with(4_900, 4_900, 0));
        assert!(with(5_100, 0, 0) && with(0, 5_100, 0) && with(0, 0, 10));
    }

    #[test]
    fn the_kernel_says_how_long_a_thread_has_run_and_waited() {
        // Zeros, perhaps: a thread is accounted with the next tick.
        assert!(ran_and_waited("/proc/thread-self/schedstat".into()).is_some());
        assert_eq!(ran_and_waited("/proc/thread-self/no".into()), None);
    }

    #[test]
    fn what_was_before_the_window_does_not_count() {
        let with = |server_ms, client_ms, stolen_ms| {
            let [server, client, stolen] = [server_ms, client_ms, stolen_ms].map(Duration::from_millis);
            Stalls { waited: [server, client], stolen }
        };
        assert_eq!(with(70, 8, 30).since(with(50, 7, 30)), with(20, 1, 0));
    }
}
