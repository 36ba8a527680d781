//! How much is delegated: as much as keeps the connection server and its data servers equally busy.
//!
//! What is compared is the number of requests under way, whose replies clients are still waiting for: it grows in front of whatever binds, be it a
//! processor, a disk or a link, and nobody has to say which. Each request goes to the shorter queue, so the balance follows the load with each of
//! them and has no state that could lag behind or swing. Delegating may take more of this server's processor than serving would: that is done only
//! where most replies wait for this server's link, and is paid out of time in which the processor was idle. So where the processor binds, or the
//! clients do, only what relieves the processor is delegated.

use std::time::Duration;

use super::rules::{Delegation, Near, Rules};
use super::{Explanation, Reason};
use crate::dispatch::cost::{CostModel, Side, Work};

/// What a delegation consists of at each side: a connection that goes, is steered, and comes back.
pub const DELEGATING: [Work; 2] = [Work::Moved, Work::Returned];

/// Serving must be dearer than delegating by so much for it to relieve the processor: both are estimates, and messages and steering aren't in the latter.
const GAIN_MIN: f64 = 1.5;
/// Of idle time, so many hundredths may be spent on delegating: a processor without a pause answers late.
const SPENT_PERCENT: u64 = 80;
/// Idle time that is kept for later.
const CREDIT_NS_MAX: u64 = 10_000_000;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its path, decoded.
    pub path: &'a [u8],
    /// Bytes of the resource.
    pub bytes: u64,
    /// What it takes to serve it here, of the processor.
    pub serving: Duration,
    /// Its connection is a socket here. If not, it has come home as an image, which can be passed on as it is.
    pub is_here: bool,
}

/// How much there is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// Requests under way here, this one included.
    pub own: u32,
    /// Those of them whose replies wait for this server's link.
    pub at_link: u32,
    /// Time in which this server's processor had nothing to do, since it began: it only grows.
    pub idle: Duration,
    /// Data servers that can be given something, in hundredths: each counts by its weight.
    pub servers_percent: u32,
    /// Requests under way at all of them together.
    pub delegated: u32,
    /// They are near to the client: where any is, the others don't count.
    pub is_near: bool,
}

/// What delegating takes, of each processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Of the connection server's.
    pub own: Duration,
    /// Of the data server's, beyond what serving takes anywhere.
    pub data_server: Duration,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Balance {
    rules: Rules,
    costs: CostModel,
    /// Requests that `fraction` let through so far, in hundredths of one.
    turn_percent: u8,
    /// Idle time up to the last request, and what may be spent of it.
    idle: Duration,
    credit_ns: u64,
}

