//! Processor time of this program and of all that it has started, whoever is its parent by now: labs run on by themselves until they are taken down.
//! A control group counts it (`cpuacct` of cgroup v1). Where there is none, only children that have ended count.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cleanup;
use crate::sys::process;

const ROOT: &str = "/sys/fs/cgroup/cpuacct";
const MEMBERS: &str = "cgroup.procs";

fn group() -> PathBuf {
    Path::new(ROOT).join(format!("leat-bench-{}", std::process::id()))
}

/// From now on all that is started counts. Not being allowed to count isn't an error: what is told of the machine is less exact then.
pub(crate) fn open() {
    let group = group();
    if fs::create_dir(&group).is_ok() {
        cleanup::remove_at_end(&group);
        let _ = fs::write(group.join(MEMBERS), "0");
    }
}

/// At the program's end. The kernel removes only a group without members.
pub(crate) fn close() {
    let group = group();
    let _ = fs::write(Path::new(ROOT).join(MEMBERS), "0");
    let _ = fs::remove_dir(&group);
    cleanup::removed(&group);
}

/// What it has taken so far.
pub(super) fn spent() -> Duration {
    let usage = fs::read_to_string(group().join("cpuacct.usage")).ok();
    let counted = usage.and_then(|usage| usage.trim().parse().ok()).map(Duration::from_nanos);
    counted.unwrap_or_else(process::own_and_children_cpu_time)
}
