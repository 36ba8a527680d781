//! The processes of a program: its first one, and what that has started, in whatever process group or session it is by now. Each is known by its number
//! and by when it began, so that no later process of the same number is taken for it.

use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use crate::program::processor_time;

/// Processes of one program that are looked for: itself and its descendants.
const MEMBERS_MAX: usize = 64;
/// How often it's looked what a program has started while it's being killed.
const KILL_ROUNDS_MAX: usize = 8;

/// What proc(5) has in a process's `stat` behind its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    /// `R` where it waits for the processor or has it, `T` where it was stopped, `Z` where it has ended.
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) flags: u64,
    threads: u64,
    /// In ticks since the machine began.
    pub(crate) began: u64,
}

/// `None` when the process has gone.
pub(crate) fn stat(process: u32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name is in parentheses and may have any bytes.
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 2;
    let fields: Vec<&str> = std::str::from_utf8(text.get(after_name..)?).ok()?.split(' ').collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        parent: number(1)? as u32,
        group: number(2)? as u32,
        flags: number(6)?,
        threads: number(17)?,
        began: number(19)?,
    })
}

/// The children that a thread has started; a kernel without this file says none.
fn children_of_thread(process: u32, thread: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// The children that all threads of a process have started.
pub(crate) fn children(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    threads.flat_map(|thread| children_of_thread(process, thread)).collect()
}

/// The children of the process that gets what programs leave behind: the supervisor's.
pub(crate) fn orphans() -> Vec<u32> {
    let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get().cast_unsigned());
    // Its first thread adopts.
    children_of_thread(parent, parent)
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(number.cast_signed())
}

fn signal_group(leader: u32, signal: Signal) {
    if let Some(group) = pid(leader) {
        // It may have ended meanwhile: then there is nobody to tell.
        let _ = kill_process_group(group, signal);
    }
}

/// Signals the process of that number that began then, and no other. Whether it was there.
fn signal_one(process: u32, began: u64, signal: Signal) -> bool {
    // From here on the descriptor is of one process, whatever becomes of its number.
    let Some(descriptor) = pid(process).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return false };
    stat(process).is_some_and(|stat| stat.began == began) && pidfd_send_signal(&descriptor, signal).is_ok()
}

/// Ends the process of that number that began then, soon. Whether it was there.
fn kill_one(process: u32, began: u64) -> bool {
    let is_killed = signal_one(process, began, Signal::KILL);
    if is_killed {
        // That takes a moment of a core that may be busy. What lives on must never have that.
        crate::program::hasten(process);
    }
    is_killed
}

/// One process.
#[derive(Debug)]
struct Member {
    pid: u32,
    began: u64,
    has_threads: bool,
    /// Processor time that has been taken.
    used: Duration,
}

impl Member {
    fn new(pid: u32, stat: &Stat) -> Member {
        Member { pid, began: stat.began, has_threads: stat.threads > 1, used: Duration::ZERO }
    }

