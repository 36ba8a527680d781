//! Namespaces and what is in them, by `ip` and `tc` from iproute2. What is built is `plan`'s to say.

use std::collections::HashMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use leat_host::namespace;

use super::NAMESPACES;
use super::plan::Step;

/// Takes the steps in their order until one fails. Starting `ip` takes longer than what it does: what one after the other is done in the same namespace,
/// one process does.
///
/// # Errors
/// Which one, and what it says.
pub(super) fn run_all(steps: &[Step]) -> Result<(), String> {
    let mut steps = steps.iter().peekable();
    while let Some(step) = steps.next() {
        match step {
            Step::Set { namespace, setting, may_lack } => set(namespace, setting, *may_lack)?,
            Step::Run(command) => match in_namespace(command) {
                None => drop(run(command)?),
                Some((namespace, first)) => {
                    let mut batch = vec![first];
                    while let Some(Step::Run(next)) = steps.peek()
                        && let Some((_, next)) = in_namespace(next).filter(|(other, _)| *other == namespace)
                    {
                        batch.push(next);
                        steps.next();
                    }
                    run_batch(namespace, &batch)?;
                }
            },
        }
    }
    Ok(())
}

/// The namespace in which `ip` does something, and what.
fn in_namespace(command: &str) -> Option<(&str, &str)> {
    command.strip_prefix("ip -n ")?.split_once(' ')
}

/// Has one `ip` do all of that in a namespace, until one fails.
fn run_batch(namespace: &str, batch: &[&str]) -> Result<(), String> {
    let program = format!("ip -n {namespace} -batch -");
    let Output { status, stderr, .. } = output(&program, &batch.join("\n"))?;
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&stderr);
    // It ends with "Command failed -:3", by the number of the line.
    let line = said.rsplit_once("Command failed -:").and_then(|(_, line)| line.trim().parse::<usize>().ok());
    let failed = line.and_then(|line| batch.get(line.checked_sub(1)?)).unwrap_or(&"-batch -");
    let said = said.split("Command failed").next().unwrap_or_default();
    Err(failure(&format!("ip -n {namespace} {failed}"), said))
}

fn set(name: &str, setting: &str, may_lack: bool) -> Result<(), String> {
    let (parameter, value) = setting.split_once('=').unwrap_or((setting, ""));
    match namespace::set(&file(name), parameter, value) {
        Err(error) if error.kind() == ErrorKind::NotFound && may_lack => Ok(()),
        Err(error) => Err(failure(&format!("sysctl {setting}"), &error.to_string())),
        Ok(()) => Ok(()),
    }
}

/// Runs a command, whose words stand between single spaces, and gives what it prints.
///
/// # Errors
/// What it says.
pub(super) fn run(step: &str) -> Result<String, String> {
    let Output { status, stdout, stderr } = output(step, "")?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    Err(failure(step, &String::from_utf8_lossy(&stderr)))
}

/// What comes of a command that is told `input`.
fn output(command: &str, input: &str) -> Result<Output, String> {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let package = if program == "ip" || program == "tc" { " (it's in the package iproute2)" } else { "" };
    let cannot = |error| format!("{program} can't be run: {error}{package}");
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that reads no more says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output().map_err(cannot)
}

/// What to tell of a step that failed.
fn failure(step: &str, said: &str) -> String {
    let said = said.trim();
    let cure = match said {
        _ if said.contains("not permitted") || said.contains("Permission denied") => ": a lab needs root",
        _ if said.contains("ethtool") && said.contains("No such file") => {
            ": install ethtool, or set offloads = true in [lab]"
        }
        _ => "",
    };
    format!("`{step}` failed: {said}{cure}")
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

/// The processes in each of these namespaces.
///
/// # Errors
/// They can't be listed.
pub(super) fn processes(namespaces: &[String]) -> Result<Vec<Vec<u32>>, String> {
    let told = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let mut places = HashMap::new();
    for (place, name) in namespaces.iter().enumerate() {
        let path = file(name);
        places.insert(identity(&path).map_err(|error| told(&path, error))?, place);
    }
    let mut found = vec![Vec::new(); namespaces.len()];
    let directory = Path::new("/proc");
    for entry in fs::read_dir(directory).map_err(|error| told(directory, error))?.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that has ended has none.
        let of_process = identity(&namespace_of(process)).ok();
        if let Some(place) = of_process.and_then(|identity| places.get(&identity)) {
            found[*place].push(process);
        }
    }
    Ok(found)
}

