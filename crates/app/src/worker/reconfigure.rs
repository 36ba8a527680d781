//! Puts a configuration in force in a running worker. Connections, and requests under way, go on with what they have; the next request of each
//! finds the new sites.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use leat_host::reactor::{Listener as ListeningSocket, Reactor};
use leat_logic::admission::LetIn;
use leat_logic::serve::cache::Cache;
use leat_logic::serve::hosts::HostTable;
use leat_logic::serve::policy::FilePolicy;

use super::accept::{ListenerState, UnknownBranch};
use super::control::Control;
use super::handler::Handler;
use super::settings::{self, Listener, Site, SiteKind};
use super::shares::{self, Place};
use super::{ADMIN_SITE, Drain, Host, Listening, Retiring, Task, UNKNOWN_SITE, Worker};
use crate::access_log::AccessLogs;
use crate::config::{self, Config, Role};
use crate::listener::ListenerName;

/// The name of the admin pages in metrics: no configured site can have it.
const ADMIN_NAME: &str = "(admin)";
/// The name of work whose site isn't known.
const UNKNOWN_NAME: &str = "(unknown)";

impl<H: Host> Worker<H> {
    /// Does what the engine says.
    pub(super) fn handle_mail(&mut self) {
        let mut settled = false;
        for message in self.mailbox.clone().take() {
            match message {
                Control::Configure { config, logs, listeners } => self.configure(&config, &logs, listeners),
                Control::Drain { deadline, keep_idle, passage } => {
                    // Connections that are idle may stay where another process follows.
                    let is_followed = keep_idle;
                    let leaves = !keep_idle && self.leave_to_peer(deadline);
                    if !leaves && !self.awaits_births(is_followed) {
                        self.end_accepting();
                    }
                    let keep_idle = keep_idle || leaves;
                    let deadline = self.drain.map_or(deadline, |drain| drain.deadline.min(deadline));
                    self.drain = Some(Drain { deadline, keep_idle, since: self.now });
                    self.sweep_at = self.now;
                    self.leave_homes(is_followed);
                    self.take_home();
                    if let Some(passage) = passage {
                        self.leave_peers();
                        self.pass_to(passage);
                    } else if !is_followed {
                        self.drain_to_peers();
                    }
                }
                Control::Resign { within, resigned } => self.resign_home(within, resigned),
                Control::Resume => self.resume_home(),
                Control::Retire { accept_until, deadline, heirs, passage } => {
                    self.retiring = Some(Retiring { accept_until, deadline, heirs });
                    self.leave_cluster();
                    if let Some(passage) = passage.filter(|_| !self.is_behind_fronts()) {
                        self.pass_to(passage);
                    }
                    // What is in the books of other machines doesn't pass, but it may end there between two requests.
                    self.offer_all_to_heirs();
                    self.sweep_at = self.now;
                }
                Control::Ask(question) => self.answer_question(question),
                Control::Told { token, told } => self.command_answered(token, told),
                Control::Adopt { socket, listener, site, input, client } => {
                    self.adopt(socket, listener, &site, input, client)
                }
                Control::Passed => {
                    self.passed();
                    settled = true;
                }
                Control::Returned { passenger, number, verdict } => self.returned(passenger, number, verdict),
                Control::PassageEnded { number } => self.passage_ended(number),
                Control::Offered { passenger, key, answer } => self.offered(passenger, key, answer),
                Control::Begin { key } => self.begin_arrival(key),
                Control::Withdraw { key } => self.withdraw_arrival(key),
                Control::Weigh { config, owners, sites } => self.weigh(&config, &owners, &sites),
                Control::Depart { site, connections, to } => self.depart(&site, connections, to),
            }
        }
        if settled {
            // There is room for others.
            self.pass_all();
        }
    }

