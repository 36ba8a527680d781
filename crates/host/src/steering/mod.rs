//! Packets of connections that moved, sent after them by eBPF programs in tc. Which flow belongs where is decided elsewhere; the programs in
//! `programs` look it up for each packet. `docs/decisions/0009-steering.md` has the reasons.
//!
//! A [`Dispatcher`] is where clients' packets arrive, a [`Node`] where their connections may be; a [`Spread`] is either, for connections that go by a
//! table. Maps and programs are pinned: what a process loaded goes on working when it has died, and the next one finds it.

mod allowed;
mod attach;
mod batch;
mod born;
mod change;
mod choice;
mod dispatcher;
mod flows;
mod held;
mod kept;
mod layout;
mod node;
mod replays;
mod replies;
mod spread;
#[cfg(test)]
mod tests;
mod transplant;

use std::io;
use std::path::PathBuf;

use aya::maps::{MapData, PerCpuArray};

pub(crate) use attach::load;
pub use attach::{RunTime, measure_run_time};
pub use batch::{Batch, Place};
pub use born::{Arrival, Birth, CookieKey, can_name};
pub use choice::{Begun, StandingChoice};
pub use dispatcher::{Dispatcher, DispatcherCounters, Planted, Reach};
pub use flows::{Flow, FlowKey, Flows, Heard};
pub(crate) use held::is_tap_name;
pub use held::{HELD_BYTES_MAX, HELD_FRAMES_PER_FLOW_MAX};
pub use kept::{Kept, Said};
pub use layout::{CHOICE_TURNS, NO_LEASE};
pub use node::{Node, NodeCounters, Service, boot_clock_ns, can_forget_dead, forget_dead, mark_closing};
pub use replays::has_replays_left;
pub use replies::Reply;
pub use spread::{Spread, SpreadCounters, SpreadPart, SpreadService, gives_to_shared_listeners};
pub use transplant::Next;

/// Why packets can't be steered, or these not.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused something.
    #[error("{doing}: {reason}")]
    Kernel {
        /// What was being done.
        doing: String,
        /// What the kernel said, with what the verifier said if it was asked.
        reason: String,
    },
    /// Programs can't be loaded by this process.
    #[error(
        "this process lacks {lacking}, which eBPF programs take: give it that, or run it as root (docs/service.md)"
    )]
    Forbidden {
        /// The names of the capabilities.
        lacking: String,
    },
    /// Pins live on a file system of their own.
    #[error("{} isn't on a BPF file system: `mount -t bpf bpf /sys/fs/bpf` makes one", path.display())]
    NotBpf {
        /// The directory for pins.
        path: PathBuf,
    },
    /// No room for another flow. None is evicted: this one is to be served without moving it.
    #[error("all {capacity} entries for flows are taken")]
    Full {
        /// How many there are.
        capacity: u32,
    },
    /// The entry is gone, or another flow's.
    #[error("the flow has no entry any more")]
    Gone,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Says what was being done when something failed.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: std::error::Error> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Kernel { doing: what(), reason: chain(&error) })
    }
}

/// An error with what it comes from.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        source = error.source();
    }
    text
}

fn interface_index(name: &str) -> Result<u32> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
        .map_err(io::Error::from)
        .doing(|| format!("interface {name}"))?;
    rustix::net::netdevice::name_to_index(&socket, name).map_err(io::Error::from).doing(|| format!("interface {name}"))
}

/// A counter, over all processors.
fn sum(counters: &PerCpuArray<MapData, u64>, which: u32) -> Result<u64> {
    let values = counters.get(&which, 0).doing(|| "reading counters".to_owned())?;
    Ok(values.iter().sum())
}
