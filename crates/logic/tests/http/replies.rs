//! What is written can be read again, and means the same.

use leat_logic::http::{
    Boundary, ByteRange, CachedDate, EntityTag, FieldName, FieldValue, HeadWriter, HttpDate, MultipartRanges,
    Persistence, PreparedFields, RangeOutcome, Status,
};
use leat_logic::time::UnixTime;

const TIME: UnixTime = UnixTime { seconds: 784_111_777, nanoseconds: 5 };

fn written(write: impl for<'v> FnOnce(HeadWriter<'v>) -> HeadWriter<'v>, status: Status) -> String {
    let mut out = Vec::new();
    write(HeadWriter::start(&mut out, status, &CachedDate::new(TIME))).finish();
    let mut slots = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Response::new(&mut slots);
    assert_eq!(parsed.parse(&out), Ok(httparse::Status::Complete(out.len())));
    assert_eq!(parsed.code, Some(status.code()));
    assert_eq!(parsed.reason, Some(status.reason()));
    String::from_utf8(out).expect("ASCII")
}

#[test]
fn a_whole_head() {
    const VARY: FieldName<'static> = FieldName::literal("Vary");
    const CODING: FieldValue<'static> = FieldValue::literal("Accept-Encoding");
    let prepared = PreparedFields::new(|head| {
        head.content_type(FieldValue::literal("text/html; charset=utf-8"))
            .content_length(612)
            .entity_tag(&EntityTag::strong(b"abc").expect("a tag"))
            .last_modified(HttpDate::from(TIME))
    });
    let head =
        written(|head| head.prepared(&prepared).field(VARY, CODING).persistence(Persistence::KeepAlive), Status::OK);
    assert_eq!(
        head,
        "HTTP/1.1 200 OK\r\nServer: leat\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: 612\r\nETag: \"abc\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nVary: Accept-Encoding\r\n\
         Connection: keep-alive\r\n\r\n"
    );
    assert!(!prepared.is_empty() && head.len() > prepared.len());
}

#[test]
fn every_status_line() {
    for code in 100..600 {
        let status = Status::new(code).expect("in range");
        written(|head| head.content_length(0).persistence(Persistence::Close), status);
    }
}

#[test]
fn ranges_in_a_head() {
    let range = ByteRange { first: 5, last: 9 };
    assert!(
        written(|head| head.content_range(range, 10), Status::PARTIAL_CONTENT)
            .contains("\r\nContent-Range: bytes 5-9/10\r\n")
    );
    let head = written(|head| head.unsatisfied_range(10), Status::RANGE_NOT_SATISFIABLE);
    assert!(head.contains("\r\nContent-Range: bytes */10\r\n"));
}

#[test]
fn numbers_of_every_length() {
    for shift in 0..64 {
        for number in [(1u64 << shift) - 1, 1 << shift] {
            let head = written(|head| head.content_length(number), Status::OK);
            assert!(head.contains(&format!("\r\nContent-Length: {number}\r\n")), "{head}");
        }
    }
    assert!(written(|head| head.content_length(u64::MAX), Status::OK).contains("18446744073709551615"));
}

#[test]
fn no_value_can_add_a_line() {
    assert!(FieldValue::new(b"x\r\nSet-Cookie: y").is_err());
    assert!(FieldValue::new(b"x\ny").is_err());
    assert!(FieldName::new(b"X: y\r\nZ").is_err());
    // A tag's text is open to the caller; one that breaks out of its quotes is not written.
    let tag = EntityTag { weak: false, opaque: b"a\"\r\nX: y" };
    assert!(!written(|head| head.entity_tag(&tag), Status::OK).contains("ETag"));
}

#[test]
fn multipart_is_exactly_as_long_as_it_says() {
    let content: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let multipart = MultipartRanges {
        boundary: Boundary::from_number(42),
        content_type: FieldValue::literal("image/png"),
        complete_length: content.len() as u64,
    };
    let RangeOutcome::Multiple(ranges) = RangeOutcome::evaluate(b"bytes=4000-,0-9,100-2000", multipart.complete_length)
    else {
        panic!("three ranges");
    };
    let mut body = Vec::new();
    for &range in ranges.as_slice() {
        multipart.push_part_head(&mut body, range);
        body.extend_from_slice(
            &content[usize::try_from(range.first).expect("small")..=usize::try_from(range.last).expect("small")],
        );
    }
    multipart.push_end(&mut body);
    assert_eq!(body.len() as u64, multipart.content_length(&ranges));

    let mut content_type = Vec::new();
    multipart.push_content_type(&mut content_type);
    assert_eq!(content_type, b"multipart/byteranges; boundary=00000000000000000042");
    assert!(FieldValue::new(&content_type).is_ok());
    // Read again as RFC 2046 says: parts between delimiters, each with a head.
    let text: String = body.iter().map(|&byte| byte as char).collect();
    let parts: Vec<&str> = text.split("\r\n--00000000000000000042").collect();
    assert_eq!((parts.len(), parts[0], parts[4]), (5, "", "--\r\n"));
    for (part, range) in parts[1..4].iter().zip(ranges.as_slice()) {
        let (head, bytes) = part.split_once("\r\n\r\n").expect("a head");
        assert_eq!(
            head,
            format!("\r\nContent-Type: image/png\r\nContent-Range: bytes {}-{}/5000", range.first, range.last)
        );
        assert_eq!(bytes.chars().count() as u64, range.length());
    }
}

#[test]
fn multipart_of_the_longest_representation_does_not_overflow() {
    let complete_length = u64::MAX - 22;
    let multipart = MultipartRanges {
        boundary: Boundary::from_number(0),
        content_type: FieldValue::literal("a/b"),
        complete_length,
    };
    let RangeOutcome::Multiple(ranges) = RangeOutcome::evaluate(b"bytes=4-, 2-2", complete_length) else {
        panic!("two ranges")
    };
    assert_eq!(multipart.content_length(&ranges), u64::MAX);
}
