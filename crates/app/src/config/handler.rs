//! The sections of what makes replies other than files: handlers of a site.

use std::fmt;
use std::time::Duration;

use leat_host::reactor::Peer;
use leat_logic::http::Status;
use leat_logic::protocol::proxy_header;
use leat_logic::serve::path_pattern::PathPattern;
use leat_logic::serve::redirect::Destination;

pub use super::kinds::Command;
use super::kinds::{
    Choice, CommandLine, Count, DESTINATION, FILE_NAME_OR_NONE, Flag, ListOf, Maybe, Optional, OrBlank, PATH_PATTERN,
    PEER, Pairs, Period, UPSTREAM, VARIABLE_NAME, VARIABLE_VALUE,
};
use super::proxy_protocol::SEND_PROXY;
use super::schema::{Fallback::*, section};

section! {
    /// Something else than files for some paths of the `[[site]]` above it. There may be any number of them; the first whose `path` fits
    /// answers. Each has exactly one section that says what it is.
    Handler "[[site.handler]]" example "[[site.handler]]\npath = \"/burn\"\nburn = {}\n" {
        /// The paths: one, one and all below it, or all that end alike.
        path: PathPattern = OrBlank(PATH_PATTERN), Required;
        /// Computes and replies with nothing in particular: for tests and experiments.
        burn: Option<Burn> = Maybe::<Burn>::new(), Otherwise("none");
        /// A program that is started for each request.
        cgi: Option<Cgi> = Maybe::<Cgi>::new(), Otherwise("none");
        /// Programs that stay, and take one request after the other.
        fastcgi: Option<FastCgi> = Maybe::<FastCgi>::new(), Otherwise("none");
        /// Other servers, to which requests are passed on.
        proxy: Option<Proxy> = Maybe::<Proxy>::new(), Otherwise("none");
        /// Another place, to which clients are sent.
        redirect: Option<Redirect> = Maybe::<Redirect>::new(), Otherwise("none");
    }
}

/// A variable of a program's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Letters, digits and underscores.
    pub name: String,
    /// Anything without NUL.
    pub value: String,
}

/// A server that requests are passed on to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// At an address.
    At(Peer),
    /// At whatever a name stands for when a connection is made.
    Named(String, u16),
}

impl Upstream {
    /// Its name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Upstream::At(_) => None,
            Upstream::Named(host, _) => Some(host),
        }
    }

    /// What a Host field calls it.
    #[must_use]
    pub fn authority(&self) -> String {
        match self {
            Upstream::At(peer) => peer.authority(),
            Upstream::Named(..) => self.to_string(),
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upstream::At(peer) => peer.fmt(formatter),
            Upstream::Named(host, port) => write!(formatter, "{host}:{port}"),
        }
    }
}

section! {
    /// A program that is started for each request (CGI, RFC 3875). It runs on the worker's core, within the site's share. Its standard input
    /// is the request's content, its standard output the reply; what it writes to standard error goes to leat's log.
    Cgi "[site.handler.cgi]" example "[[site.handler]]\npath = \"/time\"\ncgi = { command = [\"/bin/date\", \"+Content-Type: text/plain%n%n%c\"] }\n" {
        /// The program. Of a directory, the path's next segment names the one to start.
        command: Command = CommandLine { or_directory: true }, Required;
        /// Variables added to its environment.
        environment: Vec<Variable> =
            Pairs { key: VARIABLE_NAME, value: VARIABLE_VALUE, make: |name, value| Variable { name, value } }, Toml("{}");
        /// Programs at once on each worker.
        processes: usize = PROCESSES, Toml("16");
        /// Requests that wait on each worker while all are at work, for `max_queue_delay` of the site at most. Others are answered with 503.
        queue: usize = QUEUE, Toml("64");
        /// Time without a byte from the program, or taken by it, while leat waits for it and lets it run. After that it is killed: 504.
        timeout: Duration = TIMEOUT, Toml("\"60s\"");
    }
}

