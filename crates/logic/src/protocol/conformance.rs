//! What every protocol's parser must do, tried through a whole session: the same bytes go to the same nodes however they are split, nothing is lost
//! or said twice, and no bytes make it panic or ask for ever.

use super::*;

const LIMITS: Limits = Limits { head_bytes_max: 4096, first_bytes: 0 };

/// A conversation that is right, and what a node says to each of its requests.
fn conversation(protocol: Protocol) -> (Vec<u8>, Vec<Vec<u8>>) {
    match protocol {
        Protocol::Tcp => (b"anything at all".to_vec(), Vec::new()),
        Protocol::Tls => (tls::tests::hello("shop.example.org", "h2", 300), Vec::new()),
        Protocol::Http => (b"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\nGET /y".to_vec(), Vec::new()),
        Protocol::Redis => {
            let requests = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$4\r\nx\r\ny\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nc\r\n";
            let answers = [&b"$3\r\n1\r\n\r\n"[..], b"+OK\r\n", b"+PONG\r\n", b"*2\r\n:1\r\n$-1\r\n"];
            (requests.to_vec(), answers.map(<[u8]>::to_vec).into())
        }
        Protocol::Iiop => {
            let requests: Vec<Vec<u8>> =
                (1..=4).map(|id| giop::tests::request_of(2, id % 2 == 0, id, true, &[b'k', id as u8])).collect();
            let answers = (1..=4).map(|id| giop::tests::reply_of(2, id % 2 == 1, id, false)).collect();
            (requests.concat(), answers)
        }
    }
}

/// Two nodes, of which requests are given now to one and now to the other; each answers as soon as it has been asked.
#[derive(Default)]
struct Nodes {
    /// What each was told, and what it says that nobody has taken.
    told: [Vec<u8>; 2],
    says: [Vec<u8>; 2],
    chosen: usize,
}

/// Has all of `input` go through a session in pieces of this size. Returns what each node was told, and what the client heard.
fn run(protocol: Protocol, input: &[u8], answers: &[Vec<u8>], piece: usize) -> Result<(Nodes, Vec<u8>), Mistake> {
    let mut session = Session::new(protocol, LIMITS, true);
    let (mut nodes, mut heard, mut legs, mut taken) = (Nodes::default(), Vec::new(), [None; 2], 0);
    for end in (0..input.len()).step_by(piece).chain([input.len()]) {
        let is_all = end == input.len();
        for _ in 0..10_000 {
            let step = session.client_step(&input[taken..end], is_all)?;
            match step {
                ClientStep::Choose(_) | ClientStep::ChooseGathered(_) => {
                    let node = nodes.chosen % 2;
                    let leg = *legs[node].get_or_insert_with(|| session.open().expect("there is room").0);
                    assert_eq!(leg, legs[node].unwrap_or(leg));
                    session.assign(leg);
                    if let Some(answer) = answers.get(nodes.chosen) {
                        nodes.says[node].extend_from_slice(answer);
                    }
                    nodes.chosen += 1;
                }
                ClientStep::Open => legs[0] = session.open().map(|(leg, _)| leg),
                ClientStep::Forward(leg, bytes) => {
                    let node = legs.iter().position(|known| *known == Some(leg)).expect("it was opened");
                    // No more than some at once, as there is little room.
                    let bytes = bytes.min(7);
                    nodes.told[node].extend_from_slice(&input[taken..taken + bytes]);
                    session.took(bytes);
                    taken += bytes;
                }
                ClientStep::Instead(leg, bytes, words) => {
                    let node = legs.iter().position(|known| *known == Some(leg)).expect("it was opened");
                    nodes.told[node].extend_from_slice(&words);
                    session.took_instead(leg, bytes);
                    taken += bytes;
                }
                ClientStep::Drop(bytes) => {
                    session.took(bytes);
                    taken += bytes;
                }
                ClientStep::Everywhere(bytes) => {
                    session.took_everywhere(&input[taken..taken + bytes]);
                    taken += bytes;
                }
                ClientStep::NeedMore | ClientStep::Wait | ClientStep::End => break,
            }
        }
        hear(&mut session, &mut nodes, &legs, &mut heard, piece)?;
    }
    Ok((nodes, heard))
}

