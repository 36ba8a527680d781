//! The binary `leat`, as a library that the binary, the simulator and the benchmarks share.
//!
//! A request's way through these modules is told in ARCHITECTURE.md.

pub mod access_log;
pub mod config;
pub mod engine;
pub mod listener;
pub mod log;
pub mod metrics;
pub mod supervisor;
pub mod worker;