section! {
    /// Programs that speak FastCGI: started by leat, or by somebody else who says where they listen. Those that leat starts run on the workers'
    /// cores, within the site's share, and are started again when they end: at once if they had answered a request, else after 0.1 s, and twice as long
    /// each time (0.5 s at most if they had taken one, else 10 s). Requests wait for that as for a free one; if there is no program, and is to be none
    /// in time, they're answered with 503 at once. Content that comes in chunks is gathered, 16 MiB at most, and given with its
    /// length. Where `path` is an ending, as `*.php`, a path that names nothing may go on behind a file that ends so: `/index.php/some/page` is `/index.php`, whose PATH_INFO is
    /// the rest.
    FastCgi "[site.handler.fastcgi]" example "[[site.handler]]\npath = \"*.php\"\nfastcgi = { address = \"unix:/run/php/php-fpm.sock\" }\n" {
        /// The program to start; it accepts on its standard input.
        command: Option<Command> = Optional(CommandLine { or_directory: false }), Otherwise("none");
        /// Where a program listens that leat doesn't start.
        address: Option<Peer> = PEER, Toml("\"\"");
        /// Whether connections to `address` are kept after a request. Each holds one of the other side's processes for as long, as php-fpm's: it must
        /// have as many as all workers' `processes` together. Those to programs that leat starts are always kept.
        keep_connections: bool = Flag, Toml("false");
        /// Variables added to the environment of programs, and to the parameters of requests.
        environment: Vec<Variable> =
            Pairs { key: VARIABLE_NAME, value: VARIABLE_VALUE, make: |name, value| Variable { name, value } }, Toml("{}");
        /// The file that stands for its directory, in SCRIPT_FILENAME; `""` for none.
        index: Option<String> = FILE_NAME_OR_NONE, Toml("\"\"");
        /// Whether only paths that are files of the site are given to it: others are answered with 404, or by the site's `fallback`. Without that, PHP
        /// takes the first part of a path that is a file for the script, whatever is in it: `/upload.jpg/x.php` would run what somebody uploaded.
        needs_file: Option<bool> =
            Optional(Flag), Otherwise("`true` where `path` is an ending, as `*.php`, and leat starts the program; else `false`");
        /// Programs, or connections to those of somebody else, of each worker. Each takes one request at a time.
        processes: usize = PROCESSES, Toml("4");
        /// Requests that wait on each worker while all are at work, for `max_queue_delay` of the site at most. Others are answered with 503.
        queue: usize = QUEUE, Toml("64");
        /// Time without a byte from the program, or taken by it, while leat waits for it and lets it run. After that it is killed: 504.
        timeout: Duration = TIMEOUT, Toml("\"60s\"");
    }
}

section! {
    /// Servers that requests are passed on to, by HTTP/1.1 over connections that are kept. Each request goes to the one that has the fewest of
    /// this worker, in turn where several have as few. A server that can't be reached is left out for a second, then for
    /// twice as long (30 s at most) each time that a request which tries it can't reach it either. So is one that ends a new connection instead of
    /// answering, says what is no reply, or has answered nobody since it was given a request that it says nothing to for `timeout`; then it takes an answer
    /// to bring it back. When all are left out, all are asked. They're told who asked, for which host and how,
    /// by `X-Forwarded-For`, `X-Forwarded-Host`, `X-Forwarded-Proto` and `Forwarded`; what the client says there itself isn't passed on. A WebSocket goes on as one,
    /// and counts against none of `connections` once the server has agreed; other protocols than that aren't passed on.
    Proxy "[site.handler.proxy]" example "[[site.handler]]\npath = \"/api/*\"\nproxy = { to = [\"127.0.0.1:9000\", \"unix:/run/app.sock\"] }\n" {
        /// The servers. A name is looked up when the configuration is read and every ten seconds; connections are made to all its addresses in turn, but
        /// not, for ten seconds, to one that can't be connected to, as long as there is another.
        to: Vec<Upstream> = OrBlank(ListOf(UPSTREAM)), Required;
        /// Whether the servers are asked for the path without that of the handler, which ends in `/*`: with `/api/*`, for `/users` in place of
        /// `/api/users`. They're told by `X-Forwarded-Prefix`.
        strip_path: bool = Flag, Toml("false");
        /// Whether servers are told the client's address before its request, by the PROXY protocol, in which version. They must expect it. A connection
        /// then carries one request, as it speaks for one client.
        send_proxy: Option<proxy_header::Version> = SEND_PROXY, Toml("\"none\"");
        /// Requests at once to each server, of each worker.
        connections: usize = PROCESSES, Toml("64");
        /// Requests that wait on each worker while all servers have that many, for `max_queue_delay` of the site at most. Others are answered with 503.
        queue: usize = QUEUE, Toml("256");
        /// Connections to each server that each worker keeps for later; none with `send_proxy`.
        idle_connections: usize = QUEUE, Toml("64");
        /// How long they are kept. Shorter than the servers' own time is best.
        idle_timeout: Duration = TIMEOUT, Toml("\"30s\"");
        /// Time for a connection to be made: then another server is asked, or the reply is 504.
        connect_timeout: Duration = TIMEOUT, Toml("\"3s\"");
        /// Time without a byte from the server, or taken by it, while leat waits for it. After that another server is asked (`retries`), or the reply is 504, or
        /// cut.
        timeout: Duration = TIMEOUT, Toml("\"60s\"");
        /// Time without a byte, in either direction, on a connection that has become a WebSocket. After that it is closed.
        websocket_timeout: Duration = TIMEOUT, Toml("\"1h\"");
        /// How often a request is sent again, to another server where there is one: when no connection could be made, or when one ended before the first byte
        /// of a reply and the request, a GET, HEAD or OPTIONS without content, does no harm twice. Such a request is also sent to another server when the
        /// first has answered nobody for `timeout`. Of a reply to GET that breaks off, the rest is asked for (`Range`, `If-Range`) if it has a length and a
        /// strong `ETag`, and sent to the client if it's under the same tag. The end of a connection that was kept from earlier requests isn't counted: such
        /// a request goes over a new one.
        retries: u32 = Count::<u32> { min: 0, max: 10 }, Toml("1");
    }
}

