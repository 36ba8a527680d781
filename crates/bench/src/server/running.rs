//! A server that runs: started on one core, watched through /proc, ended by its process ids.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{DESCRIPTORS_MAX, Server, Site};
use crate::cleanup;
use crate::load;
use crate::sys::process;

/// Longest time from starting a server to its first reply.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Longest time for a server to end by itself after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// A folder below the system's temporary one, removed when dropped.
pub(crate) struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    /// Readable by all, as some servers give up root.
    pub(crate) fn create(purpose: &str) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("leat-bench-{}-{purpose}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        cleanup::remove_at_end(&path);
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // What can't be removed stays in the temporary directory: nothing to be done about it here.
        let _ = fs::remove_dir_all(&self.path);
        cleanup::removed(&self.path);
    }
}

/// A running server; ended when dropped.
pub(crate) struct Running {
    child: Child,
    address: SocketAddr,
    start_to_reply: Duration,
    log: PathBuf,
}

impl Running {
    /// Starts `server` on `cores` and waits until it has answered a request.
    ///
    /// # Errors
    /// It doesn't start or doesn't answer; the message has the end of what it wrote.
    pub(crate) fn start(server: &dyn Server, site: &Site, folder: &Path, cores: &[usize]) -> io::Result<Self> {
        // Free when asked; that somebody else takes it in between shows as a server that doesn't start.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let directory = folder.join(format!("{}-{}", server.name(), address.port()));
        fs::create_dir_all(&directory)?;
        let log = directory.join("output.log");
        let output = fs::File::create(&log)?;
        let mut command = server.command(site, address, &directory)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        process::allow_descriptors(DESCRIPTORS_MAX as u64)?;
        process::start_on_cores(&mut command, cores);
        let started = Instant::now();
        let child = {
            let _not_at_the_end = cleanup::starting();
            command.spawn()?
        };
        let mut running = Self { child, address, start_to_reply: Duration::ZERO, log };
        running.await_reply(site, started)?;
        Ok(running)
    }

    fn await_reply(&mut self, site: &Site, started: Instant) -> io::Result<()> {
        let path = first_path(site);
        while !answers(self.address, &path) {
            let ended = self.child.try_wait()?;
            if ended.is_some() || started.elapsed() > START_LIMIT {
                let text = fs::read_to_string(&self.log).unwrap_or_default();
                let end: String = text.lines().rev().take(5).collect::<Vec<_>>().join(" | ");
                let what = ended.map_or("doesn't answer".to_owned(), |status| format!("ended with {status}"));
                return Err(io::Error::other(format!("{what}: {end}")));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        self.start_to_reply = started.elapsed();
        Ok(())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks for every path once, one after the other: a server that is measured afterwards has seen them all.
    ///
    /// # Errors
    /// A reply isn't complete.
    pub(crate) fn visit<'a>(&self, paths: impl Iterator<Item = &'a str>) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(START_LIMIT))?;
        let mut chunk = vec![0; 256 << 10];
        for path in paths {
            stream.write_all(format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())?;
            let mut reply = Vec::new();
            let (mut received, mut wanted) = (0, u64::MAX);
            while received < wanted {
                let count = stream.read(&mut chunk)?;
                if count == 0 {
                    return Err(io::Error::other(format!("/{path}: the reply ended early")));
                }
                received += count as u64;
                if wanted == u64::MAX {
                    reply.extend_from_slice(&chunk[..count]);
                    if let Some((head_bytes, body_bytes)) = load::lengths(&reply).map_err(io::Error::other)? {
                        wanted = head_bytes as u64 + body_bytes;
                    }
                }
            }
        }
        Ok(())
    }

    /// From starting the process to the end of the first reply's head; looked at every 0.2 ms.
    pub(crate) fn start_to_reply(&self) -> Duration {
        self.start_to_reply
    }

    /// The first process and all that descend from it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        descendants(self.child.id())
    }

    /// Has all threads run at once whenever they are woken. Not for a server whose threads have to give way to each other.
    pub(crate) fn run_at_once(&self) {
        let tasks =
            self.processes().into_iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok()).flatten();
        // Whoever ends meanwhile has no thread to be put first.
        let threads = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
        threads.for_each(process::run_at_once);
    }

    /// Processor time of all processes so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.processes().into_iter().filter_map(|pid| process::cpu_time(pid).ok()).sum()
    }

    /// Memory that is the processes' own and not backed by a file, in bytes.
    pub(crate) fn own_memory_bytes(&self) -> u64 {
        self.processes().into_iter().map(anonymous_bytes).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let processes = self.processes();
        // Errors mean that the process has ended already, which is what is wanted.
        let _ = process::signal(self.child.id(), libc::SIGTERM);
        let deadline = Instant::now() + STOP_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // Children that outlived their parent, still in its process group or session.
        for pid in processes {
            let gone = || !process::is_alive(pid);
            while !gone() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            if !gone() {
                let _ = process::signal(pid, libc::SIGKILL);
            }
        }
    }
}

/// A path that the site surely has.
fn first_path(site: &Site) -> String {
    if let Some(name) = site.only_file.as_ref().and_then(|file| file.strip_prefix(&site.root).ok()) {
        return format!("/{}", name.display());
    }
    let mut folder = site.root.clone();
    loop {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        entries.sort();
        match entries.into_iter().next() {
            Some(next) if next.is_dir() => folder = next,
            Some(file) => return format!("/{}", file.strip_prefix(&site.root).unwrap_or(&file).display()),
            None => return "/".to_owned(),
        }
    }
}

/// Whether a GET of `path` brings the beginning of a reply with status 200.
fn answers(address: SocketAddr, path: &str) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut start = [0; 12];
        stream.read_exact(&mut start)?;
        Ok(&start == b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}

/// `root` and every process that descends from it.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found
}

fn parent_of(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold spaces and parentheses itself.
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn anonymous_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Private_Dirty:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_from_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("5").spawn().expect("sleep is there");
        let found = descendants(std::process::id());
        assert!(found.contains(&child.id()));
        child.kill().expect("it runs");
        child.wait().expect("it ended");
        assert!(!descendants(std::process::id()).contains(&child.id()));
    }

    #[test]
    fn own_memory_is_seen() {
        assert!(anonymous_bytes(std::process::id()) > 4096);
    }
}