fn hear(
    session: &mut Session,
    nodes: &mut Nodes,
    legs: &[Option<Leg>; 2],
    heard: &mut Vec<u8>,
    piece: usize,
) -> Result<(), Mistake> {
    for _ in 0..10_000 {
        let before = (heard.len(), nodes.says.each_ref().map(Vec::len));
        while let Some(words) = session.own_words() {
            heard.extend_from_slice(&words);
        }
        for (node, leg) in legs.iter().enumerate() {
            let Some(leg) = *leg else { continue };
            for seen in [piece, usize::MAX] {
                let says = &nodes.says[node][..nodes.says[node].len().min(seen)];
                let (NodeStep::Give(bytes) | NodeStep::Drop(bytes)) = session.node_step(leg, says)? else { continue };
                heard.extend(nodes.says[node].drain(..bytes));
                session.gave(leg, bytes);
                break;
            }
        }
        if before == (heard.len(), nodes.says.each_ref().map(Vec::len)) {
            return Ok(());
        }
    }
    panic!("it goes on for ever");
}

#[test]
fn what_goes_where_does_not_depend_on_how_it_comes() {
    for &protocol in Protocol::ALL {
        let (input, answers) = conversation(protocol);
        let (whole, all) = run(protocol, &input, &answers, input.len()).expect("it's right");
        assert_eq!(whole.told.concat().len(), input.len(), "{protocol}: all of it goes somewhere");
        assert_eq!(all.len(), answers.concat().len(), "{protocol}: all answers come");
        if protocol.is_separable() {
            assert!(whole.told.iter().all(|told| !told.is_empty()), "{protocol}: both are asked");
        }
        for piece in 1..input.len() {
            let (nodes, heard) = run(protocol, &input, &answers, piece).expect("it's right");
            assert_eq!(nodes.told, whole.told, "{protocol} by {piece}");
            assert_eq!(heard.len(), all.len(), "{protocol} by {piece}");
        }
        if protocol == Protocol::Redis {
            assert_eq!(all, answers.concat(), "in the order of the requests");
        }
    }
}

#[test]
fn a_head_is_too_long_however_it_comes() {
    let script = "x".repeat(LIMITS.head_bytes_max);
    let input = format!("PING\r\n*4\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n1\r\n$1\r\nk\r\n", script.len());
    let answers = [b"+PONG\r\n".to_vec(), b"+OK\r\n".to_vec()];
    for piece in [1, 1000, LIMITS.head_bytes_max, input.len()] {
        let (nodes, heard) = run(Protocol::Redis, input.as_bytes(), &answers, piece).expect("there are words for it");
        assert_eq!(nodes.told, [&b"PING\r\n"[..], b""], "by {piece}");
        let heard = String::from_utf8(heard).expect("it's text");
        assert!(
            heard.starts_with("+PONG\r\n-ERR Protocol error: ") && heard.contains("`head_size`"),
            "by {piece}: {heard}"
        );
    }
}

#[test]
fn no_byte_that_is_wrong_does_harm() {
    for &protocol in Protocol::ALL {
        let (input, answers) = conversation(protocol);
        for at in 0..input.len() {
            for wrong in [0, 0xff, b'9', input[at].wrapping_add(1)] {
                let mut input = input.clone();
                input[at] = wrong;
                // Whatever it says of it, it says something.
                let _ = run(protocol, &input, &answers, 5);
            }
        }
        for wrong in 0..answers.concat().len() {
            let mut answers = answers.clone();
            let mut at = wrong;
            if let Some(answer) = answers.iter_mut().find(|answer| {
                let is_in = at < answer.len();
                at -= if is_in { 0 } else { answer.len() };
                is_in
            }) {
                answer[at] ^= 0x51;
            }
            let _ = run(protocol, &input, &answers, 3);
        }
    }
}

#[test]
fn who_does_not_say_where_a_request_goes_is_refused_in_time() {
    for (protocol, endless) in [
        (Protocol::Http, b"GET /aaaaaaaa".repeat(500)),
        (Protocol::Redis, [b"*2\r\n$3\r\nGET\r\n$9999\r\n".to_vec(), b"a".repeat(5000)].concat()),
        (Protocol::Redis, b"PING aaaaaaaaa".repeat(500)),
        (Protocol::Iiop, [giop::tests::request_of(2, false, 1, true, &[b'k'; 5000])].concat()),
    ] {
        let mut session = Session::new(protocol, LIMITS, true);
        let step = session.client_step(&endless[..LIMITS.head_bytes_max], false);
        let is_told = session.mistake().is_some() && step == Ok(ClientStep::End);
        assert!(is_told || step.is_err(), "{protocol}");
    }
}

