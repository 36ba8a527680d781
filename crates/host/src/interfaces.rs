//! This machine's network interfaces: which there are, and which one leads where. Changes nothing.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ptr;

use crate::steering::is_tap_name;

/// An address of an interface, or an interface without one.
struct Entry {
    name: String,
    /// It can carry packets, and not only to this machine itself.
    is_outward: bool,
    address: Option<IpAddr>,
}

/// Interfaces that lead somewhere else and are up, each once; not those by which packets wait, of this process or another's.
///
/// # Errors
/// Those of getifaddrs(3).
pub fn outward() -> io::Result<Vec<String>> {
    let mut names: Vec<String> =
        entries()?.into_iter().filter(|entry| entry.is_outward).map(|entry| entry.name).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// The interface by which packets to `address` leave.
///
/// # Errors
/// There is no way to it, or its interface has no address.
pub fn towards(address: IpAddr) -> io::Result<String> {
    let own = own_address_towards(address)?;
    let found = entries()?.into_iter().find(|entry| entry.is_outward && entry.address == Some(own));
    let missing = || io::Error::other(format!("no interface has the address {own}, from which {address} is reached"));
    found.map(|entry| entry.name).ok_or_else(missing)
}

/// The address of this machine's own that packets to `address` have.
///
/// # Errors
/// There is no way to it.
pub fn own_address_towards(address: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Connecting sends nothing: it only has the kernel look up the way.
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(SocketAddr::new(address, 9))?;
    Ok(probe.local_addr()?.ip())
}

fn entries() -> io::Result<Vec<Entry>> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: on success the kernel's list is put in `list`; it's freed below, after the last use.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut entries = Vec::new();
    let mut at = list;
    // SAFETY: `at` is null or a member of the list, which lives until freeifaddrs.
    while let Some(entry) = unsafe { at.as_ref() } {
        // SAFETY: a name is a string of C, of the list's life.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        let has = |flag: i32| entry.ifa_flags & flag.cast_unsigned() != 0;
        let is_outward = has(libc::IFF_UP) && !has(libc::IFF_LOOPBACK) && !is_tap_name(&name);
        // SAFETY: `ifa_addr` is null or an address of the list's life.
        entries.push(Entry { name, is_outward, address: unsafe { ip(entry.ifa_addr) } });
        at = entry.ifa_next;
    }
    // SAFETY: from getifaddrs, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(entries)
}

/// # Safety
/// `address` is null, or points to an address as long as its family says.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as promised.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        // SAFETY: the family says that it's a sockaddr_in; it needn't be aligned as one.
        libc::AF_INET => unsafe {
            let address = address.cast::<libc::sockaddr_in>().read_unaligned();
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        },
        // SAFETY: as above, for sockaddr_in6.
        libc::AF_INET6 => unsafe {
            let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_there_and_leads_nowhere_else() {
        let all = entries().expect("interfaces can be listed");
        let loopback = all.iter().find(|entry| entry.address == Some(Ipv4Addr::LOCALHOST.into()));
        assert!(loopback.is_some_and(|entry| !entry.is_outward));
        assert!(outward().expect("a list").iter().all(|name| name != "lo"));
        assert!(towards(Ipv4Addr::LOCALHOST.into()).is_err());
    }
}
