//! Which site a request's host belongs to: hosts written in full, then wildcards by their longest ending, then the default. What a host
//! that belongs to none is answered is left to the caller.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// The longest host name (RFC 1035, section 2.3.4, without the final dot).
const HOST_BYTES_MAX: usize = 253;

/// The longest part between dots.
const LABEL_BYTES_MAX: usize = 63;

/// Up to so many hosts, comparing with each is faster than hashing.
const COMPARED_ENTRIES_MAX: usize = 4;

/// A host, or every host below one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPattern {
    /// In lower case, without the final dot and without `*.`.
    name: Box<str>,
    /// Whether it was written with `*.`.
    wildcard: bool,
}

/// Why a text isn't a [`HostPattern`]. The texts are clauses that follow what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    /// A port, which a host never has here.
    #[error("has a port")]
    Port,
    /// An IPv6 address as it is.
    #[error("is an IPv6 address without its brackets")]
    Brackets,
    /// `*`: that is the default site.
    #[error("is every host")]
    Everything,
    /// A star that isn't the whole first label.
    #[error("has a star in the wrong place")]
    Wildcard,
    /// A character that no host has.
    #[error("has the character {0:?}, which no host has")]
    Character(char),
    /// An empty label, one of more than 63 bytes, or more than 253 bytes in all.
    #[error("isn't a host")]
    Length,
}

impl HostPattern {
    /// In lower case, without `*.`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it stands for every host that ends in a dot and [`HostPattern::name`].
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.wildcard
    }

    /// Whether each host that `other` stands for is one that this stands for.
    #[must_use]
    pub fn covers(&self, other: &HostPattern) -> bool {
        if self == other {
            return true;
        }
        let below = other.name.strip_suffix(&*self.name).is_some_and(|start| start.len() > 1 && start.ends_with('.'));
        self.wildcard && below
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(written: &str) -> Result<Self, HostPatternError> {
        if let Some(literal) = written.strip_prefix('[') {
            return ipv6(literal);
        }
        if written.parse::<Ipv6Addr>().is_ok() {
            return Err(HostPatternError::Brackets);
        }
        if written == "*" {
            return Err(HostPatternError::Everything);
        }
        let (wildcard, name) = match written.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, written),
        };
        if name.contains('*') {
            return Err(HostPatternError::Wildcard);
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if let Some((_, port)) = name.rsplit_once(':')
            && port.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(HostPatternError::Port);
        }
        if let Some(bad) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))) {
            return Err(HostPatternError::Character(bad));
        }
        let label = |label: &str| !label.is_empty() && label.len() <= LABEL_BYTES_MAX;
        if name.len() > HOST_BYTES_MAX || !name.split('.').all(label) {
            return Err(HostPatternError::Length);
        }
        Ok(HostPattern { name: name.into(), wildcard })
    }
}

/// `literal` begins after the opening bracket.
fn ipv6(literal: &str) -> Result<HostPattern, HostPatternError> {
    let (address, rest) = literal.split_once(']').ok_or(HostPatternError::Length)?;
    if rest.starts_with(':') {
        return Err(HostPatternError::Port);
    }
    if !rest.is_empty() || address.parse::<Ipv6Addr>().is_err() {
        return Err(HostPatternError::Length);
    }
    Ok(HostPattern { name: format!("[{}]", address.to_ascii_lowercase()).into(), wildcard: false })
}

impl fmt::Display for HostPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", if self.wildcard { "*." } else { "" }, self.name)
    }
}

/// The sites of one listener by host.
///
/// Open addressing with a fixed hash: the names are the operator's, so that no client chooses what collides. Names are hashed from their end,
/// so that one pass over a host gives the hash of each of its endings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostTable {
    entries: Vec<Entry>,
    /// Indices into `entries` plus one, 0 where empty; a power of two long, and less than half full.
    slots: Vec<u32>,
    /// The longest name that has a wildcard, in bytes; 0 when none has.
    wildcard_bytes_max: usize,
    default: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: Box<str>,
    wildcard: bool,
    hash: u32,
    site: u32,
}

/// FNV-1a.
const HASH_START: u32 = 0x811c_9dc5;
const HASH_FACTOR: u32 = 0x0100_0193;

