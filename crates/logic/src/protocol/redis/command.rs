//! Where Redis's commands go: by which of their arguments, or why not. What isn't listed goes by its first argument, as nearly all do.

use crate::protocol::Replaces;

/// Where a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goes {
    /// To the node of its keys.
    ByKey(Keys),
    /// To any: it's about a node, or nothing.
    Anywhere,
    /// To all that the client has to do with: it's about the connection.
    Everywhere,
    /// It can't be answered with requests going to different nodes.
    Nowhere,
    /// The client ends.
    Away,
}

/// Which arguments are keys; 0 is the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// One.
    At(usize),
    /// The first so many.
    First(u64),
    /// From one on, each so many'th, but for the last so many.
    From { first: usize, step: usize, last: usize },
    /// As many as an argument says, behind it, and one more before it.
    Counted { count_at: usize, and_at: Option<usize> },
    /// The first, and those that options name, which begin there.
    WithOptions { from: usize },
}

/// What an option of a command is followed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    /// One key.
    Key,
    /// What keys are made of: the first `*` in it stands for what the command finds.
    Pattern,
    /// So many arguments that are none.
    Others(usize),
}

const ALL: Goes = Goes::ByKey(Keys::From { first: 1, step: 1, last: 0 });
const PAIRS: Goes = Goes::ByKey(Keys::From { first: 1, step: 2, last: 0 });
const ALL_BUT_LAST: Goes = Goes::ByKey(Keys::From { first: 1, step: 1, last: 1 });
const FIRST_TWO: Goes = Goes::ByKey(Keys::First(2));
const SORT: Goes = Goes::ByKey(Keys::WithOptions { from: 2 });
const SECOND: Goes = Goes::ByKey(Keys::At(2));

