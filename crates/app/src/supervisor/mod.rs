//! The process that the operator sees. It binds the listeners, keeps them open whatever happens to the engine, starts the engine again when
//! it crashes, and passes on reloads, stops and upgrades. It never touches a connection.
//!
//! docs/decisions/0001-processes.md says why there are two processes.

mod engine_process;
mod listeners;
mod service_manager;
mod source;
mod upgrade;

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use leat_host::process::{self, Ended, Notice, Orphans};
use leat_host::users;

use crate::config::{Config, Role};
use crate::console;
use crate::ctl;
use crate::log;
use engine_process::{EngineProcess, Report};
use listeners::Listeners;
use service_manager::ServiceManager;

pub use source::Source;

/// Time beyond the configured drain that a stopping engine gets before it's killed.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// What is on its way between a dispatcher's engine and nodes gets there within this time, as another engine is about to have both. A node that has died is
/// known to have by then.
const RESIGNED_WITHIN: Duration = Duration::from_millis(1500);
/// The shortest time from one start of an engine to the next: it doubles with each that crashes sooner than [`START_INTERVAL_MAX`] after its start.
const START_INTERVAL: Duration = Duration::from_millis(50);
/// Whoever ran at least this long is followed at once, however often: starting takes a few hundredths of it.
const START_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// How often it's looked what programs have left behind. The kernel doesn't say when it has become this process's.
const ORPHANS_PAUSE: Duration = Duration::from_millis(100);
/// How long what programs have left behind may take to end once it has been killed.
const ORPHANS_END: Duration = Duration::from_secs(2);

/// What wakes the supervisor.
enum Event {
    Notice(Notice),
    Report { pid: u32, report: Report },
}

struct Supervisor<'a> {
    source: &'a Source,
    config: Config,
    /// What its file said, if it has one: an engine that is started again gets the same, whatever stands there by then.
    text: String,
    listeners: Listeners,
    sender: Sender<Event>,
    events: Receiver<Event>,
    manager: ServiceManager,
    /// The one that accepts connections.
    engine: Option<EngineProcess>,
    /// A configuration that the engine has been told to apply, and its text.
    applying: Option<(Config, String)>,
    /// Those that finish what they have.
    leaving: Vec<EngineProcess>,
    announced: bool,
    /// A reload was asked for before the engine had said what has become of the last: it follows.
    reload_next: bool,
    /// An upgrade was asked for while the engine wasn't ready: it follows.
    upgrade_next: bool,
    /// When the last engine was started.
    started: Instant,
    /// How long after that the next may be, if that one crashes.
    start_interval: Duration,
    /// When to start the engine again.
    restart_at: Option<Instant>,
    /// Set while another engine is to give up what the new one waits for: when to kill it.
    resign_by: Option<Instant>,
    /// Set when stopping: when to kill what is left.
    kill_at: Option<Instant>,
    orphans: Orphans,
    /// When to end what programs have left behind, if there may be programs.
    orphans_at: Option<Instant>,
}

