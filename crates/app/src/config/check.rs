//! What takes more than one key to judge: limits that contradict each other, and one site against itself. Sites against each other are in
//! `check_sites`, shares in `check_schedule`, single values in `kinds`.

use std::fs;
use std::net::SocketAddr;
use std::ops::Range;

use leat_logic::serve::path_pattern::PathPattern;
use leat_logic::spread::WORKERS_MAX;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::cluster::Role;
use super::handler::Handler;
use super::kinds::{cores, reason, show_size};
use super::mistake::{Mistake, Severity};
use super::server::{Config, Reactor};
use super::site::Site;
use super::{check_cluster, check_schedule, check_sites};

/// Errors that are told before it's known which site they're of, or what they'd be an answer to.
const OWN_PAGES: [u16; 5] = [408, 414, 417, 421, 431];

/// A parsed file and the configuration that was read from it.
pub(super) struct Judge<'a> {
    root: &'a DeTable<'a>,
    pub(super) config: &'a Config,
    mistakes: &'a mut Vec<Mistake>,
    /// Values that have mistakes already: their places hold defaults, of which nothing can be said.
    bad: Vec<Range<usize>>,
}

/// A section of the file and what was read from it.
pub(super) struct Table<'a, T> {
    pub(super) section: &'a T,
    /// `None` where something else than a table stands.
    value: Option<&'a Spanned<DeValue<'a>>>,
}

impl<T> Clone for Table<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Table<'_, T> {}

/// One `[[site]]`.
pub(super) type SiteTable<'a> = Table<'a, Site>;

/// Adds to `mistakes` what is wrong with `config`, which was read from `root`; of a file that isn't whole, nothing is said to be missing.
pub(super) fn judge(root: &DeTable<'_>, is_whole: bool, config: &Config, mistakes: &mut Vec<Mistake>) {
    let bad = mistakes.iter().filter_map(|mistake| mistake.span.clone()).collect();
    let mut judge = Judge { root, config, mistakes, bad };
    judge.limits();
    judge.gathering();
    judge.workers();
    judge.user();
    let sites = judge.tables("site", &config.sites);
    let is_foreign = config.cluster.own_node().is_some_and(|node| !node.server.is_empty());
    let may_be_without = config.role == Role::Dispatcher || config.role == Role::Node && is_foreign;
    if is_whole
        && !may_be_without
        && sites.is_empty()
        && judge.root.get("site").is_none_or(|value| judge.is_good(&value.span()))
    {
        judge.error(0..0, "there is no site", "add [[site]] on a line of its own, and below it root = \"...\"");
    }
    for site in &sites {
        judge.root(*site, is_whole);
        judge.site(*site);
    }
    check_sites::judge(&mut judge, &sites);
    check_schedule::judge(&mut judge, &sites);
    check_cluster::balancers(&mut judge);
    check_cluster::judge(&mut judge);
}

impl<'a> Judge<'a> {
    pub(super) fn error(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.mistakes.push(Mistake::new(Severity::Error, span, message, help));
    }

    pub(super) fn error_with_note(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
        note: (Range<usize>, &str),
    ) {
        self.mistakes.push(Mistake::new(Severity::Error, span, message, help).with_note(note.0, note.1));
    }

    pub(super) fn warning(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.mistakes.push(Mistake::new(Severity::Warning, span, message, help));
    }

    /// Whether nothing was found wrong within `span` as it was read.
    pub(super) fn is_good(&self, span: &Range<usize>) -> bool {
        self.bad.iter().all(|bad| bad.start < span.start || bad.end > span.end)
    }

