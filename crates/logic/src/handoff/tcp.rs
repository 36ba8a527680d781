//! The TCP part of an image: what a kernel must be told so that a connection goes on there as if it had never been elsewhere. The host
//! reads and writes it by TCP_REPAIR (tcp(7), `TCP_REPAIR*` in linux/tcp.h); nothing here touches a socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::limits::{QUEUE_BYTES_MAX, UNREAD_BYTES_MAX};
use super::wire::{DecodeError, Reader, put_bytes, put_number};

/// An established connection. Sequence numbers are absolute and wrap at 2^32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpState {
    /// The server's address: the VIP, whichever machine holds the connection.
    pub local: SocketAddr,
    /// The client's address. Of the same family as `local`.
    pub remote: SocketAddr,
    /// The sequence number behind the last byte of `unsent` (`TCP_QUEUE_SEQ` of the send queue, `write_seq`).
    pub send_next: u32,
    /// The sequence number behind the last byte of `unread` (`TCP_QUEUE_SEQ` of the receive queue, `rcv_nxt`).
    pub receive_next: u32,
    /// `TCP_REPAIR_WINDOW`.
    pub window: TcpWindow,
    /// `TCP_MAXSEG`, in bytes.
    pub mss: u16,
    /// Window scale shifts, none when either side left the option out.
    pub window_scale: Option<WindowScale>,
    /// Selective acknowledgements are permitted.
    pub sack: bool,
    /// `TCP_TIMESTAMP`, the value that the client would be shown next, at the time of the freeze; none without timestamps.
    pub timestamp: Option<u32>,
    /// Received by the kernel and not read by the application.
    pub unread: Vec<u8>,
    /// Sent, not acknowledged. Ends `unsent.len()` bytes before `send_next`.
    pub sent: Vec<u8>,
    /// In the send queue, never sent.
    pub unsent: Vec<u8>,
}

/// `struct tcp_repair_window`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpWindow {
    /// Segment of the last window update.
    pub snd_wl1: u32,
    /// The client's window, in bytes.
    pub snd_wnd: u32,
    /// The largest window that the client ever had, in bytes.
    pub max_window: u32,
    /// Our window, in bytes.
    pub rcv_wnd: u32,
    /// `receive_next` when our window was last announced.
    pub rcv_wup: u32,
}

/// The shifts of the window scale option (RFC 7323 section 2), 0 to 14.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowScale {
    /// For windows that the client announces (`tcpi_snd_wscale`).
    pub send: u8,
    /// For windows that we announce (`tcpi_rcv_wscale`).
    pub receive: u8,
}

/// What the giver's kernel had learnt of the path: hints, which the taker's may not be able to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Congestion {
    /// Smoothed round-trip time, in microseconds.
    pub srtt_us: u32,
    /// Its mean deviation, in microseconds.
    pub rttvar_us: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Slow start threshold, in segments.
    pub ssthresh: u32,
}

const FLAG_IPV6: u8 = 1;
const FLAG_SACK: u8 = 2;
const FLAG_WINDOW_SCALE: u8 = 4;
const FLAG_TIMESTAMP: u8 = 8;
const FLAGS: u8 = FLAG_IPV6 | FLAG_SACK | FLAG_WINDOW_SCALE | FLAG_TIMESTAMP;
/// RFC 7323 section 2.3.
const SHIFT_MAX: u8 = 14;

impl TcpState {
    /// The first sequence number that the client hasn't acknowledged (`snd_una`).
    #[must_use]
    pub fn unacknowledged(&self) -> u32 {
        let queued = self.sent.len().saturating_add(self.unsent.len());
        self.send_next.wrapping_sub(u32::try_from(queued).unwrap_or(u32::MAX))
    }

