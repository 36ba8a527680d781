//! Bytes whose place can be told from their value.

/// The first so many.
pub(crate) fn of(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(131) ^ (at >> 8).wrapping_mul(7) ^ (at >> 16)) as u8).collect()
}
