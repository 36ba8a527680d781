//! Every kernel facility that leat uses: sockets, reactors, files, processors, signals. The only crate with `unsafe`.
//!
//! Nothing here decides: what is sent, in which order, to whom, is decided in `leat-logic` and wired together in `leat`.

pub mod channel;
pub mod clock;
pub mod process;
pub mod processors;
pub mod reactor;
pub mod socket;
pub mod storage;
pub mod wake;
