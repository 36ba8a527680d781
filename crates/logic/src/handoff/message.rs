//! What a home and a node say to each other. One format for both directions; who may say what is [`Message::is_from_node`].
//!
//! ```text
//! message = kind length fields        kind: one byte; length: LEB128, of the fields
//! ```
//!
//! A message of a kind that isn't known is skipped if its kind is even, and ends the session if it is odd; fields may be added at a message's end.
//! `docs/link.md` has the whole format.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bytes::Bytes;

use super::image::{decode_flow, encode_flow};
use super::limits::{FLOWS_PER_MESSAGE_MAX, HOMES_MAX, IMAGE_BYTES_MAX, MESSAGE_BYTES_MAX, PROGRESS_BYTES_MAX};
use super::placing::{Question, Rules, Sample, There, decode_samples, encode_samples};
use super::wire::{DecodeError, Reader, put_bytes, put_number};
use super::{Ends, FlowId, Generation, Incarnation, Process};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Node: a session begins. Nothing of an earlier one is listened to any more.
    Hello {
        /// This life of the node's process.
        incarnation: Incarnation,
        /// Counts that life's sessions: one that comes late doesn't replace a newer one.
        number: u64,
        /// Offers that may be unanswered at a time.
        offers_max: u32,
        /// The node's process: it may have more lives than this one. None from nodes that don't say it.
        process: Option<Process>,
    },
    /// Node: what it holds, in as many messages as it takes.
    Holding {
        /// Each flow with its generation.
        flows: Vec<Holding>,
        /// Nothing follows.
        is_last: bool,
    },
    /// Node: still here. Asks for a lease.
    Heartbeat {
        /// Counts up.
        number: u64,
        /// How much there is to do.
        load: Load,
    },
    /// Home: the node may send until so long after it *sent* that heartbeat.
    Lease {
        /// The heartbeat's.
        number: u64,
        /// In milliseconds.
        duration_ms: u32,
        /// The workers of the home's server: each is a home, and wants a link.
        homes: Vec<u16>,
    },
    /// Home: take this flow.
    Offer {
        /// Which.
        flow: FlowId,
        /// The generation that it becomes.
        generation: Generation,
        /// The frozen connection, encoded.
        image: Bytes,
        /// To be given back by itself as soon as the request in hand has been answered.
        is_lent: bool,
    },
    /// Node: the flow lives here now.
    Taken {
        /// Which.
        flow: FlowId,
        /// As offered.
        generation: Generation,
    },
    /// Node: an offer isn't taken, or a flow that is recalled isn't here. It never sent under that generation, or has ended.
    Refused {
        /// Which.
        flow: FlowId,
        /// As offered or recalled.
        generation: Generation,
        /// Why.
        reason: RefuseReason,
    },
    /// Node: take this flow back. It's frozen until [`Message::Release`] or [`Message::Keep`] comes.
    Return {
        /// Which.
        flow: FlowId,
        /// Under which it was held.
        generation: Generation,
        /// The frozen connection, encoded.
        image: Bytes,
    },
    /// Node: a reply has begun that is worth going on with if this node dies.
    Began {
        /// Which.
        flow: FlowId,
        /// Under which it is held.
        generation: Generation,
        /// `Progress`, encoded.
        progress: Bytes,
    },
    /// Node: the flow has ended here, well or not.
    Ended {
        /// Which.
        flow: FlowId,
        /// Under which it was held.
        generation: Generation,
        /// It was cut: its client may not have heard so.
        is_cut: bool,
    },
    /// Home: give it back as soon as you can; an offer that isn't taken yet, too.
    Recall {
        /// Which.
        flow: FlowId,
        /// Under which it is held.
        generation: Generation,
        /// What of it is meant.
        terms: RecallTerms,
    },
    /// Home: that generation is over. Close what is left of it without a word.
    Release {
        /// Which.
        flow: FlowId,
        /// The one that is over.
        generation: Generation,
    },
    /// Home: what was to be returned stays with you, under another generation.
    Keep {
        /// Which.
        flow: FlowId,
        /// The one that was to be returned.
        generation: Generation,
        /// The one that it becomes.
        next: Generation,
    },
    /// Node: where does the request in hand belong?
    Where {
        /// On which flow.
        flow: FlowId,
        /// Under which it is held.
        generation: Generation,
        /// Which request.
        question: Question,
    },
    /// Home: there.
    There {
        /// On which flow.
        flow: FlowId,
        /// As asked.
        generation: Generation,
        /// As asked.
        number: u32,
        /// The answer.
        there: There,
    },
    /// Home: when to ask, from now on.
    Rules(Rules),
    /// Node: what it has seen. It may be lost.
    Seen(Vec<Sample>),
    /// Home: send one byte, as if on a connection with these ends, and nothing after it. The home sees whether it arrives.
    Probe {
        /// The VIP, and an address of the home's server in the client's place.
        ends: Ends,
        /// The byte's number.
        sequence: u32,
    },
    /// Node: what became of that, as far as it knows.
    Probed {
        /// The byte's number.
        sequence: u32,
        /// It has been sent.
        is_sent: bool,
    },
    /// Home: let another server have this connection of a server that isn't leat, if that has answered all that it was asked.
    Yield {
        /// Which.
        ends: Ends,
        /// The sequence number behind what its client has been let say.
        next: u32,
        /// What its client has of what was said to it.
        acknowledged: u32,
    },
    /// Node: what it has done.
    Yielded {
        /// Which.
        ends: Ends,
        /// As asked.
        next: u32,
        /// The answer.
        answer: Yielding,
        /// What the server's packets have said last of its clock (RFC 7323); 0 where they say nothing of it.
        shown: u32,
    },
    /// Home: it ends, and nobody follows it. What is with you is yours, and you need no lease to speak for it. The nodes of `spread = "l4"` say it to each
    /// other: of your offers none is taken any more.
    Bequeath,
    /// Home: another process of the node can be given what is new, so that this one needn't stay for that.
    Followed {
        /// It may pass sockets to that one: the home takes its word for them. An older home doesn't say so.
        hears_passed: bool,
    },
    /// Node: so it is. It holds nothing of this home's any more.
    Inherited,
    /// Between the nodes of `spread = "l4"`, and between these and fronts: still here.
    Present {
        /// How much there is to do.
        load: Load,
        /// The node's process; a front's means nothing.
        process: Process,
        /// The workers of this server with which there are to be links.
        workers: Vec<u16>,
    },
    /// Such a node, to a front: this flow lives here, whoever has its bucket.
    Lives {
        /// Which.
        flow: FlowId,
        /// Under which it is held.
        generation: Generation,
        /// What its packets are known by.
        ends: Ends,
    },
    /// A front: that flow's packets go where it lives. The node says the same to who has given it the flow, once all fronts have.
    Known {
        /// Which.
        flow: FlowId,
        /// Under which it is held.
        generation: Generation,
    },
}

