//! Commands over HTTP, on the admin address: `GET /ctl/nodes`, `POST /ctl/weight?node=n1&weight=50`. What a request asks for, and who may.
//! Decision 32 says why so.

use leat_logic::http::{BodyLength, Method, Request, Status};
use leat_logic::serve::hosts::HostTable;
use serde_json::{Value, json};

use super::command::Command;
use super::form::{Access, Form};
use super::server::Failure;
use crate::config::Admin;

/// Where commands are.
const PREFIX: &[u8] = b"/ctl";
const BEARER: &[u8] = b"Bearer ";
const SOCKET_CURE: &str = "use `leat ctl` over its socket, or set `token_file` in [admin]";

/// What is answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    pub(crate) status: Status,
    /// Field lines beside those that every answer has.
    pub(crate) fields: String,
    pub(crate) is_json: bool,
    pub(crate) text: String,
}

/// A request that is to be answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) command: Command,
    pub(crate) is_change: bool,
    pub(crate) as_json: bool,
}

/// Whether a path is one of a command, or of the list of them.
#[must_use]
pub(crate) fn is_command(path: &[u8]) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Reads a request for a decoded `path` that [`is_command`].
///
/// # Errors
/// What is answered at once: it's refused, or wants no more than the list of commands.
pub(crate) fn read(path: &[u8], request: &Request<'_>, admin: &Admin) -> Result<Asked, Told> {
    let as_json = wants_json(request);
    let refuse = |status, text: String| Err(Told::failure(status, &text, as_json));
    if let Some(reason) = foreign(request, admin) {
        return refuse(Status::FORBIDDEN, reason);
    }
    let name = path.strip_prefix(PREFIX).unwrap_or_default();
    let name = name.strip_prefix(b"/").unwrap_or(name);
    let is_read = matches!(request.method, Method::Get | Method::Head);
    let form = match Command::FORMS.iter().find(|form| form.words.join("/").as_bytes() == name) {
        Some(form) => form,
        None if name.is_empty() && is_read => return Err(list(as_json)),
        None if name.is_empty() => return Err(not_allowed("GET, HEAD", as_json)),
        None => {
            let name = String::from_utf8_lossy(name);
            let names: Vec<_> = Command::FORMS.iter().map(|form| form.words.join("/")).collect();
            let text = format!("there is no command `{name}`: they are {}", names.join(", "));
            return refuse(Status::NOT_FOUND, text);
        }
    };
    let is_change = form.access == Access::Change;
    match (is_change, request.method) {
        (false, Method::Get | Method::Head) | (true, Method::Post) => {}
        (false, _) => return Err(not_allowed("GET, HEAD", as_json)),
        (true, _) => return Err(not_allowed("POST", as_json)),
    }
    if form.access != Access::Open {
        let Some(token) = &admin.token_file else {
            return refuse(Status::FORBIDDEN, format!("this isn't answered over HTTP without a token: {SOCKET_CURE}"));
        };
        if !bearer(request).is_some_and(|written| token.is(written)) {
            let cure = "it takes the token of `token_file`, as in `Authorization: Bearer TOKEN`";
            let mut told = Told::failure(Status::UNAUTHORIZED, cure, as_json);
            told.fields = "WWW-Authenticate: Bearer realm=\"leat\"\r\n".to_owned();
            return Err(told);
        }
    }
    if request.body != BodyLength::None {
        let text = format!("parameters are written in the query, and there is no content: {}", usage(form));
        return refuse(Status::BAD_REQUEST, text);
    }
    let command = parameters(request.target.query.unwrap_or_default()).and_then(|written| {
        let known = |name: &str| form.parameters.iter().any(|parameter| parameter.name == name);
        if let Some((name, _)) = written.iter().find(|(name, _)| !known(name)) {
            return Err(format!("`{}` has no parameter `{name}`", form.words.join("/")));
        }
        let is_twice = |name: &str| written.iter().filter(|(other, _)| other == name).count() > 1;
        if let Some(parameter) = form.parameters.iter().find(|parameter| is_twice(parameter.name)) {
            return Err(format!("`{}` is written twice", parameter.name));
        }
        form.command(|name| written.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()))
    });
    match command {
        Ok(command) => Ok(Asked { command, is_change, as_json }),
        Err(reason) => refuse(Status::BAD_REQUEST, format!("{reason}; write {}", usage(form))),
    }
}

/// The answer to a command.
#[must_use]
pub(crate) fn tell(answer: Result<Value, Failure>, as_json: bool) -> Told {
    match answer {
        Ok(answer) => {
            Told { status: Status::OK, fields: String::new(), is_json: as_json, text: super::show(&answer, as_json) }
        }
        Err(Failure::Refused(reason)) => Told::failure(Status::BAD_REQUEST, reason.trim_end(), as_json),
        Err(Failure::Unheard(reason)) => Told::failure(Status::SERVICE_UNAVAILABLE, &reason, as_json),
    }
}

