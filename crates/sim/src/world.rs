//! Everything outside the worker, in one place: what happens next, to whom, and what has gone wrong so far.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use leat_host::reactor::{Completion, Socket, Token};

use crate::agenda::{Agenda, Happening, SECOND};
use crate::client::Client;
use crate::files::Files;
use crate::link::{Link, Receiving};
use crate::mutation::Mutation;
use crate::network::Network;
use crate::programs::ProgramsState;
use crate::random::Random;
use crate::storage::{StorageState, WATCH};

/// What a run's host does wrong or late, within what the traits allow.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    /// Whether changes to files are noticed, or only seen when asked for.
    pub(crate) watching: bool,
    /// How often the storage has the answer at once.
    pub(crate) cached_percent: u64,
    pub(crate) disk_errors_in_1000: u64,
    pub(crate) accept_failures_in_1000: u64,
    /// Whether pages of a file in a socket's queue change with the file, as the kernel's do.
    pub(crate) queued_pages_change: bool,
    /// A defect, for tests of the simulator: `Storage::unchanged` always says yes.
    pub(crate) trusts_files: bool,
}

/// Waits that a worker may need in a second beside one for every few completions. A worker that spins has more.
const TURNS_IN_A_SECOND_MAX: u64 = 1_500;
/// Waits for each completion that it has been given.
const TURNS_FOR_EACH_COMPLETION: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) agenda: Agenda,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) network: Network,
    pub(crate) files: Files,
    pub(crate) storage: StorageState,
    pub(crate) clients: Vec<Client>,
    pub(crate) mutations: Vec<Mutation>,
    pub(crate) programs: ProgramsState,
    /// From a listening descriptor's number, which chance must not see, to the listener's place.
    pub(crate) listeners: BTreeMap<u32, usize>,
    /// Polled descriptors that have become readable.
    pub(crate) rung: BTreeSet<i32>,
    pub(crate) receive_buffers_free: u16,
    pub(crate) accepted: u64,
    /// What the worker has used of its processor.
    pub(crate) worked_ns: u64,
    /// After so much work of the worker's, somebody else has its core for so long, in nanoseconds.
    pub(crate) interruption: Option<(u64, u64)>,
    /// Messages of the engine that are due.
    pub(crate) mail_due: Vec<usize>,
    /// When the worker was told to drain, and when to be done.
    pub(crate) drain: Option<(u64, u64)>,
    /// There are more clients than connections may be at a time: who asks for nothing makes room.
    pub(crate) is_crowded: bool,
    pub(crate) replies: u64,
    pub(crate) cuts: u64,
    /// Replies that say that there is too much to do.
    pub(crate) unavailable: u64,
    pub(crate) violations: Vec<String>,
    pub(crate) verbose: bool,
    /// Of everything that the worker was told, and when: equal for equal runs.
    pub(crate) fingerprint: u64,
    turns: u64,
    completions: u64,
    second: u64,
}

impl World {
    pub(crate) fn new(random: Random, faults: Faults, verbose: bool) -> World {
        let mut agenda = Agenda::default();
        agenda.advance_to(SECOND);
        World {
            agenda,
            random,
            faults,
            network: Network::default(),
            files: Files::default(),
            storage: StorageState::default(),
            clients: Vec::new(),
            mutations: Vec::new(),
            programs: ProgramsState::default(),
            listeners: BTreeMap::new(),
            rung: BTreeSet::new(),
            receive_buffers_free: 0,
            accepted: 0,
            worked_ns: 0,
            interruption: None,
            mail_due: Vec::new(),
            drain: None,
            is_crowded: false,
            replies: 0,
            cuts: 0,
            unavailable: 0,
            violations: Vec::new(),
            verbose,
            fingerprint: 0,
            turns: 0,
            completions: 0,
            second: 0,
        }
    }

    /// The worker does something that takes so long.
    pub(crate) fn work(&mut self, ns: u64) {
        let interruptions = |worked_ns: u64| self.interruption.map_or(0, |(each_ns, ns)| worked_ns / each_ns * ns);
        let interrupted_ns = interruptions(self.worked_ns + ns) - interruptions(self.worked_ns);
        let until_ns = self.agenda.now_ns() + ns + interrupted_ns;
        self.agenda.advance_to(until_ns);
        self.worked_ns += ns;
    }

