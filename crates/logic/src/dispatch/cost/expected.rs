//! What may be expected of a request: how large its reply is, how many more its connection brings, how many of these belong to the same
//! node. From what was seen of the content and of the site.

use std::collections::BTreeMap;

use super::super::facts::ContentKey;
use super::super::limits::{SITES_MAX, SIZES_REMEMBERED};
use super::curve::Average;

/// What was seen.
#[derive(Clone, Debug)]
pub struct Expected {
    /// By content, each at the one place that its key says: the upper half of the key, and bytes.
    sizes: Vec<(u32, f32)>,
    sites: BTreeMap<ContentKey, Site>,
    /// For sites beyond the bound, and for those not seen yet.
    others: Site,
}

/// Requests that a connection has had, in powers of two: 0, 1, 2 and 3, 4 to 7, ... 32 and more.
const STAGES: usize = 7;

#[derive(Clone, Copy, Debug, Default)]
struct Site {
    bytes: Average,
    left: [Average; STAGES],
    /// How often a connection's next request belongs to the same node: 0 to 1.
    same: Average,
}

/// A reply of which nothing is known.
const REPLY_BYTES: f64 = 16.0 * 1024.0;

fn stage(had: u32) -> usize {
    ((u32::BITS - had.leading_zeros()) as usize).min(STAGES - 1)
}

impl Default for Expected {
    fn default() -> Self {
        Expected { sizes: vec![(0, 0.0); SIZES_REMEMBERED], sites: BTreeMap::new(), others: Site::default() }
    }
}

impl Expected {
    /// A reply for this content of this site had so many bytes.
    pub fn replied(&mut self, content: ContentKey, site: ContentKey, bytes: u64) {
        let (place, tag) = Self::place(content);
        let (known, size) = &mut self.sizes[place];
        let before = if *known == tag { *size } else { bytes as f32 };
        (*known, *size) = (tag, (before + bytes as f32) / 2.0);
        self.see(site, |site| site.bytes.add(bytes as f64));
    }

    /// A connection of this site has ended after so many requests.
    pub fn connection_ended(&mut self, site: ContentKey, requests: u32) {
        self.see(site, |site| {
            let starts = [0, 1, 2, 4, 8, 16, 32];
            for (left, start) in site.left.iter_mut().zip(starts).filter(|(_, start)| *start < requests) {
                left.add(f64::from(requests - start));
            }
        });
    }

    /// A connection's next request belonged to the same node as the one before, or not.
    pub fn followed(&mut self, site: ContentKey, is_same_node: bool) {
        self.see(site, |site| site.same.add(f64::from(u8::from(is_same_node))));
    }

    /// Bytes of the reply.
    #[must_use]
    pub fn reply_bytes(&self, content: ContentKey, site: ContentKey) -> u64 {
        let (place, tag) = Self::place(content);
        match self.sizes[place] {
            (known, bytes) if known == tag => bytes as u64,
            _ => self.of(site, |site| site.bytes.mean()).unwrap_or(REPLY_BYTES) as u64,
        }
    }

    /// Requests that are still to come on a connection that has `had` so many before this one; this one counts.
    #[must_use]
    pub fn requests_left(&self, site: ContentKey, had: u32) -> f64 {
        // Of which nothing is known has half of its life before it.
        self.of(site, |site| site.left[stage(had)].mean()).unwrap_or(f64::from(had) + 1.0).max(1.0)
    }

    /// How many of `requests_left` belong to the node of the first, before one doesn't; the first counts.
    #[must_use]
    pub fn run_left(&self, site: ContentKey, requests_left: f64) -> f64 {
        let same = self.of(site, |site| site.same.mean()).unwrap_or(1.0);
        (1.0 / (1.0 - same).max(1e-3)).clamp(1.0, requests_left.max(1.0))
    }

    fn place(content: ContentKey) -> (usize, u32) {
        // The lower half says where, the upper half what; an upper half of zero is a free place's.
        (content.0 as usize % SIZES_REMEMBERED, (content.0 >> 32) as u32 | 1)
    }

    fn see(&mut self, site: ContentKey, see: impl Fn(&mut Site)) {
        see(&mut self.others);
        if self.sites.len() < SITES_MAX || self.sites.contains_key(&site) {
            see(self.sites.entry(site).or_default());
        }
    }

    fn of(&self, site: ContentKey, what: impl Fn(&Site) -> Option<f64>) -> Option<f64> {
        self.sites.get(&site).and_then(&what).or_else(|| what(&self.others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: ContentKey = ContentKey(1 << 40);
    const OTHER: ContentKey = ContentKey(2 << 40);

    fn content(number: u64) -> ContentKey {
        ContentKey(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn a_size_is_the_contents_else_the_sites_else_everybodys() {
        let mut expected = Expected::default();
        assert_eq!(expected.reply_bytes(content(1), SITE), 16 << 10);
        expected.replied(content(1), SITE, 1000);
        expected.replied(content(2), SITE, 3000);
        assert_eq!(expected.reply_bytes(content(1), SITE), 1000);
        assert_eq!(expected.reply_bytes(content(3), SITE), 2000);
        expected.replied(content(4), OTHER, 8000);
        assert_eq!(expected.reply_bytes(content(5), OTHER), 8000);
        assert_eq!(expected.reply_bytes(content(6), content(7)), 4000);
    }

    #[test]
    fn what_is_left_depends_on_what_was() {
        let mut expected = Expected::default();
        assert!((expected.requests_left(SITE, 0) - 1.0).abs() < 1e-9);
        assert!((expected.requests_left(SITE, 5) - 6.0).abs() < 1e-9);
        for _ in 0..50 {
            // Most connections bring one request, some a hundred.
            for _ in 0..9 {
                expected.connection_ended(SITE, 1);
            }
            expected.connection_ended(SITE, 100);
        }
        let left = [0, 1, 3, 40].map(|had| expected.requests_left(SITE, had));
        assert!(left[0] > 5.0 && left[0] < 20.0, "{left:?}");
        assert!(left[1] > 90.0 && left[2] > 90.0 && left[3] > 60.0, "{left:?}");
    }

    #[test]
    fn a_run_ends_with_the_connection() {
        let mut expected = Expected::default();
        assert!((expected.run_left(SITE, 7.0) - 7.0).abs() < 1e-9);
        for round in 0..100 {
            expected.followed(SITE, round % 4 != 0);
        }
        let run = expected.run_left(SITE, 100.0);
        assert!((3.0..5.5).contains(&run), "{run}");
        assert!((expected.run_left(SITE, 2.0) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn many_sites_and_contents_take_no_more_room() {
        let mut expected = Expected::default();
        for number in 0..100_000 {
            expected.replied(content(number), content(number), number);
        }
        assert_eq!((expected.sites.len(), expected.sizes.len()), (SITES_MAX, SIZES_REMEMBERED));
    }
}
