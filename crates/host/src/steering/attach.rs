//! Programs into the kernel, to an interface, and kept there when this process ends.

use std::borrow::Cow;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{NlOptions, SchedClassifier, SchedClassifierLink, TcAttachOptions, TcAttachType, TcHandle};
use aya::programs::{LinkOrder, Program, ProgramError};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};

use super::{Doing, Error, Result, allowed, chain, layout};

/// Where filters of kernels without TCX are: ours are found again by these numbers. 0x6c65 is "le".
const PRIORITY: u16 = 0x6c65;
const HANDLE: TcHandle = TcHandle::new(0, 1);

/// From `statfs(2)`.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

/// Where the kernel says what its structures are like, by which their fields are found.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// What the verifier says last is why; before that it tells every instruction that it has seen.
const VERIFIER_LINES: usize = 5;

/// Calls of `bpf_ktime_get_coarse_ns` as the objects have them, and of `bpf_ktime_get_ns`: the same clock, which takes a little longer to read.
const COARSE_CLOCK: [u8; 8] = [0x85, 0, 0, 0, 160, 0, 0, 0];
const CLOCK: [u8; 8] = [0x85, 0, 0, 0, 5, 0, 0, 0];

/// An object that calls only what kernels before 5.11 have, which know no coarse clock.
pub(super) fn for_older_kernel(object: &[u8]) -> Vec<u8> {
    let mut object = object.to_vec();
    for instruction in object.chunks_exact_mut(8).filter(|instruction| *instruction == COARSE_CLOCK) {
        instruction.copy_from_slice(&CLOCK);
    }
    object
}

fn not_loaded(program: &str, error: &ProgramError) -> Error {
    let reason = match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            format!("{io_error}; {}", ending(&verifier_log.to_string()))
        }
        error => chain(error),
    };
    Error::Kernel { doing: format!("loading program {program}"), reason }
}

/// The last lines of a long text, as one.
fn ending(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(VERIFIER_LINES)..].join("; ")
}

/// A set of programs, and where they are pinned.
#[derive(Debug)]
pub(super) struct Programs {
    programs: Ebpf,
    directory: PathBuf,
}

/// The verifier gives up when a signal comes: so often it's asked, as by libbpf.
const LOAD_TRIES: usize = 5;

