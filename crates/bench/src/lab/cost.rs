//! What a host of a lab costs: its processes' time, its eBPF programs' run time, and the forwarding that the kernel does for it.
//!
//! Forwarding isn't on any clock of the dispatcher's: packets cross its namespace in the context of whoever sent them. So every packet that it
//! receives is charged with what a hop costs that has been measured with small ones: veth, bridge and IP forwarding, more than an eBPF redirect.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{CLIENT, CLIENT_CORE, Lab, ROUTER, ROUTER_ADDRESS};
use crate::load::Observer;
use crate::sys::process;

/// Any that nothing listens on.
const PORT: u16 = 9_999;
const BATCH: u32 = 20_000;
const BATCHES: u32 = 7;

/// What has been spent so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) process: Duration,
    /// Ready to run while others had the processors, in sum over all threads.
    pub(crate) waited: Duration,
    pub(crate) programs: Duration,
    pub(crate) program_runs: u64,
    pub(crate) packets_in: u64,
}

impl Spent {
    fn since(self, before: Spent) -> Spent {
        Spent {
            process: self.process.saturating_sub(before.process),
            waited: self.waited.saturating_sub(before.waited),
            programs: self.programs.saturating_sub(before.programs),
            program_runs: self.program_runs.saturating_sub(before.program_runs),
            packets_in: self.packets_in.saturating_sub(before.packets_in),
        }
    }
}

/// Reads what some processes of one namespace spend within a window.
pub(crate) struct Meter {
    pids: Vec<u32>,
    begin: Spent,
    pub(crate) spent: Spent,
}

impl Meter {
    pub(crate) fn new(pids: Vec<u32>) -> Self {
        Self { pids, begin: Spent::default(), spent: Spent::default() }
    }

    fn now(&self) -> Spent {
        let mut spent = Spent {
            process: self.pids.iter().filter_map(|&pid| process::cpu_time(pid).ok()).sum(),
            waited: self.pids.iter().map(|&pid| waited(pid)).sum(),
            packets_in: self.pids.first().map_or(0, |&pid| packets_in(pid)),
            ..Spent::default()
        };
        for (nanoseconds, runs) in programs_of(&self.pids).into_values() {
            spent.programs += Duration::from_nanos(nanoseconds);
            spent.program_runs += runs;
        }
        spent
    }
}

impl Observer for Meter {
    fn window_begins(&mut self) {
        self.begin = self.now();
    }

    fn window_ends(&mut self) {
        self.spent = self.now().since(self.begin);
    }
}

/// Reads what all of some hosts' processes spend within a window, and the client's thread, and the kernel's that take packets further: the clocks of a whole
/// lab. What the kernel does in others' context is on theirs.
pub(crate) struct WholeMeter {
    pids: Vec<u32>,
    begin: Duration,
    pub(crate) spent: Duration,
}

impl WholeMeter {
    /// # Errors
    /// There is no such host.
    pub(crate) fn new(lab: &Lab, hosts: &[&str]) -> io::Result<Self> {
        let mut pids = hosts.iter().map(|host| lab.processes(host)).collect::<io::Result<Vec<_>>>()?.concat();
        pids.extend(packet_threads());
        Ok(Self { pids, begin: Duration::ZERO, spent: Duration::ZERO })
    }

    fn now(&self) -> Duration {
        let of_processes: Duration = self.pids.iter().filter_map(|&pid| process::cpu_time(pid).ok()).sum();
        of_processes + process::own_thread_cpu_time().unwrap_or_default()
    }
}

impl Observer for WholeMeter {
    fn window_begins(&mut self) {
        self.begin = self.now();
    }

    fn window_ends(&mut self) {
        self.spent = self.now().saturating_sub(self.begin);
    }
}

/// Reads what a host has sent on its link within a window, where the lab limits that: whole frames, as the limit counts them.
pub(crate) struct LinkMeter {
    namespace: PathBuf,
    begin: u64,
    pub(crate) sent_bytes: u64,
}

impl LinkMeter {
    pub(crate) fn new(namespace: PathBuf) -> Self {
        Self { namespace, begin: 0, sent_bytes: 0 }
    }

