//! A configuration in the form that a worker uses: for each site what a request of it needs, for each listener which site a host belongs to.
//!
//! Made on the worker's own thread, so that sharing a site between requests costs no atomic operation.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leat_logic::admission::AccessRule;
use leat_logic::http::{Limits, Method, Request};
use leat_logic::network::Network;
use leat_logic::schedule::Gathering;
use leat_logic::serve::cache::CacheLimits;
use leat_logic::serve::coding::{Coding, CodingOrder};
use leat_logic::serve::hosts::HostTable;
use leat_logic::serve::mime::MimeTable;
use leat_logic::serve::path_pattern::PathPattern;
use leat_logic::serve::policy::{AddedHeader, FilePolicy};

use super::handler::Handler;
use super::shares::Place;
use crate::access_log::AccessLogHandle;
use crate::config::{self, Config};
use crate::listener::ListenerName;
use crate::metrics::SiteMetrics;

/// What a request of one site needs.
pub(super) struct Site {
    pub(super) name: String,
    /// The worker's number for it, which stays the same over reloads for as long as the name does.
    pub(super) number: u32,
    pub(super) kind: SiteKind,
    pub(super) files: Arc<FilePolicy>,
    pub(super) offered: Vec<Coding>,
    /// The first whose paths fit answers.
    pub(super) handlers: Vec<Rc<Handler>>,
    pub(super) limits: Limits,
    /// Who may ask for some paths, and how often.
    pub(super) access: Vec<AccessRule>,
    pub(super) error_pages: Vec<(u16, Bytes)>,
    /// What answers where nothing is.
    pub(super) fallback: Option<Bytes>,
    pub(super) log: Option<AccessLogHandle>,
    pub(super) metrics: Arc<SiteMetrics>,
    pub(super) place: Place,
}

/// Where a site's replies come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SiteKind {
    Files,
    /// A cluster's nodes.
    Cluster,
    /// Metrics and health.
    Admin,
    /// Requests whose site isn't known: heads being received, and those that were refused.
    Unknown,
}

impl Site {
    /// In which codings a client may have a reply, the best first.
    pub(super) fn codings(&self, request: &Request<'_>) -> CodingOrder {
        match request.accept_encoding {
            Some(accepted) if !self.offered.is_empty() => CodingOrder::negotiate(Some(accepted), &self.offered),
            _ => CodingOrder::NONE,
        }
    }

    /// The path that answers for a request whose own path may name no file: for a method that files don't know, it's the fallback's at once.
    pub(super) fn fallback_for(&self, method: Method) -> Option<&Bytes> {
        let is_for_files = matches!(method, Method::Get | Method::Head);
        self.fallback.as_ref().filter(|path| is_for_files || self.handler(path).is_some())
    }

    /// Whether a handler answers for a path once it has been seen to be a file.
    pub(super) fn needs_file(&self, path: &[u8]) -> bool {
        self.handler(path).is_some_and(|(place, _)| self.handlers[place].needs_file())
    }

    /// Whether a handler answers for a path, or may for what will be found there.
    pub(super) fn may_be_handled(&self, path: &[u8]) -> bool {
        self.handler(path).is_some()
            || self.script_within(path).is_some()
            || self.files.may_have_handled_index(path)
            || self.fallback.as_ref().is_some_and(|path| self.handler(path).is_some())
    }

    /// How much of a path that no handler answers for is a script's, to which the rest is told.
    pub(super) fn script_within(&self, path: &[u8]) -> Option<usize> {
        let takers = || self.handlers.iter().filter(|handler| handler.takes_path_info());
        if takers().next().is_none() || self.handler(path).is_some() {
            return None;
        }
        let end = takers().find_map(|handler| handler.paths.split_within(path))?;
        // One that comes before may answer for the script alone, and knows nothing of what is behind it.
        self.handler(&path[..end]).filter(|&(place, _)| self.handlers[place].takes_path_info()).map(|_| end)
    }

    /// The place of the handler that answers for a path, and how much of the path names it.
    pub(super) fn handler(&self, path: &[u8]) -> Option<(usize, usize)> {
        let mut candidates = self.handlers.iter().enumerate();
        candidates.find_map(|(place, handler)| Some((place, handler.paths.split(path)?)))
    }
}

/// A listener's sites.
pub(super) struct Listener {
    pub(super) name: ListenerName,
    pub(super) hosts: HostTable,
    /// From the table's numbers to the worker's.
    pub(super) sites: Vec<u32>,
    /// The site that stands for a port where another protocol than HTTP is spoken.
    pub(super) port: Option<u32>,
    /// Balancers that tell who their clients are.
    pub(super) tellers: Vec<Network>,
}

