//! The giving side: a live socket becomes a [`TcpState`], and is closed without a word or goes on.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use leat_logic::handoff::{Congestion, TcpState, WindowScale};
use rustix::net::RecvFlags;

use super::congestion;
use super::deaf::Deafness;
use super::repair::{self, Counts, Info, Queue};
use super::{Error, Freezer, QUEUE_BYTES_MAX, Result, Step, UNREAD_BYTES_MAX};
use crate::socket;

const ESTABLISHED: u8 = 1;

/// How far a frozen connection's clock is put back. Repair stops data, but not an acknowledgement whose time has come: its timestamp would be
/// ahead of the taker's clock, and the client would take what the taker says for old segments (RFC 7323, section 5). One from the past it drops.
const PAST: u32 = 1 << 30;

/// A connection that isn't frozen, because of the error; it goes on as before.
#[derive(Debug)]
pub struct Refused {
    /// The connection.
    pub socket: OwnedFd,
    /// Why it couldn't be.
    pub error: Error,
}

/// Where a connection stood that went on here: what has come since is counted from there, and the kernel isn't asked for what it knows anew.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    counts: Counts,
    unacknowledged: u32,
    receive_next: u32,
    mss: u16,
}

impl Known {
    /// The next numbers of both sides, if the client has acknowledged all.
    fn next(&self, info: &Info) -> Option<(u32, u32)> {
        let since = |now: u64, then: u64| now.wrapping_sub(then) as u32;
        info.has_all_acknowledged().then(|| {
            (
                self.unacknowledged.wrapping_add(since(info.counts.acknowledged, self.counts.acknowledged)),
                self.receive_next.wrapping_add(since(info.counts.received, self.counts.received)),
            )
        })
    }
}

/// A connection that hears nothing and says nothing. Dropping it is as good as [`Frozen::close_silently`].
#[derive(Debug)]
#[must_use = "dropping it closes the connection without a word"]
pub struct Frozen {
    socket: OwnedFd,
    state: TcpState,
    congestion: Congestion,
    counts: Counts,
}

impl Freezer {
    /// Stops a connection and reads what the kernel knows of it. Its packets are to be steered elsewhere before: those that still arrive here
    /// are lost, and clients wait for as long as their retransmission timer says. No receive or send may be under way on the socket.
    ///
    /// # Errors
    /// The socket as it was, and the step that failed.
    pub fn freeze(&self, socket: OwnedFd) -> std::result::Result<Frozen, Refused> {
        match socket::ends(&socket).step("getsockname") {
            Ok(ends) => self.freeze_between(ends, socket, None),
            Err(error) => Err(Refused { socket, error }),
        }
    }

    /// As [`Freezer::freeze`], of a connection whose ends are known, this side's first, and perhaps where it stood when it was frozen before.
    ///
    /// # Errors
    /// As [`Freezer::freeze`].
    pub fn freeze_between(
        &self,
        ends: (SocketAddr, SocketAddr),
        socket: OwnedFd,
        known: Option<Known>,
    ) -> std::result::Result<Frozen, Refused> {
        match self.stop(ends, socket.as_raw_fd(), known) {
            Ok((state, info)) => {
                let congestion = congestion::of(socket.as_raw_fd(), &info);
                Ok(Frozen { socket, state, congestion, counts: info.counts })
            }
            Err(error) => {
                // What wasn't begun can't be ended: these fail then, and nothing is lost.
                let _ = go_on(socket.as_raw_fd(), true);
                Err(Refused { socket, error })
            }
        }
    }

    fn stop(&self, ends: (SocketAddr, SocketAddr), socket: RawFd, known: Option<Known>) -> Result<(TcpState, Info)> {
        // First of all: what TCP acknowledges after it was read here would be lost.
        self.deafness.begin(socket).step("SO_ATTACH_BPF")?;
        repair::begin(socket).step("TCP_REPAIR")?;
        let (state, info) = read(ends, socket, known)?;
        // Last, as a failure before it leaves the clock as it was.
        if let Some(timestamp) = state.timestamp {
            repair::set_timestamp(socket, timestamp.wrapping_sub(PAST)).step("TCP_TIMESTAMP")?;
        }
        Ok((state, info))
    }
}

impl Frozen {
    /// What the kernel knew.
    #[must_use]
    pub fn state(&self) -> &TcpState {
        &self.state
    }

    /// What it had learnt of the path: with no more than a new connection's window, if another kernel has nothing of it.
    #[must_use]
    pub fn congestion(&self) -> Congestion {
        self.congestion
    }

    /// How far it has come since it was accepted or thawed here: bytes that the client has acknowledged, and bytes of the client's that were read.
    #[must_use]
    pub fn come(&self) -> (u64, u64) {
        (self.counts.acknowledged, self.counts.received.saturating_sub(self.state.unread.len() as u64))
    }

    /// Where it stands.
    #[must_use]
    pub fn known(&self) -> Known {
        let TcpState { receive_next, mss, .. } = self.state;
        Known { counts: self.counts, unacknowledged: self.state.unacknowledged(), receive_next, mss }
    }

    /// Ends this side's part: no FIN, no reset. Only once somebody else has the connection and its packets are steered there.
    pub fn close_silently(self) {
        // Not by the close alone: a process that is just being started has a copy of every descriptor until it executes its program. Where this
        // fails, the close does the same, later.
        let _ = rustix::net::connect_unspec(&self.socket);
    }

