//! How the tests are run: all of them, within a time, and what fails once more by itself.
//!
//! Many tests run a server, its clients and its programs side by side with other tests. On a machine with two busy processors a wait in one of
//! them can end before what it waits for had its turn. So a test that fails is run again alone; if it passes then, the run goes on, and says
//! which test it was. One that fails alone has failed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::{Chore, packages, root};

/// For the suite, its building included: a test that hangs is named by the harness after a minute, and ended by this.
const SUITE_TIME: &str = "25m";
/// For what failed, run again.
const AGAIN_TIME: &str = "5m";
/// More failures than this aren't the machine's.
const AGAIN_MAX: usize = 5;
/// Tests of who gets how much of the processor: they have it for themselves.
const TIMED: [&str; 2] = ["shares::", "burning::"];

/// Runs every test. Errors: which failed.
pub(crate) fn run() -> Chore {
    let all = ["--workspace", "--no-fail-fast", "--"];
    let skipped = TIMED.iter().flat_map(|name| ["--skip", name]);
    suite(&all.into_iter().chain(skipped).collect::<Vec<_>>())?;
    let timed = ["--package", "leat", "--test", "end_to_end", "--", "--test-threads", "1"];
    suite(&timed.into_iter().chain(TIMED).collect::<Vec<_>>())
}

fn suite(arguments: &[&str]) -> Chore {
    let (well, failed) = cargo_test(SUITE_TIME, arguments)?;
    if well {
        return Ok(());
    }
    if failed.is_empty() || failed.len() > AGAIN_MAX {
        return Err(format!("failed: {}", if failed.is_empty() { "see above".to_owned() } else { failed.join(", ") }));
    }
    println!("== again, alone: {}", failed.join(", "));
    let alone = ["--workspace", "--", "--test-threads", "1", "--exact"];
    let (well, failed_again) =
        cargo_test(AGAIN_TIME, &alone.into_iter().chain(failed.iter().map(String::as_str)).collect::<Vec<_>>())?;
    if !well {
        return Err(format!("failed twice: {}", failed_again.join(", ")));
    }
    println!("== passed only at the second try, alone: {}", failed.join(", "));
    Ok(())
}

/// Runs `cargo test`, shows what it says, and returns whether it went well and the names of the tests that failed.
fn cargo_test(time: &str, arguments: &[&str]) -> Result<(bool, Vec<String>), String> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", time, "cargo", "test", "--quiet"]).args(arguments).current_dir(root());
    // As root, tests that need namespaces fail where they can't have them; others are told that they're skipped.
    if packages::is_root() {
        command.env("LEAT_REQUIRE_NAMESPACES", "1");
    }
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let mut failed = Failures::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(|error| format!("{command:?}: {error}"))?;
            let line = String::from_utf8_lossy(&line);
            // A closed standard output doesn't end the tests.
            let _ = writeln!(std::io::stdout(), "{line}");
            failed.read(&line);
        }
    }
    let status = child.wait().map_err(|error| format!("{command:?}: {error}"))?;
    if status.code() == Some(124) {
        return Err(format!("not done after {time}; the test that hangs is named above"));
    }
    Ok((status.success(), failed.names))
}

/// Reads the names of failed tests from what the test harness prints: a line `failures:`, then names, indented.
#[derive(Default)]
struct Failures {
    names: Vec<String>,
    listing: bool,
}

impl Failures {
    fn read(&mut self, line: &str) {
        match line.strip_prefix("    ") {
            _ if line == "failures:" => self.listing = true,
            Some(name) if self.listing && !name.contains(char::is_whitespace) => self.names.push(name.to_owned()),
            _ => self.listing = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Failures;

    #[test]
    fn the_names_of_failed_tests_are_read() {
        let mut failures = Failures::default();
        let output = "running 3 tests\n.F.\nfailures:\n\n---- a::b stdout ----\n    indented output\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED. 1 passed";
        output.lines().for_each(|line| failures.read(line));
        assert_eq!(failures.names, ["a::b", "c"]);
    }
}
