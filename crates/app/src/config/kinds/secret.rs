//! The key that the machines of a cluster share, from a file of its own, so that the configuration can be shown to anybody.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

use super::path::{reason, resolve};
use super::{Text, Wrong};
use crate::config::cluster::ClusterKey;

/// The path of a file with 64 hexadecimal digits; none when empty.
pub(in crate::config) const CLUSTER_KEY: Text<Option<ClusterKey>> =
    Text { description: "file, or `\"\"`", example: "/etc/leat/cluster.key", parse: parse_key };

const ALLOW: &str = "let whoever leat runs as read it";

/// More than any file with a key has.
const FILE_BYTES_MAX: u64 = 4096;

fn parse_key(written: &str, base: &Path) -> Result<Option<ClusterKey>, Wrong> {
    if written.is_empty() {
        return Ok(None);
    }
    let path = resolve(written, base)?;
    // What is there isn't to be written over: it may be somebody's.
    let another = "write the path of a file of its own; to make one: (umask 077; openssl rand -hex 32 > cluster.key)";
    let unread = |error: &Error| format!("can't be read: {}", reason(error));
    let metadata = match fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let make = format!("make one with: (umask 077; openssl rand -hex 32 > {})", path.display());
            return Wrong::new(unread(&error), make);
        }
        Err(error) => return Wrong::new(unread(&error), ALLOW),
    };
    if !metadata.is_file() {
        // Reading a pipe or a device may never end.
        return Wrong::new("isn't a regular file", another);
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Wrong::new("isn't a key: 64 hexadecimal digits and nothing else", another);
    }
    match fs::read(&path) {
        Ok(bytes) => match ClusterKey::from_hex(bytes.trim_ascii()) {
            Some(key) => Ok(Some(key)),
            None => Wrong::new("isn't a key: 64 hexadecimal digits and nothing else", another),
        },
        Err(error) => Wrong::new(unread(&error), ALLOW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_is_no_key_is_neither_waited_for_nor_to_be_written_over() {
        for written in ["/dev/zero", "/dev/null", "/", "/proc/self/exe", "/proc/self/status"] {
            let wrong = parse_key(written, Path::new("/")).expect_err("it isn't a key");
            assert!(!wrong.help.contains(&format!("> {written})")), "{written}: {}", wrong.help);
        }
        let wrong = parse_key("/proc/self/404.key", Path::new("/")).expect_err("there is none");
        assert!(wrong.help.ends_with("> /proc/self/404.key)"), "{}", wrong.help);
    }
}