    /// What is written at `path`, a key in a section in a section.
    pub(super) fn value(&self, path: &[&str]) -> Option<&'a Spanned<DeValue<'a>>> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.root.get(*first)?, |value, key| value.get_ref().get(*key))
    }

    /// Where the value at `path` is, if it's written and good.
    pub(super) fn written_at(&self, path: &[&str]) -> Option<Range<usize>> {
        let span = self.value(path)?.span();
        self.is_good(&span).then_some(span)
    }

    /// Where `key` of `[section]` has its value, if it's written and good.
    pub(super) fn written(&self, section: &str, key: &str) -> Option<Range<usize>> {
        self.written_at(&[section, key])
    }

    /// The tables `[[key]]` beside what was read from them.
    pub(super) fn tables<T>(&self, key: &str, sections: &'a [T]) -> Vec<Table<'a, T>> {
        let values: Vec<_> = match self.root.get(key).map(|value| (value, value.get_ref())) {
            Some((_, DeValue::Array(items))) => items.iter().collect(),
            Some((value, DeValue::Table(_))) => vec![value],
            _ => Vec::new(),
        };
        let pairs = sections.iter().zip(values);
        pairs.map(|(section, value)| Table { section, value: value.get_ref().is_table().then_some(value) }).collect()
    }

    fn limits(&mut self) {
        let config = self.config;
        if let Some(span) = self.written("limits", "target_size")
            && config.limits.target_size > config.limits.head_size
        {
            let (target, head) = (config.limits.target_size as u64, config.limits.head_size as u64);
            self.error(
                span,
                format!("`target_size` is {}, more than `head_size`, which is {}", show_size(target), show_size(head)),
                "the head holds the target: make `head_size` larger or `target_size` smaller",
            );
        }
        if let Some(span) = self.written("files", "cache_file_size_max")
            && config.files.cache_file_size_max > config.files.cache_size
        {
            let (file, cache) = (config.files.cache_file_size_max, config.files.cache_size);
            self.error(
                span,
                format!(
                    "`cache_file_size_max` is {}, more than `cache_size`, which is {}",
                    show_size(file),
                    show_size(cache)
                ),
                "the cache holds the file: make `cache_size` larger or `cache_file_size_max` smaller",
            );
        }
        if let Some(span) = self.written("limits", "connections")
            && config.limits.connections < config.workers
        {
            self.error(
                span,
                format!("`connections` is {}, fewer than the {} workers", config.limits.connections, config.workers),
                "each worker takes an equal part: allow one for each worker at least",
            );
        }
    }

    fn gathering(&mut self) {
        if let Some(span) = self.written("schedule", "gather_us")
            && self.config.schedule.gather_us > 0
            && self.config.reactor == Reactor::Epoll
        {
            self.warning(
                span,
                "`gather_us` counts for nothing under reactor = \"epoll\"",
                "take it out, or write reactor = \"io_uring\"",
            );
        }
    }

    fn workers(&mut self) {
        let (workers, cores) = (self.config.workers, cores());
        let Some(value) = self.root.get("workers").filter(|value| self.is_good(&value.span())) else { return };
        if workers > usize::from(WORKERS_MAX) && self.config.role == Role::Node && self.config.cluster.hands_on() {
            let message = format!("`workers` is {workers}: a node that chooses by content has {WORKERS_MAX} at most");
            self.error(value.span(), message, "write fewer, or have the machine be several nodes");
        } else if workers > cores {
            let message = format!("`workers` is {workers}, more than the cores that leat may run on ({cores} here)");
            self.warning(value.span(), message, "leave `workers` out: there is then one for each core");
        }
    }

    fn user(&mut self) {
        if let Some(span) = self.written_at(&["user"])
            && self.config.user.is_some()
            && self.config.role != Role::Server
        {
            let message = format!("`user` can't be given under role = \"{}\"", self.config.role.name());
            self.error(span, message, "take it out: handing connections over takes privileges; docs/service.md says how to run as another user all the same");
        }
    }

    /// A site has files, unless a handler answers for all paths.
    fn root(&mut self, table: SiteTable<'a>, is_whole: bool) {
        let Some(site) = table.value.filter(|_| is_whole && table.value("root").is_none()) else { return };
        let everything = PathPattern::default();
        if !table.section.handlers.iter().any(|handler| handler.path == everything) {
            let help = "add `root = \"/srv/www\"`, or a [[site.handler]] with path = \"/*\", which needs none";
            self.error(site.span(), "`root` is missing in [[site]]", help);
        } else if let Some(span) = table.written(self, "error_pages") {
            self.error(
                span,
                "`error_pages` are files, and this site has none",
                "add `root = \"/srv/www\"`, where they are",
            );
        }
    }

    fn site(&mut self, table: SiteTable<'a>) {
        if table.section.listen.is_empty()
            && let Some(span) = table.written(self, "listen")
        {
            self.error(
                span,
                "`listen` is empty: nobody could reach this site",
                "write an address, or leave `listen` out",
            );
        }
        if let Some(log) = table.value("access_log")
            && let Some(format) = log.get_ref().get("format")
            && log.get_ref().get("path").is_none()
        {
            self.warning(
                format.span(),
                "`format` counts for nothing without `path`",
                "add path = \"-\", or the path of a file",
            );
        }
        self.error_pages(table);
        self.fallback(table);
        self.hosts(table);
        self.access(table);
        self.handlers(table);
    }

    /// A rule says who may or how often.
    fn access(&mut self, table: SiteTable<'a>) {
        for (index, rule) in table.section.access.iter().enumerate() {
            let Some(span) = table.item("access", index) else { continue };
            let is_wrong = |key| {
                let value = table.nested_item("access", index, key);
                value.is_some_and(|value| !self.is_good(&value.span()))
            };
            let says_nothing = rule.allow.is_empty() && rule.deny.is_empty() && rule.requests == 0;
            if says_nothing && !["allow", "deny", "requests"].into_iter().any(is_wrong) {
                let message = format!("the access to {} is everybody's, as without this section", rule.path);
                self.warning(span, message, "write `allow`, `deny` or `requests`");
            } else if let Some(per) = table.nested_item("access", index, "per")
                && rule.requests == 0
                && !is_wrong("requests")
            {
                self.warning(
                    per.span(),
                    "`per` counts for nothing without `requests`",
                    "add `requests`, or take it out",
                );
            }
        }
    }

    /// Each handler is one thing.
    fn handlers(&mut self, table: SiteTable<'a>) {
        for (index, handler) in table.section.handlers.iter().enumerate() {
            let Some(span) = table.item("handler", index).filter(|span| self.is_good(span)) else { continue };
            let path_at = |index| table.nested_item("handler", index, "path").map(Spanned::span);
            let is_meant = |index| path_at(index).is_some_and(|path| self.is_good(&path));
            let earlier = &table.section.handlers[..index];
            if let Some(first) = earlier.iter().position(|earlier| earlier.path.covers(&handler.path))
                && is_meant(index)
                && is_meant(first)
                && let Some(place) = path_at(first)
            {
                let message = format!("the handler of {} never answers: the first whose path fits does", handler.path);
                let help = format!("write it before that of {}, or take it out", earlier[first].path);
                let mistake = Mistake::new(Severity::Warning, span.clone(), message, help);
                self.mistakes.push(mistake.with_note(place, "that one's path is"));
            }
            let sections = handler.sections();
            // One that is there and isn't what it must be has been told already.
            let is_named = Handler::KINDS.iter().any(|kind| table.nested_item("handler", index, kind).is_some());
            if sections.len() > 1 || sections.is_empty() && !is_named {
                let message = match sections.len() {
                    0 => format!("the handler of {} doesn't say what it is", handler.path),
                    _ => format!("the handler of {} is {} at once", handler.path, sections.join(" and ")),
                };
                self.error(span.clone(), message, format!("write one of {}", Handler::KINDS.join(", ")));
            }
            if handler.proxy.as_ref().is_some_and(|proxy| proxy.strip_path)
                && !matches!(handler.path, PathPattern::Below(_))
            {
                let message = format!("`strip_path` would leave nothing of {}", handler.path);
                self.error(span.clone(), message, "have `path` end in /*, or take `strip_path` out");
            }
            let to = table.nested_item("handler", index, "proxy").and_then(|proxy| proxy.get_ref().get("to"));
            if to.and_then(|to| to.get_ref().as_array()).is_some_and(|to| to.is_empty()) {
                let message = format!("the handler of {} has no server to pass requests on to", handler.path);
                self.error(span.clone(), message, "write one, as in to = [\"127.0.0.1:9000\"]");
            }
            // Beside something else it's told already, and may not be meant.
            let redirect = handler.redirect.as_ref().filter(|_| sections.len() == 1);
            if let Some(redirect) = redirect
                && redirect.to.appends()
                && !matches!(handler.path, PathPattern::Below(_))
            {
                let message =
                    format!("the redirect of {} to {} has no rest of a path to go by", handler.path, redirect.to);
                self.error(span.clone(), message, "take /* away from `to`, or have `path` end in it");
            } else if let Some(redirect) = redirect
                && redirect.to.leads_to(&handler.path)
                && !table.section.handlers[..index].iter().any(|earlier| redirect.to.leads_to(&earlier.path))
            {
                let message =
                    format!("the redirect of {} leads to one of its own paths, again and again", handler.path);
                self.error(span.clone(), message, "write another place, or a handler for that path before this one");
            }
            let Some(fastcgi) = table.nested_item("handler", index, "fastcgi") else { continue };
            // Written, even if wrongly: that is told already.
            let is_written = |key| fastcgi.get_ref().get(key).is_some();
            if is_written("command") == is_written("address") {
                let message = match is_written("command") {
                    true => "FastCGI programs are either started by leat (`command`) or by somebody else (`address`)",
                    false => "nobody says which FastCGI program there is",
                };
                self.error(span, message, "write one of `command` and `address`");
            }
        }
    }

    fn error_pages(&mut self, table: SiteTable<'a>) {
        if table.written(self, "root").is_none() || table.written(self, "error_pages").is_none() {
            return;
        }
        for page in &table.section.error_pages {
            let status = page.status.to_string();
            let Some(value) = table.value("error_pages").and_then(|pages| pages.get_ref().get(status)) else {
                continue;
            };
            if OWN_PAGES.contains(&page.status) {
                let message = format!("`error_pages`: {} has leat's own page, whatever the site has", page.status);
                self.warning(value.span(), message, "take it out");
            }
            let is_source = |paths: &PathPattern| {
                matches!(paths, PathPattern::Ending(_)) && paths.split(page.path.as_bytes()).is_some()
            };
            if table.section.handlers.iter().any(|handler| is_source(&handler.path)) {
                let message =
                    format!("`error_pages`: {:?} is a program's source, and would be sent as it is", page.path);
                self.error(value.span(), message, "write a file that no handler answers for");
                continue;
            }
            self.page(table, "error_pages", &page.path, value.span());
        }
    }

    fn fallback(&mut self, table: SiteTable<'a>) {
        let Some(path) = &table.section.fallback else { return };
        let is_handled = table.section.handlers.iter().any(|handler| handler.path.split(path.as_bytes()).is_some());
        if let (Some(span), Some(_), false) = (table.written(self, "fallback"), table.written(self, "root"), is_handled)
        {
            self.page(table, "fallback", path, span);
        }
    }

    /// A file of the site that stands for others: it must be there, and must not be hidden.
    fn page(&mut self, table: SiteTable<'a>, key: &str, path: &str, span: Range<usize>) {
        let file = table.section.root.join(path.trim_start_matches('/'));
        let is_hidden = path.split('/').any(|name| name.starts_with('.')) && !path.starts_with("/.well-known/");
        let wrong = match fs::metadata(&file) {
            Ok(_) if is_hidden && !table.section.hidden => "is hidden: its name begins with a dot".to_owned(),
            Ok(metadata) if metadata.is_file() => return,
            Ok(_) => "isn't a file".to_owned(),
            Err(error) => format!("can't be used: {}", reason(&error)),
        };
        let help = format!("create {}, or write another page", file.display());
        self.error(span, format!("`{key}`: {path:?} {wrong}"), help);
    }

    /// Hosts that a wildcard of the same site has already.
    fn hosts(&mut self, table: SiteTable<'a>) {
        if table.written(self, "hosts").is_none() {
            return;
        }
        let hosts = &table.section.hosts;
        let wildcards: Vec<_> = hosts.iter().filter(|host| host.is_wildcard()).collect();
        for (index, host) in hosts.iter().enumerate() {
            if let Some(wide) = wildcards.iter().find(|other| **other != host && other.covers(host))
                && let Some(span) = table.item("hosts", index)
            {
                self.warning(span, format!("`{host}` is one of `{wide}` already"), "take it out");
            }
        }
    }

    /// Where the admin address is written, or the whole file where it is the default.
    pub(super) fn admin(&self) -> Option<(SocketAddr, Option<Range<usize>>)> {
        Some((self.config.admin.listen?, self.written("admin", "listen")))
    }
}

