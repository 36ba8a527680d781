//! Redis's protocol, RESP 2 and 3: each request goes to the node of its key, and answers come in the order of the requests. What concerns a
//! connection itself is said to all its nodes (who the client is), or refused with the reason (a transaction, a subscription).

mod answer;
mod command;

use super::{About, Begin, Mistake, Order, Parser, Piece, Request, Scope, Separable};
use crate::dispatch::Facts;
use command::{Follows, Goes, Keys};

pub(super) const ABOUT: About = About {
    name: "redis",
    about: "Redis: each request goes to a node by its key, or by what is in braces in it",
    parser: |_| Box::<Redis>::default(),
    is_store: true,
    separable: Some(Separable { order: Order::Requests, answers: || Box::<answer::Reader>::default() }),
};

/// More arguments than any request has; Redis's own limit.
const ARGUMENTS_MAX: u64 = 1024 * 1024;
/// The longest argument that Redis takes.
const ARGUMENT_BYTES_MAX: u64 = 512 * 1024 * 1024;

const NOT_REDIS: Mistake = Mistake::Client("a request is an array of strings, or a line");

/// A number in a line `?number\r\n`, and the bytes of that line; `None` until it's there. `max` is 99 or more.
fn number_line(input: &[u8], max: u64) -> Result<Option<(i64, usize)>, ()> {
    // Nearly all have one or two digits, and there are lists of thousands.
    match *input {
        [_, ones @ b'0'..=b'9', b'\r', b'\n', ..] => return Ok(Some((i64::from(ones - b'0'), 4))),
        [_, tens @ b'0'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Ok(Some((i64::from(10 * (tens - b'0') + (ones - b'0')), 5)));
        }
        _ => {}
    }
    // The sign, 20 digits, CRLF.
    const LINE_BYTES_MAX: usize = 24;
    let head = &input[..input.len().min(LINE_BYTES_MAX)];
    let is_negative = head.get(1) == Some(&b'-');
    let line = head.get(1 + usize::from(is_negative)..).unwrap_or_default();
    let count = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, end) = line.split_at(count);
    if digits.is_empty() || !end.starts_with(b"\r\n") {
        let is_all = head.len() == LINE_BYTES_MAX || head.contains(&b'\n');
        return if is_all { Err(()) } else { Ok(None) };
    }
    let add = |number: i64, digit: &u8| number.checked_mul(10)?.checked_add(i64::from(digit - b'0'));
    let number = digits.iter().try_fold(0, add).filter(|number| number.unsigned_abs() <= max).ok_or(())?;
    Ok(Some((if is_negative { -number } else { number }, head.len() - end.len() + 2)))
}

/// What is left of the request in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hand {
    #[default]
    Nothing,
    /// All of it, which is so many bytes.
    All(usize),
    /// A line.
    Line,
    /// So many arguments.
    Arguments(u64),
    /// So many bytes of an argument, and then so many arguments.
    Argument(u64, u64),
}

#[derive(Debug, Default)]
struct Redis {
    hand: Hand,
    /// MULTI was refused, and the transaction's end hasn't come: what is in it isn't done either.
    is_in_refused: bool,
}

