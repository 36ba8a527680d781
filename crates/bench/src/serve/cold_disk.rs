//! A slow disk for one server: its reads are throttled by a control group of its own.
//!
//! Takes the `blkio` controller of cgroup v1 or `io` of v2, whichever is mounted. Only the given processes are slowed
//! down; only the given files leave the page cache.

use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cleanup;
use crate::sys::file;

/// How fast the disk may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throttle {
    pub(crate) read_bytes_per_s: u64,
    pub(crate) reads_per_s: u64,
}

/// A control group, removed when dropped; its processes must have ended by then.
pub(crate) struct SlowDisk {
    group: PathBuf,
}

impl SlowDisk {
    /// Throttles the device that `folder` lies on.
    ///
    /// # Errors
    /// No controller, not allowed, or `folder` isn't on a block device.
    pub(crate) fn create(folder: &Path, throttle: Throttle) -> io::Result<Self> {
        let device = fs::metadata(folder)?.st_dev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        if major == 0 {
            let message = format!("{} isn't on a block device: give one with --disk-folder", folder.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let name = format!("leat-bench-{}", std::process::id());
        let Throttle { read_bytes_per_s, reads_per_s } = throttle;
        let v1 = Path::new("/sys/fs/cgroup/blkio");
        if v1.is_dir() {
            let slow = Self::make(v1.join(name))?;
            slow.set("blkio.throttle.read_bps_device", &format!("{major}:{minor} {read_bytes_per_s}"))?;
            slow.set("blkio.throttle.read_iops_device", &format!("{major}:{minor} {reads_per_s}"))?;
            return Ok(slow);
        }
        let root = Path::new("/sys/fs/cgroup");
        // Refused where it is already on for all children; the next line shows whether it is.
        let _ = fs::write(root.join("cgroup.subtree_control"), "+io");
        let slow = Self::make(root.join(name))?;
        slow.set("io.max", &format!("{major}:{minor} rbps={read_bytes_per_s} riops={reads_per_s}"))?;
        Ok(slow)
    }

    fn make(group: PathBuf) -> io::Result<Self> {
        fs::create_dir(&group).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(io::Error::new(error.kind(), format!("control group {}: {error}", group.display()))),
        })?;
        cleanup::remove_at_end(&group);
        Ok(Self { group })
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        let path = self.group.join(file);
        fs::write(&path, value).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// Slows these processes down, with all their threads.
    pub(crate) fn take(&self, pids: &[u32]) -> io::Result<()> {
        pids.iter().try_for_each(|pid| self.set("cgroup.procs", &pid.to_string()))
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // A group that still has processes stays, empty of meaning once they end.
        let _ = fs::remove_dir(&self.group);
        cleanup::removed(&self.group);
    }
}

/// Drops every file below `folder` from the page cache, after writing it out.
pub(crate) fn forget(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
        } else {
            let opened = fs::File::open(&path)?;
            opened.sync_all()?;
            file::drop_from_page_cache(&opened)?;
        }
    }
    Ok(())
}
