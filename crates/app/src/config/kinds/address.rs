//! Addresses to listen on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use leat_logic::network::Network;

use super::{Text, Wrong};

/// An IP address and a port.
pub(in crate::config) const ADDRESS: Text<SocketAddr> =
    Text { description: "address and port", example: "127.0.0.1:8080", parse: parse_address };

/// The same, or nothing.
pub(in crate::config) const OPTIONAL_ADDRESS: Text<Option<SocketAddr>> =
    Text { description: "address and port, or `\"\"`", example: "127.0.0.1:9180", parse: parse_optional };

/// An IP address alone.
pub(in crate::config) const IP_ADDRESS: Text<IpAddr> =
    Text { description: "IP address", example: "192.0.2.11", parse: parse_machine };

/// A network.
pub(in crate::config) const NETWORK: Text<Network> =
    Text { description: "network or IP address", example: "10.0.0.0/8", parse: parse_network };

fn parse_network(written: &str, base: &Path) -> Result<Network, Wrong> {
    let (address, prefix) =
        written.split_once('/').map_or((written, None), |(address, prefix)| (address, Some(prefix)));
    let address = parse_ip(address, base)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let Some(prefix) = prefix.map_or(Some(most), |prefix| prefix.parse().ok().filter(|&prefix| prefix <= most)) else {
        return Wrong::new("has no such prefix", format!("write a number from 0 to {most} behind the slash"));
    };
    match Network::new(address, prefix) {
        Some(network) => Ok(network),
        None => {
            Wrong::new("is an address within a network", "write the network's first address, or leave out the prefix")
        }
    }
}

fn parse_ip(written: &str, _: &Path) -> Result<IpAddr, Wrong> {
    if let Ok(ip) = written.parse() {
        return Ok(ip);
    }
    let help = match written.parse::<SocketAddr>() {
        Ok(address) => format!("write \"{}\"", address.ip()),
        Err(_) => "write an address as in \"192.0.2.11\" or \"2001:db8::11\": names aren't looked up".to_owned(),
    };
    Wrong::new("isn't an IP address", help)
}

fn parse_machine(written: &str, base: &Path) -> Result<IpAddr, Wrong> {
    let ip = parse_ip(written, base)?;
    let help = "write the machine's own address, as in \"192.0.2.11\"";
    match ip.to_canonical() {
        plain if plain != ip => Wrong::new("is an IPv4 address in IPv6", format!("write \"{plain}\"")),
        _ if ip.is_unspecified() => Wrong::new("is every address", help),
        _ if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) => {
            Wrong::new("is no single machine's address", help)
        }
        _ => Ok(ip),
    }
}

fn parse_optional(written: &str, base: &Path) -> Result<Option<SocketAddr>, Wrong> {
    if written.is_empty() { Ok(None) } else { parse_address(written, base).map(Some) }
}

/// An address and port as somebody writes them on a command line.
///
/// # Errors
/// What is wrong with it, and its cure.
pub fn address_argument(written: &str) -> Result<SocketAddr, String> {
    parse_address(written, Path::new("")).map_err(|wrong| format!("it {}; {}", wrong.what, wrong.help))
}

fn parse_address(written: &str, _: &Path) -> Result<SocketAddr, Wrong> {
    if let Ok(address) = written.parse::<SocketAddr>() {
        return match address.ip().to_canonical() {
            ip if ip == address.ip() => Ok(address),
            // No socket of IPv6 alone can have it.
            ip => {
                Wrong::new("is an IPv4 address in IPv6", format!("write \"{}\"", SocketAddr::new(ip, address.port())))
            }
        };
    }
    if let Some((scheme, rest)) = written.split_once("://") {
        return Wrong::new("isn't an address with a port", without_scheme(scheme, rest));
    }
    if let Some((ip, port)) = written.rsplit_once(':')
        && let (Ok(ip), Ok(port), Ok(whole)) =
            (ip.parse::<Ipv6Addr>(), port.parse::<u16>(), written.parse::<Ipv6Addr>())
    {
        let help = format!("write \"[{ip}]:{port}\", or \"[{whole}]:80\" if all of it is the address");
        return Wrong::new("has no brackets around its address", help);
    }
    if let Ok(ip) = written.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Wrong::new("has no port", format!("write \"{}\"", SocketAddr::new(ip, 80)));
    }
    if let Ok(port) = written.trim_start_matches(['*', ':']).parse::<u16>() {
        let help = format!("write \"0.0.0.0:{port}\" for IPv4, \"[::]:{port}\" for IPv6, or both");
        return Wrong::new("has no address", help);
    }
    let Some((host, port)) = written.rsplit_once(':') else {
        return Wrong::new("isn't an address with a port", "write it as in \"127.0.0.1:8080\" or \"[::1]:8080\"");
    };
    if port.parse::<u16>().is_err() {
        return Wrong::new(format!("has the port \"{port}\""), "a port is a number from 0 (any free one) to 65535");
    }
    if host.parse::<Ipv6Addr>().is_ok() {
        return Wrong::new("isn't an address with a port", format!("write brackets: \"[{host}]:{port}\""));
    }
    let help = if host == "localhost" {
        format!("write \"127.0.0.1:{port}\" or \"[::1]:{port}\"")
    } else {
        format!(
            "write the IP address in place of \"{host}\": names aren't looked up; \"0.0.0.0:{port}\" is every IPv4 address"
        )
    };
    Wrong::new("isn't an address with a port", help)
}

/// The cure of an address that is written as a URL.
fn without_scheme(scheme: &str, rest: &str) -> String {
    if scheme.eq_ignore_ascii_case("https") {
        return "leat speaks no TLS: write an address where HTTP is spoken without it, as in \"127.0.0.1:8080\""
            .to_owned();
    }
    let address = &rest[..rest.find('/').unwrap_or(rest.len())];
    let path = &rest[address.len()..];
    let and_path = if path.trim_matches('/').is_empty() { String::new() } else { format!(" and \"{path}\"") };
    let left_out = format!("leave out \"{scheme}://\"{and_path}");
    match parse_address(address, Path::new("")) {
        Ok(address) => format!("{left_out}: write \"{address}\""),
        Err(Wrong { help, .. }) => format!("{left_out}, and {help}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_what_begins_alike() {
        let network = |text: &str| parse_network(text, Path::new(".")).ok();
        let has = |text: &str, address: &str| {
            network(text).expect("a network").contains(address.parse().expect("an address"))
        };
        assert!(
            has("10.0.0.0/8", "10.255.0.1") && has("10.0.0.0/8", "::ffff:10.1.2.3") && !has("10.0.0.0/8", "11.0.0.1")
        );
        assert!(
            has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1") && has("::/0", "::1") && !has("::/0", "1.2.3.4")
        );
        assert!(has("192.0.2.7", "192.0.2.7") && !has("192.0.2.7", "192.0.2.6"));
        assert!(has("2001:db8::/32", "2001:db8:ffff::1") && !has("2001:db8::/32", "2001:db9::1"));
        assert!(
            ["10.0.0.1/8", "10.0.0.0/33", "::1/64", "::/129", "x/8", "10.0.0.0/"]
                .iter()
                .all(|text| network(text).is_none())
        );
    }
}
