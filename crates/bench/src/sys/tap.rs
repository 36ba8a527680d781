//! Packets that pass loopback, with the kernel's time of each: what a server does, seen from outside of it and of its clients. Which packets are kept,
//! a filter in the kernel says; the others cost the time of asking it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::checked;

/// Of each packet that is kept: its header and the beginning of what it carries.
const FRAME_BYTES: u32 = 256;
const BLOCK_BYTES: u32 = 1 << 20;
const BLOCKS: u32 = 64;
const RING_BYTES: usize = (BLOCK_BYTES * BLOCKS) as usize;
const FRAMES: usize = RING_BYTES / FRAME_BYTES as usize;

// From linux/if_packet.h.
const PACKET_RX_RING: libc::c_int = 5;
const PACKET_STATISTICS: libc::c_int = 6;
const PACKET_VERSION: libc::c_int = 10;
const TPACKET_V2: libc::c_int = 1;
/// The frame is ours.
const TP_STATUS_USER: u32 = 1;
const TP_STATUS_KERNEL: u32 = 0;

/// `struct tpacket_req`
#[repr(C)]
struct RingRequest {
    block_bytes: u32,
    blocks: u32,
    frame_bytes: u32,
    frames: u32,
}

/// `struct tpacket_stats`
#[repr(C)]
#[derive(Default)]
struct Counts {
    packets: u32,
    lost: u32,
}

/// The beginning of `struct tpacket2_hdr`.
#[repr(C)]
struct FrameHeader {
    status: AtomicU32,
    packet_bytes: u32,
    kept_bytes: u32,
    link_offset: u16,
    network_offset: u16,
    seconds: u32,
    nanoseconds: u32,
}

/// Keeps packets until they're asked for.
pub(crate) struct Tap {
    socket: OwnedFd,
    ring: NonNull<u8>,
    next: usize,
}

// SAFETY: the mapping is this value's own, whichever thread has it.
unsafe impl Send for Tap {}

impl Tap {
    /// Keeps what `filter` (a classic BPF program that finds the IP header at 0) says how many bytes of, from now on.
    ///
    /// # Errors
    /// The kernel refuses: it takes CAP_NET_RAW.
    pub(crate) fn open(filter: &[libc::sock_filter]) -> io::Result<Self> {
        let flags = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: plain call; the descriptor it returns is owned right after. Without a protocol it receives nothing yet.
        let socket = unsafe { OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_PACKET, flags, 0))?) };
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        let ring =
            RingRequest { block_bytes: BLOCK_BYTES, blocks: BLOCKS, frame_bytes: FRAME_BYTES, frames: FRAMES as u32 };
        set_option(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        set_option(&socket, libc::SOL_PACKET, PACKET_VERSION, &TPACKET_V2)?;
        set_option(&socket, libc::SOL_PACKET, PACKET_RX_RING, &ring)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of the ring that was just asked for, of its size.
        let ring = unsafe {
            libc::mmap(std::ptr::null_mut(), RING_BYTES, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0)
        };
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let ring = NonNull::new(ring.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let tap = Self { socket, ring, next: 0 };
        tap.bind_to_loopback()?;
        Ok(tap)
    }

    fn bind_to_loopback(&self) -> io::Result<()> {
        // SAFETY: the name ends with a zero byte.
        let interface = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut name: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        name.sll_family = libc::AF_PACKET as u16;
        name.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        name.sll_ifindex = interface as libc::c_int;
        let bytes = size_of_val(&name) as libc::socklen_t;
        // SAFETY: `name` is a live sockaddr_ll and its size is given.
        checked(unsafe { libc::bind(self.socket.as_raw_fd(), std::ptr::from_ref(&name).cast(), bytes) }).map(drop)
    }

    /// Packets for which there was no room since this was last asked.
    pub(crate) fn lost(&self) -> io::Result<u32> {
        let mut counts = Counts::default();
        let mut bytes = size_of::<Counts>() as libc::socklen_t;
        let (to, length) = (std::ptr::from_mut(&mut counts).cast(), &raw mut bytes);
        // SAFETY: the pointers name live values, and the length is that of the first.
        checked(unsafe { libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_PACKET, PACKET_STATISTICS, to, length) })?;
        Ok(counts.lost)
    }

    /// Calls `each` with every packet that has been kept since, in their order: when it passed, in nanoseconds since 1970, and its bytes from the IP
    /// header on.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u64, &[u8])) {
        for _ in 0..FRAMES {
            // SAFETY: `next` is below the number of frames, so that the frame is within the ring, which lives as long as `self`; frames are aligned
            // to their size. The kernel writes to it only while its status isn't ours to see.
            let (header, frame) = unsafe {
                let frame = self.ring.add(self.next * FRAME_BYTES as usize);
                (frame.cast::<FrameHeader>().as_ref(), frame)
            };
            if header.status.load(Ordering::Acquire) & TP_STATUS_USER == 0 {
                return;
            }
            let offset = usize::from(header.network_offset).min(FRAME_BYTES as usize);
            let length = (header.kept_bytes as usize).min(FRAME_BYTES as usize - offset);
            // SAFETY: offset and length are within the frame, which the kernel has left to us.
            let bytes = unsafe { std::slice::from_raw_parts(frame.add(offset).as_ptr(), length) };
            each(u64::from(header.seconds) * 1_000_000_000 + u64::from(header.nanoseconds), bytes);
            header.status.store(TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % FRAMES;
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // SAFETY: the mapping that `open` made, which nothing points into any more. A failure leaves it mapped, which harms nobody.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), RING_BYTES) };
    }
}

fn set_option<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and length name a live value of the type that the option takes.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), bytes) })
        .map(drop)
}
