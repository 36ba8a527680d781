//! A new binary takes over: this process starts over from the file on disk, keeping its number, its listeners and the running engine, which
//! serves until the new binary's engine is ready.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use leat_host::process::{inherit, keep_over_exec};

use super::engine_process::EngineProcess;
use super::listeners::Listeners;
use crate::log;

/// Names what the predecessor kept open: `PID:CHANNEL`, then for each listener `;NAME=FD,FD...`.
pub(super) const VARIABLE: &str = "LEAT_INHERITED";

/// What a predecessor left.
pub(super) struct Inherited {
    pub(super) listeners: Listeners,
    pub(super) engine: Option<EngineProcess>,
}

/// Takes over what the predecessor left, if there was one.
pub(super) fn inherited() -> Option<Inherited> {
    let text = std::env::var(VARIABLE).ok()?;
    let inherited = parse(&text);
    if inherited.is_none() {
        log::warning(format_args!("{VARIABLE} can't be understood and is passed over: {text}"));
    }
    inherited
}

fn parse(text: &str) -> Option<Inherited> {
    let mut parts = text.split(';');
    let (pid, channel) = parts.next()?.split_once(':')?;
    let engine = EngineProcess::adopt(pid.parse().ok()?, inherit(channel.parse().ok()?).ok()?);
    let mut listeners = Listeners::default();
    for part in parts {
        let (name, numbers) = part.split_once('=')?;
        let sockets: Option<Vec<OwnedFd>> =
            numbers.split(',').map(|number| inherit(number.parse().ok()?).ok()).collect();
        listeners.adopt(name.parse().ok()?, sockets?).ok()?;
    }
    Some(Inherited { listeners, engine: Some(engine) })
}

/// Becomes the binary on disk; returns only if that fails, with everything as it was.
pub(super) fn start_over(listeners: &Listeners, engine: &EngineProcess) -> io::Error {
    match try_start_over(listeners, engine) {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

fn try_start_over(listeners: &Listeners, engine: &EngineProcess) -> io::Result<std::convert::Infallible> {
    let executable = executable()?;
    // A file that isn't a working leat would end everything: exec can't be undone.
    let probe = Command::new(&executable).arg("--version").stdout(Stdio::null()).stdin(Stdio::null()).status()?;
    if !probe.success() {
        return Err(io::Error::other(format!("`{} --version` failed: {probe}", executable.display())));
    }
    let mut text = format!("{}:{}", engine.pid(), engine.channel().as_raw_fd());
    for group in listeners.groups() {
        let numbers: Vec<String> = group.sockets.iter().map(|socket| socket.as_raw_fd().to_string()).collect();
        text.push_str(&format!(";{}={}", group.name, numbers.join(",")));
    }
    keep_all(listeners, engine, true)?;
    let error = Command::new(&executable).args(std::env::args_os().skip(1)).env(VARIABLE, text).exec();
    keep_all(listeners, engine, false)?;
    Err(error)
}

/// The path that this process was started from, whatever file is there now.
fn executable() -> io::Result<std::path::PathBuf> {
    let path = std::env::current_exe()?;
    // The kernel marks a file that was replaced since.
    let text = path.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map_or_else(|| path.clone(), Into::into))
}

fn keep_all(listeners: &Listeners, engine: &EngineProcess, keep: bool) -> io::Result<()> {
    keep_over_exec(engine.channel(), keep)?;
    for socket in listeners.groups().iter().flat_map(|group| &group.sockets) {
        keep_over_exec(socket, keep)?;
    }
    Ok(())
}
