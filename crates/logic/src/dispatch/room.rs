//! How many connections that are to begin at a node's worker may be on their way there: as many as it takes offers, and few while some find no room, or many wait.
//!
//! What finds no room in a listener's queue is dropped by the kernel there, asked for by its home, denied, and moved elsewhere, at several times the cost of a
//! connection that begins. A client whose request isn't sent there says it again a fifth of a second later. Networks that ask for little aren't among
//! those: there's some room beyond that for whoever asks for no more than what each network would have of all that begins.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::admission::limits::LISTENER_MANY;
use crate::client_prefix::ClientPrefix;
use crate::handoff::ServerId;
use crate::prefix_counts::PrefixCounts;
use crate::time::Instant;

/// As many offers as nodes take.
const MOST: u32 = 1_024;
/// As many as wait to be accepted where there is too much to do. Several workers of homes let as many be on their way, and all of them wait in one queue.
const FEWEST: u32 = LISTENER_MANY;
/// By which part that rises with each report of a node that had room for all: distant nodes have more on their way.
const RISE: u32 = 4;
/// How many times as many may be on their way, with those of networks that ask for little.
const SPARE_TIMES: u32 = 2;
/// What is left of what networks asked for after each such time: about the last second counts.
const KEPT: f64 = 0.9;
const FADES_EACH: Duration = Duration::from_millis(100);

/// At all workers of nodes that a home has to do with.
#[derive(Debug, Default)]
pub struct Rooms {
    workers: BTreeMap<ServerId, Room>,
    /// From which networks connections were to begin lately where there's little room, and how many did.
    asked: PrefixCounts,
    begun: f64,
    fades_at: Instant,
}

impl Rooms {
    /// Whether one more of a client's connections may begin at a worker, where so many haven't been answered. It's taken to begin then.
    pub fn take(&mut self, worker: ServerId, unanswered: u32, client: IpAddr, now: Instant) -> bool {
        let room = self.workers.get(&worker).copied().unwrap_or_default();
        if room.most == MOST {
            return unanswered < MOST;
        }
        self.fade(now);
        let network = ClientPrefix::of(client);
        self.asked.add(network, 1.0);
        let spare = if self.asks_for_little(network) { SPARE_TIMES } else { 1 };
        let has_room = unanswered < (room.most * spare).min(MOST);
        self.begun += f64::from(u8::from(has_room));
        has_room
    }

    /// A worker has reported, so many being on their way. `is_crowded`: some have found no room since it did so last.
    pub fn reported(&mut self, worker: ServerId, is_crowded: bool, unanswered: u32) {
        self.workers.entry(worker).or_default().reported(is_crowded, unanswered);
    }

    /// A worker has gone.
    pub fn forget(&mut self, worker: ServerId) {
        self.workers.remove(&worker);
    }

    fn asks_for_little(&self, network: ClientPrefix) -> bool {
        let networks = self.asked.networks();
        networks > 1 && self.asked.of(network).is_some_and(|asked| asked * networks as f64 <= self.begun)
    }

    fn fade(&mut self, now: Instant) {
        if now < self.fades_at {
            return;
        }
        let periods = 1 + now.since(self.fades_at).as_nanos() / FADES_EACH.as_nanos();
        let part = KEPT.powi(periods.min(1_000) as i32);
        self.asked.fade(part);
        self.begun *= part;
        self.fades_at = now.after(FADES_EACH);
    }
}

/// At one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    most: u32,
}

impl Default for Room {
    fn default() -> Room {
        Room { most: MOST }
    }
}

impl Room {
    fn reported(&mut self, is_crowded: bool, unanswered: u32) {
        self.most = match is_crowded {
            true => (self.most.min(unanswered) / 2).max(FEWEST),
            false => (self.most + self.most / RISE).min(MOST),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: ServerId = ServerId(7);

    fn client(network: u8) -> IpAddr {
        [192, 0, network, 1].into()
    }

    fn at_ms(ms: u64) -> Instant {
        Instant { ns: 1_000_000_000_000 + ms * 1_000_000 }
    }

    /// How many may be on their way, of a network that asks for much.
    fn most(rooms: &mut Rooms) -> u32 {
        (0..=MOST).find(|&unanswered| !rooms.take(WORKER, unanswered, client(0), at_ms(0))).unwrap()
    }

    #[test]
    fn few_are_on_their_way_once_some_have_found_no_room_and_more_again_while_none_does() {
        let mut rooms = Rooms::default();
        assert_eq!(most(&mut rooms), MOST);
        rooms.reported(WORKER, true, 200);
        assert_eq!(most(&mut rooms), 100);
        rooms.reported(WORKER, true, 3);
        assert_eq!(most(&mut rooms), FEWEST, "some always may");
        let reports = (1..).find(|_| {
            rooms.reported(WORKER, false, 0);
            rooms.workers[&WORKER] == Room::default()
        });
        assert!(reports.is_some_and(|reports| (10..30).contains(&reports)), "{reports:?}");
        rooms.reported(WORKER, true, 3);
        rooms.forget(WORKER);
        assert_eq!(most(&mut rooms), MOST);
    }

    #[test]
    fn who_asks_for_little_begins_beside_others_flood_and_takes_no_more_than_a_part() {
        for asks_each_ms in [1, 4] {
            let mut rooms = Rooms::default();
            rooms.reported(WORKER, true, 3);
            let (mut unanswered, mut begun, mut asked) = (0, [0_u32; 2], [0_u32; 2]);
            for ms in 0..4_000 {
                let mut ask = |network: usize| {
                    asked[network] += 1;
                    if rooms.take(WORKER, unanswered, client(network as u8), at_ms(ms)) {
                        unanswered += 1;
                        begun[network] += 1;
                    }
                };
                (0..20).for_each(|_| ask(0));
                (0..asks_each_ms).for_each(|_| ask(1));
                // Three begin in each millisecond.
                unanswered -= unanswered.min(3);
            }
            match asks_each_ms {
                1 => assert!(begun[1] * 100 >= asked[1] * 99, "{begun:?} of {asked:?}"),
                _ => assert!(begun[1] * 10 < (begun[0] + begun[1]) * 6, "{begun:?} of {asked:?}"),
            }
        }
    }
}
