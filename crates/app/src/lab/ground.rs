//! Namespaces and what is in them, by `ip` and `tc` from iproute2. What is built is `plan`'s to say.

use std::process::{Command, Output};

/// Runs commands in their order until one fails.
///
/// # Errors
/// Which one, and what it says.
pub(super) fn run_all(steps: &[String]) -> Result<(), String> {
    steps.iter().try_for_each(|step| run(step).map(drop))
}

/// Runs a command, whose words stand between single spaces, and gives what it prints.
///
/// # Errors
/// What it says.
pub(super) fn run(step: &str) -> Result<String, String> {
    let mut words = step.split(' ');
    let program = words.next().unwrap_or_default();
    let package = if program == "ip" || program == "tc" { " (it's in the package iproute2)" } else { "" };
    let ended = Command::new(program).args(words).output();
    let Output { status, stdout, stderr } =
        ended.map_err(|error| format!("{program} can't be run: {error}{package}"))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&stderr);
    let said = said.trim();
    let cure = match said {
        _ if said.contains("not permitted") || said.contains("Permission denied") => ": a lab needs root",
        _ if said.contains("ethtool") && said.contains("No such file") => {
            ": install ethtool, or set offloads = true in [lab]"
        }
        _ => "",
    };
    Err(format!("`{step}` failed: {said}{cure}"))
}

/// The namespaces whose names begin with `prefix`.
///
/// # Errors
/// They can't be listed.
pub(super) fn namespaces(prefix: &str) -> Result<Vec<String>, String> {
    // Each line is a name, with a number in brackets where somebody gave it one.
    let names = run("ip netns list")?;
    let names = names.lines().filter_map(|line| line.split_whitespace().next());
    Ok(names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect())
}

/// The processes in a namespace.
///
/// # Errors
/// They can't be listed.
pub(super) fn processes(namespace: &str) -> Result<Vec<u32>, String> {
    Ok(run(&format!("ip netns pids {namespace}"))?.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

/// The argument by which `nsenter` enters a namespace.
pub(super) fn enter(namespace: &str) -> String {
    format!("--net=/run/netns/{namespace}")
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn what_fails_is_told_with_what_it_said() {
        let told = run("ls /nowhere/at/all").expect_err("there is no such thing");
        assert!(told.starts_with("`ls /nowhere/at/all` failed: ") && told.contains("No such file"), "{told}");
        let told = run("no-such-program x").expect_err("there is no such program");
        assert!(told.starts_with("no-such-program can't be run: "), "{told}");
    }
}
