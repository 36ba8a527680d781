//! Handlers: what makes replies other than files. Here a request is given to the one that its path names; each kind has a file of its own.

mod burn;
mod cgi;
mod fastcgi;
mod gather;
mod passage;
mod pool;
mod program_log;
mod program_run;
mod proxy;
mod redirect;
mod relay;
mod tunnel;
mod upkeep;

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use leat_host::reactor::Token;
use leat_logic::http::Status;
use leat_logic::schedule::Cost;
use leat_logic::serve::burn::BurnPolicy;
use leat_logic::serve::path_pattern::PathPattern;

use super::{Host, Stage, Worker};
use crate::config;
use burn::EarlyEnd;
use fastcgi::Responders;
use gather::Gathered;
pub(super) use passage::ServerArrival;
use pool::{ErrorPipe, Pool};
use program_run::Body;
pub(super) use program_run::ProgramRun;
use proxy::Proxy;
pub(super) use proxy::{Outcome as PassedOutcome, Passed};

/// A handler of a site. One that a reload doesn't change stays, with its programs.
pub(super) struct Handler {
    pub(super) paths: PathPattern,
    /// For the log: the site's name and the paths.
    name: String,
    /// The site's directory.
    root: PathBuf,
    config: config::Handler,
    kind: Kind,
    state: State,
}

/// What a worker has for all its handlers.
#[derive(Default)]
pub(super) struct Handlers {
    /// Those that have programs or keep connections, until the last has ended.
    kept: Vec<Rc<Handler>>,
    /// For requests that are given to peers.
    peers: Option<Rc<Handler>>,
    /// What has become of those.
    pub(super) passed: Vec<Passed>,
    /// The index of the next pipe's token.
    next_pipe: u32,
    /// Pipes that the reactor may still look at.
    pub(super) closing_pipes: Vec<ErrorPipe>,
    /// Whether slices of computing may end early.
    pub(super) early_end: EarlyEnd,
}

/// What its worker knows of a handler.
#[derive(Default)]
struct State {
    /// The number of the site that has it, or had it last.
    site: Cell<Option<u32>>,
    /// That site has it in the configuration in force.
    is_configured: Cell<bool>,
    /// It's among those that the worker keeps.
    is_kept: Cell<bool>,
}

enum Kind {
    /// A reply has the first bytes of `content`.
    Burn { policy: BurnPolicy, content: Bytes },
    /// A program for each request.
    Cgi { config: config::Cgi, pool: Pool },
    /// Programs that stay.
    FastCgi { config: config::FastCgi, pool: Pool, responders: Responders },
    /// Other servers.
    Proxy { proxy: Proxy, pool: Pool },
    /// Another place.
    Redirect(config::Redirect),
}

/// What a handler has under way for a request.
pub(super) enum Run {
    /// The processor time left and that used since others had a turn, in nanoseconds (`None`: it never ends), and the reply's content.
    Burn { left_ns: Option<u64>, turn_ns: u64, content: Bytes },
    /// A program is at work, or one is waited for.
    Program(Box<ProgramRun>),
}

impl Run {
    /// Whether the client may still be told something: while that is so, a client that ends its side is taken to have gone. In a tunnel that means what both
    /// sides make of it.
    pub(super) fn is_needed(&self) -> bool {
        !matches!(self, Run::Program(run) if run.is_told() || run.is_tunnel())
    }

    /// Bytes of the request's content and of the reply's head that lie here.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Run::Program(run) => run.gathered.as_ref().map_or(0, Gathered::len) + run.output.len(),
            Run::Burn { .. } => 0,
        }
    }

    /// The stream to the program.
    pub(super) fn stream(&self) -> Option<Token> {
        match self {
            Run::Program(run) => run.stream(),
            Run::Burn { .. } => None,
        }
    }

    /// Whether the request's content lies here as a whole before a program has any of it.
    pub(super) fn is_gathering(&self) -> bool {
        matches!(self, Run::Program(run) if run.gathered.is_some())
    }

    /// Whether it takes the request's content, and not all of that has come.
    pub(super) fn expects_content(&self) -> bool {
        matches!(self, Run::Program(run) if matches!(run.body, Body::Gathering | Body::Expected | Body::Tunnel))
    }
}

impl Handler {
    /// The handler for a configuration: the one that there was if it's the same. `None` for one that the configuration's check would have
    /// refused.
    pub(super) fn new(site: &config::Site, handler: &config::Handler, before: &[Rc<Handler>]) -> Option<Rc<Handler>> {
        if let Some(same) = before.iter().find(|known| known.config == *handler && known.root == site.root) {
            return Some(same.clone());
        }
        let kind = if let Some(burn) = &handler.burn {
            burn::kind(burn)
        } else if let Some(cgi) = &handler.cgi {
            Kind::Cgi { config: cgi.clone(), pool: Pool::new(cgi.processes, cgi.queue, cgi.timeout) }
        } else if let Some(proxy) = &handler.proxy {
            proxy::kind(proxy)
        } else if let Some(redirect) = &handler.redirect {
            Kind::Redirect(redirect.clone())
        } else {
            let fastcgi = handler.fastcgi.as_ref()?;
            let pool = Pool::new(fastcgi.processes, fastcgi.queue, fastcgi.timeout);
            Kind::FastCgi { config: fastcgi.clone(), pool, responders: Responders::new(fastcgi) }
        };
        let name = format!("{} {}", site.name, handler.path);
        let (paths, root, config) = (handler.path.clone(), site.root.clone(), handler.clone());
        Some(Rc::new(Handler { paths, name, root, config, kind, state: State::default() }))
    }