    /// None is counted of a link without a limit.
    fn now(&self) -> u64 {
        let name = self.namespace.file_name().unwrap_or_default();
        let output = Command::new("tc").arg("-n").arg(name).args(["-s", "-j", "qdisc", "show", "dev", "eth0"]).output();
        output.map_or(0, |output| limited_bytes(&output.stdout))
    }
}

impl Observer for LinkMeter {
    fn window_begins(&mut self) {
        self.begin = self.now();
    }

    fn window_ends(&mut self) {
        self.sent_bytes = self.now().saturating_sub(self.begin);
    }
}

fn limited_bytes(json: &[u8]) -> u64 {
    let listed: Vec<Value> = serde_json::from_slice(json).unwrap_or_default();
    let limits = listed.iter().filter(|one| one["kind"] == "tbf");
    limits.filter_map(|limit| limit["bytes"].as_u64()).sum()
}

/// Of all threads that a process has now.
fn waited(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| wait(&fs::read_to_string(thread.path().join("schedstat")).ok()?)).sum()
}

/// A line: time on a processor, time waiting for one, how often it had one.
fn wait(text: &str) -> Option<Duration> {
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// The kernel's threads that take packets further when nobody else does.
pub(crate) fn packet_threads() -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"));
    pids.filter(is_one).collect()
}

/// Run time of all eBPF programs that some processes hold.
pub(crate) fn program_time(pids: &[u32]) -> Duration {
    programs_of(pids).into_values().map(|(nanoseconds, _)| Duration::from_nanos(nanoseconds)).sum()
}

/// Each of them once.
fn programs_of(pids: &[u32]) -> BTreeMap<u64, (u64, u64)> {
    pids.iter().flat_map(|&pid| programs(pid)).collect()
}

/// Each eBPF program that a process holds: its number, its run time in nanoseconds, and its runs.
fn programs(pid: u32) -> Vec<(u64, (u64, u64))> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    entries.filter_map(|entry| program(&fs::read_to_string(entry.path()).ok()?)).collect()
}

fn program(text: &str) -> Option<(u64, (u64, u64))> {
    let number = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    Some((number("prog_id:")?, (number("run_time_ns:")?, number("run_cnt:")?)))
}

/// Of all interfaces of a process's namespace but the loopback.
fn packets_in(pid: u32) -> u64 {
    received(&fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default())
}

fn received(text: &str) -> u64 {
    let interfaces = text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo");
    interfaces.filter_map(|(_, numbers)| numbers.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// What it takes the kernel to send a small packet over one hop more, in microseconds: from the client to a host by way of the router, less
/// from the client to the router. The least of several batches each.
pub(crate) fn hop_us(lab: &Lab, (node, address): (&str, &str)) -> io::Result<f64> {
    let sink = |host: &str, address: &str| lab.at(host, CLIENT_CORE, || UdpSocket::bind((address, PORT)));
    let _sinks = (sink(ROUTER, ROUTER_ADDRESS)?, sink(node, address)?);
    lab.at(CLIENT, CLIENT_CORE, || {
        let (mut near, mut far) = (f64::MAX, f64::MAX);
        for _ in 0..BATCHES {
            near = near.min(send_us(ROUTER_ADDRESS)?);
            far = far.min(send_us(address)?);
        }
        Ok((far - near).max(0.0))
    })
}

fn send_us(address: &str) -> io::Result<f64> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect((address, PORT))?;
    let began = Instant::now();
    for _ in 0..BATCH {
        socket.send(b"x")?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let text = "pos:\t0\nprog_type:\t3\nprog_id:\t7\nrun_time_ns:\t1200\nrun_cnt:\t4\n";
        assert_eq!(program(text), Some((7, (1_200, 4))));
        assert_eq!(program("pos:\t0\n"), None);
        let text = "Inter-| Receive\n face |bytes packets\n    lo: 9 9 0\n  eth0: 100 3 0\n  eth1: 1 2 0\n";
        assert_eq!(received(text), 5);
        assert_eq!((wait("70 1500 3\n"), wait("")), (Some(Duration::from_nanos(1_500)), None));
        let json = br#"[{"kind":"tbf","handle":"1:","bytes":700,"drops":0},{"kind":"noqueue","bytes":9}]"#;
        assert_eq!((limited_bytes(json), limited_bytes(b"")), (700, 0));
    }
}
