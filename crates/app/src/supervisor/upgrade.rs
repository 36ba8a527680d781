//! A new binary takes over: this process starts over from the file on disk, keeping its number, its listeners and the running engine, which
//! serves until the new binary's engine is ready.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::Duration;

use leat_host::process::{inherit, keep_over_exec, kill_group};

use super::Source;
use super::engine_process::EngineProcess;
use super::listeners::Listeners;
use crate::log;

/// Names what the predecessor kept open: `PID:CHANNEL`, then for each listener `;NAME=FD,FD...`.
pub(super) const VARIABLE: &str = "LEAT_INHERITED";
/// Names the engines that the predecessor had told to end: `PID:CHANNEL`, joined by `;`. One of its own, as older binaries don't know it.
pub(super) const LEAVING_VARIABLE: &str = "LEAT_LEAVING";

/// Time that each question to a new binary may take: nothing else is done meanwhile, not even for an engine that crashes.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// More of what it says isn't kept.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// What `leat --version` says begins so.
const NAME: &str = "leat ";

/// What a predecessor left.
pub(super) struct Inherited {
    pub(super) listeners: Listeners,
    pub(super) engine: Option<EngineProcess>,
    /// They have connections still.
    pub(super) leaving: Vec<EngineProcess>,
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
    let engine = parse_engine(parts.next()?, false)?;
    let mut listeners = Listeners::default();
    for part in parts {
        let (name, numbers) = part.split_once('=')?;
        let sockets: Option<Vec<OwnedFd>> =
            numbers.split(',').map(|number| inherit(number.parse().ok()?).ok()).collect();
        listeners.adopt(name.parse().ok()?, sockets?).ok()?;
    }
    let leaving = std::env::var(LEAVING_VARIABLE).unwrap_or_default();
    let leaving = leaving.split(';').filter_map(|part| parse_engine(part, true)).collect();
    Some(Inherited { listeners, engine: Some(engine), leaving })
}

fn parse_engine(text: &str, is_draining: bool) -> Option<EngineProcess> {
    let (pid, channel) = text.split_once(':')?;
    Some(EngineProcess::adopt(pid.parse().ok()?, inherit(channel.parse().ok()?).ok()?, is_draining))
}

fn name_engine(engine: &EngineProcess) -> String {
    format!("{}:{}", engine.pid(), engine.channel().as_raw_fd())
}

/// The binary on disk, if it's a leat that accepts the configuration. Anything else would end everything: exec can't be undone.
pub(super) fn probe(source: &Source) -> io::Result<PathBuf> {
    let executable = executable()?;
    let Answer { status, said, complained } = ask(&executable, &["--version".as_ref()])?;
    if !status.success() {
        return Err(io::Error::other(format!("`{} --version` failed: {status}\n{complained}", executable.display())));
    }
    if !said.starts_with(NAME) {
        let line: String = said.chars().take_while(|character| *character != '\n').take(80).collect();
        let message = format!("{} isn't leat: `--version` says {line:?}", executable.display());
        return Err(io::Error::other(message));
    }
    if let Some(file) = source.file() {
        let Answer { status, complained, .. } = ask(&executable, &["check".as_ref(), file.as_os_str()])?;
        if !status.success() {
            let message = format!("it doesn't accept the configuration {}\n{complained}", file.display());
            return Err(io::Error::other(message));
        }
        if !complained.is_empty() {
            log::warning(complained);
        }
    }
    Ok(executable)
}

struct Answer {
    status: ExitStatus,
    said: String,
    /// On standard error.
    complained: String,
}

/// Runs a binary to its end. What it complains of is told the way of all messages: nobody may read our standard error.
fn ask(executable: &Path, arguments: &[&OsStr]) -> io::Result<Answer> {
    let mut command = Command::new(executable);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Whatever it starts can be ended with it.
    let no_start = |error| io::Error::other(format!("{} can't be started: {error}", executable.display()));
    let mut child = command.process_group(0).spawn().map_err(no_start)?;
    let (leader, (answer, answers)) = (child.id(), channel());
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let output = std::thread::spawn(move || read(output));
    std::thread::spawn(move || {
        let (complained, said) = (read(errors), output.join().unwrap_or_default());
        answer.send(child.wait().map(|status| Answer { status, said, complained }))
    });
    let Ok(answered) = answers.recv_timeout(ANSWER_TIME) else {
        kill_group(leader);
        let asked = arguments.join(" ".as_ref());
        let message = format!("`{} {}` took longer than {ANSWER_TIME:?}", executable.display(), asked.display());
        return Err(io::Error::new(io::ErrorKind::TimedOut, message));
    };
    answered
}

/// What comes by a pipe until its end, as far as it's kept. Who writes on and on is ended by the time that it takes.
fn read(pipe: Option<impl Read>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let mut bytes = Vec::new();
    let whole = pipe.by_ref().take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
    // It isn't to wait for somebody to read the rest.
    let _ = whole.and_then(|_| io::copy(&mut pipe, &mut io::sink()));
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

/// Becomes `executable`; returns only if that fails, with everything as it was. The caller holds notices back.
pub(super) fn start_over(
    executable: &Path,
    listeners: &Listeners,
    engine: &EngineProcess,
    leaving: &[EngineProcess],
) -> io::Error {
    let mut text = name_engine(engine);
    for group in listeners.groups() {
        let numbers: Vec<String> = group.sockets.iter().map(|socket| socket.as_raw_fd().to_string()).collect();
        text.push_str(&format!(";{}={}", group.name, numbers.join(",")));
    }
    let leaving_text: Vec<String> = leaving.iter().map(name_engine).collect();
    let engines = || leaving.iter().chain([engine]);
    if let Err(error) = keep_all(listeners, engines(), true) {
        return error;
    }
    let mut command = Command::new(executable);
    let command = command.args(std::env::args_os().skip(1)).env(VARIABLE, text);
    let error = command.env(LEAVING_VARIABLE, leaving_text.join(";")).exec();
    keep_all(listeners, engines(), false).err().unwrap_or(error)
}

/// As it was named when this process was started, symbolic links and all: whoever moves the old binary away, or has a link lead to another, means what is
/// there now.
static NAMED: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Notes by which path this process was started, as long as that leads to it.
pub(super) fn note_executable() {
    NAMED.get_or_init(|| {
        let name = PathBuf::from(std::env::args_os().next()?);
        let candidates = match name.components().count() {
            1 => std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(&name)).collect(),
            _ => vec![name],
        };
        let own = std::env::current_exe().and_then(fs::canonicalize).ok()?;
        let is_own = |path: &PathBuf| fs::canonicalize(path).is_ok_and(|found| found == own);
        std::path::absolute(candidates.into_iter().find(is_own)?).ok()
    });
}

/// The path that this process was started from, whatever file is there now.
fn executable() -> io::Result<PathBuf> {
    if let Some(Some(named)) = NAMED.get() {
        return Ok(named.clone());
    }
    let path = std::env::current_exe()?;
    // The kernel marks a file that was replaced since.
    let text = path.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map_or_else(|| path.clone(), Into::into))
}

fn keep_all<'a>(listeners: &Listeners, engines: impl Iterator<Item = &'a EngineProcess>, keep: bool) -> io::Result<()> {
    for engine in engines {
        keep_over_exec(engine.channel(), keep)?;
    }
    for socket in listeners.groups().iter().flat_map(|group| &group.sockets) {
        keep_over_exec(socket, keep)?;
    }
    Ok(())
}
