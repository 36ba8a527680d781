//! What programs say, by CGI and by FastCGI: anything reads the same in pieces as whole, and no reply can be broken by it.
#![no_main]

use leat_logic::cgi::{ReplyReader, ReplyStep};
use leat_logic::fastcgi::{Conversation, Step};
use libfuzzer_sys::fuzz_target;

/// All that comes of `bytes` in two pieces: field lines, content, and whether it went wrong.
fn cgi(bytes: &[u8], cut: usize) -> (Vec<u8>, Vec<u8>, bool) {
    let (mut reader, mut lines, mut content, mut kept) = (ReplyReader::default(), Vec::new(), Vec::new(), Vec::new());
    for part in [&bytes[..cut], &bytes[cut..]] {
        kept.extend_from_slice(part);
        loop {
            let Ok((consumed, step)) = reader.handle_input(&kept) else { return (lines, content, true) };
            let is_all = step == ReplyStep::NeedInput;
            match step {
                ReplyStep::NeedInput => {}
                ReplyStep::Head(head) => lines = head.lines,
                ReplyStep::Content(bytes) => content.extend_from_slice(bytes),
            }
            kept.drain(..consumed);
            if is_all {
                break;
            }
        }
    }
    (lines, content, reader.handle_end().is_err())
}

fn fastcgi(bytes: &[u8], cut: usize) -> (Vec<u8>, bool, bool) {
    let (mut conversation, mut output, mut kept) = (Conversation::default(), Vec::new(), Vec::new());
    for part in [&bytes[..cut], &bytes[cut..]] {
        kept.extend_from_slice(part);
        loop {
            let Ok((consumed, step)) = conversation.handle_input(&kept) else { return (output, false, true) };
            let is_all = step == Step::NeedInput;
            if let Step::Output(bytes) = step {
                output.extend_from_slice(bytes);
            }
            kept.drain(..consumed);
            if is_all {
                break;
            }
        }
    }
    (output, conversation.is_over(), false)
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let cut = usize::from(cut) * (bytes.len() + 1) / 256;
    let whole = cgi(bytes, bytes.len());
    assert_eq!(cgi(bytes, cut), whole);
    let (lines, ..) = whole;
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r\n").expect("a whole line");
        assert!(!line.contains(&b'\r') && !line.contains(&0) && line.contains(&b':'));
    }
    assert_eq!(fastcgi(bytes, cut), fastcgi(bytes, bytes.len()));
});