/// By name, in capitals; sorted.
const COMMANDS: &[(&str, Goes)] = &[
    ("ACL", Goes::Nowhere),
    ("ASKING", Goes::Nowhere),
    ("AUTH", Goes::Everywhere),
    ("BGREWRITEAOF", Goes::Nowhere),
    ("BGSAVE", Goes::Nowhere),
    ("BITOP", Goes::ByKey(Keys::From { first: 2, step: 1, last: 0 })),
    ("BLMOVE", FIRST_TWO),
    ("BLMPOP", Goes::ByKey(Keys::Counted { count_at: 2, and_at: None })),
    ("BLPOP", ALL_BUT_LAST),
    ("BRPOP", ALL_BUT_LAST),
    ("BRPOPLPUSH", FIRST_TWO),
    ("BZMPOP", Goes::ByKey(Keys::Counted { count_at: 2, and_at: None })),
    ("BZPOPMAX", ALL_BUT_LAST),
    ("BZPOPMIN", ALL_BUT_LAST),
    ("CLIENT", Goes::Nowhere),
    ("CLUSTER", Goes::Nowhere),
    ("COMMAND", Goes::Anywhere),
    ("CONFIG", Goes::Nowhere),
    ("COPY", FIRST_TWO),
    ("DBSIZE", Goes::Nowhere),
    ("DEBUG", Goes::Nowhere),
    ("DEL", ALL),
    ("DISCARD", Goes::Nowhere),
    ("ECHO", Goes::Anywhere),
    ("EVAL", Goes::ByKey(Keys::Counted { count_at: 2, and_at: None })),
    ("EVALSHA", Goes::ByKey(Keys::Counted { count_at: 2, and_at: None })),
    ("EVALSHA_RO", Goes::ByKey(Keys::Counted { count_at: 2, and_at: None })),
    ("EVAL_RO", Goes::ByKey(Keys::Counted { count_at: 2, and_at: None })),
    ("EXEC", Goes::Nowhere),
    ("EXISTS", ALL),
    ("FAILOVER", Goes::Nowhere),
    ("FCALL", Goes::ByKey(Keys::Counted { count_at: 2, and_at: None })),
    ("FCALL_RO", Goes::ByKey(Keys::Counted { count_at: 2, and_at: None })),
    ("FLUSHALL", Goes::Nowhere),
    ("FLUSHDB", Goes::Nowhere),
    ("FUNCTION", Goes::Nowhere),
    ("GEORADIUS", Goes::ByKey(Keys::WithOptions { from: 6 })),
    ("GEORADIUSBYMEMBER", Goes::ByKey(Keys::WithOptions { from: 5 })),
    ("GEOSEARCHSTORE", FIRST_TWO),
    ("HELLO", Goes::Everywhere),
    ("INFO", Goes::Anywhere),
    ("KEYS", Goes::Nowhere),
    ("LASTSAVE", Goes::Nowhere),
    ("LATENCY", Goes::Nowhere),
    ("LCS", FIRST_TWO),
    ("LMOVE", FIRST_TWO),
    ("LMPOP", Goes::ByKey(Keys::Counted { count_at: 1, and_at: None })),
    ("LOLWUT", Goes::Anywhere),
    ("MEMORY", Goes::Nowhere),
    ("MGET", ALL),
    ("MIGRATE", Goes::Nowhere),
    ("MODULE", Goes::Nowhere),
    ("MONITOR", Goes::Nowhere),
    ("MOVE", Goes::Nowhere),
    ("MSET", PAIRS),
    ("MSETNX", PAIRS),
    ("MULTI", Goes::Nowhere),
    ("OBJECT", SECOND),
    ("PFCOUNT", ALL),
    ("PFMERGE", ALL),
    ("PING", Goes::Anywhere),
    ("PSUBSCRIBE", Goes::Nowhere),
    ("PSYNC", Goes::Nowhere),
    ("PUBLISH", Goes::Nowhere),
    ("PUBSUB", Goes::Nowhere),
    ("PUNSUBSCRIBE", Goes::Nowhere),
    ("QUIT", Goes::Away),
    ("RANDOMKEY", Goes::Nowhere),
    ("READONLY", Goes::Everywhere),
    ("READWRITE", Goes::Everywhere),
    ("RENAME", FIRST_TWO),
    ("RENAMENX", FIRST_TWO),
    ("REPLCONF", Goes::Nowhere),
    ("REPLICAOF", Goes::Nowhere),
    ("RESET", Goes::Nowhere),
    ("ROLE", Goes::Nowhere),
    ("RPOPLPUSH", FIRST_TWO),
    ("SAVE", Goes::Nowhere),
    ("SCAN", Goes::Nowhere),
    ("SCRIPT", Goes::Nowhere),
    ("SDIFF", ALL),
    ("SDIFFSTORE", ALL),
    ("SELECT", Goes::Everywhere),
    ("SHUTDOWN", Goes::Nowhere),
    ("SINTER", ALL),
    ("SINTERCARD", Goes::ByKey(Keys::Counted { count_at: 1, and_at: None })),
    ("SINTERSTORE", ALL),
    ("SLAVEOF", Goes::Nowhere),
    ("SLOWLOG", Goes::Nowhere),
    ("SMOVE", FIRST_TWO),
    ("SORT", SORT),
    ("SORT_RO", SORT),
    ("SPUBLISH", Goes::Nowhere),
    ("SSUBSCRIBE", Goes::Nowhere),
    ("SUBSCRIBE", Goes::Nowhere),
    ("SUNION", ALL),
    ("SUNIONSTORE", ALL),
    ("SUNSUBSCRIBE", Goes::Nowhere),
    ("SWAPDB", Goes::Nowhere),
    ("SYNC", Goes::Nowhere),
    ("TIME", Goes::Anywhere),
    ("TOUCH", ALL),
    ("UNLINK", ALL),
    ("UNSUBSCRIBE", Goes::Nowhere),
    ("UNWATCH", Goes::Nowhere),
    ("WAIT", Goes::Nowhere),
    ("WAITAOF", Goes::Nowhere),
    ("WATCH", Goes::Nowhere),
    ("XGROUP", SECOND),
    ("XINFO", SECOND),
    ("XREAD", Goes::Nowhere),
    ("XREADGROUP", Goes::Nowhere),
    ("ZDIFF", Goes::ByKey(Keys::Counted { count_at: 1, and_at: None })),
    ("ZDIFFSTORE", Goes::ByKey(Keys::Counted { count_at: 2, and_at: Some(1) })),
    ("ZINTER", Goes::ByKey(Keys::Counted { count_at: 1, and_at: None })),
    ("ZINTERCARD", Goes::ByKey(Keys::Counted { count_at: 1, and_at: None })),
    ("ZINTERSTORE", Goes::ByKey(Keys::Counted { count_at: 2, and_at: Some(1) })),
    ("ZMPOP", Goes::ByKey(Keys::Counted { count_at: 1, and_at: None })),
    ("ZRANGESTORE", FIRST_TWO),
    ("ZUNION", Goes::ByKey(Keys::Counted { count_at: 1, and_at: None })),
    ("ZUNIONSTORE", Goes::ByKey(Keys::Counted { count_at: 2, and_at: Some(1) })),
];

