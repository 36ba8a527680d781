//! Experiments beside peers.
fn main() {}
