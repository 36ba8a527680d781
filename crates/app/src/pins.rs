//! Where a server's eBPF maps and programs are pinned, so that they outlive its process: one directory for each part that it has in a cluster.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The BPF file system.
pub(crate) const DIRECTORY: &str = "/sys/fs/bpf";

/// How the names of all directories begin that belong to a network namespace, told apart by its inode: machines of a lab share a file system.
pub(crate) fn mark(namespace: u64) -> String {
    format!("leat-{namespace}-")
}

/// The directory for `part`, made if it isn't there.
///
/// # Errors
/// What is wrong, and the cure.
pub(crate) fn directory(part: &str) -> Result<PathBuf, String> {
    let namespace = fs::metadata("/proc/self/ns/net").map_err(|error| format!("/proc/self/ns/net: {error}"))?;
    let name: String = part.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect();
    let directory = Path::new(DIRECTORY).join(format!("{}{name}", mark(namespace.ino())));
    match fs::create_dir(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(format!(
            "{}: {error}; is the BPF file system mounted (mount -t bpf bpf {DIRECTORY}), and may leat write there?",
            directory.display()
        )),
        _ => Ok(directory),
    }
}
