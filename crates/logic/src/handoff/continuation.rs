//! How a connection goes on whose server has died, from its last image, what that server told since, and what the home has seen of the
//! client. Decides which bytes are sent next, or that nobody can know; doesn't ask whether the content is still there: who thaws compares tags.
//!
//! The stream of a server's bytes is counted from the image's first unacknowledged one, the client's from its first unread
//! one, both in 64 bits.

use std::time::Duration;

use super::http::HttpState;
use super::image::Image;
use super::limits::RESEND_BYTES_MAX;
use super::progress::Progress;
use super::reply::{Piece, ReplyState};
use super::tcp::TcpState;
use crate::http::{EntityTag, Method, Request};

/// What the home has seen of the client: every packet of it came by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// Bytes acknowledged since the image. The steering program counts in 64 bits, as sequence numbers wrap after 4 GB.
    pub acknowledged_bytes: u64,
    /// How far past that the client's window has ever reached: so many more bytes may be with it.
    pub window_bytes: u32,
    /// Bytes that the client has sent, from the image's first unread one up to the end of the furthest.
    pub client_bytes: u64,
    /// It has ended its side behind them, of which the image doesn't know.
    pub has_ended: bool,
    /// The last of those bytes, as far as they've been kept: a request, mostly, or the beginning of one.
    pub client_said: Vec<u8>,
    /// So many more followed on them that weren't kept.
    pub unkept_bytes: u64,
    /// A timestamp later than any that the client has been shown.
    pub timestamp: Option<u32>,
    /// The client has answered a probe with no gap told (SACK): it has nothing beyond what it acknowledged. The probe was sent when the dead
    /// node could send no more, and late enough that nothing of what it sent was under way.
    pub is_exact: bool,
}

impl Witness {
    /// What was kept of the client's last so many bytes, from their first one on: nothing, if that wasn't.
    fn said_in_last(&self, bytes: u64) -> &[u8] {
        let first = (self.client_said.len() as u64 + self.unkept_bytes).checked_sub(bytes);
        let first = first.and_then(|first| usize::try_from(first).ok());
        first.and_then(|first| self.client_said.get(first..)).unwrap_or_default()
    }
}

/// Why a connection can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Impossible {
    /// The image is of a socket that went along.
    #[error("the image has no TCP part")]
    NoTcp,
    /// It had gone on to something that nobody told of.
    #[error("what the dead node sent last isn't known")]
    Unknown,
    /// The content has no strong tag.
    #[error("the reply's content has no strong entity tag")]
    NoStrongTag,
    /// A request that may have had an effect and hasn't been answered.
    #[error("the request in hand can't be repeated")]
    NotRepeatable,
    /// The client sent something that the dead node may have acknowledged.
    #[error("what the client sent last died with the node")]
    RequestLost,
    /// More may be under way than can be sent again.
    #[error("the client's window is larger than what can be sent again")]
    WindowTooLarge,
}

