//! What balancers in front that speak HTTP say of where a request comes from (`X-Forwarded-For` and its kin). Decides what of it counts, given who is
//! believed; who that is, the configuration says.

use std::net::{IpAddr, SocketAddr};

use super::request::Request;

/// Who asks, where whoever has sent the request tells it: addresses are added at the list's end, so the last that nobody believes in is the client's.
/// What isn't an address ends the list: then it's the last before it, or the sender.
#[must_use]
pub fn client(request: &Request<'_>, sender: IpAddr, is_believed: impl Fn(IpAddr) -> bool) -> IpAddr {
    let mut lines: Vec<&[u8]> = request.headers.all(b"x-forwarded-for").collect();
    let mut nearest = sender;
    while let Some(line) = lines.pop() {
        for told in line.rsplit(|&byte| byte == b',') {
            let Some(address) = address(told.trim_ascii()) else { return nearest };
            nearest = address;
            if !is_believed(address) {
                return nearest;
            }
        }
    }
    nearest
}

/// Some add the port, and brackets to IPv6.
fn address(told: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(told).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

/// The protocol that a balancer says it was asked by, in front of leat: a word, in lower case where it's one of the two.
#[must_use]
pub fn scheme<'i>(request: &Request<'i>) -> Option<&'i [u8]> {
    let told = request.headers.get(b"x-forwarded-proto")?;
    let known = [&b"http"[..], b"https"].into_iter().find(|known| told.eq_ignore_ascii_case(known));
    let is_word = !told.is_empty() && told.iter().all(u8::is_ascii_alphanumeric);
    known.or(is_word.then_some(told))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &str) -> String {
        format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n")
    }

    #[test]
    fn the_last_that_nobody_believes_in_is_the_client() {
        let of = |fields: &str| {
            let head = read(fields);
            let request = Request::read_again(head.as_bytes()).unwrap();
            let is_believed = |address: IpAddr| address.to_string().starts_with("10.");
            client(&request, "10.0.0.1".parse().unwrap(), is_believed).to_string()
        };
        for (fields, client) in [
            ("", "10.0.0.1"),
            ("X-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"),
            ("X-Forwarded-For: 6.6.6.6, 192.0.2.7, 10.0.0.2\r\n", "192.0.2.7"),
            ("X-Forwarded-For: 6.6.6.6\r\nX-Other: 1\r\nx-forwarded-for: 192.0.2.7:4711 ,10.9.9.9\r\n", "192.0.2.7"),
            ("X-Forwarded-For: [2001:db8::7]:80\r\n", "2001:db8::7"),
            ("X-Forwarded-For: [2001:db8::7]\r\n", "2001:db8::7"),
            ("X-Forwarded-For: ::ffff:192.0.2.7\r\n", "192.0.2.7"),
            ("X-Forwarded-For: 10.0.0.3, 10.0.0.2\r\n", "10.0.0.3"),
            ("X-Forwarded-For: 192.0.2.7, unknown, 10.0.0.2\r\n", "10.0.0.2"),
            ("X-Forwarded-For: ,\r\n", "10.0.0.1"),
        ] {
            assert_eq!(of(fields), client, "{fields}");
        }
    }

    #[test]
    fn a_scheme_is_a_word() {
        for (told, expected) in
            [("HTTPS", Some("https")), ("http", Some("http")), ("wss", Some("wss")), ("a b", None), ("", None)]
        {
            let head = read(&format!("X-Forwarded-Proto: {told}\r\n"));
            let request = Request::read_again(head.as_bytes()).unwrap();
            assert_eq!(scheme(&request), expected.map(str::as_bytes), "{told}");
        }
        assert_eq!(scheme(&Request::default()), None);
    }
}
