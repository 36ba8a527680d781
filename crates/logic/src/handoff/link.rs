//! One connection between two servers: proves to each that the other knows the shared key, then carries messages, encrypted and in order. No
//! I/O: bytes go in and come out, messages come out and go in. `docs/link.md` has the format.
//!
//! Noise `NNpsk0_25519_ChaChaPoly_BLAKE2s` by the crate `snow`. Anything that isn't exactly the next frame of this very connection ends it.

use std::fmt;
use std::time::Duration;

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState, TransportState};

use super::ServerId;
use super::limits::{LINK_INBOX_BYTES_MAX, LINK_OUTBOX_BYTES_MAX};
use super::message::Message;
use super::wire::{DecodeError, Reader, put_number};
use crate::time::Instant;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Mixed into the handshake: who speaks another version fails there.
const PROLOGUE: &[u8] = b"leat link 1";
/// What makes the Noise key of a secret (BLAKE3 in key derivation mode).
const KEY_CONTEXT: &str = "leat link 1 shared key";
const COOKIE_CONTEXT: &str = "leat born 1 cookie key";
const FRAME_BYTES_MAX: usize = 65_535;
const TAG_BYTES: usize = 16;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A secret that is shorter can be guessed.
pub const SECRET_BYTES_MIN: usize = 32;

/// The key that all servers of a cluster share.
#[derive(Clone)]
pub struct LinkKey([u8; 32]);

impl LinkKey {
    /// From a secret of [`SECRET_BYTES_MIN`] bytes or more, such as the content of a key file. `None` for less.
    #[must_use]
    pub fn from_secret(secret: &[u8]) -> Option<LinkKey> {
        (secret.len() >= SECRET_BYTES_MIN).then(|| LinkKey(blake3::derive_key(KEY_CONTEXT, secret)))
    }
}

/// The key of the cookies by which connections begin at nodes, from the same secret. Who has it can't tell the secret or the links' key.
#[must_use]
pub fn cookie_key(secret: &[u8]) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::derive_key(COOKIE_CONTEXT, secret)[..16]);
    key
}

impl fmt::Debug for LinkKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LinkKey")
    }
}

/// Why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer doesn't know the key, speaks another version, or somebody changed what it sent.
    #[error("the peer couldn't prove that it knows the shared key: compare `key_file` and version on both servers")]
    Unproved,
    /// The peer says that it is this server.
    #[error("the peer says that it's server {0}, which is this one: give each server its own number")]
    Itself(u32),
    /// A frame was changed, replayed, left out or made up.
    #[error("a frame isn't the next one of this connection")]
    Forged,
    /// What was in a frame makes no sense.
    #[error(transparent)]
    Message(#[from] DecodeError),
    /// Too slow.
    #[error("the peer didn't finish its handshake within {} s", HANDSHAKE_TIMEOUT.as_secs())]
    Timeout,
    /// The peer takes less than it is sent.
    #[error("{LINK_OUTBOX_BYTES_MAX} bytes wait to be sent: the peer is too slow")]
    Full,
    /// It has ended before.
    #[error("the link has ended")]
    Ended,
}

enum State {
    /// A message of the handshake is owed by the peer.
    Awaiting(Box<HandshakeState>),
    /// The keys are there, and the peer hasn't shown yet that it has them.
    Unconfirmed(Box<TransportState>),
    Open(Box<TransportState>),
    Ended,
}

/// See the module. After an error the connection is to be closed.
pub struct LinkSession {
    own: ServerId,
    peer: ServerId,
    state: State,
    expires: Instant,
    /// An incomplete frame.
    frame: Vec<u8>,
    /// Decrypted, not taken.
    inbox: Vec<u8>,
    /// Of the inbox: given out already.
    taken: usize,
    /// To be encrypted.
    outbox: Vec<u8>,
    /// To be sent as it is.
    sealed: Vec<u8>,
}

impl LinkSession {
    /// The side that connected. `entropy`: 32 random bytes that are used for nothing else, ever.
    ///
    /// # Errors
    /// [`LinkError::Unproved`] if the handshake can't even begin.
    pub fn connect(now: Instant, own: ServerId, key: &LinkKey, entropy: [u8; 32]) -> Result<LinkSession, LinkError> {
        let mut handshake = builder(key, entropy)?.build_initiator().map_err(unproved)?;
        let mut session = LinkSession::new(now, own, State::Ended);
        session.write_handshake(&mut handshake)?;
        session.state = State::Awaiting(Box::new(handshake));
        Ok(session)
    }

