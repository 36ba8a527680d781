//! Records (FastCGI specification section 3.3): eight bytes, content, padding. Here those that a web server sends are written.

pub(super) const HEADER_BYTES: usize = 8;
/// The request's number: a connection carries one at a time.
pub(super) const REQUEST_ID: u16 = 1;
/// Content bytes of one record that we send: a multiple of eight, so that full ones need no padding.
const CONTENT_BYTES_MAX: usize = 32 * 1024;
/// Bytes that [`Encoder::input`] adds at most for each 32 KiB begun.
pub const RECORD_OVERHEAD_BYTES_MAX: usize = HEADER_BYTES;

const VERSION: u8 = 1;
const RESPONDER: u16 = 1;
const KEEP_CONNECTION: u8 = 1;

/// Kinds of records (section 8).
pub(super) const BEGIN_REQUEST: u8 = 1;
pub(super) const END_REQUEST: u8 = 3;
pub(super) const PARAMETERS: u8 = 4;
pub(super) const INPUT: u8 = 5;
pub(super) const OUTPUT: u8 = 6;
pub(super) const ERROR: u8 = 7;

fn push_header(out: &mut Vec<u8>, kind: u8, length: usize) {
    debug_assert!(length <= CONTENT_BYTES_MAX);
    let [id_high, id_low] = REQUEST_ID.to_be_bytes();
    let [length_high, length_low] = (length as u16).to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, id_high, id_low, length_high, length_low, 0, 0]);
}

/// A stream's bytes as records; nothing for no bytes, as an empty record ends the stream.
fn push_stream(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    for part in bytes.chunks(CONTENT_BYTES_MAX) {
        push_header(out, kind, part.len());
        out.extend_from_slice(part);
    }
}

/// Lengths up to 127 take one byte, others four with the highest bit set (section 3.4).
fn push_length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short @ 0..=127) => out.push(short),
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

/// Writes the records of one request.
#[derive(Debug, Default)]
pub struct Encoder {
    parameters: Vec<u8>,
}

impl Encoder {
    /// Adds a parameter.
    pub fn parameter(&mut self, name: &[u8], value: &[u8]) {
        push_length(&mut self.parameters, name.len());
        push_length(&mut self.parameters, value.len());
        self.parameters.extend_from_slice(name);
        self.parameters.extend_from_slice(value);
    }

    /// What begins the request: everything but its content. `keep`: the connection is to carry another one after it.
    pub fn begin(self, keep: bool, out: &mut Vec<u8>) {
        push_header(out, BEGIN_REQUEST, 8);
        let [role_high, role_low] = RESPONDER.to_be_bytes();
        let flags = if keep { KEEP_CONNECTION } else { 0 };
        out.extend_from_slice(&[role_high, role_low, flags, 0, 0, 0, 0, 0]);
        push_stream(out, PARAMETERS, &self.parameters);
        push_header(out, PARAMETERS, 0);
    }

    /// A part of the request's content.
    pub fn input(content: &[u8], out: &mut Vec<u8>) {
        push_stream(out, INPUT, content);
    }

    /// The end of the request's content.
    pub fn end_of_input(out: &mut Vec<u8>) {
        push_header(out, INPUT, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_written_as_the_specification_has_it() {
        let mut encoder = Encoder::default();
        encoder.parameter(b"A", b"bc");
        encoder.parameter(b"LONG", &[b'x'; 200]);
        let mut out = Vec::new();
        encoder.begin(true, &mut out);
        Encoder::input(b"hello", &mut out);
        Encoder::input(b"", &mut out);
        Encoder::end_of_input(&mut out);
        let mut wanted = vec![1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0];
        wanted.extend_from_slice(&[1, 4, 0, 1, 0, 214, 0, 0, 1, 2, b'A', b'b', b'c', 4, 0x80, 0, 0, 200]);
        wanted.extend_from_slice(b"LONG");
        wanted.extend_from_slice(&[b'x'; 200]);
        wanted.extend_from_slice(&[1, 4, 0, 1, 0, 0, 0, 0, 1, 5, 0, 1, 0, 5, 0, 0]);
        wanted.extend_from_slice(b"hello");
        wanted.extend_from_slice(&[1, 5, 0, 1, 0, 0, 0, 0]);
        assert_eq!(out, wanted);
        let mut alone = Vec::new();
        Encoder::default().begin(false, &mut alone);
        assert_eq!(alone, [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 4, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn long_content_is_cut_into_records() {
        let mut out = Vec::new();
        Encoder::input(&vec![7; 2 * CONTENT_BYTES_MAX + 1], &mut out);
        assert_eq!(out.len(), 2 * CONTENT_BYTES_MAX + 1 + 3 * RECORD_OVERHEAD_BYTES_MAX);
        assert_eq!(out[..HEADER_BYTES], [1, 5, 0, 1, 0x80, 0, 0, 0]);
    }
}
