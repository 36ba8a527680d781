//! Taps: network interfaces of which this process is the other end. What becomes of the packets is the caller's.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

use crate::namespace;

/// `struct virtio_net_hdr` in front of each frame: which segments it consists of, and whether its checksum is still to be made. It goes back with
/// the frame as it came, so that a burst stays a few frames.
pub(crate) const OFFLOADS: usize = 10;

/// The largest that the kernel makes of segments it has joined, and what it says about them.
pub const FRAME_BYTES_MAX: usize = OFFLOADS + 14 + 65_536;

/// See the module. Each frame begins with what the kernel says about it, and is written with that.
#[derive(Debug)]
pub struct Tap {
    descriptor: OwnedFd,
    name: String,
}

impl Tap {
    /// Makes one, with the first free name of a pattern like `leat%d`. It's gone when this is dropped.
    ///
    /// # Errors
    /// The kernel refuses: no CAP_NET_ADMIN, or no /dev/net/tun.
    pub(crate) fn make(pattern: &[u8]) -> io::Result<Tap> {
        open(pattern, true)
    }

    /// Becomes the other end of one that exists in a network namespace. Without `offloads` the kernel sends each packet by itself.
    ///
    /// # Errors
    /// There is no such namespace, or no such tap in it, or somebody else is its other end.
    pub fn attach(place: &Path, name: &str, offloads: bool) -> io::Result<Tap> {
        namespace::within(place, || open(name.as_bytes(), offloads))
    }

    /// What it's called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The next frame, if there is one.
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        // It blocks never, and fails otherwise only when the interface was taken down: then nothing comes.
        let count = rustix::io::read(&self.descriptor, &mut *buffer).ok()?;
        buffer.get(..count)
    }

    /// Sends a frame. One that is refused is lost, as it may be on any network.
    pub fn write(&self, frame: &[u8]) {
        let _ = rustix::io::write(&self.descriptor, frame);
    }

    /// Waits until one of two has a frame, but no longer than that.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(taps: [&Tap; 2], longest: Option<Duration>) -> io::Result<()> {
        let mut polled = taps.map(|tap| PollFd::new(tap, PollFlags::IN));
        let longest = longest.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut polled, longest.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Where taps are made.
const DEVICE: &str = "/dev/net/tun";

/// The cure with it, as udev has seen to on most systems.
fn unopened(error: io::Error) -> io::Error {
    let cure = match error.kind() {
        io::ErrorKind::PermissionDenied => "let whoever leat runs as open it: chmod 666 /dev/net/tun",
        io::ErrorKind::NotFound => "modprobe tun makes it, or mknod -m 666 /dev/net/tun c 10 200",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{DEVICE} can't be opened ({error}); {cure}"))
}

fn open(name: &[u8], offloads: bool) -> io::Result<Tap> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let descriptor = rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(|error| unopened(error.into()))?;
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, which `request` is.
    if unsafe { libc::ioctl(descriptor.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let all = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let offloads = if offloads { all } else { 0 };
    // SAFETY: TUNSETOFFLOAD reads nothing but the number itself.
    if unsafe { libc::ioctl(descriptor.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| char::from(byte.cast_unsigned()));
    let name = name.collect();
    Ok(Tap { descriptor, name })
}

pub(crate) fn interface_request(name: &[u8]) -> libc::ifreq {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    for (to, from) in request.ifr_name.iter_mut().zip(name).take(libc::IFNAMSIZ - 1) {
        *to = from.cast_signed();
    }
    request
}