impl Parser for Redis {
    fn begin<'i>(&mut self, input: &'i [u8], _is_all: bool) -> Result<Begin<'i>, Mistake> {
        self.hand = Hand::Nothing;
        let mut head =
            Head { rest: input, arguments: [b""; SEEN_MAX], seen: 0, count: 0, escaped: None, is_line: false };
        match input.first() {
            None => return Ok(Begin::NeedMore),
            // Empty lines, empty arrays and lines of blanks aren't answered.
            Some(b'\r' | b'\n') => {
                return Ok(Begin::Nothing(input.iter().take_while(|byte| b"\r\n".contains(byte)).count()));
            }
            Some(b'*') => {
                if !head.read_array()? {
                    return Ok(Begin::NeedMore);
                }
                let bytes = input.len() - head.rest.len();
                if head.count == 0 {
                    return Ok(Begin::Nothing(bytes));
                }
                // Nearly always: it isn't read once more to find its end.
                if head.seen as u64 == head.count {
                    self.hand = Hand::All(bytes);
                }
            }
            Some(byte) if byte.is_ascii_alphabetic() || b" \t\"'".contains(byte) => {
                let Some(end) = memchr::memchr(b'\n', input) else { return Ok(Begin::NeedMore) };
                if !head.read_words(input[..end].trim_ascii()) {
                    return Ok(Begin::Request(Request::new(Scope::Nobody(QUOTES.to_vec()))));
                }
                if head.count == 0 {
                    return Ok(Begin::Nothing(end + 1));
                }
            }
            Some(_) => return Err(NOT_REDIS),
        }
        let name = head.arguments[0];
        let goes = command::goes(name);
        if self.is_in_refused && goes != Goes::Away {
            self.is_in_refused = head.count != 1 || !command::ends_transaction(name);
            let refused = if self.is_in_refused { b"MULTI" } else { name };
            return Ok(Begin::Request(Request::new(Scope::Nobody(refusal(refused)))));
        }
        self.is_in_refused = head.count == 1 && name.eq_ignore_ascii_case(b"MULTI");
        let scope = match goes {
            Goes::ByKey(keys) if head.escaped.is_some_and(|place| place < 2 || keys != Keys::At(1)) => {
                Scope::Nobody(QUOTES.to_vec())
            }
            Goes::ByKey(keys) => match head.key(keys)? {
                Some(Key::One(key)) => Scope::Content(Facts { path: hashed(key), ..Facts::default() }),
                Some(Key::Several) => Scope::Nobody(CROSS_SLOT.to_vec()),
                Some(Key::Unknowable) => Scope::Nobody(UNKNOWABLE.to_vec()),
                // Whoever has it says that an argument is missing.
                Some(Key::Missing) => Scope::Any,
                None => return Ok(Begin::NeedMore),
            },
            Goes::Anywhere => Scope::Any,
            Goes::Everywhere => Scope::Every(command::replaces(name, head.argument(2))),
            Goes::Nowhere => Scope::Nobody(refusal(name)),
            Goes::Away => Scope::Ends(b"+OK\r\n".to_vec()),
        };
        Ok(Begin::Request(Request { waits: command::waits(name), ..Request::new(scope) }))
    }

    fn go_on(&mut self, input: &[u8]) -> Result<Piece, Mistake> {
        let mut at = 0;
        if let Hand::All(bytes) = self.hand {
            self.hand = Hand::Nothing;
            return Ok(Piece { bytes, is_last: true });
        }
        if self.hand == Hand::Nothing {
            self.hand = match input.first() {
                None => return Ok(Piece { bytes: 0, is_last: false }),
                Some(b'*') => match number_line(input, ARGUMENTS_MAX).map_err(|()| NOT_REDIS)? {
                    Some((count, bytes)) => {
                        at += bytes;
                        Hand::Arguments(count.max(0).cast_unsigned())
                    }
                    None => return Ok(Piece { bytes: 0, is_last: false }),
                },
                Some(_) => Hand::Line,
            };
        }
        loop {
            let rest = &input[at..];
            match self.hand {
                Hand::Nothing | Hand::All(_) | Hand::Arguments(0) => {
                    self.hand = Hand::Nothing;
                    return Ok(Piece { bytes: at, is_last: true });
                }
                Hand::Line => match memchr::memchr(b'\n', rest) {
                    Some(end) => {
                        at += end + 1;
                        self.hand = Hand::Arguments(0);
                    }
                    None => return Ok(Piece { bytes: input.len(), is_last: false }),
                },
                Hand::Arguments(count) => match read_length(rest)? {
                    Some((length, bytes)) => {
                        at += bytes;
                        self.hand = Hand::Argument(length + 2, count - 1);
                    }
                    None => return Ok(Piece { bytes: at, is_last: false }),
                },
                Hand::Argument(left, count) => {
                    let here = left.min(rest.len() as u64);
                    at += here as usize;
                    if here < left {
                        self.hand = Hand::Argument(left - here, count);
                        return Ok(Piece { bytes: at, is_last: false });
                    }
                    self.hand = Hand::Arguments(count);
                }
            }
        }
    }

    fn knows(&self) -> Option<Vec<u8>> {
        (!self.is_in_refused).then(Vec::new)
    }

    fn unavailable(&self) -> &'static [u8] {
        b"-ERR leat: no node is up that could have this key\r\n"
    }

    fn explain(&self, mistake: Mistake) -> Vec<u8> {
        // Clients go by what Redis says, up to the colon.
        match mistake {
            Mistake::Client(what) => format!("-ERR Protocol error: {what}\r\n").into_bytes(),
            mistake => format!("-ERR Protocol error: {mistake}\r\n").into_bytes(),
        }
    }
}

const CROSS_SLOT: &[u8] =
    b"-CROSSSLOT leat: the keys of one request must be at one node; put what they have in common in {braces}\r\n";

const UNKNOWABLE: &[u8] =
    b"-CROSSSLOT leat: keys that a pattern names may be at other nodes; put what they have in common with the key in {braces} before the pattern's *\r\n";

const QUOTES: &[u8] =
    b"-ERR leat: quotes in a line must be around whole words, and without escapes in what says where it goes; an array needs none\r\n";