    /// Something that must never happen has happened.
    pub(crate) fn violation(&mut self, text: String) {
        let now_ns = self.agenda.now_ns();
        if self.verbose {
            eprintln!("{:.6} VIOLATION {text}", now_ns as f64 / 1e9);
        }
        self.violations.push(format!("at {:.6} s: {text}", now_ns as f64 / 1e9));
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.violations.is_empty()
    }

    pub(crate) fn trace(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{:.6} {}", self.agenda.now_ns() as f64 / 1e9, text());
        }
    }

    /// Counts the worker's turns; more than it can have a reason for in one second of virtual time is a worker that spins.
    pub(crate) fn count_turn(&mut self) -> io::Result<()> {
        let second = self.agenda.now_ns() / SECOND;
        if second != self.second {
            (self.second, self.turns, self.completions) = (second, 0, 0);
        }
        self.turns += 1;
        if self.turns > TURNS_IN_A_SECOND_MAX + TURNS_FOR_EACH_COMPLETION * self.completions {
            let text = format!("the worker spins: {} turns for {} completions", self.turns, self.completions);
            self.violation(text.clone());
            return Err(io::Error::other(text));
        }
        Ok(())
    }

    pub(crate) fn note_completions(&mut self, completions: &[Completion]) {
        self.completions += completions.len() as u64;
        for completion in completions {
            let (kind, token) = describe(completion);
            let what = kind << 56 | u64::from(token.generation) << 32 | u64::from(token.index);
            self.fingerprint =
                (self.fingerprint.rotate_left(7) ^ what ^ self.agenda.now_ns()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.trace(|| format!("worker gets {completion:?}"));
        }
    }

    /// The link of a socket that the worker uses, now known by `token`.
    pub(crate) fn link(&mut self, socket: Socket, token: Token) -> Option<&mut Link> {
        let is_open = self.network.links.get(&socket.0).is_some_and(|link| !link.closed);
        if !is_open {
            self.violation(format!("{socket:?} is used and isn't open ({token:?})"));
            return None;
        }
        let link = self.network.links.get_mut(&socket.0)?;
        link.token = Some(token);
        Some(link)
    }

    pub(crate) fn start_receiving(&mut self, socket: Socket, token: Token, how: Receiving) {
        let Some(link) = self.link(socket, token) else { return };
        let before = std::mem::replace(&mut link.receiving, how);
        link.pausing = false;
        self.network.ready.insert(socket.0);
        if before != Receiving::Off {
            self.violation(format!("{socket:?}: a receive while another is under way"));
        }
    }

    /// What is sent directly must not overtake what the reactor is sending.
    pub(crate) fn check_direct_send(&mut self, socket: Socket) {
        let is_closed = self.network.links.get(&socket.0).is_none_or(|link| link.closed);
        if is_closed || self.network.is_sending(socket.0) {
            self.violation(format!("{socket:?}: bytes are sent while a send is under way, or after the end"));
        }
    }

    /// Makes everything happen whose time has come.
    pub(crate) fn run_due(&mut self) {
        while let Some(happening) = self.agenda.pop_due() {
            if self.has_failed() {
                return;
            }
            let World { network, agenda, random, .. } = self;
            match happening {
                Happening::Upstream(link) => network.move_upstream(agenda, random, link),
                Happening::Downstream(link) => network.move_downstream(agenda, random, link),
                Happening::Connected(link) => network.connected(link, 0),
                Happening::ClientActs(client) => self.client_acts(client),
                Happening::ClientReads(client) => self.client_reads(client),
                Happening::ClientDies(client) => self.client_dies(client),
                Happening::ProgramActs(program) => self.program_acts(program),
                Happening::Storage(serial) => self.answer_question(serial),
                Happening::Notice => drop(self.rung.insert(WATCH)),
                Happening::Mutation => self.begin_mutation(),
                Happening::MutationStep(place) => self.step_mutation(place),
                Happening::Mail(message) => self.mail_due.push(message),
            }
        }
    }
}

fn describe(completion: &Completion) -> (u64, Token) {
    match completion {
        Completion::ConnectionsWait { listener } => (1, *listener),
        Completion::Received { token, buffer } => (3 + (buffer.len() as u64) % 32, *token),
        Completion::EndOfInput { token } => (40, *token),
        Completion::ReceiveStopped { token, .. } => (41, *token),
        Completion::Sent { token, .. } => (42, *token),
        Completion::Writable { token } => (43, *token),
        Completion::Readable { token } => (44, *token),
    }
}