#[test]
fn what_is_said_to_all_nodes_is_said_to_those_that_come_later_too() {
    let mut session = Session::new(Protocol::Redis, LIMITS, true);
    let (select, get) = (&b"SELECT 3\r\n"[..], &b"GET a\r\n"[..]);
    assert_eq!(session.client_step(select, false), Ok(ClientStep::Open));
    let (first, prologue) = session.open().expect("there is room");
    assert_eq!(prologue, b"");
    assert_eq!(session.client_step(select, false), Ok(ClientStep::Everywhere(10)));
    session.took_everywhere(select);
    assert!(matches!(session.client_step(get, false), Ok(ClientStep::Choose(Some(_)))));
    let (second, prologue) = session.open().expect("there is room");
    assert_eq!(prologue, select);
    assert!(session.assign(second));
    assert_eq!(session.client_step(get, false), Ok(ClientStep::Forward(second, 7)));
    session.took(7);
    // The second's answer to what it was told first is for nobody, and its other one waits for the first node's.
    assert_eq!(session.node_step(second, b"+OK\r\n$1\r\n"), Ok(NodeStep::Drop(5)));
    assert!(!session.gave(second, 5));
    assert_eq!(session.node_step(second, b"$-1\r\n"), Ok(NodeStep::NotItsTurn));
    assert_eq!(session.node_step(first, b"+OK\r\n"), Ok(NodeStep::Give(5)));
    assert!(!session.gave(first, 5), "that was nobody's work");
    assert_eq!(session.node_step(second, b"$-1\r\n"), Ok(NodeStep::Give(5)));
    assert!(session.gave(second, 5) && !session.is_needed(second));
}

#[test]
fn who_says_the_same_to_all_nodes_again_and_again_is_not_cut() {
    let mut session = Session::new(Protocol::Redis, LIMITS, true);
    let (auth, selects) = (&b"AUTH x\r\n"[..], [&b"SELECT 1\r\n"[..], b"SELECT 2\r\n"]);
    assert_eq!(session.client_step(auth, false), Ok(ClientStep::Open));
    let (first, _) = session.open().expect("there is room");
    for said in std::iter::once(auth).chain(selects.into_iter().cycle().take(1001)).chain([auth]) {
        assert_eq!(session.client_step(said, false), Ok(ClientStep::Everywhere(said.len())));
        session.took_everywhere(said);
        assert_eq!(session.node_step(first, b"+OK\r\n"), Ok(NodeStep::Give(5)));
        session.gave(first, 5);
    }
    // Whoever comes later is told no more than it takes, in an order that means the same.
    let (second, prologue) = session.open().expect("there is room");
    assert_eq!(prologue, b"AUTH x\r\nSELECT 2\r\nSELECT 1\r\n");
    for _ in 0..3 {
        assert_eq!(session.node_step(second, b"+OK\r\n"), Ok(NodeStep::Drop(5)));
        session.gave(second, 5);
    }
    assert!(!session.is_needed(second) && session.node_step(second, b"+OK\r\n").is_err());
}

#[test]
fn what_is_no_request_is_dropped_and_nothing_waits_for_its_answer() {
    let mut session = Session::new(Protocol::Redis, LIMITS, true);
    assert_eq!(session.client_step(b"\r\n*0\r\n", true), Ok(ClientStep::Drop(2)));
    session.took(2);
    assert_eq!(session.client_step(b"*0\r\n", true), Ok(ClientStep::Drop(4)));
    session.took(4);
    assert_eq!(session.client_step(b"", true), Ok(ClientStep::NeedMore));
    assert!(session.is_idle() && session.requests() == 0);
}

#[test]
fn what_several_nodes_cannot_do_is_passed_on_where_one_has_the_connection() {
    for request in [&b"MULTI\r\n"[..], b"SUBSCRIBE news\r\n", b"*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n"] {
        let mut session = Session::new(Protocol::Redis, LIMITS, false);
        assert_eq!(session.client_step(request, false), Ok(ClientStep::Choose(None)));
        let leg = session.open().expect("there is room").0;
        assert!(session.assign(leg) && session.is_passing());
        assert_eq!(session.client_step(request, false), Ok(ClientStep::Forward(leg, request.len())));
    }
}

