//! The configuration: what `leat.toml` may say, what it means, and what is wrong with it.
//!
//! Each key is declared once, in [`server`] and [`site`], with its type, default, range and sentence; struct, parser, messages and
//! `docs/config.md` come from there. What the values are for is left to the worker.

mod check;
mod check_sites;
mod kinds;
mod load;
mod mistake;
mod reference;
mod schema;
mod server;
mod site;
mod source;
mod suggest;
mod syntax;
#[cfg(test)]
mod tests;

pub use load::{check, from_directory, load};
pub use mistake::{Mistake, Mistakes, Severity};
pub use reference::reference;
pub use server::{Admin, Config, Files, Limits, Listener, Log, LogFormat, LogLevel, Reactor, Schedule};
pub use site::{AccessLog, AccessLogFormat, AccessLogTarget, ErrorPage, Header, MediaType, Site, SiteLimits};
