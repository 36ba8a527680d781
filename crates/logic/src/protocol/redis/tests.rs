//! Requests as clients of Redis write them: whose they are, and where they end.

use super::*;

fn array(words: &[&str]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    request
}

fn parser() -> Redis {
    Redis::default()
}

/// Where a request goes: its key, or the first letter of the scope.
fn goes(request: &[u8]) -> String {
    match parser().begin(request, false).expect("it's RESP") {
        Begin::NeedMore => "more".to_owned(),
        Begin::Nothing(bytes) => format!("nothing of {bytes}"),
        Begin::Request(Request { scope: Scope::Content(facts), .. }) => {
            String::from_utf8_lossy(facts.path).into_owned()
        }
        Begin::Request(Request { scope: Scope::Nobody(words) | Scope::Ends(words), .. }) => {
            String::from_utf8_lossy(&words[..4]).into_owned()
        }
        Begin::Request(Request { scope: Scope::Any, .. }) => "any".to_owned(),
        Begin::Request(Request { scope, .. }) => format!("{scope:?}"),
    }
}

#[test]
fn a_request_goes_by_its_keys() {
    for (words, expected) in [
        (&["GET", "a"][..], "a"),
        (&["set", "a", "b"], "a"),
        (&["GET", "x{tag}y"], "tag"),
        (&["GET", "x{}y"], "x{}y"),
        (&["MGET", "{t}1", "{t}2", "3{t}", "4{t}", "{t}5", "{t}6"], "t"),
        (&["MGET", "{t}1", "{t}2", "3{t}", "4{t}", "{t}5", "6"], "-CRO"),
        (&["MSET", "{t}1", "v", "{t}2", "w"], "t"),
        (&["MSET", "1", "v", "2", "w"], "-CRO"),
        (&["BLPOP", "a", "0"], "a"),
        (&["EVAL", "return 1", "0"], "any"),
        (&["EVAL", "return 1", "1", "a", "b"], "a"),
        (&["EVAL", "return 1", "2", "a", "b"], "-CRO"),
        (&["EVAL", "return 1", "99999999999", "a"], "a"),
        (&["ZUNIONSTORE", "{t}d", "2", "{t}a", "{t}b", "WEIGHTS", "1", "2"], "t"),
        (&["ZUNIONSTORE", "{t}d", "2", "{t}a", "b"], "-CRO"),
        (&["RENAME", "a", "b"], "-CRO"),
        (&["OBJECT", "ENCODING", "a"], "a"),
        (&["SORT", "a"], "a"),
        (&["SORT", "a", "LIMIT", "0", "STORE", "ALPHA", "by", "nosort", "GET", "#"], "a"),
        (&["SORT", "a", "STORE", "b"], "-CRO"),
        (&["SORT", "{t}a", "DESC", "STORE", "{t}b"], "t"),
        (&["SORT", "a", "BY", "w_*"], "-CRO"),
        (&["SORT_RO", "{t}a", "BY", "w_{t}_*->f", "GET", "{t}*"], "t"),
        (&["SORT", "{t}a", "GET", "w_*{t}"], "-CRO"),
        (&["SORT", "{t}a", "GET", "{}{t}*"], "-CRO"),
        (&["GEORADIUS", "a", "1", "2", "3", "km", "COUNT", "STORE", "ASC"], "a"),
        (&["GEORADIUS", "a", "1", "2", "3", "km", "WITHDIST", "storedist", "b"], "-CRO"),
        (&["GEORADIUS", "{t}a", "1", "2", "3", "km", "STORE", "{t}b", "STOREDIST", "{t}c"], "t"),
        (&["GEORADIUSBYMEMBER", "a", "STORE", "3", "km"], "a"),
        (&["GEORADIUSBYMEMBER", "a", "m", "3", "km", "STORE", "b"], "-CRO"),
        (&["SORT"], "any"),
        (&["GET"], "any"),
        (&["PING"], "any"),
        (&["MULTI"], "-ERR"),
        (&["SUBSCRIBE", "a"], "-ERR"),
        (&["QUIT"], "+OK\r"),
        (&["AUTH", "x"], "Every(Login)"),
        (&["HELLO", "3", "auth", "u", "p"], "Every(Greeting)"),
        (&["HELLO", "3"], "Every(Nothing)"),
        (&["SELECT", "1"], "Every(Same)"),
    ] {
        assert_eq!(goes(&array(words)), expected, "{words:?}");
    }
}

#[test]
fn a_line_goes_where_the_same_words_in_an_array_go() {
    for (line, expected) in [
        (&b"SET inline value\r\n"[..], "inline"),
        (b" \tGET  a \r\n", "a"),
        (b"PING\n", "any"),
        (b"SET \"a b\" \"c \\n\"\n", "a b"),
        (b"\"SET\" 'a' \"\"\r\n", "a"),
        (b"DEL \"{t}1\" '{t}2'\r\n", "t"),
        (b"DEL \"1\" '2'\r\n", "-CRO"),
        (b"DEL {t}1 {t}2 {t}3 {t}4 '{t}5' {t}6\r\n", "t"),
        (b"DEL {t}1 {t}2 {t}3 {t}4 {t}5 6\r\n", "-CRO"),
        (b"SORT a LIMIT 0 10 ALPHA\r\n", "a"),
        (b"SORT a LIMIT 0 10 STORE b\r\n", "-CRO"),
        // What they stand for isn't among the bytes that came, or nobody knows where they end.
        (b"GET \"\\x61\"\r\n", "-ERR"),
        (b"OBJECT ENCODING \"\\x61\"\r\n", "-ERR"),
        (b"GET a\"b\"\r\n", "-ERR"),
        (b"GET \"a\r\n", "-ERR"),
        (b"GET \"a\"b\r\n", "-ERR"),
    ] {
        assert_eq!(goes(line), expected, "{}", line.escape_ascii());
    }
}

