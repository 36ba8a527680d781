//! Every number of `admission` that a configuration doesn't set, in one place. Times in nanoseconds.

/// How long requests of an overloaded site may wait: what has waited longer is refused.
pub const OVERLOADED_DELAY_NS: u64 = 10_000_000;
/// The least that a site may have waiting, in requests that its share serves in that time: where its turn comes rarely, who comes between two turns
/// isn't late.
pub const WAITING_REQUESTS_MIN: f64 = 2.0;
/// How long all requests of a site must have waited longer than that before it's overloaded.
pub const BURST_NS: u64 = 50_000_000;
/// How long those that wait may take, and the one before them, as fast as others had their turn since all are late, without the site being overloaded, if it has
/// been overloaded for none of [`CALM_NS`]: a burst may pass, and clients who ask again once they have been answered become no more.
pub const BURST_REST_NS: u64 = 150_000_000;
/// Longer than whoever was refused is held: those of an overload may come back together.
pub const CALM_NS: u64 = 4_000_000_000;
/// For how long turns are counted while all are late, before it's seen anew how fast they come.
pub const TURNS_PERIOD_NS: u64 = 300_000_000;
/// For how long a site that was overloaded is so again at once, when a request has waited for too long.
pub const AGAIN_NS: u64 = 1_000_000_000;
/// A request that has waited less than one part in so many of that shows that a site is overloaded no more.
pub const RELAXED_PART: u64 = 4;
/// As long as all connections that ask for a site, each with a request, keep nobody waiting for longer than this, it isn't overloaded.
pub const CROWD_DELAY_NS: u64 = 150_000_000;
/// For how long a connection that has asked counts, at least: those that are held after a refusal do.
pub const CROWD_PERIOD_NS: u64 = 2_000_000_000;
/// How long a request may wait unless the configuration says otherwise.
pub const QUEUE_DELAY_MAX_NS: u64 = 1_000_000_000;
/// A site that uses less than this part of its share isn't overloaded, however long its requests wait.
pub const SHARE_USED_MIN: f64 = 0.9;

/// Refusals may take one part in so many of a worker's time, and those of a site as much of its share.
pub const REFUSAL_PART: u64 = 64;
/// Refusals that may come at once before they're spread out, in nanoseconds of their part: a burst is told at once.
pub const REFUSAL_BURST_NS: u64 = 10_000_000;
/// The longest that a connection is held after a refusal, or before it's told of one; when as many have been turned away, no more are let in than are served.
pub const HOLD_MAX_NS: u64 = 1_900_000_000;
const _: () =
    assert!(CALM_NS > HOLD_MAX_NS && CROWD_PERIOD_NS >= HOLD_MAX_NS, "whoever is held counts until it's back");
/// For how long it counts that most of those who came were dropped: longer than until that's looked at again.
pub const CROWDED_NS: u64 = 100_000_000;
/// Time for which those that wait keep a site at work, above which nothing is accepted for it while as many have been turned away.
pub const ACCEPTING_WAITING_NS_MAX: u64 = OVERLOADED_DELAY_NS / 4;
/// Who is held and has asked within this time is served if there is room: nobody waits long then.
pub const FRESH_NS: u64 = OVERLOADED_DELAY_NS / 2;
/// The most that are let in at once where there is room.
pub const LET_IN_MAX: u64 = 8;
/// Requests that cost less than this many refusals aren't refused for being late: it would hardly help.
pub const REFUSALS_EACH_REQUEST: u64 = 3;
/// What a client that is refused is told to wait, in seconds.
pub const RETRY_AFTER_S: u32 = 2;
/// Connections that may wait in a listener's queue while nothing more is accepted than is served: in the time of so many requests each has its
/// turn. The worker can't see how long they wait.
pub const LISTENER_QUEUE_SHORT: u32 = 16;
/// So many may where some networks are let in as before and others aren't: what a flood's burst leaves is room for those. No more than before are to wait, but
/// in bursts some will, and be refused when they have, which is why it isn't always so many.
pub const LISTENER_QUEUE_SPARE: u32 = 64;
/// So many may at a node, where connections begin that others let in: what a flood has on its way there leaves room for those who ask for little.
pub const LISTENER_QUEUE_OF_NODE: u32 = 2 * LISTENER_QUEUE_SHORT;
/// Where so many wait, fewer are to be let in.
pub const LISTENER_MANY: u32 = LISTENER_QUEUE_SHORT / 2;

/// One connection in so many ends where there's no room for new ones, so that there's some for those who come next; and no more than this at once.
pub const ROOM_PART: usize = 8;
/// See [`ROOM_PART`].
pub const ROOM_MAX: usize = 256;
/// How long a head may take before its connection ends because there's no room: a packet of it may have been lost.
pub const ROOM_HEAD_NS: u64 = 2_000_000_000;
/// How long a client that has been answered has to ask for more, or to end its side after its last reply, before its connection ends because there's no
/// room.
pub const ROOM_REST_NS: u64 = 200_000_000;
/// Who has been idle for so long has read its last reply, and sends nothing just now.
pub const ROOM_IDLE_NS: u64 = 1_000_000_000;

/// Above its limit, memory must go down by one part in so many before reading goes on: not with every buffer that is free again.
pub const MEMORY_LOW_PART: u64 = 8;
/// What those who wait for a quota book together, each in proportion to its claim, is what may be used in one part in so many of a second.
pub const QUOTA_ROUNDS_EACH_SECOND: u64 = 40;
/// For how long a claim stays as large as the most that has waited; and for how long what was booked may wait to be used when nobody waits for it.
pub const CLAIM_PERIOD_NS: u64 = 50_000_000;
/// The most that a worker's claim is: more that wait make it no larger.
pub const WAITING_CLAIM_MAX: u32 = 1_024;

/// Clients of whom a rate knows how often they ask: half a megabyte for each rate.
pub const CLIENTS_MAX: usize = 1 << 16;
/// Words among which a client's is looked for.
pub const CLIENTS_OF_BUCKET: usize = 8;
