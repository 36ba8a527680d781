//! Which clients are taken for one: those of one network, as nobody has only a single address. Decides nothing else.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What of an IPv4 address is one client: /24.
const V4_BITS: u32 = 24;
/// What of an IPv6 address is one client: /56, what a household is given.
const V6_BITS: u32 = 56;

/// The part of a client's address that is taken for one client. An IPv4 address is the same when it is written as IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientPrefix {
    bits: u64,
    is_v4: bool,
}

impl ClientPrefix {
    /// A client's.
    #[must_use]
    pub fn of(client: IpAddr) -> ClientPrefix {
        match client.to_canonical() {
            IpAddr::V4(v4) => ClientPrefix { bits: u64::from(v4.to_bits() >> (32 - V4_BITS)), is_v4: true },
            IpAddr::V6(v6) => ClientPrefix { bits: (v6.to_bits() >> (128 - V6_BITS)) as u64, is_v4: false },
        }
    }

    /// Its first address, and how many bits of it all of its addresses have.
    #[must_use]
    pub fn network(self) -> (IpAddr, u32) {
        match self.is_v4 {
            true => (Ipv4Addr::from_bits((self.bits as u32) << (32 - V4_BITS)).into(), V4_BITS),
            false => (Ipv6Addr::from_bits(u128::from(self.bits) << (128 - V6_BITS)).into(), V6_BITS),
        }
    }

    /// Whether it's one of IPv4 addresses.
    #[must_use]
    pub fn is_v4(self) -> bool {
        self.is_v4
    }
}

impl fmt::Display for ClientPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, bits) = self.network();
        write!(f, "{address}/{bits}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_client_and_are_written_as_their_network() {
        let prefix = |text: &str| ClientPrefix::of(text.parse().unwrap());
        assert_eq!(prefix("198.18.0.1"), prefix("::ffff:198.18.0.254"));
        assert_ne!(prefix("198.18.0.1"), prefix("198.18.1.1"));
        assert_eq!(prefix("2001:db8:1:2ff::1"), prefix("2001:db8:1:201::"));
        assert_ne!(prefix("2001:db8:1:2ff::1"), prefix("2001:db8:1:300::1"));
        let texts = ["198.18.0.7", "2001:db8:1:2ff::1"].map(|text| prefix(text).to_string());
        assert_eq!(texts, ["198.18.0.0/24", "2001:db8:1:200::/56"]);
    }
}
