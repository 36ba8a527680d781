//! Every decision that leat makes, as pure state machines.
//!
//! Nothing here can open a socket, read a clock, start a thread or draw a random number: time comes in as an argument, bytes come in as
//! slices, and what should happen comes out as values. So a whole system runs in `leat-sim` from a seed, and any failure replays.
#![forbid(unsafe_code)]

pub mod admission;
pub mod cgi;
pub mod client_prefix;
pub mod dispatch;
pub mod fastcgi;
pub mod handoff;
pub mod http;
pub mod network;
pub mod prefix_counts;
pub mod protocol;
pub mod schedule;
pub mod serve;
pub mod split;
pub mod spread;
pub mod time;
