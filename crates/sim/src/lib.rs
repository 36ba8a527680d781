//! A pretend host, driven from a seed: whole workers under faults, replayable.
//!
//! One 64-bit number decides everything in a run: who connects when and asks for what, in which pieces bytes move, which disk is slow, which
//! file changes in the middle of being served. The worker is the real one; only its `Host` is pretended. `docs/simulator.md` says what a run
//! checks.

mod agenda;
mod client;
pub mod crowd;
mod files;
pub mod handoff;
mod host;
mod link;
mod mutation;
mod network;
mod oracle;
mod programs;
mod random;
mod reactor;
mod settings;
mod simulation;
mod storage;
mod uploads;
mod world;

pub use simulation::{Defect, Failure, Options, Summary, run};
pub use uploads::{Uploaded, Uploads, run_uploads};
