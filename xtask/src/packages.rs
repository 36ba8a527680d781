//! What tests need and a machine may lack, from Debian's packages: installed where that is allowed, named where it isn't.

use std::process::{Command, Stdio};

/// Makes sure that packages are there.
///
/// # Errors
/// Which are missing, and the command that installs them.
pub(crate) fn install(packages: &[&str]) -> Result<(), String> {
    let missing: Vec<&str> = packages.iter().copied().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get update && apt-get install --yes --no-install-recommends {}", missing.join(" "));
    if !is_root() {
        return Err(format!("the tests need packages that this machine lacks. As root:\n  {install}"));
    }
    println!("installing {}", missing.join(", "));
    let status = Command::new("sh")
        .args(["-c", &install])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("{install}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{install}: {status}")) }
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| output.stdout == b"installed")
}
