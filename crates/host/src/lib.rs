//! Every kernel facility that leat uses: sockets, reactors, files, processors, signals. The only crate with `unsafe`.
//!
//! Nothing here decides: what is sent, in which order, to whom, is decided in `leat-logic` and wired together in `leat`.

pub mod append;
pub mod channel;
pub mod clock;
pub mod connections;
mod family;
pub mod handoff;
pub mod interfaces;
pub mod knocking;
pub mod lock;
pub mod namespace;
pub mod process;
pub mod processors;
pub mod program;
pub mod reactor;
pub mod reuseport;
pub mod socket;
mod spawn;
pub mod steering;
pub mod storage;
pub mod tap;
pub mod users;
pub mod wake;
