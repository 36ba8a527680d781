//! The serve stage: from a request to what is sent for it. The cache answers most; the storage the rest, at once or later.

use std::sync::Arc;

use leat_host::reactor::Token;
use leat_host::storage::{Outcome, Storage};
use leat_logic::http::{Method, Status};
use leat_logic::schedule::Operation;
use leat_logic::serve::cache::Lookup;
use leat_logic::serve::path::LoadRequest;
use leat_logic::serve::resource::{Found, Loaded};

use super::exchange::Answer;
use super::settings::{Site, SiteKind};
use super::{File, Host, Stage, Worker, ticket_of};
use crate::ctl::http::is_command;

impl<H: Host> Worker<H> {
    /// Answers the request in hand, or asks the storage what to answer.
    pub(super) fn serve(&mut self, token: Token) {
        self.meter.did(Operation::Serve, 0);
        if self.refuse_held(token) {
            return;
        }
        if self.cluster.is_some() && !self.belongs_here(token) {
            return;
        }
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        let first = std::mem::take(&mut exchange.first);
        if self.refuse_first(token, first) || !self.let_in(token) {
            return;
        }
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        let handler = match &exchange.site {
            Some(site) if !site.handlers.is_empty() && exchange.error.is_none() => {
                let found = site.handler(&exchange.path);
                let found = found.filter(|&(place, _)| {
                    exchange.is_file || !(exchange.is_script() || site.handlers[place].needs_file())
                });
                // What is passed on goes as it came, so all of the handler's path must be what it would be without decoding slashes.
                found.filter(|&(place, named)| {
                    exchange.encoded_slash.is_none_or(|at| at > named && site.handlers[place].passes_on())
                })
            }
            _ => None,
        };
        if let Some((place, named)) = handler {
            if self.cluster.is_some() && self.gives_back(token, None) {
                return;
            }
            self.begin_run(token, place, named);
            return;
        }
        if !self.start(token) {
            return;
        }
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        // The page of an error is found as for a GET, whatever was asked for.
        let method = if exchange.error.is_some() { Method::Get } else { exchange.method };
        let kind = exchange.site.as_ref().map_or(SiteKind::Unknown, |site| site.kind);
        if kind == SiteKind::Cluster && exchange.error.is_none() {
            self.dispatch(token);
            return;
        }
        if exchange.encoded_slash.is_some() {
            if !self.fall_back(token) {
                self.reply_error(token, Status::NOT_FOUND);
            }
            return;
        }
        let is_read = matches!(method, Method::Get | Method::Head);
        // Where a handler answers for the index of a directory, or for a file, it does so for every method.
        let may_be_handled = || {
            let site = exchange.site.as_ref();
            site.is_some_and(|site| {
                let path = &exchange.path;
                let may_be_script = exchange.is_script() || site.script_within(path).is_some();
                may_be_script || site.files.may_have_handled_index(path) || site.needs_file(path)
            })
        };
        match kind {
            SiteKind::Files if is_read || may_be_handled() => match exchange.answer.take() {
                Some(Answer::Loaded(loaded)) => self.loaded(token, loaded),
                _ => self.look_up(token),
            },
            SiteKind::Admin if is_command(&exchange.path) => self.reply_command(token),
            _ if !is_read => self.reply_unreadable(token, method),
            SiteKind::Admin => self.reply_admin(token),
            SiteKind::Files | SiteKind::Unknown | SiteKind::Cluster => self.reply_misdirected(token),
        }
    }

    /// Answers a request by another method than GET and HEAD that no handler answers.
    pub(super) fn reply_unreadable(&mut self, token: Token, method: Method) {
        match method {
            _ if self.fall_back(token) => {}
            Method::Options => self.reply_options(token),
            Method::Other => self.reply_error(token, Status::NOT_IMPLEMENTED),
            _ => self.reply_not_allowed(token),
        }
    }

    /// Whether a handler answers the request in hand if its path is a file.
    pub(super) fn asks_for_script(&self, token: Token) -> bool {
        let Some(exchange) = self.connections[token].exchange.as_ref() else { return false };
        let site = exchange.site.as_ref().filter(|site| !site.handlers.is_empty() && exchange.error.is_none());
        site.is_some_and(|site| exchange.is_script() || site.needs_file(&exchange.path))
    }

    /// It is: the handler answers.
    pub(super) fn serve_script(&mut self, token: Token) {
        if let Some(exchange) = self.connections[token].exchange.as_mut() {
            exchange.is_file = true;
            self.queue(Stage::Serve, token);
        }
    }

    /// Serves the request in hand as one for another path.
    pub(super) fn serve_at(&mut self, token: Token, path: &[u8]) {
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        exchange.path.clear();
        exchange.path.extend_from_slice(path);
        exchange.path_info.clear();
        exchange.encoded_slash = None;
        self.queue(Stage::Serve, token);
    }

