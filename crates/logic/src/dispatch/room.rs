//! How many connections that are to begin at a node's worker may be on their way there: as many as it takes offers, and few while some find no room.
//!
//! What finds no room in a listener's queue is dropped by the kernel there, asked for by its home, denied, and moved elsewhere, at several times the cost of a
//! connection that begins. A client whose request isn't sent there says it again a fifth of a second later.

/// As many offers as nodes take.
const MOST: u32 = 1_024;
/// As many as wait to be accepted where there is too much to do.
const FEWEST: u32 = crate::admission::limits::LISTENER_QUEUE_SHORT;
/// By which part that rises with each report of a node that had room for all: distant nodes have more on their way.
const RISE: u32 = 4;

/// One worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    most: u32,
}

impl Default for Room {
    fn default() -> Room {
        Room { most: MOST }
    }
}

impl Room {
    /// Whether one more may begin there, where so many haven't been answered.
    #[must_use]
    pub fn has(&self, unanswered: u32) -> bool {
        unanswered < self.most
    }

    /// The worker has reported, so many being on their way. `is_crowded`: some have found no room since it did so last.
    pub fn reported(&mut self, is_crowded: bool, unanswered: u32) {
        self.most = match is_crowded {
            true => (self.most.min(unanswered) / 2).max(FEWEST),
            false => (self.most + self.most / RISE).min(MOST),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_on_their_way_once_some_have_found_no_room_and_more_again_while_none_does() {
        let mut room = Room::default();
        assert!(room.has(MOST - 1) && !room.has(MOST));
        room.reported(true, 200);
        assert!(room.has(99) && !room.has(100));
        room.reported(true, 3);
        assert!(room.has(FEWEST - 1) && !room.has(FEWEST), "some always may");
        let reports = (1..).find(|_| {
            room.reported(false, 0);
            room == Room::default()
        });
        assert!(reports.is_some_and(|reports| (10..30).contains(&reports)), "{reports:?}");
    }
}