    /// The first sequence number that the application hasn't read.
    #[must_use]
    pub fn first_unread(&self) -> u32 {
        self.receive_next.wrapping_sub(u32::try_from(self.unread.len()).unwrap_or(u32::MAX))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        flags |= u8::from(self.local.is_ipv6()) * FLAG_IPV6;
        flags |= u8::from(self.sack) * FLAG_SACK;
        flags |= u8::from(self.window_scale.is_some()) * FLAG_WINDOW_SCALE;
        flags |= u8::from(self.timestamp.is_some()) * FLAG_TIMESTAMP;
        out.push(flags);
        put_address(out, self.local);
        put_address(out, self.remote);
        for number in [self.send_next, self.receive_next] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        let window = self.window;
        // The first and the last are sequence numbers: near others, so their distance is short.
        put_number(out, u64::from(self.receive_next.wrapping_sub(window.snd_wl1)));
        put_number(out, u64::from(window.snd_wnd));
        put_number(out, u64::from(window.max_window));
        put_number(out, u64::from(window.rcv_wnd));
        put_number(out, u64::from(self.receive_next.wrapping_sub(window.rcv_wup)));
        out.extend_from_slice(&self.mss.to_be_bytes());
        if let Some(scale) = self.window_scale {
            out.push(scale.send << 4 | scale.receive);
        }
        if let Some(timestamp) = self.timestamp {
            out.extend_from_slice(&timestamp.to_be_bytes());
        }
        put_bytes(out, &self.unread);
        put_bytes(out, &self.sent);
        put_bytes(out, &self.unsent);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<TcpState, DecodeError> {
        let flags = reader.byte("TCP flags")?;
        if flags & !FLAGS != 0 {
            return Err(DecodeError::Unknown { what: "TCP flags", found: u64::from(flags) });
        }
        let has = |flag| flags & flag != 0;
        let local = read_address(reader, has(FLAG_IPV6))?;
        let remote = read_address(reader, has(FLAG_IPV6))?;
        let send_next = u32::from_be_bytes(reader.array("sequence numbers")?);
        let receive_next = u32::from_be_bytes(reader.array("sequence numbers")?);
        let window = TcpWindow {
            snd_wl1: receive_next.wrapping_sub(reader.number_u32("the window")?),
            snd_wnd: reader.number_u32("the window")?,
            max_window: reader.number_u32("the window")?,
            rcv_wnd: reader.number_u32("the window")?,
            rcv_wup: receive_next.wrapping_sub(reader.number_u32("the window")?),
        };
        let mss = u16::from_be_bytes(reader.array("the segment size")?);
        let window_scale = if has(FLAG_WINDOW_SCALE) { Some(read_scale(reader)?) } else { None };
        let timestamp =
            if has(FLAG_TIMESTAMP) { Some(u32::from_be_bytes(reader.array("the timestamp")?)) } else { None };
        let unread = reader.bytes(UNREAD_BYTES_MAX, "the unread bytes")?.to_vec();
        let sent = reader.bytes(QUEUE_BYTES_MAX, "the sent bytes")?.to_vec();
        let unsent = reader.bytes(QUEUE_BYTES_MAX - sent.len(), "the unsent bytes")?.to_vec();
        Ok(TcpState {
            local,
            remote,
            send_next,
            receive_next,
            window,
            mss,
            window_scale,
            sack: has(FLAG_SACK),
            timestamp,
            unread,
            sent,
            unsent,
        })
    }
}

impl Congestion {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.srtt_us, self.rttvar_us, self.cwnd, self.ssthresh] {
            put_number(out, u64::from(number));
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Congestion, DecodeError> {
        Ok(Congestion {
            srtt_us: reader.number_u32("a congestion hint")?,
            rttvar_us: reader.number_u32("a congestion hint")?,
            cwnd: reader.number_u32("a congestion hint")?,
            ssthresh: reader.number_u32("a congestion hint")?,
        })
    }
}

fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

fn read_address(reader: &mut Reader<'_>, is_ipv6: bool) -> Result<SocketAddr, DecodeError> {
    let ip = if is_ipv6 {
        IpAddr::V6(Ipv6Addr::from(reader.array::<16>("an address")?))
    } else {
        IpAddr::V4(Ipv4Addr::from(reader.array::<4>("an address")?))
    };
    Ok(SocketAddr::new(ip, u16::from_be_bytes(reader.array("an address")?)))
}

fn read_scale(reader: &mut Reader<'_>) -> Result<WindowScale, DecodeError> {
    let both = reader.byte("the window scale")?;
    let scale = WindowScale { send: both >> 4, receive: both & 0xF };
    let largest = scale.send.max(scale.receive);
    if largest > SHIFT_MAX {
        let (found, most) = (u64::from(largest), u64::from(SHIFT_MAX));
        return Err(DecodeError::TooLarge { what: "the window scale", found, most });
    }
    Ok(scale)
}
