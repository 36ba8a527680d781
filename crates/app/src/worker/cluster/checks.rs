//! Asking a server by its health path whether it's well: leat's own sites at a node, and beside a server that isn't leat, that one (`foreign`). Asking may take
//! its time, so that a thread does it. What follows is for those who choose nodes to say. `docs/decisions/0010-dispatch.md` has the reasons.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use leat_host::clock;
use leat_logic::dispatch::{Health, State};
use leat_logic::time::Instant;

use crate::config::{Config, HealthChecks, Role};

/// The status line of a reply, at most.
const STATUS_LINE: usize = 12;
/// More of a reply isn't read.
const REPLY_MAX: u64 = 1 << 20;
/// Time between two looks at sites that haven't answered yet: they may just be starting.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A worker that lets in few connections now may have kept a check from being heard for so long.
const UNHEARD_TIME: Duration = Duration::from_secs(2);

/// Why a server isn't well.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ill {
    /// It says so itself.
    pub(super) has_answered: bool,
    pub(super) why: String,
}

/// Asks for the page that shows whether a server is well. Before it's asked, `told` hears where the connection comes from.
pub(super) fn ask(server: SocketAddr, checks: &HealthChecks, told: impl FnOnce(SocketAddr)) -> Result<(), Ill> {
    let path = checks.path();
    let host = checks.host.as_ref().map_or_else(|| server.to_string(), ToString::to_string);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: leat\r\nConnection: close\r\n\r\n");
    let ask = || -> io::Result<[u8; STATUS_LINE]> {
        let until = clock::now().after(checks.timeout);
        let mut exchange = Exchange { stream: TcpStream::connect_timeout(&server, checks.timeout)?, until };
        told(exchange.stream.local_addr()?);
        exchange.write_all(request.as_bytes())?;
        let mut line = [0; STATUS_LINE];
        exchange.read_exact(&mut line)?;
        // To its end if it comes, so that it isn't reset.
        let _ = io::copy(&mut exchange.take(REPLY_MAX), &mut io::sink());
        Ok(line)
    };
    let silent = |error: io::Error| {
        let why = match error.kind() {
            // What a socket says whose time is over.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("not within {:?}", checks.timeout),
            _ => error.to_string(),
        };
        Ill { has_answered: false, why: format!("{server} doesn't answer to GET {path}: {why}") }
    };
    let line = ask().map_err(silent)?;
    let why = match line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2)) {
        Some(b'1'..=b'4') => return Ok(()),
        Some(b'5') => format!("{server} answers to GET {path} with {}", String::from_utf8_lossy(&line[9..])),
        _ => format!("what {server} answers to GET {path} isn't HTTP"),
    };
    Err(Ill { has_answered: true, why })
}

/// A request and its reply, which take no longer than until then, however many steps they have.
struct Exchange {
    stream: TcpStream,
    until: Instant,
}

impl Exchange {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = Duration::from_nanos(self.until.ns.saturating_sub(clock::now().ns));
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Exchange {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Exchange {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// What is asked for at this node.
#[derive(Clone, Debug, PartialEq)]
struct What {
    /// Where this node takes requests that are proxied to it: what clients get there, they get.
    server: SocketAddr,
    checks: HealthChecks,
}

impl What {
    /// None where leat's own sites aren't asked.
    fn of(config: &Config) -> Option<What> {
        let (cluster, checks) = (&config.cluster, &config.cluster.health);
        let node = cluster.own_node().filter(|node| node.server.is_empty())?;
        let is_asked = config.role == Role::Node && checks.path.is_some() && !checks.interval.is_zero();
        let server = cluster.vip.first().filter(|_| is_asked).and_then(|&vip| cluster.proxy_address(node, vip))?;
        Some(What { server, checks: checks.clone() })
    }
}

/// What the checks and the workers tell each other.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Where the check comes from that is under way, or was given up last; 0 if neither is so.
    port: AtomicU16,
    /// Until then it may be for want of room that one isn't answered.
    unheard_until_ns: AtomicU64,
}

impl Told {
    fn port(&self) -> u16 {
        self.port.load(Ordering::Acquire)
    }

    /// Whether a check is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.port() != 0
    }

    /// Whether it's a check that comes from this port, if it's from this machine.
    pub(super) fn is_check_port(&self, port: u16) -> bool {
        port != 0 && self.port() == port
    }

    /// A worker lets in few of those who connect.
    pub(super) fn few_are_let_in(&self, now: Instant) {
        self.unheard_until_ns.fetch_max(now.after(UNHEARD_TIME).ns, Ordering::Relaxed);
    }

    fn may_be_unheard(&self, now: Instant) -> bool {
        now.ns < self.unheard_until_ns.load(Ordering::Relaxed)
    }
}

/// This node's checks of itself, by one thread for all its workers. It ends with this.
pub(super) struct Checks {
    what: What,
    seen: Arc<Seen>,
    _alive: mpsc::Sender<()>,
}

struct Seen {
    /// Somebody is there to be asked: what came before would lie in the queue, and be given up.
    is_served: AtomicBool,
    is_failing: AtomicBool,
    /// They have come to something.
    is_known: AtomicBool,
}

impl Checks {
    /// The checks that a configuration wants. Those before them go on if they're the same; else others begin with what these have come to.
    pub(super) fn arrange(
        before: Option<&Arc<Checks>>,
        config: &Config,
        told: &Arc<Told>,
    ) -> io::Result<Option<Arc<Checks>>> {
        let Some(what) = What::of(config) else { return Ok(None) };
        if let Some(same) = before.filter(|before| before.what == what) {
            return Ok(Some(same.clone()));
        }
        // Nothing is known at first: requests come when it has answered, as nobody knows what it was started with.
        let (is_failing, is_known) = before.map_or((true, false), |before| before.seen.load());
        let seen =
            Seen { is_served: before.is_some().into(), is_failing: is_failing.into(), is_known: is_known.into() };
        let seen = Arc::new(seen);
        let watch = Watch { what: what.clone(), seen: seen.clone(), told: told.clone() };
        let (alive, ended) = mpsc::channel();
        thread::Builder::new().name("leat-checks".to_owned()).spawn(move || watch.run(&ended))?;
        Ok(Some(Arc::new(Checks { what, seen, _alive: alive })))
    }

