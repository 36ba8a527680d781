//! The sections of one site.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use leat_logic::schedule::PolicyKind;
use leat_logic::serve::coding::Coding;
use leat_logic::serve::hosts::HostPattern;
use leat_logic::serve::path_pattern::PathPattern;
use leat_logic::serve::policy::SymlinkPolicy;

use super::access::Access;
use super::handler::Handler;
use super::kinds::{
    ACCESS_LOG, ADDRESS, CHARSET, Choice, Count, DIRECTORY, EXTENSION, FILE_NAME, Flag, HEADER_NAME, HEADER_VALUE,
    HOST, HeaderName, ListOf, MEDIA_TYPE, NAME, Nested, OWNER, OrBlank, PATH_PATTERN, POLICY, Pairs, Period, Repeated,
    STATUS, URL_PATH, URL_PATH_OR_NONE,
};
use super::quota::Quota;
use super::schedule::{PRIORITY, WEIGHT};
use super::schema::{Fallback::*, section};
use super::server::{BODY_RATE, BODY_SIZE, IDLE_TIMEOUT, REQUESTS_PER_CONNECTION, STALL_TIMEOUT};

/// A header that is added to replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// A token, as written in the file.
    pub name: Bytes,
    /// Printable ASCII.
    pub value: Bytes,
}

/// The file that is sent in place of leat's own words for an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// 400 to 599.
    pub status: u16,
    /// Below the root, with a slash at its start.
    pub path: String,
}

/// A media type for an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaType {
    /// Without its dot, in lower case.
    pub extension: String,
    /// As it is to be sent; printable ASCII.
    pub media_type: String,
}

/// Where an access log goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessLogTarget {
    /// Standard output.
    StandardOutput,
    /// Appended to a file, which is absolute and whose directory exists.
    File(PathBuf),
}

impl std::fmt::Display for AccessLogTarget {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AccessLogTarget::StandardOutput => formatter.write_str("on standard output"),
            AccessLogTarget::File(path) => path.display().fmt(formatter),
        }
    }
}

/// How a request is written in an access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// The format that every web server and log analyser knows.
    #[default]
    Combined,
    /// The same, and what all servers of a cluster call the request.
    CombinedWithId,
    /// A JSON object on each line.
    Json,
}

impl AccessLogFormat {
    /// All of them, by their names in the configuration.
    pub(super) const NAMES: &'static [(&'static str, AccessLogFormat)] = &[
        ("combined", AccessLogFormat::Combined),
        ("combined_with_id", AccessLogFormat::CombinedWithId),
        ("json", AccessLogFormat::Json),
    ];
}

