//! The process that serves: it starts workers, passes them what the supervisor says, and ends with them. A worker that panics takes this process
//! down, and the supervisor starts another: a half-dead server is worse than a moment's pause.

mod workers;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use leat_host::reuseport::Share;
use leat_host::storage::Pool;
use leat_host::{channel, clock, process};
use leat_logic::time::Instant;

use crate::access_log::{AccessLogWriter, AccessLogs};
use crate::balance::{Balance, Member};
use crate::config::{Config, Role};
use crate::ctl;
use crate::descriptors;
use crate::listener::ListenerName;
use crate::log;
use crate::metrics::ServerMetrics;
use crate::names::Names;
use crate::passage::{self, Doors, Passage};
use crate::supervisor::Source;
use crate::worker::control::{Control, Resigned};
use crate::worker::{Aggregates, ClusterShared};
use workers::{Prepared, Running};

/// Who waits for the last requests says after so long for which; then each time after twice as long.
const WAIT_TOLD: Duration = Duration::from_secs(1);

/// A configuration waits for so long until the names in it have been looked up.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(2);

/// What wakes the engine's main thread.
enum Event {
    /// The supervisor says something; `None` when it has gone.
    Message(Option<channel::Message>),
    /// Somebody asks by the control socket or the admin address.
    Asked(ctl::Question),
    /// No worker has anything to do with nodes any more; which time that was asked for.
    Resigned { time: u32 },
    /// A worker's thread has returned.
    WorkerEnded { worker: usize, result: io::Result<()> },
}

struct Engine<'a> {
    source: &'a Source,
    channel: UnixStream,
    config: Option<Arc<Config>>,
    /// How many descriptors this process may have.
    descriptors_max: u64,
    /// By address, in the order in which they began to listen: a worker's place in `workers` is that of its sockets. Workers have copies.
    sockets: BTreeMap<ListenerName, Vec<OwnedFd>>,
    /// Those that are for the next configuration: closed if it's refused.
    offered: Vec<(ListenerName, Vec<OwnedFd>)>,
    /// Which of them get new connections.
    share: Share,
    workers: Vec<Running>,
    balance: Balance,
    shared: Arc<ClusterShared>,
    aggregates: Arc<Aggregates>,
    names: Arc<Names>,
    logs: AccessLogWriter,
    pool: Option<Arc<Pool>>,
    metrics: Arc<ServerMetrics>,
    sender: Sender<Event>,
    events: Receiver<Event>,
    draining: bool,
    /// How often this engine has resigned as a home, or taken that back.
    resignations: u32,
    /// What can be put in force as soon as the supervisor says so.
    prepared: Option<Next>,
    wait: Option<Wait>,
    /// Where connections of the engine before this one come in.
    doors: Arc<Doors>,
    /// Where connections go.
    passage: Option<Passage>,
    /// The next passage's number.
    next_passage: u32,
    /// Where commands of the admin address are left.
    desk: ctl::Desk,
    /// By which `leat ctl` asks.
    questions: Option<ctl::Socket>,
    fell_back: Arc<std::sync::Once>,
}

/// A configuration that can be put in force.
struct Next {
    config: Arc<Config>,
    logs: Arc<AccessLogs>,
    workers: Vec<Prepared>,
}

/// What is left to do while the workers drain.
struct Wait {
    /// When what is left is cut.
    until: Instant,
    /// When the log is told next of what that is, and how long after that once more.
    tell_at: Instant,
    pause: Duration,
}

/// What answers in this node's place, if that isn't leat.
fn server_of(config: &Config) -> &[std::net::SocketAddr] {
    config.cluster.own_node().map_or(&[], |node| &node.server)
}

