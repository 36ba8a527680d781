//! Secrets from files of their own, so that the configuration can be shown to anybody: the key that the machines of a cluster share, and the token of
//! who may change something over HTTP.

use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::path::{reason, resolve};
use super::{Text, Wrong};
use crate::config::cluster::ClusterKey;
use crate::config::server::AdminToken;

/// The path of a file with 64 hexadecimal digits; none when empty.
pub(in crate::config) const CLUSTER_KEY: Text<Option<ClusterKey>> =
    Text { description: "file, or `\"\"`", example: "/etc/leat/cluster.key", parse: parse_key };

/// The path of a file with a token; none when empty.
pub(in crate::config) const ADMIN_TOKEN: Text<Option<AdminToken>> =
    Text { description: "file, or `\"\"`", example: "/etc/leat/admin.token", parse: parse_token };

const ALLOW: &str = "let whoever leat runs as read it";

/// More than any file with a key has.
const FILE_BYTES_MAX: u64 = 4096;

fn parse_key(written: &str, base: &Path) -> Result<Option<ClusterKey>, Wrong> {
    let what = "isn't a key: 64 hexadecimal digits and nothing else";
    let key = read(written, base, "cluster.key", what, ClusterKey::from_hex)?;
    Ok(key.map(|(key, _)| key))
}

fn parse_token(written: &str, base: &Path) -> Result<Option<AdminToken>, Wrong> {
    let what = "isn't a token: 32 to 512 visible ASCII characters and nothing else";
    let Some((token, path)) = read(written, base, "admin.token", what, AdminToken::new)? else { return Ok(None) };
    // Everybody on this machine reaches the admin address.
    if fs::metadata(&path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0) {
        return Wrong::new("can be read by everybody", format!("keep it from them: chmod o= {}", path.display()));
    }
    Ok(Some(token))
}

/// What `make` makes of a file's content, and where the file is; `what` says what is wrong where it makes nothing.
fn read<T>(
    written: &str,
    base: &Path,
    example: &str,
    what: &str,
    make: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<(T, PathBuf)>, Wrong> {
    if written.is_empty() {
        return Ok(None);
    }
    let path = resolve(written, base)?;
    // What is there isn't to be written over: it may be somebody's.
    let another =
        format!("write the path of a file of its own; to make one: (umask 077; openssl rand -hex 32 > {example})");
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
        return Wrong::new(what, another);
    }
    match fs::read(&path) {
        Ok(bytes) => match make(bytes.trim_ascii()) {
            Some(secret) => Ok(Some((secret, path))),
            None => Wrong::new(what, another),
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

    #[test]
    fn a_token_is_long_and_kept_from_others() {
        let path = std::env::temp_dir().join(format!("leat-token-{}", std::process::id()));
        let judge = |content: &str, mode: u32| {
            fs::write(&path, content).expect("it can be written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it's ours");
            parse_token(path.to_str().expect("a path in UTF-8"), Path::new("/"))
        };
        let good = "0123456789abcdef0123456789abcdef";
        let token = judge(&format!("{good}\n"), 0o640).ok().flatten().expect("it's a token");
        assert!(token.is(good.as_bytes()) && !token.is(b"") && !token.is(&good.as_bytes()[1..]));
        assert_eq!(format!("{token:?}"), "AdminToken");
        for (content, mode, expected) in [
            (good, 0o644, "can be read by everybody"),
            (&good[1..], 0o600, "isn't a token: 32 to 512 visible"),
            ("0123456789abcdef 0123456789abcdef", 0o600, "isn't a token"),
            ("", 0o600, "isn't a token"),
        ] {
            let wrong = judge(content, mode).expect_err("it's no good");
            assert!(wrong.what.starts_with(expected) && !wrong.help.is_empty(), "{content}: {}", wrong.what);
        }
        fs::remove_file(&path).expect("it's there");
    }
}
