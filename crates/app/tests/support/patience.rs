//! How long a test waits for something that must happen, and how it waits for what sends no event.

use std::time::{Duration, Instant};

/// How long a test waits for an event before it fails. Long: the machine may be busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Asks until the answer is `Some`, or fails after [`PATIENCE`] with `what`. For changes that nobody announces.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
