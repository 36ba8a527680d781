//! The head of a request that is passed on.

use std::net::{IpAddr, SocketAddr};

use super::super::body::BodyLength;
use super::super::field::members;
use super::super::forwarded::scheme;
use super::super::request::{Request, Version};
use super::super::target::without_dots;
use super::super::{Method, TargetForm, as_uri, encode_path, rest_as_sent};
use super::HopByHop;

/// What the next server is told of where a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Forward<'a> {
    /// The client.
    pub client: Option<SocketAddr>,
    /// Names this request in every server's log.
    pub request_id: &'a str,
    /// How many bytes of the decoded path the next server doesn't know of, and that path; `None`: it's told the path as it came, but without dot segments.
    pub without: Option<(usize, &'a [u8])>,
    /// Who has said so already.
    pub teller: Teller,
    /// The host that is asked for where the request names none, as HTTP/1.0 may: some servers refuse an empty one. `None` leaves it empty.
    pub default_host: Option<&'a str>,
    /// No other request follows on the connection.
    pub is_last: bool,
    /// Not all is asked for: another server has begun to answer.
    pub rest: Option<Rest<'a>>,
}

/// What is left of a reply, for who has the same content (RFC 9110 section 13.1.5).
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    /// The tag of all of it, with its quotes. It's a strong one.
    pub etag: &'a [u8],
    /// Bytes that have come.
    pub first: u64,
}

/// Whose word counts of where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teller {
    /// Nobody's: what the request says is the client's own.
    Nobody,
    /// A balancer's in front, at this address: it's added to the list.
    Balancer(IpAddr),
    /// A server's of this cluster, which has said all that is to be said.
    Cluster,
}

/// Whether a request may be sent once more when nobody knows what became of it (RFC 9110 section 9.2.2). One with a body can't: the body is gone.
#[must_use]
pub fn is_repeatable(method: Method, has_content: bool) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options) && !has_content
}

/// Whether a request asks that its connection become a WebSocket (RFC 6455 section 4.2.1). That is passed on; other protocols aren't, as h2c, in which requests
/// would follow that nobody here sees.
#[must_use]
pub fn asks_for_websocket(request: &Request<'_>) -> bool {
    request.method == Method::Get
        && request.version == Version::Http11
        && request.body == BodyLength::None
        && request.connection.upgrade
        && request.headers.all(b"upgrade").flat_map(members).any(|option| option.eq_ignore_ascii_case(b"websocket"))
}

/// Writes the head of `request` for the next server. The content is to follow in the same framing: chunked, or of the same length.
///
/// Fields of the client's connection are left out. `Forwarded` (RFC 7239) and `X-Forwarded-For`, `-Host` and `-Proto` say who asked for what, and how,
/// replacing what the client said of that itself: nobody between it and here is known to be trusted but balancers that the configuration names and the servers of this cluster.
pub fn write_head(out: &mut Vec<u8>, request: &Request<'_>, forward: &Forward<'_>) {
    let (mut prefix, mut below) = (Vec::new(), Vec::new());
    let path: &[u8] = match forward.without {
        _ if request.target.form == TargetForm::Asterisk => b"*",
        Some((known, path)) => {
            encode_path(path.get(..known).unwrap_or_default(), &mut prefix);
            below = rest_as_sent(request.target.path, path, known);
            &below
        }
        None => without_dots(request.target.path, &mut below),
    };
    put(out, &[request.method_name, b" ", &as_uri(if path.is_empty() { b"/" } else { path })]);
    if let Some(query) = request.target.query {
        put(out, &[b"?", &as_uri(query)]);
    }
    let port = request.port.map(|port| format!(":{port}")).unwrap_or_default();
    let named = request.host.filter(|host| !host.is_empty()).map(|host| [host, port.as_bytes()]);
    let host = named.unwrap_or([forward.default_host.unwrap_or_default().as_bytes(), b""]);
    put(out, &[b" HTTP/1.1\r\nHost: ", host[0], host[1], b"\r\n"]);
    let hop_by_hop = HopByHop::of(request.headers.all(b"connection"));
    for (name, value) in request.headers.iter() {
        let is_in = |fields: &[&[u8]]| fields.iter().any(|known| looks_like(name, known));
        let is_replaced = is_in(&REPLACED)
            || forward.teller != Teller::Cluster && is_in(&TOLD)
            || forward.rest.is_some() && is_in(&CONDITIONS);
        if !is_replaced && !hop_by_hop.has(name) {
            put(out, &[name, b": ", value, b"\r\n"]);
        }
    }
    if let Some(Rest { etag, first }) = forward.rest {
        put(out, &[b"Range: bytes=", first.to_string().as_bytes(), b"-\r\nIf-Range: ", etag, b"\r\n"]);
    }
    match request.body {
        // Some servers refuse those that usually have content and don't say how much (RFC 9110 section 8.6).
        BodyLength::None if matches!(request.method, Method::Post | Method::Put | Method::Patch) => {
            put(out, &[b"Content-Length: 0\r\n"]);
        }
        BodyLength::None => {}
        BodyLength::Length(length) => put(out, &[b"Content-Length: ", length.to_string().as_bytes(), b"\r\n"]),
        BodyLength::Chunked => put(out, &[b"Transfer-Encoding: chunked\r\n"]),
    }
    if asks_for_websocket(request) {
        put(out, &[WEBSOCKET]);
    } else if forward.is_last {
        put(out, &[b"Connection: close\r\n"]);
    }
    if forward.teller != Teller::Cluster {
        tell_client(out, request, forward, named);
    }
    if !prefix.is_empty() {
        put(out, &[b"X-Forwarded-Prefix: ", &prefix, b"\r\n"]);
    }
    if forward.teller != Teller::Cluster {
        put(out, &[b"X-Request-Id: ", forward.request_id.as_bytes(), b"\r\n"]);
    }
    put(out, &[b"Via: 1.1 leat\r\n\r\n"]);
}

