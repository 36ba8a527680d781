//! Golden files: cases with directives, input lines and expected lines.
//!
//! ```text
//! # a comment
//! case: what it shows
//! limits: head_bytes_max=64        any other `word: value` is a directive
//! > GET / HTTP/1.1\r\n             input, with \r \n \t \\ \xHH and {{3*text}} for a repetition; lines join without anything between
//! = request GET / 1.1              one line for each thing that must come out
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// One case.
pub(crate) struct Case {
    pub name: String,
    pub directives: BTreeMap<String, String>,
    pub input: Vec<u8>,
    pub expected: Vec<String>,
    /// The file's lines from here to the expected ones, for writing it anew.
    source: Vec<String>,
}

/// Runs `evaluate` on every case of every `.txt` file in `folder` and compares. Returns how many cases there were.
pub(crate) fn run(folder: &str, evaluate: impl Fn(&Case) -> Vec<String>) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("the folder exists").map(|entry| entry.expect("readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(!files.is_empty(), "no golden files in {}", folder.display());
    let bless = std::env::var_os("LEAT_BLESS").is_some();
    let (mut count, mut failures) = (0, String::new());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("readable");
        let (cases, tail) = parse(&text);
        let mut written = String::new();
        for case in &cases {
            count += 1;
            let found = evaluate(case);
            if !bless && found != case.expected {
                let file = path.file_name().expect("a file").to_string_lossy();
                let _ = writeln!(
                    failures,
                    "{file}: {}\n  expected {:#?}\n  found    {:#?}",
                    case.name, case.expected, found
                );
            }
            case.source.iter().for_each(|line| written.push_str(&format!("{line}\n")));
            found.iter().for_each(|line| written.push_str(&format!("= {line}\n")));
        }
        tail.iter().for_each(|line| written.push_str(&format!("{line}\n")));
        if bless && written != text {
            std::fs::write(&path, written).expect("writable");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    count
}

fn parse(text: &str) -> (Vec<Case>, Vec<String>) {
    let mut cases: Vec<Case> = Vec::new();
    let mut pending: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(expected) = line.strip_prefix("= ") {
            cases.last_mut().expect("a case before `=`").expected.push(expected.to_string());
            continue;
        }
        if let Some(name) = line.strip_prefix("case: ") {
            let mut source = std::mem::take(&mut pending);
            source.push(line.to_string());
            cases.push(Case {
                name: name.to_string(),
                directives: BTreeMap::new(),
                input: Vec::new(),
                expected: Vec::new(),
                source,
            });
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            pending.push(line.to_string());
            continue;
        }
        let case = cases.last_mut().expect("a case first");
        case.source.push(line.to_string());
        if let Some(input) = line.strip_prefix("> ") {
            case.input.extend(unescape(input));
        } else {
            let (word, value) = line.split_once(": ").unwrap_or_else(|| panic!("not understood: {line}"));
            case.directives.insert(word.to_string(), value.to_string());
        }
    }
    (cases, pending)
}

/// Bytes from their notation in a golden file.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if let Some(repetition) = rest.strip_prefix("{{") {
            let (count, after) = repetition.split_once('*').expect("{{count*text}}");
            let (inner, after) = after.split_once("}}").expect("{{count*text}}");
            let count = count.parse().expect("a count");
            bytes.extend(unescape(inner).repeat(count));
            rest = after;
        } else if character == '\\' {
            let (byte, length) = match rest.as_bytes()[1] {
                b'r' => (b'\r', 2),
                b'n' => (b'\n', 2),
                b't' => (b'\t', 2),
                b'\\' => (b'\\', 2),
                b'x' => (u8::from_str_radix(&rest[2..4], 16).expect("two digits"), 4),
                other => panic!("unknown escape \\{}", other as char),
            };
            bytes.push(byte);
            rest = &rest[length..];
        } else {
            bytes.extend_from_slice(&rest.as_bytes()[..character.len_utf8()]);
            rest = &rest[character.len_utf8()..];
        }
    }
    bytes
}
