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
//! | `ready_list`, `wheel`, `urgency_heap` | how ready children are kept in order |

mod event_queue;
mod member;
mod policy;
mod ready_list;
mod seat;
mod shape;
mod share;
mod tree;
mod urgency_heap;
mod usage;
mod wheel;

#[cfg(test)]
mod tree_tests;

pub use event_queue::Urgency;
pub use member::{DEPTH_MAX, LeafId, Member, NodeId, Refused, TreeError};
pub use policy::PolicyKind;
pub use share::{Cost, Share};
pub use tree::Tree;
pub use usage::Usage;
