//! Which node a front sends a connection's packets to (`spread = "l4"`), and who has a connection that nodes hand on to each other: decides the table of
//! buckets, and whose word counts. What a packet's bucket is, programs in the kernel say; which nodes are fit, and which is right for a request,
//! `dispatch::Dispatcher`. `docs/decisions/0017-spread.md` and `0020-spread-by-content.md` have the reasons.

mod followed;
mod maglev;
mod peer;
mod table;

#[cfg(test)]
mod tests;

pub use followed::{FOLLOWED_MAX, Followed};
pub use maglev::BUCKETS;
pub use peer::succession::{LIVES_MAX, WORKERS_MAX};
pub use peer::{FRONT, Peer, PeerCounters};
pub use table::{Member, Owners, Standing, Table};

/// What fronts of one cluster, and nobody else, make buckets with.
#[must_use]
pub fn bucket_key(secret: &[u8]) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::derive_key("leat 2026 buckets of connections", secret)[..16]);
    key
}
