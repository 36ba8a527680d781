//! The binary `leat`, as a library that the binary, the simulator and the benchmarks share.
//!
//! A request's way through these modules is told in ARCHITECTURE.md.

pub mod access_log;
pub mod balance;
pub mod config;
pub mod console;
pub mod ctl;
mod descriptors;
pub mod engine;
pub mod lab;
pub mod listener;
pub mod log;
pub mod metrics;
pub mod names;
pub mod passage;
pub(crate) mod pins;
pub mod supervisor;
pub mod top;
pub mod worker;