    /// The path names nothing. If it begins with what may be a script's, that is asked for, and the rest is for the script. It has to be a file,
    /// whatever the handler says: else PHP would look for one in what comes before.
    pub(super) fn serve_script_within(&mut self, token: Token) -> bool {
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return false };
        let site = exchange.site.as_ref().filter(|_| exchange.error.is_none());
        let Some(end) = site.and_then(|site| site.script_within(&exchange.path)) else { return false };
        let mut script = std::mem::take(&mut exchange.path);
        let rest = script.split_off(end);
        self.serve_at(token, &script);
        if let Some(exchange) = self.connections[token].exchange.as_mut() {
            exchange.path_info = rest;
        }
        true
    }

    /// Has the site's fallback answer, if it has one for this request: once.
    pub(super) fn fall_back(&mut self, token: Token) -> bool {
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return false };
        // `*` of OPTIONS is no path.
        if exchange.fell_back || exchange.error.is_some() || exchange.path.is_empty() {
            return false;
        }
        let site = exchange.site.as_ref();
        let path = site.filter(|site| site.kind == SiteKind::Files).and_then(|site| site.fallback_for(exchange.method));
        let Some(path) = path.cloned() else { return false };
        exchange.fell_back = true;
        self.serve_at(token, &path);
        true
    }

    pub(super) fn asks_for_directory(&self, token: Token) -> bool {
        self.connections[token].exchange.as_ref().is_some_and(|exchange| exchange.path.ends_with(b"/"))
    }

    fn look_up(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        let site = connection.site;
        let Some(exchange) = connection.exchange.as_mut() else { return };
        let known = match self.cache.lookup(site, exchange.codings, &exchange.path, self.now) {
            Lookup::Fresh(found) => {
                let found = found.clone();
                self.metrics.cache_hits.increment();
                self.reply_found(token, found);
                return;
            }
            Lookup::Stale(_, known) => known,
            Lookup::Absent => None,
        };
        let Some(files) = exchange.site.as_ref().map(|site| &site.files) else { return };
        let request = match LoadRequest::new(files, &exchange.path, exchange.codings) {
            Ok(request) => request.unless(known),
            Err(found) => {
                self.reply_found(token, found);
                return;
            }
        };
        match request.known() {
            Some(_) => self.metrics.cache_checks.increment(),
            None => self.metrics.cache_misses.increment(),
        }
        exchange.question = Some(request.clone());
        match self.load(token, site, request) {
            Outcome::Ready(loaded) => {
                self.meter.did(Operation::Load, 0);
                self.remember(token, loaded.as_ref());
                self.loaded(token, loaded);
            }
            Outcome::Pending => self.meter.did(Operation::Pass, 0),
        }
    }

    /// Asks the storage on account of a site.
    fn load(&mut self, token: Token, site: u32, request: LoadRequest) -> Outcome<Option<Loaded<File<H>>>> {
        let account = self.open_account(site);
        let outcome = self.storage.load(ticket_of(token), account.payer, request);
        self.close_account(account);
        outcome
    }

    /// Has the cache know what the storage says, before it hears of any change that comes later: the request's turn may come after that.
    pub(super) fn remember(&mut self, token: Token, loaded: Option<&Loaded<File<H>>>) {
        let Some(connection) = self.connections.get(token) else { return };
        let Some(exchange) = connection.exchange.as_ref() else { return };
        let Some(question) = &exchange.question else { return };
        if !is_by_rules_of(&self.sites[connection.site as usize], question) {
            return;
        }
        match loaded {
            Some(loaded) => self.cache.insert(connection.site, question, loaded, self.now),
            // What the cache had is as it was.
            None => self.cache.renew(connection.site, exchange.codings, &exchange.path, self.now),
        }
    }

    /// The storage has answered, and the request has its turn.
    fn loaded(&mut self, token: Token, loaded: Option<Loaded<File<H>>>) {
        let connection = &mut self.connections[token];
        let site = connection.site;
        let Some(exchange) = connection.exchange.as_mut() else { return };
        let Some(question) = exchange.question.take() else { return };
        let found = match loaded {
            Some(loaded) => {
                if question.known().is_some() {
                    self.metrics.cache_misses.increment();
                }
                loaded.found
            }
            None => match self.cache.lookup(site, exchange.codings, &exchange.path, self.now) {
                Lookup::Fresh(found) => found.clone(),
                // It has been dropped meanwhile: ask for all of it.
                Lookup::Stale(..) | Lookup::Absent => {
                    let request = question.unless(None);
                    exchange.question = Some(request.clone());
                    match self.load(token, site, request) {
                        Outcome::Ready(Some(loaded)) => loaded.found,
                        Outcome::Ready(None) => Found::NotFound,
                        Outcome::Pending => return,
                    }
                }
            },
        };
        self.reply_found(token, found);
    }
}

/// Whether an answer to this may be kept for the site: one by the rules of a configuration from before would come with their header lines for as long
/// as its file is the same.
pub(super) fn is_by_rules_of(site: &Site, question: &LoadRequest) -> bool {
    Arc::ptr_eq(&site.files, question.policy())
}
