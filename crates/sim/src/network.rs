//! Pretend TCP: links between clients and the worker's sockets, each with queues of limited size in both directions.
//!
//! Decides when bytes move and what a reset throws away. What the reactor makes of it is `reactor`'s, what a client does is `client`'s.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use bytes::Bytes;
use leat_host::reactor::{SendNow, Transmit};

use crate::agenda::{Agenda, Happening};
use crate::files::Pages;
use crate::link::{Done, Link, Pace, Receiving, Segment};
use crate::random::Random;

/// See the module. A socket's number is its link's, and never used again: whoever uses a closed one is found out.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) links: BTreeMap<u32, Link>,
    next_link: u32,
    /// Links with something for the reactor.
    pub(crate) ready: BTreeSet<u32>,
    /// In each listener's queue.
    pub(crate) backlog: BTreeMap<usize, VecDeque<u32>>,
}

impl Network {
    /// A client connects. Nothing tells it whether the worker has taken the connection.
    pub(crate) fn connect(&mut self, agenda: &mut Agenda, client: usize, pace: Pace) -> u32 {
        let delay_ns = pace.delay_ns_max / 2;
        let number = self.add_link(agenda, Happening::ClientReads(client), pace);
        agenda.after(delay_ns, Happening::Connected(number));
        number
    }

    /// A link that needs no accepting.
    pub(crate) fn add_link(&mut self, agenda: &Agenda, wakes: Happening, pace: Pace) -> u32 {
        self.next_link += 1;
        let number = self.next_link;
        let link = Link {
            wakes,
            pace,
            upstream: VecDeque::new(),
            upstream_moves: false,
            client_ends: false,
            received: VecDeque::new(),
            ended: false,
            reset_by_client: false,
            downstream: VecDeque::new(),
            downstream_bytes: 0,
            downstream_moves: false,
            server_ended: false,
            given_up_at_ns: u64::MAX,
            arrived: VecDeque::new(),
            end_arrived: false,
            reset_arrived: false,
            token: None,
            receiving: Receiving::Off,
            starved: false,
            pausing: false,
            is_shut: false,
            sending: None,
            awaits_writable: false,
            done: VecDeque::new(),
            closed: false,
            closed_at_ns: 0,
            received_at_ns: agenda.now_ns(),
            moved_at_ns: agenda.now_ns(),
        };
        self.links.insert(number, link);
        number
    }

    pub(crate) fn connected(&mut self, number: u32, listener: usize) {
        self.backlog.entry(listener).or_default().push_back(number);
    }

    // The client's side.