#[test]
fn what_no_node_has_heard_is_answered_where_none_is_found() {
    let mut session = Session::new(Protocol::Redis, LIMITS, true);
    let (select, get, half) = (&b"SELECT 3\r\n"[..], &b"GET a\r\n"[..], &b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n"[..]);
    assert_eq!(session.client_step(select, false), Ok(ClientStep::Open));
    let first = session.open().expect("there is room").0;
    assert_eq!(session.client_step(select, false), Ok(ClientStep::Everywhere(10)));
    session.took_everywhere(select);
    for said in [get, half] {
        assert!(matches!(session.client_step(said, false), Ok(ClientStep::Choose(Some(_)))));
        assert!(session.assign(first));
        assert_eq!(session.client_step(said, false), Ok(ClientStep::Forward(first, said.len())));
        session.took(said.len());
    }
    assert!(session.speaks_for_all(first) && session.refuse_all(first));
    assert!(!session.is_needed(first) && session.owed(first) == 0);
    assert_eq!(session.client_step(b"$1\r\nx\r\n", false), Ok(ClientStep::Drop(7)), "the rest is nobody's");
    session.took(7);
    for _ in 0..3 {
        assert!(session.own_words().expect("words").starts_with(b"-ERR leat: no node is up"));
    }
    assert!(session.is_idle() && session.own_words().is_none());
    // Who comes later isn't told what nobody has been told.
    assert_eq!(session.open().expect("there is room").1, b"");
    assert_eq!(session.client_step(select, false), Ok(ClientStep::Everywhere(10)));
    session.took_everywhere(select);
    let second = session.open().expect("there is room").0;
    assert!(!session.refuse_all(first), "another has been told");
    assert!(session.refuse_all(second), "and that one owes nothing");
    assert!(session.own_words().is_none());
}

#[test]
fn whose_answer_depends_on_others_is_told_apart_once_it_is_next() {
    let mut session = Session::new(Protocol::Redis, LIMITS, true);
    let (get, pop) = (&b"GET a\r\n"[..], &b"BLPOP a 0\r\n"[..]);
    let mut leg = None;
    for request in [get, pop] {
        assert!(matches!(session.client_step(request, false), Ok(ClientStep::Choose(Some(_)))));
        let leg = *leg.get_or_insert_with(|| session.open().expect("there is room").0);
        assert!(session.assign(leg));
        assert_eq!(session.client_step(request, false), Ok(ClientStep::Forward(leg, request.len())));
        session.took(request.len());
    }
    let leg = leg.expect("it was opened");
    assert_eq!((session.awaited(), session.owed(leg)), (None, 2), "its turn comes after another's");
    assert_eq!(session.node_step(leg, b"$-1\r\n"), Ok(NodeStep::Give(5)));
    assert!(session.gave(leg, 5));
    assert_eq!((session.awaited(), session.owed(leg)), (Some(leg), 1));
    assert_eq!(session.node_step(leg, b"*-1\r\n"), Ok(NodeStep::Give(5)));
    assert!(session.gave(leg, 5));
    assert_eq!((session.awaited(), session.owed(leg)), (None, 0));
}

#[test]
fn a_mistake_is_told_after_the_answers_that_are_owed() {
    let (get, half) = (&b"GET a\r\n"[..], &b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n"[..]);
    for begun in [&[get][..], &[get, half]] {
        let mut session = Session::new(Protocol::Redis, LIMITS, true);
        let mut leg = None;
        for said in begun {
            assert!(matches!(session.client_step(said, false), Ok(ClientStep::Choose(Some(_)))));
            let leg = *leg.get_or_insert_with(|| session.open().expect("there is room").0);
            assert!(session.assign(leg));
            assert_eq!(session.client_step(said, false), Ok(ClientStep::Forward(leg, said.len())));
            session.took(said.len());
        }
        let leg = leg.expect("it was opened");
        assert_eq!(session.client_step(b"!\r\n", false), Ok(ClientStep::End));
        assert!(session.mistake().is_some() && session.has_said_goodbye() && !session.is_idle());
        assert_eq!(session.given_up(), (begun.len() == 2).then_some(leg), "what was begun is nobody's work any more");
        assert_eq!((session.owed(leg), session.own_words()), (1, None), "another's turn comes first");
        assert_eq!(session.node_step(leg, b"$-1\r\n"), Ok(NodeStep::Give(5)));
        assert!(session.gave(leg, 5));
        let told = session.own_words().expect("words");
        assert!(told.starts_with(b"-ERR Protocol error: ") && told.ends_with(b"\r\n"), "{}", told.escape_ascii());
        assert!(session.is_idle() && !session.is_needed(leg));
    }
}

#[test]
fn a_mistake_in_a_request_whose_answer_has_begun_is_told_after_it() {
    let mut session = Session::new(Protocol::Redis, LIMITS, true);
    let half = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n";
    assert!(matches!(session.client_step(half, false), Ok(ClientStep::Choose(Some(_)))));
    let leg = session.open().expect("there is room").0;
    session.assign(leg);
    assert_eq!(session.client_step(half, false), Ok(ClientStep::Forward(leg, half.len())));
    session.took(half.len());
    // As a node may that wants no more of it.
    assert_eq!(session.node_step(leg, b"-ERR no\r\n"), Ok(NodeStep::Give(9)));
    assert!(!session.gave(leg, 4));
    assert_eq!(session.client_step(b"!\r\n", false), Ok(ClientStep::End));
    assert_eq!((session.given_up(), session.own_words()), (None, None));
    assert!(session.gave(leg, 5));
    assert!(session.own_words().is_some() && session.is_idle());
}
