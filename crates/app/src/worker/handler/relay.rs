//! Between a client and a program: the request's content to the one, the reply to the other. Neither is read from faster than the other takes.

use std::io::{IoSlice, Write};

use bytes::Bytes;
use leat_host::reactor::{PARTS_MAX, Reactor, SendNow, Token};
use leat_logic::cgi::{BadReply, ReplyHead, ReplyStep};
use leat_logic::fastcgi::{Encoder, Step};
use leat_logic::http::client::Whole;
use leat_logic::http::{self, HeadWriter, Method, Progress, Request, Status, Version};
use leat_logic::schedule::Operation;

use super::super::cluster::TOLD_AS_IT_STANDS_BYTES_MAX;
use super::super::exchange::Piece;
use super::super::{Host, Stage, Worker};
use super::Run;
use super::program_log::Begun;
use super::program_run::{Body, Framing, ProgramRun, Talk};
use super::proxy::{Passing, Stop};

/// Bytes of a reply that wait for the client before the program is held up.
const PENDING_BYTES_MAX: u64 = 64 * 1024;
/// Parts of a request's content that are received beyond the first in one turn, of 128 KB at most.
const CONTENT_PARTS_MAX: u32 = 2;
/// Parts of a reply's content that are sent together: chunks, as they came.
const CONTENT_SLICES_MAX: usize = PARTS_MAX - 2;
/// Less is copied behind its head: one piece to be sent.
const SENT_THROUGH_BYTES_MIN: usize = 4096;

/// What has come of a program's output.
pub(super) enum Heard {
    /// More is to come.
    More,
    /// It has said everything.
    All,
    /// The connection was of no use any more when the request was given to it.
    Stale,
    /// The server can't be reached, or has ended before it said anything.
    Lost(Stop),
}

/// How far another server's reply has been read.
enum Said {
    /// As far as it has come.
    Some,
    /// To its end.
    All,
    /// It's none: with these field lines, HTTP is over.
    Switched(Vec<u8>),
}

