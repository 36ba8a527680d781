//! Which request comes next: targets with weights, drawn from a seed.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::content::Content;

/// Requests joined for one send when several go to the same target.
pub(crate) const PIPELINE_MAX: usize = 64;

/// Asks the server to close afterwards.
pub(crate) const CLOSE: &str = "Connection: close\r\n";

/// What a reply's body has to be.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Only its length is known.
    Unknown,
    /// A function of a seed.
    Seeded(Content),
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// Each server's own, and none where it has no such content: so the content says whose reply it is. At most [`SERVERS_MAX`].
    ByServer(Arc<[Option<Content>]>),
}

/// Servers that can be told apart by what they say.
pub(crate) const SERVERS_MAX: usize = 32;

/// Servers of which a body may be, one bit for each; the first stands for all where none is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whose(u32);

impl Whose {
    /// Of none: the body is wrong.
    pub(crate) fn is_nobodys(self) -> bool {
        self.0 == 0
    }

    /// The server, where it can be no other.
    pub(crate) fn server(self) -> Option<u32> {
        (self.0.count_ones() == 1).then(|| self.0.trailing_zeros())
    }
}

impl Body {
    /// Whether `bytes` may stand at `offset` of the body.
    pub(crate) fn matches(&self, offset: u64, bytes: &[u8]) -> bool {
        !self.whose(offset, bytes, self.anybodys()).is_nobodys()
    }

    /// A body of which nothing has come.
    pub(crate) fn anybodys(&self) -> Whose {
        let has = |(number, content): (usize, &Option<Content>)| u32::from(content.is_some()) << number;
        match self {
            Body::ByServer(contents) => Whose(contents.iter().take(SERVERS_MAX).enumerate().map(has).sum()),
            _ => Whose(1),
        }
    }

    /// Whose it may still be when `bytes` stand at `offset` of it, of those whose it may have been before.
    pub(crate) fn whose(&self, offset: u64, bytes: &[u8], before: Whose) -> Whose {
        let matches = match self {
            Body::Unknown => true,
            Body::Seeded(content) => content.matches(offset, bytes),
            Body::Bytes(all) => all.get(offset as usize..).is_some_and(|rest| rest.starts_with(bytes)),
            Body::ByServer(contents) => {
                let may_be = |number: &usize| before.0 & 1 << number != 0;
                let fits = |number: &usize| contents[*number].is_some_and(|content| content.matches(offset, bytes));
                return Whose(
                    (0..contents.len().min(SERVERS_MAX)).filter(may_be).filter(fits).map(|number| 1 << number).sum(),
                );
            }
        };
        if matches { before } else { Whose(0) }
    }

    /// Whether it says whose it is.
    pub(crate) fn tells_servers_apart(&self) -> bool {
        matches!(self, Body::ByServer(_))
    }
}

/// One thing to ask for.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The request, [`PIPELINE_MAX`] times over. Lives as long as the process, as the kernel reads from it.
    repeated: &'static [u8],
    request_bytes: usize,
    /// One of these the reply must have.
    pub(crate) statuses: RangeInclusive<u16>,
    /// Length that the reply's body must have; unknown means any.
    pub(crate) body_bytes: Option<u64>,
    pub(crate) body: Body,
}

impl Target {
    /// A GET of `path`, with the header fields that a simple client sends.
    pub(crate) fn new(path: &str, close: bool, body_bytes: Option<u64>, body: Body) -> Self {
        let fields = if close { CLOSE } else { "" };
        Self::of_host("localhost", path, fields).with_body(body_bytes, body)
    }

    /// A GET of `path` of one host, with more header fields, each with its CRLF. Nothing is known of the body.
    pub(crate) fn of_host(host: &str, path: &str, fields: &str) -> Self {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: leat-bench\r\n{fields}\r\n");
        let copies = if fields.contains(CLOSE) { 1 } else { PIPELINE_MAX };
        let request_bytes = request.len();
        let repeated = request.repeat(copies).into_bytes().leak();
        Self { repeated, request_bytes, statuses: 200..=200, body_bytes: None, body: Body::Unknown }
    }

    /// A POST of some bytes, for connections with one request outstanding at a time: it's kept once.
    pub(crate) fn post(path: &str, close: bool, content: &[u8]) -> Self {
        let fields = if close { CLOSE } else { "" };
        let bytes = content.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: leat-bench\r\nContent-Length: {bytes}\r\n{fields}\r\n"
        );
        let repeated: &'static [u8] = [head.as_bytes(), content].concat().leak();
        let request_bytes = repeated.len();
        Self { repeated, request_bytes, statuses: 200..=200, body_bytes: None, body: Body::Unknown }
    }

    /// What the reply has to bring.
    pub(crate) fn with_body(self, body_bytes: Option<u64>, body: Body) -> Self {
        Self { body_bytes, body, ..self }
    }

    /// The bytes of `count` requests in a row.
    pub(crate) fn requests(&self, count: usize) -> &'static [u8] {
        &self.repeated[..count * self.request_bytes]
    }
}

/// Targets with their cumulative shares.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    targets: Vec<Target>,
    /// Ends at 1.
    cumulative: Vec<f64>,
}

impl Mix {
    /// `targets` with their relative weights; not empty.
    pub(crate) fn new(targets: Vec<(Target, f64)>) -> Self {
        assert!(!targets.is_empty(), "a mix needs a target");
        let total: f64 = targets.iter().map(|(_, weight)| weight).sum();
        let mut sum = 0.0;
        let cumulative = targets.iter().map(|(_, weight)| {
            sum += weight / total;
            sum
        });
        let cumulative = cumulative.collect();
        Self { targets: targets.into_iter().map(|(target, _)| target).collect(), cumulative }
    }

    /// Draws a target's number.
    pub(crate) fn draw(&self, random: &mut fastrand::Rng) -> u32 {
        if self.targets.len() == 1 {
            return 0;
        }
        let at = random.f64();
        let index = self.cumulative.partition_point(|&end| end <= at);
        index.min(self.targets.len() - 1) as u32
    }

    pub(crate) fn target(&self, number: u32) -> &Target {
        &self.targets[number as usize]
    }

    /// The number of the target with the longest body.
    pub(crate) fn longest(&self) -> u32 {
        let longest = self.targets.iter().enumerate().max_by_key(|(_, target)| target.body_bytes);
        longest.map_or(0, |(index, _)| index as u32)
    }

    /// The longest body, when all lengths are known.
    pub(crate) fn body_bytes_max(&self) -> Option<u64> {
        self.targets.iter().map(|target| target.body_bytes).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_weights_and_the_seed_alone() {
        let target = |path| Target::new(path, false, Some(1), Body::Unknown);
        let mix = Mix::new(vec![(target("/a"), 1.0), (target("/b"), 3.0)]);
        let draw = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..10_000).map(|_| mix.draw(&mut random)).sum::<u32>()
        };
        assert_eq!(draw(1), draw(1));
        assert!((7_300..7_700).contains(&draw(1)), "{}", draw(1));
    }
}
