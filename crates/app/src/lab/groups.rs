//! Control groups (version 1) that hold a lab's members to what `[lab]` says. Which process is in which group is `members`'.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::config::Lab;

const ROOT: &str = "/sys/fs/cgroup";
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "blkio"];

/// The shortest period in which a group may use its part of a core, in microseconds.
const PERIOD_US_MIN: u64 = 10_000;
/// The kernel takes no part of a period below this.
const QUOTA_US_MIN: u64 = 1000;
/// The most weight that the kernel gives a group: a node has its part of a core, whatever else runs there.
const CPU_SHARES: u64 = 1 << 18;

/// Which of a lab's servers it is, and how many workers it has.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) number: usize,
    pub(super) workers: usize,
}

/// Makes the groups of one node and gives their directories.
///
/// # Errors
/// A controller is missing, or refuses its value.
pub(super) fn for_node(name: &str, lab: &Lab, turn: Turn, disk: &Path) -> Result<Vec<PathBuf>, String> {
    let mut groups = Vec::new();
    if lab.node_cpu_percent > 0 {
        let (quota_us, period_us) = quota(lab.node_cpu_percent);
        let group = create("cpu", name, "node_cpu_percent")?;
        set(&group, "cpu.cfs_period_us", &period_us.to_string())?;
        set(&group, "cpu.cfs_quota_us", &quota_us.to_string())?;
        set(&group, "cpu.shares", &CPU_SHARES.to_string())?;
        groups.push(group);
    }
    groups.extend(for_processors(name, &turn.processors(&lab.node_cpus), "node_cpus")?);
    if lab.node_memory > 0 {
        let group = create("memory", name, "node_memory")?;
        set(&group, "memory.limit_in_bytes", &lab.node_memory.to_string())?;
        groups.push(group);
    }
    if lab.node_read_rate > 0 {
        let group = create("blkio", name, "node_read_rate")?;
        let device = fs::metadata(disk).map_err(|error| format!("{}: {error}", disk.display()))?.dev();
        let device = format!("{}:{}", major(device), minor(device));
        set(&group, "blkio.throttle.read_bps_device", &format!("{device} {}", lab.node_read_rate))?;
        groups.push(group);
    }
    Ok(groups)
}

impl Turn {
    /// As many of these processors as it has workers, so that servers are spread over them: each would keep its workers on the first that it may use.
    fn processors(self, list: &str) -> String {
        let ranges = list.split(',').filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse().ok()?..=last.parse().ok()?)
        });
        let all: Vec<u16> = ranges.flatten().collect();
        if self.workers >= all.len() {
            return list.to_owned();
        }
        let first = self.number * self.workers;
        let own = (first..first + self.workers).map(|place| all[place % all.len()].to_string());
        own.collect::<Vec<_>>().join(",")
    }
}

/// Processor time in a period, and the period: the shortest in which the kernel can give so little.
fn quota(percent: u32) -> (u64, u64) {
    let percent = u64::from(percent);
    let period_us = PERIOD_US_MIN.max(QUOTA_US_MIN * 100 / percent.max(1));
    ((percent * period_us / 100).max(QUOTA_US_MIN), period_us)
}

/// A group whose processes run on these processors only; none for all.
///
/// # Errors
/// The controller is missing, or there are no such processors.
pub(super) fn for_processors(name: &str, processors: &str, key: &str) -> Result<Option<PathBuf>, String> {
    if processors.is_empty() {
        return Ok(None);
    }
    let group = create("cpuset", name, key)?;
    let memories = fs::read_to_string(Path::new(ROOT).join("cpuset/cpuset.mems")).unwrap_or_else(|_| "0".to_owned());
    set(&group, "cpuset.cpus", processors)?;
    set(&group, "cpuset.mems", memories.trim())?;
    Ok(Some(group))
}

/// The numbers of a device, as the kernel packs them for programs.
fn major(device: u64) -> u64 {
    (device >> 8 & 0xfff) | (device >> 32 & !0xfff)
}

fn minor(device: u64) -> u64 {
    (device & 0xff) | (device >> 12 & !0xff)
}

fn create(controller: &str, name: &str, key: &str) -> Result<PathBuf, String> {
    let parent = Path::new(ROOT).join(controller);
    if !parent.join("cgroup.procs").exists() {
        let help = format!("take `{key}` out of [lab], or mount it");
        return Err(format!("{} isn't a control group of version 1: {help}", parent.display()));
    }
    let group = parent.join(name);
    match fs::create_dir(&group) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(format!("{}: {error}", group.display())),
        _ => Ok(group),
    }
}

fn set(group: &Path, file: &str, value: &str) -> Result<(), String> {
    let path = group.join(file);
    fs::write(&path, value).map_err(|error| format!("{} doesn't take {value}: {error}", path.display()))
}

/// Removes all groups whose names begin with `prefix`; their processes are gone.
///
/// # Errors
/// One that can't be removed.
pub(super) fn remove_all(prefix: &str) -> Result<(), String> {
    for controller in CONTROLLERS {
        let Ok(entries) = fs::read_dir(Path::new(ROOT).join(controller)) else { continue };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                let path = entry.path();
                fs::remove_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Turn, quota};

    #[test]
    fn servers_with_few_workers_are_spread_over_the_processors() {
        let of = |list: &str, workers| [0, 1, 2].map(|number| Turn { number, workers }.processors(list));
        assert_eq!(of("2-3", 1), ["2", "3", "2"]);
        assert_eq!(of("1,4-6", 2), ["1,4", "5,6", "1,4"]);
        assert_eq!(of("0-2", 2), ["0,1", "2,0", "1,2"]);
        assert_eq!(of("2-3", 2), ["2-3", "2-3", "2-3"]);
        assert_eq!(of("", 1), ["", "", ""]);
    }

    #[test]
    fn a_small_part_of_a_core_has_a_long_period() {
        assert_eq!(quota(250), (25_000, 10_000));
        assert_eq!(quota(10), (1000, 10_000));
        assert_eq!(quota(3), (1000, 33_333));
        assert_eq!(quota(1), (1000, 100_000));
    }
}