fn was_interrupted(loaded: &std::result::Result<(), ProgramError>) -> bool {
    matches!(loaded, Err(ProgramError::LoadError { io_error, .. }) if io_error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Loads a program by `load`, again where a signal has come.
pub(crate) fn load(name: &str, mut load: impl FnMut() -> std::result::Result<(), ProgramError>) -> Result<()> {
    let again = (1..LOAD_TRIES).map(|_| load()).find(|loaded| !was_interrupted(loaded));
    again.unwrap_or_else(load).map_err(|error| not_loaded(name, &error))
}

impl Programs {
    /// Loads an object. Maps that are pinned already are used with what is in them.
    pub(super) fn load(object: &[u8], directory: &Path, maps: &[(&'static str, Option<u32>)]) -> Result<Programs> {
        let lacking = allowed::lacking();
        if !lacking.is_empty() {
            return Err(Error::Forbidden { lacking });
        }
        let directory = directory.join(layout::VERSION);
        fs::create_dir_all(&directory).doing(|| format!("making {}", directory.display()))?;
        let kind = rustix::fs::statfs(&directory).map_err(std::io::Error::from);
        if kind.doing(|| format!("looking at {}", directory.display()))?.f_type != BPF_FS_MAGIC {
            return Err(Error::NotBpf { path: directory });
        }
        let has_types = u32::from(Path::new(TYPES).exists());
        let mut loader = EbpfLoader::new();
        loader.override_global("has_types", &has_types, false);
        for (name, entries) in maps {
            loader.map_pin_path(name, directory.join(name));
            if let Some(entries) = entries {
                loader.map_max_entries(name, *entries);
            }
        }
        let is_older = KernelVersion::current().is_ok_and(|version| version < KernelVersion::new(5, 11, 0));
        let object = if is_older { Cow::from(for_older_kernel(object)) } else { Cow::from(object) };
        let mut programs = loader.load(&object).doing(|| "loading the steering programs".to_owned())?;
        for (name, program) in programs.programs_mut() {
            load(name, || match program {
                Program::SchedClassifier(program) => program.load(),
                Program::Xdp(program) => program.load(),
                _ => Err(ProgramError::UnexpectedProgramType),
            })?;
        }
        Ok(Programs { programs, directory })
    }

    pub(super) fn map(&mut self, name: &str) -> Result<aya::maps::Map> {
        self.programs.take_map(name).ok_or_else(|| Error::Kernel {
            doing: format!("map {name}"),
            reason: "the object doesn't have it".to_owned(),
        })
    }

    /// Has an interface's packets pass through a program from now on, also when this process has ended, until [`Programs::detach`]. A program
    /// of an earlier process at the same place is replaced, without a packet that passes neither.
    pub(super) fn attach(&mut self, program: &str, interface: &str, direction: TcAttachType) -> Result<()> {
        let doing = || format!("attaching {program} to {interface}");
        let pin = self.pin(program, interface);
        let classifier = self.classifier(program)?;
        if !has_tcx() {
            return attach_filter(classifier, interface, direction, doing);
        }
        if let Ok(pinned) = PinnedLink::from_pin(&pin) {
            let link = FdLink::from(pinned).try_into().doing(doing)?;
            // An interface that went away has taken its link along, but not the pin.
            match classifier.attach_to_link(link) {
                // The pin keeps the link.
                Ok(id) => return classifier.take_link(id).doing(doing).map(drop),
                Err(_) => fs::remove_file(&pin).doing(doing)?,
            }
        }
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        let id = classifier.attach_with_options(interface, direction, order).doing(doing)?;
        let link: FdLink = classifier.take_link(id).doing(doing)?.try_into().doing(doing)?;
        link.pin(&pin).doing(|| format!("pinning {}", pin.display()))?;
        Ok(())
    }

    /// As [`Programs::attach`], for an interface that dies with this process.
    pub(super) fn attach_for_now(&mut self, program: &str, interface: &str, direction: TcAttachType) -> Result<()> {
        let doing = || format!("attaching {program} to {interface}");
        let classifier = self.classifier(program)?;
        if !has_tcx() {
            return attach_filter(classifier, interface, direction, doing);
        }
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        classifier.attach_with_options(interface, direction, order).doing(doing).map(drop)
    }

    /// Undoes [`Programs::attach`]; what a later process has attached there stays (not before Linux 6.6, where nobody can tell).
    pub(super) fn detach(&mut self, program: &str, interface: &str, direction: TcAttachType) -> Result<()> {
        let doing = || format!("detaching {program} from {interface}");
        if !has_tcx() {
            let link = SchedClassifierLink::attached(interface, direction, PRIORITY, HANDLE, None).doing(doing)?;
            return aya::programs::links::Link::detach(link).doing(doing);
        }
        let pin = self.pin(program, interface);
        let Ok(pinned) = PinnedLink::from_pin(&pin) else { return Ok(()) };
        let attached = FdLink::from(pinned).info().doing(doing)?.program_id();
        if attached != self.classifier(program)?.info().doing(doing)?.id() {
            return Ok(());
        }
        fs::remove_file(&pin).doing(doing)
    }

    /// What the programs have cost since they were loaded, while [`measure_run_time`] was on.
    pub(super) fn run_time(&self) -> Result<RunTime> {
        let mut sum = RunTime::default();
        for (name, program) in self.programs.programs() {
            let info = program.info().doing(|| format!("program {name}"))?;
            sum.runs += info.run_count();
            sum.time += info.run_time();
        }
        Ok(sum)
    }

    pub(super) fn classifier(&mut self, name: &str) -> Result<&mut SchedClassifier> {
        let program = self.program(name)?;
        program.try_into().map_err(|error: ProgramError| error).doing(|| format!("program {name}"))
    }

    fn program(&mut self, name: &str) -> Result<&mut Program> {
        self.programs.program_mut(name).ok_or_else(|| Error::Kernel {
            doing: format!("program {name}"),
            reason: "the object doesn't have it".to_owned(),
        })
    }

    /// A program, to be run by itself.
    pub(super) fn descriptor(&mut self, name: &str) -> Result<OwnedFd> {
        let doing = || format!("program {name}");
        self.program(name)?.fd().doing(doing)?.as_fd().try_clone_to_owned().doing(doing)
    }

    fn pin(&self, program: &str, interface: &str) -> PathBuf {
        // A dot is allowed in names of interfaces, and not in those of pins.
        self.directory.join(format!("{program}@{}", interface.replace('.', "~")))
    }
}

/// Links between an interface and its programs; Linux 6.6.
fn has_tcx() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0))
}

/// The way of kernels before 6.6: a filter of the clsact queueing discipline, which stays until it's taken away.
fn attach_filter(
    classifier: &mut SchedClassifier,
    interface: &str,
    direction: TcAttachType,
    doing: impl Fn() -> String,
) -> Result<()> {
    // It fails when it's there already, as it should be. If it isn't there then, the next step fails.
    let discipline = aya::programs::tc::qdisc_add_clsact(interface);
    if let Ok(link) = SchedClassifierLink::attached(interface, direction, PRIORITY, HANDLE, None)
        && let Ok(id) = classifier.attach_to_link(link)
    {
        return classifier.take_link(id).doing(doing).map(std::mem::forget);
    }
    let options = NlOptions { priority: PRIORITY, handle: HANDLE, classid: None };
    let attached = classifier.attach_with_options(interface, direction, TcAttachOptions::Netlink(options));
    let id = attached.map_err(|error| Error::Kernel {
        doing: doing(),
        reason: format!(
            "before Linux 6.6 that takes the kernel's modules sch_ingress and cls_bpf, if they aren't built in (`modprobe -a \
             sch_ingress cls_bpf`): {}{}",
            chain(&error),
            discipline.err().map_or_else(String::new, |error| format!("; clsact: {}", chain(&error)))
        ),
    })?;
    // Dropping it would take the filter away.
    classifier.take_link(id).doing(doing).map(std::mem::forget)
}

/// What programs have cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTime {
    /// How often they ran.
    pub runs: u64,
    /// How long, in sum over all processors.
    pub time: Duration,
}