fn hash_step(hash: u32, byte: u8) -> u32 {
    (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(HASH_FACTOR)
}

/// FNV-1a leaves little in the low bits of short names, which choose the slot.
fn slot_of(hash: u32, wildcard: bool) -> usize {
    (hash ^ (hash >> 15) ^ u32::from(wildcard)) as usize
}

impl HostTable {
    /// A table of `hosts`, each with the site that it belongs to (the first, where one is there twice), and of the site for all others.
    #[must_use]
    pub fn new(hosts: impl IntoIterator<Item = (HostPattern, u32)>, default: Option<u32>) -> Self {
        let mut table = HostTable { default, ..HostTable::default() };
        for (pattern, site) in hosts {
            let hash = pattern.name.bytes().rev().fold(HASH_START, hash_step);
            table.entries.push(Entry { name: pattern.name, wildcard: pattern.wildcard, hash, site });
        }
        table.slots = vec![0; (table.entries.len() * 2 + 1).next_power_of_two()];
        for index in 0..table.entries.len() {
            let entry = &table.entries[index];
            if entry.wildcard {
                table.wildcard_bytes_max = table.wildcard_bytes_max.max(entry.name.len());
            }
            if table.find(entry.hash, entry.name.as_bytes(), entry.wildcard).is_some() {
                continue;
            }
            let mask = table.slots.len() - 1;
            let mut slot = slot_of(entry.hash, entry.wildcard) & mask;
            while table.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            table.slots[slot] = index as u32 + 1;
        }
        table
    }

    /// The site for a request's host, as in a Host header or a target's authority: in any case, with or without port and final dot.
    #[must_use]
    pub fn site(&self, host: &[u8]) -> Option<u32> {
        if self.entries.is_empty() {
            return self.default;
        }
        let name = host_name(host);
        if name.is_empty() || name.len() > HOST_BYTES_MAX {
            return self.default;
        }
        if self.wildcard_bytes_max == 0 && self.entries.len() <= COMPARED_ENTRIES_MAX {
            let found = self.entries.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name));
            return found.map(|entry| entry.site).or(self.default);
        }
        let mut hash = HASH_START;
        let mut widest = None;
        for (index, byte) in name.iter().enumerate().rev() {
            let ending = name.len() - index - 1;
            if *byte == b'.' && index > 0 && ending <= self.wildcard_bytes_max {
                widest = self.find(hash, &name[index + 1..], true).or(widest);
            }
            hash = hash_step(hash, *byte);
        }
        self.find(hash, name, false).or(widest).or(self.default)
    }

    fn find(&self, hash: u32, name: &[u8], wildcard: bool) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut slot = slot_of(hash, wildcard) & mask;
        while self.slots[slot] != 0 {
            let entry = &self.entries[self.slots[slot] as usize - 1];
            if entry.hash == hash && entry.wildcard == wildcard && entry.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(entry.site);
            }
            slot = (slot + 1) & mask;
        }
        None
    }
}

