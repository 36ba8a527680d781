//! The server's processor time within a window.

use std::time::Duration;

use crate::load::Observer;
use crate::server::Running;
use crate::sys::process;

/// Reads the server's clocks when the window begins and ends.
pub(crate) struct Clocks<'a> {
    running: &'a Running,
    pids: Vec<u32>,
    begin: Duration,
    end: Duration,
    /// Memory of the server's own once all connections were open.
    pub(crate) memory_bytes: u64,
}

impl<'a> Clocks<'a> {
    pub(crate) fn of(running: &'a Running) -> Self {
        Self { running, pids: Vec::new(), begin: Duration::ZERO, end: Duration::ZERO, memory_bytes: 0 }
    }

    /// Processor time of the server's processes within the window.
    pub(crate) fn server_time(&self) -> Duration {
        self.end.saturating_sub(self.begin)
    }

    fn now(&self) -> Duration {
        self.pids.iter().filter_map(|&pid| process::cpu_time(pid).ok()).sum()
    }
}

impl Observer for Clocks<'_> {
    fn opened(&mut self) {
        // Looked up once: walking /proc takes milliseconds.
        self.pids = self.running.processes();
        self.memory_bytes = self.running.own_memory_bytes();
    }

    fn window_begins(&mut self) {
        self.begin = self.now();
    }

    fn window_ends(&mut self) {
        self.end = self.now();
    }
}