/// Appends parts of a head.
fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Says who asked for what and how; `named`: the host and the port, with its colon, that the request names.
fn tell_client(out: &mut Vec<u8>, request: &Request<'_>, forward: &Forward<'_>, named: Option<[&[u8]; 2]>) {
    let told = |name: &[u8]| match forward.teller {
        Teller::Balancer(_) => request.headers.get(name).filter(|value| !value.is_empty()),
        Teller::Nobody | Teller::Cluster => None,
    };
    let scheme = told(b"x-forwarded-proto").and_then(|_| scheme(request)).unwrap_or(b"http");
    put(out, &[b"Forwarded: "]);
    let client = forward.client.map(|client| client.ip().to_canonical());
    if let Some(client) = client {
        let [open, close] = if client.is_ipv4() { ["", ""] } else { ["\"[", "]\""] };
        put(out, &[format!("for={open}{client}{close};").as_bytes()]);
    }
    // One hop: what a balancer says of the host goes with what it says of the client.
    let asked_host = told(b"x-forwarded-host").map(|told| [told, b""]).or(named);
    if let Some([name, port]) = asked_host.filter(|parts| parts.iter().all(|part| may_be_quoted(part))) {
        put(out, &[b"host=\"", name, port, b"\";"]);
    }
    put(out, &[b"proto=", scheme, b"\r\n"]);
    let sender = match forward.teller {
        Teller::Balancer(balancer) => Some(balancer.to_canonical()),
        Teller::Nobody | Teller::Cluster => client,
    };
    if let Some(sender) = sender {
        put(out, &[b"X-Forwarded-For: "]);
        if forward.teller != Teller::Nobody {
            request.headers.all(b"x-forwarded-for").for_each(|told| put(out, &[told, b", "]));
        }
        put(out, &[sender.to_string().as_bytes(), b"\r\n"]);
    }
    if let Some([name, port]) = asked_host {
        put(out, &[b"X-Forwarded-Host: ", name, port, b"\r\n"]);
    }
    put(out, &[b"X-Forwarded-Proto: ", scheme, b"\r\n"]);
}

/// What says that a connection is to become a WebSocket, or does.
pub const WEBSOCKET: &[u8] = b"Connection: Upgrade\r\nUpgrade: websocket\r\n";

/// Whether a string between quotes may be this as it is (RFC 9110 section 5.6.4).
fn may_be_quoted(value: &[u8]) -> bool {
    !value.iter().any(|byte| matches!(byte, b'"' | b'\\'))
}

/// Whether a program that is told of fields by variables takes `name` for `known`, of lower case: `X_Forwarded_For` becomes `HTTP_X_FORWARDED_FOR` too.
fn looks_like(name: &[u8], known: &[u8]) -> bool {
    let lower = |&byte: &u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == known.len() && name.iter().map(lower).eq(known.iter().copied())
}

/// Fields that are written anew, or that were acted upon here; and `Proxy`, which many programs take for the proxy they are to use (CVE-2016-5385).
const REPLACED: [&[u8]; 4] = [b"host", b"content-length", b"expect", b"proxy"];

