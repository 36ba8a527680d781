//! Which node a request goes to, and by which way (CASS, "Mix-LARD Scheduling Policy"; Aron et al., USENIX 2000).
//!
//! Facts about a request and points in time come in, choices with their reasons come out. What carries a choice out - handing a connection
//! over, proxying, probing a node - is for others, who tell what came of it.
//!
//! | file | decides |
//! |---|---|
//! | `dispatcher` | who may be chosen at all; asks the policy, keeps the books |
//! | `policy/` | which candidate; one file for each policy |
//! | `table` | what content went to which nodes lately |
//! | `facts` | what of a request counts, and its content key |
//! | `classify` | whether a request is dynamic |
//! | `node` | what is known of a node: weight, what it serves, load |
//! | `health` | whether a node is fit |
//! | `explain` | the same choice in words |
//! | `cost/` | handing off, proxying, fetching or staying |
//! | `direct/` | whether a node's own replies reach clients |
//! | `memory` | whether a node has memory for more contents than those that it is given |
//! | `room` | how many connections may be on their way to begin at a node |
//! | `route` | both together: the node and the way, for a connection's first request and for the next |

mod classify;
pub mod cost;
pub mod direct;
mod dispatcher;
mod explain;
mod facts;
mod health;
pub mod limits;
mod memory;
mod node;
mod policy;
mod room;
mod route;
mod table;

#[cfg(test)]
mod queueing;
#[cfg(test)]
mod simulation;

pub use classify::{Class, DynamicRules, QueryRule, Rule};
pub use dispatcher::{Capacity, Choice, Dispatcher, NodeSettings, Refusal, Settings, Standing};
pub use explain::{Explanation, NodeLine};
pub use facts::{ContentKey, Facts, KeyMaker};
pub use health::{Health, HealthSettings, Outcome, State};
pub use memory::MemoryWatch;
pub use node::{LoadReport, NodeId, NodeSet, Serves};
pub use policy::{MixLardSettings, PolicyKind, PolicySettings, Why};
pub use room::Rooms;
pub use route::{HandOver, Route, Whence};
pub use table::TableEntry;