/// What becomes of a connection that another server is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Yielding {
    /// The server here says nothing on it any more.
    Given = 0,
    /// The server is busy with it.
    Later = 1,
    /// Whether the server has said all isn't known, and won't be.
    Never = 2,
    /// Client and server speak something else than HTTP on it by now.
    Switched = 3,
}

/// How a home wants a flow back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecallTerms {
    /// As soon as that can be: a reply that others can go on with comes along.
    AtOnce,
    /// When a reply under way has ended: the home can't go on with it, and isn't to give it to another node.
    AtRest,
    /// It was to begin there, and nothing has been heard of it: what has begun stays, and its word is on the way.
    IfUnborn,
}

/// A flow that a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Which.
    pub flow: FlowId,
    /// Under which generation.
    pub generation: Generation,
    /// How it's held.
    pub phase: HoldingPhase,
}

/// How a node holds a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HoldingPhase {
    /// It's being thawed; an answer to its offer follows.
    Taking = 0,
    /// It's live.
    Taken = 1,
    /// It's frozen; [`Message::Return`] follows.
    Returning = 2,
    /// It has ended, which the home may not have heard.
    Ended = 3,
    /// Its socket goes to another process of the node, or is there.
    Passing = 4,
}

/// What a node has to do, for the choice of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Flows held.
    pub flows: u32,
    /// Requests in progress.
    pub requests: u32,
    /// Processor time used, in thousandths of what its workers have.
    pub cpu_permille: u32,
    /// Bytes queued to be sent.
    pub queued_bytes: u64,
    /// It takes nothing on any more.
    pub is_draining: bool,
    /// The server there isn't leat: no connection can be offered to it or asked back, and none is in its books.
    pub is_foreign: bool,
    /// Connections can begin at that server all the same.
    pub can_bear: bool,
    /// By its own checks it isn't well.
    pub is_failing: bool,
    /// Connections that were to begin there have found no room in a listener's queue since the last report, or many wait in one.
    pub is_crowded: bool,
    /// It has memory for more contents than those that it's given.
    pub has_memory: bool,
}

