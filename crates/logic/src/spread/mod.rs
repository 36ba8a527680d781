//! Which node a front sends a connection's packets to (`spread = "l4"`): decides the table of buckets and nothing else. What a packet's bucket is,
//! programs in the kernel say; which nodes are fit, `dispatch::Dispatcher`. `docs/decisions/0017-spread.md` has the reasons.

mod maglev;
mod table;

pub use maglev::BUCKETS;
pub use table::{Member, Owners, Standing, Table};

/// What fronts of one cluster, and nobody else, make buckets with.
#[must_use]
pub fn bucket_key(secret: &[u8]) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::derive_key("leat 2026 buckets of connections", secret)[..16]);
    key
}
