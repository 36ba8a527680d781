//! Pretend clients: each has a script, a pace and an end, and sees to it that it gets what it asked for.

pub(crate) mod reply;
pub(crate) mod request;

use crate::agenda::{Happening, MILLISECOND, SECOND};
use crate::link::Pace;
use crate::settings::{HEAD_TIMEOUT_NS, IDLE_TIMEOUT_NS, SLACK_NS, STALL_TIMEOUT_NS};
use crate::world::World;
use leat_logic::admission::limits::{ROOM_HEAD_NS, ROOM_REST_NS};
use reply::Reader;
use request::{Close, Exchange};

/// What a client does when it has asked for everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Ends its side after the last reply.
    Leave,
    /// Ends its side right after the last request, and waits for what it's owed.
    HalfClose,
    /// Says nothing more: the server has to end it.
    Stay,
}

#[derive(Debug)]
pub(crate) struct Client {
    exchanges: Vec<Exchange>,
    ending: Ending,
    pace: Pace,
    /// Requests sent ahead of their replies.
    pipelined_max: usize,
    send_gap_ns_max: u64,
    read_bytes_max: usize,
    read_gap_ns_max: u64,
    /// Reads so many bytes and then no more.
    stalls_after: Option<usize>,
    link: Option<u32>,
    reader: Reader,
    read_bytes: usize,
    sending: usize,
    replied: usize,
    reads_at_ns: u64,
    connected_at_ns: u64,
    has_ended_side: bool,
    /// The server has said that it ends the connection.
    told_close: bool,
    is_over: bool,
}

impl World {
    /// Adds a client that connects after some time.
    pub(crate) fn add_client(&mut self, starts_within_ns: u64) {
        let count = self.random.between(0, 6);
        let mut exchanges = self.make_exchanges(count);
        let ending = match self.random.below(8) {
            0 | 1 => Ending::Stay,
            2 | 3 => Ending::HalfClose,
            _ => Ending::Leave,
        };
        let ends_open = exchanges.iter().all(|exchange| exchange.close == Close::No);
        if ending == Ending::Stay && ends_open && self.random.percent(50) {
            exchanges.push(Exchange::half_a_head());
        }
        let random = &mut self.random;
        let client = Client {
            exchanges,
            ending,
            pace: Pace::random(random),
            pipelined_max: *random.pick(&[1, 1, 2, 10]),
            send_gap_ns_max: *random.pick(&[0, 100_000, 5 * MILLISECOND]),
            read_bytes_max: *random.pick(&[900, 5_000, 100_000, 100_000]),
            read_gap_ns_max: *random.pick(&[0, 0, 200_000, 10 * MILLISECOND]),
            stalls_after: random.percent(5).then(|| random.below(30_000) as usize),
            link: None,
            reader: Reader::default(),
            read_bytes: 0,
            sending: 0,
            replied: 0,
            reads_at_ns: 0,
            connected_at_ns: 0,
            has_ended_side: false,
            told_close: false,
            is_over: false,
        };
        self.clients.push(client);
        let number = self.clients.len() - 1;
        let starts_ns = self.random.below(starts_within_ns);
        self.agenda.after(starts_ns, Happening::ClientActs(number));
        if self.random.percent(8) {
            let dies_ns = starts_ns + self.random.below(2 * SECOND);
            self.agenda.after(dies_ns, Happening::ClientDies(number));
        }
    }

    /// Adds a client that sends `uploads` requests with much content, one behind the other without waiting for replies, as fast as the server takes them.
    pub(crate) fn add_uploader(&mut self, uploads: usize, chunked_percent: u64, pace: Pace) {
        let exchanges = (0..uploads).map(|_| request::upload(&mut self.random, chunked_percent)).collect();
        self.clients.push(Client {
            exchanges,
            ending: Ending::Leave,
            pace,
            pipelined_max: uploads,
            send_gap_ns_max: MILLISECOND,
            read_bytes_max: 100_000,
            read_gap_ns_max: 0,
            stalls_after: None,
            link: None,
            reader: Reader::default(),
            read_bytes: 0,
            sending: 0,
            replied: 0,
            reads_at_ns: 0,
            connected_at_ns: 0,
            has_ended_side: false,
            told_close: false,
            is_over: false,
        });
        self.agenda.after(0, Happening::ClientActs(self.clients.len() - 1));
    }

