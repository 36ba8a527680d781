//! `leat ctl`: showing and changing a running leat, by a Unix socket. A question is one line of JSON, and so is its answer. The admin address
//! takes the same commands over HTTP.
//!
//! | file | decides |
//! |---|---|
//! | `command` | what can be asked, and how it's written |
//! | `form` | how it's asked for on a command line and over HTTP |
//! | `http` | which requests of the admin address ask for it, and who may |
//! | `desk` | nothing: has workers not wait for the answers |
//! | `answer` | what a dispatcher says to it |
//! | `merge` | what several workers' answers are as one |
//! | `server` | nothing: takes questions to whoever can answer them |
//! | `client` | how an answer is shown |

mod answer;
mod client;
mod command;
mod desk;
mod form;
pub(crate) mod http;
mod merge;
mod server;

pub(crate) use answer::done;
pub use answer::{answer, offline};
pub use client::{ask, ask_within, is_served, show};
pub use command::Command;
pub use desk::Desk;
pub use form::{Access, Form, Parameter};
pub(crate) use merge::{drain, drain_ports, list_flows, list_nodes, list_ports};
pub use merge::{is_of_ports, is_resumed, left_at_ports};
pub use server::{Question, Socket, serve};
