//! Addresses to listen on.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::{Text, Wrong};

/// An IP address and a port.
pub(in crate::config) const ADDRESS: Text<SocketAddr> =
    Text { description: "address and port", example: "127.0.0.1:8080", parse: parse_address };

/// The same, or nothing.
pub(in crate::config) const OPTIONAL_ADDRESS: Text<Option<SocketAddr>> =
    Text { description: "address and port, or `\"\"`", example: "127.0.0.1:9180", parse: parse_optional };

/// An IP address alone.
pub(in crate::config) const IP_ADDRESS: Text<IpAddr> =
    Text { description: "IP address", example: "192.0.2.11", parse: parse_ip };

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

fn parse_optional(written: &str, base: &Path) -> Result<Option<SocketAddr>, Wrong> {
    if written.is_empty() { Ok(None) } else { parse_address(written, base).map(Some) }
}

fn parse_address(written: &str, _: &Path) -> Result<SocketAddr, Wrong> {
    if let Ok(address) = written.parse() {
        return Ok(address);
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
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
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