    /// The next thing that a client does: connect, send a request, or end.
    pub(crate) fn client_acts(&mut self, number: usize) {
        let now_ns = self.agenda.now_ns();
        let World { network, agenda, random, clients, verbose, .. } = self;
        let client = &mut clients[number];
        if client.is_over || client.has_ended_side || client.told_close {
            return;
        }
        let link = *client.link.get_or_insert_with(|| {
            client.connected_at_ns = now_ns;
            network.connect(agenda, number, client.pace.clone())
        });
        if client.sending < client.exchanges.len() {
            if client.sending - client.replied >= client.pipelined_max {
                return;
            }
            let exchange = &mut client.exchanges[client.sending];
            exchange.sent_at_ns = now_ns;
            network.client_sends(agenda, random, link, &exchange.request);
            if *verbose {
                let request = exchange.request[..exchange.request.len().min(120)].escape_ascii();
                eprintln!("{:.6} client {number} on {link} asks `{request}`", now_ns as f64 / 1e9);
            }
            client.sending += 1;
            let gap_ns = random.below(client.send_gap_ns_max + 1);
            agenda.after(gap_ns, Happening::ClientActs(number));
            return;
        }
        let ends = match client.ending {
            Ending::HalfClose => true,
            Ending::Leave => client.replied == client.exchanges.len(),
            Ending::Stay => false,
        };
        if ends {
            client.has_ended_side = true;
            network.client_ends(agenda, random, link);
        }
    }

    /// Gone without a word.
    pub(crate) fn client_dies(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if let (Some(link), false) = (client.link, client.is_over) {
            client.is_over = true;
            self.network.client_resets(&mut self.agenda, link);
            self.trace(|| format!("client {number} dies"));
        }
    }

    pub(crate) fn client_reads(&mut self, number: usize) {
        let now_ns = self.agenda.now_ns();
        let World { network, agenda, random, clients, .. } = self;
        let client = &mut clients[number];
        let Some(link) = client.link else { return };
        let has_stalled = client.stalls_after.is_some_and(|most| client.read_bytes >= most);
        if client.is_over || has_stalled || now_ns < client.reads_at_ns {
            return;
        }
        let taken = network.client_takes(agenda, random, link, client.read_bytes_max);
        client.read_bytes += taken.len();
        client.reader.add(&taken);
        if !taken.is_empty() {
            client.reads_at_ns = now_ns + random.below(client.read_gap_ns_max + 1);
            agenda.after(client.reads_at_ns - now_ns, Happening::ClientReads(number));
        }
        self.take_replies(number);
        let Some(state) = self.network.links.get(&link) else { return };
        let has_ended = state.arrived.is_empty() && (state.end_arrived || state.reset_arrived);
        if has_ended && taken.is_empty() && !self.clients[number].is_over {
            let is_reset = state.reset_arrived;
            self.connection_ended(number, is_reset);
        }
    }

    fn take_replies(&mut self, number: usize) {
        loop {
            let client = &mut self.clients[number];
            let exchange = client.exchanges.get(client.replied).filter(|_| client.replied < client.sending).cloned();
            let to_head = exchange.as_ref().is_some_and(|exchange| exchange.is_head);
            let reply = match client.reader.next(to_head) {
                Ok(Some(reply)) => reply,
                Ok(None) => return,
                Err(reason) => return self.violation(format!("client {number} can't read a reply: {reason}")),
            };
            client.replied += 1;
            if client.told_close {
                return self.violation(format!("client {number} gets a reply after the last one"));
            }
            let is_last = exchange.as_ref().is_some_and(|exchange| exchange.close == Close::Silently);
            client.told_close = reply.says_close() || is_last;
            if client.told_close
                && self.random.percent(50)
                && let Some(link) = client.link
            {
                client.has_ended_side = true;
                self.network.client_ends(&mut self.agenda, &mut self.random, link);
            }
            self.replies += 1;
            self.unavailable += u64::from(reply.status == 503);
            self.trace(|| {
                format!("client {number} gets {} with {} bytes: {}", reply.status, reply.body.len(), reply.describe())
            });
            match &exchange {
                // Only a silent client may be told something that it didn't ask for.
                None => {
                    self.violation(format!("client {number} gets a {} that it didn't ask for", reply.status));
                }
                Some(exchange) => {
                    if let Err(reason) = self.judge(exchange, &reply) {
                        let request = exchange.request[..exchange.request.len().min(120)].escape_ascii();
                        self.violation(format!("client {number}, `{request}`: {reason}"));
                    }
                }
            }
            let gap_ns = self.random.below(self.clients[number].send_gap_ns_max + 1);
            self.agenda.after(gap_ns, Happening::ClientActs(number));
        }
    }

