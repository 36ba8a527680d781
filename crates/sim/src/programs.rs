//! Pretend programs: what is asked of one in its query says what it does, in pieces, whenever it's allowed to run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use leat_host::program::{Ended, Order, ProgramId, Programs};

use crate::agenda::{Happening, MILLISECOND};
use crate::link::Pace;
use crate::world::World;

/// Bytes that a program has said and the worker hasn't received, before it waits.
const UNHEARD_BYTES_MAX: usize = 40_000;
/// What each of its steps costs.
const STEP_NS_MAX: u64 = 300_000;
const GAP_NS_MAX: u64 = 3 * MILLISECOND;

/// Programs that run, and the worker's ends of links that it hasn't taken yet, by the descriptor that stands for each.
#[derive(Debug, Default)]
pub(crate) struct ProgramsState {
    all: BTreeMap<u32, Program>,
    pub(crate) ends: BTreeMap<RawFd, u32>,
    next: u32,
}

#[derive(Debug)]
struct Program {
    link: u32,
    output: Vec<u8>,
    /// Bytes of the output that it has said.
    said: usize,
    /// It reads its input to the end before it says anything.
    listens: bool,
    /// It says nothing and doesn't end.
    hangs: bool,
    is_stopped: bool,
    /// Something is to be done once it isn't stopped.
    is_due: bool,
    has_ended: bool,
    used: Duration,
    used_in_all: Duration,
}

impl ProgramsState {
    /// Those that haven't been reaped.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }
}

/// What a program says that is asked for `how`, with so many bytes of content.
fn output(how: &str, bytes: usize) -> Vec<u8> {
    let content = vec![b'p'; bytes];
    let mut output = match how {
        "garbage" => b"no header\n\n".to_vec(),
        "crash" => format!("Content-Length: {}\n\n", bytes + 1).into_bytes(),
        _ => format!("Content-Type: text/plain\r\nContent-Length: {bytes}\r\n\r\n").into_bytes(),
    };
    output.extend(content);
    output
}

impl World {
    fn start_program(&mut self, query: &str) -> io::Result<(ProgramId, OwnedFd)> {
        let mut how = "";
        let mut bytes = 0;
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("how", value)) => how = value,
                Some(("bytes", value)) => bytes = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        self.programs.next += 1;
        let id = self.programs.next;
        let mut pace = Pace::random(&mut self.random);
        // On the same machine nothing goes byte by byte.
        pace.upstream_fragment_bytes_max = pace.upstream_fragment_bytes_max.max(1_460);
        pace.receive_buffer_bytes = pace.receive_buffer_bytes.max(4_096);
        pace.delay_ns_max = pace.delay_ns_max.min(MILLISECOND);
        let link = self.network.add_link(&self.agenda, Happening::ProgramActs(id), pace);
        let program = Program {
            link,
            output: output(how, bytes),
            said: 0,
            listens: self.random.percent(60),
            hangs: how == "hang",
            is_stopped: false,
            is_due: false,
            has_ended: false,
            used: Duration::ZERO,
            used_in_all: Duration::ZERO,
        };
        self.programs.all.insert(id, program);
        self.agenda.after(0, Happening::ProgramActs(id));
        self.trace(|| format!("program {id} starts on {link} for `{query}`"));
        let end = OwnedFd::from(File::open("/dev/null")?);
        self.programs.ends.insert(end.as_raw_fd(), link);
        Ok((ProgramId(id), end))
    }

    /// The next thing that a program does: hear, speak, or end.
    pub(crate) fn program_acts(&mut self, id: u32) {
        let World { network, agenda, random, programs, .. } = self;
        let Some(program) = programs.all.get_mut(&id).filter(|program| !program.has_ended) else { return };
        program.is_due |= program.is_stopped;
        if program.is_stopped || program.hangs {
            return;
        }
        let step = Duration::from_nanos(random.below(STEP_NS_MAX));
        program.used += step;
        program.used_in_all += step;
        let heard = network.client_takes(agenda, random, program.link, 10_000);
        let Some(link) = network.links.get(&program.link) else { return };
        let has_heard_all = (link.end_arrived && link.arrived.is_empty()) || link.reset_arrived;
        if program.listens && !has_heard_all {
            if !heard.is_empty() {
                agenda.after(random.below(GAP_NS_MAX), Happening::ProgramActs(id));
            }
            return;
        }
        if link.upstream.len() < UNHEARD_BYTES_MAX {
            let left = program.output.len() - program.said;
            if left == 0 || link.closed {
                program.has_ended = true;
                network.client_ends(agenda, random, program.link);
                return;
            }
            let count = random.fragment(left.min(20_000));
            let bytes = &program.output[program.said..program.said + count];
            network.client_sends(agenda, random, program.link, bytes);
            program.said += count;
        }
        agenda.after(random.below(GAP_NS_MAX), Happening::ProgramActs(id));
    }
}