section! {
    /// One site: a tree of files under one or more hosts. There may be any number of them.
    Site "[[site]]" example "[[site]]\nhosts = [\"www.example.org\", \"*.www.example.org\"]\nlisten = [\"0.0.0.0:80\", \"[::]:80\"]\n\
        root = \"/srv/www\"\nweight = 200\nheaders = { \"Cache-Control\" = \"max-age=60\" }\nerror_pages = { 404 = \"/404.html\" }\n\
        types = { \".foo\" = \"text/x-foo\" }\n" {
        /// How metrics and logs call the site; no two are the same.
        name: String = OrBlank(NAME), Otherwise("the first of `hosts`, or `\"default\"`");
        /// Hosts that the site answers for. `*.example.org` is every host that ends in `.example.org`; the longest such ending wins, and
        /// a host written in full wins over all. A site without hosts answers for every host that no other site on its addresses has.
        hosts: Vec<HostPattern> = ListOf(HOST), Toml("[]");
        /// Addresses to listen on, each shared by any number of sites. Port 0 takes any free port.
        listen: Vec<SocketAddr> = ListOf(ADDRESS), Toml("[\"0.0.0.0:80\", \"[::]:80\"]");
        /// The directory with the site's files. Relative ones start where the configuration file is.
        root: PathBuf = OrBlank(DIRECTORY), Otherwise("none: must be written where no handler answers for all paths (`/*`)");
        /// The site's share of the server, in proportion to the weights of the other sites that have work, or of its owner's share.
        weight: u32 = WEIGHT, Toml("100");
        /// Sites with a higher number are served before all with a lower one, under the policy `strict_priority`.
        priority: u8 = PRIORITY, Toml("0");
        /// The `[[owner]]` whose share the site's is a part of; `""` for none.
        owner: String = OWNER, Toml("\"\"");
        /// The policy between the site's stages.
        stages: PolicyKind = POLICY, Schedule("\"weighted_fair\"");
        /// Requests that wait or are served at once, over all workers; more are answered with 503. WebSockets, once they're open, are no
        /// requests any more. 0 for no limit.
        max_in_flight: u32 = Count::<u32> { min: 0, max: 1_000_000_000 }, Toml("0");
        /// How long a request may wait for the server, from when its head has been read; what the site's own quota has it wait for isn't counted.
        /// After that, 503, and the connection is closed if nothing of the site's has had a turn meanwhile. 0 for no such limit. An overloaded site refuses much
        /// earlier, whatever this says; who ends the connection after that request may hear so as late as this, as it would come again at once.
        max_queue_delay: Duration = Period { min_ms: 0, max_ms: 3_600_000 }, Toml("\"1s\"");
        /// Files that stand for their directory, the first that exists. Where a handler answers for it, as for `index.php`, the handler does.
        index: Vec<String> = ListOf(FILE_NAME), Toml("[\"index.html\"]");
        /// Whether a directory without an index file is answered with a list of its files: 5000 of them at most, whichever the file system tells first, and
        /// the page says so.
        listing: bool = Flag, Toml("false");
        /// Whether files whose name begins with a dot are served. Those below `/.well-known/` always are.
        hidden: bool = Flag, Toml("false");
        /// Whether symbolic links are followed: `"beneath"` where they lead to somewhere below the root, `"follow"` wherever they lead,
        /// `"deny"` never.
        symlinks: SymlinkPolicy = Choice(&[
            ("beneath", SymlinkPolicy::Beneath),
            ("deny", SymlinkPolicy::Deny),
            ("follow", SymlinkPolicy::Follow),
        ]), Toml("\"beneath\"");
        /// Compressed siblings that are sent in place of a file to clients that take them, best first: `page.html.br` for `page.html`.
        precompressed: Vec<Coding> = ListOf(Choice(&[
            ("br", Coding::Brotli),
            ("zst", Coding::Zstandard),
            ("gz", Coding::Gzip),
        ])), Toml("[\"br\", \"zst\", \"gz\"]");
        /// Headers added to every reply that is made of a file of the site, in this order; to errors, those that caches don't go by. A 503 because
        /// there's too much to do (`max_in_flight`, `max_queue_delay`, overload) has none of them: it's to cost little.
        headers: Vec<Header> = HEADERS, Toml("{}");
        /// Files of the site sent with an error, by its status, without their own `Cache-Control` and `Expires`. Errors 408, 414, 417, 421 and
        /// 431, a 503 because there's too much to do (`max_in_flight`, `max_queue_delay`, overload), and requests that can't be understood have
        /// leat's own page.
        error_pages: Vec<ErrorPage> = Pairs { key: STATUS, value: URL_PATH, make: |status, path| ErrorPage { status, path } }, Toml("{}");
        /// What answers where a path names no file, nor a directory with an index or a listing, in place of 404 or 403: a file of the site, as single-page applications want it, or a path that a handler
        /// answers for, as a PHP application's `"/index.php"`, which then gets other methods than GET too, for paths that are files as well (`DELETE /style.css`). `""` for nothing.
        fallback: Option<String> = URL_PATH_OR_NONE, Toml("\"\"");
        /// Media types by extension, before those that leat knows.
        types: Vec<MediaType> = Pairs {
            key: EXTENSION, value: MEDIA_TYPE, make: |extension, media_type| MediaType { extension, media_type }
        }, Toml("{}");
        /// The charset added to text types; `""` for none.
        charset: String = CHARSET, Toml("\"utf-8\"");
        /// The log of requests.
        access_log: AccessLog = Nested::<AccessLog>::new(), Otherwise("");
        /// Headers added for some paths.
        path_headers ("header"): Vec<PathHeaders> = Repeated::<PathHeaders>::new(), Otherwise("none");
        /// Who may ask for some paths, and how often.
        access: Vec<Access> = Repeated::<Access>::new(), Otherwise("none");
        /// What makes replies other than files, for some paths.
        handlers ("handler"): Vec<Handler> = Repeated::<Handler>::new(), Otherwise("none");
        /// Limits of this site alone.
        limits: SiteLimits = Nested::<SiteLimits>::new(), Otherwise("");
        /// What the site may use at most.
        quota: Quota = Nested::<Quota>::new(), Otherwise("");
    }
    computed {
        /// The place of the `[[cluster.port]]` that it stands for.
        port: Option<usize>;
    }
}

