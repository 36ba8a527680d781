//! The binary `leat`, as a library that the binary, the simulator and the benchmarks share.

pub mod config;
