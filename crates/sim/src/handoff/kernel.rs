//! A pretended kernel's sockets: what a freeze reads out of them, what a thaw makes of that.

use std::time::Duration;

use bytes::Bytes;
use leat_logic::handoff::{FlowId, Generation, HttpState, Image, Piece, Progress, ReplyState, TcpState, TcpWindow};
use leat_logic::http::ConnectionState;

use super::client::{Client, HEAD_BYTES, Packet, REQUEST_BYTES, WINDOW_BYTES, content_byte};

/// The flag that `ConnectionState::close_after_reply` sets.
const MUST_CLOSE: u8 = 8;

const SEGMENT_BYTES: u64 = 600;

/// One connection as one kernel sees it, together with its application's part. Positions count from the stream's beginning.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    pub(super) flow: FlowId,
    pub(super) generation: Generation,
    pub(super) is_frozen: bool,
    /// The first byte not acknowledged, what follows it, and how far that has been sent.
    pub(super) unacknowledged: u64,
    queue: Vec<u8>,
    pub(super) sent: u64,
    /// Bytes received.
    pub(super) received: u64,
    /// Requests whose replies have begun.
    pub(super) begun: u64,
    /// The client wants nothing more.
    pub(super) is_ended: bool,
    /// The reply under way is the last: requests behind it died with a node.
    pub(super) is_last: bool,
    /// The application has asked where its next request belongs.
    pub(super) is_asking: bool,
    /// What was answered: the request is served here.
    pub(super) is_told: bool,
    /// A freeze is under way: the application lets go.
    pub(super) is_freezing: bool,
    /// Its process hasn't accepted it.
    pub(super) is_unaccepted: bool,
    /// Its client may have asked a server that died: since then it's awaited again.
    pub(super) asked_before_ns: Option<u64>,
    /// The same when it came here.
    begun_before: u64,
    /// Where the image was taken from which the home would recover.
    base: (u64, u64),
    /// A new socket doesn't know the path: it sends little until acknowledgements come.
    congestion_bytes: u64,
    /// The version of the content of the reply under way.
    version: u8,
    pub(super) last_heard_ns: u64,
}

impl Socket {
    /// A connection that has just been accepted.
    pub(super) fn accepted(flow: FlowId, now_ns: u64) -> Socket {
        Socket {
            flow,
            generation: Generation::default(),
            is_frozen: false,
            unacknowledged: 0,
            queue: Vec::new(),
            sent: 0,
            received: 0,
            begun: 0,
            is_ended: false,
            is_last: false,
            is_asking: false,
            is_told: false,
            is_freezing: false,
            is_unaccepted: false,
            asked_before_ns: None,
            begun_before: 0,
            base: (0, 0),
            congestion_bytes: SEGMENT_BYTES,
            version: 0,
            last_heard_ns: now_ns,
        }
    }

    /// The image of a connection of which there has been no socket: its client's first bytes are unread.
    pub(super) fn unborn(client: &Client, bytes: u64) -> Bytes {
        let image = Socket::accepted(client.flow, 0).read_out(client, 0);
        let mut image = Image::decode(&image).expect("written here");
        if let Some(tcp) = &mut image.tcp {
            tcp.receive_next = bytes as u32;
            tcp.unread = (0..bytes / REQUEST_BYTES).flat_map(|_| request()).collect();
        }
        image.encode().expect("within the limits").into()
    }

    fn end(&self) -> u64 {
        self.unacknowledged + self.queue.len() as u64
    }

    /// The next request that can be answered now: the reply before it is out.
    pub(super) fn pending(&self) -> Option<u64> {
        let is_out = self.sent == self.end();
        (is_out && !self.is_last && self.begun * REQUEST_BYTES < self.received).then_some(self.begun + 1)
    }

    pub(super) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// What isn't acknowledged can be sent by others, whose content is of this version.
    pub(super) fn can_go_on(&self, version: u8) -> bool {
        self.is_drained() || self.version == version
    }

    /// A request has been answered here, and its reply is out.
    pub(super) fn has_replied(&self) -> bool {
        self.begun > self.begun_before && self.sent == self.end()
    }