impl Told {
    pub(crate) fn failure(status: Status, reason: &str, as_json: bool) -> Told {
        let text = if as_json { format!("{}\n", json!({ "error": reason })) } else { format!("{reason}\n") };
        Told { status, fields: String::new(), is_json: as_json, text }
    }
}

/// Why a browser may be asking for somebody else's page: by a name that anybody can point here, or because a script wants it to.
fn foreign(request: &Request<'_>, admin: &Admin) -> Option<String> {
    if request.headers.get(b"origin").is_some() {
        return Some("pages of browsers aren't answered: the request has an Origin".to_owned());
    }
    let host = request.host.unwrap_or_default();
    let written = String::from_utf8_lossy(host);
    let bare = written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&written);
    let is_known = bare.parse::<std::net::IpAddr>().is_ok()
        || written.eq_ignore_ascii_case("localhost")
        || HostTable::new(admin.hosts.iter().map(|host| (host.clone(), 0)), None).site(host).is_some();
    (!is_known)
        .then(|| format!("`{written}` isn't a name of this leat: ask by its address, or name it in `hosts` of [admin]"))
}

fn bearer<'a>(request: &Request<'a>) -> Option<&'a [u8]> {
    let mut all = request.headers.all(b"authorization");
    let (value, None) = (all.next()?, all.next()) else { return None };
    let (scheme, token) = value.split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then(|| token.trim_ascii())
}

fn wants_json(request: &Request<'_>) -> bool {
    let items = request.headers.all(b"accept").flat_map(|value| value.split(|&byte| byte == b','));
    let mut types = items.map(|item| item.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii());
    types.any(|name| name.eq_ignore_ascii_case(b"application/json"))
}

fn not_allowed(methods: &str, as_json: bool) -> Told {
    let mut told = Told::failure(Status::METHOD_NOT_ALLOWED, &format!("it's asked for by {methods}"), as_json);
    told.fields = format!("Allow: {methods}\r\n");
    told
}

/// A request line's beginning, for who has to write one.
fn usage(form: &Form) -> String {
    let method = if form.access == Access::Change { "POST" } else { "GET" };
    let mut text = format!("{method} /ctl/{}", form.words.join("/"));
    for (separator, parameter) in std::iter::once('?').chain(std::iter::repeat('&')).zip(form.parameters) {
        text += &format!("{separator}{}={}", parameter.name, parameter.default.unwrap_or("..."));
    }
    text
}

/// Every command, for who asks for none.
fn list(is_json: bool) -> Told {
    let forms = Command::FORMS;
    let text = match is_json {
        true => {
            let commands: Vec<_> =
                forms.iter().map(|form| json!({ "usage": usage(form), "about": form.about.trim() })).collect();
            format!("{}\n", json!({ "commands": commands }))
        }
        false => forms.iter().map(|form| format!("{}\n    {}\n", usage(form), form.about.trim())).collect(),
    };
    Told { status: Status::OK, fields: String::new(), is_json, text }
}

