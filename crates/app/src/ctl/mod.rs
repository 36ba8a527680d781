//! `leat ctl`: showing and changing a running leat, by a Unix socket. A question is one line of JSON, and so is its answer.
//!
//! | file | decides |
//! |---|---|
//! | `command` | what can be asked, and how it's written |
//! | `answer` | what a dispatcher says to it |
//! | `merge` | what several workers' answers are as one |
//! | `server` | nothing: takes questions to whoever can answer them |
//! | `client` | how an answer is shown |

mod answer;
mod client;
mod command;
mod merge;
mod server;

pub(crate) use answer::done;
pub use answer::{answer, offline};
pub use client::{ask, show};
pub use command::Command;
pub(crate) use merge::{drain, list_flows, list_nodes, list_ports};
pub use server::{Question, Socket, serve};
