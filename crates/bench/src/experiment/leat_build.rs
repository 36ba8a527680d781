//! Builds leat before it is measured, so that one command does all.

use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Builds the binary in the profile that this program was built in, and gives its path, which is beside this program's.
///
/// # Errors
/// There is no cargo, or leat doesn't build.
pub(crate) fn build() -> io::Result<PathBuf> {
    let failed = |what: &str| {
        let message = format!("leat isn't built: {what}. Give a binary with --leat PATH");
        io::Error::new(io::ErrorKind::NotFound, message)
    };
    let binary = std::env::current_exe()?.with_file_name("leat");
    let target = binary.parent().and_then(|profile| profile.parent()).ok_or_else(|| failed("no target folder"))?;
    // Cargo names itself and the package's folder to what it runs; by hand, the workspace is looked for from here.
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "-p", "leat", "--bin", "leat", "--target-dir"]).arg(target);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    if let Some(folder) = std::env::var_os("CARGO_MANIFEST_DIR") {
        command.current_dir(folder);
    }
    let status = command.status().map_err(|error| failed(&format!("cargo doesn't start: {error}")))?;
    if status.success() { Ok(binary) } else { Err(failed(&format!("cargo ended with {status}"))) }
}
