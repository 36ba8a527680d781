//! The transmit stage: replies that don't go out in one send. Files go from the page cache to the socket; a file that has changed meanwhile
//! cuts the connection before its reply is complete, so that no client takes a torn reply for a whole one.

use std::io::IoSlice;
use std::time::Duration;

use bytes::Bytes;
use leat_host::reactor::{Reactor, SendNow, Token};
use leat_host::storage::{Outcome, Payer, Storage};
use leat_logic::http::{AfterReply, Persistence};
use leat_logic::schedule::Operation;
use leat_logic::time::Instant;

use super::exchange::{Answer, Exchange, Piece};
use super::stream::News;
use super::{Host, Stage, Worker, ticket_of};

/// What a connection's first flight can take of a reply, its end included: ten segments. More of it may have yet to leave when it is all with the kernel.
pub(super) const FLIGHT_BYTES: usize = 14_600;
/// Bytes sent in one turn: then other events get theirs.
const TURN_BYTES_MAX: usize = 512 * 1024;
/// The same while several sites want something: some thirty microseconds' work.
const SHARED_TURN_BYTES_MAX: usize = 128 * 1024;
/// Pieces sent in one turn: a reply of a hundred ranges of a byte each is two hundred sends.
const TURN_PIECES_MAX: usize = 16;
/// The last bytes of a file wait until the file has been seen unchanged.
const TAIL_BYTES: u64 = 4096;
/// Parts of a file up to this size together are copied, and go out with their heads: that costs less than what sendfile(2) needs beside it. At 64 KiB it costs
/// more.
const COPIED_FILE_BYTES_MAX: u64 = 32 * 1024;
/// A client slower than this has all but the tail acknowledged before the file is looked at for the last time: what lies in the kernel's
/// queues is the file's own pages, which change with it.
const SLOW_CLIENT: Duration = Duration::from_millis(100);

/// How a turn ended.
enum Turn {
    /// Everything is with the kernel.
    Done,
    /// The turn's bytes are used up.
    Continue,
    /// An answer of the storage, or room in the socket, is waited for.
    Waiting,
    /// The reply can't be completed.
    Broken,
}

/// What has become of the first piece that is left.
enum Step {
    /// It's done with, or another now.
    Next,
    /// So many bytes were to be sent by this.
    Sent(Operation, usize, SendNow),
    /// The turn ends here.
    Stop(Turn),
}

impl<H: Host> Worker<H> {
    /// Sends the next pieces.
    pub(super) fn transmit(&mut self, token: Token) {
        if self.connections[token].flags.leaving && self.program_run(token).is_some() {
            // It goes on elsewhere, or here when it can't.
            return;
        }
        if self.cluster.is_some() && self.reply_moves(token) {
            return;
        }
        if self.cluster.is_some() {
            self.tell_when_tagged(token);
        }
        if !self.has_told(token) {
            return;
        }
        self.send_waiting(token);
        if self.connections[token].flags.sending || !self.begin_sending(token) || !self.hear_program(token) {
            return;
        }
        // What has just been heard from another server may have to be told first.
        if !self.has_told(token) {
            return;
        }
        if self.sends_whole(token) {
            return;
        }
        let mut sent_bytes = 0;
        let turn = self.send_on_account(token, &mut sent_bytes);
        if sent_bytes > 0 {
            self.connections[token].http.handle_transmit_progress(self.now);
        }
        match turn {
            Turn::Done if self.awaits_program(token, sent_bytes > 0) => {}
            Turn::Done => self.reply_sent(token, self.now),
            Turn::Continue => self.queue(Stage::Transmit, token),
            Turn::Waiting => {}
            Turn::Broken => self.cut(token),
        }
    }

    /// Gives the reactor a reply that was made in pieces so that it could go elsewhere, and has come back. Whether it's one.
    fn sends_whole(&mut self, token: Token) -> bool {
        let whole = self.connections[token].exchange.as_mut().and_then(|exchange| exchange.take_whole());
        let is_whole = whole.is_some();
        if let Some((head, body)) = whole {
            self.send(token, Persistence::Persistent, head, body);
        }
        is_whole
    }

