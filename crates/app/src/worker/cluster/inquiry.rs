//! Connections whose node is dead, and that go on, or sooner, if it's certain what their clients have: each client is asked, by a segment from before that, which it
//! must answer (RFC 9293, section 3.10.7.4), and what it answers waits here with all else that it says. Says when it's asked and what counts as an answer; how the
//! connection goes on then, `leat_logic::handoff::continue_from` knows. `docs/decisions/0026-recovery.md` has the reasons.

use std::collections::BTreeMap;
use std::time::Duration;

use leat_host::handoff::Freezer;
use leat_host::steering::{self, FlowKey, HELD_FRAMES_PER_FLOW_MAX, Heard, Kept, Said};
use leat_logic::handoff::{FlowId, Image, Impossible, Progress, TcpState, Witness, continue_from};
use leat_logic::http::ConnectionState;
use leat_logic::time::Instant;

use super::super::{Host, Worker};
use super::Part;
use super::recovery::LAST_WORDS;

/// A client is asked so often. Linux answers once in half a second (`tcp_invalid_ratelimit`).
const TIMES_MAX: u32 = 2;
const PAUSE: Duration = Duration::from_millis(600);
/// A client that still gets what the dead node has sent is asked once that has ended, if it has by then: on a slow line much may be under way.
const QUIET_WITHIN: Duration = Duration::from_secs(4);
/// All who may have answered are looked at together.
const LOOK: Duration = Duration::from_millis(5);
/// Clients that are asked in one turn.
const AT_ONCE: usize = 64;

/// A flow whose node is dead.
pub(super) struct Recovery {
    pub(super) key: FlowKey,
    pub(super) image: Image,
    /// When that was made.
    pub(super) kept: Instant,
    pub(super) told: Vec<Progress>,
    /// What the steering program saw of the client, and kept of what it said last.
    pub(super) heard: Heard,
    /// It has ended its side since the image was made.
    pub(super) has_ended: bool,
    pub(super) client_said: Kept,
}

impl Recovery {
    /// What is known of the client. `is_exact`: it has answered, and has nothing else.
    pub(super) fn seen(&self, is_exact: bool, now: Instant) -> Result<Witness, Impossible> {
        let tcp = self.image.tcp.as_ref().ok_or(Impossible::NoTcp)?;
        let scale = tcp.window_scale.map_or(0, |scale| scale.send);
        let age = now.since(self.kept);
        // Clocks may differ in pace by 2 %, and a client drops what is from before what it has seen.
        let age_ms = (age + age / 50).as_millis() as u32;
        let acknowledged_bytes = self.heard.acknowledged_since(tcp.unacknowledged()).ok_or(Impossible::Unknown)?;
        Ok(Witness {
            acknowledged_bytes,
            window_bytes: u32::from(self.heard.window) << scale,
            client_bytes: u64::from(self.heard.client_end(self.has_ended).wrapping_sub(tcp.first_unread())),
            has_ended: self.has_ended,
            client_said: self.client_said.bytes.clone(),
            unkept_bytes: self.client_said.more,
            timestamp: tcp.timestamp.map(|shown| shown.wrapping_add(age_ms)),
            is_exact,
        })
    }

    /// How it goes on by what is known.
    pub(super) fn outcome(&self, seen: &Witness) -> Result<Image, Impossible> {
        continue_from(self.image.clone(), self.told.clone(), seen)
    }

    /// Whether it goes on, or sooner, or with all that was asked for, if its client has nothing beyond what it was seen to acknowledge.
    pub(super) fn wants_proof(&self, seen: &Witness) -> bool {
        let waits = |state: &ConnectionState| state.expects_again() || state.closes_after_reply();
        let prospect = |seen: &Witness| match self.outcome(seen) {
            Err(_) => Prospect::Cut,
            Ok(image) if image.http.connection.tells_of_loss() => Prospect::IsTold,
            Ok(image) if waits(&image.http.connection) || waits_for_timer(&image) => Prospect::GoesOnInPart,
            Ok(_) => Prospect::GoesOn,
        };
        prospect(&Witness { is_exact: true, ..seen.clone() }) > prospect(seen)
    }

    /// Takes in what the client has said since. Whether it has acknowledged more: then even more may be under way.
    fn hear(&mut self, said: &Said) -> bool {
        let has_more = acknowledged_since(&self.heard, said).is_some_and(|more| more > 0);
        if has_more {
            self.heard.hear(said);
        }
        has_more
    }

    /// Has the client say what it has got. Nothing is left here that hears the answer: it waits with what else comes.
    fn ask(&self, freezer: &Freezer, now: Instant) {
        let exact = self.seen(true, now).and_then(|seen| self.outcome(&seen));
        let Some(tcp) = exact.ok().and_then(|image| image.tcp) else { return };
        let Heard { acknowledged, client_next, .. } = self.heard;
        // Who is thawed with something that wasn't acknowledged asks for that.
        let asking = TcpState {
            send_next: acknowledged,
            receive_next: client_next,
            unread: Vec::new(),
            sent: vec![0],
            unsent: Vec::new(),
            ..tcp
        };
        if let Ok(socket) = freezer.thaw(&asking)
            && let Ok(frozen) = freezer.freeze(socket)
        {
            frozen.close_silently();
        }
    }
}

/// What becomes of a connection, the better the later.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Prospect {
    Cut,
    /// Or late, or if its client asks again.
    GoesOnInPart,
    /// Its client is told that its request is lost.
    IsTold,
    GoesOn,
}