/// See the module.
pub(crate) struct SimPrograms(pub(crate) Rc<RefCell<World>>);

impl SimPrograms {
    fn with<T>(&self, program: ProgramId, use_it: impl FnOnce(&mut Program) -> T) -> Option<T> {
        let mut world = self.0.borrow_mut();
        match world.programs.all.get_mut(&program.0) {
            Some(program) => Some(use_it(program)),
            None => {
                world.violation(format!("{program:?} is used and has been reaped"));
                None
            }
        }
    }
}

impl Programs for SimPrograms {
    fn start(&mut self, order: Order<'_>) -> io::Result<(ProgramId, Option<OwnedFd>)> {
        let query = order.environment.iter().find(|(name, _)| name == "QUERY_STRING");
        let query = query.map(|(_, value)| value.to_string_lossy().into_owned()).unwrap_or_default();
        let (program, end) = self.0.borrow_mut().start_program(&query)?;
        Ok((program, Some(end)))
    }

    fn resume(&mut self, program: ProgramId) {
        let is_due = self.with(program, |program| {
            program.is_stopped = false;
            std::mem::take(&mut program.is_due)
        });
        if is_due == Some(true) {
            self.0.borrow_mut().agenda.after(0, Happening::ProgramActs(program.0));
        }
    }

    fn stop(&mut self, program: ProgramId) {
        self.with(program, |program| program.is_stopped = true);
    }

    fn kill(&mut self, program: ProgramId) {
        let link = self.with(program, |program| {
            let was_there = !std::mem::replace(&mut program.has_ended, true);
            was_there.then_some(program.link)
        });
        if let Some(Some(link)) = link {
            let world = &mut *self.0.borrow_mut();
            world.network.client_resets(&mut world.agenda, link);
        }
    }

    fn take_used(&mut self, program: ProgramId) -> Duration {
        self.with(program, |program| std::mem::take(&mut program.used)).unwrap_or_default()
    }

    fn is_runnable(&mut self, program: ProgramId) -> bool {
        self.with(program, |program| program.is_due && !program.has_ended).unwrap_or_default()
    }

    fn is_ending(&mut self, program: ProgramId) -> bool {
        self.with(program, |program| program.has_ended).unwrap_or_default()
    }

    fn reap(&mut self, program: ProgramId) -> Option<Ended> {
        let used = self.with(program, |program| program.has_ended.then_some(program.used_in_all))??;
        self.0.borrow_mut().programs.all.remove(&program.0);
        Some(Ended { code: Some(0), signal: None, used })
    }

    /// Nobody else is on its core.
    fn raise(&mut self, _: ProgramId) {}

    fn lower(&mut self, _: ProgramId) {}

    fn step_aside(&mut self, time: Duration) {
        let mut world = self.0.borrow_mut();
        let until_ns = world.agenda.now_ns() + time.as_nanos() as u64;
        world.agenda.advance_to(until_ns);
        world.run_due();
    }
}
