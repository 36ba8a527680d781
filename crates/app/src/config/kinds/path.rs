//! Files and directories, and the names of files within a site.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::{Text, Wrong};
use crate::config::site::AccessLogTarget;

/// A directory that exists; absolute after reading.
pub(in crate::config) const DIRECTORY: Text<PathBuf> =
    Text { description: "directory", example: "/srv/www", parse: parse_directory };

fn parse_directory(written: &str, base: &Path) -> Result<PathBuf, Wrong> {
    let path = resolve(written, base)?;
    match is_directory(&path) {
        Ok(true) => Ok(path),
        Ok(false) => Wrong::new("isn't a directory", "write the directory that the files are in"),
        Err(error) => Wrong::new(
            format!("can't be used: {}", reason(&error)),
            format!("create {}, or write another directory; relative ones start where the file is", path.display()),
        ),
    }
}

/// Whether it's a directory.
///
/// # Errors
/// It isn't there, or is a directory in which this user may look for nothing.
pub(in crate::config) fn is_directory(path: &Path) -> std::io::Result<bool> {
    let is_directory = std::fs::metadata(path)?.is_dir();
    if is_directory {
        // Its own dot is the one name that each has.
        std::fs::metadata(path.join("."))?;
    }
    Ok(is_directory)
}

/// Where an access log goes; nowhere when empty.
pub(in crate::config) const ACCESS_LOG: Text<Option<AccessLogTarget>> =
    Text { description: "file, `\"-\"` or `\"\"`", example: "/var/log/leat/access.log", parse: parse_access_log };

/// Where a Unix socket is made; nowhere when empty.
pub(in crate::config) const SOCKET: Text<Option<PathBuf>> =
    Text { description: "path, or `\"\"`", example: "/run/leat.sock", parse: parse_socket };

/// The kernel's bound on a socket's path, with room for the name under which it's made.
const SOCKET_BYTES_MAX: usize = 96;

fn parse_socket(written: &str, base: &Path) -> Result<Option<PathBuf>, Wrong> {
    if written.is_empty() {
        return Ok(None);
    }
    let path = resolve(written, base)?;
    if path.as_os_str().len() > SOCKET_BYTES_MAX {
        return Wrong::new("is too long for a socket", format!("write a path of {SOCKET_BYTES_MAX} bytes at most"));
    }
    // What stands there would be replaced.
    let is_free = std::fs::metadata(&path).map_or(true, |found| found.file_type().is_socket());
    match path.parent() {
        Some(parent) if parent.is_dir() && is_free => Ok(Some(path)),
        Some(parent) if parent.is_dir() => {
            Wrong::new("is there, and no socket", "write a name that nothing else has, as in \"/run/leat.sock\"")
        }
        _ => Wrong::new("can't be a socket", "write a name in a directory that exists, as in \"/run/leat.sock\""),
    }
}

fn parse_access_log(written: &str, base: &Path) -> Result<Option<AccessLogTarget>, Wrong> {
    match written {
        "" => return Ok(None),
        "-" => return Ok(Some(AccessLogTarget::StandardOutput)),
        _ => {}
    }
    let path = resolve(written, base)?;
    if path.is_dir() {
        return Wrong::new("is a directory", "write a file, as in \"/var/log/leat/access.log\"");
    }
    let parent = path.parent().unwrap_or(base);
    if !parent.is_dir() {
        let help = format!("create the directory {}, or write another file", parent.display());
        return Wrong::new("can't be created: its directory doesn't exist", help);
    }
    Ok(Some(AccessLogTarget::File(path)))
}

pub(in crate::config) fn resolve(written: &str, base: &Path) -> Result<PathBuf, Wrong> {
    if written.is_empty() {
        return Wrong::new(
            "isn't a path",
            "write a path; relative ones start where the file is, \".\" is that directory",
        );
    }
    if written.contains('\0') {
        return Wrong::new("isn't a path", "take the NUL character out");
    }
    std::path::absolute(base.join(written))
        .or_else(|error| Wrong::new(format!("can't be used: {}", reason(&error)), ""))
}

/// An error's text without the number that the library adds.
pub(in crate::config) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// A file's name without directories.
pub(in crate::config) const FILE_NAME: Text<String> =
    Text { description: "file name", example: "index.html", parse: parse_file_name };

fn parse_file_name(written: &str, _: &Path) -> Result<String, Wrong> {
    if matches!(written, "" | "." | "..") || written.contains(['/', '\0']) || written.len() > 255 {
        return Wrong::new("isn't a file name", "write a name without directories, as in \"index.html\"");
    }
    Ok(written.to_owned())
}

/// The same, or nothing.
pub(in crate::config) const FILE_NAME_OR_NONE: Text<Option<String>> = Text {
    description: "file name or `\"\"`",
    example: "index.php",
    parse: |written, base| if written.is_empty() { Ok(None) } else { parse_file_name(written, base).map(Some) },
};

/// A file of the site, by its path below the root.
pub(in crate::config) const URL_PATH: Text<String> =
    Text { description: "path in the site", example: "/404.html", parse: parse_url_path };

fn parse_url_path(written: &str, _: &Path) -> Result<String, Wrong> {
    let Some(below) = written.strip_prefix('/') else {
        return Wrong::new(
            "doesn't begin with a slash",
            format!("write \"/{written}\": the path starts at the site's root"),
        );
    };
    if below.contains('\0') || below.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Wrong::new(
            "isn't the path of a file",
            "write it without empty, . or .. parts, as in \"/errors/404.html\"",
        );
    }
    Ok(written.to_owned())
}

/// The same, or nothing.
pub(in crate::config) const URL_PATH_OR_NONE: Text<Option<String>> = Text {
    description: "path in the site, or `\"\"`",
    example: "/index.html",
    parse: |written, base| if written.is_empty() { Ok(None) } else { parse_url_path(written, base).map(Some) },
};

/// Longer ones aren't looked up.
const EXTENSION_BYTES_MAX: usize = 32;

/// A file name's extension; without its dot and in lower case after reading.
pub(in crate::config) const EXTENSION: Text<String> =
    Text { description: "extension", example: ".foo", parse: parse_extension };

fn parse_extension(written: &str, _: &Path) -> Result<String, Wrong> {
    let Some(extension) = written.strip_prefix('.') else {
        return Wrong::new("doesn't begin with a dot", format!("write \".{written}\""));
    };
    if extension.is_empty() || extension.len() > EXTENSION_BYTES_MAX || extension.contains(['/', '.', '\0']) {
        return Wrong::new("isn't an extension", "write a dot and the part after the name's last dot, as in \".foo\"");
    }
    Ok(extension.to_ascii_lowercase())
}