impl Listener {
    /// The worker's number of the site that answers for a host.
    pub(super) fn site(&self, host: &[u8]) -> Option<u32> {
        self.hosts.site(host).and_then(|place| self.sites.get(place as usize).copied())
    }

    /// The worker's number of the site in whose log requests stand that are no site's.
    pub(super) fn site_of_strangers(&self) -> Option<u32> {
        self.site(b"").or_else(|| self.sites.first().copied())
    }
}

/// The HTTP limits of a site.
pub(super) fn limits(server: &config::Limits, site: Option<&config::SiteLimits>) -> Limits {
    let unlimited = |count: u32| if count == 0 { u32::MAX } else { count };
    Limits {
        head_bytes_max: server.head_size,
        header_count_max: server.header_count,
        target_bytes_max: server.target_size,
        body_bytes_max: site.map_or(server.body_size, |site| site.body_size),
        requests_per_connection_max: unlimited(
            site.map_or(server.requests_per_connection, |site| site.requests_per_connection),
        ),
        head_timeout: server.head_timeout,
        idle_timeout: site.map_or(server.idle_timeout, |site| site.idle_timeout),
        stall_timeout: site.map_or(server.stall_timeout, |site| site.stall_timeout),
        body_rate_min: site.map_or(server.body_rate, |site| site.body_rate),
        linger_timeout: server.linger_timeout,
    }
}

/// The limits under which heads are received, before the site is known: what any site allows, so that none is refused wrongly.
pub(super) fn widest_limits(config: &Config) -> Limits {
    let mut widest = limits(&config.limits, None);
    for site in &config.sites {
        widest.body_bytes_max = widest.body_bytes_max.max(site.limits.body_size);
    }
    widest
}

/// The file rules of a site.
pub(super) fn file_policy(config: &Config, site: &config::Site) -> FilePolicy {
    let charset = (!site.charset.is_empty()).then_some(site.charset.as_str());
    let mut mime = MimeTable::new(charset, "application/octet-stream");
    for media_type in &site.types {
        mime = mime.with(&media_type.extension, &media_type.media_type);
    }
    let added = |paths: &PathPattern, header: &config::Header| AddedHeader {
        paths: paths.clone(),
        name: header.name.clone(),
        value: header.value.clone(),
    };
    let everywhere = PathPattern::default();
    let of_paths =
        site.path_headers.iter().flat_map(|section| section.headers.iter().map(|header| added(&section.path, header)));
    FilePolicy {
        root: site.root.clone(),
        symlinks: site.symlinks,
        dotfiles: site.hidden,
        index: site.index.iter().map(|name| name.as_str().into()).collect(),
        handled: site.handlers.iter().map(|handler| handler.path.clone()).collect(),
        listing: site.listing,
        precompressed: site.precompressed.clone(),
        mime,
        headers: site.headers.iter().map(|header| added(&everywhere, header)).chain(of_paths).collect(),
        memory_file_bytes_max: if config.files.cache_size == 0 { 0 } else { config.files.cache_file_size_max },
    }
}

/// How an idle worker waits, until it has learned from that.
pub(super) fn gathering(config: &Config) -> Gathering {
    Gathering::new(Duration::from_micros(config.schedule.gather_us.into()))
}

/// One worker's part of the cache.
pub(super) fn cache_limits(config: &Config) -> CacheLimits {
    let workers = config.workers.max(1);
    CacheLimits {
        bytes_max: usize::try_from(config.files.cache_size).unwrap_or(usize::MAX) / workers,
        open_files_max: config.files.open_files_max / workers,
        ..CacheLimits::default()
    }
}

/// A site's rules, unless they are equal to those it had: then the old ones, so that what is cached stays. `before`: as it was configured, and what was
/// made of that.
pub(super) fn shared_policy(
    config: &Config,
    site: &config::Site,
    before: Option<(&config::Site, &Site)>,
) -> Arc<FilePolicy> {
    match before {
        Some((configured, old)) if same_files(configured, site) => old.files.clone(),
        _ => Arc::new(file_policy(config, site)),
    }
}

/// Whether two versions of a site find and describe files alike.
fn same_files(a: &config::Site, b: &config::Site) -> bool {
    a.root == b.root
        && a.symlinks == b.symlinks
        && a.hidden == b.hidden
        && a.index == b.index
        && a.handlers.iter().map(|handler| &handler.path).eq(b.handlers.iter().map(|handler| &handler.path))
        && a.listing == b.listing
        && a.precompressed == b.precompressed
        && a.headers == b.headers
        && a.path_headers == b.path_headers
        && a.types == b.types
        && a.charset == b.charset
}