    fn configure(&mut self, config: &Arc<Config>, logs: &AccessLogs, listeners: Vec<(ListenerName, OwnedFd)>) {
        self.limits = settings::widest_limits(config);
        self.connections_max = (config.limits.connections / config.workers.max(1)).max(1);
        if config.files != self.config.files || config.workers != self.config.workers {
            // Its bounds have changed: what is asked for again fills the new one.
            self.cache = Cache::new(settings::cache_limits(config), self.boundary);
        }
        self.gathering = settings::gathering(config);
        let numbers = self.arrange_sites(config, logs);
        self.arrange_handlers(&numbers);
        self.configured = vec![None; self.sites.len()];
        for (place, &number) in numbers.iter().enumerate() {
            self.configured[number as usize] = Some(place);
        }
        self.arrange_admission(config);
        self.arrange_gates(config);
        self.arrange_ports(config, &numbers);
        self.replant(config);
        self.arrange_listeners(config, &numbers, listeners);
        self.config = config.clone();
        self.arrange_cluster(config);
        // The kernel takes its time with programs: what begins now has its whole time from here.
        self.now = self.host.now();
        self.resume_accepting();
    }

    /// Builds the tree anew, and queues again what waited in it.
    fn replant(&mut self, config: &Config) {
        self.count_usage();
        let mut waiting = Vec::new();
        while let Some((_, event)) = self.tree.pop() {
            waiting.push(event);
        }
        let places: Vec<&Place> = self.sites.iter().map(|site| &site.place).collect();
        let planted = shares::plant(config, &places);
        (self.tree, self.leaves) = (planted.tree, planted.leaves);
        self.members = planted.members;
        self.unknown = UnknownBranch::new(planted.unknown, self.boundary);
        self.replant_unknown();
        self.meter.forget(self.host.processor_time());
        self.ended_turn = None;
        self.restart_usage(config);
        self.requeue_turns();
        self.late.clear();
        for event in waiting {
            if event.is_unknown {
                self.admission.abandon(UNKNOWN_SITE as usize, self.now);
            }
            match event.task {
                Task::Accept => self.queue_accept(event.token),
                Task::Handoffs => {}
                Task::Relay => self.requeue_relay(event.token),
                Task::Program => {
                    self.programs.event_left();
                    self.queue_program(event.token);
                }
                Task::Stage(stage) => {
                    if let Some(connection) = self.connections.get(event.token)
                        && connection.queued_us == event.queued_us
                    {
                        connection.flags.queued = false;
                        self.queue(stage, event.token);
                    }
                }
            }
        }
    }

    /// Makes the sites; returns for each of the configuration's its number here.
    fn arrange_sites(&mut self, config: &Arc<Config>, logs: &AccessLogs) -> Vec<u32> {
        let server = settings::limits(&config.limits, None);
        let nowhere = Arc::new(FilePolicy::new("/nonexistent"));
        let own = [(UNKNOWN_NAME, SiteKind::Unknown, Place::Unknown), (ADMIN_NAME, SiteKind::Admin, Place::Admin)];
        for (name, kind, place) in own {
            // Heads are received for the unknown site: under the widest limits.
            let limits = if kind == SiteKind::Unknown { self.limits.clone() } else { server.clone() };
            let before = self.sites.iter().position(|known| known.name == name);
            self.put_site(name, before, |number, metrics| Site {
                name: name.to_owned(),
                number,
                kind,
                files: nowhere.clone(),
                offered: Vec::new(),
                handlers: Vec::new(),
                limits,
                access: Vec::new(),
                error_pages: Vec::new(),
                fallback: None,
                log: None,
                metrics,
                place,
            });
        }
        debug_assert_eq!(self.sites[UNKNOWN_SITE as usize].kind, SiteKind::Unknown);
        let old_config = self.config.clone();
        // There may be thousands, so that nobody is looked for among all.
        let known: HashMap<&str, usize> =
            self.sites.iter().enumerate().map(|(number, site)| (site.name.as_str(), number)).collect();
        let numbers: Vec<Option<usize>> =
            config.sites.iter().map(|site| known.get(site.name.as_str()).copied()).collect();
        let of_old: HashMap<&str, &config::Site> =
            old_config.sites.iter().map(|site| (site.name.as_str(), site)).collect();
        let are_files_same = old_config.files == config.files;
        config
            .sites
            .iter()
            .zip(numbers)
            .enumerate()
            .map(|(place, (site, number))| {
                let before = number.map(|number| self.sites[number].clone());
                let old = of_old.get(site.name.as_str()).filter(|_| are_files_same);
                let files = settings::shared_policy(config, site, old.copied().zip(before.as_deref()));
                if let Some(before) = &before
                    && !Arc::ptr_eq(&before.files, &files)
                {
                    self.cache.clear_site(before.number);
                }
                let known = before.as_ref().map_or(&[][..], |before| &before.handlers);
                let handlers = site.handlers.iter().filter_map(|handler| Handler::new(site, handler, known)).collect();
                // A dispatcher's requests are judged by the nodes that answer them.
                let kind = if config.role == Role::Dispatcher { SiteKind::Cluster } else { SiteKind::Files };
                let access = match kind {
                    SiteKind::Files => self.aggregates.access_rules(site),
                    _ => Vec::new(),
                };
                self.put_site(&site.name, number, |number, metrics| Site {
                    name: site.name.clone(),
                    number,
                    kind,
                    files,
                    offered: site.precompressed.clone(),
                    handlers,
                    limits: settings::limits(&config.limits, Some(&site.limits)),
                    access,
                    error_pages: site
                        .error_pages
                        .iter()
                        .map(|page| (page.status, page.path.clone().into_bytes().into()))
                        .collect(),
                    fallback: site.fallback.clone().map(Bytes::from),
                    log: logs.handle(place, &metrics.log_lines_dropped),
                    metrics,
                    place: Place::new(site),
                })
            })
            .collect()
    }