/// Why an offer isn't taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[repr(u8)]
pub enum RefuseReason {
    /// It holds as many as it may.
    #[error("the node is full")]
    Full = 1,
    /// It drains.
    #[error("the node drains")]
    Draining = 2,
    /// Its lease has run out.
    #[error("the node's lease has run out")]
    Fenced = 3,
    /// The image isn't understood.
    #[error("the node doesn't understand the image")]
    Image = 4,
    /// An address or port that it may not speak under.
    #[error("the node isn't configured for this address")]
    Address = 5,
    /// The kernel refused.
    #[error("the node's kernel refused")]
    Kernel = 6,
    /// It isn't there, and isn't coming.
    #[error("the node doesn't have it")]
    Absent = 7,
    /// The connection to the node was lost on the way.
    #[error("the offer was lost with its link")]
    Lost = 8,
    /// One that this version has no word for.
    #[error("for a reason that this version has no word for")]
    Other = 255,
}

const REASONS: [RefuseReason; 8] = [
    RefuseReason::Full,
    RefuseReason::Draining,
    RefuseReason::Fenced,
    RefuseReason::Image,
    RefuseReason::Address,
    RefuseReason::Kernel,
    RefuseReason::Absent,
    RefuseReason::Lost,
];

const HELLO: u8 = 1;
const HOLDING: u8 = 3;
const HEARTBEAT: u8 = 5;
const LEASE: u8 = 7;
const OFFER: u8 = 9;
const TAKEN: u8 = 11;
const REFUSED: u8 = 13;
const RETURN: u8 = 15;
const BEGAN: u8 = 16;
const ENDED: u8 = 17;
const RECALL: u8 = 19;
const RELEASE: u8 = 21;
const KEEP: u8 = 23;
const WHERE: u8 = 26;
const THERE: u8 = 28;
const RULES: u8 = 30;
const SEEN: u8 = 32;
const BEQUEATH: u8 = 33;
const INHERITED: u8 = 35;
const PRESENT: u8 = 34;
const LIVES: u8 = 36;
const KNOWN: u8 = 38;
const PROBE: u8 = 40;
const PROBED: u8 = 42;
const FOLLOWED: u8 = 44;
const YIELD: u8 = 46;
const YIELDED: u8 = 48;

/// An offer's terms, a bit each, a recall's, and how a flow has ended; those that aren't known are ignored.
const LENT: u8 = 1;
const UNHEARD: u8 = 1;
const AT_REST: u8 = 2;
const CUT: u8 = 1;

/// The same of a node's load.
const DRAINING: u8 = 1;
const FOREIGN: u8 = 2;
const FAILING: u8 = 4;
const BEARING: u8 = 8;
const CROWDED: u8 = 16;
const MEMORY: u8 = 32;