    /// Answers the next request. Returns what the home should know of it.
    pub(super) fn answer(&mut self, client: &Client, head: u8, version: u8) -> Progress {
        let number = self.begun + 1;
        let (start, end) = client.reply(number);
        assert_eq!(start, self.end(), "a reply that doesn't follow the one before");
        let content = end - start - HEAD_BYTES;
        self.begun = number;
        self.asked_before_ns = None;
        (self.is_asking, self.is_told) = (false, false);
        self.version = version;
        self.queue.extend_from_slice(&[head; HEAD_BYTES as usize]);
        self.queue.extend((0..content).map(|offset| content_byte(self.flow, number, offset, version)));
        let pieces =
            vec![Piece::Literal(vec![head; HEAD_BYTES as usize]), Piece::Content { first: 0, length: content }];
        Progress {
            server_bytes: start - self.base.0,
            acknowledged_bytes: self.unacknowledged.saturating_sub(self.base.0),
            client_bytes: self.received - self.base.1,
            http: self.http(),
            reply: Some(self.reply_state(content, pieces)),
        }
    }

    /// What the home should know of a connection that has nothing to do.
    pub(super) fn rest(&self) -> Option<Progress> {
        let is_at_rest = self.is_drained() && !self.is_last && self.begun * REQUEST_BYTES == self.received;
        is_at_rest.then(|| Progress {
            server_bytes: self.end() - self.base.0,
            acknowledged_bytes: self.unacknowledged.saturating_sub(self.base.0),
            client_bytes: self.received - self.base.1,
            http: self.http(),
            reply: None,
        })
    }

    pub(super) fn handle_packet(&mut self, packet: &Packet, now_ns: u64) {
        self.last_heard_ns = now_ns;
        let (start, end) = packet.data;
        if start <= self.received {
            self.received = self.received.max(end);
        }
        // An acknowledgement of what was never sent is ignored.
        if packet.acknowledgement > self.unacknowledged && packet.acknowledgement <= self.sent {
            let count = packet.acknowledgement - self.unacknowledged;
            self.queue.drain(..count as usize);
            self.unacknowledged = packet.acknowledgement;
            self.congestion_bytes = (self.congestion_bytes + SEGMENT_BYTES).min(WINDOW_BYTES);
            self.is_ended |= packet.is_end;
        } else if packet.acknowledgement == self.unacknowledged {
            self.is_ended |= packet.is_end;
        }
    }

    /// The bytes that it sends now, again or for the first time.
    pub(super) fn transmit(&mut self) -> Vec<(u64, Vec<u8>)> {
        let count = (self.queue.len() as u64).min(self.congestion_bytes);
        self.sent = self.sent.max(self.unacknowledged + count);
        let mut segments = Vec::new();
        for (index, segment) in self.queue[..count as usize].chunks(SEGMENT_BYTES as usize).enumerate() {
            segments.push((self.unacknowledged + index as u64 * SEGMENT_BYTES, segment.to_vec()));
        }
        if segments.is_empty() {
            segments.push((self.unacknowledged, Vec::new()));
        }
        segments
    }

    /// The home's recovery would begin at what is read out now.
    pub(super) fn rebase(&mut self) {
        self.base = (self.unacknowledged, self.received);
    }

    fn http(&self) -> HttpState {
        let pending = self.received / REQUEST_BYTES - self.begun;
        let mut connection = ConnectionState { requests: self.begun as u32, ..ConnectionState::default() };
        if self.asked_before_ns.is_some() {
            connection.expect_again(false);
        }
        HttpState {
            connection,
            input: (0..pending).flat_map(|_| request()).collect(),
            head: if self.sent < self.end() { request() } else { Vec::new() },
            elapsed: Duration::ZERO,
        }
    }

    fn reply_state(&self, content: u64, pieces: Vec<Piece>) -> ReplyState {
        ReplyState {
            site: "site".into(),
            path: format!("/{}", self.begun).into_bytes(),
            coding: None,
            etag: etag(self.version),
            complete_length: content,
            status: 200,
            content_bytes: content,
            pieces,
            resend_bytes: 0,
        }
    }

