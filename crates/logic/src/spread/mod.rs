//! Which node a front sends a connection's packets to (`spread = "l4"`), and who has a connection that nodes hand on to each other: decides the table of
//! buckets, and whose word counts. What a packet's bucket is, programs in the kernel say; which nodes are fit, and which is right for a request,
//! `dispatch::Dispatcher`. `docs/decisions/0017-spread.md` and `0020-spread-by-content.md` have the reasons.

mod followed;
mod maglev;
mod peer;
mod table;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use followed::{FOLLOWED_MAX, Followed};
pub use maglev::BUCKETS;
pub use peer::succession::{LIVES_MAX, WORKERS_MAX};
pub use peer::{FRONT, Peer, PeerCounters};
pub use table::{Member, Owners, Standing, Table};

/// Between two signs of life, on each link.
const PRESENT_PAUSE: Duration = Duration::from_millis(250);

/// A link on which nothing has come for so long has ended.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// What fronts of one cluster, and nobody else, make buckets with.
#[must_use]
pub fn bucket_key(secret: &[u8]) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::derive_key("leat 2026 buckets of connections", secret)[..16]);
    key
}