    pub(crate) fn client_sends(&mut self, agenda: &mut Agenda, random: &mut Random, number: u32, bytes: &[u8]) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.upstream.extend(bytes);
        start_upstream(link, agenda, random, number);
    }

    pub(crate) fn client_ends(&mut self, agenda: &mut Agenda, random: &mut Random, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.client_ends = true;
        start_upstream(link, agenda, random, number);
    }

    /// The client closes without reading all that comes: whatever arrives at it now is answered with a reset.
    pub(crate) fn client_resets(&mut self, agenda: &mut Agenda, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.reset_by_client = true;
        link.upstream.clear();
        link.downstream.clear();
        link.downstream_bytes = 0;
        self.pump(agenda, number);
        self.ready.insert(number);
    }

    pub(crate) fn client_takes(
        &mut self,
        agenda: &mut Agenda,
        random: &mut Random,
        number: u32,
        most: usize,
    ) -> Vec<u8> {
        let Some(link) = self.links.get_mut(&number) else { return Vec::new() };
        let count = most.min(link.arrived.len());
        let taken = link.arrived.drain(..count).collect();
        start_downstream(link, agenda, random, number);
        taken
    }

    // Movement.

    pub(crate) fn move_upstream(&mut self, agenda: &mut Agenda, random: &mut Random, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.upstream_moves = false;
        if link.reset_by_client {
            return;
        }
        if link.closed {
            // What comes for a closed socket is answered with a reset.
            if !link.upstream.is_empty() {
                link.upstream.clear();
                link.reset_arrived = true;
                agenda.after(0, link.wakes);
            }
            return;
        }
        let room = link.pace.receive_buffer_bytes.saturating_sub(link.received.len());
        let most = link.upstream.len().min(room).min(link.pace.upstream_fragment_bytes_max);
        if most > 0 {
            let count = random.fragment(most);
            let moved: Vec<u8> = link.upstream.drain(..count).collect();
            link.received.extend(moved);
            link.received_at_ns = agenda.now_ns();
            link.moved_at_ns = agenda.now_ns();
            self.ready.insert(number);
        }
        if link.upstream.is_empty() && link.client_ends && !link.ended {
            link.ended = true;
            self.ready.insert(number);
        }
        if room > 0 {
            start_upstream(link, agenda, random, number);
        }
    }

    /// The worker has taken some of what had come: there is room again.
    pub(crate) fn received_taken(&mut self, agenda: &mut Agenda, random: &mut Random, number: u32) {
        if let Some(link) = self.links.get_mut(&number) {
            start_upstream(link, agenda, random, number);
        }
    }

    pub(crate) fn move_downstream(&mut self, agenda: &mut Agenda, random: &mut Random, number: u32) {
        self.pump(agenda, number);
        let Some(link) = self.links.get_mut(&number) else { return };
        link.downstream_moves = false;
        if link.reset_by_client || link.reset_arrived {
            return;
        }
        let room = link.pace.client_window_bytes.saturating_sub(link.arrived.len());
        let mut left = random.fragment(room.min(link.pace.downstream_fragment_bytes_max).max(1)).min(room);
        while left > 0
            && let Some(segment) = link.downstream.front_mut()
        {
            let count = left.min(segment.len());
            link.arrived.extend(segment.take(count));
            link.downstream_bytes -= count;
            link.moved_at_ns = agenda.now_ns();
            left -= count;
            if segment.len() == 0 {
                link.downstream.pop_front();
            }
        }
        if link.downstream.is_empty() && link.server_ended && link.sending.is_none() {
            link.end_arrived = true;
        }
        agenda.after(0, link.wakes);
        self.pump(agenda, number);
        if let Some(link) = self.links.get_mut(&number)
            && !link.downstream.is_empty()
            && link.arrived.len() < link.pace.client_window_bytes
        {
            start_downstream(link, agenda, random, number);
        }
    }

    // The worker's side.

    /// Lets a send go on, and tells who waits for room.
    pub(crate) fn pump(&mut self, agenda: &mut Agenda, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let broken = link.reset_by_client || link.is_shut;
        if let Some((transmit, done)) = &mut link.sending {
            if broken {
                link.sending = None;
                link.done.push_back(Done::Sent(Some(io::ErrorKind::BrokenPipe)));
            } else {
                let room = link.pace.send_buffer_bytes.saturating_sub(link.downstream_bytes);
                let head_left = transmit.head.get(*done..).unwrap_or_default();
                let head_count = head_left.len().min(room);
                let body_start = (*done + head_count).saturating_sub(transmit.head.len());
                let body_count = (transmit.body.len() - body_start).min(room - head_count);
                let head = Bytes::copy_from_slice(&head_left[..head_count]);
                let body = transmit.body.slice(body_start..body_start + body_count);
                *done += head_count + body_count;
                let is_done = *done == transmit.head.len() + transmit.body.len();
                for bytes in [head, body] {
                    if !bytes.is_empty() {
                        link.downstream_bytes += bytes.len();
                        link.downstream.push_back(Segment::Bytes(bytes));
                    }
                }
                if is_done {
                    link.sending = None;
                    link.done.push_back(Done::Sent(None));
                }
                let is_full = link.arrived.len() >= link.pace.client_window_bytes;
                if !link.downstream.is_empty() && !link.downstream_moves && !is_full {
                    link.downstream_moves = true;
                    agenda.after(link.pace.delay_ns_max / 3, Happening::Downstream(number));
                }
            }
            self.ready.insert(number);
        }
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.awaits_writable && (broken || link.downstream_bytes * 2 <= link.pace.send_buffer_bytes) {
            link.awaits_writable = false;
            link.done.push_back(Done::Writable);
            self.ready.insert(number);
        }
    }

    pub(crate) fn send(&mut self, agenda: &mut Agenda, random: &mut Random, number: u32, transmit: Transmit) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.sending = Some((transmit, 0));
        if link.server_ended {
            link.is_shut = true;
        }
        link.downstream_moves = true;
        agenda.after(random.below(link.pace.delay_ns_max + 1), Happening::Downstream(number));
        if random.percent(70) {
            self.pump(agenda, number);
        }
    }

    pub(crate) fn is_sending(&self, number: u32) -> bool {
        self.links.get(&number).is_some_and(|link| link.sending.is_some())
    }

    pub(crate) fn send_now(&mut self, agenda: &mut Agenda, random: &mut Random, number: u32, bytes: &[u8]) -> SendNow {
        let count = match self.room(random, number, bytes.len()) {
            Ok(count) => count,
            Err(outcome) => return outcome,
        };
        self.queue(agenda, random, number, Segment::Bytes(Bytes::copy_from_slice(&bytes[..count])));
        SendNow::Sent(count)
    }

    pub(crate) fn send_pages(
        &mut self,
        agenda: &mut Agenda,
        random: &mut Random,
        number: u32,
        (pages, change): (&Pages, bool),
        offset: usize,
        len: usize,
    ) -> SendNow {
        let left = pages.borrow().len().saturating_sub(offset);
        if left == 0 {
            return SendNow::EndOfFile;
        }
        let count = match self.room(random, number, len.min(left)) {
            Ok(count) => count,
            Err(outcome) => return outcome,
        };
        let captured = Bytes::copy_from_slice(&pages.borrow()[offset..offset + count]);
        let segment = match change {
            true => Segment::Pages { pages: pages.clone(), offset, captured },
            false => Segment::Bytes(captured),
        };
        self.queue(agenda, random, number, segment);
        SendNow::Sent(count)
    }

    fn room(&mut self, random: &mut Random, number: u32, wanted: usize) -> Result<usize, SendNow> {
        let Some(link) = self.links.get_mut(&number) else { return Err(SendNow::Blocked) };
        if link.reset_by_client || link.server_ended {
            return Err(SendNow::Failed(io::ErrorKind::BrokenPipe.into()));
        }
        let room = link.pace.send_buffer_bytes.saturating_sub(link.downstream_bytes).min(wanted);
        if room == 0 { Err(SendNow::Blocked) } else { Ok(random.fragment(room)) }
    }

    fn queue(&mut self, agenda: &mut Agenda, random: &mut Random, number: u32, segment: Segment) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.downstream_bytes += segment.len();
        link.downstream.push_back(segment);
        start_downstream(link, agenda, random, number);
    }

    pub(crate) fn unacknowledged_bytes(&self, number: u32) -> usize {
        self.links.get(&number).map_or(0, |link| link.downstream_bytes)
    }

    pub(crate) fn shutdown(&mut self, agenda: &mut Agenda, random: &mut Random, number: u32, both: bool) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.is_shut |= both;
        self.pump(agenda, number);
        let Some(link) = self.links.get_mut(&number) else { return };
        link.server_ended = true;
        link.given_up_at_ns = link.given_up_at_ns.min(agenda.now_ns());
        if !link.downstream_moves {
            link.downstream_moves = true;
            agenda.after(random.below(link.pace.delay_ns_max + 1), Happening::Downstream(number));
        }
        self.ready.insert(number);
    }

    pub(crate) fn close(&mut self, agenda: &mut Agenda, random: &mut Random, number: u32, reset: bool) {
        let now_ns = agenda.now_ns();
        let Some(link) = self.links.get_mut(&number) else { return };
        link.closed = true;
        link.closed_at_ns = now_ns;
        link.given_up_at_ns = link.given_up_at_ns.min(now_ns);
        // As Linux does: what nobody has read makes a close a reset, and a reset throws away what was queued.
        if reset || !link.received.is_empty() {
            link.downstream.clear();
            link.downstream_bytes = 0;
            link.reset_arrived = true;
            agenda.after(random.below(link.pace.delay_ns_max + 1), link.wakes);
        } else {
            link.server_ended = true;
            if !link.downstream_moves {
                link.downstream_moves = true;
                agenda.after(random.below(link.pace.delay_ns_max + 1), Happening::Downstream(number));
            }
        }
    }
}

fn start_upstream(link: &mut Link, agenda: &mut Agenda, random: &mut Random, number: u32) {
    let has_more = !link.upstream.is_empty() || (link.client_ends && !link.ended);
    if has_more && !link.upstream_moves {
        link.upstream_moves = true;
        agenda.after(random.below(link.pace.delay_ns_max + 1), Happening::Upstream(number));
    }
}

fn start_downstream(link: &mut Link, agenda: &mut Agenda, random: &mut Random, number: u32) {
    let has_more = !link.downstream.is_empty() || (link.server_ended && !link.end_arrived);
    if has_more && !link.downstream_moves && link.arrived.len() < link.pace.client_window_bytes {
        link.downstream_moves = true;
        agenda.after(random.below(link.pace.delay_ns_max + 1), Happening::Downstream(number));
    }
}
