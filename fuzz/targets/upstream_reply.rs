//! What another server answers: anything reads the same in pieces as whole, ends where a plain reading of RFC 9112 section 6.3 ends it, and
//! nothing of it can add a line or a length to what is passed on.
#![no_main]

use leat_logic::http::Method;
use leat_logic::http::client::{BadReply, ReplyHead, ReplyReader, ReplyStep};
use libfuzzer_sys::fuzz_target;

/// All that came of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    interims: Vec<ReplyHead>,
    head: Option<ReplyHead>,
    content: Vec<u8>,
    consumed: usize,
    has_ended: bool,
    is_reusable: bool,
    bad: Option<BadReply>,
}

fn read<'p>(method: Method, parts: impl IntoIterator<Item = &'p [u8]>) -> Read {
    let (mut reader, mut read, mut kept) = (ReplyReader::new(method), Read::default(), Vec::new());
    for part in parts {
        kept.extend_from_slice(part);
        while !read.has_ended {
            let (consumed, step) = match reader.handle_input(&kept) {
                Ok(step) => step,
                // How much of what can't be read was consumed before that was seen depends on the pieces.
                Err(bad) => return Read { bad: Some(bad), consumed: 0, ..read },
            };
            let waits = step == ReplyStep::NeedInput && consumed == 0;
            match step {
                ReplyStep::NeedInput => {}
                ReplyStep::Interim(head) => {
                    assert!(read.head.is_none() && (101..200).contains(&head.status.code()) && head.length.is_none());
                    read.interims.push(head);
                }
                ReplyStep::Head(head) => assert!(read.head.replace(head).is_none(), "two heads"),
                ReplyStep::Content(content) => {
                    assert!(!content.is_empty() && consumed >= content.len());
                    read.content.extend_from_slice(content);
                }
                ReplyStep::End => read.has_ended = true,
            }
            read.consumed += consumed;
            kept.drain(..consumed);
            if waits {
                break;
            }
        }
    }
    if !read.has_ended {
        read.bad = reader.handle_end().err();
    }
    read.is_reusable = reader.is_reusable();
    read
}

fuzz_target!(|data: &[u8]| {
    let Some((&[flavour, cut], stream)) = data.split_first_chunk::<2>() else { return };
    let method = if flavour & 1 == 0 { Method::Get } else { Method::Head };
    let whole = read(method, [stream]);
    let cut = usize::from(cut) * (stream.len() + 1) / 256;
    assert_eq!(read(method, [&stream[..cut], &stream[cut..]]), whole);
    if stream.len() <= 512 {
        assert_eq!(read(method, stream.chunks(1)), whole);
    }
    for line in whole.interims.iter().chain(&whole.head).flat_map(|head| head.lines.split_inclusive(|&byte| byte == b'\n')) {
        let line = line.strip_suffix(b"\r\n").expect("a whole line");
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        assert!(name.len() < line.len() && !line.iter().any(|byte| b"\r\n\0".contains(byte)), "one line, with its colon");
        for own in ["content-length", "transfer-encoding", "connection", "keep-alive", "date", "server"] {
            assert!(!name.eq_ignore_ascii_case(own.as_bytes()), "{own} is passed on");
        }
    }
    if whole.head.is_some() {
        end_plainly(method, stream, &whole);
    }
});

/// Where the content ends, found by splitting and searching in what the reader took for a reply.
fn end_plainly(method: Method, stream: &[u8], read: &Read) {
    let text = String::from_utf8_lossy(stream);
    let mut rest = text.as_ref();
    let section = loop {
        if rest.find('\n').is_some_and(|at| !rest[..at].ends_with('\r')) {
            // All its lines end with LF alone: another oracle's.
            return;
        }
        let Some((section, after)) = rest.split_once("\r\n\r\n") else { panic!("a head without an end") };
        if section.get(8..10) != Some(" 1") {
            break section;
        }
        rest = after;
    };
    let values = |wanted: &str| {
        let lines = section.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim()).collect::<Vec<_>>()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    let head = read.head.as_ref().expect("a head");
    assert!(lengths.is_empty() || codings.is_empty(), "a reply that can be read in two ways");
    assert!(codings.len() <= 1 && (codings.is_empty() || !section.starts_with("HTTP/1.0")), "a coding that HTTP/1.0 doesn't know");
    let length = lengths.first().map(|length| length.parse::<u64>().expect("digits"));
    assert_eq!(head.length, length);
    if method == Method::Head || matches!(head.status.code(), 204 | 304) {
        assert!(read.has_ended && read.content.is_empty(), "content that can't be");
    } else if let Some(length) = length {
        assert_eq!(read.has_ended, read.content.len() as u64 == length);
        assert!(read.content.len() as u64 <= length);
    } else if codings.is_empty() {
        assert!(!read.has_ended && !read.is_reusable, "an end that nobody said");
        assert_eq!(read.consumed, stream.len());
    }
    assert!(!read.is_reusable || read.has_ended);
    let closes = values("connection").iter().any(|value| value.split(',').any(|option| option.trim().eq_ignore_ascii_case("close")));
    assert!(!read.is_reusable || !closes || section.starts_with("HTTP/1.0"), "a connection that the server closes");
}