    /// The server has ended the connection, or cut it: was there a reason?
    fn connection_ended(&mut self, number: usize, is_reset: bool) {
        let now_ns = self.agenda.now_ns();
        self.clients[number].is_over = true;
        let client = &self.clients[number];
        let owed = client.exchanges.get(client.replied).filter(|_| client.replied < client.sending);
        let owes = (owed.is_some() || client.reader.has_begun()) && !client.told_close;
        // The server's clock runs from the last reply's end, which the client sees later; never from before its request.
        let before = client.exchanges[..client.replied.min(client.exchanges.len())].last();
        let idle_from_ns = before.map_or(client.connected_at_ns, |exchange| exchange.sent_at_ns);
        let idle_ns = now_ns - idle_from_ns;
        let limit_ns = match (client.replied == 0, self.is_crowded) {
            (true, false) => HEAD_TIMEOUT_NS,
            (false, false) => IDLE_TIMEOUT_NS,
            (true, true) => ROOM_HEAD_NS,
            (false, true) => ROOM_REST_NS,
        };
        let text = format!(
            "client {number}: ended, reset {is_reset}, {} of {} replies, idle {idle_ns} ns, owed `{}`, has {}",
            client.replied,
            client.sending,
            owed.map(|exchange| exchange.request[..exchange.request.len().min(120)].escape_ascii().to_string())
                .unwrap_or_default(),
            client.reader.describe(),
        );
        let is_excused = match owed {
            _ if client.told_close => true,
            None if client.reader.has_begun() => false,
            // Between two requests.
            None => client.has_ended_side || self.drain.is_some() || idle_ns >= limit_ns,
            Some(_) => {
                let is_untouched = !client.reader.has_begun();
                // A request may meet the end of an idle connection on its way, behind what was left of the last reply.
                let link = client.link.and_then(|link| self.network.links.get(&link));
                let given_up_at_ns = link.map_or(u64::MAX, |link| link.given_up_at_ns);
                let may_close_idle = self.drain.is_some() || given_up_at_ns >= idle_from_ns.saturating_add(limit_ns);
                let last_sent_at_ns = client.exchanges[client.sending - 1].sent_at_ns;
                let crossed = may_close_idle && last_sent_at_ns.saturating_add(SLACK_NS) >= given_up_at_ns;
                let draining = self.drain.is_some_and(|(_, deadline_ns)| is_untouched || now_ns >= deadline_ns);
                // A reset takes with it what is left of the replies before.
                let has_failed = client.exchanges[client.replied..client.sending].iter().any(|exchange| {
                    let is_file = matches!(exchange.wanted, request::Wanted::File { .. });
                    // A handler ends with its client, and takes an end of input for one.
                    let is_handled =
                        matches!(exchange.wanted, request::Wanted::Burnt { .. } | request::Wanted::Said { .. });
                    let is_given_up = client.has_ended_side && is_handled;
                    let is_cut = matches!(exchange.wanted, request::Wanted::Said { is_cut: true, .. });
                    is_given_up
                        || is_cut
                        || self.has_changed(exchange)
                        || (is_file && self.faults.disk_errors_in_1000 > 0)
                });
                let is_stuck_before = before.is_some_and(|exchange| self.may_come_too_slowly(exchange));
                crossed || draining || has_failed || is_stuck_before
            }
        };
        self.cuts += u64::from(owes);
        self.trace(|| text.clone());
        if !is_excused {
            self.violation(text);
        }
    }

    /// Connections that should have ended by now and haven't, or ended too late.
    pub(crate) fn overdue(&self) -> Option<String> {
        self.clients.iter().enumerate().find_map(|(number, client)| {
            let link = self.network.links.get(&client.link?)?;
            if client.is_over || !link.closed || link.reset_by_client {
                return None;
            }
            let limit_ns = HEAD_TIMEOUT_NS.max(IDLE_TIMEOUT_NS).max(2 * STALL_TIMEOUT_NS) + 3 * SECOND;
            let late_ns = link.closed_at_ns.saturating_sub(link.moved_at_ns);
            (late_ns > limit_ns).then(|| format!("client {number} was closed {late_ns} ns after its last byte"))
        })
    }

    /// Whether every client's connection has ended, by whichever side.
    pub(crate) fn is_over(&self) -> bool {
        self.clients.iter().all(|client| {
            let link = client.link.and_then(|link| self.network.links.get(&link));
            link.is_some_and(|link| link.closed)
        })
    }

    /// The clients whose connections haven't ended.
    pub(crate) fn left(&self) -> String {
        let is_left = |client: &Client| {
            client.link.and_then(|link| self.network.links.get(&link)).is_none_or(|link| !link.closed)
        };
        let left = self.clients.iter().enumerate().filter(|(_, client)| is_left(client)).map(|(number, client)| {
            let (sent, replied) = (client.sending, client.replied);
            let link = client.link.and_then(|link| self.network.links.get(&link));
            let state = link.map(crate::link::Link::describe).unwrap_or_default();
            format!("client {number} with {replied} of {sent} replies on link {:?} {state}", client.link)
        });
        left.collect::<Vec<_>>().join("; ")
    }
}