/// The longest name in the list.
const NAME_BYTES_MAX: usize = 17;

/// Where the command of this name goes, in any letter case.
pub(super) fn goes(name: &[u8]) -> Goes {
    let mut upper = [0; NAME_BYTES_MAX];
    let Some(upper) = upper.get_mut(..name.len()) else { return Goes::ByKey(Keys::At(1)) };
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    match COMMANDS.binary_search_by(|(known, _)| known.as_bytes().cmp(upper)) {
        Ok(place) => COMMANDS[place].1,
        Err(_) => Goes::ByKey(Keys::At(1)),
    }
}

/// What follows an option of SORT or GEORADIUS.
pub(super) fn follows(option: &[u8]) -> Follows {
    const OPTIONS: [(&[u8], Follows); 6] = [
        (b"BY", Follows::Pattern),
        (b"COUNT", Follows::Others(1)),
        (b"GET", Follows::Pattern),
        (b"LIMIT", Follows::Others(2)),
        (b"STORE", Follows::Key),
        (b"STOREDIST", Follows::Key),
    ];
    let known = OPTIONS.iter().find(|(name, _)| option.eq_ignore_ascii_case(name));
    known.map_or(Follows::Others(0), |(_, follows)| *follows)
}

/// What a command that goes everywhere makes up for of those before it; `second`: its second argument.
pub(super) fn replaces(name: &[u8], second: Option<&[u8]>) -> Replaces {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    if ["SELECT", "READONLY", "READWRITE"].into_iter().any(is) {
        Replaces::Same
    } else if is("AUTH") {
        Replaces::Login
    } else if is("HELLO") && second.is_some_and(|second| second.eq_ignore_ascii_case(b"AUTH")) {
        Replaces::Greeting
    } else {
        Replaces::Nothing
    }
}

/// Whether a transaction ends with this command, alone.
pub(super) fn ends_transaction(name: &[u8]) -> bool {
    [&b"EXEC"[..], b"DISCARD", b"RESET"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a command may wait until another client has done something.
pub(super) fn waits(name: &[u8]) -> bool {
    const WAITING: [&[u8]; 8] =
        [b"BLMOVE", b"BLMPOP", b"BLPOP", b"BRPOP", b"BRPOPLPUSH", b"BZMPOP", b"BZPOPMAX", b"BZPOPMIN"];
    WAITING.iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_its_names_fit() {
        assert!(COMMANDS.is_sorted_by(|(a, _), (b, _)| a < b));
        assert!(COMMANDS.iter().all(|(name, _)| name.len() <= NAME_BYTES_MAX));
        assert_eq!(
            (goes(b"mGeT"), goes(b"GET"), goes(b"json.set")),
            (ALL, Goes::ByKey(Keys::At(1)), Goes::ByKey(Keys::At(1)))
        );
    }
}
