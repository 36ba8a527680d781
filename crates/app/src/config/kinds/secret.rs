//! The key that the machines of a cluster share, from a file of its own, so that the configuration can be shown to anybody.

use std::path::Path;

use super::path::{reason, resolve};
use super::{Text, Wrong};
use crate::config::cluster::ClusterKey;

/// The path of a file with 64 hexadecimal digits; none when empty.
pub(in crate::config) const CLUSTER_KEY: Text<Option<ClusterKey>> =
    Text { description: "file, or `\"\"`", example: "/etc/leat/cluster.key", parse: parse_key };

fn parse_key(written: &str, base: &Path) -> Result<Option<ClusterKey>, Wrong> {
    if written.is_empty() {
        return Ok(None);
    }
    let path = resolve(written, base)?;
    let make = format!("make one with: (umask 077; openssl rand -hex 32 > {})", path.display());
    match std::fs::read(&path) {
        Ok(bytes) => match ClusterKey::from_hex(bytes.trim_ascii()) {
            Some(key) => Ok(Some(key)),
            None => Wrong::new("isn't a key: 64 hexadecimal digits and nothing else", make),
        },
        Err(error) => Wrong::new(format!("can't be read: {}", reason(&error)), make),
    }
}
