//! Handoffs under faults, from a seed: a home, some nodes and their clients in virtual time, with the real machines of `leat_logic::handoff` and
//! pretended kernels. Processes crash, stand still and come back; sessions break and lose what was under way; clocks differ in pace.
//!
//! What must hold: of a flow's sockets only one may ever send, and never one of an older generation after a newer; the client gets each byte
//! once, in order, of one version of the content; a connection that is cut has a reason; in the end nothing is left anywhere.

mod client;
mod kernel;
mod process;
mod session;
mod world;

use std::fmt;

use crate::agenda::SECOND;
use world::World;

/// Something that is broken on purpose, to show that it's noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Steering entries take effect too late: after the giver's socket is gone.
    SteersLate,
    /// A node's kernel lets out what its sockets send although the lease has run out.
    NoFence,
    /// A node's clock is slower than clocks may be.
    SlowClock,
    /// Nodes don't say what they hold.
    ForgetsList,
    /// A socket that goes on after a death doesn't know what may have been sent.
    ForgetsResend,
    /// Content is taken for the same whatever its tag.
    TrustsContent,
    /// What the client has got is asked for while packets of the dead node may still be under way.
    ProbesEarly,
    /// A node's process says that it's the only one, whoever else there is.
    OverlooksOthers,
}

impl Defect {
    /// All of them, with their names on the command line.
    pub const ALL: [(&'static str, Defect); 8] = [
        ("steers-late", Defect::SteersLate),
        ("no-fence", Defect::NoFence),
        ("slow-clock", Defect::SlowClock),
        ("forgets-list", Defect::ForgetsList),
        ("forgets-resend", Defect::ForgetsResend),
        ("trusts-content", Defect::TrustsContent),
        ("probes-early", Defect::ProbesEarly),
        ("overlooks-others", Defect::OverlooksOthers),
    ];
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// Say what happens.
    pub verbose: bool,
    /// Broken on purpose.
    pub defect: Option<Defect>,
    /// Clients ask for all that they want at once, and nodes tell of every reply.
    pub pipelined: bool,
}

/// How a run ended that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections that clients opened.
    pub flows: u64,
    /// Of these, served to the end.
    pub served: u64,
    /// Cut and counted.
    pub cut: u64,
    /// Lost with the home's process.
    pub lost_with_home: u64,
    /// Of the connections, begun at a node.
    pub born: u64,
    /// The same, without the home being asked.
    pub unasked: u64,
    /// Handoffs and returns that were taken.
    pub changes: u64,
    /// Requests whose place was asked for.
    pub asked: u64,
    /// Flows that were lent and given back.
    pub lent: u64,
    /// Flows that went on after their node's death.
    pub recovered: u64,
    /// Processes of nodes that were followed by others.
    pub upgrades: u64,
    /// Flows that went to the process that followed, socket and all.
    pub passed: u64,
    /// Flows that a process hadn't given back when it had to end.
    pub expired: u64,
    /// Of everything that happened.
    pub fingerprint: u64,
}

/// A run that ended badly.
#[derive(Debug)]
pub struct Failure {
    seed: u64,
    pipelined: bool,
    at_ns: u64,
    what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, pipelined, at_ns, what } = self;
        let kind = if *pipelined { "--handoff --pipelined" } else { "--handoff" };
        let seconds = *at_ns as f64 / SECOND as f64;
        writeln!(formatter, "seed {seed}, {seconds:.6} s: {what}")?;
        writeln!(formatter, "again: cargo run -p leat-sim -- {kind} --seed {seed} --verbose")
    }
}

impl std::error::Error for Failure {}

/// Faults end after this time, and all that is down comes up again.
const FAULTS_END_NS: u64 = 20 * SECOND;
/// A connection that hasn't ended by then never will.
const RUN_END_NS: u64 = 400 * SECOND;

/// Runs one seed.
///
/// # Errors
/// The first thing that must not be.
pub fn run(options: Options) -> Result<Summary, Failure> {
    let mut world = World::new(options);
    while world.failure.is_none() && !world.is_over() && world.now_ns < RUN_END_NS {
        if !world.step() {
            break;
        }
    }
    world.check_end();
    match world.failure.take() {
        Some(what) => {
            let Options { seed, pipelined, .. } = options;
            Err(Failure { seed, pipelined, at_ns: world.now_ns, what })
        }
        None => Ok(world.summary()),
    }
}
