//! Who asks, when, and what became of it. Connections have no delay of their own: what is sent is there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use leat_host::reactor::Token;
use leat_logic::admission::LetIn;
use leat_logic::client_prefix::ClientPrefix;

use super::{Demand, FILE_BYTES, FILE_PATH, PAGE_PATH, SMALL_FILE_PATH, What, host};
use crate::agenda::{MILLISECOND, SECOND};
use crate::random::Random;

/// From a reply to the next request of a client that asks again at once.
const GAP_NS: u64 = 50_000;
/// When a connect is tried again that the listener's queue had no room for, and how the next wait grows.
const RETRY_NS: u64 = SECOND;
/// Connections that wait at the listener, if nothing else is said.
pub(super) const QUEUE_MAX: usize = 4_096;
/// What the kernel takes for a client that doesn't read.
const SOCKET_BYTES: usize = 256 << 10;
/// Ranges that are asked for together, and how far apart they begin.
const RANGES: usize = 100;
const RANGES_APART: usize = FILE_BYTES / RANGES;
/// Kept connections are opened at this distance.
const OPENING_NS: u64 = 100_000;

/// How a site's clients ask.
#[derive(Clone, Copy, Debug)]
pub enum Asking {
    /// So many connections, each of which asks again as soon as it has its reply.
    Again(usize),
    /// As [`Asking::Again`], but only in every second period of so many milliseconds.
    Now(usize, u64),
    /// So many kept connections, which share requests that come by themselves, so many each second; one that finds none free goes away.
    Kept(usize, f64),
    /// As [`Asking::Kept`], at the first rate until counting begins, and then at the second.
    Rising(usize, [f64; 2]),
    /// A new connection for each request, so many each second.
    New(f64),
    /// So many clients, each of which asks again by a new connection as soon as it has its reply.
    Anew(usize),
}

/// What one site got.
#[derive(Clone, Debug, Default)]
pub struct Got {
    /// Requests that were due.
    pub offered: u64,
    /// From the time at which a request was due to its reply, of those that were answered and of those that were refused, in nanoseconds and sorted.
    pub answered_ns: Vec<u64>,
    /// See `answered_ns`.
    pub refused_ns: Vec<u64>,
    /// When each answer came, in nanoseconds since counting began.
    pub answered_at_ns: Vec<u64>,
    /// Processor time charged to it.
    pub charged_ns: u64,
}

impl Got {
    /// The 99th percentile of those that were answered, in milliseconds.
    #[must_use]
    pub fn p99_ms(&self) -> f64 {
        self.answered_ns.get(self.answered_ns.len() * 99 / 100).map_or(0.0, |&ns| ns as f64 / MILLISECOND as f64)
    }
}

/// One connection, from the client's connect to both ends' close.
#[derive(Debug, Default)]
pub(super) struct Connection {
    site: usize,
    is_kept: bool,
    /// When the request in hand was due.
    due_ns: Option<u64>,
    pub(super) is_accepted: bool,
    /// What has come and hasn't been received.
    pub(super) received: Vec<u8>,
    pub(super) received_at_ns: u64,
    pub(super) has_ended: bool,
    pub(super) token: Option<Token>,
    pub(super) is_receiving: bool,
    pub(super) is_once: bool,
    pub(super) is_pausing: bool,
    /// Bytes of a reply in parts that are still to come.
    left_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request of a site is due.
    Due(usize),
    /// A connection asks.
    Ask(u32),
    /// A connect arrives at the listener, again after so many seconds.
    Connect(u32, u64),
}

pub(super) struct Crowd {
    demands: Vec<Demand>,
    random: Random,
    now_ns: u64,
    pub(super) connections: BTreeMap<u32, Connection>,
    /// Connections in the listener's queue.
    pub(super) queue: VecDeque<u32>,
    pub(super) queue_max: usize,
    /// What part of those who connect is heard, and how many weren't.
    pub(super) let_in: LetIn,
    pub(super) dropped: u32,
    /// Each site's clients have a network of their own.
    pub(super) are_apart: bool,
    /// How many times what they do on a machine of today operations cost.
    pub(super) price_times: u64,
    /// The kernel has filled nearly all receive buffers.
    pub(super) is_short_of_buffers: bool,
    /// Connections with something for the reactor.
    pub(super) ready: VecDeque<u32>,
    next_connection: u32,
    events: BTreeSet<(u64, u64, Event)>,
    serial: u64,
    /// Kept connections that have nothing to do, by site.
    free: Vec<VecDeque<u32>>,
    counts: Vec<Got>,
    counts_from_ns: u64,
    /// Connections that were closed before the reply to their request.
    pub(super) cut: u64,
}

