//! The configuration: what `leat.toml` may say, what it means, and what is wrong with it.
//!
//! Each key is declared once, in [`server`], [`schedule`], [`site`] and the like, with its type, default, range and sentence; struct, parser, messages and
//! `docs/config.md` come from there. What the values are for is left to the worker.

mod access;
mod check;
mod check_cluster;
mod check_schedule;
mod check_sites;
mod cluster;
mod command_line;
mod forwarded;
mod handler;
mod kinds;
mod lab;
mod load;
mod mistake;
mod port;
mod proxy_protocol;
mod quota;
mod reference;
mod schedule;
mod schema;
mod server;
mod site;
mod source;
mod split;
mod suggest;
mod syntax;
#[cfg(test)]
mod tests;

pub use access::Access;
pub use cluster::{Cluster, ClusterKey, ClusterLog, ClusterNode, Dynamic, HealthChecks, MixLard, RepliesTold, Role};
pub use command_line::{ClusterFlags, NodeFlags, dispatcher_text, node_text};
pub use forwarded::Forwarded;
pub use handler::{Burn, Cgi, Command, FastCgi, Handler, Proxy, Redirect, Upstream, Variable};
pub use kinds::address_argument;
pub use lab::Lab;
pub use load::{
    Part, check, check_part, first_role, from_directory, from_text, load, load_part, load_text, mistake_at, parts,
    read_text,
};
pub use mistake::{Mistake, Mistakes, Severity};
pub use port::{ClusterPort, Each, PortLog};
pub use proxy_protocol::ProxyProtocol;
pub use quota::{OwnerQuota, Quota};
pub use reference::reference;
pub(crate) use schedule::OwnersByName;
pub use schedule::{First, OWNER_LEVELS_MAX, Owner, Schedule};
pub use server::{Admin, AdminToken, Config, Files, Limits, Listener, Log, LogFormat, LogLevel, Reactor};
pub use site::{
    AccessLog, AccessLogFormat, AccessLogTarget, ErrorPage, Header, MediaType, PathHeaders, Site, SiteLimits,
};
pub use split::Split;
