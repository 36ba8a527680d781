//! What a kernel has learnt of the way to a client goes along with a connection that moves: how much may be on its way at once. A kernel lets nobody but a
//! program of its own set that (`programs/congestion.c`), so where there is none it begins anew, as for a new connection.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use aya::maps::{MapData, SkStorage};
use aya::programs::{CgroupAttachMode, SockOps};
use aya::{Ebpf, Pod};
use leat_logic::handoff::Congestion;

use super::repair::Info;
use crate::socket::{borrow, set_option};
use crate::steering::{self, Doing, Error, Result};

/// What a new connection begins with, in segments (RFC 6928).
const WINDOW_START: u32 = 10;

/// No way to a client holds more, and what is reckoned with it stays within a number's limits, whatever another server says.
const WINDOW_MAX: u32 = 1 << 20;

/// Who is nearer than that has lost little when a window begins anew: each doubling takes a round trip.
const NEAR: Duration = Duration::from_millis(2);

/// How fast a window is sent before a round trip has been measured, of one in each: as kernels pace what they have found room for
/// (`tcp_pacing_ca_ratio`).
const PACE_PERCENT: u64 = 120;

/// `struct way` in `programs/congestion.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RawWay {
    window: u32,
    rate: u32,
    round_trip_us: u32,
}

// SAFETY: three numbers, without a gap between them; any bytes are a value.
unsafe impl Pod for RawWay {}

/// The program, attached for as long as the process lives, and what it's told.
struct Ways {
    of_sockets: SkStorage<MapData, RawWay>,
    _programs: Ebpf,
}

/// Of all workers; none where the kernel has refused it. Made for the first connection that has anything to take along, as the kernel calls the program several times
/// for each connection of this process; and beside the workers, as it takes some 40 ms. Connections begin anew until then.
static WAYS: OnceLock<Option<Mutex<Ways>>> = OnceLock::new();
static MAKING: Once = Once::new();

/// Has a socket go on with what is known of its way, once it's connected. `mss`: bytes in a segment. `complain` is told, once for the process, where that isn't
/// possible.
pub(super) fn set(socket: RawFd, known: Congestion, mss: u16, complain: fn(&Error)) {
    if known.cwnd <= WINDOW_START || known.srtt_us == 0 {
        return;
    }
    MAKING.call_once(|| {
        let make = move || drop(WAYS.set(Ways::new().inspect_err(complain).ok().map(Mutex::new)));
        // Where there can't be a thread, another process of this node may have more luck.
        let _ = thread::Builder::new().name("congestion".to_owned()).spawn(make);
    });
    let Some(Some(ways)) = WAYS.get() else { return };
    let window = known.cwnd.min(WINDOW_MAX);
    let bytes = u64::from(window) * u64::from(mss);
    let rate = bytes * 1_000_000 / u64::from(known.srtt_us) * PACE_PERCENT / 100;
    let way = RawWay {
        window,
        // The highest number stands for any rate.
        rate: u32::try_from(rate).unwrap_or(u32::MAX).max(1),
        round_trip_us: known.srtt_us,
    };
    // Without it the connection begins anew.
    let _ = lock(ways).of_sockets.insert(&borrow(socket), way, 0);
}

/// What may go along with a connection: no window with one whose client is near.
pub(super) fn of(socket: RawFd, info: &Info) -> Congestion {
    let known = info.congestion();
    let unmeasured = || lock(WAYS.get()?.as_ref()?).of_sockets.get(&borrow(socket), 0).ok();
    let (window, srtt_us) = match (known.srtt_us == 0).then(unmeasured).flatten() {
        // It has come here, and sent nothing since.
        Some(way) => (way.window, way.round_trip_us),
        None if info.shortest_round_trip() < NEAR => (0, known.srtt_us),
        None => (known.cwnd.min(known.ssthresh), known.srtt_us),
    };
    // As a kernel goes on after a pause (RFC 2861).
    let pauses = info.since_sent().as_micros() / info.resend_timeout().as_micros().max(1);
    let after_pause = window.checked_shr(u32::try_from(pauses).unwrap_or(u32::MAX)).unwrap_or(0);
    Congestion { cwnd: after_pause.max(window.min(WINDOW_START)), srtt_us, ..known }
}

/// A socket goes to another process, whose program doesn't know of it: it's paced no longer by what was known when it came here.
pub fn forget_way(socket: &impl AsRawFd) {
    let Some(Some(ways)) = WAYS.get() else { return };
    let socket = socket.as_raw_fd();
    if lock(ways).of_sockets.remove(&borrow(socket)).is_ok() {
        // As fast as it goes.
        let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, -1);
    }
}

fn lock(ways: &Mutex<Ways>) -> MutexGuard<'_, Ways> {
    ways.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ways {
    fn new() -> Result<Ways> {
        let mut programs = Ebpf::load(include_bytes!("../steering/programs/congestion.o"))
            .doing(|| "loading congestion.o".to_owned())?;
        let lacks = |what: &str| Error::Kernel {
            doing: format!("looking for {what}"),
            reason: "the object doesn't have it".to_owned(),
        };
        let program: &mut SockOps = programs
            .program_mut("go_on")
            .ok_or_else(|| lacks("program go_on"))?
            .try_into()
            .doing(|| "program go_on".to_owned())?;
        steering::load("go_on", || program.load())?;
        // A link stands beside those of others in any mode, and ends with this process.
        let group = own_group().doing(|| "looking for this process's control group".to_owned())?;
        program.attach(group, CgroupAttachMode::Single).doing(|| "attaching program go_on".to_owned())?;
        let map = programs.take_map("ways").ok_or_else(|| lacks("map ways"))?;
        Ok(Ways { of_sockets: SkStorage::try_from(map).doing(|| "map ways".to_owned())?, _programs: programs })
    }
}

/// The control group of this process, which the kernel attaches such programs to.
fn own_group() -> io::Result<File> {
    let none =
        || io::Error::new(io::ErrorKind::NotFound, "no cgroup2 is mounted (`mount -t cgroup2 none /sys/fs/cgroup`)");
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let path = group_in(&mounts, &groups).ok_or_else(none)?;
    File::open(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Where the group is, by `/proc/self/mountinfo` and `/proc/self/cgroup`.
fn group_in(mounts: &str, groups: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        let below = Path::new(group).strip_prefix(root).ok()?;
        kind.starts_with("cgroup2 ").then(|| Path::new(place).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_finds_its_group() {
        let both = "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n35 25 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let found = |mounts, groups| group_in(mounts, groups).map(|path| path.display().to_string());
        assert_eq!(found(both, "4:cpu:/x\n0::/\n").as_deref(), Some("/sys/fs/cgroup/unified/"));
        let all = "35 25 0:31 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        let service = "0::/system.slice/leat.service\n";
        assert_eq!(found(all, service).as_deref(), Some("/sys/fs/cgroup/system.slice/leat.service"));
        let part = "35 25 0:31 /system.slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(found(part, service).as_deref(), Some("/sys/fs/cgroup/leat.service"));
        assert_eq!((found(part, "0::/user.slice\n"), found("", service), found(all, "4:cpu:/x\n")), (None, None, None));
    }
}