/// Names and values of a query, as HTML forms write them.
fn parameters(query: &[u8]) -> Result<Vec<(String, String)>, String> {
    let pairs = query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair
                .iter()
                .position(|&byte| byte == b'=')
                .map_or((pair, &[][..]), |place| (&pair[..place], &pair[place + 1..]));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

fn decode(written: &[u8]) -> Result<String, String> {
    let wrong = || "the query isn't UTF-8 with whole escapes, as in node=n%201".to_owned();
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written;
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, after) = rest.split_at_checked(2).ok_or_else(wrong)?;
                let digits = digits.iter().map(|&digit| char::from(digit).to_digit(16)).collect::<Option<Vec<u32>>>();
                let byte = digits.map(|digits| digits[0] * 16 + digits[1]).and_then(|byte| u8::try_from(byte).ok());
                bytes.push(byte.ok_or_else(wrong)?);
                rest = after;
            }
            &byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AdminToken;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn admin() -> Admin {
        let token_file = AdminToken::new(TOKEN.as_bytes());
        Admin { token_file, hosts: vec!["admin.example".parse().expect("a host")], ..Admin::default() }
    }

    fn asked(admin: &Admin, line: &str, fields: &str) -> Result<Asked, Told> {
        let host = if fields.contains("Host:") { "" } else { "Host: 127.0.0.1:9180\r\n" };
        let head = format!("{line} HTTP/1.1\r\n{host}{fields}\r\n");
        let request = Request::read_again(head.as_bytes()).expect("it's a request");
        let path = line.split([' ', '?']).nth(1).unwrap_or_default();
        read(path.as_bytes(), &request, admin)
    }

    fn status(line: &str, fields: &str) -> u16 {
        asked(&admin(), line, fields).map_or_else(|told| told.status.code(), |_| 200)
    }

    fn with_token() -> String {
        format!("Authorization: Bearer {TOKEN}\r\n")
    }

    #[test]
    fn every_command_can_be_asked_for_by_its_method_alone() {
        for form in Command::FORMS {
            let line = usage(form).replace("policy=...", "policy=round_robin").replace("...", "7");
            let asked = asked(&admin(), &line, &with_token()).expect("it's whole, and who asks may");
            assert_eq!(asked.command.to_json()["command"], form.name, "{line}");
            let (method, rest) = line.split_once(' ').expect("a method");
            let (other, allowed) = if method == "GET" { ("POST", "GET, HEAD") } else { ("GET", "POST") };
            let refused =
                super::tests::asked(&admin(), &format!("{other} {rest}"), &with_token()).expect_err("the other one");
            assert_eq!((refused.status.code(), refused.fields), (405, format!("Allow: {allowed}\r\n")), "{line}");
        }
        assert!(Command::FORMS.iter().all(|form| list(false).text.contains(&usage(form))));
        assert_eq!((status("GET /ctl", ""), status("GET /ctl/", ""), status("POST /ctl/", "")), (200, 200, 405));
    }

    #[test]
    fn who_has_no_token_changes_nothing() {
        let weight = "POST /ctl/weight?node=n1&weight=5";
        assert_eq!(status(weight, &with_token()), 200);
        for fields in [
            String::new(),
            "Authorization: Bearer\r\n".to_owned(),
            "Authorization: Bearer \r\n".to_owned(),
            format!("Authorization: Basic {TOKEN}\r\n"),
            format!("Authorization: Bearer {}\r\n", &TOKEN[1..]),
            format!("Authorization: Bearer {TOKEN}0\r\n"),
            format!("Authorization: Bearer {}\r\n", TOKEN.to_uppercase()),
            with_token() + &with_token(),
        ] {
            assert_eq!(status(weight, &fields), 401, "{fields:?}");
            assert_eq!(status("GET /ctl/table", &fields), 401, "{fields:?}");
            assert_eq!(status("GET /ctl/nodes", &fields), 200, "{fields:?}");
        }
        let none = Admin { token_file: None, ..admin() };
        let told = asked(&none, weight, &with_token()).expect_err("nobody may");
        assert!(told.status == Status::FORBIDDEN && told.text.contains("set `token_file` in [admin]"), "{told:?}");
    }

    #[test]
    fn browsers_are_told_nothing() {
        for (host, expected) in [
            ("localhost", 200),
            ("LocalHost:9180", 200),
            ("[::1]:9180", 200),
            ("admin.example", 200),
            ("other.example", 403),
            ("127.0.0.1.example", 403),
            ("", 403),
        ] {
            assert_eq!(status("GET /ctl/nodes", &format!("Host: {host}\r\n")), expected, "{host}");
        }
        let weight = "POST /ctl/weight?node=n1&weight=5";
        for origin in ["null", "http://127.0.0.1:9180", ""] {
            assert_eq!(status(weight, &format!("Origin: {origin}\r\n{}", with_token())), 403, "{origin}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_cure() {
        for (line, expected) in [
            (
                "POST /ctl/weight?node=n1",
                "`weight` is missing, or no whole number from 1 to 10000; write POST /ctl/weight?node=...&weight=...\n",
            ),
            ("POST /ctl/weight?node=n1&weight=-1", "`weight` is missing, or no whole number"),
            ("POST /ctl/drain?node=n1&node=n2", "`node` is written twice"),
            ("POST /ctl/drain?nodes=n1", "`drain` has no parameter `nodes`"),
            ("POST /ctl/drain?node=%ff", "the query isn't UTF-8"),
            ("POST /ctl/drain?node=%f", "the query isn't UTF-8"),
            ("POST /ctl/policy?policy=lard", "there is no policy `lard`: they are mix_lard, "),
            ("GET /ctl/table?limit=0", "`limit` is missing, or no whole number from 1 to 10000"),
        ] {
            let told = asked(&admin(), line, &with_token()).expect_err(line);
            assert!(told.status == Status::BAD_REQUEST && told.text.starts_with(expected), "{line}: {told:?}");
        }
        let told = asked(&admin(), "POST /ctl/drain?node=n1", &format!("Content-Length: 3\r\n{}", with_token()));
        assert!(told.is_err_and(|told| told.text.starts_with("parameters are written in the query")));
        let told = asked(&admin(), "GET /ctl/stop", "Accept: application/json\r\n").expect_err("there is none");
        assert!(
            told.status == Status::NOT_FOUND
                && told.text.starts_with("{\"error\":\"there is no command `stop`: they are status, ")
        );
        let explain = asked(&admin(), "GET /ctl/explain?request=GET%20/a%2bb+c", "").expect("it's whole");
        assert_eq!(explain.command, Command::Explain { request: "GET /a+b c".to_owned() });
    }
}
