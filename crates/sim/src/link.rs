//! One connection of the pretend network: what lies in its queues, how fast it is, and what the reactor has under way for it.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use leat_host::reactor::{Token, Transmit};

use crate::agenda::{Happening, MILLISECOND};
use crate::files::Pages;
use crate::random::Random;

/// A piece of what the worker has sent and the client's side hasn't acknowledged.
#[derive(Debug)]
pub(crate) enum Segment {
    Bytes(Bytes),
    /// Pages of a file, which change with it for as long as they lie here.
    Pages {
        pages: Pages,
        offset: usize,
        captured: Bytes,
    },
}

impl Segment {
    pub(crate) fn len(&self) -> usize {
        match self {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Pages { captured, .. } => captured.len(),
        }
    }

    /// Takes the first `count` bytes, as they are now.
    pub(crate) fn take(&mut self, count: usize) -> Bytes {
        match self {
            Segment::Bytes(bytes) => bytes.split_to(count),
            Segment::Pages { pages, offset, captured } => {
                let before = captured.split_to(count);
                let pages = pages.borrow();
                let now = pages.get(*offset..*offset + count).map(Bytes::copy_from_slice);
                *offset += count;
                now.unwrap_or(before)
            }
        }
    }
}

/// What the reactor does with the bytes that have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiving {
    Off,
    Once,
    On,
}

/// What has become of a send.
#[derive(Debug)]
pub(crate) enum Done {
    Sent(Option<io::ErrorKind>),
    Writable,
    ReceiveStopped(Option<io::ErrorKind>),
    EndOfInput,
}

/// How fast a link is, and how much it holds.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) delay_ns_max: u64,
    /// Bytes that move at once, at most.
    pub(crate) upstream_fragment_bytes_max: usize,
    pub(crate) downstream_fragment_bytes_max: usize,
    pub(crate) receive_buffer_bytes: usize,
    pub(crate) send_buffer_bytes: usize,
    pub(crate) client_window_bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Link {
    /// What happens when something arrives at the far end, or it's gone.
    pub(crate) wakes: Happening,
    pub(crate) pace: Pace,
    // Towards the server.
    pub(crate) upstream: VecDeque<u8>,
    pub(crate) upstream_moves: bool,
    pub(crate) client_ends: bool,
    pub(crate) received: VecDeque<u8>,
    pub(crate) ended: bool,
    pub(crate) reset_by_client: bool,
    // Towards the client.
    pub(crate) downstream: VecDeque<Segment>,
    pub(crate) downstream_bytes: usize,
    pub(crate) downstream_moves: bool,
    pub(crate) server_ended: bool,
    /// When the server ended its side or closed, whichever came first.
    pub(crate) given_up_at_ns: u64,
    pub(crate) arrived: VecDeque<u8>,
    pub(crate) end_arrived: bool,
    pub(crate) reset_arrived: bool,
    // What the reactor has under way.
    pub(crate) token: Option<Token>,
    pub(crate) receiving: Receiving,
    pub(crate) starved: bool,
    pub(crate) pausing: bool,
    pub(crate) is_shut: bool,
    pub(crate) sending: Option<(Transmit, usize)>,
    pub(crate) awaits_writable: bool,
    pub(crate) done: VecDeque<Done>,
    pub(crate) closed: bool,
    pub(crate) closed_at_ns: u64,
    /// When bytes last came to the server.
    pub(crate) received_at_ns: u64,
    /// When bytes last moved, in either direction.
    pub(crate) moved_at_ns: u64,
}

impl Link {
    /// What matters of it, in a few words.
    pub(crate) fn describe(&self) -> String {
        format!(
            "({:?}, {:?}, starved {}, pausing {}, {} received, ended {}, {} queued, {} arrived, writable awaited {}, shut {})",
            self.token,
            self.receiving,
            self.starved,
            self.pausing,
            self.received.len(),
            self.ended,
            self.downstream_bytes,
            self.arrived.len(),
            self.awaits_writable,
            self.is_shut
        )
    }
}

impl Pace {
    pub(crate) fn random(random: &mut Random) -> Pace {
        let slow = random.percent(15);
        Pace {
            delay_ns_max: if slow { 20 * MILLISECOND } else { *random.pick(&[0, 50_000, MILLISECOND]) },
            upstream_fragment_bytes_max: *random.pick(&[1, 7, 100, 1_460, 65_536, 65_536]),
            downstream_fragment_bytes_max: *random.pick(&[700, 1_460, 16_000, 65_536, 65_536]),
            receive_buffer_bytes: *random.pick(&[64, 2_304, 65_536]),
            send_buffer_bytes: *random.pick(&[1_000, 4_608, 16_384, 87_040, 262_144]),
            client_window_bytes: *random.pick(&[500, 4_096, 65_536, 1 << 20]),
        }
    }
}
