//! Whether a reply is right: one state of the file, byte for byte, under the tag of that state, or an answer that has nothing to do with it.

use crate::agenda::{MILLISECOND, SECOND};
use crate::client::reply::Reply;
use crate::client::request::{Close, Exchange, Selection, Wanted};
use crate::files::Content;
use crate::settings::STALL_TIMEOUT_NS;
use crate::storage::NOTICE_DELAY_NS_MAX;
use crate::world::World;

/// The longest that a reply may be behind a change that has been noticed: the notice's delay, and a few turns of the worker.
const NOTICED_NS: u64 = NOTICE_DELAY_NS_MAX + 20 * MILLISECOND;
/// The longest where nothing is noticed: an answer is used for a second, and the disk may have taken its time for it.
const UNNOTICED_NS: u64 = SECOND + 100 * MILLISECOND;

impl World {
    /// The earliest state of a file that a request may be answered with.
    pub(crate) fn oldest_ns(&self, exchange: &Exchange) -> u64 {
        exchange.sent_at_ns.saturating_sub(if self.faults.watching { NOTICED_NS } else { UNNOTICED_NS })
    }

    /// What is wrong with a reply, if anything.
    pub(crate) fn judge(&self, exchange: &Exchange, reply: &Reply) -> Result<(), String> {
        let is_closing = reply.says_close();
        if reply.status == 408 && is_closing && self.may_come_too_slowly(exchange) {
            return Ok(());
        }
        match exchange.close {
            Close::No if is_closing && self.drain.is_none() => return Err("it ends the connection".to_owned()),
            Close::Must if !is_closing => return Err("it doesn't say that the connection ends".to_owned()),
            _ => {}
        }
        let asks_storage = match &exchange.wanted {
            Wanted::File { .. } => true,
            Wanted::Status(statuses) => matches!(statuses, [301 | 404]),
            Wanted::Burnt { .. } | Wanted::Said { .. } => false,
        };
        if asks_storage && self.faults.disk_errors_in_1000 > 0 && matches!(reply.status, 500 | 503) {
            return Ok(());
        }
        match &exchange.wanted {
            Wanted::Status(statuses) if statuses.contains(&reply.status) => Ok(()),
            Wanted::Status(statuses) => Err(format!("status {} instead of {statuses:?}", reply.status)),
            Wanted::Said { .. } if reply.status == 503 => Ok(()),
            Wanted::Said { status, .. } if reply.status != *status => {
                Err(format!("status {} instead of {status}", reply.status))
            }
            Wanted::Said { status: 200, bytes, is_cut: false } => {
                let is_whole = reply.body.iter().all(|&byte| byte == b'p') && reply.body.len() as u64 == *bytes;
                let says_length = reply.number("content-length")? == Some(*bytes);
                if (is_whole || exchange.is_head) && says_length {
                    Ok(())
                } else {
                    Err(format!("it hasn't {bytes} bytes"))
                }
            }
            Wanted::Said { status: 200, is_cut: true, .. } if !exchange.is_head => {
                Err("half of what a program said looks whole".to_owned())
            }
            Wanted::Said { .. } => Ok(()),
            Wanted::Burnt { .. } if reply.status != 200 => Err(format!("status {} instead of 200", reply.status)),
            &Wanted::Burnt { bytes } => {
                let is_whole = exchange.is_head || reply.body.len() as u64 == bytes;
                let says_length = reply.number("content-length")? == Some(bytes);
                if is_whole && says_length { Ok(()) } else { Err(format!("it hasn't {bytes} bytes")) }
            }
            Wanted::File { name, selection } => {
                let states = self.files.states(name, self.oldest_ns(exchange), self.agenda.now_ns());
                let mut reasons = Vec::new();
                for state in &states {
                    match fits(exchange, selection, state.as_ref(), reply) {
                        Ok(()) => return Ok(()),
                        Err(reason) => reasons.push(reason),
                    }
                }
                Err(format!(
                    "status {}, {} bytes: it fits no state of the file: {}",
                    reply.status,
                    reply.body.len(),
                    reasons.join("; ")
                ))
            }
        }
    }

    /// Whether a request's content may have come more slowly than `body_rate`: that is refused, or cut where the reply is out.
    pub(crate) fn may_come_too_slowly(&self, exchange: &Exchange) -> bool {
        let has_content = matches!(exchange.wanted, Wanted::Said { .. });
        has_content && self.agenda.now_ns() >= exchange.sent_at_ns + STALL_TIMEOUT_NS
    }

    /// Whether a file had more than one state while a request for it was in progress.
    pub(crate) fn has_changed(&self, exchange: &Exchange) -> bool {
        match &exchange.wanted {
            Wanted::File { name, .. } => {
                self.files.states(name, self.oldest_ns(exchange), self.agenda.now_ns()).len() > 1
            }
            Wanted::Status(_) | Wanted::Burnt { .. } | Wanted::Said { .. } => false,
        }
    }
}

