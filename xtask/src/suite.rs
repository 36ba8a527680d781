//! How the tests are run: all of them, within a time, and what fails once more by itself.
//!
//! Many tests run a server, its clients and its programs side by side with other tests. On a machine with two busy processors a wait in one of
//! them can end before what it waits for had its turn. So a test that fails is run again alone; if it passes then, the run goes on, and says
//! which test it was. One that fails alone has failed.
//!
//! They wait far more than they compute, for servers to start and clients to give up: more of them run at once than there are processors.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::{packages, root};

/// For the suite, its building included, which takes ten minutes where others have most of the machine: a test that hangs is named by the harness after a
/// minute, and ended by this.
const SUITE_TIME: &str = "27m";
/// For what failed, run again.
const AGAIN_TIME: &str = "5m";
/// More failures than this aren't the machine's.
const AGAIN_MAX: usize = 5;
/// With one for each, processors have nothing to do half of the time. With two, a sixth of it; but then some server has no turn for its lease of a second
/// now and then, and what it had is cut.
const TESTS_PER_TWO_PROCESSORS: usize = 3;
/// Tests of who gets how much of the processor: they have it for themselves.
const TIMED: [&str; 3] = ["shares::", "burning::", "a_program_isnt_silent_while_it_may_not_run"];

/// Runs every test; how many there were. Errors: which failed.
pub(crate) fn run() -> Result<usize, String> {
    let all = ["--workspace", "--no-fail-fast", "--"];
    let skipped = TIMED.iter().flat_map(|name| ["--skip", name]);
    let most = suite(&all.into_iter().chain(skipped).collect::<Vec<_>>())?;
    let timed = ["--package", "leat", "--test", "end_to_end", "--", "--test-threads", "1"];
    Ok(most + suite(&timed.into_iter().chain(TIMED).collect::<Vec<_>>())?)
}

fn suite(arguments: &[&str]) -> Result<usize, String> {
    let (well, Report { passed, failed, .. }) = cargo_test(SUITE_TIME, arguments)?;
    if well {
        return Ok(passed);
    }
    if failed.is_empty() || failed.len() > AGAIN_MAX {
        return Err(format!("failed: {}", if failed.is_empty() { "see above".to_owned() } else { failed.join(", ") }));
    }
    println!("== again, alone: {}", failed.join(", "));
    let alone = ["--workspace", "--", "--test-threads", "1", "--exact"];
    let (well, again) =
        cargo_test(AGAIN_TIME, &alone.into_iter().chain(failed.iter().map(String::as_str)).collect::<Vec<_>>())?;
    if !well {
        return Err(format!("failed twice: {}", again.failed.join(", ")));
    }
    println!("== passed only at the second try, alone: {}", failed.join(", "));
    Ok(passed + failed.len())
}

/// Runs `cargo test`, shows what it says, and returns whether it went well and what it said.
fn cargo_test(time: &str, arguments: &[&str]) -> Result<(bool, Report), String> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", time, "cargo", "test", "--quiet"]).args(arguments).current_dir(root());
    // What `--test-threads` says goes before.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", (processors * TESTS_PER_TWO_PROCESSORS).div_ceil(2).to_string());
    }
    // As root, tests that need namespaces fail where they can't have them; others are told that they're skipped.
    if packages::is_root() {
        command.env("LEAT_REQUIRE_NAMESPACES", "1");
    }
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let mut report = Report::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(|error| format!("{command:?}: {error}"))?;
            let line = String::from_utf8_lossy(&line);
            // A closed standard output doesn't end the tests.
            let _ = writeln!(std::io::stdout(), "{line}");
            report.read(&line);
        }
    }
    let status = child.wait().map_err(|error| format!("{command:?}: {error}"))?;
    if status.code() == Some(124) {
        return Err(format!("not done after {time}; the test that hangs is named above"));
    }
    Ok((status.success(), report))
}

/// What the test harness prints: a line `failures:`, then the names of failed tests, indented; `test result: ok. 3 passed; 0 failed; ...`.
#[derive(Default)]
struct Report {
    passed: usize,
    failed: Vec<String>,
    listing: bool,
}

impl Report {
    fn read(&mut self, line: &str) {
        match line.strip_prefix("    ") {
            _ if line == "failures:" => self.listing = true,
            Some(name) if self.listing && !name.contains(char::is_whitespace) => self.failed.push(name.to_owned()),
            _ => self.listing = false,
        }
        let result = line.strip_prefix("test result: ").and_then(|result| result.split_once(". "));
        let passed = result.and_then(|(_, counts)| counts.split_once(" passed;")?.0.parse::<usize>().ok());
        self.passed += passed.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn what_passed_is_counted_and_what_failed_is_named() {
        let mut report = Report::default();
        let output = "running 3 tests\n.F.\nfailures:\n\n---- a::b stdout ----\n    indented output\n\nfailures:\n    a::b\n    c\n\n\
                      test result: FAILED. 1 passed; 2 failed; 0 ignored\n\ntest result: ok. 34 passed; 0 failed; 3 ignored";
        output.lines().for_each(|line| report.read(line));
        assert_eq!(report.failed, ["a::b", "c"]);
        assert_eq!(report.passed, 35);
    }
}