impl Crowd {
    pub(super) fn new(demands: &[Demand], random: Random, now_ns: u64) -> Crowd {
        let mut crowd = Crowd {
            demands: demands.to_vec(),
            random,
            now_ns,
            connections: BTreeMap::new(),
            queue: VecDeque::new(),
            queue_max: QUEUE_MAX,
            let_in: LetIn::of_all(1.0),
            are_apart: false,
            dropped: 0,
            price_times: 1,
            is_short_of_buffers: false,
            ready: VecDeque::new(),
            next_connection: 1,
            events: BTreeSet::new(),
            serial: 0,
            free: vec![VecDeque::new(); demands.len()],
            counts: vec![Got::default(); demands.len()],
            counts_from_ns: u64::MAX,
            cut: 0,
        };
        for (site, demand) in demands.iter().enumerate() {
            let (clients, has_arrivals) = match demand.asking {
                Asking::Again(clients) | Asking::Now(clients, _) | Asking::Anew(clients) => (clients, false),
                Asking::Kept(connections, _) | Asking::Rising(connections, _) => (connections, true),
                Asking::New(_) => (0, true),
            };
            for place in 0..clients {
                let number = crowd.open(site, !matches!(demand.asking, Asking::Anew(_)));
                crowd.connections.entry(number).or_default().due_ns = (!has_arrivals).then_some(now_ns);
                crowd.after(place as u64 * OPENING_NS, Event::Connect(number, 0));
                if has_arrivals {
                    crowd.free[site].push_back(number);
                }
            }
            if has_arrivals {
                crowd.after(clients as u64 * OPENING_NS, Event::Due(site));
            }
        }
        crowd
    }

    fn open(&mut self, site: usize, is_kept: bool) -> u32 {
        let number = self.next_connection;
        self.next_connection += 1;
        self.connections.insert(number, Connection { site, is_kept, ..Connection::default() });
        number
    }

    /// Whence a connection comes.
    pub(super) fn address(&self, number: u32) -> IpAddr {
        let site = self.connections.get(&number).filter(|_| self.are_apart).map_or(0, |connection| connection.site);
        [127, 0, site as u8, 1].into()
    }

    fn after(&mut self, delay_ns: u64, event: Event) {
        self.serial += 1;
        self.events.insert((self.now_ns + delay_ns, self.serial, event));
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.events.first().map(|&(at_ns, ..)| at_ns)
    }

    /// Has everything happen that is due by `now_ns`.
    pub(super) fn advance_to(&mut self, now_ns: u64) {
        while let Some(&(at_ns, serial, event)) = self.events.first()
            && at_ns <= now_ns
        {
            self.events.remove(&(at_ns, serial, event));
            self.now_ns = at_ns;
            match event {
                Event::Due(site) => self.due(site),
                Event::Ask(number) => self.ask(number),
                Event::Connect(number, waited_s) => self.connect(number, waited_s),
            }
        }
        self.now_ns = now_ns;
    }

    fn due(&mut self, site: usize) {
        let (per_s, is_kept) = match self.demands[site].asking {
            Asking::Again(_) | Asking::Now(..) | Asking::Anew(_) => return,
            Asking::Kept(_, per_s) => (per_s, true),
            Asking::Rising(_, per_s) => (per_s[usize::from(self.now_ns >= self.counts_from_ns)], true),
            Asking::New(per_s) => (per_s, false),
        };
        let uniform = (self.random.below(1 << 30) + 1) as f64 / f64::from(1 << 30);
        self.after(1 + (-uniform.ln() * 1e9 / per_s) as u64, Event::Due(site));
        self.counts[site].offered += u64::from(self.now_ns >= self.counts_from_ns);
        let now_ns = self.now_ns;
        if !is_kept {
            let number = self.open(site, false);
            self.connections.entry(number).or_default().due_ns = Some(now_ns);
            self.connect(number, 0);
        } else if let Some(number) = self.free[site].pop_front() {
            self.connections.entry(number).or_default().due_ns = Some(now_ns);
            self.ask(number);
        }
    }

    fn connect(&mut self, number: u32, waited_s: u64) {
        let part = self.let_in.part(ClientPrefix::of(self.address(number)));
        let is_heard = part >= 1.0 || (self.random.below(1 << 20) as f64) < part * f64::from(1 << 20);
        if !is_heard || self.queue.len() >= self.queue_max {
            self.dropped += 1;
            self.after(RETRY_NS * (waited_s + 1), Event::Connect(number, waited_s * 2 + 1));
            return;
        }
        self.queue.push_back(number);
        self.ask(number);
    }

