//! Where the eBPF maps of a lab's members live: the file system for them, and what members leave there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::ground;
use crate::pins::{self, FILE_SYSTEM, PARENTS};

/// Mounts the file system for pins, if nobody has.
///
/// # Errors
/// What mount says.
pub(super) fn mount() -> Result<(), String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let is_mounted = mounts.lines().any(|line| line.split(' ').nth(1) == Some(FILE_SYSTEM) && line.contains(" bpf "));
    if is_mounted { Ok(()) } else { ground::run(&format!("mount -t bpf bpf {FILE_SYSTEM}")).map(drop) }
}

/// Removes what members in these namespaces have pinned.
///
/// # Errors
/// What can't be removed.
pub(super) fn remove_all(namespaces: &[String]) -> Result<(), String> {
    for namespace in namespaces {
        let Ok(metadata) = fs::metadata(Path::new("/run/netns").join(namespace)) else { continue };
        let mark = pins::mark(metadata.ino());
        for entry in PARENTS.iter().flat_map(fs::read_dir).flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&mark) {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
    }
    Ok(())
}