/// The image from which the connection goes on anywhere. `told`: what its node told of it since that image, the oldest first.
///
/// # Errors
/// Why it can't: it is to be cut.
pub fn continue_from(image: Image, told: Vec<Progress>, seen: &Witness) -> Result<Image, Impossible> {
    let tcp = image.tcp.ok_or(Impossible::NoTcp)?;
    let (first_unacknowledged, first_unread) = (tcp.unacknowledged(), tcp.first_unread());
    let progress = reply_in_hand(told, seen)?;
    let base = progress.as_ref().map_or(0, |progress| progress.server_bytes);
    let skipped = seen.acknowledged_bytes.checked_sub(base).ok_or(Impossible::Unknown)?;
    let mut known = Known::new(tcp, image.http, image.reply, progress);
    known.check_end(skipped, seen)?;

    // Who is to say more again ends its side again.
    if seen.has_ended && !known.http.connection.expects_again() {
        end_input(&mut known.tcp, &mut known.http, first_unread.wrapping_add(wrap(seen.client_bytes)));
    }
    let front = known.take_literal_front(skipped);
    let front_bytes = front.len() as u64;
    // What its client has none of goes out at once, and what it may have when that's asked for, or a timer says so.
    let queue = if seen.is_exact { &mut known.tcp.unsent } else { &mut known.tcp.sent };
    *queue = front;
    let mut resend_bytes = 0;
    if let Some(reply) = &mut known.reply {
        if reply.has_content() && !EntityTag::is_strong(&reply.etag) {
            return Err(Impossible::NoStrongTag);
        }
        if !seen.is_exact {
            resend_bytes = u64::from(seen.window_bytes).saturating_sub(front_bytes).min(reply.length());
        }
        if resend_bytes > RESEND_BYTES_MAX {
            return Err(Impossible::WindowTooLarge);
        }
        reply.resend_bytes = resend_bytes;
    }
    let acknowledged = wrap(seen.acknowledged_bytes);
    known.tcp.send_next = first_unacknowledged.wrapping_add(acknowledged).wrapping_add(wrap(front_bytes));
    known.tcp.window.snd_wnd = seen.window_bytes;
    known.tcp.window.max_window = known.tcp.window.max_window.max(seen.window_bytes);
    known.tcp.window.snd_wl1 = known.tcp.receive_next;
    known.tcp.window.rcv_wup = known.tcp.receive_next;
    if known.tcp.timestamp.is_some() {
        known.tcp.timestamp = seen.timestamp.or(known.tcp.timestamp);
    }
    Ok(Image { flow: image.flow, tcp: Some(known.tcp), congestion: None, http: known.http, reply: known.reply })
}

/// What was told of the reply that the client was getting, by what it has acknowledged; none if that's from before all that was told of. Who may have got
/// something of a later one can't be sent an earlier one's end.
fn reply_in_hand(mut told: Vec<Progress>, seen: &Witness) -> Result<Option<Progress>, Impossible> {
    let begun = told.partition_point(|progress| progress.server_bytes <= seen.acknowledged_bytes);
    let later = told.split_off(begun);
    if !later.is_empty() && !seen.is_exact {
        return Err(Impossible::Unknown);
    }
    let mut progress = told.pop();
    if let Some(progress) = &mut progress {
        progress.add_requests(&later, seen.has_ended);
    }
    Ok(progress)
}

/// Within it a client acknowledges what it has got: the longest that kernels delay that, and a round trip.
pub(super) const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(250);

/// Whether a request can be answered anew that a node was offered so long ago and, before it could send no more, never said to have taken: nothing may
/// have come of it, so it's one that can be repeated with none behind it, and the client has neither said more nor acknowledged any of a reply.
///
/// Weaker than what [`continue_from`] asks for: if all that such a client acknowledged was lost, a reply's beginning may be the dead node's and the
/// rest another's. They are alike where servers have the same files.
#[must_use]
pub fn is_untouched(image: &Image, seen: &Witness, offered: Duration) -> bool {
    let Some(tcp) = &image.tcp else { return false };
    let queued = (tcp.sent.len() + tcp.unsent.len()) as u64;
    let is_silent = seen.client_bytes == tcp.unread.len() as u64 && seen.acknowledged_bytes <= queued;
    // Of a connection that was to begin there nobody has read anything.
    let (request, is_one) = match &image.http.head[..] {
        [] => (&tcp.unread[..], is_one_head(&tcp.unread)),
        head => (head, tcp.unread.is_empty()),
    };
    let is_alone = image.reply.is_none() && image.http.input.is_empty() && is_one;
    offered >= ACKNOWLEDGED_WITHIN && is_silent && is_alone && is_repeatable(request)
}

/// The image from which such a connection goes on, with what has been seen since.
#[must_use]
pub fn as_it_was(mut image: Image, seen: &Witness) -> Image {
    if let Some(tcp) = &mut image.tcp {
        tcp.timestamp = seen.timestamp;
        if seen.has_ended && seen.client_bytes == tcp.unread.len() as u64 {
            let end = tcp.receive_next;
            end_input(tcp, &mut image.http, end);
        }
    }
    image
}

/// The client has ended its side at `end`, which the dead node may have acknowledged: no socket will hear of it again. A FIN has a sequence number and is
/// no byte that could be put into one, so that what nobody has read yet isn't left to the kernel either.
fn end_input(tcp: &mut TcpState, http: &mut HttpState, end: u32) {
    http.input.append(&mut tcp.unread);
    http.connection.end_input();
    tcp.receive_next = end.wrapping_add(1);
}