/// Whether a reply is right for one state of a file.
fn fits(exchange: &Exchange, selection: &Selection, state: Option<&Content>, reply: &Reply) -> Result<(), String> {
    let Some(content) = state else {
        // A directory without an index is there, and isn't shown.
        return if matches!(reply.status, 403 | 404) { Ok(()) } else { Err("no file".to_owned()) };
    };
    let tag = format!("{:?}", content.etag);
    let len = content.bytes.len() as u64;
    let has_tag = match reply.field("etag")? {
        Some(found) if found == tag => true,
        Some(found) if matches!(reply.status, 200 | 206 | 304) => {
            return Err(format!("{len} bytes have {tag}, not {found}"));
        }
        _ => false,
    };
    let expected = match selection {
        Selection::UnlessTag(unless) if *unless == tag && has_tag => 304,
        Selection::UnlessThere => 304,
        Selection::IfOther => 412,
        Selection::Ranges(runs) if runs.len() == 1 && runs[0].0 >= len => 416,
        // All of nothing: no Content-Range can say that.
        Selection::Suffix(_) if len == 0 => 200,
        Selection::Ranges(runs) if runs.len() > 1 && reply.status == 206 => {
            return fits_parts(runs, content, reply);
        }
        Selection::Ranges(runs) if runs.len() > 1 && runs.iter().all(|run| run.0 >= len) && reply.status == 416 => 416,
        Selection::Ranges(runs) if runs.len() > 1 => {
            // All of the file is always right too.
            return if reply.status == 200 {
                fits_whole(exchange, content, reply)
            } else {
                Err(format!("{} to ranges", reply.status))
            };
        }
        Selection::Ranges(_) | Selection::Suffix(_) => 206,
        _ => 200,
    };
    if reply.status != expected {
        return Err(format!("{expected} for {len} bytes"));
    }
    match (expected, selection) {
        (200, _) => fits_whole(exchange, content, reply),
        (206, Selection::Ranges(runs)) => fits_run(runs[0].0, runs[0].1.min(len - 1), content, reply),
        (206, Selection::Suffix(count)) => fits_run(len - (*count).min(len), len - 1, content, reply),
        _ => Ok(()),
    }
}

fn fits_whole(exchange: &Exchange, content: &Content, reply: &Reply) -> Result<(), String> {
    let len = content.bytes.len();
    if reply.number("content-length")? != Some(len as u64) {
        return Err(format!("the length isn't {len}"));
    }
    if exchange.is_head || reply.body == **content.bytes { Ok(()) } else { Err(differs(&content.bytes, &reply.body)) }
}

fn fits_run(first: u64, last: u64, content: &Content, reply: &Reply) -> Result<(), String> {
    let expected = format!("bytes {first}-{last}/{}", content.bytes.len());
    if reply.field("content-range")? != Some(&expected) {
        return Err(format!("the range isn't {expected}"));
    }
    let bytes = &content.bytes[first as usize..=last as usize];
    if reply.body == bytes { Ok(()) } else { Err(differs(bytes, &reply.body)) }
}

/// `multipart/byteranges` (RFC 9110 section 14.6), or the only part of one that there was.
fn fits_parts(runs: &[(u64, u64)], content: &Content, reply: &Reply) -> Result<(), String> {
    let len = content.bytes.len() as u64;
    let runs: Vec<(u64, u64)> =
        runs.iter().filter(|run| run.0 < len).map(|&(first, last)| (first, last.min(len - 1))).collect();
    if let &[(first, last)] = &runs[..] {
        return fits_run(first, last, content, reply);
    }
    let kind = reply.field("content-type")?.unwrap_or_default();
    let boundary =
        kind.strip_prefix("multipart/byteranges; boundary=").ok_or_else(|| format!("the type is `{kind}`"))?;
    let mut rest = &reply.body[..];
    for (first, last) in runs {
        let head_end = rest.windows(4).position(|four| four == b"\r\n\r\n").ok_or("a part has no head")?;
        let head = String::from_utf8_lossy(&rest[..head_end]).into_owned();
        let begins = head.trim_start_matches("\r\n").starts_with(&format!("--{}", boundary.trim_matches('"')));
        if !begins || !head.contains(&format!("Content-Range: bytes {first}-{last}/{len}")) {
            return Err(format!("a part's head is `{}`", head.escape_debug()));
        }
        rest = &rest[head_end + 4..];
        let bytes = &content.bytes[first as usize..=last as usize];
        rest = rest.strip_prefix(bytes).ok_or_else(|| differs(bytes, rest))?;
    }
    let end = format!("\r\n--{}--", boundary.trim_matches('"'));
    if rest.starts_with(end.as_bytes()) { Ok(()) } else { Err("the parts have no end".to_owned()) }
}

fn differs(expected: &[u8], found: &[u8]) -> String {
    let place = expected.iter().zip(found).position(|(one, other)| one != other);
    format!("{} bytes that differ at {place:?} of {}", found.len(), expected.len())
}