#[test]
fn what_is_in_a_refused_transaction_is_refused_too() {
    let mut parser = parser();
    let mut scopes = |requests: &[&[&str]]| -> Vec<String> {
        let scope = |words: &&[&str]| match parser.begin(&array(words), false).expect("it's RESP") {
            Begin::Request(Request { scope: Scope::Nobody(words), .. }) => {
                String::from_utf8_lossy(&words).split(' ').nth(2).expect("a reason").to_owned()
            }
            Begin::Request(Request { scope: Scope::Content(_), .. }) => "done".to_owned(),
            Begin::Request(Request { scope: Scope::Ends(_), .. }) => "end".to_owned(),
            begin => format!("{begin:?}"),
        };
        requests.iter().map(scope).collect()
    };
    let (set, auth): (&[&str], &[&str]) = (&["SET", "a", "b"], &["AUTH", "x"]);
    // Redis takes neither a MULTI nor an EXEC with arguments.
    assert_eq!(scopes(&[&["MULTI", "x"], set]), ["MULTI", "done"]);
    let inside = [&["multi"][..], set, auth, &["MULTI"], &["EXEC", "x"], &["PING"], set, &["exec"], set];
    assert_eq!(scopes(&inside), ["multi", "MULTI", "MULTI", "MULTI", "MULTI", "MULTI", "MULTI", "exec", "done"]);
    assert_eq!(scopes(&[&["MULTI"], set, &["DISCARD"], set]), ["MULTI", "MULTI", "DISCARD", "done"]);
    assert_eq!(scopes(&[&["MULTI"], &["QUIT"]]), ["MULTI", "end"]);
}

#[test]
fn what_redis_does_not_answer_is_no_request() {
    for nothing in [&b"\r\n"[..], b"\n", b"\r\n\r\n\n", b"*0\r\n", b"*-1\r\n", b"  \t\r\n"] {
        assert_eq!(goes(nothing), format!("nothing of {}", nothing.len()), "{}", nothing.escape_ascii());
    }
}

#[test]
fn the_key_is_enough_and_less_isn_t() {
    let mut request = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n".to_vec();
    for end in 0..request.len() {
        assert_eq!(goes(&request[..end]), "more", "{end}");
    }
    assert_eq!(goes(&request), "key", "the value needn't be there");
    request.extend_from_slice(b"$500000000\r\n");
    let mut parser = parser();
    assert_eq!(parser.go_on(&request), Ok(Piece { bytes: request.len(), is_last: false }));
    assert_eq!(parser.go_on(&[0; 100]), Ok(Piece { bytes: 100, is_last: false }));
}

#[test]
fn options_must_all_be_there_where_they_may_name_keys() {
    let request = array(&["SORT", "a", "LIMIT", "0", "10", "STORE", "a"]);
    for end in 0..request.len() {
        assert_eq!(goes(&request[..end]), "more", "{end}");
    }
    assert_eq!(goes(&request), "a");
}

#[test]
fn a_request_ends_where_it_does_however_it_comes() {
    for request in [array(&["SET", "k", "a\r\nb"]), array(&["PING"]), b"PING x\r\n".to_vec()] {
        for piece in 1..=request.len() {
            let input = [&request[..], &array(&["GET", "x"])].concat();
            let (mut parser, mut taken) = (parser(), 0);
            let mut ends = (1..=input.len()).filter(|end| end % piece == 0 || *end == input.len());
            let size = ends.find_map(|end| {
                let found = parser.go_on(&input[taken..end]).expect("it's RESP");
                taken += found.bytes;
                found.is_last.then_some(taken)
            });
            assert_eq!(size, Some(request.len()), "{request:?} by {piece}");
        }
    }
}

#[test]
fn what_isn_t_redis_is_told() {
    for input in
        [&b"*x\r\n"[..], b"*1\r\n:1\r\n", b"\x16\x03\x01", b"*1\r\n$-1\r\n", b"*99999999\r\n", b"*1\r\n$3\r\nGETxx\r\n"]
    {
        assert_eq!(parser().begin(input, false), Err(NOT_REDIS), "{input:?}");
    }
}

#[test]
fn a_number_is_told_once_its_line_is_there() {
    let told = |text: &str| number_line(text.as_bytes(), 1000);
    assert_eq!(told("$12\r\nrest"), Ok(Some((12, 5))));
    assert_eq!(told("$-1\r\n"), Ok(Some((-1, 5))));
    assert_eq!(told("*0001000\r\n"), Ok(Some((1000, 10))));
    for begun in ["", "$", "$-", "$1", "$12\r", "$x", "$1x", "$12345678901234567890"] {
        assert_eq!(told(begun), Ok(None), "{begun:?}");
    }
    for wrong in [
        "$\r\n",
        "$-\r\n",
        "$1\n",
        "$1x\r\n",
        "$--1\r\n",
        "$1001\r\n",
        "$-1001\r\n",
        "$+1\r\n",
        "$12345678901234567890123",
    ] {
        assert_eq!(told(wrong), Err(()), "{wrong:?}");
    }
    assert_eq!(told("$99999999999999999999\r\n"), Err(()));
}
