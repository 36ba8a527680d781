//! Whether a request would be delegated and why, in words. The reasons are `balance`'s and `rules`'.

use std::fmt;
use std::time::Duration;

use super::Reason;
use super::balance::{Loads, Price};

/// What would become of a request. Displays as several lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What is decided.
    pub reason: Reason,
    /// Bytes of the resource.
    pub bytes: u64,
    /// What serving it takes here.
    pub serving: Duration,
    /// What delegating it takes.
    pub price: Price,
    /// Idle time of this processor that may be spent on delegating.
    pub credit: Duration,
    /// How much there is to do.
    pub loads: Loads,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let Loads { own, at_link, servers_percent, delegated, is_near, .. } = self.loads;
        let what = if self.reason.delegates() { "is delegated" } else { "is answered here" };
        writeln!(f, "{what}: {}", self.reason)?;
        writeln!(f, "  {} bytes: serving them takes {:.1} us of the processor here", self.bytes, us(self.serving))?;
        let Price { own: here, data_server } = self.price;
        writeln!(f, "  delegating them takes {:.1} us here and {:.1} us more there", us(here), us(data_server))?;
        writeln!(f, "  under way here: {own}, {at_link} of them waiting for its link")?;
        writeln!(f, "  idle time to spend: {:.1} ms", us(self.credit) / 1e3)?;
        let which = if is_near { "data servers near to the client" } else { "data servers" };
        writeln!(f, "  under way at {which}: {delegated}, for a weight of {servers_percent}")
    }
}
