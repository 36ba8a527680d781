//! The event scheduling tree: the only place where the order of a worker's work is decided (Vortex, sections 2 and 4.5).
//!
//! Inner nodes carry a policy, leaves carry first-in-first-out queues of events, one leaf for each (stage, site). A worker pushes an event
//! onto a leaf, pops the tree for what to run next, runs it, and charges what it cost. What an event means, what it costs and when the
//! tree is popped are for others to say.
//!
//! | file | decides |
//! |---|---|
//! | `tree` | which node is asked next, and who pays |
//! | `shape` | who is in the tree: adding, removing, listing |
//! | `policy/` | which ready child a node serves; one file for each policy |
//! | `member` | the names of nodes and leaves |
//! | `share` | what weights and priorities there are |
//! | `seat` | what is kept of each child of a node |
//! | `usage` | what is counted, and what an event is expected to cost |
//! | `event_queue` | how the leaves' queues share one block of memory |
//! | `cost_model/` | what operations cost |
//! | `prefix_leaves` | at which leaf work waits whose site isn't known yet |
//! | `balance/` | how shares hold over all workers: weights on each, and connections that move |
//! | `gathering` | whether an idle worker is woken by the first arrival or by several |
//! | `ready_list`, `calendar`, `urgency_heap` | how ready children are kept in order |

pub mod balance;
mod calendar;
mod cost_model;
mod event_queue;
mod gathering;
mod member;
mod policy;
mod prefix_leaves;
mod ready_list;
mod seat;
mod shape;
mod share;
mod tree;
mod urgency_heap;
mod usage;

#[cfg(test)]
mod tree_tests;
#[cfg(test)]
mod urgency_tests;

pub use cost_model::{Batch, CostModel, Operation};
pub use event_queue::Urgency;
pub use gathering::{Gather, Gathering};
pub use member::{DEPTH_MAX, LeafId, Member, NodeId, Refused, TreeError};
pub use policy::PolicyKind;
pub use prefix_leaves::PrefixLeaves;
pub use share::{Cost, Share};
pub use tree::Tree;
pub use usage::Usage;
