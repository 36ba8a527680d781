//! The project's own chores. `cargo xtask ci` is exactly what CI runs, and what the README names for the tests.

mod packages;
mod steering;
mod suite;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

const USAGE: &str = "cargo xtask CHORE

  ci         everything that must hold before a change lands
  tidy       the rules that a machine can check
  steering   build the eBPF programs from C, to be committed
  reference  write docs/config.md and docs/metrics.md anew
  simulate   many runs of the simulator: SEEDS as `A..B` (default 0..2000)
  fuzz       every fuzz target for SECONDS each (default 60)
";

type Chore = Result<(), String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = arguments.get(1).map(String::as_str);
    let result = match arguments.first().map(String::as_str) {
        Some("ci") => ci(),
        Some("tidy") => tidy::run(&root()),
        Some("steering") => steering::build(&root()),
        Some("reference") => reference(),
        Some("simulate") => simulate(argument.unwrap_or("0..2000")),
        Some("fuzz") => fuzz(argument.unwrap_or("60")),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn ci() -> Chore {
    let start = Instant::now();
    packages::install(&[
        "curl",
        "nginx-light",
        "h2o",
        "lighttpd",
        "apache2",
        "caddy",
        "clang",
        "llvm",
        "libbpf-dev",
        "iproute2",
        "nftables",
        "ethtool",
    ])?;
    step("formatting", || cargo(&["fmt", "--all", "--check"]))?;
    step("tidy", || tidy::run(&root()))?;
    step("steering programs", || steering::check(&root()))?;
    step("lints", || cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    let mut passed = 0;
    step("tests", || suite::run().map(|tests| passed = tests))?;
    step("simulator", || simulate("0..300"))?;
    println!("all is well after {} s", start.elapsed().as_secs());
    println!("{passed} passed, 0 failed");
    Ok(())
}

fn step(name: &str, chore: impl FnOnce() -> Chore) -> Chore {
    println!("== {name}");
    let start = Instant::now();
    chore().map_err(|message| format!("{name}: {message}"))?;
    println!("== {name}: well, {} s", start.elapsed().as_secs());
    Ok(())
}

fn simulate(seeds: &str) -> Chore {
    cargo(&["run", "--quiet", "--package", "leat-sim", "--", "--seeds", seeds])?;
    cargo(&["run", "--quiet", "--package", "leat-sim", "--", "--handoff", "--seeds", seeds])
}

fn fuzz(seconds: &str) -> Chore {
    let script = root().join("fuzz/run");
    let targets = root().join("fuzz/targets");
    let entries = std::fs::read_dir(&targets).map_err(|error| format!("{}: {error}", targets.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            run(Command::new(&script).args([name, seconds]))?;
        }
    }
    Ok(())
}

/// The references are generated from the types that they describe; tests fail when they are stale.
fn reference() -> Chore {
    for topic in ["config", "metrics"] {
        let output = Command::new("cargo")
            .args(["run", "--quiet", "--package", "leat", "--", "reference", topic])
            .current_dir(root())
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let path = root().join("docs").join(topic).with_extension("md");
        std::fs::write(&path, &output.stdout).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn cargo(arguments: &[&str]) -> Chore {
    run(Command::new("cargo").args(arguments))
}

fn run(command: &mut Command) -> Chore {
    let status = command.current_dir(root()).status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

/// The checkout that `cargo xtask` was called in. Asked for when it runs, as a target directory may have been built in another checkout.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
