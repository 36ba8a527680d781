//! What programs write to standard error, as lines of leat's log: whole lines, few in a second, and nothing in them that a terminal obeys.

use std::fmt::Write as _;

use crate::log::Ration;

/// Lines of one handler's programs in a second; more are counted.
const LINES_IN_A_SECOND_MAX: u32 = 20;
/// Bytes of a line; the rest is left out.
const LINE_BYTES_MAX: usize = 1000;

/// A line that hasn't ended, of one pipe or one request.
#[derive(Debug, Default)]
pub(super) struct Begun(Vec<u8>);

/// The log of one handler's programs.
#[derive(Debug, Default)]
pub(super) struct ProgramLog {
    ration: Ration,
    dropped: u64,
}

impl ProgramLog {
    /// Adds what programs have written behind `begun`; `write` gets each line that the log takes.
    pub(super) fn add(&mut self, begun: &mut Begun, second: i64, bytes: &[u8], mut write: impl FnMut(&str)) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, is_end) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let room = LINE_BYTES_MAX - begun.0.len();
            begun.0.extend_from_slice(&text[..text.len().min(room)]);
            if is_end {
                self.end(begun, second, &mut write);
            }
        }
    }

    /// A line has ended, or the program or request whose it is: what is there is all there will be of it.
    pub(super) fn end(&mut self, begun: &mut Begun, second: i64, mut write: impl FnMut(&str)) {
        let line = std::mem::take(&mut begun.0);
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        if !self.ration.take(second, LINES_IN_A_SECOND_MAX) {
            self.dropped += 1;
            return;
        }
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            write(&format!("{dropped} more lines were left out"));
        }
        let mut clean = String::with_capacity(line.len());
        for character in String::from_utf8_lossy(line).chars() {
            if character.is_control() {
                // Writing to a string can't fail.
                let _ = write!(clean, "{}", character.escape_default());
            } else {
                clean.push(character);
            }
        }
        write(&clean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Pipe {
        log: ProgramLog,
        begun: Begun,
    }

    fn told(pipe: &mut Pipe, second: i64, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        pipe.log.add(&mut pipe.begun, second, bytes, |line| lines.push(line.to_owned()));
        lines
    }

    #[test]
    fn lines_are_put_together_and_cleaned() {
        let mut pipe = Pipe::default();
        assert_eq!(told(&mut pipe, 1, b"half"), Vec::<String>::new());
        assert_eq!(
            told(&mut pipe, 1, b" a line\n\n  \nand \x1b[31mred\xff\r\n"),
            ["half a line", "and \\u{1b}[31mred\u{fffd}"]
        );
        let long = [vec![b'x'; 5000], b"\nshort\n".to_vec()].concat();
        let lines = told(&mut pipe, 1, &long);
        assert_eq!((lines[0].len(), lines[1].as_str()), (LINE_BYTES_MAX, "short"));
    }

    #[test]
    fn what_a_program_had_begun_is_a_line_when_it_ends() {
        let mut pipe = Pipe::default();
        assert_eq!(told(&mut pipe, 1, b"its last words"), Vec::<String>::new());
        let mut lines = Vec::new();
        for _ in 0..2 {
            pipe.log.end(&mut pipe.begun, 1, |line| lines.push(line.to_owned()));
        }
        assert_eq!(lines, ["its last words"]);
        assert_eq!(told(&mut pipe, 1, b"another's\n"), ["another's"]);
    }

    #[test]
    fn lines_of_several_are_put_together_apart() {
        let (mut log, mut lines) = (ProgramLog::default(), Vec::new());
        let (mut one, mut other) = (Begun::default(), Begun::default());
        let mut write = |line: &str| lines.push(line.to_owned());
        log.add(&mut one, 1, b"of", &mut write);
        log.add(&mut other, 1, b"of the other", &mut write);
        log.add(&mut one, 1, b" the one\n", &mut write);
        log.end(&mut other, 1, &mut write);
        assert_eq!(lines, ["of the one", "of the other"]);
    }

    #[test]
    fn a_flood_is_counted() {
        let mut pipe = Pipe::default();
        let flood = b"x\n".repeat(100);
        assert_eq!(told(&mut pipe, 1, &flood).len(), LINES_IN_A_SECOND_MAX as usize);
        assert_eq!(told(&mut pipe, 2, b"y\n"), ["80 more lines were left out", "y"]);
    }
}