/// Which changes wait for the next start: what a running worker, or the kernel's programs beside it, are built on.
fn lasting_changes(before: &Config, after: &Config) -> Vec<&'static str> {
    let has_foreign = after.role == Role::Node && !server_of(after).is_empty();
    // Fronts, and leat's own nodes behind them, have nothing but the table's programs, which are told of VIPs.
    let is_told_vips = after.role == Role::Server || after.cluster.is_spread() && !has_foreign;
    let has_links = after.role != Role::Server && after.cluster.are_places_known();
    let keys = [
        ("role", before.role != after.role),
        ("cluster.born", after.role == Role::Node && after.cluster.born && !before.cluster.born),
        ("cluster.spread", before.cluster.spread != after.cluster.spread),
        ("cluster.vip", !is_told_vips && before.cluster.vip != after.cluster.vip),
        ("cluster.key_file", has_links && before.cluster.key_file != after.cluster.key_file),
        ("cluster.link_port", has_links && before.cluster.link_port != after.cluster.link_port),
        ("cluster.dispatchers", has_links && before.cluster.dispatchers != after.cluster.dispatchers),
        ("cluster.health", has_foreign && before.cluster.health != after.cluster.health),
        ("cluster.node.for", server_of(before) != server_of(after)),
        ("admin.socket", before.admin.socket.is_some() && before.admin.socket != after.admin.socket),
    ];
    keys.into_iter().filter_map(|(key, changed)| changed.then_some(key)).collect()
}

