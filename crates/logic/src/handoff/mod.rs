//! Handing connections from server to server while their clients notice nothing: what travels, who owns a flow at every moment, and how a
//! reply goes on when its server has died. `docs/decisions/0008-handoff.md` and `docs/decisions/0026-recovery.md` say why it is so, `docs/link.md` how it
//! looks on the wire.
//!
//! Decides when to freeze, steer, thaw, close and cut. Leaves to the host: sockets, steering entries, the connection between the servers; and to
//! others: which node is the right one.

mod continuation;
mod effect;
mod flow;
mod home;
mod http;
mod image;
pub mod limits;
mod link;
mod message;
mod node;
mod passage;
mod placing;
mod progress;
mod relay_state;
mod reply;
mod resets;
mod server_end;
mod tcp;
mod wire;

pub use continuation::{Impossible, Witness, as_it_was, continue_from, is_untouched};
pub use effect::{Birth, CutReason, Effect, SessionId, Target};
pub use flow::{Ends, FlowId, Generation, Incarnation, Process, RequestId, ServerId};
pub use home::{Destination, GiveError, Home, HomeCounters, HomeLimits};
pub use http::HttpState;
pub use image::{IMAGE_VERSION, Image, SECTION_TLS};
pub use link::{LinkError, LinkKey, LinkSession, SECRET_BYTES_MIN, cookie_key};
pub use message::{Holding, HoldingPhase, Load, Message, RecallTerms, RefuseReason, Yielding};
pub use node::{Node, NodeCounters, NodeLimits};
pub use passage::{FileState, OFFER_BYTES_MAX, OFFERS_MAX, Offer, PassageMessage, Verdict};
pub use placing::{Places, Question, Rules, Sample, There};
pub use progress::{Progress, Told};
pub use relay_state::RelayState;
pub use reply::{Piece, ReplyState};
pub use resets::{Reset, Resets};
pub use server_end::{ProxiedRequest, ServerEnd, Talk};
pub use tcp::{Congestion, TcpState, TcpWindow, WindowScale};
pub use wire::DecodeError;

#[cfg(test)]
mod tests;