/// Runs until it's stopped by a signal.
#[must_use]
pub fn run(source: &Source) -> ExitCode {
    upgrade::note_executable();
    let ended = start(source).and_then(|mut supervisor| supervisor.watch());
    if let Err(message) = ended.as_ref()
        && !message.is_empty()
    {
        log::error(message);
    }
    log::finish();
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn start(source: &Source) -> Result<Supervisor<'_>, String> {
    let (config, text) = source.load().map_err(|mistakes| {
        console::complain(mistakes);
        String::new()
    })?;
    log::configure(&config.log);
    warn_of_privileges(&config);
    let (sender, events) = mpsc::channel();
    let notices = sender.clone();
    process::hear_notices(move |notice| {
        // Nobody listens any more: the process is about to end.
        let _ = notices.send(Event::Notice(notice));
    })
    .map_err(|error| format!("can't listen for signals: {error}"))?;
    // From now on nothing may wait for whoever reads the messages.
    log::start_thread().map_err(|error| format!("can't start a thread for messages: {error}"))?;
    // A predecessor may have held them back.
    process::hold_notices(false);
    let orphans = Orphans::adopt();
    let inherited = upgrade::inherited();
    if inherited.is_none() {
        refuse_taken_socket(source, &config, &text)?;
    }
    let (mut listeners, predecessors): (_, Vec<EngineProcess>) = match inherited {
        Some(inherited) => (inherited.listeners, inherited.leaving.into_iter().chain(inherited.engine).collect()),
        None => (Listeners::default(), Vec::new()),
    };
    // Where it fails, everything stays with the engine that there is.
    let bound = listeners.bind(&config).inspect_err(|_| listeners.begin_again());
    let mut supervisor = Supervisor {
        source,
        config,
        text,
        listeners,
        sender,
        events,
        manager: ServiceManager::of_environment(),
        engine: None,
        applying: None,
        leaving: Vec::new(),
        announced: false,
        reload_next: false,
        upgrade_next: false,
        started: Instant::now(),
        start_interval: START_INTERVAL,
        restart_at: None,
        resign_by: None,
        kill_at: None,
        orphans,
        orphans_at: None,
    };
    if supervisor.config.starts_programs() || !predecessors.is_empty() {
        supervisor.orphans_at = Some(Instant::now());
    }
    for engine in predecessors {
        engine.report_to(supervisor.sender.clone()).map_err(|error| format!("can't watch the old engine: {error}"))?;
        // It serves on until the new engine is ready.
        supervisor.leaving.push(engine);
    }
    // One of them may have ended before anybody listened. We hold the other end.
    let _ = supervisor.sender.send(Event::Notice(Notice::ChildEnded));
    let start = |()| supervisor.start_engine().map_err(|error| format!("can't start the engine: {error}"));
    match bound.and_then(start) {
        Err(message) if !supervisor.fall_back(&message) => Err(message),
        _ => Ok(supervisor),
    }
}

/// A second leat that took another's control socket would leave that one without: it isn't to be started so. A predecessor hands its own on.
fn refuse_taken_socket(source: &Source, config: &Config, text: &str) -> Result<(), String> {
    let Some(path) = config.admin.socket.as_ref().filter(|path| ctl::is_served(path)) else { return Ok(()) };
    let message = format!("another leat answers at `socket`, {}", path.display());
    let help = "write another path, as each leat has a socket of its own, or stop the other one first";
    console::complain(source.mistake_at(text, ("admin", "socket"), message, help));
    Err(String::new())
}

/// What has another value in a file that's read anew and can't be given to the running engine: it would listen at other VIPs than those by which it and
/// its nodes steer, and nowhere at these.
fn fixed_key(before: &Config, after: &Config) -> Option<&'static str> {
    let (old, new) = (&before.cluster, &after.cluster);
    let is_foreign = || new.own_node().is_some_and(|node| !node.server.is_empty());
    let listens = match after.role {
        Role::Dispatcher => true,
        Role::Node => is_foreign(),
        Role::ConnectionServer | Role::Server => false,
    };
    if before.role != after.role || !listens || old.vip.is_empty() {
        return None;
    }
    match (old.is_spread(), new.is_spread()) {
        (false, false) if old.vip != new.vip => Some("cluster.vip"),
        (false, false) | (true, true) => None,
        _ => Some("cluster.spread"),
    }
}

/// Says what the operator may not have meant.
fn warn_of_privileges(config: &Config) {
    match config.user {
        Some(user) if users::own_id() != 0 && users::own_id() != user.id => {
            log::warning("`user` counts for nothing, as leat isn't started by root: it serves as who has started it");
        }
        None if users::own_id() == 0 && config.role == Role::Server && config.starts_programs() => {
            log::warning(
                "programs of handlers run as root: write whom they should run as before the first section, as in user = \"www-data\"",
            );
        }
        _ => {}
    }
}