/// Whether nothing follows on a head.
fn is_one_head(bytes: &[u8]) -> bool {
    end_of_head(bytes) == Some(bytes.len())
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// The last state of which the home knows.
struct Known {
    tcp: TcpState,
    http: HttpState,
    /// What was being sent: the send queue's bytes, then the reply's pieces.
    pieces: Vec<Piece>,
    reply: Option<ReplyState>,
    client_bytes: u64,
}

impl Known {
    fn new(mut tcp: TcpState, http: HttpState, reply: Option<ReplyState>, progress: Option<Progress>) -> Known {
        let mut queued = std::mem::take(&mut tcp.sent);
        queued.append(&mut tcp.unsent);
        if let Some(progress) = progress {
            tcp.receive_next = tcp.first_unread().wrapping_add(wrap(progress.client_bytes));
            tcp.unread.clear();
            let pieces = progress.reply.as_ref().map(|reply| reply.pieces.clone()).unwrap_or_default();
            let client_bytes = progress.client_bytes;
            return Known { tcp, http: progress.http, pieces, reply: progress.reply, client_bytes };
        }
        let mut pieces = vec![Piece::Literal(queued)];
        pieces.extend(reply.iter().flat_map(|reply| reply.pieces.iter().cloned()));
        let client_bytes = tcp.unread.len() as u64;
        Known { tcp, http, pieces, reply, client_bytes }
    }

    /// Whether it's certain what comes after the acknowledged byte. `skipped`: bytes of the pieces that are acknowledged.
    fn check_end(&mut self, skipped: u64, seen: &Witness) -> Result<(), Impossible> {
        let length = self.pieces.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.length()));
        if skipped > length {
            return Err(Impossible::Unknown);
        }
        let is_complete = skipped == length;
        // Of the client's own bytes the home counts no more than sequence numbers tell.
        let lost_bytes = wrap(seen.client_bytes).wrapping_sub(wrap(self.client_bytes)).cast_signed();
        let lost_bytes = u64::try_from(lost_bytes).unwrap_or(0);
        if is_complete && lost_bytes > 0 {
            self.end_reply();
        }
        let is_awaited = self.reply.is_none() && !self.http.head.is_empty();
        if seen.is_exact && (is_awaited || is_complete && self.reply.is_none()) && self.lose_request(lost_bytes, seen) {
            return Ok(());
        }
        let is_at_rest = is_complete && self.reply.is_none() && self.http.head.is_empty();
        // Who may have been answered isn't answered anew.
        let may_be_answered = is_complete && !seen.is_exact;
        let kept_bytes = if may_be_answered { 0 } else { self.take_kept(lost_bytes, seen, is_at_rest) };
        let lost_bytes = lost_bytes - kept_bytes;
        if is_at_rest && lost_bytes > 0 && self.http.input.is_empty() && self.tcp.unread.is_empty() {
            self.http.connection.expect_again(seen.is_exact);
            return Ok(());
        }
        let has_more = lost_bytes > 0 || !self.http.input.is_empty() || !self.tcp.unread.is_empty();
        if (is_awaited || is_complete && has_more) && !seen.is_exact {
            // The dead node may have answered, and nobody knows with which bytes.
            return Err(Impossible::Unknown);
        }
        if lost_bytes > 0 {
            if is_complete || is_awaited {
                return Err(Impossible::RequestLost);
            }
            self.tcp.receive_next = self.tcp.receive_next.wrapping_add(wrap(lost_bytes));
        }
        if is_awaited && !is_repeatable(&self.http.head) {
            return Err(Impossible::NotRepeatable);
        }
        if has_more && (lost_bytes > 0 || !seen.is_exact || !self.may_repeat(&[])) {
            // What is under way, or in hand, can be brought to its end; what comes after it may have been answered, or had its effect.
            if is_complete && !is_awaited {
                return Err(Impossible::NotRepeatable);
            }
            self.tcp.unread.clear();
            self.http.input.clear();
            self.http.connection.close_after_reply();
        }
        Ok(())
    }

    /// What the dead node had acknowledged of the client's bytes, and was kept elsewhere, is read again: all that was lost, or nothing. Of a connection at
    /// rest, if it's a request that may be repeated. Returns how much it is.
    fn take_kept(&mut self, lost_bytes: u64, seen: &Witness, is_at_rest: bool) -> u64 {
        let kept = if seen.unkept_bytes == 0 { seen.said_in_last(lost_bytes) } else { &[] };
        if is_at_rest && !self.may_repeat(kept) {
            return 0;
        }
        self.tcp.unread.extend_from_slice(kept);
        self.tcp.receive_next = self.tcp.receive_next.wrapping_add(wrap(kept.len() as u64));
        kept.len() as u64
    }

    /// A request that the dead node may have done, and of which its client has nothing, isn't done again: its client is told. Whether the one in hand is
    /// such a one, or that which is first of what came since.
    fn lose_request(&mut self, lost_bytes: u64, seen: &Witness) -> bool {
        let came = [&self.http.head[..], &self.http.input, &self.tcp.unread, seen.said_in_last(lost_bytes)].concat();
        let method = came.split(|&byte| byte == b' ').next().unwrap_or_default();
        let has_effect = method.len() < came.len() && !matches!(method, b"GET" | b"HEAD" | b"OPTIONS");
        if !has_effect || !method.iter().all(u8::is_ascii_alphabetic) {
            return false;
        }
        // For the access log: nothing else of it matters any more.
        self.http.input = came.split(|&byte| byte == b'\r').next().unwrap_or_default().to_vec();
        self.http.head.clear();
        self.http.connection.lose_request();
        self.tcp.unread.clear();
        self.tcp.receive_next = self.tcp.receive_next.wrapping_add(wrap(lost_bytes));
        true
    }

    /// Whether what was asked for behind the request in hand may be answered anew, with these bytes at its end.
    fn may_repeat(&self, kept: &[u8]) -> bool {
        are_repeatable(&[&self.http.input[..], &self.tcp.unread, kept].concat())
    }

    /// A reply that the client has acknowledged to its end leaves the connection at rest, unless it was the last or its request isn't all here.
    fn end_reply(&mut self) {
        if self.reply.is_some() && self.http.connection.end_reply() {
            self.reply = None;
            self.pieces.clear();
            self.http.head.clear();
        }
    }

    /// Drops what is acknowledged; then takes the literal bytes in front, which go into the send queue. The rest stays in the reply.
    fn take_literal_front(&mut self, skipped: u64) -> Vec<u8> {
        let mut left = skipped;
        let mut front = Vec::new();
        let mut rest = Vec::new();
        for piece in self.pieces.drain(..) {
            let skip = left.min(piece.length());
            left -= skip;
            match piece.without_first(skip) {
                piece if piece.length() == 0 => {}
                Piece::Literal(mut bytes) if rest.is_empty() => front.append(&mut bytes),
                piece => rest.push(piece),
            }
        }
        if let Some(reply) = &mut self.reply {
            reply.pieces = rest;
        }
        front
    }
}

/// Whether all of these requests may be answered anew. One with a body isn't told from what follows it, and counts as none of them.
fn are_repeatable(mut requests: &[u8]) -> bool {
    while !requests.is_empty() {
        let is_safe = [&b"GET "[..], b"HEAD ", b"OPTIONS "].iter().any(|beginning| requests.starts_with(beginning));
        if !is_safe {
            return false;
        }
        requests = end_of_head(requests).map_or(&[], |end| &requests[end..]);
    }
    true
}

/// Whether a request may be answered anew (RFC 9110 section 9.2.2).
fn is_repeatable(head: &[u8]) -> bool {
    let is_safe = |request: Request<'_>| matches!(request.method, Method::Get | Method::Head | Method::Options);
    Request::read_again(head).is_some_and(is_safe)
}

/// Sequence numbers are modulo 2^32.
fn wrap(bytes: u64) -> u32 {
    let [low, middle, high, highest, ..] = bytes.to_le_bytes();
    u32::from_le_bytes([low, middle, high, highest])
}

#[cfg(test)]
mod tests;
