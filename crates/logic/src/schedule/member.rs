//! The names of a tree's members, and what can be wrong with them.

/// Levels of inner nodes, the root included: each costs every event below it some nanoseconds.
pub const DEPTH_MAX: usize = 8;

/// An inner node of one tree. The name of a node that was removed is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// A leaf of one tree. The name of a leaf that was removed is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// An inner node or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// It carries a policy.
    Node(NodeId),
    /// It carries a queue.
    Leaf(LeafId),
}

impl From<NodeId> for Member {
    fn from(node: NodeId) -> Member {
        Member::Node(node)
    }
}

impl From<LeafId> for Member {
    fn from(leaf: LeafId) -> Member {
        Member::Leaf(leaf)
    }
}

impl Member {
    pub(super) fn index(self) -> usize {
        self.parts().0 as usize
    }

    pub(super) fn parts(self) -> (u32, u32) {
        match self {
            Member::Node(NodeId { index, generation }) | Member::Leaf(LeafId { index, generation }) => {
                (index, generation)
            }
        }
    }
}

/// Why a tree can't be changed as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The name is of something that has been removed.
    #[error("{0:?} has been removed from the scheduling tree: add it again and use the new name")]
    Removed(Member),
    /// The root stays for as long as the tree.
    #[error("the root of the scheduling tree can't be removed: remove what is below it")]
    IsRoot,
    /// There would be too many levels.
    #[error("the scheduling tree would have more than {DEPTH_MAX} levels of nodes: nest owners and sites less deeply")]
    TooDeep,
}

/// An event that wasn't queued, because its leaf has been removed or because the tree holds as many as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<E>(pub E);
