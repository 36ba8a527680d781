//! Meta-variables (RFC 3875 section 4.1): what a program is told of a request.

use std::net::{IpAddr, SocketAddr};

use crate::http::client::{TOLD, Teller};
use crate::http::{Request, TargetForm, Version, as_uri};

/// What of the server's side a request meets.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The decoded path up to where the program's part begins.
    pub script_name: &'a [u8],
    /// The rest of the decoded path.
    pub path_info: &'a [u8],
    /// The program's file; a FastCGI responder's script.
    pub script_file: &'a [u8],
    /// The site's directory.
    pub document_root: &'a [u8],
    /// The site's name, for a request that has no host.
    pub server_name: &'a [u8],
    /// The address that the client connected to, if its connection still knows.
    pub own: Option<IpAddr>,
    /// The port that it connected to.
    pub port: u16,
    /// The client, if its connection still knows; port 0 where only its address is known.
    pub peer: Option<SocketAddr>,
    /// Whose word counts of where the request comes from: else the program isn't told what the request says of that.
    pub teller: Teller,
    /// The protocol that the client speaks.
    pub scheme: &'a [u8],
    /// Bytes of the request's content, where there is one and that is known.
    pub content_length: Option<u64>,
    /// What the access logs of all servers call the request.
    pub request_id: &'a str,
}

/// Fields that have a variable of their own, or that concern the connection. `Proxy` would become a variable that many programs take for
/// the proxy they are to use (CVE-2016-5385).
const NOT_TOLD: [&[u8]; 11] = [
    b"connection",
    b"content-length",
    b"content-type",
    b"expect",
    b"keep-alive",
    b"proxy",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"x-request-id",
];

/// Calls `tell` with the name and the value of each variable. None has a NUL; no name comes twice.
pub fn variables(request: &Request<'_>, place: &Place<'_>, mut tell: impl FnMut(&[u8], &[u8])) {
    tell(b"GATEWAY_INTERFACE", b"CGI/1.1");
    tell(b"SERVER_SOFTWARE", b"leat");
    tell(b"SERVER_PROTOCOL", if request.version == Version::Http10 { b"HTTP/1.0" } else { b"HTTP/1.1" });
    let host = request.host.filter(|host| !host.is_empty()).unwrap_or(place.server_name);
    tell(b"SERVER_NAME", host);
    if let Some(own) = place.own {
        tell(b"SERVER_ADDR", own.to_string().as_bytes());
    }
    tell(b"SERVER_PORT", request.port.unwrap_or(place.port).to_string().as_bytes());
    tell(b"REQUEST_METHOD", request.method_name);
    let query = as_uri(request.target.query.unwrap_or_default());
    tell(b"QUERY_STRING", &query);
    let mut uri = as_uri(request.target.path).into_owned();
    if request.target.query.is_some() {
        uri.push(b'?');
        uri.extend_from_slice(&query);
    }
    tell(b"REQUEST_URI", &uri);
    tell(b"SCRIPT_NAME", place.script_name);
    tell(b"SCRIPT_FILENAME", place.script_file);
    tell(b"DOCUMENT_ROOT", place.document_root);
    // php-cgi runs nothing without it, lest it be called directly.
    tell(b"REDIRECT_STATUS", b"200");
    if !place.path_info.is_empty() {
        tell(b"PATH_INFO", place.path_info);
        tell(b"PATH_TRANSLATED", &[place.document_root, place.path_info].concat());
    }
    if let Some(peer) = place.peer {
        tell(b"REMOTE_ADDR", peer.ip().to_string().as_bytes());
        if peer.port() != 0 {
            tell(b"REMOTE_PORT", peer.port().to_string().as_bytes());
        }
    }
    tell(b"REQUEST_SCHEME", place.scheme);
    if place.scheme == b"https" {
        tell(b"HTTPS", b"on");
    }
    if let Some(length) = place.content_length {
        tell(b"CONTENT_LENGTH", length.to_string().as_bytes());
    }
    if let Some(kind) = request.headers.get(b"content-type") {
        tell(b"CONTENT_TYPE", kind);
    }
    // As other servers get it; what the client may have called it says nothing here.
    tell(b"HTTP_X_REQUEST_ID", place.request_id.as_bytes());
    let is_absolute = request.target.form == TargetForm::Absolute;
    if is_absolute {
        // The Host field says nothing beside it (RFC 9112 section 3.2.2): the site was found by this one.
        let port = request.port.map_or(String::new(), |port| format!(":{port}"));
        tell(b"HTTP_HOST", &[host, port.as_bytes()].concat());
    }
    tell_fields(request, place.teller, is_absolute, &mut tell);
}

