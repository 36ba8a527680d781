//! What a host is to do. Executed in the order in which effects come; the order is part of the protocol.

use bytes::Bytes;

use super::continuation::Impossible;
use super::message::Message;
use super::placing::{Question, Rules, Sample, There};
use super::progress::Told;
use super::{Ends, FlowId, Generation, Incarnation, ServerId};
use crate::time::Instant;

/// The host's name for one connection between two servers, never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Where a flow's packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a node.
    Node(ServerId),
    /// Nowhere: they are kept or dropped, and never answered.
    Hold,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Home, node: make the socket silent and read it out. Answer with `frozen` or `freeze_failed`.
    Freeze {
        /// Which.
        flow: FlowId,
    },
    /// Home: packets go there from now on; done before this returns. Replaces an entry of a lower generation.
    Steer {
        /// Which.
        flow: FlowId,
        /// Where.
        to: Target,
        /// Kept with the entry.
        generation: Generation,
    },
    /// Home: packets come here again. Deletes the entry unless its generation is higher.
    Unsteer {
        /// Which.
        flow: FlowId,
        /// The highest that is deleted.
        generation: Generation,
    },
    /// Home, node: the frozen socket goes on as if nothing had been.
    Unfreeze {
        /// Which.
        flow: FlowId,
        /// Which it is held under.
        generation: Generation,
    },
    /// Home, node: make a socket from the image, live when all is in place. Answer with `thawed` or `thaw_failed`.
    Thaw {
        /// Which.
        flow: FlowId,
        /// Which it is held under.
        generation: Generation,
        /// Encoded.
        image: Bytes,
    },
    /// Home, node: drop the socket, frozen or not, or in the middle of a thaw, with nothing sent.
    CloseSilently {
        /// Which.
        flow: FlowId,
    },
    /// Home: the flow is here as an image. Answer with `place`.
    Place {
        /// Which.
        flow: FlowId,
        /// The node that still has a frozen socket of it: it can go on there whatever the others say.
        giver: Option<ServerId>,
        /// Encoded.
        image: Bytes,
    },
    /// Home: the node that held it is gone, and silenced. Answer with `recovered` (see `Continuation`) or `cut`.
    Recover {
        /// Which.
        flow: FlowId,
        /// The last image of it.
        image: Bytes,
        /// When it came.
        kept: Instant,
        /// What the node told since.
        told: Told,
        /// What the node had made of it.
        birth: Birth,
    },
    /// Home, peer: the connection can't go on. Reset it, as far as possible, and count.
    Cut {
        /// Which.
        flow: FlowId,
        /// Why.
        reason: CutReason,
    },
    /// Home: a node has reset the connection, which its client may not have heard.
    Reset {
        /// Which.
        flow: FlowId,
    },
    /// Node: accept all connections that wait for that, then call `none_waits`.
    AcceptAll,
    /// Node: the kernel may let out what its sockets send until then, and no longer.
    LeaseUntil {
        /// On this node's clock.
        until: Instant,
    },
    /// Home, node: to the server at the other end. What can't be sent any more is dropped.
    Send {
        /// On this session.
        session: SessionId,
        /// What.
        message: Message,
    },
    /// Home, node: end the session; the node begins another.
    Disconnect {
        /// Which.
        session: SessionId,
    },
    /// Home: a node's lease has run out though its session was there, which ends: the node stood still, or this home did. Its flows go on elsewhere.
    Lapsed {
        /// Whose.
        node: ServerId,
    },
    /// Home: a node asks where the request in hand belongs. Answer with `tell`.
    Where {
        /// Which.
        flow: FlowId,
        /// Who has it.
        node: ServerId,
        /// Which request.
        question: Question,
    },
    /// Node: what became of [`super::Node::ask`].
    Told {
        /// Which.
        flow: FlowId,
        /// What to do; `None` if nobody has answered.
        there: Option<There>,
    },
    /// Node: the home has ended. These are this server's own from now on, connections like any other, and it speaks for them without a lease.
    Inherit {
        /// Which.
        flows: Vec<FlowId>,
    },
    /// Node: what was answered before counts no more.
    Rules(Rules),
    /// Home: what a node has seen.
    Seen(Vec<Sample>),
    /// Node: send one byte to the home's server as if it were a client's. Answer with `probed`.
    Probe {
        /// The VIP, and that server.
        ends: Ends,
        /// The byte's number.
        sequence: u32,
    },
    /// Home: a node has sent such a byte, or couldn't.
    Probed {
        /// Its number.
        sequence: u32,
        /// Whether it was sent.
        is_sent: bool,
    },
    /// Node: keep back what a server that isn't leat says on this connection, if it has answered all that it was asked. Answer with `yielded`.
    Yield {
        /// Which.
        ends: Ends,
        /// The sequence number behind what its client has been let say.
        next: u32,
        /// What its client has of what was said to it.
        acknowledged: u32,
    },
    /// Home: what a node has done about that.
    Yielded {
        /// Which.
        ends: Ends,
        /// As asked.
        next: u32,
        /// The answer.
        answer: super::Yielding,
        /// What the server's packets have said last of its clock; 0 where they say nothing of it.
        shown: u32,
    },
    /// Home, peer, front: how much a node has to do.
    Load {
        /// Which.
        node: ServerId,
        /// Which life of it.
        incarnation: Incarnation,
        /// How much.
        load: super::Load,
    },
    /// Front: a connection's packets go to that node from now on, whoever has its bucket.
    Follow {
        /// Which.
        ends: Ends,
        /// Where it lives.
        node: ServerId,
        /// It has been closed there: if its client begins another by the same port, that goes by its bucket.
        is_over: bool,
    },
    /// Front: a connection's packets go where its bucket says.
    Unfollow {
        /// Which.
        ends: Ends,
    },
}

/// What is known of a flow's beginning at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// It had the flow.
    Known,
    /// The flow was to begin there when the image was made, and the node has said nothing of it.
    Unknown,
    /// The node lives, and has said that the flow never began there, and won't.
    Denied,
}

/// Why a connection was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum CutReason {
    /// Its node died and no image of it was kept.
    #[error("its node died, and no image of it was kept")]
    NoImage,
    /// What its node had sent last isn't known, or can't be made again.
    #[error("its node died, and {0}")]
    Unrepeatable(Impossible),
    /// No server could take it.
    #[error("no server could take it")]
    NoPlace,
    /// Its client doesn't hear the node that has its reply, and nobody else can go on with that.
    #[error("its client hears nothing of the node that has its reply, and no other can go on with it")]
    Unheard,
    /// It was on its way when this home died.
    #[error("its home died while it changed hands")]
    LostOnTheWay,
    /// It was on its way when its taker died, and may have been taken.
    #[error("the node died that it was on its way to")]
    LostWithTaker,
}