fn refusal(name: &[u8]) -> Vec<u8> {
    let name: String =
        name.iter().take(32).map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect();
    format!(
        "-ERR leat: {name} needs a connection to one node, or all of them at once: ask a node itself, or write schedule = \"connection\" for the port\r\n"
    )
    .into_bytes()
}

/// `$length\r\n`.
fn read_length(input: &[u8]) -> Result<Option<(u64, usize)>, Mistake> {
    match input.first() {
        None => Ok(None),
        Some(b'$') => match number_line(input, ARGUMENT_BYTES_MAX).map_err(|()| NOT_REDIS)? {
            Some((length, bytes)) => Ok(Some((u64::try_from(length).map_err(|_| NOT_REDIS)?, bytes))),
            None => Ok(None),
        },
        Some(_) => Err(NOT_REDIS),
    }
}

/// The part of a key that says where it is: what is between the first `{` and the next `}`, if that is anything (Redis Cluster's hash tags).
fn hashed(key: &[u8]) -> &[u8] {
    tag(key).unwrap_or(key)
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let tag = memchr::memchr(b'{', key).map(|open| &key[open + 1..])?;
    let tag = &tag[..memchr::memchr(b'}', tag)?];
    (!tag.is_empty()).then_some(tag)
}

/// Whether all keys that a pattern of SORT's names are where `key` is. Without `*` it names none (`BY nosort`, `GET #`).
fn is_at(pattern: &[u8], key: &[u8]) -> bool {
    memchr::memchr(b'*', pattern).is_none_or(|star| tag(&pattern[..star]) == Some(hashed(key)))
}

/// Arguments whose places are remembered: none that says where the keys are comes later.
const SEEN_MAX: usize = 4;

/// The arguments of a request as far as they are there.
struct Head<'i> {
    /// What follows those that were seen.
    rest: &'i [u8],
    arguments: [&'i [u8]; SEEN_MAX],
    seen: usize,
    /// All that it has.
    count: u64,
    /// The first whose bytes aren't those that it stands for.
    escaped: Option<u64>,
    /// It's a line, and all of it.
    is_line: bool,
}

enum Key<'i> {
    One(&'i [u8]),
    Several,
    /// They depend on what the node has.
    Unknowable,
    Missing,
}

impl<'i> Head<'i> {
    /// Reads as many arguments as are there. False until the first is.
    fn read_array(&mut self) -> Result<bool, Mistake> {
        let Some((count, bytes)) = number_line(self.rest, ARGUMENTS_MAX).map_err(|()| NOT_REDIS)? else {
            return Ok(false);
        };
        self.count = count.max(0).cast_unsigned();
        self.rest = &self.rest[bytes..];
        while self.seen < SEEN_MAX && (self.seen as u64) < self.count {
            let Some(argument) = next_argument(&mut self.rest)? else { break };
            self.arguments[self.seen] = argument;
            self.seen += 1;
        }
        Ok(self.seen > 0 || self.count == 0)
    }

    /// Reads a line's words. False if it isn't known what they stand for.
    fn read_words(&mut self, line: &'i [u8]) -> bool {
        self.is_line = true;
        let mut rest = line.trim_ascii_start();
        while !rest.is_empty() {
            let Some((word, after)) = next_word(rest) else { return false };
            if word.contains(&b'\\') && b"\"'".contains(&rest[0]) {
                self.escaped = self.escaped.or(Some(self.count));
            }
            rest = after.trim_ascii_start();
            if self.seen < SEEN_MAX {
                self.arguments[self.seen] = word;
                self.seen += 1;
                self.rest = rest;
            }
            self.count += 1;
        }
        true
    }

    /// One of the first arguments; `None` until it's there.
    fn argument(&self, place: usize) -> Option<&'i [u8]> {
        self.arguments.get(place).copied().filter(|_| place < self.seen)
    }

    /// The one that follows those that were seen, and those taken off `rest` before; `None` until it's there.
    fn next(&self, rest: &mut &'i [u8]) -> Result<Option<&'i [u8]>, Mistake> {
        if !self.is_line {
            return next_argument(rest);
        }
        let Some((word, after)) = next_word(rest) else { return Ok(None) };
        *rest = after.trim_ascii_start();
        Ok(Some(word))
    }

    /// The number that an argument is.
    fn number(&self, place: usize) -> Option<u64> {
        std::str::from_utf8(self.argument(place)?).ok()?.parse().ok()
    }
}