    /// What a freeze reads: of the unsent bytes, `in_kernel` at most go along as bytes.
    pub(super) fn read_out(&self, client: &Client, in_kernel: u64) -> Bytes {
        let sent = (self.sent - self.unacknowledged) as usize;
        let kernel_end = (self.queue.len() as u64).min(sent as u64 + in_kernel) as usize;
        let position = self.unacknowledged + kernel_end as u64;
        let reply = (kernel_end < self.queue.len()).then(|| {
            let (_, start, end) = client.reply_at(position).expect("what is queued is a reply's");
            let content_start = start + HEAD_BYTES;
            let mut pieces = Vec::new();
            if position < content_start {
                let head = &self.queue[kernel_end..(content_start - self.unacknowledged) as usize];
                pieces.push(Piece::Literal(head.to_vec()));
            }
            let first = position.max(content_start) - content_start;
            pieces.push(Piece::Content { first, length: end - content_start - first });
            self.reply_state(end - content_start, pieces)
        });
        let tcp = TcpState {
            local: ([192, 0, 2, 1], 80).into(),
            remote: ([198, 51, 100, 1], self.flow.serial as u16).into(),
            send_next: position as u32,
            receive_next: self.received as u32,
            window: TcpWindow::default(),
            mss: 1_460,
            window_scale: None,
            sack: true,
            timestamp: None,
            unread: Vec::new(),
            sent: self.queue[..sent].to_vec(),
            unsent: self.queue[sent..kernel_end].to_vec(),
        };
        let image = Image { flow: self.flow, tcp: Some(tcp), congestion: None, http: self.http(), reply };
        image.encode().expect("within the limits").into()
    }

    /// A live socket from an image. None when its content isn't to be had.
    pub(super) fn thaw(image: &[u8], rules: ThawRules, generation: Generation, now_ns: u64) -> Option<Socket> {
        let image = Image::decode(image).expect("an image that was written here");
        let tcp = image.tcp.expect("every image here has one");
        let number = u64::from(image.http.connection.requests);
        let mut queue = tcp.sent.clone();
        queue.extend_from_slice(&tcp.unsent);
        let mut sent = tcp.sent.len() as u64;
        let mut version = rules.version;
        if let Some(reply) = &image.reply {
            if reply.has_content() && !rules.trusts_content && !reply.continues_with(Some(&etag(rules.version))) {
                return None;
            }
            if !rules.forgets_resend {
                sent += reply.resend_bytes;
            }
            if !reply.has_content() {
                version = 0;
            }
            for piece in &reply.pieces {
                match piece {
                    Piece::Literal(bytes) => queue.extend_from_slice(bytes),
                    Piece::Content { first, length } => queue.extend(
                        (*first..first + length).map(|offset| content_byte(image.flow, number, offset, version)),
                    ),
                }
            }
        }
        let unacknowledged = u64::from(tcp.unacknowledged());
        Some(Socket {
            flow: image.flow,
            generation,
            is_frozen: false,
            unacknowledged,
            queue,
            sent: unacknowledged + sent,
            received: u64::from(tcp.receive_next),
            begun: number,
            is_ended: false,
            is_last: image.http.connection.flags & MUST_CLOSE != 0 && !image.http.connection.expects_again(),
            is_asking: false,
            is_told: false,
            is_freezing: false,
            is_unaccepted: false,
            asked_before_ns: image.http.connection.expects_again().then_some(now_ns),
            begun_before: number,
            base: (unacknowledged, u64::from(tcp.first_unread())),
            congestion_bytes: SEGMENT_BYTES,
            version,
            last_heard_ns: now_ns,
        })
    }
}

/// What a thaw goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThawRules {
    /// The content's, on this server.
    pub(super) version: u8,
    pub(super) trusts_content: bool,
    pub(super) forgets_resend: bool,
}

fn etag(version: u8) -> Vec<u8> {
    format!("\"{version}\"").into_bytes()
}

pub(super) fn request() -> Vec<u8> {
    b"GET /00001 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()
}