impl Supervisor<'_> {
    /// Whether another engine may have in its books what nodes hold. Two can't: the new one gets everything ready, and has it when the other has given it up.
    fn waits_for_books(&self) -> bool {
        // Without VIPs nodes hold nothing.
        self.config.keeps_books() && self.leaving.iter().any(EngineProcess::may_keep_books)
    }

    /// The new engine has all that it needs but what another has of nodes.
    fn prepared(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.is_prepared = true;
        }
        if self.waits_for_books() {
            self.leaving
                .iter_mut()
                .filter(|engine| engine.may_keep_books())
                .for_each(|old| old.resign(RESIGNED_WITHIN));
            self.resign_by = Some(Instant::now() + RESIGNED_WITHIN + KILL_GRACE);
        }
        self.apply_prepared();
    }

    /// Has the new engine serve that has waited for others, once none of them is in its way.
    fn apply_prepared(&mut self) {
        if self.is_stopping() || self.waits_for_books() {
            return;
        }
        if let Some(engine) = self.engine.as_mut().filter(|engine| engine.is_prepared) {
            self.resign_by = None;
            engine.apply_prepared();
        }
    }

    fn start_engine(&mut self) -> io::Result<()> {
        self.restart_at = None;
        let waits = self.waits_for_books();
        self.started = Instant::now();
        self.listeners.begin_again();
        let (config, text) = match &self.applying {
            Some((config, text)) => (config, text),
            None => (&self.config, &self.text),
        };
        let engine = EngineProcess::start(self.source, config.user)?;
        engine.report_to(self.sender.clone())?;
        self.listeners.send_new(&engine)?;
        if waits { engine.prepare(text) } else { engine.apply(text) }?;
        self.engine = Some(engine);
        Ok(())
    }

    /// The loop: until everything has ended.
    fn watch(&mut self) -> Result<(), String> {
        loop {
            let deadline = [self.restart_at, self.resign_by, self.kill_at, self.orphans_at].into_iter().flatten().min();
            let event = match deadline {
                None => self.events.recv().map_err(|_| "the signal thread has ended".to_owned())?,
                Some(deadline) => match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(event) => event,
                    Err(RecvTimeoutError::Timeout) => {
                        self.deadline_passed();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return Err("the signal thread has ended".to_owned()),
                },
            };
            match event {
                Event::Notice(Notice::ChildEnded) => {
                    while let Some(ended) = process::reap() {
                        self.ended(ended)?;
                    }
                    if self.is_stopping() && self.engine.is_none() && self.leaving.is_empty() {
                        self.end_orphans();
                        log::info("stopped");
                        return Ok(());
                    }
                }
                Event::Notice(notice) => self.notice(notice),
                Event::Report { pid, report } => self.reported(pid, report)?,
            }
            if std::mem::take(&mut self.reload_next) {
                self.reload();
            }
        }
    }

    /// Ends what programs have left behind, unless it goes with a program that lives. Returns how many processes that were.
    fn kill_orphans(&self) -> usize {
        let engines: Vec<u32> = self.engine.iter().chain(&self.leaving).map(EngineProcess::pid).collect();
        self.orphans.kill(&engines)
    }

    /// No engine is left: nor is what programs have left behind, when this returns.
    fn end_orphans(&self) {
        let end = Instant::now() + ORPHANS_END;
        while self.kill_orphans() > 0 && Instant::now() < end {
            // Their ends may make this process the parent of what they had started.
            let _ = self.events.recv_timeout(ORPHANS_PAUSE);
            while process::reap().is_some() {}
        }
    }

    fn is_stopping(&self) -> bool {
        self.kill_at.is_some()
    }

    fn deadline_passed(&mut self) {
        let now = Instant::now();
        if self.orphans_at.is_some_and(|at| at <= now) {
            self.kill_orphans();
            self.orphans_at = Some(now + ORPHANS_PAUSE);
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            for engine in self.engine.iter().chain(&self.leaving) {
                log::warning("connections are still open after the drain time-out: they are cut");
                process::kill(engine.pid());
            }
            // Their ends are reported by SIGCHLD; nothing else is waited for.
            self.kill_at = Some(now + KILL_GRACE);
        }
        if self.resign_by.is_some_and(|at| at <= now) {
            log::warning("the old engine doesn't give up what it has: it's killed");
            // Their ends let the new one go on.
            let old = self.leaving.iter().filter(|engine| engine.may_keep_books());
            old.for_each(|engine| process::kill(engine.pid()));
            self.resign_by = Some(now + KILL_GRACE);
        }
        if self.restart_at.is_none_or(|at| at > now) {
            return;
        }
        if let Err(error) = self.start_engine() {
            log::error(format_args!("can't start the engine: {error}"));
            self.restart_at = Some(now + START_INTERVAL_MAX);
        }
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Interrupt if self.is_stopping() => {
                log::warning("interrupted again: open connections are cut");
                let now = Instant::now();
                // They end with resets, which a kill doesn't see to: what was cut would look whole. Whoever can't wait for that interrupts once more.
                let is_told = self.kill_at.is_some_and(|at| at <= now + KILL_GRACE);
                self.kill_at = Some(if is_told { now } else { now + KILL_GRACE });
                for engine in self.engine.iter_mut().chain(&mut self.leaving).filter(|_| !is_told) {
                    engine.drain(Duration::ZERO);
                }
            }
            Notice::Stop | Notice::Interrupt => self.stop(),
            Notice::Reload => self.reload(),
            Notice::ReopenLogs => {
                for engine in self.engine.iter().chain(&self.leaving) {
                    engine.reopen_logs();
                }
            }
            Notice::Upgrade => self.upgrade(),
            Notice::ChildEnded => {}
        }
    }

    fn stop(&mut self) {
        if self.is_stopping() {
            return;
        }
        let drain = self.config.limits.drain_timeout;
        log::info(format_args!("stopping: requests under way have {} s to end", drain.as_secs()));
        self.manager.stopping();
        (self.restart_at, self.resign_by) = (None, None);
        self.kill_at = Some(Instant::now() + drain + KILL_GRACE);
        // Closed here first: with the engine's closed too, new clients are refused at once and can go elsewhere.
        self.listeners.close_all();
        for engine in self.engine.iter_mut().chain(&mut self.leaving) {
            engine.drain(drain);
        }
        if self.engine.is_none() && self.leaving.is_empty() {
            // Between a crash and the next start: nothing will end, so nothing would wake us.
            let _ = self.sender.send(Event::Notice(Notice::ChildEnded));
        }
    }

    fn reload(&mut self) {
        if self.is_stopping() {
            return;
        }
        if self.applying.is_some() || self.engine.as_ref().is_some_and(|engine| !engine.has_applied) {
            self.reload_next = true;
            return;
        }
        self.manager.reloading();
        let (config, text) = match self.source.load() {
            Ok(read) => read,
            Err(mistakes) => return self.refuse(&format!("\n{mistakes}")),
        };
        if let Some(key) = fixed_key(&self.config, &config).filter(|_| self.engine.is_some()) {
            return self
                .refuse(&format!("a reload can't change `{key}`: upgrade (SIGUSR2) or start anew with this file"));
        }
        if let Err(message) = self.listeners.bind(&config) {
            return self.refuse(&message);
        }
        if self.engine.is_some() && self.needs_new_engine(&config) {
            return self.replace_engine(config, text);
        }
        let Some(engine) = &self.engine else {
            // It's in force when the next engine says so, which needn't be waited for now.
            self.applying = Some((config, text));
            return;
        };
        match self.listeners.send_new(engine).and_then(|()| engine.apply(&text)) {
            Ok(()) => self.applying = Some((config, text)),
            Err(error) => self.refuse(&format!("the engine can't be told of it: {error}")),
        }
    }

    /// A new configuration can't be put in force.
    fn refuse(&mut self, reason: &str) {
        self.listeners.refused();
        let message = "the new configuration isn't used; the old one stays in force";
        let space = if reason.starts_with('\n') { "" } else { " " };
        log::error(format_args!("{message}:{space}{reason}"));
        self.manager.ready(message);
    }

    /// Whether running workers can't be given this configuration. A server's part in a cluster lasts as long as the server.
    fn needs_new_engine(&self, config: &Config) -> bool {
        let before = &self.config;
        let is_server = before.role == Role::Server && config.role == Role::Server;
        is_server
            && (before.reactor != config.reactor
                || before.files.io_threads != config.files.io_threads
                || before.user != config.user)
    }

    /// Starts an engine for a configuration that the running one can't be given; that one serves until the new one is ready.
    fn replace_engine(&mut self, config: Config, text: String) {
        self.leaving.extend(self.engine.take());
        self.applying = Some((config, text));
        if let Err(error) = self.start_engine() {
            self.fall_back(&format!("can't start the engine: {error}"));
        }
    }

    /// The new engine can't be used, and the one before it hasn't been told to go: that one goes on. Whether there is one.
    fn fall_back(&mut self, reason: &str) -> bool {
        let Some(place) = self.leaving.iter().position(|engine| !engine.is_draining) else { return false };
        let mut old = self.leaving.remove(place);
        old.resume();
        self.resign_by = None;
        if let Some(engine) = self.engine.replace(old) {
            process::kill(engine.pid());
        }
        self.applying = None;
        self.listeners.fall_back();
        self.announced = true;
        log::error(format_args!("the new engine isn't used; the old one goes on: {reason}"));
        self.manager.ready("the new engine isn't used; the old one goes on");
        true
    }

    fn reported(&mut self, pid: u32, report: Report) -> Result<(), String> {
        let current = self.engine.as_ref().is_some_and(|engine| engine.pid() == pid);
        match report {
            Report::Applied if current => self.applied(),
            Report::Prepared if current => self.prepared(),
            Report::Resigned => {
                let old = self.leaving.iter_mut().filter(|engine| engine.pid() == pid);
                old.for_each(|engine| engine.has_resigned = true);
                self.apply_prepared();
            }
            Report::Refused(reason) if current => {
                if self.fall_back(&reason) {
                    return Ok(());
                }
                if !self.announced {
                    return Err(reason);
                }
                if let Some(engine) = self.engine.as_ref().filter(|engine| !engine.has_applied) {
                    // It would serve nothing. Its end is noticed, and another is started.
                    process::kill(engine.pid());
                    match self.applying.take() {
                        Some(_) => self.refuse(&reason),
                        None => log::error(format_args!(
                            "nothing is served: the engine can't use the configuration in force: {reason}"
                        )),
                    }
                    return Ok(());
                }
                self.applying = None;
                self.refuse(&reason);
            }
            Report::Released { name, count } if current => self.listeners.release(name, count),
            // A leaving engine's listeners are the new one's as well.
            Report::Applied | Report::Prepared | Report::Refused(_) | Report::Released { .. } => {}
        }
        Ok(())
    }

    fn applied(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.has_applied = true;
        }
        if let Some((config, text)) = self.applying.take() {
            if config.starts_programs() {
                self.orphans_at.get_or_insert_with(Instant::now);
            }
            log::configure(&config.log);
            (self.config, self.text) = (config, text);
            self.listeners.applied(&self.config);
            log::info("the new configuration is in force");
        } else {
            self.listeners.applied(&self.config);
        }
        if !self.announced {
            self.announced = true;
            self.announce();
        }
        self.manager.ready(&self.config.summary());
        // The new engine accepts now, so the old one needn't.
        if let Some(next) = &self.engine {
            for engine in &mut self.leaving {
                engine.make_way(next, self.config.limits.drain_timeout);
            }
        }
        if std::mem::take(&mut self.upgrade_next) {
            self.upgrade();
        }
    }

    fn announce(&self) {
        use std::io::Write;
        let mut text = String::new();
        for (name, address) in self.listeners.addresses() {
            let scheme = self.config.port_at(name.address).map_or("http", |port| port.protocol.name());
            text.push_str(&format!("listening on {scheme}://{address}/\n"));
        }
        if text.is_empty() {
            text.push_str("listening on no address: another server does, to which leat brings connections\n");
        }
        if let Some(admin) = self.listeners.admin_address() {
            text.push_str(&format!("admin on http://{admin}/\n"));
        }
        let write = move || {
            let mut out = io::stdout();
            // Standard output may be closed: serving goes on.
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        };
        // It may be a pipe that is full of lines of access logs. Without a thread nobody is told, which keeps nobody from being served.
        let _ = thread::Builder::new().name("announcement".into()).spawn(write);
    }

    fn ended(&mut self, ended: Ended) -> Result<(), String> {
        let was_engine = self.engine.iter().chain(&self.leaving).any(|engine| engine.pid() == ended.pid);
        if was_engine {
            // Programs that it had started would go on for nobody.
            self.kill_orphans();
        }
        self.leaving.retain(|engine| engine.pid() != ended.pid);
        self.apply_prepared();
        if self.engine.as_ref().is_none_or(|engine| engine.pid() != ended.pid) {
            return Ok(());
        }
        self.engine = None;
        if self.is_stopping() || self.fall_back("it ended before it was ready") {
            self.applying = None;
            return Ok(());
        }
        if !self.announced {
            return Err(format!("the engine has ended {} before it was ready", how(&ended)));
        }
        if self.applying.take().is_some() {
            self.refuse("the engine has ended");
        }
        let now = Instant::now();
        if now.duration_since(self.started) >= START_INTERVAL_MAX {
            self.start_interval = START_INTERVAL;
        }
        let at = self.started + self.start_interval;
        let when = if at <= now { "at once".into() } else { format!("{:?} after its last start", self.start_interval) };
        log::error(format_args!(
            "the engine (process {}) has ended {}; it starts again {when}",
            ended.pid,
            how(&ended)
        ));
        self.restart_at = Some(at);
        self.start_interval = (self.start_interval * 2).min(START_INTERVAL_MAX);
        Ok(())
    }

    /// Whether the new binary would miss nothing that has been heard. Else the upgrade follows what has.
    fn nothing_else_waits(&self) -> bool {
        let waiting: Vec<Event> = self.events.try_iter().collect();
        // The new binary is the one on disk, reads the configuration, and looks for children that have ended, anyway.
        let does_anyway =
            |event: &Event| matches!(event, Event::Notice(Notice::Upgrade | Notice::Reload | Notice::ChildEnded));
        if waiting.iter().all(does_anyway) {
            return true;
        }
        for event in waiting.into_iter().chain([Event::Notice(Notice::Upgrade)]) {
            // We hold the other end.
            let _ = self.sender.send(event);
        }
        false
    }

    fn upgrade(&mut self) {
        if self.is_stopping() {
            return;
        }
        let Some(engine) = &self.engine else {
            log::warning("no upgrade now: the engine is being started");
            return;
        };
        if !self.announced || self.applying.is_some() {
            self.upgrade_next = true;
            return;
        }
        let error = match upgrade::probe(self.source) {
            Ok(executable) => {
                log::finish();
                process::hold_notices(true);
                if !self.nothing_else_waits() {
                    process::hold_notices(false);
                    return;
                }
                // It returns only when it failed.
                let error = upgrade::start_over(&executable, &self.listeners, engine, &self.leaving);
                process::hold_notices(false);
                error
            }
            Err(error) => error,
        };
        log::error(format_args!("the new binary isn't used; the old one goes on: {error}"));
    }
}

/// How an engine has ended.
fn how(ended: &Ended) -> String {
    match (ended.code, ended.signal) {
        (Some(code), _) => format!("with exit code {code}"),
        (None, Some(9)) => "by signal 9, which somebody has sent, or the kernel where memory is short".to_owned(),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "in an unknown way".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_was_killed_is_told_from_one_that_has_failed() {
        let ended = |code, signal| how(&Ended { pid: 1, code, signal });
        assert_eq!(ended(Some(1), None), "with exit code 1");
        assert_eq!(ended(None, Some(6)), "by signal 6");
        assert!(ended(None, Some(9)).contains("somebody has sent, or the kernel"));
    }
}