section! {
    /// Sends clients to another place. The query goes along.
    Redirect "[site.handler.redirect]" example "[[site.handler]]\npath = \"/old/*\"\nredirect = { to = \"/new/*\" }\n" {
        /// Where to. A `/*` at its end stands for what a path has after that of the handler, which then ends in `/*` too.
        to: Destination = OrBlank(DESTINATION), Required;
        /// For how long: browsers and search engines remember `"permanent"` (301), and not `"temporary"` (302). The same with `"_same_method"` at
        /// its end (308 and 307) has a POST stay a POST.
        kind: Status = Choice(&[
            ("permanent", Status::MOVED_PERMANENTLY),
            ("temporary", Status::FOUND),
            ("permanent_same_method", Status::PERMANENT_REDIRECT),
            ("temporary_same_method", Status::TEMPORARY_REDIRECT),
        ]), Toml("\"permanent\"");
    }
}

const PROCESSES: Count<usize> = Count { min: 1, max: 1000 };
const QUEUE: Count<usize> = Count { min: 0, max: 100_000 };
const TIMEOUT: Period = Period { min_ms: 100, max_ms: 86_400_000 };

section! {
    /// A handler that uses the processor for a given time and replies with a given number of bytes. It works in slices, between which
    /// others get their share. Requests may ask for less or more: `/burn?us=500&bytes=20`.
    Burn "[site.handler.burn]" example "[[site.handler]]\npath = \"/burn\"\nburn = { us = 500, bytes = 20, forever = true }\n" {
        /// Processor time of a request, in microseconds.
        us: u64 = Count::<u64> { min: 0, max: US_MAX }, Toml("300");
        /// The most that a request may ask for.
        us_max: u64 = Count::<u64> { min: 0, max: US_MAX }, Toml("1_000_000");
        /// Bytes of the reply's content.
        bytes: usize = Count::<usize> { min: 0, max: BYTES_MAX }, Toml("1000");
        /// The most that a request may ask for.
        bytes_max: usize = Count::<usize> { min: 0, max: BYTES_MAX }, Toml("1_000_000");
        /// Whether a request may ask for `?us=forever`: it then computes until its client goes away.
        forever: bool = Flag, Toml("false");
    }
}

/// An hour.
const US_MAX: u64 = 3_600_000_000;
/// A worker holds as many, once.
const BYTES_MAX: usize = 16 << 20;

impl FastCgi {
    /// Whether a connection carries more than one request.
    pub(crate) fn keeps_connections(&self) -> bool {
        self.address.is_none() || self.keep_connections
    }
}

impl Handler {
    /// The sections that it may have.
    pub(super) const KINDS: [&'static str; 5] = ["burn", "cgi", "fastcgi", "proxy", "redirect"];

    /// Those that it has: there must be one.
    pub(super) fn sections(&self) -> Vec<&'static str> {
        let is_there = [
            self.burn.is_some(),
            self.cgi.is_some(),
            self.fastcgi.is_some(),
            self.proxy.is_some(),
            self.redirect.is_some(),
        ];
        Self::KINDS.into_iter().zip(is_there).filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
    }
}