    /// The side that accepted. `entropy`: as for [`LinkSession::connect`].
    ///
    /// # Errors
    /// [`LinkError::Unproved`] if the handshake can't even begin.
    pub fn accept(now: Instant, own: ServerId, key: &LinkKey, entropy: [u8; 32]) -> Result<LinkSession, LinkError> {
        let handshake = builder(key, entropy)?.build_responder().map_err(unproved)?;
        Ok(LinkSession::new(now, own, State::Awaiting(Box::new(handshake))))
    }

    fn new(now: Instant, own: ServerId, state: State) -> LinkSession {
        LinkSession {
            own,
            peer: own,
            state,
            expires: now.after(HANDSHAKE_TIMEOUT),
            frame: Vec::new(),
            inbox: Vec::new(),
            taken: 0,
            outbox: Vec::new(),
            sealed: Vec::new(),
        }
    }

    /// The peer, once it has proved that it knows the key. Messages count from then on.
    #[must_use]
    pub fn peer(&self) -> Option<ServerId> {
        matches!(self.state, State::Open(_)).then_some(self.peer)
    }

    /// Takes bytes from the connection. Returns how many were taken: fewer than all when messages are waiting to be polled first.
    ///
    /// # Errors
    /// Why the link has ended.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<usize, LinkError> {
        self.inbox.drain(..self.taken);
        self.taken = 0;
        let mut consumed = 0;
        while consumed < input.len() && self.inbox.len() < LINK_INBOX_BYTES_MAX {
            let missing = self.frame_length() - self.frame.len();
            let piece = &input[consumed..input.len().min(consumed + missing)];
            self.frame.extend_from_slice(piece);
            consumed += piece.len();
            if self.frame.len() >= 2 && self.frame.len() == self.frame_length() {
                let frame = std::mem::take(&mut self.frame);
                let handled = self.handle_frame(&frame[2..]);
                self.frame = frame;
                self.frame.clear();
                if let Err(error) = handled {
                    self.state = State::Ended;
                    return Err(error);
                }
            }
        }
        Ok(consumed)
    }

    /// The next message from the peer.
    ///
    /// # Errors
    /// Why the link has ended.
    pub fn poll_message(&mut self) -> Result<Option<Message>, LinkError> {
        if !matches!(self.state, State::Open(_)) {
            return Ok(None);
        }
        loop {
            match Message::decode(&self.inbox[self.taken..]) {
                Ok(Some((length, message))) => {
                    self.taken += length;
                    if message.is_some() {
                        return Ok(message);
                    }
                }
                Ok(None) => {
                    self.inbox.drain(..self.taken);
                    self.taken = 0;
                    return Ok(None);
                }
                Err(error) => {
                    self.state = State::Ended;
                    return Err(error.into());
                }
            }
        }
    }

    /// Puts a message behind those that wait to be sent. All that have been queued when [`LinkSession::poll_output`] is called share frames.
    ///
    /// # Errors
    /// [`LinkError::Full`]: the link has ended, as leaving out a message would break what both sides rely on.
    pub fn queue(&mut self, message: &Message) -> Result<(), LinkError> {
        if matches!(self.state, State::Ended) {
            return Err(LinkError::Ended);
        }
        message.encode(&mut self.outbox);
        if self.outbox.len() > LINK_OUTBOX_BYTES_MAX {
            self.state = State::Ended;
            return Err(LinkError::Full);
        }
        Ok(())
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Appends to `out` what is to be sent now. Call it when the connection has taken what it was given before: what waits meanwhile is
    /// bounded here, not there.
    ///
    /// # Errors
    /// Why the link has ended.
    pub fn poll_output(&mut self, out: &mut Vec<u8>) -> Result<(), LinkError> {
        out.append(&mut self.sealed);
        let State::Open(transport) = &mut self.state else { return Ok(()) };
        for plain in self.outbox.chunks(FRAME_BYTES_MAX - TAG_BYTES) {
            seal(transport, plain, out)?;
        }
        self.outbox.clear();
        Ok(())
    }

    /// When [`LinkSession::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        if matches!(self.state, State::Open(_) | State::Ended) { Instant::NEVER } else { self.expires }
    }

    /// Time has passed.
    ///
    /// # Errors
    /// [`LinkError::Timeout`] when the handshake has taken too long.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), LinkError> {
        if self.poll_timeout() > now {
            return Ok(());
        }
        self.state = State::Ended;
        Err(LinkError::Timeout)
    }

    /// Of the frame that is coming, with its length in front.
    fn frame_length(&self) -> usize {
        match self.frame.first_chunk() {
            Some(&length) => 2 + usize::from(u16::from_be_bytes(length)),
            None => 2,
        }
    }

    fn handle_frame(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Awaiting(mut handshake) => {
                self.read_handshake(&mut handshake, frame)?;
                if handshake.is_initiator() {
                    let mut transport = handshake.into_transport_mode().map_err(unproved)?;
                    // An empty frame shows the peer that the keys are there, so that it needn't wait for a message.
                    seal(&mut transport, &[], &mut self.sealed)?;
                    self.state = State::Open(Box::new(transport));
                } else {
                    self.write_handshake(&mut handshake)?;
                    let transport = handshake.into_transport_mode().map_err(unproved)?;
                    self.state = State::Unconfirmed(Box::new(transport));
                }
                Ok(())
            }
            State::Unconfirmed(mut transport) => {
                self.open(&mut transport, frame).map_err(|_| LinkError::Unproved)?;
                self.state = State::Open(transport);
                Ok(())
            }
            State::Open(mut transport) => {
                self.open(&mut transport, frame)?;
                self.state = State::Open(transport);
                Ok(())
            }
            State::Ended => Err(LinkError::Ended),
        }
    }

    fn open(&mut self, transport: &mut TransportState, frame: &[u8]) -> Result<(), LinkError> {
        let start = self.inbox.len();
        self.inbox.resize(start + frame.len(), 0);
        let length = transport.read_message(frame, &mut self.inbox[start..]).map_err(|_| LinkError::Forged)?;
        self.inbox.truncate(start + length);
        Ok(())
    }

    fn write_handshake(&mut self, handshake: &mut HandshakeState) -> Result<(), LinkError> {
        let mut payload = Vec::new();
        put_number(&mut payload, u64::from(self.own.0));
        let mut message = [0; 128];
        let length = handshake.write_message(&payload, &mut message).map_err(unproved)?;
        push_frame(&message[..length], &mut self.sealed);
        Ok(())
    }

    fn read_handshake(&mut self, handshake: &mut HandshakeState, frame: &[u8]) -> Result<(), LinkError> {
        let mut payload = vec![0; frame.len()];
        let length = handshake.read_message(frame, &mut payload).map_err(unproved)?;
        // More may follow in later versions.
        self.peer = ServerId(Reader::new(&payload[..length]).number_u32("the peer's number")?);
        if self.peer == self.own { Err(LinkError::Itself(self.own.0)) } else { Ok(()) }
    }
}

