//! How much of anything a handoff may bring along or keep. A connection that has more isn't frozen, or not yet.

use crate::http::{HEAD_BYTES_CEILING, RANGE_COUNT_MAX};

/// Received by the kernel and not read.
pub const UNREAD_BYTES_MAX: usize = 256 * 1024;

/// In the send queue, sent or not. Replies keep less there (TCP_NOTSENT_LOWAT) but for a long, fat path.
pub const QUEUE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Read by the application and not consumed: half a head, or pipelined requests.
pub const INPUT_BYTES_MAX: usize = 256 * 1024;

/// The same of a connection whose socket goes along, to this server's next process: a client that has sent much before anybody looks fills all receive
/// buffers of a worker, 4 MiB.
pub const PASSAGE_INPUT_BYTES_MAX: usize = 5 * 1024 * 1024;

/// The head of the request in hand.
pub const HEAD_BYTES_MAX: usize = HEAD_BYTES_CEILING;

/// Of a path, decoded.
pub const PATH_BYTES_MAX: usize = HEAD_BYTES_CEILING;

/// Of a site's name.
pub const SITE_BYTES_MAX: usize = 255;

/// Of an entity tag, with its quotes.
pub const ETAG_BYTES_MAX: usize = 255;

/// Pieces of a reply under way: a head, then for each range its head and its content, then an end.
pub const PIECE_COUNT_MAX: usize = 2 * RANGE_COUNT_MAX + 2;

/// Literal bytes of a reply under way, all pieces together.
pub const LITERAL_BYTES_MAX: usize = 128 * 1024;

/// A section that isn't known and may be skipped.
pub const SKIPPED_BYTES_MAX: usize = 64 * 1024;

/// A whole image, encoded: every part at its limit.
pub const IMAGE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The same without the socket's state.
pub const PASSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What a node tells of a reply that begins, encoded.
pub const PROGRESS_BYTES_MAX: usize = 256 * 1024;

/// Replies of a connection that are kept because its client, who asked for several at once, hasn't acknowledged them. Browsers and tools that do so at all
/// ask for fewer.
pub const PROGRESSES_MAX: usize = 16;

/// Flows named in one message.
pub const FLOWS_PER_MESSAGE_MAX: usize = 1024;

/// Homes of one server: as many as it may have workers.
pub const HOMES_MAX: usize = 1024;

/// The fields of one message.
pub const MESSAGE_BYTES_MAX: usize = IMAGE_BYTES_MAX + 64;

/// Heartbeats that a node remembers having sent and not had answered.
pub const HEARTBEATS_MAX: usize = 8;

/// Places tried for one flow before it is cut.
pub const ATTEMPTS_MAX: u8 = 4;

/// Bytes that a client may have got of a reply and not acknowledged, when its server dies: no window is larger in practice.
pub const RESEND_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Decrypted messages of a link that nobody has asked for: then its connection is read no further.
pub const LINK_INBOX_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 64 * 1024;

/// Messages that a link's peer hasn't made room for: then the link ends.
pub const LINK_OUTBOX_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Messages that wait for a link's peer: then connections that nobody waits for are given away no further until there are fewer.
pub const LINK_OUTBOX_BYTES_AMPLE: usize = 4 * 1024 * 1024;

/// Contents of which a node remembers where they belong.
pub const PLACES_MAX: usize = 1 << 16;

/// What a node tells at a time of what it has seen.
pub const SAMPLES_MAX: usize = 256;

/// Connections that were cut, and whose clients are told so again. A client of one more is told once.
pub const RESETS_MAX: usize = 4096;

/// How often again, within 13 s: with a packet of twenty lost each way, one client in a million hears none of it.
pub const RESET_REPEATS_MAX: u8 = 6;

/// Flows that a node remembers not to begin: as many as may be late on their way when they're asked for.
pub(super) const UNBORN_MAX: usize = 1024;