    /// As [`Worker::send_pieces`], on account of the site if there is anything of a file's.
    fn send_on_account(&mut self, token: Token, sent_bytes: &mut usize) -> Turn {
        let connection = &self.connections[token];
        let is_files = |exchange: &Exchange<_>| exchange.pieces.iter().any(|piece| matches!(piece, Piece::File { .. }));
        if !connection.exchange.as_deref().is_some_and(is_files) {
            return self.send_pieces(token, None, sent_bytes);
        }
        let account = self.open_account(connection.site);
        let turn = self.send_pieces(token, account.payer, sent_bytes);
        self.close_account(account);
        turn
    }

    fn send_pieces(&mut self, token: Token, payer: Option<Payer>, sent_bytes: &mut usize) -> Turn {
        let connection = &mut self.connections[token];
        let turn_bytes_max = if self.is_shared { SHARED_TURN_BYTES_MAX } else { TURN_BYTES_MAX };
        let bytes_max = self.gates[connection.site as usize].bytes_max(turn_bytes_max, self.now);
        let Some(exchange) = connection.exchange.as_mut() else { return Turn::Waiting };
        let answer = exchange.answer.take();
        if let Some(Answer::Resident(Err(cause)) | Answer::Read(Err(cause))) = &answer {
            crate::log::warning(format_args!("a reply is cut: {cause}"));
            return Turn::Broken;
        }
        let mut tail = match answer {
            Some(Answer::Read(Ok(bytes))) => Some(bytes),
            _ => None,
        };
        let pieces_left = exchange.pieces.len().saturating_sub(TURN_PIECES_MAX);
        loop {
            let connection = &mut self.connections[token];
            let Some(exchange) = connection.exchange.as_mut() else { return Turn::Waiting };
            let is_last = exchange.pieces.len() == 1;
            let is_enough = *sent_bytes >= bytes_max || exchange.pieces.len() <= pieces_left;
            let Some(piece) = exchange.pieces.front() else { return Turn::Done };
            if is_enough {
                return Turn::Continue;
            }
            let bytes_left = (bytes_max - *sent_bytes) as u64;
            // What has been read is sent, whatever others have used of the site's quota meanwhile.
            let once_max = if tail.is_some() { u64::MAX } else { bytes_left };
            let step = match piece {
                Piece::Bytes { .. } if exchange.fits_one_send(once_max, COPIED_FILE_BYTES_MAX) => {
                    self.send_all(token, payer, &mut tail)
                }
                Piece::Bytes { .. } => self.send_bytes(token, is_last),
                Piece::File { .. } => self.send_file(token, payer, &mut tail, bytes_left),
            };
            let (operation, wanted, outcome) = match step {
                Step::Next => continue,
                Step::Stop(turn) => return turn,
                Step::Sent(operation, wanted, outcome) => (operation, wanted, outcome),
            };
            match outcome {
                SendNow::Sent(count) if count == wanted => {
                    self.meter.did(operation, count as u64);
                    *sent_bytes += count;
                }
                // The socket is full after a part, too: to hear that from another call costs as much as sending some.
                SendNow::Sent(_) | SendNow::Blocked => {
                    let count = if let SendNow::Sent(count) = outcome { count } else { 0 };
                    self.meter.did(operation, count as u64);
                    *sent_bytes += count;
                    let connection = &mut self.connections[token];
                    if let Some(exchange) = connection.exchange.as_mut() {
                        exchange.blocked_since.get_or_insert(self.now);
                    }
                    connection.flags.awaiting = true;
                    self.reactor.await_writable(connection.socket, token);
                    return Turn::Waiting;
                }
                SendNow::EndOfFile => {
                    self.metrics.torn_replies.increment();
                    return Turn::Broken;
                }
                SendNow::Failed(_) => return Turn::Broken,
            }
        }
    }