/// What a client may have is in its socket as sent, and goes out again when that hears nothing for a second; the next of it, as the kernel takes that for a
/// time-out without cause (F-RTO, RFC 5682), three seconds later.
fn waits_for_timer(image: &Image) -> bool {
    let has_sent = image.tcp.as_ref().is_some_and(|tcp| !tcp.sent.is_empty());
    has_sent || image.reply.as_ref().is_some_and(|reply| reply.resend_bytes > 0)
}

/// How much more than was heard before a client has; none if what it says is from before that, and was only late.
fn acknowledged_since(heard: &Heard, said: &Said) -> Option<u32> {
    u32::try_from(said.acknowledged.wrapping_sub(heard.acknowledged).cast_signed()).ok()
}

/// A home's.
pub(super) struct Inquiries {
    all: BTreeMap<FlowId, Inquiry>,
    at: Instant,
}

struct Inquiry {
    recovery: Recovery,
    times: u32,
    /// When it's asked, or its answer is given up.
    at: Instant,
    /// By then it has to get nothing any more.
    quiet_by: Instant,
    /// Packets of the flow that had come before it was asked.
    had_come: usize,
}

impl Default for Inquiries {
    fn default() -> Inquiries {
        Inquiries { all: BTreeMap::new(), at: Instant::NEVER }
    }
}

impl Inquiries {
    /// What its node has sent gets to the client before it's asked.
    pub(super) fn add(&mut self, flow: FlowId, recovery: Recovery, now: Instant) {
        let at = now.after(LAST_WORDS);
        self.at = self.at.min(at);
        self.all.insert(flow, Inquiry { recovery, times: 0, at, quiet_by: now.after(QUIET_WITHIN), had_come: 0 });
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.at
    }

    /// Asks whom it's time to ask. Returns those that have answered, with whether they have nothing else, and those that don't.
    fn handle_timeout(
        &mut self,
        steering: &steering::Dispatcher,
        freezer: &Freezer,
        now: Instant,
    ) -> Vec<(FlowId, Recovery, bool)> {
        steering.receive(now);
        let (mut done, mut asked) = (Vec::new(), 0);
        for (&flow, inquiry) in &mut self.all {
            match inquiry.step(steering, now) {
                Step::Wait => {}
                Step::Ask if asked < AT_ONCE => {
                    asked += 1;
                    inquiry.recovery.ask(freezer, now);
                    (inquiry.times, inquiry.at) = (inquiry.times + 1, now.after(PAUSE));
                }
                Step::Ask => {}
                Step::Done { is_exact } => done.push((flow, is_exact)),
            }
        }
        let taken = done.into_iter().filter_map(|(flow, exact)| Some((flow, self.all.remove(&flow)?.recovery, exact)));
        let done = taken.collect();
        let first = self.all.values().map(|inquiry| inquiry.at).min().unwrap_or(Instant::NEVER);
        let is_asking = self.all.values().any(|inquiry| inquiry.times > 0);
        self.at = if is_asking { now.after(LOOK) } else { first };
        done
    }
}

/// What is to be done with a client.
enum Step {
    Wait,
    Ask,
    /// `is_exact`: it has nothing but what it has acknowledged.
    Done {
        is_exact: bool,
    },
}

impl Inquiry {
    fn step(&mut self, steering: &steering::Dispatcher, now: Instant) -> Step {
        let Inquiry { recovery, times, at, quiet_by, had_come } = self;
        let key = recovery.key;
        let answer = if *times > 0 { steering.said_since(key, *had_come) } else { None };
        let answer = answer.filter(|said| acknowledged_since(&recovery.heard, said).is_some());
        if let Some(said) = answer {
            if !recovery.hear(&said) {
                return Step::Done { is_exact: !said.has_gaps };
            }
            // It wasn't the question that it answered, or it was late in hearing what the node had sent.
            *had_come = steering.held_count(key);
        }
        if *at > now {
            return Step::Wait;
        }
        if *times == TIMES_MAX {
            return Step::Done { is_exact: false };
        }
        let (count, said) = (steering.held_count(key), steering.said_since(key, 0));
        let still_gets = said.is_some_and(|said| recovery.hear(&said)) || count >= HELD_FRAMES_PER_FLOW_MAX;
        *had_come = count;
        match still_gets {
            true if now >= *quiet_by => Step::Done { is_exact: false },
            true => {
                *at = now.after(LAST_WORDS);
                Step::Wait
            }
            false => Step::Ask,
        }
    }
}

impl<H: Host> Worker<H> {
    /// Clients of dead nodes' connections are asked what they have, and what they have answered is seen to.
    pub(super) fn handle_inquiries(&mut self) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Home(home) = &mut cluster.part else { return };
        if home.inquiries.poll_timeout() > now {
            return;
        }
        let Some(steering) = home.steering.clone() else { return };
        for (flow, recovery, is_exact) in home.inquiries.handle_timeout(&steering, &cluster.freezer, now) {
            let outcome = recovery.seen(is_exact, now).and_then(|seen| recovery.outcome(&seen));
            home.recovers(now, flow, outcome);
        }
        self.run_effects();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_late_on_its_way_is_no_answer() {
        let since = |acknowledged| {
            let said = Said { acknowledged, window: 1, has_gaps: false };
            acknowledged_since(&Heard::last(0xffff_fff0, 7), &said)
        };
        assert_eq!([since(0xffff_fff0), since(0x10), since(0xffff_ffef)], [Some(0), Some(0x20), None]);
    }
}