impl Message {
    /// True for what only a node says, false for what only a home says.
    #[must_use]
    pub fn is_from_node(&self) -> bool {
        !matches!(
            self,
            Message::Lease { .. }
                | Message::Offer { .. }
                | Message::Recall { .. }
                | Message::Release { .. }
                | Message::Keep { .. }
                | Message::There { .. }
                | Message::Rules(_)
                | Message::Probe { .. }
                | Message::Yield { .. }
                | Message::Bequeath
                | Message::Followed { .. }
        )
    }

    fn kind(&self) -> u8 {
        match self {
            Message::Hello { .. } => HELLO,
            Message::Holding { .. } => HOLDING,
            Message::Heartbeat { .. } => HEARTBEAT,
            Message::Lease { .. } => LEASE,
            Message::Offer { .. } => OFFER,
            Message::Taken { .. } => TAKEN,
            Message::Refused { .. } => REFUSED,
            Message::Return { .. } => RETURN,
            Message::Began { .. } => BEGAN,
            Message::Ended { .. } => ENDED,
            Message::Recall { .. } => RECALL,
            Message::Release { .. } => RELEASE,
            Message::Keep { .. } => KEEP,
            Message::Where { .. } => WHERE,
            Message::There { .. } => THERE,
            Message::Rules(_) => RULES,
            Message::Seen(_) => SEEN,
            Message::Bequeath => BEQUEATH,
            Message::Followed { .. } => FOLLOWED,
            Message::Inherited => INHERITED,
            Message::Present { .. } => PRESENT,
            Message::Lives { .. } => LIVES,
            Message::Known { .. } => KNOWN,
            Message::Probe { .. } => PROBE,
            Message::Probed { .. } => PROBED,
            Message::Yield { .. } => YIELD,
            Message::Yielded { .. } => YIELDED,
        }
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind());
        let mut fields = Vec::with_capacity(32);
        self.encode_fields(&mut fields);
        put_bytes(out, &fields);
    }

    fn encode_fields(&self, out: &mut Vec<u8>) {
        match self {
            Message::Hello { incarnation, number, offers_max, process } => {
                put_number(out, incarnation.0);
                put_number(out, *number);
                put_number(out, u64::from(*offers_max));
                process.iter().for_each(|process| encode_process(*process, out));
            }
            Message::Holding { flows, is_last } => {
                out.push(u8::from(*is_last));
                put_number(out, flows.len() as u64);
                for Holding { flow, generation, phase } in flows {
                    encode_key(*flow, *generation, out);
                    out.push(*phase as u8);
                }
            }
            Message::Heartbeat { number, load } => {
                put_number(out, *number);
                encode_load(*load, out);
            }
            Message::Lease { number, duration_ms, homes } => {
                put_number(out, *number);
                put_number(out, u64::from(*duration_ms));
                encode_workers(homes, out);
            }
            Message::Present { load, process, workers } => {
                encode_load(*load, out);
                encode_process(*process, out);
                encode_workers(workers, out);
            }
            Message::Lives { flow, generation, ends } => {
                encode_key(*flow, *generation, out);
                encode_ends(*ends, out);
            }
            Message::Probe { ends, sequence } => {
                encode_ends(*ends, out);
                put_number(out, u64::from(*sequence));
            }
            Message::Probed { sequence, is_sent } => {
                put_number(out, u64::from(*sequence));
                out.push(u8::from(*is_sent));
            }
            Message::Yield { ends, next, acknowledged } => {
                encode_ends(*ends, out);
                put_number(out, u64::from(*next));
                put_number(out, u64::from(*acknowledged));
            }
            Message::Yielded { ends, next, answer, shown } => {
                encode_ends(*ends, out);
                put_number(out, u64::from(*next));
                out.push(*answer as u8);
                put_number(out, u64::from(*shown));
            }
            Message::Offer { flow, generation, image, is_lent } => {
                encode_key(*flow, *generation, out);
                put_bytes(out, image);
                out.push(u8::from(*is_lent));
            }
            Message::Return { flow, generation, image: bytes }
            | Message::Began { flow, generation, progress: bytes } => {
                encode_key(*flow, *generation, out);
                put_bytes(out, bytes);
            }
            Message::Recall { flow, generation, terms } => {
                encode_key(*flow, *generation, out);
                out.push(match terms {
                    RecallTerms::AtOnce => 0,
                    RecallTerms::IfUnborn => UNHEARD,
                    RecallTerms::AtRest => AT_REST,
                });
            }
            Message::Ended { flow, generation, is_cut } => {
                encode_key(*flow, *generation, out);
                out.push(u8::from(*is_cut));
            }
            Message::Taken { flow, generation }
            | Message::Release { flow, generation }
            | Message::Known { flow, generation } => encode_key(*flow, *generation, out),
            Message::Refused { flow, generation, reason } => {
                encode_key(*flow, *generation, out);
                out.push(*reason as u8);
            }
            Message::Keep { flow, generation, next } => {
                encode_key(*flow, *generation, out);
                put_number(out, u64::from(next.0));
            }
            Message::Where { flow, generation, question } => {
                encode_key(*flow, *generation, out);
                question.encode(out);
            }
            Message::There { flow, generation, number, there } => {
                encode_key(*flow, *generation, out);
                put_number(out, u64::from(*number));
                there.encode(out);
            }
            Message::Rules(rules) => rules.encode(out),
            Message::Seen(samples) => encode_samples(samples, out),
            Message::Followed { hears_passed } => out.push((*hears_passed).into()),
            Message::Bequeath | Message::Inherited => {}
        }
    }

    /// Reads one message from the front of `input`. Returns how many bytes it took, and the message: none for one that is skipped. `None`
    /// while it isn't whole.
    ///
    /// # Errors
    /// What is wrong with it: the session must end.
    pub fn decode(input: &[u8]) -> Result<Option<(usize, Option<Message>)>, DecodeError> {
        let Some((kind, length, header)) = read_header(input)? else { return Ok(None) };
        let Some(fields) = input.get(header..header + length) else { return Ok(None) };
        let message = decode_fields(kind, &mut Reader::new(fields))?;
        Ok(Some((header + length, message)))
    }
}