    /// Goes on here: the other side didn't take it.
    ///
    /// # Errors
    /// The step that failed; the connection is lost.
    pub fn resume(self) -> Result<OwnedFd> {
        if let Some(timestamp) = self.state.timestamp {
            repair::set_timestamp(self.socket.as_raw_fd(), timestamp.wrapping_add(2)).step("TCP_TIMESTAMP")?;
        }
        go_on(self.socket.as_raw_fd(), self.may_have_missed())?;
        Ok(self.socket)
    }

    /// Whether something that it didn't hear would be missed: an acknowledgement, or that the client has room again.
    fn may_have_missed(&self) -> bool {
        let TcpState { sent, unsent, window, mss, .. } = &self.state;
        !sent.is_empty() || !unsent.is_empty() || window.snd_wnd < u32::from(*mss)
    }
}

fn go_on(socket: RawFd, probe: bool) -> Result<()> {
    let heard = Deafness::end(socket).step("SO_DETACH_FILTER");
    repair::end(socket, probe).step("TCP_REPAIR off")?;
    // Repair leaves the address unshareable, and a listener on it couldn't be bound again.
    socket::set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).step("SO_REUSEADDR")?;
    heard
}

fn read((local, remote): (SocketAddr, SocketAddr), socket: RawFd, known: Option<Known>) -> Result<(TcpState, Info)> {
    let info = repair::info(socket).step("TCP_INFO")?;
    if info.state != ESTABLISHED {
        return Err(Error::NotEstablished { state: info.state });
    }
    let next = known.and_then(|known| known.next(&info));
    let (receive_next, unread) = read_receive_queue(socket, next.map(|(_, receive)| receive))?;
    let (send_next, sent, unsent) = match next {
        Some((send, _)) => (send, Vec::new(), Vec::new()),
        None => read_send_queue(socket, &info)?,
    };
    let mss = match known {
        Some(known) => known.mss,
        None => {
            let mss = socket::option(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG).step("TCP_MAXSEG")?;
            u16::try_from(mss).unwrap_or(u16::MAX)
        }
    };
    let timestamp = repair::timestamp(socket).step("TCP_TIMESTAMP")?;
    let state = TcpState {
        local,
        remote,
        send_next,
        receive_next,
        window: repair::window(socket).step("TCP_REPAIR_WINDOW")?,
        mss,
        window_scale: (info.options & repair::OPTION_WINDOW_SCALE != 0)
            .then_some(WindowScale { send: info.window_scales & 15, receive: info.window_scales >> 4 }),
        sack: info.options & repair::OPTION_SACK != 0,
        timestamp: (info.options & repair::OPTION_TIMESTAMPS != 0).then_some(timestamp),
        unread,
        sent,
        unsent,
    };
    Ok((state, info))
}

fn read_receive_queue(socket: RawFd, known: Option<u32>) -> Result<(u32, Vec<u8>)> {
    if let (Some(next), 0) = (known, repair::unread_bytes(socket).step("SIOCINQ")?) {
        return Ok((next, Vec::new()));
    }
    repair::select(socket, Queue::Receive).step("TCP_REPAIR_QUEUE receive")?;
    let next = repair::sequence(socket).step("TCP_QUEUE_SEQ of the receive queue")?;
    let bytes = repair::unread_bytes(socket).step("SIOCINQ")?;
    Ok((next, peek(socket, bytes, "unread", UNREAD_BYTES_MAX)?))
}

/// The number after the last byte, what was sent, and what wasn't. `info`: what was known before.
fn read_send_queue(socket: RawFd, info: &Info) -> Result<(u32, Vec<u8>, Vec<u8>)> {
    repair::select(socket, Queue::Send).step("TCP_REPAIR_QUEUE send")?;
    let next = repair::sequence(socket).step("TCP_QUEUE_SEQ of the send queue")?;
    if info.has_all_acknowledged() {
        return Ok((next, Vec::new(), Vec::new()));
    }
    // Until the queue is selected a pacing timer goes on sending. A taker that doesn't know of it drops each acknowledgement of it, for ever; and
    // what it takes for sent that wasn't, the client waits for until the taker sends it again, a second later.
    let unsent_bytes = info.unsent_by(&repair::info(socket).step("TCP_INFO")?);
    let bytes = repair::unacknowledged_bytes(socket).step("SIOCOUTQ")?;
    let mut sent = peek(socket, bytes, "unacknowledged", QUEUE_BYTES_MAX)?;
    let unsent = sent.split_off(bytes.saturating_sub(unsent_bytes));
    Ok((next, sent, unsent))
}

/// All of the selected queue, which stays as it is.
fn peek(socket: RawFd, bytes: usize, queue: &'static str, most: usize) -> Result<Vec<u8>> {
    if bytes > most {
        return Err(Error::TooMuchQueued { queue, bytes, most });
    }
    let mut content = vec![0; bytes];
    if bytes == 0 {
        return Ok(content);
    }
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let (count, _) = rustix::net::recv(socket::borrow(socket), &mut content[..], flags).step("recv(MSG_PEEK)")?;
    if count != bytes {
        let message = format!("{count} of {bytes} {queue} bytes could be read");
        return Err(std::io::Error::other(message)).step("recv(MSG_PEEK)");
    }
    Ok(content)
}