impl<'a, T> Table<'a, T> {
    /// What is written under `key`.
    pub(super) fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.value?.get_ref().get(key)
    }

    /// Where `key` has its value, if it's written and good.
    pub(super) fn written(&self, judge: &Judge<'_>, key: &str) -> Option<Range<usize>> {
        let span = self.value(key)?.span();
        judge.is_good(&span).then_some(span)
    }

    /// Whether what the configuration has for `key` is what the file means: written and good, or not written at all.
    pub(super) fn is_meant(&self, judge: &Judge<'_>, key: &str) -> bool {
        self.value.is_some() && self.value(key).is_none_or(|value| judge.is_good(&value.span()))
    }

    /// What is written under `section` of item `index` of the list of tables `key`.
    fn nested_item(&self, key: &str, index: usize, section: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        let DeValue::Array(items) = self.value(key)?.get_ref() else { return None };
        items.get(index)?.get_ref().get(section)
    }

    /// Where item `index` of the list `key` is.
    pub(super) fn item(&self, key: &str, index: usize) -> Option<Range<usize>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Array(items) => items.get(index).map(Spanned::span),
            _ => Some(value.span()),
        }
    }

    /// Where the section begins.
    pub(super) fn span(&self) -> Range<usize> {
        self.value.map_or(0..0, Spanned::span)
    }
}
