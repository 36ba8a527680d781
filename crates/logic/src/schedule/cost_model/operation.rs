//! The kinds of operations whose price is known apart, with where each price starts and how far it may go.

/// A price before anything has been measured, and its bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prior {
    /// For each operation, in nanoseconds.
    pub(super) each_ns: f64,
    /// For each KiB, in nanoseconds.
    pub(super) kib_ns: f64,
}

/// A fitted price is at most this many times what it started at, and at least this part of it.
pub(super) const RANGE: f64 = 16.0;

macro_rules! operations {
    ($($(#[$doc:meta])+ $variant:ident $name:literal $each_ns:literal $kib_ns:literal,)+) => {
        /// Something that a worker does, with what the kernel does for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Operation {
            $($(#[$doc])+ $variant,)+
        }

        impl Operation {
            /// All that there are.
            pub const ALL: &'static [Operation] = &[$(Operation::$variant),+];
            /// How many there are.
            pub const COUNT: usize = Operation::ALL.len();

            /// Its name in the metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Operation::$variant => $name,)+ }
            }

            pub(super) const fn prior(self) -> Prior {
                match self { $(Operation::$variant => Prior { each_ns: $each_ns, kib_ns: $kib_ns },)+ }
            }
        }
    };
}

operations! {
    /// A turn of the worker's loop, with its call into the kernel: for nobody in particular.
    Turn "turn" 1_000.0 0.0,
    /// A connection is accepted and set up.
    Accept "accept" 8_000.0 0.0,
    /// Bytes are received, and what they say is found out.
    Receive "receive" 1_500.0 100.0,
    /// What is asked for is found, and the head of the reply written.
    Serve "serve" 1_000.0 0.0,
    /// A file's name is looked up, and it's opened and read.
    Load "load" 5_000.0 100.0,
    /// Bytes are sent from memory.
    Send "send" 2_500.0 200.0,
    /// Bytes are sent from a file.
    SendFile "send_file" 3_000.0 150.0,
    /// Work is given to another thread or process, or taken back.
    Pass "pass" 2_000.0 100.0,
    /// A connection is frozen, and offered to another server.
    HandOver "hand_over" 25_000.0 0.0,
    /// A request is refused.
    Refuse "refuse" 3_500.0 0.0,
    /// A connection is closed.
    Close "close" 4_000.0 0.0,
}

impl Operation {
    #[inline]
    pub(super) const fn index(self) -> usize {
        self as usize
    }
}
