//! Flows that have gone on since their node died: which of them count, and when. One whose client must ask again may yet be cut, by whoever serves it
//! then, if nobody asks: until that is known it counts for nothing.

use std::time::Duration;

use bytes::Bytes;

use super::super::FlowId;
use super::{Holder, Home};
use crate::http::ASKED_AGAIN_WITHIN;
use crate::time::Instant;

/// Within it a home hears from whoever serves a flow that nobody has asked again.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

impl Home {
    /// [`Effect::Recover`] has found that the flow can go on from this image. `is_doubtful`: only if its client asks again.
    pub fn recovered(&mut self, now: Instant, flow: FlowId, image: Bytes, is_doubtful: bool) {
        if let Some(record) = self.flows.get_mut(&flow)
            && record.holder == Holder::Recovering
        {
            record.holder = Holder::Held;
            record.is_doubtful = is_doubtful;
            if is_doubtful {
                self.doubts.push_back((now.after(ASKED_AGAIN_WITHIN + HEARD_WITHIN), flow));
            } else {
                self.counters.recovered += 1;
            }
            self.keep(now, flow, image);
            self.ask_for_place(flow);
        }
    }

    /// A flow that is held here has been cut by whoever serves it: to be said before it's forgotten.
    pub fn was_cut(&mut self, flow: FlowId) {
        if self.end_doubt(flow) {
            self.counters.cut += 1;
        }
    }

    /// It's known what has become of a flow that was doubtful. Whether it was.
    pub(super) fn end_doubt(&mut self, flow: FlowId) -> bool {
        self.flows.get_mut(&flow).is_some_and(|record| std::mem::take(&mut record.is_doubtful))
    }

    /// It's known to have gone on.
    pub(super) fn has_gone_on(&mut self, flow: FlowId) {
        self.counters.recovered += u64::from(self.end_doubt(flow));
    }

    /// Whose doubts have lasted for long enough has gone on.
    pub(super) fn end_old_doubts(&mut self, now: Instant) {
        while let Some(&(_, flow)) = self.doubts.front().filter(|(until, _)| *until <= now) {
            self.doubts.pop_front();
            self.has_gone_on(flow);
        }
    }
}