/// Fields by which a server answers with less than all, or not at all.
const CONDITIONS: [&[u8]; 6] =
    [b"range", b"if-range", b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since"];

/// Fields that say where a request came from.
pub(crate) const TOLD: [&[u8]; 6] = [
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-prefix",
    b"x-forwarded-proto",
    b"x-request-id",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn written(head: &str) -> String {
        written_for(head, Teller::Nobody)
    }

    fn written_for(head: &str, teller: Teller) -> String {
        written_without(head, teller, None)
    }

    fn written_without(head: &str, teller: Teller, without: Option<(usize, &[u8])>) -> String {
        let request = Request::read_again(head.as_bytes()).expect("a sound head");
        let client = Some("192.0.2.7:4711".parse().expect("an address"));
        let mut out = Vec::new();
        let forward =
            Forward { client, request_id: "1-2-3", without, teller, default_host: None, is_last: false, rest: None };
        write_head(&mut out, &request, &forward);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn what_belongs_to_the_clients_connection_stays_here() {
        let head = "GET /a?b HTTP/1.1\r\nHost: x:81\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nx-yours: 2\r\nTE: trailers\r\n\
            Upgrade: h2c\r\nKeep-Alive: 5\r\nForwarded: for=1.2.3.4\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Host: y\r\nX-Forwarded-Proto: https\r\nExpect: 100-continue\r\n\r\n";
        assert_eq!(
            written(head),
            "GET /a?b HTTP/1.1\r\nHost: x:81\r\nx-yours: 2\r\nForwarded: for=192.0.2.7;host=\"x:81\";proto=http\r\n\
             X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Host: x:81\r\nX-Forwarded-Proto: http\r\nX-Request-Id: 1-2-3\r\nVia: 1.1 leat\r\n\r\n"
        );
    }

    #[test]
    fn the_last_request_of_a_connection_says_so() {
        let fields = |head: &[u8]| {
            let request = Request::read_again(head).expect("a sound head");
            let teller = Teller::Nobody;
            let forward = Forward {
                client: None,
                request_id: "1",
                without: None,
                teller,
                default_host: None,
                is_last: true,
                rest: None,
            };
            let mut out = Vec::new();
            write_head(&mut out, &request, &forward);
            let out = String::from_utf8(out).expect("text");
            out.lines().filter(|line| line.starts_with("Connection: ")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(fields(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"), ["Connection: close"]);
        let websocket = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        assert_eq!(fields(websocket), ["Connection: Upgrade"]);
    }

    #[test]
    fn the_rest_of_a_reply_is_asked_for_without_the_clients_own_conditions() {
        let head = b"GET /a HTTP/1.1\r\nHost: x\r\nRange: bytes=5-\r\nIf-Range: \"b\"\r\nIf-None-Match: \"c\"\r\nAccept: d\r\n\r\n";
        let request = Request::read_again(head).expect("a sound head");
        let rest = Some(Rest { etag: b"\"e\"", first: 7 });
        let teller = Teller::Cluster;
        let forward =
            Forward { client: None, request_id: "1", without: None, teller, default_host: None, is_last: false, rest };
        let mut out = Vec::new();
        write_head(&mut out, &request, &forward);
        let fields = "Accept: d\r\nRange: bytes=7-\r\nIf-Range: \"e\"\r\nVia: 1.1 leat\r\n\r\n";
        assert_eq!(String::from_utf8(out).expect("text"), format!("GET /a HTTP/1.1\r\nHost: x\r\n{fields}"));
    }

    #[test]
    fn a_websocket_is_asked_for_and_no_other_protocol() {
        let asks = |start: &str, fields: &str| {
            let head = written(&format!("{start}\r\nHost: x\r\n{fields}Sec-WebSocket-Key: k\r\n\r\n"));
            assert!(head.contains("\r\nSec-WebSocket-Key: k\r\n"), "{head}");
            head.contains("\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n") && head.matches("pgrade").count() == 2
        };
        assert!(asks("GET / HTTP/1.1", "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"));
        assert!(asks("GET / HTTP/1.1", "Upgrade: h2c, websocket\r\nConnection: close\r\nConnection: upgrade\r\n"));
        for (start, fields) in [
            ("GET / HTTP/1.1", "Upgrade: websocket\r\n"),
            ("GET / HTTP/1.1", "Connection: Upgrade\r\n"),
            ("GET / HTTP/1.1", "Connection: Upgrade\r\nUpgrade: h2c\r\n"),
            ("GET / HTTP/1.0", "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
            ("POST / HTTP/1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
            ("GET / HTTP/1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n"),
        ] {
            assert!(!asks(start, fields), "{start}: {fields}");
        }
    }

    #[test]
    fn no_name_that_programs_could_take_for_another_passes() {
        let head = "GET / HTTP/1.1\r\nHost: x\r\nX_Forwarded_For: 1.2.3.4\r\nx_forwarded-HOST: y\r\nX-Forwarded_Proto: https\r\n\
            X_Request_Id: 7\r\nContent_Length: 5\r\nproxy: http://evil\r\nx_yours: 2\r\nX-Proxy: 3\r\n\r\n";
        let written = written(head);
        let (_, fields) = written.split_once("Host: x\r\n").expect("a host");
        assert!(fields.starts_with("x_yours: 2\r\nX-Proxy: 3\r\nForwarded: for=192.0.2.7;"), "{written}");
    }

    #[test]
    fn who_asked_is_said_so_far_as_it_is_known() {
        let request = Request::read_again(b"GET / HTTP/1.0\r\n\r\n").expect("a sound head");
        let told = |client: Option<&str>| {
            let client = client.map(|client| client.parse().expect("an address"));
            let mut out = Vec::new();
            let forward = Forward {
                client,
                request_id: "1",
                without: None,
                teller: Teller::Nobody,
                default_host: None,
                is_last: false,
                rest: None,
            };
            write_head(&mut out, &request, &forward);
            String::from_utf8(out).expect("text")
        };
        assert!(told(None).contains("\r\nForwarded: proto=http\r\nX-Forwarded-Proto: http\r\n"), "{}", told(None));
        let by_v6 = told(Some("[2001:db8::7]:4711"));
        assert!(
            by_v6.contains("Forwarded: for=\"[2001:db8::7]\";proto=http\r\nX-Forwarded-For: 2001:db8::7\r\n"),
            "{by_v6}"
        );
        assert!(told(Some("[::ffff:192.0.2.7]:1")).contains("Forwarded: for=192.0.2.7;proto=http\r\n"));
    }

    #[test]
    fn who_names_no_host_asks_for_the_server_itself() {
        for (head, host) in [
            ("GET / HTTP/1.0\r\n\r\n", "192.0.2.1:80"),
            ("GET / HTTP/1.1\r\nHost:\r\n\r\n", "192.0.2.1:80"),
            ("GET / HTTP/1.0\r\nHost: x:1\r\n\r\n", "x:1"),
        ] {
            let request = Request::read_again(head.as_bytes()).expect("a sound head");
            let default_host = Some("192.0.2.1:80");
            let forward = Forward {
                client: None,
                request_id: "1",
                without: None,
                teller: Teller::Nobody,
                default_host,
                is_last: false,
                rest: None,
            };
            let mut out = Vec::new();
            write_head(&mut out, &request, &forward);
            let out = String::from_utf8(out).expect("text");
            assert!(out.starts_with(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n")), "{out}");
            // What isn't the client's word isn't told as such.
            assert_eq!(out.to_lowercase().matches("host").count(), if host == "x:1" { 3 } else { 1 }, "{out}");
        }
    }

    #[test]
    fn a_part_of_the_path_can_stay_here() {
        let first_lines = |path: &str, known: usize, decoded: &str| {
            let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nX-Forwarded-Prefix: /y\r\n\r\n");
            let written = written_without(&head, Teller::Nobody, Some((known, decoded.as_bytes())));
            assert_eq!(written.matches("X-Forwarded-Prefix: /api\r\n").count(), 1, "{written}");
            assert!(!written.contains("/y"), "{written}");
            written.lines().next().map(str::to_owned)
        };
        assert_eq!(first_lines("/a%70i/x%20y?z=%20", 4, "/api/x y").as_deref(), Some("GET /x%20y?z=%20 HTTP/1.1"));
        assert_eq!(first_lines("//%61pi/x%2fy", 4, "/api/x/y").as_deref(), Some("GET /x%2fy HTTP/1.1"));
        assert_eq!(first_lines("/b/../api", 4, "/api").as_deref(), Some("GET / HTTP/1.1"));
        for (path, decoded, told) in [
            ("/api/b%3Bc;d", "/api/b;c;d", "/b%3Bc;d"),
            ("/x/..//api/./b%3Bc", "/api/b;c", "/b%3Bc"),
            ("/api/http://x/", "/api/http:/x/", "/http://x/"),
            ("/api/", "/api/", "/"),
            // Another path than was asked for: it's known decoded only.
            ("/else", "/api/b;c d", "/b;c%20d"),
        ] {
            assert_eq!(first_lines(path, 4, decoded), Some(format!("GET {told} HTTP/1.1")), "{path}");
        }
    }

    #[test]
    fn nobody_can_find_another_path_than_was_found_here() {
        for (path, told) in [
            ("/admin//../secret", "/secret"),
            ("/admin/../a%20b%2541", "/a%20b%2541"),
            ("/admin/%2E%2e/x?y=/../z", "/x?y=/../z"),
            // An escape may be what keeps a byte from meaning something (RFC 3986 section 2.2).
            ("/a/../b%3Bc%2c/%7e%41", "/b%3Bc%2c/%7e%41"),
            ("/a/../b%3Bc;d/./%3a/..", "/b%3Bc;d/"),
            ("/a/.%2E", "/"),
            ("/.", "/"),
            ("//host/x%2Fy//z", "/host/x%2Fy//z"),
            ("///", "/"),
            // Nothing to be resolved: an empty segment may be part of a name.
            ("/web/2020/http://x/%3b", "/web/2020/http://x/%3b"),
            ("/..a/b../.../%2e%2e%2e", "/..a/b../.../%2e%2e%2e"),
            ("/queues/%2F/.name", "/queues/%2F/.name"),
        ] {
            let written = written(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
            assert_eq!(written.lines().next(), Some(format!("GET {told} HTTP/1.1").as_str()), "{path}");
        }
    }

    #[test]
    fn what_a_server_of_this_cluster_says_of_the_client_stays() {
        let told = "Forwarded: for=198.51.100.4\r\nX-Forwarded-For: 198.51.100.4\r\nX-Request-Id: 7\r\n";
        let head = format!("GET / HTTP/1.1\r\nHost: x\r\n{told}\r\n");
        assert_eq!(
            written_for(&head, Teller::Cluster),
            format!("GET / HTTP/1.1\r\nHost: x\r\n{told}Via: 1.1 leat\r\n\r\n")
        );
    }

    #[test]
    fn a_balancer_in_front_is_believed_and_added() {
        let balancer = Teller::Balancer("10.0.0.1".parse().expect("an address"));
        let head = "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.7\r\nForwarded: for=y\r\n\
            X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\nX-Request-Id: 7\r\n\r\n";
        assert_eq!(
            written_for(head, balancer),
            "GET / HTTP/1.1\r\nHost: x\r\nForwarded: for=192.0.2.7;host=\"shop.example\";proto=https\r\nX-Forwarded-For: 6.6.6.6, 192.0.2.7, 10.0.0.1\r\n\
             X-Forwarded-Host: shop.example\r\nX-Forwarded-Proto: https\r\nX-Request-Id: 1-2-3\r\nVia: 1.1 leat\r\n\r\n"
        );
        let silent = written_for("GET / HTTP/1.1\r\nHost: x\r\n\r\n", balancer);
        assert!(
            silent.contains("X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Host: x\r\nX-Forwarded-Proto: http\r\n"),
            "{silent}"
        );
        // A value that would end the string stays out of it.
        let odd = written_for("GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-Host: a\";for=b\r\n\r\n", balancer);
        assert!(odd.contains("\r\nForwarded: for=192.0.2.7;proto=http\r\n"), "{odd}");
    }

    #[test]
    fn a_body_is_announced_as_it_will_come() {
        assert!(
            written("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 07\r\n\r\n").contains("\r\nContent-Length: 7\r\n")
        );
        let chunked = written("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n");
        assert_eq!(chunked.matches("Transfer-Encoding: chunked\r\n").count(), 1);
        for (head, announces) in
            [("POST / HTTP/1.1\r\nHost: x\r\n\r\n", true), ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", false)]
        {
            assert_eq!(written(head).contains("\r\nContent-Length: 0\r\n"), announces, "{head}");
        }
        assert!(written("GET http://y/z HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("GET /z HTTP/1.1\r\nHost: y\r\n"));
        assert!(written("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("OPTIONS * HTTP/1.1\r\n"));
    }

    #[test]
    fn only_what_does_no_harm_twice_is_repeated() {
        for (head, repeatable) in [
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", true),
            ("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", true),
            ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", false),
            ("DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n", false),
        ] {
            let request = Request::read_again(head.as_bytes()).expect("a sound head");
            assert_eq!(is_repeatable(request.method, request.body != BodyLength::None), repeatable, "{head}");
        }
    }
}
