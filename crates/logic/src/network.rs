//! Networks of addresses: which addresses are of one. Decides nothing else.

use std::net::IpAddr;

/// A network, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// How many bits of it all have.
    prefix: u8,
}

impl Network {
    /// All addresses that begin with the first `prefix` bits of `address`. `None` if those aren't all that it has, or there aren't so many.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Network> {
        // IPv4 in IPv6 is IPv4.
        let mapped = |address| match address {
            IpAddr::V6(address) => address.to_ipv4_mapped().map(IpAddr::V4).zip(prefix.checked_sub(96)),
            IpAddr::V4(_) => None,
        };
        let (address, prefix) = mapped(address).unwrap_or((address, prefix));
        // What isn't the network's part must be zero.
        let is_first = match address {
            IpAddr::V4(address) => prefix <= 32 && address.to_bits().checked_shl(prefix.into()).unwrap_or(0) == 0,
            IpAddr::V6(address) => prefix <= 128 && address.to_bits().checked_shl(prefix.into()).unwrap_or(0) == 0,
        };
        is_first.then_some(Network { address, prefix })
    }

    /// How many bits all its addresses have in common.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether an address is of it. IPv4 in IPv6 is IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let address = address.to_canonical();
        let differ = bits(address) ^ bits(self.address);
        address.is_ipv4() == self.address.is_ipv4() && differ.leading_zeros() >= u32::from(self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_in_ipv6_is_ipv4() {
        let network = |text: &str, prefix| Network::new(text.parse().expect("an address"), prefix);
        let mapped = network("::ffff:10.0.0.0", 104).expect("a network");
        assert_eq!(Some(mapped), network("10.0.0.0", 8));
        assert!(mapped.contains([10, 1, 2, 3].into()) && !mapped.contains([11, 0, 0, 1].into()));
        assert_eq!(network("::ffff:10.0.0.1", 104), None);
    }
}