/// The first word of a line, without its quotes, and what follows it; `None` if quotes aren't around a whole word.
fn next_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, inner) = line.split_first()?;
    let is_quoted = first == b'"' || first == b'\'';
    let mut end = 0;
    if is_quoted {
        while *inner.get(end)? != first {
            end += if inner[end] == b'\\' { 2 } else { 1 };
        }
        let after = &inner[end + 1..];
        return after.first().is_none_or(u8::is_ascii_whitespace).then_some((&inner[..end], after));
    }
    while line.get(end).is_some_and(|byte| !byte.is_ascii_whitespace()) {
        if b"\"'".contains(&line[end]) {
            return None;
        }
        end += 1;
    }
    Some(line.split_at(end))
}

fn next_argument<'i>(rest: &mut &'i [u8]) -> Result<Option<&'i [u8]>, Mistake> {
    let Some((length, bytes)) = read_length(rest)? else { return Ok(None) };
    let end = bytes + usize::try_from(length).map_err(|_| NOT_REDIS)?;
    if rest.len() < end + 2 {
        // The name of a command, or a key, isn't that long: who sends more is told so by the limit.
        return Ok(None);
    }
    let argument = &rest[bytes..end];
    if rest[end..end + 2] != *b"\r\n" {
        return Err(NOT_REDIS);
    }
    *rest = &rest[end + 2..];
    Ok(Some(argument))
}

impl<'i> Head<'i> {
    /// The key that says where a request goes; `None` until it's there. Of several keys all must be: then the whole request must fit the limit.
    fn key(&self, keys: Keys) -> Result<Option<Key<'i>>, Mistake> {
        let (first, count, step) = match keys {
            Keys::At(place) => (place, 1, 1),
            Keys::From { first, step, last } => {
                let end = self.count.saturating_sub(last as u64);
                (first, end.saturating_sub(first as u64).div_ceil(step as u64), step)
            }
            Keys::First(count) => (1, count, 1),
            Keys::Counted { count_at, and_at } => {
                if self.count <= count_at as u64 {
                    return Ok(Some(Key::Missing));
                }
                match (self.argument(count_at), self.number(count_at), and_at) {
                    (None, ..) => return Ok(None),
                    (Some(_), Some(count), None) => (count_at + 1, count, 1),
                    // A key stands before the count of the others.
                    (Some(_), Some(count), Some(place)) => {
                        return self.keys(count_at + 1, count, 1, self.argument(place));
                    }
                    (Some(_), None, _) => return Ok(Some(Key::Missing)),
                }
            }
            Keys::WithOptions { from } => return self.key_and_options(from),
        };
        self.keys(first, count, step, None)
    }

    fn keys(&self, first: usize, count: u64, step: usize, known: Option<&'i [u8]>) -> Result<Option<Key<'i>>, Mistake> {
        if count == 0 || self.count <= first as u64 {
            return Ok(Some(known.map_or(Key::Missing, Key::One)));
        }
        let mut rest = self.rest;
        let mut found = known;
        let last = (first as u64).saturating_add((count - 1).saturating_mul(step as u64)).min(self.count - 1);
        for place in 1..=last {
            let argument = match self.argument(place as usize) {
                Some(argument) => argument,
                None => match self.next(&mut rest)? {
                    Some(argument) => argument,
                    None => return Ok(None),
                },
            };
            let is_key = place >= first as u64 && (place - first as u64).is_multiple_of(step as u64);
            match found {
                _ if !is_key => {}
                None => found = Some(argument),
                Some(key) if hashed(key) != hashed(argument) => return Ok(Some(Key::Several)),
                Some(_) => {}
            }
        }
        Ok(Some(found.map_or(Key::Missing, Key::One)))
    }

    /// The first key, if those that options name from that place on are where it is.
    fn key_and_options(&self, from: usize) -> Result<Option<Key<'i>>, Mistake> {
        if self.count < 2 {
            return Ok(Some(Key::Missing));
        }
        let Some(key) = self.argument(1) else { return Ok(None) };
        let (mut rest, mut place, mut follows) = (self.rest, 2, Follows::Others(from - 2));
        while place < self.count {
            let argument = match self.argument(place as usize) {
                Some(argument) => argument,
                None => match self.next(&mut rest)? {
                    Some(argument) => argument,
                    None => return Ok(None),
                },
            };
            follows = match follows {
                Follows::Others(0) => command::follows(argument),
                Follows::Others(count) => Follows::Others(count - 1),
                Follows::Key if hashed(argument) != hashed(key) => return Ok(Some(Key::Several)),
                Follows::Pattern if !is_at(argument, key) => return Ok(Some(Key::Unknowable)),
                Follows::Key | Follows::Pattern => Follows::Others(0),
            };
            place += 1;
        }
        Ok(Some(Key::One(key)))
    }
}

#[cfg(test)]
mod tests;
