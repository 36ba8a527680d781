//! The names that all servers of a cluster use for the same thing: servers, flows, their generations, requests.

use std::fmt;
use std::net::SocketAddr;

/// One worker of a server of the cluster: each holds flows by itself, and each of a dispatcher's is a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// Workers' numbers take that many bits.
const WORKER_BITS: u32 = 10;

impl ServerId {
    /// A worker of a server, by the server's number in the configuration. Workers are told apart as far as a server has them at a time.
    #[must_use]
    pub fn new(server: u32, worker: u32) -> ServerId {
        ServerId(server << WORKER_BITS | worker & ((1 << WORKER_BITS) - 1))
    }

    /// The server's number.
    #[must_use]
    pub fn server(self) -> u32 {
        self.0 >> WORKER_BITS
    }

    /// The worker's.
    #[must_use]
    pub fn worker(self) -> u16 {
        (self.0 & ((1 << WORKER_BITS) - 1)) as u16
    }
}

/// One life of a server's process: a number that it has had in no life before, such as its start in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// A process of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// No other one has it.
    pub number: u64,
    /// No other one of its node lives. In Hello: nor has any left something in the kernel that could still send.
    pub is_only: bool,
}

/// One connection of a client, wherever it is held. Given by its home, which counts on from a number that it has never reached before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// The server at which the client's packets arrive.
    pub home: ServerId,
    /// Its count.
    pub serial: u64,
}

/// A connection as its packets name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ends {
    /// The client's address.
    pub client: SocketAddr,
    /// The address that it talks to.
    pub vip: SocketAddr,
}

/// How often a flow has changed hands. Only its home counts; the holder of the highest generation is the only one that may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

impl Generation {
    /// Under which a node has a flow that began there.
    pub const BORN: Generation = Generation(1);

    /// The one that follows.
    #[must_use]
    pub fn next(self) -> Generation {
        Generation(self.0.saturating_add(1))
    }
}

/// A request, as access logs name it, the same on every server that had to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// The connection that it came on.
    pub flow: FlowId,
    /// Its number on that connection, from 1.
    pub number: u32,
}

impl fmt::Display for FlowId {
    /// `3-1f00c`: home and serial, hexadecimal.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:x}-{:x}", self.home.0, self.serial)
    }
}

impl fmt::Display for RequestId {
    /// `3-1f00c-2`: the flow, then the request's number in decimal.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.flow, self.number)
    }
}
