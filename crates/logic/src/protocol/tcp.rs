//! No protocol at all: a connection goes to a node by its first bytes, or by load alone.

use super::{About, Begin, Limits, Mistake, Parser, Piece, Request, Scope};
use crate::dispatch::Facts;

pub(super) const ABOUT: About = About {
    name: "tcp",
    about: "any protocol: each connection goes to a node by load, or by its `first_bytes`",
    parser: |limits| Box::new(Tcp { limits }),
    is_store: false,
    separable: None,
};

#[derive(Debug)]
struct Tcp {
    limits: Limits,
}

impl Parser for Tcp {
    fn begin<'i>(&mut self, input: &'i [u8], is_all: bool) -> Result<Begin<'i>, Mistake> {
        let wanted = self.limits.first_bytes;
        let scope = match input.get(..wanted) {
            Some([]) => Scope::Any,
            Some(first) => Scope::Content(Facts { path: first, ..Facts::default() }),
            None if is_all => Scope::Content(Facts { path: input, ..Facts::default() }),
            None => return Ok(Begin::NeedMore),
        };
        Ok(Begin::Request(Request::new(scope)))
    }

    fn go_on(&mut self, input: &[u8]) -> Result<Piece, Mistake> {
        Ok(Piece { bytes: input.len(), is_last: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_goes_by_load_unless_first_bytes_are_wanted() {
        let scope = |first_bytes, input: &'static [u8], is_all| {
            let begin = Tcp { limits: Limits { head_bytes_max: 100, first_bytes } }.begin(input, is_all);
            match begin.expect("anything goes") {
                Begin::NeedMore | Begin::Nothing(_) => None,
                Begin::Request(request) => Some(request.scope),
            }
        };
        let by = |path| Some(Scope::Content(Facts { path, ..Facts::default() }));
        assert_eq!(
            scope(0, b"", false),
            Some(Scope::Any),
            "whoever waits for the server to speak first isn't waited for"
        );
        assert_eq!(scope(4, b"abc", false), None);
        assert_eq!(scope(4, b"abcde", false), by(b"abcd"));
        assert_eq!(scope(4, b"abc", true), by(b"abc"), "no more will come");
    }
}