/// Why a program's reply can't go on.
#[derive(Debug, thiserror::Error)]
enum Bad {
    #[error("{0}")]
    Reply(#[from] BadReply),
    #[error("{0}")]
    Http(#[from] http::client::BadReply),
    #[error("{0}")]
    Record(#[from] leat_logic::fastcgi::BadRecord),
    #[error("it has no room for the request, or doesn't know its role")]
    Refused,
    #[error("it ended in the middle of its reply")]
    Ended,
    #[error("it doesn't have the rest of a reply that another server has begun")]
    Another,
    #[error("signal {0} ended it in the middle of its reply, or after it")]
    Killed(i32),
}

impl Bad {
    /// What it said is wrong, rather than how it ended afterwards.
    fn is_of_reply(&self) -> bool {
        !matches!(self, Bad::Killed(_))
    }
}

impl<H: Host> Worker<H> {
    /// Moves what can be moved between a client and its program, in both directions; nothing for a request without a program. Whether what
    /// is to be sent can be sent now.
    pub(in crate::worker) fn hear_program(&mut self, token: Token) -> bool {
        if self.program_run(token).is_none() {
            return true;
        }
        self.give_request(token);
        self.gather_content(token);
        self.relay_content(token);
        let Some(connection) = self.connections.get(token) else { return false };
        // A site that holds too much memory reads on where a client has taken all that there was.
        let is_full = self.gates[connection.site as usize].is_full();
        let has_begun = connection.exchange.as_ref().is_some_and(|exchange| exchange.status != 0);
        if let Some(stream) = connection.program_stream().and_then(|stream| self.streams.get(stream)) {
            stream.narrow(is_full && has_begun);
        }
        let pending_bytes_max = if is_full { 1 } else { PENDING_BYTES_MAX };
        let is_held_up = |exchange: &super::super::exchange::Exchange<_>| {
            // Before a reply, pieces are leave to send content, which a reply or an error can only follow.
            let has_leave_to_send = exchange.status == 0 && !exchange.pieces.is_empty();
            has_leave_to_send || exchange.pieces.iter().map(Piece::unsent).sum::<u64>() >= pending_bytes_max
        };
        let Some(exchange) = connection.exchange.as_mut() else { return false };
        if !is_held_up(exchange) {
            let Some(Run::Program(run)) = exchange.run.take() else { return false };
            if !self.hear_run(token, run) {
                return false;
            }
        }
        // Writable is waited for once.
        !self.connections[token].flags.awaiting
    }

    /// Whether a program still has something to say for a reply of which everything has been sent so far, some of it in this turn if `has_sent`.
    pub(in crate::worker) fn awaits_program(&mut self, token: Token, has_sent: bool) -> bool {
        let Some(run) = self.program_run(token) else { return false };
        let is_given_up = run.failed.is_some() || run.passing.stop.is_some();
        let stream = run.stream();
        let stream = stream.and_then(|stream| self.streams.get(stream));
        // Nobody has looked while there was enough to be sent first. What lies there though nothing was is the beginning of something: more has to come.
        let has_more = is_given_up || stream.as_ref().is_some_and(|it| !it.bytes().is_empty() || it.has_ended());
        let is_behind = stream.is_some_and(|stream| stream.is_behind());
        let had_leave_to_send =
            has_sent && self.connections[token].exchange.as_ref().is_some_and(|exchange| exchange.status == 0);
        if has_sent && has_more || is_behind || had_leave_to_send {
            self.queue(Stage::Transmit, token);
        }
        true
    }

    /// Whether the reply goes on, or is complete.
    fn hear_run(&mut self, token: Token, mut run: Box<ProgramRun>) -> bool {
        if let Some(status) = run.failed {
            let is_told = run.is_told();
            self.abort_run(token, Some(Run::Program(run)));
            if !is_told {
                self.fail_run(token, status);
            }
            return is_told;
        }
        let had_begun = self.connections[token].exchange.as_ref().is_some_and(|exchange| exchange.status != 0);
        let mut out = Vec::new();
        if let Some(stream) = run.stream().and_then(|stream| self.streams.get(stream)) {
            stream.catch_up(&mut self.reactor);
        }
        let heard = self.hear(token, &mut run, &mut out);
        if !matches!(heard, Ok(Heard::More)) {
            run.end_errors(self.second);
        }
        if let Err(bad) = &heard
            && bad.is_of_reply()
            && !(had_begun || run.has_sent || run.is_told() || self.is_telling(token))
        {
            // All of it is still here, and no home has been told of it: the client hears what has become of its request.
            out.clear();
            self.take_back_reply(token);
        }
        if self.cluster.is_some() {
            self.note_said(token, &mut run, &out);
        }
        self.send_on(token, out);
        match heard {
            Ok(Heard::More) => {
                if let Some(stream) = run.stream().and_then(|stream| self.streams.get(stream)) {
                    stream.ask(&mut self.reactor);
                }
                if let Some(exchange) = self.connections[token].exchange.as_mut() {
                    exchange.run = Some(Run::Program(run));
                }
                true
            }
            Ok(Heard::All) => {
                self.release_run(token, &run, true);
                if let Some(said) = run.said.filter(|_| self.cluster.is_some()) {
                    self.tell_of_made_reply(token, &said);
                }
                true
            }
            Ok(Heard::Stale) => {
                self.release_run(token, &run, false);
                self.begin_run_with(token, &run.handler, run.named, Passing::over_a_new_connection());
                self.program_run(token).is_some()
            }
            Ok(Heard::Lost(stop)) => {
                self.release_run(token, &run, false);
                self.pass_on_again(token, run, stop);
                self.program_run(token).is_some()
            }
            Err(bad) => {
                self.log_bad_reply(token, &run, &bad);
                self.release_run(token, &run, false);
                if run.is_told() {
                    // A responder that fails after its reply has been told takes nothing of it back.
                    return true;
                }
                let is_refused = matches!(bad, Bad::Refused);
                self.fail_run(token, if is_refused { Status::SERVICE_UNAVAILABLE } else { Status::BAD_GATEWAY });
                false
            }
        }
    }

    /// Keeps what the client is sent, as long as that is no more than its home is told of.
    fn note_said(&mut self, token: Token, run: &mut ProgramRun, out: &[u8]) {
        let Some(mut said) = run.said.take() else { return };
        let is_little = !run.has_sent && said.len() + out.len() <= TOLD_AS_IT_STANDS_BYTES_MAX;
        if is_little && self.tells_all(token) {
            said.extend_from_slice(out);
            run.said = Some(said);
        }
    }

    /// Nothing of a reply has been sent: there was none.
    fn take_back_reply(&mut self, token: Token) {
        if let Some(exchange) = self.connections[token].exchange.as_mut() {
            (exchange.status, exchange.body_bytes) = (0, 0);
        }
    }

    pub(super) fn send_on(&mut self, token: Token, out: Vec<u8>) {
        if let Some(exchange) = self.connections[token].exchange.as_mut()
            && !out.is_empty()
        {
            exchange.pieces.push_back(Piece::Bytes { bytes: Bytes::from(out), done: 0 });
        }
    }

    /// Takes in what the program has said, and writes what the client is to get.
    fn hear(&mut self, token: Token, run: &mut ProgramRun, out: &mut Vec<u8>) -> Result<Heard, Bad> {
        if let Some(stop) = run.passing.stop {
            // Nobody owes anybody a reply in a tunnel.
            return Ok(if run.is_tunnel() { Heard::All } else { Heard::Lost(stop) });
        }
        let is_told = run.is_told();
        let Some(stream) = run.stream().and_then(|stream| self.streams.get(stream)) else { return Ok(Heard::More) };
        if !stream.bytes().is_empty() && !is_told {
            run.note_heard(self.now, &self.programs);
        }
        let mut is_all = false;
        match &mut run.talk {
            Talk::Waiting => {}
            Talk::Http { .. } => return self.hear_upstream(token, run, out),
            &mut Talk::Tunnel { stream } => return Ok(self.hear_tunnel(token, stream, out)),
            Talk::Cgi { .. } => {
                let count = stream.bytes().len();
                run.output.extend_from_slice(stream.bytes());
                stream.take(&mut self.reactor, count);
                is_all = stream.has_ended();
            }
            Talk::FastCgi { conversation, reused, .. } => {
                loop {
                    let (consumed, step) = conversation.handle_input(stream.bytes())?;
                    let needs_input = step == Step::NeedInput;
                    match step {
                        Step::NeedInput => {}
                        Step::Output(bytes) => run.output.extend_from_slice(bytes),
                        Step::Error(bytes) => log_errors(&run.handler, &mut run.begun, self.second, bytes),
                        Step::End { is_complete: false } => return Err(Bad::Refused),
                        Step::End { is_complete: true } => is_all = true,
                    }
                    *reused &= consumed == 0;
                    stream.take(&mut self.reactor, consumed);
                    if needs_input {
                        break;
                    }
                }
                if !is_all && stream.has_ended() {
                    return if *reused { Ok(Heard::Stale) } else { Err(Bad::Ended) };
                }
            }
        }
        self.read_reply(token, run, out)?;
        let is_told = run.is_told();
        if is_told && matches!(run.talk, Talk::Cgi { .. }) {
            return Ok(Heard::All);
        }
        if !is_all {
            return Ok(Heard::More);
        }
        if !is_told {
            run.reader.handle_end()?;
        }
        if let Talk::Cgi { program, .. } = run.talk {
            // It hasn't said how much there was to come: how it ends says whether that was all.
            match run.ended.map(|ended| ended.signal) {
                Some(Some(signal)) => return Err(Bad::Killed(signal)),
                None if self.programs.await_end(program) => return Ok(Heard::More),
                Some(None) | None => {}
            }
        }
        if run.framing == Some(Framing::Chunked) {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        Ok(Heard::All)
    }

    fn read_reply(&mut self, token: Token, run: &mut ProgramRun, out: &mut Vec<u8>) -> Result<(), Bad> {
        let mut done = 0;
        loop {
            let (consumed, step) = run.reader.handle_input(&run.output[done..])?;
            done += consumed;
            match step {
                ReplyStep::NeedInput => break,
                ReplyStep::Head(ReplyHead { status, lines, length }) => {
                    run.framing = Some(self.begin_reply(token, status, &lines, length, out));
                }
                ReplyStep::Content(content) => self.count_content(token, push_content(content, run.framing, out)),
            }
        }
        run.output.drain(..done);
        Ok(())
    }

    /// Takes in what another server has said. What comes before the reply's end is never more than the reply.
    fn hear_upstream(&mut self, token: Token, run: &mut ProgramRun, out: &mut Vec<u8>) -> Result<Heard, Bad> {
        let Talk::Http { stream: stream_token, .. } = run.talk else { return Ok(Heard::More) };
        let Some(stream) = self.streams.get(stream_token).filter(|stream| !stream.is_connecting()) else {
            return Ok(Heard::More);
        };
        let (has_ended, is_broken) = (stream.has_ended(), stream.is_broken());
        let Some(lent) = self.streams.lend(stream_token) else { return Ok(Heard::More) };
        run.passing.has_spoken |= !lent.bytes().is_empty();
        let (count, said) = self.read_upstream(token, run, lent.bytes(), out)?;
        self.streams.take_back(&mut self.reactor, &mut self.rooms, stream_token, lent, count);
        match said {
            Said::Switched(lines) => {
                self.begin_tunnel(token, run, &lines, out);
                return self.hear(token, run, out);
            }
            Said::Some if !has_ended => return Ok(Heard::More),
            Said::Some if !run.passing.has_spoken => {
                return Ok(Heard::Lost(if run.passing.is_given { Stop::Ended } else { Stop::Refused }));
            }
            Said::Some if run.whole.is_some() => return Ok(Heard::Lost(Stop::Midway)),
            Said::Some if is_broken => return Err(Bad::Ended),
            Said::Some => {
                if let Talk::Http { reader, .. } = &run.talk {
                    reader.handle_end()?;
                }
                if run.framing == Some(Framing::Chunked) {
                    out.extend_from_slice(b"0\r\n\r\n");
                }
            }
            Said::All => {}
        }
        Ok(Heard::All)
    }

    /// Reads a reply as far as it has come, and sends its content on; how many bytes that were.
    fn read_upstream(
        &mut self,
        token: Token,
        run: &mut ProgramRun,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Said), Bad> {
        let mut content = Vec::new();
        let read = self.read_reply_parts(token, run, bytes, &mut content, out);
        let is_all = matches!(read, Ok((_, Said::All)));
        if read.is_ok() {
            run.has_sent |= self.send_content(token, run.framing, &content, is_all, out);
        }
        read
    }

    fn read_reply_parts<'b>(
        &mut self,
        token: Token,
        run: &mut ProgramRun,
        bytes: &'b [u8],
        parts: &mut Vec<&'b [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Said), Bad> {
        let mut done = 0;
        loop {
            let Talk::Http { reader, .. } = &mut run.talk else { return Ok((done, Said::Some)) };
            let (consumed, step) = reader.handle_input(&bytes[done..])?;
            done += consumed;
            if matches!(step, http::client::ReplyStep::Interim(_) | http::client::ReplyStep::Head(_)) {
                self.upstream_answered(run);
            }
            match step {
                http::client::ReplyStep::NeedInput if consumed == 0 => return Ok((done, Said::Some)),
                http::client::ReplyStep::NeedInput => {}
                // Another server has begun the reply: the client is in the middle of it.
                http::client::ReplyStep::Interim(_) if run.framing.is_some() => {}
                http::client::ReplyStep::Head(head) if run.framing.is_some() => {
                    let first = self.connections[token].exchange.as_ref().map_or(0, |exchange| exchange.body_bytes);
                    if !run.whole.as_ref().is_some_and(|whole| whole.goes_on_with(first, &head)) {
                        run.whole = None;
                        return Err(Bad::Another);
                    }
                }
                http::client::ReplyStep::Interim(head) => self.pass_interim(token, &head, out),
                http::client::ReplyStep::Head(head) if head.status == Status::SWITCHING_PROTOCOLS => {
                    return Ok((done, Said::Switched(head.lines)));
                }
                http::client::ReplyStep::Head(http::client::ReplyHead { status, lines, length }) => {
                    let framing = self.begin_reply(token, status, &lines, length, out);
                    run.framing = Some(framing);
                    run.whole = Whole::of(status, &lines, length).filter(|_| framing == Framing::Plain);
                }
                http::client::ReplyStep::Content(content) => {
                    parts.push(content);
                    if parts.len() == CONTENT_SLICES_MAX {
                        run.has_sent |= self.send_content(token, run.framing, parts, false, out);
                        parts.clear();
                    }
                }
                http::client::ReplyStep::End => return Ok((done, Said::All)),
            }
        }
    }

    /// Sends content of a reply, its last if `is_all`, behind what is in `out`: in one chunk, whatever chunks it came in. Whether some went out at once.
    fn send_content(
        &mut self,
        token: Token,
        framing: Option<Framing>,
        content: &[&[u8]],
        is_all: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let count: usize = content.iter().map(|part| part.len()).sum();
        let has_sent = match framing {
            Some(Framing::Dropped) | None => return false,
            Some(Framing::Plain) => self.send_through(token, content, b"", out),
            Some(Framing::Chunked) => {
                if count > 0 {
                    begin_chunk(count, out);
                }
                let end: &[u8] = match (count > 0, is_all) {
                    (true, false) => b"\r\n",
                    (true, true) => b"\r\n0\r\n\r\n",
                    (false, true) => b"0\r\n\r\n",
                    (false, false) => b"",
                };
                self.send_through(token, content, end, out)
            }
        };
        self.count_content(token, count as u64);
        has_sent
    }

    /// Sends `content`, and `end` behind it, after what is in `out`, from where it lies: what is copied before it's sent costs half as much again. What
    /// can't be sent now is put in `out`. Whether some was sent.
    fn send_through(&mut self, token: Token, content: &[&[u8]], end: &[u8], out: &mut Vec<u8>) -> bool {
        let bytes = out.len() + content.iter().map(|part| part.len()).sum::<usize>() + end.len();
        let mut done = 0;
        if bytes >= SENT_THROUGH_BYTES_MIN {
            let parts: Vec<_> = [&out[..]].iter().chain(content).chain(&[end]).map(|part| IoSlice::new(part)).collect();
            done = self.send_at_once(token, &parts);
        }
        let has_sent = done > 0;
        let of_out = done.min(out.len());
        out.drain(..of_out);
        done -= of_out;
        for part in content.iter().chain(&[end]) {
            let of_part = done.min(part.len());
            out.extend_from_slice(&part[of_part..]);
            done -= of_part;
        }
        has_sent
    }

    /// Sends what the client is to have next from where it lies, unless something else has to go first. How many bytes went.
    pub(super) fn send_at_once(&mut self, token: Token, parts: &[IoSlice<'_>]) -> usize {
        let is_held_up = self.cluster.is_some() && self.is_telling(token);
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let connection = &mut self.connections[token];
        let most = self.gates[connection.site as usize].bytes_max(usize::MAX, self.now);
        let Some(exchange) = connection.exchange.as_mut() else { return 0 };
        let flags = &mut connection.flags;
        if !exchange.pieces.is_empty() || flags.awaiting || flags.sending || is_held_up || bytes > most {
            return 0;
        }
        let outcome = match parts {
            [part] => self.reactor.send_now(connection.socket, part, false),
            parts => self.reactor.send_parts_now(connection.socket, parts),
        };
        let done = if let SendNow::Sent(count) = outcome { count } else { 0 };
        self.meter.did(Operation::Send, done as u64);
        if done > 0 {
            connection.http.handle_transmit_progress(self.now);
        }
        if done < bytes && matches!(outcome, SendNow::Sent(_) | SendNow::Blocked) {
            exchange.blocked_since.get_or_insert(self.now);
            flags.awaiting = true;
            self.reactor.await_writable(connection.socket, token);
        }
        done
    }

    pub(super) fn count_content(&mut self, token: Token, count: u64) {
        if let Some(exchange) = self.connections[token].exchange.as_mut() {
            exchange.body_bytes += count;
        }
    }

    fn log_bad_reply(&mut self, token: Token, run: &ProgramRun, bad: &Bad) {
        if let Talk::Http { place, .. } = run.talk {
            self.upstream_failed(token, run, place, format_args!("the reply is wrong: {bad}"));
        } else {
            crate::log::warning(format_args!("{}: the program's reply is wrong: {bad}", run.handler.name));
        }
    }

    /// Writes an interim reply, which a client of HTTP/1.0 wouldn't understand. With nothing before the reply's own head but that, it's sent as leave to
    /// send content is.
    fn pass_interim(&self, token: Token, head: &http::client::ReplyHead, out: &mut Vec<u8>) {
        let exchange = self.connections[token].exchange.as_ref();
        let request = exchange.and_then(|exchange| Request::read_again(&exchange.head));
        if request.is_some_and(|request| request.version == Version::Http11) {
            http::write_interim(out, head.status, &head.lines);
        }
    }

    /// Writes a reply's head; decides how its content is delimited.
    fn begin_reply(
        &mut self,
        token: Token,
        status: Status,
        lines: &[u8],
        length: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Framing {
        let is_last = self.ends_after_reply(token);
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return Framing::Dropped };
        let understands_chunks =
            || Request::read_again(&exchange.head).is_some_and(|request| request.version == Version::Http11);
        let framing = match length {
            // RFC 9110 section 15.3.6: nothing follows this one, and it says so.
            _ if status == Status::RESET_CONTENT => Framing::Dropped,
            _ if exchange.method == Method::Head || status.has_no_content() => Framing::Dropped,
            Some(_) => Framing::Plain,
            None if understands_chunks() => Framing::Chunked,
            None => Framing::Plain,
        };
        let ends_by_close = framing == Framing::Plain && length.is_none();
        let limits = exchange.site.as_ref().map_or(&self.limits, |site| &site.limits);
        let persistence = connection.http.reply(self.now, limits, is_last || ends_by_close);
        exchange.status = status.code();
        exchange.replied = self.now;
        let writer = HeadWriter::start(out, status, &self.date).persistence(persistence);
        let length = if status == Status::RESET_CONTENT { Some(0) } else { length };
        if let Some(length) = length.filter(|_| !status.has_no_content()) {
            let _ = writer.content_length(length);
        }
        if framing == Framing::Chunked {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        out.extend_from_slice(lines);
        out.extend_from_slice(b"\r\n");
        if exchange.is_fetched {
            self.tell_of_fetched_reply(token, (out, lines), length);
        }
        framing
    }

    /// How many bytes of the request's content the program can be given now; none before it has the request, or if it wants none.
    pub(super) fn content_room(&mut self, token: Token) -> usize {
        let Some(run) = self.program_run(token) else { return 0 };
        let is_untold = matches!(run.talk, Talk::Http { .. }) && !run.passing.is_given;
        let is_wanted = !matches!(run.body, Body::Ended | Body::Gathering);
        let stream = run.stream().filter(|_| is_wanted && !is_untold);
        let stream = stream.and_then(|stream| self.streams.get(stream));
        // Who can't be reached is to have had nothing of it.
        let Some(stream) = stream.filter(|stream| !stream.is_connecting()) else { return 0 };
        if stream.room() == 0 {
            stream.flush(&mut self.reactor);
        }
        stream.room()
    }

    /// The request's content to the program, as far as it has come and has a place.
    fn relay_content(&mut self, token: Token) {
        let mut parts_left = CONTENT_PARTS_MAX;
        loop {
            let room = self.content_room(token);
            let Some(connection) = self.connections.get(token).filter(|_| room > 0) else { return };
            let Some(exchange) = connection.exchange.as_mut() else { return };
            let Some(Run::Program(run)) = exchange.run.as_mut() else { return };
            if run.body == Body::Tunnel {
                return self.relay_to_tunnel(token, room);
            }
            let Some(stream) = run.stream().and_then(|stream| self.streams.get(stream)) else { return };
            if run.body == Body::Expected && connection.flags.behind && parts_left > 0 {
                parts_left -= 1;
                self.receive_content(token);
                continue;
            }
            let (mut consumed, mut is_all) = (0, false);
            if let (Body::Gathered, Some(gathered)) = (run.body, &mut run.gathered) {
                let content;
                (content, is_all) = gathered.next(room);
                encode_content(&run.talk, run.passing.framing, content, stream.outbox());
                stream.flush(&mut self.reactor);
            } else {
                let limits = &self.sites[connection.site as usize].limits;
                connection.inbox.keep(&mut self.reactor);
                let kept = connection.inbox.kept();
                let input = &kept[..kept.len().min(room)];
                let is_part = input.len() < kept.len();
                let progress;
                (consumed, progress) = connection.http.handle_input(self.now, input, limits);
                match progress {
                    Progress::Body(content) => match (run.talk, run.passing.framing) {
                        (Talk::Http { .. }, Framing::Plain) => stream.say(&mut self.reactor, content),
                        (talk, framing) => encode_content(&talk, framing, content, stream.outbox()),
                    },
                    Progress::BodyEnd => is_all = true,
                    Progress::Reject(rejection) => {
                        connection.inbox.clear(&mut self.reactor);
                        if exchange.status != 0 {
                            self.cut(token);
                        } else {
                            self.refuse_content(token, rejection);
                        }
                        return;
                    }
                    // Framing takes no room: nobody else may ever ask for the rest.
                    Progress::NeedInput if is_part => {}
                    Progress::NeedInput | Progress::Request(_) | Progress::Ended => {
                        connection.inbox.consume_kept(consumed, &mut self.rooms);
                        stream.flush(&mut self.reactor);
                        if connection.flags.behind && parts_left > 0 {
                            continue;
                        }
                        self.receive_more_content(token);
                        return;
                    }
                }
            }
            run.note_heard(self.now, &self.programs);
            connection.inbox.consume_kept(consumed, &mut self.rooms);
            if is_all {
                return self.end_content(token);
            }
        }
    }

    /// The program has been given all of the request's content.
    fn end_content(&mut self, token: Token) {
        let Some(run) = self.program_run(token) else { return };
        (run.body, run.gathered) = (Body::Ended, None);
        let (talk, framing, stream) = (run.talk, run.passing.framing, run.stream());
        if let Some(stream) = stream.and_then(|stream| self.streams.get(stream)) {
            encode_end(&talk, framing, stream.outbox());
            match talk {
                Talk::Cgi { .. } => stream.finish(&mut self.reactor),
                _ => stream.flush(&mut self.reactor),
            }
        }
        if self.connections[token].inbox.is_empty() {
            // Hears of a client that goes away.
            self.arm_receive(token);
        }
    }
}

/// Content of a reply as the client is to get it. Returns how much of it is content to the client.
fn push_content(content: &[u8], framing: Option<Framing>, out: &mut Vec<u8>) -> u64 {
    match framing {
        Some(Framing::Plain) => out.extend_from_slice(content),
        Some(Framing::Chunked) => push_chunk(content, out),
        Some(Framing::Dropped) | None => return 0,
    }
    content.len() as u64
}

fn begin_chunk(bytes: usize, out: &mut Vec<u8>) {
    // Writing to a vector can't fail.
    let _ = write!(out, "{bytes:x}\r\n");
}

fn push_chunk(content: &[u8], out: &mut Vec<u8>) {
    begin_chunk(content.len(), out);
    out.extend_from_slice(content);
    out.extend_from_slice(b"\r\n");
}

/// Content of a request as its program or server is to get it.
fn encode_content(talk: &Talk, framing: Framing, content: &[u8], out: &mut Vec<u8>) {
    match talk {
        Talk::FastCgi { .. } => Encoder::input(content, out),
        Talk::Http { .. } if framing == Framing::Chunked => push_chunk(content, out),
        Talk::Http { .. } | Talk::Tunnel { .. } | Talk::Cgi { .. } | Talk::Waiting => out.extend_from_slice(content),
    }
}

fn encode_end(talk: &Talk, framing: Framing, out: &mut Vec<u8>) {
    match talk {
        Talk::FastCgi { .. } => Encoder::end_of_input(out),
        Talk::Http { .. } if framing == Framing::Chunked => out.extend_from_slice(b"0\r\n\r\n"),
        Talk::Http { .. } | Talk::Tunnel { .. } | Talk::Cgi { .. } | Talk::Waiting => {}
    }
}

/// What a responder says for the log.
fn log_errors(handler: &super::Handler, begun: &mut Begun, second: i64, bytes: &[u8]) {
    if let Some(pool) = handler.pool() {
        pool.with_log(|log| {
            log.add(begun, second, bytes, |line| crate::log::warning(format_args!("{}: {line}", handler.name)));
        });
    }
}
