//! The engine as the supervisor sees it: a child process with a channel, which is its standard input.
//!
//! | supervisor says | engine answers |
//! |---|---|
//! | `listen NAME`, with sockets to add to it | |
//! | `apply`, with the text of the configuration's file (see `channel::text_as_descriptor`): put it in force | `applied`, or `refused REASON` |
//! | `prepare`, with the same: get all that it takes. `apply` without a text puts it in force | `prepared`, or `refused REASON` |
//! | `drain MILLISECONDS idle\|busy`: accept no more; keep idle connections until the end, or not. With a socket: give them all to the engine at its other end | (it ends) |
//! | `drain MILLISECONDS resigning`: give up what another dispatcher's engine is to have of nodes, and go on without. One that can't drains | `resigned`, or (it ends) |
//! | `resume`: have that again | |
//! | `take`, with a socket: the engine at its other end gives its connections | |
//! | `reopen`: open log files anew | |
//! | | `released NAME COUNT`: all sockets after the first COUNT are closed here |

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use leat_host::channel;
use leat_host::users::{self, User};

use super::{Event, Source};
use crate::listener::ListenerName;
use crate::log;

/// What an engine says.
pub(super) enum Report {
    Applied,
    Prepared,
    Refused(String),
    Resigned,
    Released { name: ListenerName, count: usize },
}

impl Report {
    fn parse(text: &str) -> Option<Report> {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        match verb {
            "applied" => Some(Report::Applied),
            "prepared" => Some(Report::Prepared),
            "resigned" => Some(Report::Resigned),
            "refused" => Some(Report::Refused(rest.to_owned())),
            "released" => {
                let (name, count) = rest.split_once(' ')?;
                Some(Report::Released { name: name.parse().ok()?, count: count.parse().ok()? })
            }
            _ => None,
        }
    }
}

/// See the module.
pub(super) struct EngineProcess {
    pid: u32,
    channel: Arc<UnixStream>,
    /// It has put a configuration in force.
    pub(super) has_applied: bool,
    /// It can put one in force, and waits for that.
    pub(super) is_prepared: bool,
    /// It has been told to accept no more.
    pub(super) is_draining: bool,
    /// It has been told to give up what it has of nodes.
    is_resigning: bool,
    /// It has.
    pub(super) has_resigned: bool,
    /// The engine that gets its connections.
    passes_to: Option<u32>,
}

impl EngineProcess {
    /// Started by root, it runs as `user`.
    pub(super) fn start(source: &Source, user: Option<User>) -> io::Result<EngineProcess> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        if let Some(user) = user.filter(|_| users::own_id() == 0) {
            // The library leaves all other groups as well.
            command.uid(user.id).gid(user.group);
        }
        let child = command
            .env_remove(super::service_manager::VARIABLE)
            .env_remove(super::upgrade::VARIABLE)
            .env_remove(super::upgrade::LEAVING_VARIABLE)
            .arg("engine")
            .args(source.arguments())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        // Its end is noticed by SIGCHLD and reaped with the others.
        Ok(EngineProcess { has_applied: false, ..EngineProcess::adopt(child.id(), ours.into(), false) })
    }

    /// An engine that a predecessor of this process started.
    pub(super) fn adopt(pid: u32, channel: OwnedFd, is_draining: bool) -> EngineProcess {
        let channel = Arc::new(channel.into());
        EngineProcess {
            pid,
            channel,
            has_applied: true,
            is_prepared: false,
            is_draining,
            is_resigning: false,
            has_resigned: false,
            passes_to: None,
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn channel(&self) -> &UnixStream {
        &self.channel
    }

    /// Passes on what it says, until it ends.
    pub(super) fn report_to(&self, sender: Sender<Event>) -> io::Result<()> {
        let (pid, channel) = (self.pid, self.channel.clone());
        std::thread::Builder::new().name("engine reports".into()).spawn(move || {
            while let Ok(Some(message)) = channel::receive(&channel) {
                let Some(report) = Report::parse(&message.text) else { continue };
                if sender.send(Event::Report { pid, report }).is_err() {
                    return;
                }
            }
        })?;
        Ok(())
    }

    pub(super) fn listen(&self, name: ListenerName, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        channel::send(&self.channel, &format!("listen {name}"), sockets)
    }

    /// Has it put in force what the configuration's file says, or said: `text`.
    pub(super) fn apply(&self, text: &str) -> io::Result<()> {
        channel::send(&self.channel, "apply", &[channel::text_as_descriptor(text)?.as_fd()])
    }

    /// Has it get all that what the configuration's file says takes: `text`. It's put in force when that is said.
    pub(super) fn prepare(&self, text: &str) -> io::Result<()> {
        channel::send(&self.channel, "prepare", &[channel::text_as_descriptor(text)?.as_fd()])
    }

    /// Has it put that in force.
    pub(super) fn apply_prepared(&mut self) {
        self.is_prepared = false;
        self.tell("apply", &[]);
    }

    /// Whether it may have in its books what nodes hold. One that drains has given that up before.
    pub(super) fn may_keep_books(&self) -> bool {
        !self.is_draining && !self.has_resigned
    }

    /// Has it give up what it has of nodes, and live on for what is its own.
    pub(super) fn resign(&mut self, within: Duration) {
        if !std::mem::replace(&mut self.is_resigning, true) {
            self.tell(&format!("drain {} resigning", within.as_millis()), &[]);
        }
    }

    /// It's needed again after all.
    pub(super) fn resume(&mut self) {
        if std::mem::take(&mut self.is_resigning) {
            self.has_resigned = false;
            self.tell("resume", &[]);
        }
    }

    /// Has it finish what it has, and close what is idle.
    pub(super) fn drain(&mut self, within: Duration) {
        self.is_draining = true;
        self.tell(&format!("drain {} busy", within.as_millis()), &[]);
    }

    /// Has it accept no more, and give its connections to `next`. Once for each next one.
    pub(super) fn make_way(&mut self, next: &EngineProcess, within: Duration) {
        if self.passes_to.replace(next.pid) == Some(next.pid) {
            return;
        }
        self.is_draining = true;
        let text = format!("drain {} idle", within.as_millis());
        match UnixStream::pair() {
            Ok((ours, theirs)) => {
                next.tell("take", &[theirs.as_fd()]);
                self.tell(&text, &[ours.as_fd()]);
            }
            Err(_) => self.tell(&text, &[]),
        }
    }

    pub(super) fn reopen_logs(&self) {
        self.tell("reopen", &[]);
    }

    fn tell(&self, text: &str, descriptors: &[BorrowedFd<'_>]) {
        if let Err(error) = channel::send(&self.channel, text, descriptors) {
            log::warning(format_args!("can't tell the engine (process {}) to {text}: {error}", self.pid));
        }
    }
}