impl fmt::Debug for LinkSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LinkSession")
            .field("own", &self.own)
            .field("peer", &self.peer())
            .finish_non_exhaustive()
    }
}

fn builder(key: &LinkKey, entropy: [u8; 32]) -> Result<Builder<'_>, LinkError> {
    let pattern = PATTERN.parse().map_err(unproved)?;
    Builder::with_resolver(pattern, Box::new(Resolver { entropy }))
        .prologue(PROLOGUE)
        .and_then(|builder| builder.psk(0, &key.0))
        .map_err(unproved)
}

fn unproved(_: snow::Error) -> LinkError {
    LinkError::Unproved
}

fn seal(transport: &mut TransportState, plain: &[u8], out: &mut Vec<u8>) -> Result<(), LinkError> {
    let length = plain.len() + TAG_BYTES;
    out.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    let start = out.len();
    out.resize(start + length, 0);
    transport.write_message(plain, &mut out[start..]).map_err(|_| LinkError::Ended)?;
    Ok(())
}

fn push_frame(frame: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u16::try_from(frame.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(frame);
}

/// `snow`'s own primitives but for ring's cipher, which takes a seventh of the time for messages of some hundred bytes; with the host's randomness:
/// nothing here draws any.
struct Resolver {
    entropy: [u8; 32],
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Entropy(Some(self.entropy))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        RingResolver.resolve_cipher(choice)
    }
}

/// Bytes that are given out once: the one ephemeral key of a handshake.
struct Entropy(Option<[u8; 32]>);

impl Random for Entropy {
    fn try_fill_bytes(&mut self, target: &mut [u8]) -> Result<(), snow::Error> {
        match self.0.take() {
            Some(bytes) if bytes.len() == target.len() => {
                target.copy_from_slice(&bytes);
                Ok(())
            }
            _ => Err(snow::Error::Rng),
        }
    }
}

#[cfg(test)]
mod tests;
