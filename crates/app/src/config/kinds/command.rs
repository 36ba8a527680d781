//! Programs to be started, and where one listens that somebody else has started.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use leat_host::reactor::Peer;
use toml::Spanned;
use toml::de::DeValue;

use super::path::{reason, resolve};
use super::{ADDRESS, Describe, Kind, Text, Wrong};
use crate::config::handler::Upstream;
use crate::config::schema::At;

/// A program and its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Absolute after reading.
    pub program: PathBuf,
    /// Without the program's name.
    pub arguments: Vec<String>,
}

/// A program's file, or a list of it and its arguments.
pub(in crate::config) struct CommandLine {
    /// Whether a directory of programs will do.
    pub(in crate::config) or_directory: bool,
}

impl Describe for CommandLine {
    fn describe(&self) -> String {
        let or_directory = if self.or_directory { ", or a directory of programs" } else { "" };
        format!("program, or list of a program and its arguments{or_directory}")
    }

    fn example(&self) -> String {
        "[\"/srv/app/run\", \"--argument\"]".to_owned()
    }
}

impl Kind for CommandLine {
    type Value = Command;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<Command> {
        let single = std::slice::from_ref(value);
        let words: Vec<&Spanned<DeValue<'_>>> = match value.get_ref() {
            DeValue::Array(words) => words.iter().collect(),
            _ => single.iter().collect(),
        };
        let mut texts = Vec::with_capacity(words.len());
        for word in &words {
            let DeValue::String(text) = word.get_ref() else {
                at.wrong_type(word, &format!("strings, as in {}", self.example()));
                return None;
            };
            if text.contains('\0') {
                at.error(word.span(), "this has a NUL character", "take it out");
                return None;
            }
            texts.push(text.to_string());
        }
        let Some(first) = texts.first() else {
            at.error(value.span(), "this has no program", format!("write one, as in {}", self.example()));
            return None;
        };
        let program = self.program(first, texts.len() > 1, at.context.base);
        let program =
            program.map_err(|wrong| at.error(words[0].span(), format!("{first:?} {}", wrong.what), wrong.help)).ok()?;
        Some(Command { program, arguments: texts.split_off(1) })
    }

    fn otherwise(&self, _at: &At<'_>) -> Option<Command> {
        Some(Command::default())
    }
}

impl CommandLine {
    fn program(&self, written: &str, has_arguments: bool, base: &Path) -> Result<PathBuf, Wrong> {
        let path = resolve(written, base)?;
        let help = "write the path of a program; relative ones start where the configuration file is";
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() && self.or_directory && !has_arguments => Ok(path),
            Ok(metadata) if metadata.is_dir() => Wrong::new("is a directory", help),
            Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
                Wrong::new("isn't executable", format!("run chmod +x {}, or write another program", path.display()))
            }
            Ok(_) => Ok(path),
            Err(error) => {
                let elsewhere = in_search_path(written, &std::env::var_os("PATH").unwrap_or_default());
                let help = elsewhere.map_or(help.to_owned(), |path| format!("write \"{}\"", path.display()));
                Wrong::new(format!("can't be used: {}", reason(&error)), help)
            }
        }
    }
}

/// Where a shell would find a program that is written as a name only. It isn't looked for there when it's started: what that finds depends on who starts leat.
fn in_search_path(name: &str, directories: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let mut paths = std::env::split_paths(directories).filter(|directory| directory.is_absolute());
    let is_name = !name.is_empty() && !name.contains('/');
    is_name.then(|| paths.find_map(|directory| Some(directory.join(name)).filter(is_program)))?
}

/// Where a responder listens; nowhere when empty.
pub(in crate::config) const PEER: Text<Option<Peer>> = Text {
    description: "address and port, `\"unix:/path\"` or `\"\"`",
    example: "unix:/run/php.sock",
    parse: parse_peer,
};

/// A server that requests are passed on to.
pub(in crate::config) const UPSTREAM: Text<Upstream> = Text {
    description: "address or name, and port, or `\"unix:/path\"`",
    example: "127.0.0.1:9000",
    parse: parse_upstream,
};

