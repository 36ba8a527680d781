//! What supervisor, engine and workers call a listening address: as the configuration has it, so that "any free port" stays one name whatever
//! port it became, and that of the admin pages isn't taken for a site's.

use std::fmt;
use std::net::{AddrParseError, SocketAddr};
use std::str::FromStr;

/// See the module. Written as the address, with `admin@` before that of the admin pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerName {
    /// As configured: port 0 stays port 0.
    pub address: SocketAddr,
    /// Whether the admin pages are there, and no site.
    pub is_admin: bool,
}

impl ListenerName {
    /// Where sites listen.
    #[must_use]
    pub fn site(address: SocketAddr) -> ListenerName {
        ListenerName { address, is_admin: false }
    }

    /// Where the admin pages are.
    #[must_use]
    pub fn admin(address: SocketAddr) -> ListenerName {
        ListenerName { address, is_admin: true }
    }
}

impl fmt::Display for ListenerName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_admin { PREFIX } else { "" };
        write!(formatter, "{prefix}{}", self.address)
    }
}

impl FromStr for ListenerName {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<ListenerName, AddrParseError> {
        let address = text.strip_prefix(PREFIX);
        Ok(ListenerName { address: address.unwrap_or(text).parse()?, is_admin: address.is_some() })
    }
}

const PREFIX: &str = "admin@";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for text in ["127.0.0.1:0", "admin@127.0.0.1:0", "[::1]:80"] {
            assert_eq!(text.parse::<ListenerName>().unwrap().to_string(), text);
        }
        assert!("admin@".parse::<ListenerName>().is_err());
    }
}