    /// Sends of bytes that lie here what the socket takes. The last of a reply whose file may have changed wait until that is known.
    fn send_bytes(&mut self, token: Token, is_last: bool) -> Step {
        if is_last && let Some(turn) = self.check(token) {
            return Step::Stop(turn);
        }
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return Step::Stop(Turn::Waiting) };
        let Some(Piece::Bytes { bytes, done }) = exchange.pieces.front_mut() else { return Step::Next };
        if *done == bytes.len() {
            exchange.pieces.pop_front();
            return Step::Next;
        }
        let wanted = bytes.len() - *done;
        let outcome = self.reactor.send_now(connection.socket, &bytes[*done..], !is_last);
        if let SendNow::Sent(count) = outcome {
            *done += count;
        }
        Step::Sent(Operation::Send, wanted, outcome)
    }

    /// Looks whether the file of a reply is still as it was opened, now that all that's left to be sent has been copied. How the turn ends if that can't be
    /// said yet, or it isn't.
    fn check(&mut self, token: Token) -> Option<Turn> {
        let connection = &mut self.connections[token];
        let exchange = connection.exchange.as_mut()?;
        let file = exchange.unchecked.as_ref()?;
        let slow = exchange.blocked_since.is_some_and(|since| self.now.since(since) > SLOW_CLIENT);
        if slow && self.reactor.unacknowledged_bytes(connection.socket) > 0 {
            self.sweep_at = self.sweep_at.min(self.now.after(super::timeouts::ACKNOWLEDGED_CHECK));
            exchange.awaits_acknowledgement = true;
            return Some(Turn::Waiting);
        }
        if !self.storage.unchanged(file) {
            self.metrics.torn_replies.increment();
            return Some(Turn::Broken);
        }
        exchange.unchecked = None;
        None
    }

    /// Sends all that is left of a reply, with what it has of a file copied. `content`: the first part of that, if it was read for this.
    fn send_all(&mut self, token: Token, payer: Option<Payer>, content: &mut Option<Bytes>) -> Step {
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return Step::Stop(Turn::Waiting) };
        let mut operation = Operation::Send;
        for piece in &mut exchange.pieces {
            let Piece::File { file, offset, end } = &*piece else { continue };
            let len = *end - *offset;
            let read = match content.take() {
                Some(bytes) => Outcome::Ready(Ok(bytes)),
                None => self.storage.read(ticket_of(token), payer, file, *offset, len as usize),
            };
            *piece = match read {
                Outcome::Ready(Ok(bytes)) if bytes.len() as u64 == len => Piece::Bytes { bytes, done: 0 },
                Outcome::Ready(_) => return Step::Stop(Turn::Broken),
                Outcome::Pending => return Step::Stop(Turn::Waiting),
            };
            operation = Operation::SendFile;
        }
        if let Some(turn) = self.check(token) {
            return Step::Stop(turn);
        }
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return Step::Stop(Turn::Waiting) };
        let parts: Vec<_> = exchange.pieces.iter().map(|piece| IoSlice::new(piece.unsent_bytes())).collect();
        let wanted = parts.iter().map(|part| part.len()).sum();
        let outcome = self.reactor.send_parts_now(connection.socket, &parts);
        let mut sent = if let SendNow::Sent(count) = outcome { count } else { 0 };
        while let Some(Piece::Bytes { bytes, done }) = exchange.pieces.front_mut() {
            let count = sent.min(bytes.len() - *done);
            (*done, sent) = (*done + count, sent - count);
            if *done < bytes.len() {
                break;
            }
            exchange.pieces.pop_front();
        }
        Step::Sent(operation, wanted, outcome)
    }

    /// Sends of a file what the socket takes, `bytes_max` at most, once that is in memory. `tail`: the end of the reply, if that was read for it.
    fn send_file(&mut self, token: Token, payer: Option<Payer>, tail: &mut Option<Bytes>, bytes_max: u64) -> Step {
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return Step::Stop(Turn::Waiting) };
        let is_last = exchange.pieces.len() == 1;
        let Some(piece) = exchange.pieces.front_mut() else { return Step::Next };
        let Piece::File { file, offset, end } = piece else { return Step::Next };
        let left = *end - *offset;
        if left == 0 {
            exchange.pieces.pop_front();
            return Step::Next;
        }
        if left <= TAIL_BYTES && is_last {
            // The last bytes of the reply: copied, so that what is sent after the check is what was there before it.
            let read = match tail.take() {
                Some(bytes) => Outcome::Ready(Ok(bytes)),
                None => self.storage.read(ticket_of(token), payer, file, *offset, left as usize),
            };
            return match read {
                Outcome::Ready(Ok(bytes)) if bytes.len() as u64 == left => {
                    *piece = Piece::Bytes { bytes, done: 0 };
                    Step::Next
                }
                Outcome::Ready(_) => Step::Stop(Turn::Broken),
                Outcome::Pending => Step::Stop(Turn::Waiting),
            };
        }
        let until_tail = if is_last { left - TAIL_BYTES } else { left };
        let len = until_tail.min(bytes_max);
        if *offset + len > exchange.resident_end {
            match self.storage.make_resident(ticket_of(token), payer, file, *offset, len) {
                Outcome::Ready(Ok(())) => exchange.resident_end = *offset + len,
                Outcome::Ready(Err(_)) => return Step::Stop(Turn::Broken),
                Outcome::Pending => {
                    self.meter.did(Operation::Pass, len);
                    // When the answer comes they are in memory: asking again could go on for ever under memory pressure.
                    exchange.resident_end = *offset + len;
                    return Step::Stop(Turn::Waiting);
                }
            }
        }
        let outcome = self.reactor.send_file_now(connection.socket, token, file, *offset, len as usize);
        if let SendNow::Sent(count) = outcome {
            *offset += count as u64;
        }
        Step::Sent(Operation::SendFile, len as usize, outcome)
    }

    /// There is room in the socket again.
    pub(super) fn writable(&mut self, token: Token) {
        let Some(connection) = self.connections.get(token) else { return self.stream_news(token, News::Writable) };
        connection.flags.awaiting = false;
        if connection.flags.closing {
            self.finish_close(token);
        } else if !self.passing_goes_on(token) && self.connections[token].exchange.is_some() {
            self.queue(Stage::Transmit, token);
        }
    }

    /// A reply that went out in one send is with the kernel, or the connection is broken.
    pub(super) fn sent(&mut self, token: Token, error: Option<std::io::Error>, waited: bool) {
        let Some(connection) = self.connections.get(token) else { return };
        connection.flags.sending = false;
        let is_of_earlier = std::mem::take(&mut connection.flags.coalesced);
        if connection.flags.closing {
            self.finish_close(token);
        } else if error.is_some() {
            self.cut(token);
        } else if is_of_earlier {
            let has_pieces = connection.exchange.as_ref().is_some_and(|exchange| !exchange.pieces.is_empty());
            if has_pieces || self.program_run(token).is_some() {
                self.queue(Stage::Transmit, token);
            }
        } else {
            let replied = connection.exchange.as_ref().map_or(self.now, |exchange| exchange.replied);
            self.reply_sent(token, if waited { self.now } else { replied });
        }
    }

    /// The whole reply is with the kernel, since `taken`: log it, and go on or close.
    pub(super) fn reply_sent(&mut self, token: Token, taken: Instant) {
        let connection = &mut self.connections[token];
        let Some(mut exchange) = connection.exchange.take() else { return };
        // Of the event in which this is, nobody else counts it.
        exchange.cost_ns += self.meter.so_far().ns;
        let after = connection.http.handle_reply_sent(self.now);
        let is_long = exchange.body_bytes >= FLIGHT_BYTES as u64;
        self.account(token, &exchange, taken, true);
        self.recycle(exchange);
        self.reply_is_on_its_way(token);
        let connection = &mut self.connections[token];
        match after {
            AfterReply::NextRequest | AfterReply::DrainBody => {
                if connection.flags.held && !connection.flags.ended {
                    if !connection.inbox.is_empty() {
                        self.ask_while_held(token);
                    }
                } else if !connection.inbox.is_empty() || connection.flags.ended {
                    connection.arrived_us = self.now_us;
                    self.queue(Stage::Receive, token);
                } else if !connection.flags.receiving {
                    self.arm_receive(token);
                }
                if self.passages.is_giving() && self.passes_after_reply(token) {
                    return;
                }
                if self.is_retiring() {
                    self.offer_to_heirs(token);
                } else if self.departures.are_any() {
                    self.offer_departure(token);
                }
                self.flow_is_between_requests(token);
            }
            AfterReply::Close { linger: true } => self.finish(token),
            AfterReply::Close { .. } if self.waits_for_acknowledgement(token) => self.finish(token),
            AfterReply::Close { .. } if is_long && self.has_said_more(token) => self.finish(token),
            AfterReply::Close { .. } => self.close(token),
        }
    }

    /// Whether a client has said more though its request was the last. With that unread, the kernel would reset the connection as it's closed, and drop
    /// what it has yet to send. All of a short reply is on its way.
    fn has_said_more(&mut self, token: Token) -> bool {
        let connection = &mut self.connections[token];
        self.reactor.has_unread(connection.socket) && connection.http.linger(self.now)
    }
}