/// Has the kernel measure all programs' run time (some 20 ns for each run) until the descriptor is closed.
///
/// # Errors
/// Not allowed, or a kernel before 5.8.
pub fn measure_run_time() -> Result<OwnedFd> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).doing(|| "measuring the run time of programs".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest number of a helper that Linux 5.10 has (`BPF_FUNC_redirect_peer`).
    const LAST_HELPER: i32 = 155;

    /// `BPF_JMP | BPF_CALL`: of a helper, if its source register is 0.
    const CALL: u8 = 0x85;

    #[test]
    fn what_runs_on_any_kernel_calls_only_what_each_has() {
        let objects: [&[u8]; 5] = [
            include_bytes!("programs/congestion.o"),
            include_bytes!("programs/dispatcher.o"),
            include_bytes!("programs/node.o"),
            include_bytes!("programs/spread.o"),
            include_bytes!("programs/spread_served.o"),
        ];
        for object in objects {
            let object = aya_obj::Object::parse(&for_older_kernel(object)).expect("an object");
            let instructions = object.functions.values().flat_map(|function| &function.instructions);
            let calls = instructions.filter(|instruction| instruction.code == CALL && instruction.src_reg() == 0);
            let called: Vec<i32> = calls.map(|call| call.imm).collect();
            assert!(called.len() > 3 && called.iter().all(|helper| *helper <= LAST_HELPER), "{called:?}");
        }
    }

    #[test]
    fn of_what_the_verifier_says_the_end_is_told() {
        let log = "0: (bf) r6 = r1\n".repeat(900) + "R6 pointer comparison prohibited\n\nprocessed 113 insns\n";
        let end = ending(&log);
        assert!(end.ends_with("R6 pointer comparison prohibited; processed 113 insns") && end.len() < 120, "{end}");
        assert_eq!(ending(""), "");
    }
}