impl Balance {
    /// Goes by other rules from here on.
    pub fn configure(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// What it goes by.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// A part of a delegation has taken so much of a processor.
    pub fn measured(&mut self, work: Work, side: Side, cpu: Duration) {
        self.costs.measured(work, side, 0, cpu);
    }

    /// What delegating a reply of `bytes` bytes takes.
    #[must_use]
    pub fn price(&self, bytes: u64) -> Price {
        let steered = self.costs.estimate(Work::Steered, bytes);
        let parts = DELEGATING.map(|work| self.costs.estimate(work, 0));
        let sum = |first: f64, of: fn(&crate::dispatch::cost::Estimate) -> f64| {
            Duration::from_secs_f64(parts.iter().map(of).sum::<f64>().mul_add(1e-6, first * 1e-6).max(0.0))
        };
        Price {
            own: sum(steered.dispatcher_us, |part| part.dispatcher_us),
            data_server: sum(steered.node_us, |part| part.node_us),
        }
    }

    /// Whether a request is delegated.
    pub fn decide(&mut self, asked: &Asked<'_>, loads: &Loads) -> Reason {
        let (turn_percent, credit_ns) = (self.next_turn(), self.credit_ns(loads));
        let reason = self.judge(asked, loads, turn_percent, credit_ns);
        if !matches!(reason, Reason::Path | Reason::Small) {
            self.turn_percent = turn_percent % 100;
        }
        (self.idle, self.credit_ns) = (loads.idle, credit_ns);
        if reason == Reason::Relieves {
            self.credit_ns -= self.extra_ns(asked).min(credit_ns);
        }
        reason
    }

    /// Whether a request stays here whatever data servers have to do; then that is decided, and nobody needs to look.
    pub fn keeps(&mut self, asked: &Asked<'_>, own: &Loads) -> bool {
        let idle_others = Loads { servers_percent: 100, delegated: 0, is_near: true, ..*own };
        let is_kept = !self.judge(asked, &idle_others, self.next_turn(), self.credit_ns(own)).delegates();
        is_kept && !self.decide(asked, &idle_others).delegates()
    }

    /// Whether a request is delegated that is judged again if it isn't: then nothing has changed.
    pub fn delegates_at_once(&mut self, asked: &Asked<'_>, loads: &Loads) -> bool {
        self.explain(asked, loads).reason.delegates() && self.decide(asked, loads).delegates()
    }

    /// Whether nothing but a request's path and size decides.
    #[must_use]
    pub fn delegates_all(&self) -> bool {
        self.rules.delegation == Delegation::Full && self.rules.fraction_percent >= 100 && self.rules.load_min == 0
    }

    /// What [`Balance::decide`] would say, with what it goes by; changes nothing.
    #[must_use]
    pub fn explain(&self, asked: &Asked<'_>, loads: &Loads) -> Explanation {
        Explanation {
            reason: self.judge(asked, loads, self.next_turn(), self.credit_ns(loads)),
            bytes: asked.bytes,
            serving: asked.serving,
            price: self.price(asked.bytes),
            credit: Duration::from_nanos(self.credit_ns(loads)),
            loads: *loads,
        }
    }

    fn next_turn(&self) -> u8 {
        self.turn_percent + self.rules.fraction_percent.min(100)
    }

    /// What may be spent now.
    fn credit_ns(&self, loads: &Loads) -> u64 {
        let idle_ns = u64::try_from(loads.idle.saturating_sub(self.idle).as_nanos()).unwrap_or(u64::MAX);
        self.credit_ns.saturating_add(idle_ns.saturating_mul(SPENT_PERCENT) / 100).min(CREDIT_NS_MAX)
    }

    /// What delegating takes of this server's processor beyond serving; nothing where it takes less.
    fn extra_ns(&self, asked: &Asked<'_>) -> u64 {
        if !asked.is_here {
            return 0;
        }
        let own = self.price(asked.bytes).own;
        let is_gain = asked.serving.as_secs_f64() >= own.as_secs_f64() * GAIN_MIN;
        let extra = if is_gain { Duration::ZERO } else { own.saturating_sub(asked.serving).max(own / 10) };
        u64::try_from(extra.as_nanos()).unwrap_or(u64::MAX)
    }

    fn judge(&self, asked: &Asked<'_>, loads: &Loads, turn_percent: u8, credit_ns: u64) -> Reason {
        if let Err(reason) = self.rules.allow(asked.path, asked.bytes) {
            return reason;
        }
        if turn_percent < 100 {
            return Reason::Fraction;
        }
        if loads.servers_percent == 0 {
            return Reason::Nobody;
        }
        if loads.is_near && self.rules.near == Near::Always {
            return Reason::Near;
        }
        if loads.own < self.rules.load_min {
            return Reason::Idle;
        }
        if self.rules.delegation == Delegation::Full {
            return Reason::Full;
        }
        // What is in front of it here, and in front of it there if it goes: a tie stays.
        let (own, delegated) = (u64::from(loads.own), u64::from(loads.delegated));
        let servers_percent = u64::from(loads.servers_percent);
        if own * servers_percent <= delegated * 100 + servers_percent {
            return Reason::Balanced;
        }
        match self.extra_ns(asked) {
            0 => Reason::Relieves,
            // Work that takes more of the processor shortens no queue but the link's.
            _ if loads.at_link * 2 <= loads.own => Reason::Useless,
            extra_ns if extra_ns > credit_ns => Reason::Dearer,
            _ => Reason::Relieves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked<'_> = Asked { path: b"/a", bytes: 65_536, serving: Duration::from_micros(20), is_here: true };
    const LOADS: Loads =
        Loads { own: 8, at_link: 6, idle: Duration::from_secs(1), servers_percent: 100, delegated: 3, is_near: false };

    fn balance(rules: Rules) -> Balance {
        let mut balance = Balance::default();
        balance.configure(rules);
        balance
    }

    #[test]
    fn a_request_goes_to_the_shorter_queue() {
        let mut balance = balance(Rules::default());
        assert_eq!(balance.decide(&ASKED, &LOADS), Reason::Relieves);
        assert_eq!(balance.decide(&ASKED, &Loads { delegated: 7, ..LOADS }), Reason::Balanced);
        assert_eq!(balance.decide(&ASKED, &Loads { delegated: 20, servers_percent: 300, ..LOADS }), Reason::Relieves);
        assert_eq!(balance.decide(&ASKED, &Loads { own: 1, delegated: 0, ..LOADS }), Reason::Balanced, "nobody waits");
        assert_eq!(balance.decide(&ASKED, &Loads { servers_percent: 0, ..LOADS }), Reason::Nobody);
    }

    #[test]
    fn a_busy_processor_is_spared() {
        let mut balance = balance(Rules::default());
        // What it had idle is soon spent.
        let delegated = (0..1000).filter(|_| balance.decide(&ASKED, &LOADS).delegates()).count();
        assert!((50..500).contains(&delegated), "{delegated}");
        let busy = LOADS;
        assert_eq!(balance.decide(&ASKED, &busy), Reason::Dearer);
        assert_eq!(
            balance.decide(&Asked { is_here: false, ..ASKED }, &busy),
            Reason::Relieves,
            "there is no socket to take apart"
        );
        let long = Asked { bytes: 10 << 20, serving: Duration::from_millis(2), ..ASKED };
        assert_eq!(balance.decide(&long, &Loads { at_link: 0, ..busy }), Reason::Relieves);
        for _ in 0..64 {
            for work in DELEGATING {
                balance.measured(work, Side::Dispatcher, Duration::from_micros(5));
            }
        }
        assert_eq!(balance.decide(&ASKED, &busy), Reason::Relieves, "what was measured counts");
    }

    #[test]
    fn what_takes_more_of_the_processor_is_done_for_the_link_only() {
        let mut balance = balance(Rules::default());
        assert_eq!(balance.decide(&ASKED, &Loads { at_link: 4, ..LOADS }), Reason::Useless);
        assert_eq!(balance.decide(&ASKED, &Loads { at_link: 5, ..LOADS }), Reason::Relieves);
    }

    #[test]
    fn what_stays_in_any_case_is_decided_without_a_look_at_others() {
        let mut balance = balance(Rules { fraction_percent: 50, ..Rules::default() });
        let idle = Loads { delegated: 99, ..LOADS };
        assert!(balance.keeps(&ASKED, &idle), "not its turn, which is counted");
        assert!(!balance.keeps(&ASKED, &idle), "others may have less to do");
        assert!(!balance.keeps(&ASKED, &idle), "until that is known, nothing is");
        assert!(balance.decide(&ASKED, &LOADS).delegates());
        assert!(balance.keeps(&ASKED, &idle));
        assert!(balance.keeps(&ASKED, &Loads { at_link: 4, ..LOADS }), "it isn't the link");
        assert!(balance.keeps(&ASKED, &Loads { own: 1, ..LOADS }), "nobody waits");
    }

    #[test]
    fn a_fraction_is_taken_in_turns() {
        let mut balance = balance(Rules { delegation: Delegation::Full, fraction_percent: 30, ..Rules::default() });
        let delegated = (0..1000).filter(|_| balance.decide(&ASKED, &LOADS).delegates()).count();
        assert_eq!(delegated, 300);
    }

    #[test]
    fn what_has_a_data_server_near_is_delegated_where_that_is_said() {
        let near = Loads { own: 1, at_link: 0, delegated: 99, is_near: true, ..LOADS };
        let mut prefers = balance(Rules::default());
        assert_eq!(prefers.decide(&ASKED, &near), Reason::Balanced, "nearness alone says to whom");
        let rules = Rules { near: Near::Always, load_min: 5, size_bytes_min: 1000, ..Rules::default() };
        let mut always = balance(rules.clone());
        assert_eq!(always.decide(&ASKED, &near), Reason::Near);
        assert_eq!(always.decide(&ASKED, &Loads { is_near: false, ..near }), Reason::Idle);
        assert_eq!(always.decide(&Asked { bytes: 999, ..ASKED }, &near), Reason::Small, "other rules hold");
        assert_eq!(always.decide(&ASKED, &Loads { servers_percent: 0, ..near }), Reason::Nobody);
        let own = Loads { servers_percent: 0, delegated: 0, is_near: false, ..near };
        assert!(!always.keeps(&ASKED, &own), "a data server may be near");
        let mut halves = balance(Rules { fraction_percent: 50, ..rules });
        let delegated = (0..100).filter(|_| halves.decide(&ASKED, &near).delegates()).count();
        assert_eq!(delegated, 50);
    }

    #[test]
    fn asking_changes_nothing() {
        let balance = balance(Rules { delegation: Delegation::Full, fraction_percent: 60, ..Rules::default() });
        let first = balance.explain(&ASKED, &LOADS).reason;
        assert_eq!((first, balance.explain(&ASKED, &LOADS).reason), (Reason::Fraction, Reason::Fraction));
    }

    #[test]
    fn full_delegation_asks_for_no_balance() {
        let mut balance = balance(Rules { delegation: Delegation::Full, load_min: 5, ..Rules::default() });
        assert_eq!(balance.decide(&ASKED, &Loads { delegated: 99, ..LOADS }), Reason::Full);
        assert_eq!(balance.decide(&ASKED, &Loads { own: 4, ..LOADS }), Reason::Idle);
    }
}