/// Every other field, as `HTTP_NAME`. A name with an underscore is left out: it would look like another one with a hyphen. `has_host`:
/// the host has been told already.
fn tell_fields(request: &Request<'_>, teller: Teller, has_host: bool, tell: &mut impl FnMut(&[u8], &[u8])) {
    let is_told = |name: &[u8]| {
        let is_plain = name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let is_in = |fields: &[&[u8]]| fields.iter().any(|known| name.eq_ignore_ascii_case(known));
        let is_believed = match teller {
            Teller::Cluster => true,
            // What a balancer says there isn't looked at.
            Teller::Balancer(_) => !name.eq_ignore_ascii_case(b"forwarded"),
            Teller::Nobody => !is_in(&TOLD),
        };
        let is_known = is_in(&NOT_TOLD) || has_host && name.eq_ignore_ascii_case(b"host");
        is_plain && is_believed && !is_known
    };
    let mut joined: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (name, value) in request.headers.iter().filter(|(name, _)| is_told(name)) {
        let upper = name.iter().map(|&byte| if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() });
        let variable: Vec<u8> = b"HTTP_".iter().copied().chain(upper).collect();
        match joined.iter_mut().find(|(known, _)| *known == variable) {
            Some((_, before)) => {
                // A list of cookies has its own separator (RFC 6265 section 4.2.1).
                before.extend_from_slice(if variable == b"HTTP_COOKIE" { b"; " } else { b", " });
                before.extend_from_slice(value);
            }
            None => joined.push((variable, value.to_vec())),
        }
    }
    for (name, value) in &joined {
        tell(name, value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::http::BodyLength;

    fn told(head: &str) -> BTreeMap<String, String> {
        told_by(head, Teller::Nobody)
    }

    fn told_by(head: &str, teller: Teller) -> BTreeMap<String, String> {
        let request = Request::read_again(head.as_bytes()).expect("a request");
        let place = Place {
            script_name: b"/app",
            path_info: b"/a b",
            script_file: b"/srv/app.cgi",
            document_root: b"/srv/www",
            server_name: b"site",
            own: Some([192, 0, 2, 1].into()),
            port: 8080,
            peer: Some(SocketAddr::from(([192, 0, 2, 7], 4321))),
            teller,
            scheme: b"https",
            request_id: "0-1f-2",
            content_length: match request.body {
                BodyLength::Length(length) => Some(length),
                BodyLength::None | BodyLength::Chunked => None,
            },
        };
        let mut all = BTreeMap::new();
        variables(&request, &place, |name, value| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(all.insert(text(name), text(value)), None, "twice");
        });
        all
    }

    #[test]
    fn a_request_is_called_what_this_server_calls_it() {
        let told = told("GET /app HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\n\r\n");
        assert_eq!(told["HTTP_X_REQUEST_ID"], "0-1f-2");
    }

    #[test]
    fn what_anybody_says_of_where_it_comes_from_isnt_told() {
        let head = "GET /app HTTP/1.1\r\nHost: x\r\nForwarded: proto=https\r\nX-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\n\r\n";
        let names = |teller| {
            let told = told_by(head, teller);
            ["HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO"].map(|name| told.contains_key(name))
        };
        assert_eq!(names(Teller::Nobody), [false; 3]);
        assert_eq!(names(Teller::Balancer([10, 0, 0, 1].into())), [false, true, true], "it may be the client's");
        assert_eq!(names(Teller::Cluster), [true; 3]);
    }

    #[test]
    fn a_request_is_told_in_full() {
        let told = told(
            "POST /app/a%20b?x=1&y HTTP/1.1\r\nHost: Example.org:81\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\n",
        );
        let wanted = [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_NAME", "Example.org"),
            ("SERVER_ADDR", "192.0.2.1"),
            ("SERVER_PORT", "81"),
            ("REQUEST_METHOD", "POST"),
            ("QUERY_STRING", "x=1&y"),
            ("REQUEST_URI", "/app/a%20b?x=1&y"),
            ("SCRIPT_NAME", "/app"),
            ("SCRIPT_FILENAME", "/srv/app.cgi"),
            ("PATH_INFO", "/a b"),
            ("PATH_TRANSLATED", "/srv/www/a b"),
            ("REMOTE_ADDR", "192.0.2.7"),
            ("REMOTE_PORT", "4321"),
            ("REQUEST_SCHEME", "https"),
            ("HTTPS", "on"),
            ("CONTENT_LENGTH", "5"),
            ("CONTENT_TYPE", "text/plain"),
            ("HTTP_HOST", "Example.org:81"),
        ];
        for (name, value) in wanted {
            assert_eq!(told.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!told.contains_key("HTTP_CONTENT_TYPE") && !told.contains_key("HTTP_CONTENT_LENGTH"));
    }

    #[test]
    fn bytes_that_came_raw_are_told_encoded() {
        let told = told("GET /app/é?q=é HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((told["QUERY_STRING"].as_str(), told["REQUEST_URI"].as_str()), ("q=%C3%A9", "/app/%C3%A9?q=%C3%A9"));
    }

    #[test]
    fn the_host_of_an_absolute_target_is_the_only_one() {
        for (target, host) in [("http://a.example/app", "a.example"), ("http://a.example:81/app", "a.example:81")] {
            let told = told(&format!("GET {target} HTTP/1.1\r\nHost: evil.example\r\n\r\n"));
            assert_eq!((told["SERVER_NAME"].as_str(), told["HTTP_HOST"].as_str()), ("a.example", host));
        }
    }

    #[test]
    fn a_bare_request_has_the_servers_own_names() {
        let told = told("GET /app HTTP/1.0\r\n\r\n");
        assert_eq!((told["SERVER_NAME"].as_str(), told["SERVER_PORT"].as_str()), ("site", "8080"));
        assert_eq!((told["SERVER_PROTOCOL"].as_str(), told["QUERY_STRING"].as_str()), ("HTTP/1.0", ""));
        assert!(!told.contains_key("CONTENT_LENGTH") && !told.contains_key("HTTP_HOST"));
    }

    #[test]
    fn fields_that_could_mislead_are_left_out() {
        let told = told(
            "GET /app HTTP/1.1\r\nHost: a\r\nProxy: evil\r\nX_Real_IP: 1\r\nX-Real-IP: 2\r\nConnection: close\r\nTE: x\r\n\
             Cookie: a=1\r\nCookie: b=2\r\nAccept: x\r\naccept: y\r\n\r\n",
        );
        assert!(
            !told.contains_key("HTTP_PROXY") && !told.contains_key("HTTP_CONNECTION") && !told.contains_key("HTTP_TE")
        );
        assert_eq!(told["HTTP_X_REAL_IP"], "2");
        assert_eq!((told["HTTP_COOKIE"].as_str(), told["HTTP_ACCEPT"].as_str()), ("a=1; b=2", "x, y"));
    }
}