    /// A worker is at work: checks may begin.
    pub(super) fn begin(&self) {
        self.seen.is_served.store(true, Ordering::Release);
    }

    /// Whether this node isn't well, or hasn't answered yet.
    pub(super) fn is_failing(&self) -> bool {
        self.seen.is_failing.load(Ordering::Relaxed)
    }
}

impl Seen {
    fn load(&self) -> (bool, bool) {
        let is_known = self.is_known.load(Ordering::Acquire);
        (self.is_failing.load(Ordering::Relaxed), is_known)
    }
}

/// What the thread goes by.
struct Watch {
    what: What,
    seen: Arc<Seen>,
    told: Arc<Told>,
}

impl Watch {
    fn run(&self, ended: &mpsc::Receiver<()>) {
        let settings = self.what.checks.settings();
        let mut health = Health::new(clock::now());
        let (was_failing, is_known) = self.seen.load();
        health.set_failing(was_failing, clock::now());
        let (mut is_new, mut pause) = (!is_known, Duration::ZERO);
        while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            if !self.seen.is_served.load(Ordering::Acquire) {
                pause = FIRST_PAUSE;
                continue;
            }
            let was_failing = health.state(clock::now()) == State::Failing;
            let port = &self.told.port;
            let asked = ask(self.what.server, &self.what.checks, |from| port.store(from.port(), Ordering::Release));
            // One that was given up may yet be read.
            if asked.as_ref().err().is_none_or(|ill| ill.has_answered) {
                port.store(0, Ordering::Release);
            }
            pause = settings.interval;
            if asked.as_ref().is_err_and(|ill| !ill.has_answered) && self.told.may_be_unheard(clock::now()) {
                // A node that has too much to do isn't ill: the others would have its part as well.
                continue;
            }
            health.probe_ended(asked.is_ok(), &settings, clock::now());
            if is_new && asked.is_ok() {
                health.set_failing(false, clock::now());
            }
            let has_begun = is_new;
            is_new &= asked.as_ref().is_err_and(|ill| !ill.has_answered);
            let is_failing = health.state(clock::now()) == State::Failing;
            self.seen.is_failing.store(is_failing, Ordering::Relaxed);
            self.seen.is_known.store(!is_new, Ordering::Release);
            match asked {
                Err(Ill { why, .. }) if is_failing && (!was_failing || has_begun && !is_new) => {
                    crate::log::warning(format_args!("{why}: this node is given nothing new"));
                }
                Ok(()) if was_failing && !is_failing => crate::log::info(format_args!("this node is well")),
                _ => {}
            }
            if is_new {
                pause = FIRST_PAUSE;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClusterNode;
    use std::net::TcpListener;

    /// A server that answers each request with the next of these statuses, and tells whence each came; an empty one is no answer.
    fn server(statuses: &'static [&'static str]) -> (SocketAddr, thread::JoinHandle<Vec<(SocketAddr, String)>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has an address");
        let serve = move || {
            let answer = |status: &&str| {
                let (mut stream, from) = listener.accept().expect("a check comes");
                let mut head = [0; 1024];
                let length = stream.read(&mut head).expect("it asks");
                if !status.is_empty() {
                    stream.write_all(status.as_bytes()).expect("it listens");
                }
                (from, String::from_utf8_lossy(&head[..length]).into_owned())
            };
            statuses.iter().map(answer).collect()
        };
        (address, thread::spawn(serve))
    }

    #[test]
    fn a_status_below_500_is_an_answer_and_nothing_else_is() {
        let (address, served) =
            server(&["HTTP/1.1 204 x\r\n\r\n", "HTTP/1.1 404 x\r\n\r\n", "HTTP/1.1 503 x\r\n\r\n", "", "hello, world"]);
        let checks = HealthChecks {
            path: Some("/up".to_owned()),
            host: Some("a.example".parse().expect("a host")),
            timeout: Duration::from_secs(10),
            ..HealthChecks::default()
        };
        let mut from = Vec::new();
        let mut ask = || ask(address, &checks, |at| from.push(at));
        assert_eq!((ask(), ask()), (Ok(()), Ok(())));
        let said = format!("{address} answers to GET /up with 503");
        assert_eq!(ask(), Err(Ill { has_answered: true, why: said }));
        assert!(ask().is_err_and(|ill| !ill.has_answered), "it hangs up");
        assert!(ask().is_err_and(|ill| ill.why.ends_with("isn't HTTP")));
        let asked = served.join().expect("all came");
        assert!(asked.iter().map(|(at, _)| at).eq(&from));
        assert!(asked[0].1.starts_with("GET /up HTTP/1.1\r\nHost: a.example\r\n"), "{}", asked[0].1);
    }

    /// A server that goes on saying this until who asks hangs up.
    fn dripping(reply: &'static str) -> (SocketAddr, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has an address");
        let serve = move || {
            let (mut stream, _) = listener.accept().expect("a check comes");
            stream.write_all(reply.as_bytes()).expect("it listens");
            // What it waits for never comes: that's time between two bytes.
            stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
            let mut head = [0; 1024];
            while !matches!(stream.read(&mut head), Ok(0)) && stream.write_all(b"x").is_ok() {}
        };
        (address, thread::spawn(serve))
    }

    #[test]
    fn a_server_that_never_comes_to_an_end_is_asked_no_longer_than_the_timeout() {
        let checks = HealthChecks { timeout: Duration::from_millis(200), ..HealthChecks::default() };
        for (reply, is_well) in [("HTTP/1.1 200 x\r\n\r\n", true), ("", false)] {
            let (address, served) = dripping(reply);
            // Not even a status line in time.
            let mut slow = checks.clone();
            slow.timeout = if is_well { checks.timeout } else { Duration::from_millis(60) };
            let began = clock::now();
            let found = ask(address, &slow, |_| ());
            assert_eq!(found.is_ok(), is_well, "{reply:?}");
            assert!(found.is_ok() || found.is_err_and(|ill| ill.why.ends_with(": not within 60ms")));
            assert!(clock::now() < began.after(Duration::from_secs(10)), "{reply:?}");
            served.join().expect("it has heard that nobody reads");
        }
    }

    #[test]
    fn silence_says_nothing_for_a_while_after_few_were_let_in_and_a_port_is_a_checks_while_that_lasts() {
        let (told, now) = (Told::default(), Instant { ns: 5_000_000_000 });
        assert!(!told.may_be_unheard(now));
        told.few_are_let_in(now);
        assert!(
            told.may_be_unheard(now.after(Duration::from_secs(1))) && !told.may_be_unheard(now.after(UNHEARD_TIME))
        );
        assert!(!told.is_check_port(0) && !told.is_check_port(4711));
        told.port.store(4711, Ordering::Release);
        assert!(told.is_check_port(4711) && !told.is_check_port(4712));
    }

    #[test]
    fn only_a_node_that_is_leat_asks_its_own_sites_and_only_if_a_path_is_written() {
        let node =
            ClusterNode { name: "n1".to_owned(), address: vec![[192, 0, 2, 11].into()], ..ClusterNode::default() };
        let mut config = Config { role: Role::Node, ..Config::default() };
        config.cluster.vip = vec![([192, 0, 2, 100], 80).into()];
        (config.cluster.name, config.cluster.nodes) = (node.name.clone(), vec![node]);
        assert_eq!(What::of(&config), None);
        config.cluster.health.path = Some("/up".to_owned());
        assert_eq!(What::of(&config).map(|what| what.server), Some(([192, 0, 2, 11], 80).into()));
        config.role = Role::Dispatcher;
        assert_eq!(What::of(&config), None);
        config.role = Role::Node;
        config.cluster.nodes[0].server = vec![([127, 0, 0, 1], 8080).into()];
        assert_eq!(What::of(&config), None);
        config.cluster.nodes[0].server.clear();
        config.cluster.health.interval = Duration::ZERO;
        assert_eq!(What::of(&config), None);
    }
}
