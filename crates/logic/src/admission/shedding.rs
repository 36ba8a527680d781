//! What part of those who want to connect is let in at a listener, by how many wait there. The others are dropped before anything is known of them
//! and try again a second later. With a full queue alone, the kernel tells clients that they are connected and then doesn't hear what they say.

/// By how much the part falls with each look at which the queue is half full, and rises when it's nearly empty.
const FALL: f64 = 0.8;
const RISE: f64 = 1.5;
/// What counts as so much, as one part in so many of what it may hold. As half of it may just have been accepted, half is as good as full.
const FULL_PART: u32 = 2;
const EMPTY_PART: u32 = 4;
/// So many are let in at most where most are dropped.
const CROWDED_PART: f64 = 0.5;
/// However many come, some are let in, so that it's noticed when fewer do.
const PART_MIN: f64 = 1.0 / 4_096.0;

/// One listener's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shedding {
    part: f64,
}

impl Default for Shedding {
    fn default() -> Shedding {
        Shedding { part: 1.0 }
    }
}

impl Shedding {
    /// Whether most of those who come are dropped.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.part < CROWDED_PART
    }

    /// So many wait now, of as many as may while there is too much to do. What part is to be let in from now on, if that changes.
    pub fn look(&mut self, waiting: u32, queue_max: Option<u32>) -> Option<f64> {
        let part = match queue_max {
            None => 1.0,
            Some(max) if waiting >= max / FULL_PART => (self.part * FALL).max(PART_MIN),
            Some(max) if waiting <= max / EMPTY_PART => (self.part * RISE).min(1.0),
            Some(_) => self.part,
        };
        (part != self.part).then(|| {
            self.part = part;
            part
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE_MAX: u32 = 16;

    #[test]
    fn all_are_let_in_until_a_queue_that_is_cut_is_half_full_and_once_it_is_cut_no_more() {
        let mut shedding = Shedding::default();
        assert_eq!(shedding.look(4_096, None), None);
        assert_eq!(shedding.look(7, Some(QUEUE_MAX)), None);
        assert_eq!(shedding.look(8, Some(QUEUE_MAX)), Some(FALL));
        assert_eq!(shedding.look(6, Some(QUEUE_MAX)), None, "neither full nor empty");
        assert_eq!(shedding.look(17, None), Some(1.0));
    }

    /// Of all who come, the parts that are accepted and that find the queue full, and the part of the time in which nobody waited.
    fn run(each_ms: u32, accepted_each_ms: u32) -> (f64, f64, f64) {
        let (mut shedding, mut part, mut let_in, mut waiting) = (Shedding::default(), 1.0, 0.0, 0_u32);
        let (mut accepted, mut overflowed, mut idle) = (0, 0, 0);
        const STEPS: u32 = 2_000;
        for ms in 0..STEPS {
            for _ in 0..each_ms {
                let_in += part;
                if let_in >= 1.0 {
                    let_in -= 1.0;
                    if waiting <= QUEUE_MAX { waiting += 1 } else { overflowed += 1 }
                }
            }
            idle += u32::from(waiting < accepted_each_ms);
            accepted += waiting.min(accepted_each_ms);
            waiting -= waiting.min(accepted_each_ms);
            if ms % 10 == 0 {
                part = shedding.look(waiting, Some(QUEUE_MAX)).unwrap_or(part);
            }
        }
        let all = f64::from(STEPS * each_ms);
        (f64::from(accepted) / all, f64::from(overflowed) / all, f64::from(idle) / f64::from(STEPS))
    }

    #[test]
    fn few_find_the_queue_full_and_it_rarely_runs_dry_however_many_come() {
        for (each_ms, accepted_each_ms) in [(4, 3), (14, 3), (100, 3), (1_000, 3), (40, 8)] {
            let (accepted, overflowed, idle) = run(each_ms, accepted_each_ms);
            let wanted = f64::from(accepted_each_ms) / f64::from(each_ms);
            assert!(accepted > wanted * 0.9, "{each_ms}: {accepted} accepted");
            assert!(overflowed < 0.1, "{each_ms}: {overflowed} overflowed");
            assert!(idle < 0.25, "{each_ms}: dry for {idle}");
        }
    }

    #[test]
    fn those_who_come_when_the_flood_is_over_are_let_in() {
        let mut shedding = Shedding::default();
        for _ in 0..1_000 {
            shedding.look(17, Some(QUEUE_MAX));
        }
        assert_eq!(shedding.part, PART_MIN);
        let looks = (1..).find(|_| shedding.look(0, Some(QUEUE_MAX)) == Some(1.0));
        assert!(looks.is_some_and(|looks| looks < 50), "{looks:?} looks");
    }
}