fn parse_upstream(written: &str, base: &Path) -> Result<Upstream, Wrong> {
    let is_named = |(host, _): &(&str, &str)| is_host_name(host) && !written.starts_with("unix:");
    if let Some((host, port)) = written.rsplit_once(':').filter(is_named) {
        return match port.parse() {
            Ok(0) | Err(_) => Wrong::new(format!("has the port \"{port}\""), "a port is a number from 1 to 65535"),
            Ok(port) => Ok(Upstream::Named(host.to_ascii_lowercase(), port)),
        };
    }
    // As nginx and Caddy have it; what else is wrong with a URL is said below.
    if let Some(rest) = written.strip_prefix("http://")
        && let Ok(Upstream::Named(host, port)) = parse_upstream(rest.trim_end_matches('/'), base)
    {
        return Wrong::new("isn't an address with a port", format!("leave out \"http://\": write \"{host}:{port}\""));
    }
    if is_host_name(written) {
        return Wrong::new("has no port", format!("write \"{written}:80\", or the port at which it listens"));
    }
    if let Some((host, port)) = written.rsplit_once(':')
        && host.starts_with(|first: char| first.is_ascii_alphanumeric())
        && host.parse::<IpAddr>().is_err()
        && !host.contains([':', '/'])
        && port.parse::<u16>().is_ok()
    {
        let help = "write it as in \"127.0.0.1:8080\", \"[::1]:8080\" or \"app.internal:8080\"";
        return Wrong::new(format!("has \"{host}\", which is neither an IP address nor a name"), help);
    }
    // Nothing is no address.
    let peer = if written.is_empty() { None } else { parse_peer(written, base)? };
    peer.map_or_else(|| (ADDRESS.parse)(written, base).map(Peer::Internet), Ok).map(Upstream::At)
}

/// Whether this is a name that can be looked up (RFC 1123 section 2.1, and underscores, as containers have them), and no address.
fn is_host_name(written: &str) -> bool {
    let is_label = |label: &str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(good) && !label.starts_with('-') && !label.ends_with('-')
    };
    let mut labels = written.strip_suffix('.').unwrap_or(written).split('.');
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    written.len() <= 253 && labels.clone().all(is_label) && !labels.next_back().is_some_and(is_number)
}

fn parse_peer(written: &str, base: &Path) -> Result<Option<Peer>, Wrong> {
    if written.is_empty() {
        return Ok(None);
    }
    if let Some(path) = written.strip_prefix("unix:") {
        return Ok(Some(Peer::Unix(resolve(path, base)?)));
    }
    // Also as nginx and Caddy have it.
    let path = |prefix: &&str| written.strip_prefix(*prefix).filter(|path| path.starts_with('/'));
    if let Some(path) = ["", "http://unix:", "unix/"].iter().find_map(path) {
        return Wrong::new("isn't an address with a port", format!("write \"unix:{path}\""));
    }
    match (ADDRESS.parse)(written, base)? {
        address if address.port() == 0 => Wrong::new("has no port", "write the port at which it listens"),
        address => Ok(Some(Peer::Internet(address))),
    }
}

/// A program's environment variable.
pub(in crate::config) const VARIABLE_NAME: Text<String> =
    Text { description: "name", example: "APP_MODE", parse: parse_variable_name };

fn parse_variable_name(written: &str, _: &Path) -> Result<String, Wrong> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if written.is_empty() || !written.chars().all(good) || written.starts_with("HTTP_") {
        let help = "write letters, digits and underscores, as in APP_MODE = \"test\"; HTTP_ is for what clients send";
        return Wrong::new("isn't the name of a variable", help);
    }
    Ok(written.to_owned())
}

/// Its value.
pub(in crate::config) const VARIABLE_VALUE: Text<String> =
    Text { description: "string", example: "test", parse: parse_variable_value };

fn parse_variable_value(written: &str, _: &Path) -> Result<String, Wrong> {
    if written.contains('\0') {
        return Wrong::new("has a NUL character", "take it out");
    }
    Ok(written.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_where_a_shell_would_find_it() {
        let directories =
            std::env::join_paths(["relative", "/nothing-here", "/etc", "/bin", "/usr/bin"]).expect("none has a colon");
        assert_eq!(in_search_path("sh", &directories), Some(PathBuf::from("/bin/sh")));
        // No program; a path; nothing.
        for written in ["fstab", "./sh", "/bin/sh", "", "no-such-program"] {
            assert_eq!(in_search_path(written, &directories), None, "{written:?}");
        }
        assert_eq!(in_search_path("sh", OsStr::new("")), None);
    }
}
