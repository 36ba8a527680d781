//! Directories for one test each, removed when it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A new, empty directory that is removed on drop.
pub struct Directory(PathBuf);

impl Directory {
    /// An empty one.
    pub fn new() -> Directory {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("leat-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(fs::canonicalize(path).unwrap())
    }

    /// One with these files.
    pub fn with(files: &[(&str, &[u8])]) -> Directory {
        let directory = Directory::new();
        for (name, content) in files {
            directory.write(name, content);
        }
        directory
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of `name` in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in place, with the directories above it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes a file that isn't in memory then; false where the file system keeps everything there.
    pub fn write_to_disk(&self, name: &str, content: impl AsRef<[u8]>) -> bool {
        let file = fs::File::open(self.write(name, content)).unwrap();
        file.sync_all().unwrap();
        let evict = || rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        evict();
        let before = read_from_disks();
        let bytes = fs::read(self.at(name)).unwrap().len() as u64;
        evict();
        read_from_disks() - before >= bytes
    }

    /// Writes a file beside `name` and renames it over, as careful editors do.
    pub fn replace(&self, name: &str, content: impl AsRef<[u8]>) {
        let beside = self.write(&format!("{name}.new"), content);
        fs::rename(beside, self.at(name)).unwrap();
    }

    /// Sets the time of last modification, in seconds since 1970.
    pub fn set_modified(&self, name: &str, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        fs::File::options().write(true).open(self.at(name)).unwrap().set_modified(time).unwrap();
    }

    /// Makes a named pipe.
    pub fn fifo(&self, name: &str) {
        assert!(Command::new("mkfifo").arg(self.at(name)).status().unwrap().success());
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes with no pattern that a server could get right by luck; the same for the same seed.
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    // xorshift64*: enough to tell any two places of a file apart.
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        noise.extend_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

/// Bytes that this thread has had read from disks (proc(5), `/proc/pid/io`).
fn read_from_disks() -> u64 {
    let counts = fs::read_to_string("/proc/thread-self/io").unwrap();
    counts.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap().parse().unwrap()
}