    /// Puts a site in the place of the one that had its name before, or in a new one.
    fn put_site(
        &mut self,
        name: &str,
        before: Option<usize>,
        make: impl FnOnce(u32, Arc<crate::metrics::SiteMetrics>) -> Site,
    ) -> u32 {
        let number = before.unwrap_or(self.sites.len()) as u32;
        match before {
            Some(place) => {
                let site = Rc::new(make(number, self.sites[place].metrics.clone()));
                let former = std::mem::replace(&mut self.sites[place], site);
                if !former.handlers.is_empty() {
                    self.former_sites.push(Rc::downgrade(&former));
                }
            }
            None => self.sites.push(Rc::new(make(number, self.metrics.site(name)))),
        }
        number
    }

    fn arrange_listeners(&mut self, config: &Config, numbers: &[u32], new: Vec<(ListenerName, OwnedFd)>) {
        let mut wanted: Vec<Rc<Listener>> = config
            .listeners
            .iter()
            .map(|listener| {
                let (name, hosts) = (ListenerName::site(listener.address), listener.hosts.clone());
                let site = hosts.site(b"").and_then(|place| numbers.get(place as usize).copied());
                let port = site.filter(|&site| self.ports.has(site));
                let is_vip = config.role == Role::Dispatcher && port.is_none();
                let tellers = if is_vip { &[] } else { config.proxy_protocol.tellers(listener.address) }.to_vec();
                Rc::new(Listener { name, hosts, sites: numbers.to_vec(), port, tellers })
            })
            .collect();
        if let Some(address) = config.admin.listen {
            // Numbers are given in the order of `arrange_sites`: unknown, then admin.
            let hosts = HostTable::new([], Some(0));
            let name = ListenerName::admin(address);
            wanted.push(Rc::new(Listener { name, hosts, sites: vec![ADMIN_SITE], port: None, tellers: Vec::new() }));
        }
        for (name, descriptor) in new {
            let Some(sites) = wanted.iter().find(|listener| listener.name == name) else { continue };
            let socket = ListeningSocket(super::socket_of(&descriptor).0);
            // An engine that has ended may have left it as it is while there's too much to do.
            self.reactor.set_queue_max(socket, None);
            self.reactor.let_in(socket, &LetIn::of_all(1.0));
            let listening = Listening {
                socket,
                state: ListenerState::Open(descriptor),
                sites: sites.clone(),
                accepting: false,
                awaited: false,
                knocked: false,
                queued: false,
                leaf: self.leaf_of_listener(&sites.name),
                queue_max: None,
                shedding: Default::default(),
                dropped: self.reactor.knocking(socket).dropped,
                parked: VecDeque::new(),
                gone_since: None,
            };
            // Connections name their listener by its place: places are never given away.
            self.listeners.push(listening);
        }
        for index in 0..self.listeners.len() {
            let listening = &mut self.listeners[index];
            match wanted.iter().find(|listener| listener.name == listening.sites.name) {
                Some(sites) => (listening.sites, listening.gone_since) = (sites.clone(), None),
                None => {
                    listening.gone_since = listening.gone_since.or(Some(self.now));
                    self.sweep_at = self.now;
                    self.retire_listener(index);
                }
            }
        }
    }
}
