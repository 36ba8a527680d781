//! Content codings of precompressed siblings: which of them a client wants, and in which order (RFC 9110 section 12.5.3).

/// A content coding that a file's precompressed sibling can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Coding {
    /// Brotli, `.br`.
    Brotli = 1,
    /// Zstandard, `.zst`.
    Zstandard = 2,
    /// gzip, `.gz`.
    Gzip = 3,
}

impl Coding {
    /// Every coding, in the order in which a site that doesn't say prefers them: the smallest first.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstandard, Coding::Gzip];

    /// The value of `Content-Encoding`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstandard => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// What a sibling's name ends in, with the dot.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Zstandard => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    /// The coding in whose suffix a name ends.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Option<Coding> {
        Coding::ALL.into_iter().find(|coding| name.ends_with(coding.suffix().as_bytes()))
    }

    fn from_token(token: &[u8]) -> Option<Coding> {
        if token.eq_ignore_ascii_case(b"br") {
            Some(Coding::Brotli)
        } else if token.eq_ignore_ascii_case(b"zstd") {
            Some(Coding::Zstandard)
        } else if token.eq_ignore_ascii_case(b"gzip") || token.eq_ignore_ascii_case(b"x-gzip") {
            Some(Coding::Gzip)
        } else {
            None
        }
    }

    fn from_bits(bits: u8) -> Option<Coding> {
        match bits {
            1 => Some(Coding::Brotli),
            2 => Some(Coding::Zstandard),
            3 => Some(Coding::Gzip),
            _ => None,
        }
    }
}

/// The codings to try, best first: at most three, in six bits. [`CodingOrder::NONE`] means that only the file itself will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodingOrder(u8);

impl CodingOrder {
    /// No sibling is acceptable, or the site has none.
    pub const NONE: CodingOrder = CodingOrder(0);

    /// What to try for a request whose `Accept-Encoding` field value is `accept`, at a site that has siblings in the codings `offered`
    /// (the site's order of preference). The client's weights come first; the site's order decides between equals. A coding that the
    /// client puts below an uncoded reply isn't tried.
    #[must_use]
    pub fn negotiate(accept: Option<&[u8]>, offered: &[Coding]) -> CodingOrder {
        let Some(accept) = accept else { return CodingOrder::NONE };
        if offered.is_empty() {
            return CodingOrder::NONE;
        }
        let weights = Weights::parse(accept);
        let mut order = CodingOrder::NONE;
        let mut below = u16::MAX;
        // At most three codings: picking the greatest weight left is shorter than sorting.
        loop {
            let mut greatest = 0;
            for &coding in offered {
                let weight = weights.of(coding);
                if weight < below && weight > greatest {
                    greatest = weight;
                }
            }
            if greatest == 0 || weights.identity.is_some_and(|identity| identity > greatest) {
                return order;
            }
            for &coding in offered {
                if weights.of(coding) == greatest {
                    order = order.with(coding);
                }
            }
            below = greatest;
        }
    }

    /// The same order with `coding` at its end; unchanged when it's there already.
    #[must_use]
    pub fn with(self, coding: Coding) -> CodingOrder {
        let mut shift = 0;
        while shift < 6 {
            match (self.0 >> shift) & 3 {
                0 => return CodingOrder(self.0 | ((coding as u8) << shift)),
                bits if bits == coding as u8 => return self,
                _ => shift += 2,
            }
        }
        self
    }

    /// The codings, best first.
    pub fn iter(self) -> impl Iterator<Item = Coding> {
        (0..3).map_while(move |place| Coding::from_bits((self.0 >> (2 * place)) & 3))
    }

    /// Which of the siblings that there are is sent; none when it's the file itself.
    #[must_use]
    #[inline]
    pub fn choose(self, siblings: CodingSet) -> Option<Coding> {
        if siblings.is_empty() {
            return None;
        }
        self.iter().find(|&coding| siblings.contains(coding))
    }
}

/// Some of the codings: those in which a file has siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodingSet(u8);

impl CodingSet {
    /// Every coding.
    pub const ALL: CodingSet =
        CodingSet(1 << Coding::Brotli as u8 | 1 << Coding::Zstandard as u8 | 1 << Coding::Gzip as u8);

    /// The same with `coding` in it.
    #[must_use]
    pub fn with(self, coding: Coding) -> CodingSet {
        CodingSet(self.0 | 1 << coding as u8)
    }

    /// Whether `coding` is one of them.
    #[must_use]
    pub fn contains(self, coding: Coding) -> bool {
        self.0 & 1 << coding as u8 != 0
    }