section! {
    /// Headers added to replies made of files of the `[[site]]` above it, for some paths. There may be any number of them. Where several have a
    /// header of the same name, `headers` of the site included, the last whose `path` fits counts.
    PathHeaders "[[site.header]]" example "[[site.header]]\npath = \"*.css\"\nheaders = { \"Cache-Control\" = \"max-age=86400\" }\n" {
        /// The paths as they are asked for, or that of the site's `fallback` where it answers: one, one and all below it, or all that end alike.
        path: PathPattern = OrBlank(PATH_PATTERN), Required;
        /// The headers, in this order.
        headers: Vec<Header> = OrBlank(HEADERS), Required;
    }
}

section! {
    /// A line for each request of the `[[site]]` above it, and for what is refused at its addresses before its site is known, where this is the site for
    /// hosts that no other has, or the first there. Writing never holds up a worker: lines that can't be written in time are dropped
    /// and counted.
    AccessLog "[site.access_log]" example "[site.access_log]\npath = \"-\"\nformat = \"json\"\n" {
        /// The file, `"-"` for standard output, `""` for no log. It is opened anew at a reload.
        path: Option<AccessLogTarget> = ACCESS_LOG, Toml("\"\"");
        /// The format that every log analyser knows; the same with an id at the end, by which all servers of a cluster call the request, and which handlers are
        /// told as `X-Request-Id`; or a JSON object on each line, which has the id too.
        format: AccessLogFormat = Choice(AccessLogFormat::NAMES), Toml("\"combined\"");
    }
}

section! {
    /// Limits for the `[[site]]` above it, where they differ from those of `[limits]`.
    SiteLimits "[site.limits]" example "[site.limits]\nbody_size = \"0B\"\nstall_timeout = \"5s\"\n" {
        /// Bytes of a request's body. More is answered with 413.
        body_size: u64 = BODY_SIZE, Limits("\"1MiB\"");
        /// Time that a connection may wait for its next request after a request of this site.
        idle_timeout: Duration = IDLE_TIMEOUT, Limits("\"75s\"");
        /// Time without one byte moving in a body or a reply.
        stall_timeout: Duration = STALL_TIMEOUT, Limits("\"30s\"");
        /// The least rate of a request's body; 0 for any.
        body_rate: u64 = BODY_RATE, Limits("\"500B/s\"");
        /// Requests on one connection before it is closed; 0 for no limit.
        requests_per_connection: u32 = REQUESTS_PER_CONNECTION, Limits("0");
    }
}

/// Headers that a site adds.
const HEADERS: Pairs<HeaderName, Bytes, Header> =
    Pairs { key: HEADER_NAME, value: HEADER_VALUE, make: |name, value| Header { name: name.0, value } };
