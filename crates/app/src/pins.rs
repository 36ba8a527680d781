//! Where a server's eBPF maps and programs are pinned, so that they outlive its process: one directory for each part that it has in a cluster.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leat_host::users;

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
    make(&directory, users::own_id()).map(|()| directory)
}

/// Makes a directory for somebody, if it isn't theirs already. Root may write in anybody's.
fn make(directory: &Path, user: u32) -> Result<(), String> {
    match fs::create_dir(directory) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(format!(
            "{}: {error}; is the BPF file system mounted (mount -t bpf bpf {DIRECTORY}), and may leat write there?",
            directory.display()
        )),
        Err(_) => match fs::metadata(directory).map(|metadata| metadata.uid()) {
            // The kernel would only say that a file exists.
            Ok(owner) if user != 0 && owner != user => Err(format!(
                "{0} belongs to user {owner}, as whom leat has run before, and not to user {user}: run it as that one, or remove what is left (rm -r {0})",
                directory.display()
            )),
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_user_has_left_is_told_with_its_owner() {
        let directory = std::env::temp_dir().join(format!("leat-pins-{}", std::process::id()));
        make(&directory, users::own_id()).expect("it can be made");
        make(&directory, users::own_id()).expect("it's ours");
        make(&directory, 0).expect("root may");
        let own = fs::metadata(&directory).expect("it's there").uid();
        let error = make(&directory, own + 1).expect_err("it's another's");
        fs::remove_dir(&directory).expect("it's empty");
        assert!(error.contains(&format!("belongs to user {own}, ")), "{error}");
        assert!(error.ends_with(&format!("(rm -r {})", directory.display())), "{error}");
    }
}