    fn children(&self) -> Vec<u32> {
        if self.has_threads { children(self.pid) } else { children_of_thread(self.pid, self.pid) }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Family {
    leader: u32,
    /// The first is the leader until it has been reaped: its number is its own so long.
    members: Vec<Member>,
    /// Some may still be on their way to standing still.
    is_stopped: bool,
}

impl Family {
    /// Of a child that leads a group of its own.
    pub(crate) fn new(leader: u32) -> Family {
        // A child that hasn't been reaped has this file.
        let first = stat(leader).map(|stat| Member::new(leader, &stat));
        Family { leader, members: first.into_iter().collect(), is_stopped: false }
    }

    /// Looks what the members have started since, and which have gone. Calls `see` with each that is there. Whether there are new ones.
    fn look(&mut self, mut see: impl FnMut(u32, &Stat)) -> bool {
        let (mut at, mut has_new) = (0, false);
        while at < self.members.len() {
            let member = &mut self.members[at];
            let Some(now) = stat(member.pid).filter(|now| now.began == member.began) else {
                if member.pid == self.leader {
                    at += 1;
                } else {
                    self.members.remove(at);
                }
                continue;
            };
            member.has_threads = now.threads > 1;
            see(member.pid, &now);
            let parent = member.pid;
            for child in self.members[at].children() {
                has_new |= self.take_in(child, |stat| stat.parent == parent);
            }
            at += 1;
        }
        has_new
    }

    /// Adds a process, unless it isn't what was looked for any more. Whether it's new.
    fn take_in(&mut self, process: u32, is_ours: impl FnOnce(&Stat) -> bool) -> bool {
        if self.members.len() >= MEMBERS_MAX || self.members.iter().any(|member| member.pid == process) {
            return false;
        }
        let Some(stat) = stat(process).filter(is_ours) else { return false };
        self.members.push(Member::new(process, &stat));
        true
    }

    /// Members that have left the leader's group, so that its signals don't reach them.
    fn escaped(&self) -> impl DoubleEndedIterator<Item = &Member> {
        let group = pid(self.leader);
        self.members
            .iter()
            .filter(move |member| member.pid != self.leader && rustix::process::getpgid(pid(member.pid)).ok() != group)
    }

    /// Keeps all from running: parents first, as one that sees its child stop might take that for the child's doing.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
        signal_group(self.leader, Signal::STOP);
        self.look(|_, _| {});
        for member in self.escaped() {
            signal_one(member.pid, member.began, Signal::STOP);
        }
    }

    /// Lets all run again that were stopped: children first.
    pub(crate) fn resume(&mut self) {
        self.is_stopped = false;
        for member in self.escaped().rev() {
            signal_one(member.pid, member.began, Signal::CONT);
        }
        signal_group(self.leader, Signal::CONT);
    }

    /// Ends all. What one has started just before it's killed is an orphan that its group or the supervisor ends.
    pub(crate) fn kill(&mut self) {
        self.kill_members();
        signal_group(self.leader, Signal::KILL);
    }

    fn kill_members(&mut self) {
        for _ in 0..KILL_ROUNDS_MAX {
            let has_new = self.look(|_, _| {});
            for member in &self.members {
                kill_one(member.pid, member.began);
            }
            if !has_new {
                break;
            }
        }
    }

    /// Ends what the leader has left behind: it has been reaped, and its number is its group's alone for as long as any is in that.
    pub(crate) fn kill_rest(mut self) {
        self.members.retain(|member| member.pid != self.leader);
        self.kill();
    }

    /// Whether any wants the processor: none while all are stopped. Those that stand still though the others were resumed are resumed. `orphans`: where processes
    /// of the leader's group are found whose parents have ended.
    pub(crate) fn is_runnable(&mut self, orphans: &[u32]) -> bool {
        if self.is_stopped {
            return false;
        }
        for &orphan in orphans {
            if rustix::process::getpgid(pid(orphan)).ok() == pid(self.leader) {
                let leader = self.leader;
                self.take_in(orphan, |stat| stat.group == leader);
            }
        }
        let leader = self.leader;
        let (mut wants, mut is_halted, mut stopped) = (false, false, Vec::new());
        self.look(|process, now| {
            wants |= now.state == b'R';
            if process == leader {
                is_halted = now.state == b'T';
            } else if now.state == b'T' {
                stopped.push((process, now.began));
            }
        });
        if is_halted {
            // Somebody else has stopped the program.
            return wants;
        }
        for (process, began) in stopped {
            // A process that is begun (fork(2)) while its group is stopped and resumed can miss that it was resumed: the kernel takes SIGCONT
            // for ignored before it takes back the stop that the new process will find. Nobody else would ever wake it.
            wants |= signal_one(process, began, Signal::CONT);
        }
        wants
    }

    /// Processor time that the members last seen have used since this was last asked.
    pub(crate) fn take_used(&mut self) -> Duration {
        let (mut used, leader) = (Duration::ZERO, self.leader);
        self.members.retain_mut(|member| match processor_time(member.pid) {
            Some(now) => {
                used += now.saturating_sub(std::mem::replace(&mut member.used, now));
                true
            }
            None => member.pid == leader,
        });
        used
    }

    /// Calls `use_it` with each member that is there.
    pub(crate) fn each(&mut self, mut use_it: impl FnMut(u32)) {
        self.look(|process, _| use_it(process));
    }
}

/// Ends a child of this process and all that it has started.
pub(crate) fn kill_tree(child: u32, stat: &Stat) {
    let mut family = Family { leader: child, members: vec![Member::new(child, stat)], is_stopped: false };
    // It leads a group unless somebody else has made it.
    if stat.group == child { family.kill() } else { family.kill_members() }
}