    /// Sends the request that is due, if one is.
    fn ask(&mut self, number: u32) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if connection.due_ns.is_none() {
            return;
        }
        let site = connection.site;
        let path = match self.demands[site].what {
            What::Burn(from, to) => format!("/burn?us={}", self.random.between(from, to)),
            What::Forever => "/burn?us=forever".to_owned(),
            What::File { .. } | What::Ranges => FILE_PATH.to_owned(),
            What::SmallFile => SMALL_FILE_PATH.to_owned(),
            What::Page => PAGE_PATH.to_owned(),
        };
        let ranges = match self.demands[site].what {
            What::Ranges => {
                let ranges: Vec<String> = (0..RANGES).map(|at| format!("{0}-{0}", at * RANGES_APART)).collect();
                format!("Range: bytes={}\r\n", ranges.join(","))
            }
            _ => String::new(),
        };
        let close = if connection.is_kept { "" } else { "Connection: close\r\n" };
        let text = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{close}{ranges}\r\n", host(site));
        connection.received.extend_from_slice(text.as_bytes());
        connection.received_at_ns = self.now_ns;
        self.ready.push_back(number);
    }

    /// A part of a reply comes, the first of which begins with `head`. How much of it the client's kernel takes; none if that's full.
    pub(super) fn take(&mut self, number: u32, head: &[u8], bytes: usize) -> Option<usize> {
        let connection = self.connections.get_mut(&number)?;
        if connection.left_bytes == 0 {
            let end = head.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
            let head = std::str::from_utf8(&head[..end]).ok()?;
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?;
            connection.left_bytes = end + length.parse::<usize>().ok()?;
        }
        let is_read = !matches!(self.demands[connection.site].what, What::File { is_read: false });
        let unread_bytes_max = if is_read { usize::MAX } else { SOCKET_BYTES };
        let taken_bytes = FILE_BYTES.saturating_sub(connection.left_bytes);
        let count = bytes.min(unread_bytes_max.saturating_sub(taken_bytes));
        connection.left_bytes = connection.left_bytes.saturating_sub(count);
        if connection.left_bytes == 0 {
            self.replied(number, false);
        }
        (count > 0).then_some(count)
    }

    /// A reply has come.
    pub(super) fn replied(&mut self, number: u32, is_refusal: bool) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Some(due_ns) = connection.due_ns.take() else { return };
        let (site, is_kept) = (connection.site, connection.is_kept);
        if self.now_ns >= self.counts_from_ns {
            let counts = &mut self.counts[site];
            let delays = if is_refusal { &mut counts.refused_ns } else { &mut counts.answered_ns };
            delays.push(self.now_ns - due_ns);
            if !is_refusal {
                counts.answered_at_ns.push(self.now_ns - self.counts_from_ns);
            }
        }
        match self.demands[site].asking {
            Asking::Again(_) | Asking::Now(..) => {
                self.counts[site].offered += u64::from(self.now_ns >= self.counts_from_ns);
                let delay_ns = match self.demands[site].asking {
                    Asking::Now(_, period_ms) => until_awake(self.now_ns + GAP_NS, period_ms) - self.now_ns,
                    _ => GAP_NS,
                };
                connection.due_ns = Some(self.now_ns + delay_ns);
                self.after(delay_ns, Event::Ask(number));
            }
            Asking::Anew(_) => {
                self.counts[site].offered += u64::from(self.now_ns >= self.counts_from_ns);
                let due_ns = Some(self.now_ns + GAP_NS);
                let number = self.open(site, false);
                self.connections.entry(number).or_default().due_ns = due_ns;
                self.after(GAP_NS, Event::Connect(number, 0));
            }
            _ if is_kept => self.free[site].push_back(number),
            _ => {}
        }
    }

    /// The worker takes the first of those that wait at the listener.
    pub(super) fn accept(&mut self) -> Option<u32> {
        let number = self.queue.pop_front()?;
        self.connections.entry(number).or_default().is_accepted = true;
        Some(number)
    }

    /// Connections that have been accepted and not heard.
    pub(super) fn unheard(&self) -> usize {
        self.connections.values().filter(|connection| connection.is_accepted && connection.token.is_none()).count()
    }

    /// Nothing is left of a connection.
    pub(super) fn closed(&mut self, number: u32) {
        let connection = self.connections.remove(&number);
        self.cut += u64::from(connection.is_some_and(|connection| connection.due_ns.is_some()));
    }

    pub(super) fn count_from_now(&mut self) {
        self.counts_from_ns = self.now_ns;
    }

    pub(super) fn take_counts(&mut self) -> Vec<Got> {
        let mut counts = std::mem::take(&mut self.counts);
        for got in &mut counts {
            got.answered_ns.sort_unstable();
            got.refused_ns.sort_unstable();
        }
        counts
    }
}

/// When a client that asks in every second period asks next, if it's ready at `at_ns`.
fn until_awake(at_ns: u64, period_ms: u64) -> u64 {
    let period_ns = period_ms * MILLISECOND;
    let period = at_ns / period_ns;
    if period % 2 == 1 { at_ns } else { (period + 1) * period_ns }
}