/// Kind, length of the fields, length of both together.
fn read_header(input: &[u8]) -> Result<Option<(u8, usize, usize)>, DecodeError> {
    let mut reader = Reader::new(input);
    let Ok(kind) = reader.byte("the kind") else { return Ok(None) };
    match reader.number_up_to(MESSAGE_BYTES_MAX as u64, "a message's length") {
        Ok(length) => {
            let header = input.len() - reader.remaining();
            Ok(Some((kind, usize::try_from(length).unwrap_or(usize::MAX), header)))
        }
        Err(DecodeError::Truncated(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn decode_fields(kind: u8, reader: &mut Reader<'_>) -> Result<Option<Message>, DecodeError> {
    let message = match kind {
        HELLO => Message::Hello {
            incarnation: Incarnation(reader.number("the incarnation")?),
            number: reader.number("the session's number")?,
            offers_max: reader.number_u32("the credit")?,
            process: if reader.is_empty() { None } else { Some(decode_process(reader)?) },
        },
        HOLDING => decode_holding(reader)?,
        HEARTBEAT => Message::Heartbeat { number: reader.number("the heartbeat")?, load: decode_load(reader)? },
        LEASE => {
            let (number, duration_ms) = (reader.number("the heartbeat")?, reader.number_u32("the lease's duration")?);
            Message::Lease { number, duration_ms, homes: decode_workers(reader)? }
        }
        OFFER | RETURN | BEGAN => {
            let (flow, generation) = decode_key(reader)?;
            let most = if kind == BEGAN { PROGRESS_BYTES_MAX } else { IMAGE_BYTES_MAX };
            let bytes = Bytes::copy_from_slice(reader.bytes(most, "the image")?);
            match kind {
                OFFER => {
                    let is_lent = !reader.is_empty() && reader.byte("the terms")? & LENT != 0;
                    Message::Offer { flow, generation, image: bytes, is_lent }
                }
                RETURN => Message::Return { flow, generation, image: bytes },
                _ => Message::Began { flow, generation, progress: bytes },
            }
        }
        PRESENT => {
            let (load, process) = (decode_load(reader)?, decode_process(reader)?);
            Message::Present { load, process, workers: decode_workers(reader)? }
        }
        LIVES => {
            let (flow, generation) = decode_key(reader)?;
            Message::Lives { flow, generation, ends: decode_ends(reader)? }
        }
        PROBE => Message::Probe { ends: decode_ends(reader)?, sequence: reader.number_u32("the byte's number")? },
        PROBED => {
            let sequence = reader.number_u32("the byte's number")?;
            Message::Probed { sequence, is_sent: reader.byte("whether it was sent")? != 0 }
        }
        YIELD => {
            let (ends, next) = (decode_ends(reader)?, reader.number_u32("what the client has said")?);
            Message::Yield { ends, next, acknowledged: reader.number_u32("what the client has")? }
        }
        YIELDED => {
            let (ends, next) = (decode_ends(reader)?, reader.number_u32("what the client has said")?);
            let answer = match reader.byte("whether it was given")? {
                0 => Yielding::Given,
                1 => Yielding::Later,
                3 => Yielding::Switched,
                _ => Yielding::Never,
            };
            Message::Yielded { ends, next, answer, shown: reader.number_u32("the server's clock")? }
        }
        TAKEN | ENDED | RECALL | RELEASE | KNOWN => {
            let (flow, generation) = decode_key(reader)?;
            match kind {
                TAKEN => Message::Taken { flow, generation },
                ENDED => {
                    let is_cut = !reader.is_empty() && reader.byte("the terms")? & CUT != 0;
                    Message::Ended { flow, generation, is_cut }
                }
                RECALL => {
                    let terms = match if reader.is_empty() { 0 } else { reader.byte("the terms")? } {
                        terms if terms & UNHEARD != 0 => RecallTerms::IfUnborn,
                        terms if terms & AT_REST != 0 => RecallTerms::AtRest,
                        _ => RecallTerms::AtOnce,
                    };
                    Message::Recall { flow, generation, terms }
                }
                KNOWN => Message::Known { flow, generation },
                _ => Message::Release { flow, generation },
            }
        }
        REFUSED => {
            let (flow, generation) = decode_key(reader)?;
            let code = reader.byte("the reason")?;
            let reason = REASONS.into_iter().find(|reason| *reason as u8 == code).unwrap_or(RefuseReason::Other);
            Message::Refused { flow, generation, reason }
        }
        KEEP => {
            let (flow, generation) = decode_key(reader)?;
            Message::Keep { flow, generation, next: Generation(reader.number_u32("the generation")?) }
        }
        WHERE => {
            let (flow, generation) = decode_key(reader)?;
            Message::Where { flow, generation, question: Question::decode(reader)? }
        }
        THERE => {
            let ((flow, generation), number) = (decode_key(reader)?, reader.number_u32("the request's number")?);
            Message::There { flow, generation, number, there: There::decode(reader)? }
        }
        RULES => Message::Rules(Rules::decode(reader)?),
        SEEN => Message::Seen(decode_samples(reader)?),
        BEQUEATH => Message::Bequeath,
        FOLLOWED => {
            Message::Followed { hears_passed: !reader.is_empty() && reader.byte("whether sockets may pass")? != 0 }
        }
        INHERITED => Message::Inherited,
        even if even % 2 == 0 => return Ok(None),
        found => return Err(DecodeError::Unknown { what: "a message's kind", found: u64::from(found) }),
    };
    Ok(Some(message))
}

fn encode_process(process: Process, out: &mut Vec<u8>) {
    put_number(out, process.number);
    out.push(u8::from(process.is_only));
}

fn decode_process(reader: &mut Reader<'_>) -> Result<Process, DecodeError> {
    Ok(Process { number: reader.number("the process")?, is_only: reader.byte("whether it's the only one")? != 0 })
}

fn decode_holding(reader: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let is_last = reader.byte("what a node holds")? != 0;
    let count = reader.number_up_to(FLOWS_PER_MESSAGE_MAX as u64, "the number of flows")?;
    let mut flows = Vec::new();
    for _ in 0..count {
        let (flow, generation) = decode_key(reader)?;
        let phase = match reader.byte("what a node holds")? {
            0 => HoldingPhase::Taking,
            1 => HoldingPhase::Taken,
            2 => HoldingPhase::Returning,
            3 => HoldingPhase::Ended,
            4 => HoldingPhase::Passing,
            found => return Err(DecodeError::Unknown { what: "how a flow is held", found: u64::from(found) }),
        };
        flows.push(Holding { flow, generation, phase });
    }
    Ok(Message::Holding { flows, is_last })
}

fn decode_load(reader: &mut Reader<'_>) -> Result<Load, DecodeError> {
    let (flows, requests) = (reader.number_u32("the load")?, reader.number_u32("the load")?);
    let (cpu_permille, queued_bytes) = (reader.number_u32("the load")?, reader.number("the load")?);
    let flags = if reader.is_empty() { 0 } else { reader.byte("the load")? };
    let has = |flag| flags & flag != 0;
    Ok(Load {
        flows,
        requests,
        cpu_permille,
        queued_bytes,
        is_draining: has(DRAINING),
        is_foreign: has(FOREIGN),
        can_bear: has(BEARING),
        is_failing: has(FAILING),
        is_crowded: has(CROWDED),
        has_memory: has(MEMORY),
    })
}

fn encode_load(load: Load, out: &mut Vec<u8>) {
    let Load { flows, requests, cpu_permille, queued_bytes, .. } = load;
    for number in [u64::from(flows), u64::from(requests), u64::from(cpu_permille), queued_bytes] {
        put_number(out, number);
    }
    let flags = [
        (load.is_draining, DRAINING),
        (load.is_foreign, FOREIGN),
        (load.is_failing, FAILING),
        (load.can_bear, BEARING),
        (load.is_crowded, CROWDED),
        (load.has_memory, MEMORY),
    ];
    out.push(flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag));
}

fn encode_workers(workers: &[u16], out: &mut Vec<u8>) {
    workers.iter().for_each(|worker| put_number(out, u64::from(*worker)));
}

fn decode_workers(reader: &mut Reader<'_>) -> Result<Vec<u16>, DecodeError> {
    let mut workers = Vec::new();
    while !reader.is_empty() && workers.len() < HOMES_MAX {
        workers.push(reader.number_u16("a worker's number")?);
    }
    Ok(workers)
}

fn encode_ends(ends: Ends, out: &mut Vec<u8>) {
    encode_address(ends.client, out);
    encode_address(ends.vip, out);
}

fn decode_ends(reader: &mut Reader<'_>) -> Result<Ends, DecodeError> {
    Ok(Ends { client: decode_address(reader)?, vip: decode_address(reader)? })
}

/// As the steering programs have it: IPv4 mapped into IPv6, then the port.
fn encode_address(address: SocketAddr, out: &mut Vec<u8>) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&address.port().to_be_bytes());
}

fn decode_address(reader: &mut Reader<'_>) -> Result<SocketAddr, DecodeError> {
    let ip = Ipv6Addr::from(reader.array::<16>("an address")?).to_canonical();
    Ok(SocketAddr::new(ip, u16::from_be_bytes(reader.array("a port")?)))
}

fn encode_key(flow: FlowId, generation: Generation, out: &mut Vec<u8>) {
    encode_flow(flow, out);
    put_number(out, u64::from(generation.0));
}

fn decode_key(reader: &mut Reader<'_>) -> Result<(FlowId, Generation), DecodeError> {
    let flow = decode_flow(reader)?;
    Ok((flow, Generation(reader.number_u32("the generation")?)))
}

#[cfg(test)]
mod tests;
