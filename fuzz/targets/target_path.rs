//! Paths: what comes out never climbs, and is what a plain reading of RFC 3986 gives.
#![no_main]

use leat_logic::http::{PathError, decode_path, encode_path};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut buffer = Vec::new();
    let found = decode_path(data, &mut buffer).map(<[u8]>::to_vec);
    match (&found, plainly(data)) {
        (Ok(path), Some(expected)) => {
            assert_eq!(path, &expected);
            assert!(path.starts_with(b"/") && !path.contains(&0));
            assert!(!path.windows(2).any(|pair| pair == b"//"));
            assert!(path.split(|&byte| byte == b'/').all(|segment| segment != b"." && segment != b".."));
            let mut encoded = Vec::new();
            encode_path(path, &mut encoded);
            let mut again = Vec::new();
            assert_eq!(decode_path(&encoded, &mut again), Ok(&path[..]));
        }
        (Err(PathError::Relative), None) => assert_ne!(data.first(), Some(&b'/')),
        (Err(_), None) => {}
        (found, expected) => panic!("{found:?} is not {expected:?}"),
    }
});

/// Decode, split, walk.
fn plainly(path: &[u8]) -> Option<Vec<u8>> {
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for raw in path.strip_prefix(b"/")?.split(|&byte| byte == b'/') {
        let mut segment = Vec::new();
        let mut at = 0;
        while at < raw.len() {
            if raw[at] == b'%' {
                let digits = std::str::from_utf8(raw.get(at + 1..at + 3)?).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                segment.push(u8::from_str_radix(digits, 16).ok()?);
                at += 3;
            } else {
                segment.push(raw[at]);
                at += 1;
            }
        }
        if segment.iter().any(|&byte| byte == 0 || byte == b'/') {
            return None;
        }
        segments.push(segment);
    }
    let last = segments.last()?;
    let names_directory = last.is_empty() || last == b"." || last == b"..";
    let mut walked: Vec<&[u8]> = Vec::new();
    for segment in &segments {
        match &segment[..] {
            b"" | b"." => {}
            b".." => drop(walked.pop()),
            name => walked.push(name),
        }
    }
    let mut out: Vec<u8> = walked.iter().flat_map(|segment| [b"/", *segment].concat()).collect();
    if out.is_empty() || names_directory {
        out.push(b'/');
    }
    Some(out)
}