/// Whether a process is in a namespace.
pub(super) fn is_inside(namespace: &str, process: u32) -> bool {
    identity(&file(namespace)).is_ok_and(|namespace| identity(&namespace_of(process)).is_ok_and(|own| own == namespace))
}

/// What a namespace is known by: the device and inode of a file that stands for it.
fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

/// The file that stands for a process's namespace.
fn namespace_of(process: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/ns/net"))
}

/// How many neighbours the kernel knows at once in each family, in all namespaces together; nothing where it doesn't say.
pub(super) fn neighbours_max() -> impl Iterator<Item = (&'static str, usize)> {
    ["ipv4", "ipv6"].into_iter().filter_map(|family| {
        let file = format!("/proc/sys/net/{family}/neigh/default/gc_thresh3");
        Some((family, fs::read_to_string(file).ok()?.trim().parse().ok()?))
    })
}

/// The file that stands for a namespace.
fn file(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

/// The argument by which `nsenter` enters a namespace.
pub(super) fn enter(namespace: &str) -> String {
    format!("--net={}", file(namespace).display())
}

#[cfg(test)]
mod tests {
    use leat_host::namespace;

    use super::{Step, processes, run, run_all};

    #[test]
    fn what_fails_is_told_with_what_it_said() {
        let told = run("ls /nowhere/at/all").expect_err("there is no such thing");
        assert!(told.starts_with("`ls /nowhere/at/all` failed: ") && told.contains("No such file"), "{told}");
        let told = run("no-such-program x").expect_err("there is no such program");
        assert!(told.starts_with("no-such-program can't be run: "), "{told}");
    }

    #[test]
    fn of_steps_that_are_taken_together_the_one_that_fails_is_told() {
        let Some(place) = namespace::for_test("ground") else { return };
        let name = place.name();
        let ip = |what: &str| Step::Run(format!("ip -n {name} {what}"));
        let set = |setting: &str, may_lack| Step::Set { namespace: name.to_owned(), setting: setting.into(), may_lack };
        let steps = [
            ip("link add one type bridge"),
            ip("link add two type bridge"),
            set("net.ipv4.conf.two.arp_ignore=1", false),
            set("net.ipv4.conf.three.arp_ignore=1", true),
            ip("link set one up"),
            ip("link set three up"),
            ip("link set two up"),
        ];
        let told = run_all(&steps).expect_err("there is no third link");
        assert!(told.starts_with(&format!("`ip -n {name} link set three up` failed: Cannot find device")), "{told}");
        let is_up = |device| run(&format!("ip -n {name} link show {device}")).expect("it's there").contains("UP");
        assert!(is_up("one") && !is_up("two"), "what comes before is done, and nothing after it");
        assert_eq!(run(&format!("ip netns exec {name} sysctl -n net.ipv4.conf.two.arp_ignore")), Ok("1\n".to_owned()));
        let told = run_all(&[set("net.ipv4.conf.three.arp_ignore=1", false)]).expect_err("there is no third link");
        assert!(told.starts_with("`sysctl net.ipv4.conf.three.arp_ignore=1` failed: /proc/sys/net/"), "{told}");
    }

    #[test]
    fn processes_are_found_where_they_are() {
        let Some(place) = namespace::for_test("pids") else { return };
        let names = [place.name().to_owned()];
        assert_eq!(processes(&names), Ok(vec![vec![]]));
        let mut sleeper = std::process::Command::new("nsenter")
            .args([&super::enter(place.name()), "sleep", "60"])
            .spawn()
            .expect("nsenter can be run");
        // It has entered when it's there.
        while processes(&names) != Ok(vec![vec![sleeper.id()]]) {
            assert_eq!(sleeper.try_wait().expect("it can be waited for"), None);
            std::thread::yield_now();
        }
        sleeper.kill().expect("it can be ended");
        sleeper.wait().expect("it has ended");
        assert_eq!(processes(&names), Ok(vec![vec![]]));
        assert!(processes(&["leat-nowhere".to_owned()]).is_err_and(|told| told.contains("leat-nowhere: No such file")));
    }
}