    /// Those in either.
    #[must_use]
    pub fn union(self, other: CodingSet) -> CodingSet {
        CodingSet(self.0 | other.0)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Weights in thousandths; `None` where the client named neither the coding nor `*`.
#[derive(Default)]
struct Weights {
    codings: [Option<u16>; 3],
    identity: Option<u16>,
    any: Option<u16>,
}

impl Weights {
    fn parse(accept: &[u8]) -> Weights {
        let mut weights = Weights::default();
        for member in accept.split(|&byte| byte == b',') {
            let mut parts = member.split(|&byte| byte == b';');
            let token = parts.next().unwrap_or_default().trim_ascii();
            let weight = parts.find_map(parse_weight).unwrap_or(1_000);
            if let Some(coding) = Coding::from_token(token) {
                weights.codings[coding as usize - 1] = Some(weight);
            } else if token.eq_ignore_ascii_case(b"identity") {
                weights.identity = Some(weight);
            } else if token == b"*" {
                weights.any = Some(weight);
            }
        }
        weights
    }

    fn of(&self, coding: Coding) -> u16 {
        self.codings[coding as usize - 1].or(self.any).unwrap_or(0)
    }
}

/// The weight in a parameter `q=0.5`, in thousandths; `None` when it's another parameter. A malformed weight counts as 0: an uncoded
/// reply is always right.
fn parse_weight(parameter: &[u8]) -> Option<u16> {
    let (name, value) = parameter.trim_ascii().split_at_checked(2)?;
    if !name.eq_ignore_ascii_case(b"q=") {
        return None;
    }
    let (whole, fraction) = match value {
        [whole] => (*whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (*whole, fraction),
        _ => return Some(0),
    };
    let mut thousandths = 0;
    for place in 0..3 {
        let digit = fraction.get(place).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return Some(0);
        }
        thousandths = thousandths * 10 + u16::from(digit - b'0');
    }
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(1_000),
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(accept: &str, offered: &[Coding]) -> Vec<&'static str> {
        CodingOrder::negotiate(Some(accept.as_bytes()), offered).iter().map(Coding::name).collect()
    }

    #[test]
    fn the_sites_order_decides_between_equal_weights() {
        assert_eq!(negotiated("gzip, deflate, br, zstd", &Coding::ALL), ["br", "zstd", "gzip"]);
        assert_eq!(negotiated("gzip, deflate, br, zstd", &[Coding::Gzip, Coding::Brotli]), ["gzip", "br"]);
    }

    #[test]
    fn the_clients_weights_come_first() {
        assert_eq!(negotiated("br;q=0.5, gzip;q=0.9, zstd ; q=0.7", &Coding::ALL), ["gzip", "zstd", "br"]);
        assert_eq!(negotiated("br;q=0, gzip;Q=0.001", &Coding::ALL), ["gzip"]);
        assert_eq!(negotiated("*;q=0.3, zstd", &Coding::ALL), ["zstd", "br", "gzip"]);
        assert_eq!(negotiated("*, br;q=0", &Coding::ALL), ["zstd", "gzip"]);
    }

    #[test]
    fn an_uncoded_reply_that_is_liked_better_ends_the_order() {
        assert_eq!(negotiated("identity, br;q=0.5", &Coding::ALL), Vec::<&str>::new());
        assert_eq!(negotiated("br, identity;q=0.8, gzip;q=0.5", &Coding::ALL), ["br"]);
        assert_eq!(negotiated("identity;q=0, gzip;q=0.5", &Coding::ALL), ["gzip"]);
    }

    #[test]
    fn nothing_acceptable_or_nothing_offered_is_the_file_itself() {
        assert_eq!(CodingOrder::negotiate(None, &Coding::ALL), CodingOrder::NONE);
        assert_eq!(CodingOrder::negotiate(Some(b"br"), &[]), CodingOrder::NONE);
        for malformed in
            ["", ",,;", "gzip;q=", "gzip;q=2", "gzip;q=1.001", "gzip;q=0.1234", "gzip;q=x", "gzip;q=0.1x", ";q=1"]
        {
            assert_eq!(negotiated(malformed, &Coding::ALL), Vec::<&str>::new(), "{malformed:?}");
        }
    }

    #[test]
    fn an_order_holds_each_coding_once() {
        let order =
            CodingOrder::NONE.with(Coding::Gzip).with(Coding::Gzip).with(Coding::Brotli).with(Coding::Zstandard);
        assert_eq!(order.iter().collect::<Vec<_>>(), [Coding::Gzip, Coding::Brotli, Coding::Zstandard]);
        assert_eq!(order.with(Coding::Brotli), order);
    }

    #[test]
    fn the_first_sibling_that_there_is_is_sent() {
        let order = CodingOrder::NONE.with(Coding::Gzip).with(Coding::Brotli);
        let both = CodingSet::default().with(Coding::Brotli).with(Coding::Gzip);
        assert_eq!(order.choose(both), Some(Coding::Gzip));
        assert_eq!(order.choose(CodingSet::default().with(Coding::Brotli)), Some(Coding::Brotli));
        assert_eq!(order.choose(CodingSet::default().with(Coding::Zstandard)), None);
        assert_eq!(order.choose(CodingSet::default()), None);
        assert_eq!(CodingOrder::NONE.choose(both), None);
    }
}