    /// The number of the site that has it, or had it last.
    pub(super) fn site(&self) -> Option<u32> {
        self.state.site.get()
    }

    /// Whether it's asked for files only, see `config::FastCgi`.
    pub(super) fn needs_file(&self) -> bool {
        let Kind::FastCgi { config, .. } = &self.kind else { return false };
        let is_ending = matches!(self.paths, PathPattern::Ending(_));
        config.needs_file.unwrap_or(is_ending && config.command.is_some())
    }

    /// Whether what a path has behind its own is told to it.
    pub(super) fn takes_path_info(&self) -> bool {
        matches!((&self.kind, &self.paths), (Kind::FastCgi { .. }, PathPattern::Ending(_)))
    }

    /// Whether requests, or their clients, go to other servers, with their paths as they came.
    pub(super) fn passes_on(&self) -> bool {
        matches!(self.kind, Kind::Proxy { .. } | Kind::Redirect(_))
    }

    /// How long its programs may be silent.
    pub(super) fn timeout(&self) -> Option<std::time::Duration> {
        self.pool().map(|pool| pool.timeout)
    }

    /// Whether a request is with one of its programs, or waits for one.
    pub(super) fn is_at_work(&self) -> bool {
        let has_request = match &self.kind {
            Kind::FastCgi { responders, .. } => responders.has_work(),
            Kind::Proxy { proxy, .. } => proxy.has_work(),
            Kind::Burn { .. } | Kind::Cgi { .. } | Kind::Redirect(_) => false,
        };
        has_request || self.pool().is_some_and(Pool::is_busy)
    }

    /// The program at a place, if leat has started it.
    fn program_at(&self, place: usize) -> Option<Token> {
        let Kind::FastCgi { responders, .. } = &self.kind else { return None };
        responders.program(place)
    }

    /// A kept connection to a responder has ended.
    pub(super) fn forget_stream(&self, responder: usize, stream: Token) {
        match &self.kind {
            Kind::FastCgi { responders, .. } => responders.forget(responder, stream),
            Kind::Proxy { proxy, .. } => proxy.forget(responder, stream),
            Kind::Burn { .. } | Kind::Cgi { .. } | Kind::Redirect(_) => {}
        }
    }

    /// The pool of a handler that has programs.
    fn pool(&self) -> Option<&Pool> {
        match &self.kind {
            Kind::Burn { .. } | Kind::Redirect(_) => None,
            Kind::Cgi { pool, .. } | Kind::FastCgi { pool, .. } | Kind::Proxy { pool, .. } => Some(pool),
        }
    }
}

impl<H: Host> Worker<H> {
    /// Has a handler answer the request in hand; `named`: bytes of the path that name it.
    pub(super) fn begin_run(&mut self, token: Token, place: usize, named: usize) {
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        let Some(site) = exchange.site.clone() else { return };
        let handler = &site.handlers[place];
        match &handler.kind {
            // Its turn comes with its first slice: until then it's only known what it wants.
            Kind::Burn { policy, content } => self.begin_burn(token, policy, content),
            Kind::Redirect(redirect) => return self.redirect(token, redirect, named),
            Kind::Cgi { .. } | Kind::FastCgi { .. } | Kind::Proxy { .. } => {
                if !self.start(token) {
                    return;
                }
                self.begin_program_run(token, handler, named);
            }
        }
        if self.connections[token].flags.behind && self.content_room(token) > 0 {
            // The rest of what has come goes along with what lies here, in one piece, and then more is asked for.
            self.queue(Stage::Transmit, token);
        } else {
            // Hears of a client that goes away.
            self.arm_receive(token);
        }
    }

    /// Lets a handler that computes in the worker do so for a slice.
    pub(super) fn compute(&mut self, token: Token) -> Cost {
        if !self.start(token) {
            return Cost::from_ns(0);
        }
        let exchange = self.connections[token].exchange.as_mut();
        match exchange.and_then(|exchange| exchange.run.as_ref()) {
            Some(Run::Burn { .. }) => self.burn_slice(token),
            Some(Run::Program(_)) | None => Cost::from_ns(0),
        }
    }

    /// Answers in place of a handler that can't.
    fn fail_run(&mut self, token: Token, status: Status) {
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        exchange.run = None;
        exchange.is_passed_on = false;
        if exchange.status != 0 {
            // A reply has begun: nothing else can be said.
            self.cut(token);
        } else {
            self.reply_error(token, status);
        }
    }
}
