//! The benchmark of the event scheduling tree (`crates/logic/benches/schedule.rs`), built and run from here.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use crate::sys::process;

/// Where it runs.
const CORE: usize = 0;
/// Events of its `--once` mode.
const EVENTS: f64 = 1_000_000.0;

/// The built program.
pub(super) struct TreeBench {
    program: PathBuf,
}

impl TreeBench {
    /// # Errors
    /// There is no cargo, or it doesn't build.
    pub(super) fn build() -> io::Result<Self> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["bench", "-p", "leat-logic", "--bench", "schedule", "--no-run", "--message-format=json"]);
        if let Some(folder) = std::env::var_os("CARGO_MANIFEST_DIR") {
            command.current_dir(folder);
        }
        let output = command.output()?;
        let executable = |line: &str| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            let is_wanted = message["target"]["name"] == "schedule";
            is_wanted.then(|| message["executable"].as_str().map(PathBuf::from))?
        };
        let program = String::from_utf8_lossy(&output.stdout).lines().filter_map(executable).next_back();
        let failed =
            || io::Error::other(format!("the tree's benchmark isn't built: cargo ended with {}", output.status));
        program.map(|program| Self { program }).ok_or_else(failed)
    }

    /// Nanoseconds for an event in one of the benchmark's cases: leaves, policy, median.
    pub(super) fn event_ns(&self, case: &str) -> io::Result<Vec<(String, String, f64)>> {
        let mut command = Command::new(&self.program);
        command.args(["--case", case]);
        process::start_on_cores(&mut command, &[CORE]);
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rows = text.lines().filter_map(|line| row(line, case)).collect::<Vec<_>>();
        let empty = || io::Error::other(format!("the tree's benchmark has no figures for {case}: {}", output.status));
        if rows.is_empty() { Err(empty()) } else { Ok(rows) }
    }

    /// Instructions for an event, counted by callgrind; none where there is no valgrind.
    pub(super) fn event_instructions(&self, policy: &str, leaves: u32, case: &str) -> Option<f64> {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&self.program);
        command.args(["--once", policy, &leaves.to_string(), case]);
        let output = command.output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find(|line| line.contains("Collected :"))?;
        let count: f64 = line.rsplit(' ').next()?.parse().ok()?;
        Some(count / EVENTS)
    }
}

/// `case,leaves,policy,ns`
fn row(line: &str, wanted: &str) -> Option<(String, String, f64)> {
    let mut cells = line.split(',');
    let (case, leaves, policy, ns) = (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
    Some((leaves.to_owned(), policy.to_owned(), ns.parse().ok()?)).filter(|_| case == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmarks_rows_are_read() {
        assert_eq!(row("new_first,64,round_robin,28.50", "new_first"), Some(("64".into(), "round_robin".into(), 28.5)));
        for line in ["case,leaves,policy,ns", "stages,64,round_robin,28.50", "| 64 | 28.5 |"] {
            assert_eq!(row(line, "new_first"), None, "{line}");
        }
    }
}