/// Serves until the supervisor says otherwise, or is gone.
#[must_use]
pub fn run(source: &Source) -> ExitCode {
    let ended = start(source).and_then(|mut engine| {
        engine.watch()?;
        engine.logs.finish();
        Ok(())
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error(format_args!("the engine can't go on: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn start(source: &Source) -> io::Result<Engine<'_>> {
    process::ignore_operator()?;
    process::keep_freed_memory();
    let descriptors_max = process::raise_open_files_limit();
    process::reserve_descriptors(descriptors_max);
    let channel = process::standard_input_as_stream()?;
    let (sender, events) = mpsc::channel();
    let (reader, messages) = (channel.try_clone()?, sender.clone());
    std::thread::Builder::new().name("supervisor".into()).spawn(move || {
        loop {
            let message = channel::receive(&reader).ok().flatten();
            let is_last = message.is_none();
            if messages.send(Event::Message(message)).is_err() || is_last {
                return;
            }
        }
    })?;
    let asking = sender.clone();
    let desk = ctl::Desk::open(move |question| asking.send(Event::Asked(question)).is_ok())?;
    let metrics = Arc::new(ServerMetrics::default());
    metrics.started_seconds.store(clock::wall().seconds.cast_unsigned(), Ordering::Relaxed);
    Ok(Engine {
        source,
        channel,
        config: None,
        descriptors_max,
        sockets: BTreeMap::new(),
        offered: Vec::new(),
        share: Share::default(),
        workers: Vec::new(),
        balance: Balance::default(),
        shared: Arc::default(),
        aggregates: Arc::default(),
        names: Arc::default(),
        logs: AccessLogWriter::start()?,
        pool: None,
        metrics,
        sender,
        events,
        draining: false,
        resignations: 0,
        prepared: None,
        wait: None,
        doors: Arc::default(),
        passage: None,
        next_passage: 0,
        desk,
        questions: None,
        fell_back: Arc::new(std::sync::Once::new()),
    })
}

impl Engine<'_> {
    fn watch(&mut self) -> io::Result<()> {
        loop {
            match self.next_event()? {
                Event::Message(Some(message)) => self.handle(message)?,
                Event::Message(None) if !self.draining => {
                    log::warning("the supervisor has gone: finishing what is under way");
                    let within = self.config.as_ref().map_or(Duration::ZERO, |config| config.limits.drain_timeout);
                    self.drain(within, false, None)?;
                }
                Event::Message(None) => {}
                Event::Asked(question) => self.hear(question),
                Event::Resigned { time } if time == self.resignations => {
                    let given_up = self.shared.resign();
                    self.say("resigned")?;
                    drop(given_up);
                }
                // It was taken back meanwhile.
                Event::Resigned { .. } => {}
                Event::WorkerEnded { worker, result } => {
                    // Only a whole engine is known to work: the supervisor starts a new one.
                    result?;
                    self.worker_ended(worker)?;
                }
            }
            if self.draining && self.workers.is_empty() {
                if self.passage.is_some() {
                    let passed = self.metrics.connections_passed();
                    log::info(format_args!("{passed} connections have gone to the new engine: the old one ends"));
                }
                return Ok(());
            }
        }
    }

    /// The next event. Meanwhile the shares of sites are balanced over the workers.
    fn next_event(&mut self) -> io::Result<Event> {
        loop {
            let working = self.workers.iter().filter(|worker| !worker.retiring && !self.draining);
            let members: Vec<Member> = working
                .map(|worker| Member {
                    number: worker.number,
                    metrics: worker.metrics.clone(),
                    mailbox: worker.mailbox.clone(),
                })
                .collect();
            let pause = self.config.as_ref().and_then(|config| self.balance.step(config, &members, clock::now()));
            let Some(pause) = pause.into_iter().chain(self.tell_of_wait()).min() else {
                return self.events.recv().map_err(|_| io::ErrorKind::BrokenPipe.into());
            };
            match self.events.recv_timeout(pause) {
                Ok(event) => return Ok(event),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// Says what a drain still waits for, if it's time. How long until the next time.
    fn tell_of_wait(&mut self) -> Option<Duration> {
        let now = clock::now();
        let wait = self.wait.as_mut().filter(|_| !self.workers.is_empty())?;
        if now >= wait.tell_at {
            wait.pause *= 2;
            wait.tell_at = now.after(wait.pause);
            let (left, under_way) = (wait.until.since(now).as_secs(), self.metrics.under_way());
            log::info(format_args!("still waiting, for {left} s at most: {under_way}"));
        }
        Some(wait.tell_at.since(now))
    }

    /// Answers a question, or passes it on to the workers, if they are the ones that can.
    fn hear(&self, question: ctl::Question) {
        let knows_flows = |config: &Config| config.cluster.hands_on() || !server_of(config).is_empty();
        let has_part = |config: &Arc<Config>| {
            config.role.is_home() || config.role == Role::Node && config.cluster.is_spread() && knows_flows(config)
        };
        let is_home = self.config.as_ref().is_some_and(has_part);
        let is_general = matches!(question.command, ctl::Command::Status | ctl::Command::Counters);
        match is_home && !is_general && !self.workers.is_empty() {
            // Those that retire as well: they may still have flows.
            true => {
                for (worker, question) in self.workers.iter().zip(question.split(self.workers.len())) {
                    worker.mailbox.send(Control::Ask(question));
                }
            }
            false => {
                let answer = self.answer(&question.command);
                question.answer(answer);
            }
        }
    }

    /// What can be said here. Choices of nodes are the dispatcher's to answer.
    fn answer(&self, command: &ctl::Command) -> Result<serde_json::Value, String> {
        let config = self.config.as_deref().ok_or("there is no configuration yet")?;
        match command {
            ctl::Command::Status => {
                let (summary, workers) = (config.summary(), self.workers.len());
                let text = format!("{summary}; workers: {workers}{}\n", if self.draining { "; draining" } else { "" });
                let role = config.role.name();
                Ok(serde_json::json!({ "role": role, "workers": workers, "draining": self.draining, "text": text }))
            }
            ctl::Command::Counters => Ok(serde_json::json!({ "text": self.metrics.render() })),
            _ => Err("this leat is neither a dispatcher nor a connection server".to_owned()),
        }
    }

    /// Makes the control socket, once.
    fn listen_for_questions(&mut self, config: &Config) {
        let Some(path) = config.admin.socket.as_ref().filter(|_| self.questions.is_none()) else { return };
        let sender = self.sender.clone();
        match ctl::serve(path, move |question| sender.send(Event::Asked(question)).is_ok()) {
            Ok(socket) => self.questions = Some(socket),
            Err(error) => log::warning(format_args!("leat ctl can't be heard at {}: {error}", path.display())),
        }
    }

    fn say(&self, text: &str) -> io::Result<()> {
        channel::send(&self.channel, text, &[])
    }

    fn handle(&mut self, message: channel::Message) -> io::Result<()> {
        let (verb, rest) = message.text.split_once(' ').unwrap_or((&message.text, ""));
        match verb {
            "listen" => {
                let name: ListenerName = rest.parse().map_err(|_| io::ErrorKind::InvalidData)?;
                self.offered.push((name, message.descriptors));
                Ok(())
            }
            "prepare" => match self.prepare(message.descriptors) {
                Ok(next) => {
                    self.shared.prepare(&next.config);
                    self.prepared = Some(next);
                    self.say("prepared")
                }
                Err(reason) => self.refuse(&reason),
            },
            "apply" => {
                let next = self.prepared.take().map_or_else(|| self.prepare(message.descriptors), Ok);
                match next {
                    Ok(next) => {
                        self.apply(next)?;
                        self.say("applied")
                    }
                    Err(reason) => self.refuse(&reason),
                }
            }
            "drain" => {
                let (milliseconds, idle) = rest.split_once(' ').unwrap_or((rest, ""));
                let within = Duration::from_millis(milliseconds.parse().map_err(|_| io::ErrorKind::InvalidData)?);
                match idle {
                    "resigning" if self.config.as_ref().is_some_and(|config| config.keeps_books()) => {
                        self.resign(within);
                        Ok(())
                    }
                    _ => self.drain(within, idle == "idle", message.descriptors.into_iter().next()),
                }
            }
            "resume" => {
                log::info("no other engine follows: this one has again what nodes have");
                self.resignations += 1;
                self.workers.iter().for_each(|worker| worker.mailbox.send(Control::Resume));
                Ok(())
            }
            "take" => {
                let Some(descriptor) = message.descriptors.into_iter().next() else { return Ok(()) };
                passage::take(self.number_passage(), descriptor.into(), self.doors.clone())
            }
            "reopen" => {
                self.logs.reopen();
                Ok(())
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("the supervisor said `{}`", message.text))),
        }
    }

    fn refuse(&mut self, reason: &str) -> io::Result<()> {
        self.offered.clear();
        self.say(&format!("refused {reason}"))
    }

    /// Has the workers give up what they have of nodes, and go on without. The supervisor hears when they have.
    fn resign(&mut self, within: Duration) {
        log::info("another engine follows: it's to have what nodes have");
        self.resignations += 1;
        let (sender, time) = (self.sender.clone(), self.resignations);
        // Nobody listens any more: the engine is ending.
        let resigned = Arc::new(Resigned::new(move || _ = sender.send(Event::Resigned { time })));
        for worker in &self.workers {
            worker.mailbox.send(Control::Resign { within, resigned: resigned.clone() });
        }
    }

    /// Gets all that a configuration wants and that could be refused, and changes nothing that anybody sees.
    fn prepare(&mut self, text: Vec<OwnedFd>) -> Result<Next, String> {
        // As the supervisor has read it: the file may have changed since.
        let text = text.into_iter().next().map(channel::text_of_descriptor).unwrap_or_else(|| Ok(String::new()));
        let text = text.map_err(|error| format!("the supervisor's text of it can't be read: {error}"))?;
        let mut config = self.source.load_text(&text).map_err(|mistakes| mistakes.to_string())?;
        descriptors::fit(&mut config, self.descriptors_max, self.config.as_deref());
        if let Some(before) = self.config.as_deref().filter(|before| before.cluster.are_places_known())
            && !config.cluster.keep_places(&before.cluster.nodes)
        {
            let nodes: Vec<_> = config.cluster.nodes.iter().map(|node| node.name.as_str()).collect();
            log::warning(format_args!(
                "nodes are known by their places in [[cluster.node]]: until all leats of the cluster have been upgraded (SIGUSR2) or started anew with \
                 this file, they have those of before: {}",
                nodes.join(", ")
            ));
        }
        self.names
            .watch(&config.names(), LOOKED_UP_WITHIN)
            .map_err(|error| format!("the names in `to` can't be looked up: {error}"))?;
        let workers = self.prepare_workers(&config).map_err(|error| format!("a worker can't be started: {error}"))?;
        let logs = Arc::new(self.logs.open(&config)?);
        // Later clients have descriptors too, and there are workers that serve them.
        if self.config.is_none() {
            // Each worker has copies of its sockets.
            let copies = self.offered.iter().map(|(_, sockets)| sockets.len()).sum();
            descriptors::suffice(&config, self.descriptors_max, process::open_files(), copies)?;
        }
        Ok(Next { config: Arc::new(config), logs, workers })
    }

    /// Puts a configuration in force. Where that fails nobody knows what is in force: the supervisor starts another engine with the one before.
    fn apply(&mut self, Next { config, logs, mut workers }: Next) -> io::Result<()> {
        self.prepare_left(&config, &mut workers);
        // Old files may have been moved away: a reload opens all of them anew.
        self.logs.reopen();
        log::configure(&config.log);
        for (name, sockets) in self.offered.drain(..) {
            self.sockets.entry(name).or_default().extend(sockets);
        }
        self.names.keep_only(&config.names());
        let before = self.config.replace(config.clone());
        if let Some(before) = before {
            for key in lasting_changes(&before, &config) {
                log::warning(format_args!(
                    "the new value of `{key}` is used from the next start or upgrade (SIGUSR2) on"
                ));
            }
        }
        self.arrange_workers(&config, workers);
        let configured = |name: &ListenerName| match name.is_admin {
            true => config.admin.listen == Some(name.address),
            false => config.listeners.iter().any(|listener| listener.address == name.address),
        };
        self.sockets.retain(|name, _| configured(name));
        for place in 0..self.workers.len() {
            // One that retires answers what follows on its connections, accepts for a while, and is to close what listens at addresses that have
            // gone. Its part in a cluster is as it was.
            let listeners = match self.workers[place].retiring {
                true if config.role != Role::Server => continue,
                true => Vec::new(),
                false => self
                    .new_listeners(place)
                    .map_err(|error| io::Error::new(error.kind(), format!("a listener can't be shared: {error}")))?,
            };
            let (config, logs) = (config.clone(), logs.clone());
            self.workers[place].mailbox.send(Control::Configure { config, logs, listeners });
        }
        self.retire_surplus(&config);
        self.open_doors();
        self.listen_for_questions(&config);
        self.metrics.set_configured(&config);
        self.metrics.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Has the workers end, and give their connections to the engine at the other end of `next` if there is one.
    fn drain(&mut self, within: Duration, keep_idle: bool, next: Option<OwnedFd>) -> io::Result<()> {
        self.draining = true;
        self.doors.set(Vec::new());
        let passage = match next {
            Some(next) => {
                let mailboxes = self.workers.iter().map(|worker| worker.mailbox.clone()).collect();
                Some(passage::give(self.number_passage(), next.into(), mailboxes)?)
            }
            None => None,
        };
        let now = clock::now();
        let deadline = now.after(within);
        self.wait = Some(Wait { until: deadline, tell_at: now.after(WAIT_TOLD), pause: WAIT_TOLD });
        for worker in &self.workers {
            worker.mailbox.send(Control::Drain { deadline, keep_idle, passage: passage.clone() });
        }
        // The workers know of the new way before the old one ends: without any, each reply that begins would be its connection's last.
        if let Some(before) = passage.and_then(|passage| self.passage.replace(passage)) {
            before.end();
        }
        // The workers close their copies when they have emptied the queues.
        self.sockets.clear();
        self.offered.clear();
        Ok(())
    }

    fn number_passage(&mut self) -> u32 {
        self.next_passage = self.next_passage.wrapping_add(1);
        self.next_passage
    }

    /// Connections of the engine before this one come to the workers that stay.
    fn open_doors(&self) {
        let staying = self.workers.iter().filter(|worker| !worker.retiring && !self.draining);
        self.doors.set(staying.map(Running::door).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClusterNode;

    #[test]
    fn what_a_server_is_built_on_waits_for_its_next_start() {
        let before = Config { role: Role::Node, ..Config::default() };
        assert_eq!(lasting_changes(&before, &before), Vec::<&str>::new());
        let mut after = before.clone();
        after.cluster.vip = vec![([192, 0, 2, 1], 80).into()];
        after.cluster.health.fall += 1;
        after.cluster.link_port += 1;
        assert_eq!(lasting_changes(&before, &after), ["cluster.vip", "cluster.link_port"]);
        // Beside a server that isn't leat a thread goes by both.
        let server = vec![([127, 0, 0, 1], 8080).into()];
        after.cluster.nodes = vec![ClusterNode { server, ..ClusterNode::default() }];
        assert_eq!(
            lasting_changes(&before, &after),
            ["cluster.vip", "cluster.link_port", "cluster.health", "cluster.node.for"]
        );
    }
}