/// `host` without its port and final dot.
fn host_name(host: &[u8]) -> &[u8] {
    if host.first() == Some(&b'[') {
        return match memchr::memchr(b']', host) {
            Some(end) => &host[..=end],
            None => host,
        };
    }
    let name = match memchr::memchr(b':', host) {
        Some(colon) => &host[..colon],
        None => host,
    };
    name.strip_suffix(b".").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(written: &str) -> HostPattern {
        written.parse().expect("a pattern")
    }

    fn table(hosts: &[&str], default: Option<u32>) -> HostTable {
        HostTable::new(hosts.iter().map(|host| pattern(host)).zip(0..), default)
    }

    #[test]
    fn a_full_host_wins_over_wildcards_and_the_longest_wildcard_over_others() {
        let table = table(&["*.example.org", "*.docs.example.org", "a.docs.example.org", "example.org"], Some(9));
        assert_eq!(table.site(b"a.docs.example.org"), Some(2));
        assert_eq!(table.site(b"b.docs.example.org"), Some(1));
        assert_eq!(table.site(b"x.y.docs.example.org"), Some(1));
        assert_eq!(table.site(b"docs.example.org"), Some(0));
        assert_eq!(table.site(b"example.org"), Some(3));
        assert_eq!(table.site(b"example.com"), Some(9));
        assert_eq!(table.site(b".example.org"), Some(9), "an empty label is no host below it");
        assert_eq!(table.site(b"notexample.org"), Some(9));
    }

    #[test]
    fn case_port_and_final_dot_do_not_count() {
        let table = table(&["WWW.Example.org.", "[2001:DB8::1]", "192.0.2.1"], None);
        for host in
            ["www.example.org", "WWW.EXAMPLE.ORG:8080", "www.example.org.", "www.example.org.:80", "www.example.org:"]
        {
            assert_eq!(table.site(host.as_bytes()), Some(0), "{host}");
        }
        assert_eq!(table.site(b"[2001:db8::1]:443"), Some(1));
        assert_eq!(table.site(b"[2001:db8::1]"), Some(1));
        assert_eq!(table.site(b"192.0.2.1:80"), Some(2));
        for host in ["", ":80", ".", "[", "[2001:db8::1", "www.example.org..", "www.example.org/"] {
            assert_eq!(table.site(host.as_bytes()), None, "{host}");
        }
    }

    #[test]
    fn a_table_of_one_default_asks_nothing() {
        let table = table(&[], Some(7));
        assert_eq!(table.site(b"whatever"), Some(7));
        assert_eq!(HostTable::default().site(b"whatever"), None);
    }

    #[test]
    fn a_table_agrees_with_a_search_of_all_patterns() {
        let labels = ["a", "b", "ab", "example", "org"];
        let mut names = vec![String::new()];
        for _ in 0..4 {
            let longer = |name: &String| labels.map(|label| format!("{label}.{name}"));
            names = names.iter().flat_map(longer).chain(names.clone()).collect();
        }
        names.sort();
        names.dedup();
        let names: Vec<&str> =
            names.iter().map(|name| name.trim_end_matches('.')).filter(|name| !name.is_empty()).collect();
        let patterns: Vec<HostPattern> = (names.iter().step_by(3).map(|name| pattern(name)))
            .chain(names.iter().step_by(7).map(|name| pattern(&format!("*.{name}"))))
            .collect();
        let table = HostTable::new(patterns.iter().cloned().zip(0..), None);
        for name in names {
            let host = pattern(name);
            let covering = patterns.iter().zip(0..).filter(|(pattern, _)| pattern.covers(&host));
            let expected =
                covering.max_by_key(|(pattern, _)| (!pattern.wildcard, pattern.name.len())).map(|(_, site)| site);
            assert_eq!(table.site(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn the_first_of_equals_counts() {
        assert_eq!(table(&["a.example", "A.example"], None).site(b"a.example"), Some(0));
    }

    #[test]
    fn long_hosts_are_no_ones() {
        let table = table(&["*.example.org"], Some(1));
        let long = format!("{}example.org", "a.".repeat(200));
        assert_eq!(table.site(long.as_bytes()), Some(1));
        assert_eq!(table.site(&[b'.'; 8192]), Some(1));
    }

    #[test]
    fn lookups_touch_few_slots() {
        let hosts = (0..10_000).map(|number| (pattern(&format!("site{number}.example.org")), number));
        let table = HostTable::new(hosts, None);
        let mask = table.slots.len() - 1;
        let distance = |(slot, index): (usize, &u32)| {
            let entry = &table.entries[*index as usize - 1];
            slot.wrapping_sub(slot_of(entry.hash, entry.wildcard)) & mask
        };
        let distances: Vec<usize> =
            table.slots.iter().enumerate().filter(|(_, index)| **index > 0).map(distance).collect();
        assert_eq!(distances.len(), 10_000);
        assert!(distances.iter().sum::<usize>() < 10_000, "one more than the first on average at most");
        assert!(distances.iter().max() < Some(&40));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        use HostPatternError::*;
        let cases = [
            ("*", Everything),
            ("a.example:80", Port),
            ("[::1]:80", Port),
            ("a.*.example", Wildcard),
            ("*a.example", Wildcard),
            ("*.*.example", Wildcard),
            ("a b", Character(' ')),
            ("a/b", Character('/')),
            ("", Length),
            ("*.", Length),
            (".", Length),
            ("a..b", Length),
            ("[::1", Length),
            ("[::1]x", Length),
        ];
        for (written, error) in cases {
            assert_eq!(written.parse::<HostPattern>(), Err(error), "{written}");
        }
        assert_eq!(pattern("*.A.example.").to_string(), "*.a.example");
    }
}
