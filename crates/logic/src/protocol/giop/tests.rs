//! Messages as CORBA programs write them, in every version and byte order: whose they are, and where they end.

use super::super::{Answers, ClientStep, Leg, NodeStep, Protocol, Session};
use super::*;

/// Writes values as [`Reader`] reads them.
struct Writer {
    out: Vec<u8>,
    is_little: bool,
}

impl Writer {
    fn message(kind: u8, minor: u8, is_little: bool, has_followers: bool, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let flags = u8::from(is_little) | u8::from(has_followers) << 1;
        let mut writer = Writer { out: [&b"GIOP\x01"[..], &[minor, flags, kind], &[0; 4]].concat(), is_little };
        body(&mut writer);
        let size = writer.out.len() as u32 - 12;
        writer.out[8..12].copy_from_slice(&if is_little { size.to_le_bytes() } else { size.to_be_bytes() });
        writer.out
    }

    fn align(&mut self, to: usize) {
        self.out.resize(self.out.len().next_multiple_of(to), 0);
    }

    fn long(&mut self, value: u32) {
        self.align(4);
        self.out.extend_from_slice(&if self.is_little { value.to_le_bytes() } else { value.to_be_bytes() });
    }

    fn short(&mut self, value: u16) {
        self.align(2);
        self.out.extend_from_slice(&if self.is_little { value.to_le_bytes() } else { value.to_be_bytes() });
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.long(bytes.len() as u32);
        self.out.extend_from_slice(bytes);
    }
}

/// A request for `echo` of an object.
pub(in crate::protocol) fn request_of(minor: u8, is_little: bool, id: u32, is_answered: bool, key: &[u8]) -> Vec<u8> {
    Writer::message(0, minor, is_little, false, |writer| {
        if minor < 2 {
            writer.long(1);
            writer.long(17);
            writer.bytes(b"abc");
            writer.long(id);
            writer.out.push(u8::from(is_answered));
            writer.out.extend_from_slice(&[0; 3][..if minor == 1 { 3 } else { 0 }]);
        } else {
            writer.long(id);
            writer.out.extend_from_slice(&[if is_answered { 3 } else { 0 }, 0, 0, 0]);
            writer.short(0);
        }
        writer.bytes(key);
        writer.bytes(b"echo\0");
        writer.out.extend_from_slice(b"whatever");
    })
}

/// An answer of a server to a request.
pub(in crate::protocol) fn reply_of(minor: u8, is_little: bool, id: u32, has_followers: bool) -> Vec<u8> {
    Writer::message(1, minor, is_little, has_followers, |writer| {
        if minor < 2 {
            writer.long(0);
        }
        writer.long(id);
        writer.long(0);
        writer.out.extend_from_slice(b"result");
    })
}

fn fragment(minor: u8, id: u32, has_followers: bool) -> Vec<u8> {
    Writer::message(7, minor, false, has_followers, |writer| {
        if minor == 2 {
            writer.long(id);
        }
        writer.out.extend_from_slice(b"more");
    })
}

fn parser() -> Giop {
    let limits = Limits { head_bytes_max: 4096, first_bytes: 0 };
    Giop { limits, left: 0, fragmented: None, code_sets: None, has_begun: false }
}

fn begin(input: &[u8]) -> Result<Option<Request<'_>>, Mistake> {
    Ok(match parser().begin(input, false)? {
        Begin::NeedMore | Begin::Nothing(_) => None,
        Begin::Request(request) => Some(request),
    })
}

#[test]
fn a_request_goes_by_its_object_key_in_every_version_and_byte_order() {
    for minor in 0..3 {
        for is_little in [false, true] {
            for is_answered in [false, true] {
                let message = request_of(minor, is_little, 7, is_answered, b"the key");
                let request = begin(&message).expect("it's GIOP").expect("it's whole");
                let facts = Facts { method: b"echo", path: b"the key", ..Facts::default() };
                assert_eq!(request.scope, Scope::Content(facts), "1.{minor}");
                assert_eq!((request.id, request.is_answered, request.has_followers), (Some(7), is_answered, false));
                for end in 0..message.len() - 8 {
                    assert_eq!(begin(&message[..end]), Ok(None), "1.{minor}, {end} bytes");
                }
            }
        }
    }
}

#[test]
fn a_target_may_be_a_profile_or_a_reference() {
    let profile = |is_little: bool| {
        let mut writer = Writer { out: vec![u8::from(is_little), 1, 2], is_little };
        writer.bytes(b"host\0");
        writer.short(2809);
        writer.bytes(b"inner");
        writer.out
    };
    let with = |target: &dyn Fn(&mut Writer)| {
        Writer::message(0, 2, true, false, |writer| {
            writer.long(1);
            writer.out.extend_from_slice(&[3, 0, 0, 0]);
            target(writer);
            writer.bytes(b"op\0");
        })
    };
    let by_profile = with(&|writer| {
        writer.short(1);
        writer.long(0);
        writer.bytes(&profile(false));
    });
    let by_reference = with(&|writer| {
        writer.short(2);
        writer.long(1);
        writer.bytes(b"IDL:Echo:1.0\0");
        writer.long(2);
        writer.long(5);
        writer.bytes(b"other");
        writer.long(0);
        writer.bytes(&profile(true));
    });
    for message in [by_profile, by_reference] {
        let request = begin(&message).expect("it's GIOP").expect("it's whole");
        assert_eq!(request.scope, Scope::Content(Facts { method: b"op", path: b"inner", ..Facts::default() }));
    }
}

#[test]
fn what_follows_a_request_names_it_or_comes_at_once() {
    let mut parser = parser();
    let mut scope = |message: &[u8]| match parser.begin(message, false) {
        Ok(Begin::Request(request)) => Ok((format!("{:?}", request.scope), request.has_followers)),
        Ok(Begin::NeedMore | Begin::Nothing(_)) => panic!("it's whole"),
        Err(mistake) => Err(mistake),
    };
    assert_eq!(scope(&fragment(2, 9, false)), Ok(("Follows(9)".to_owned(), false)));
    assert_eq!(scope(&fragment(1, 0, false)), Err(NOT_GIOP), "nothing goes before it");
    let mut first = request_of(1, false, 5, true, b"k");
    first[6] |= 2;
    assert!(scope(&first).is_ok_and(|(_, has_followers)| has_followers));
    assert_eq!(scope(&fragment(1, 0, true)), Ok(("Follows(5)".to_owned(), true)));
    assert_eq!(scope(&fragment(1, 0, false)), Ok(("Follows(5)".to_owned(), false)));
    assert_eq!(scope(&fragment(1, 0, false)), Err(NOT_GIOP), "that was the last");
    let cancel = Writer::message(2, 0, false, false, |writer| writer.long(3));
    assert_eq!(scope(&cancel), Ok(("Cancels(3)".to_owned(), false)));
    let locate = Writer::message(3, 0, false, false, |writer| {
        writer.long(4);
        writer.bytes(b"k");
    });
    assert!(scope(&locate).is_ok_and(|(scope, _)| scope.starts_with("Content")));
    assert_eq!(scope(b"GIOP\x01\x00\x00\x05\0\0\0\0"), Ok(("Ends([])".to_owned(), false)));
}

#[test]
fn answers_say_whose_they_are_with_their_last_byte() {
    for minor in 0..3 {
        for piece in [1, 5, 1000] {
            let input = reply_of(minor, true, 77, false);
            let (mut answering, mut taken, mut answered) = (Answering::default(), 0, None);
            for end in (1..=input.len()).filter(|end| end % piece == 0 || *end == input.len()) {
                let answer = answering.go_on(&input[taken..end]).expect("it's GIOP");
                taken += answer.piece.bytes;
                assert_eq!(answer.piece.is_last, taken == input.len());
                answered = answer.id;
            }
            assert_eq!(answered, Some(77), "1.{minor} by {piece}");
        }
    }
    let mut answering = Answering::default();
    let mut id = |message: &[u8]| answering.go_on(message).map(|answer| (answer.is_aside, answer.id));
    for minor in [1, 2] {
        assert_eq!(id(&reply_of(minor, false, 8, true)), Ok((false, None)));
        assert_eq!(id(&fragment(minor, 8, true)), Ok((false, None)));
        assert_eq!(id(&fragment(minor, 8, false)), Ok((false, Some(8))));
    }
    assert_eq!(id(b"GIOP\x01\x02\x00\x05\0\0\0\0"), Ok((true, None)));
    assert!(id(&request_of(2, false, 1, true, b"k")).is_err(), "it calls back");
}

#[test]
fn fragments_that_name_nobody_follow_what_they_go_on_with() {
    for minor in [1, 2] {
        let limits = Limits { head_bytes_max: 4096, first_bytes: 0 };
        let mut session = Session::new(Protocol::Iiop, limits, true);
        for id in 0..2 {
            let request = request_of(minor, false, id, true, b"k");
            assert!(matches!(session.client_step(&request, false), Ok(ClientStep::Choose(Some(_)))));
            let leg = session.open().expect("there is room").0;
            assert!(session.assign(leg));
            session.client_step(&request, false).expect("it's GIOP");
            session.took(request.len());
        }
        let (first, second) = (reply_of(minor, false, 0, true), reply_of(minor, false, 1, false));
        assert_eq!(session.node_step(0, &first), Ok(NodeStep::Give(first.len())));
        assert!(!session.gave(0, first.len()));
        let others = if minor == 1 { NodeStep::NotItsTurn } else { NodeStep::Give(second.len()) };
        assert_eq!(session.node_step(1, &second), Ok(others), "1.{minor}");
        if minor == 2 {
            assert!(session.gave(1, second.len()));
        }
        let rest = fragment(minor, 0, false);
        assert_eq!(session.node_step(0, &rest), Ok(NodeStep::Give(rest.len())));
        assert!(session.gave(0, rest.len()), "that was the last");
        if minor == 1 {
            assert_eq!(session.node_step(1, &second), Ok(NodeStep::Give(second.len())));
            assert!(session.gave(1, second.len()));
        }
        assert!(session.is_idle());
    }
}

#[test]
fn what_is_given_up_is_waited_for_no_more_and_passed_on_if_it_comes() {
    let limits = Limits { head_bytes_max: 4096, first_bytes: 0 };
    for minor in 0..3 {
        let mut session = Session::new(Protocol::Iiop, limits, true);
        let request = request_of(minor, false, 3, true, b"k");
        assert!(matches!(session.client_step(&request, false), Ok(ClientStep::Choose(Some(_)))));
        let leg = session.open().expect("there is room").0;
        assert!(session.assign(leg));
        session.client_step(&request, false).expect("it's GIOP");
        session.took(request.len());
        assert_eq!((session.owed(leg), session.given_up()), (1, None));
        let cancel = Writer::message(2, minor, false, false, |writer| writer.long(3));
        assert_eq!(session.client_step(&cancel, false), Ok(ClientStep::Forward(leg, cancel.len())));
        assert_eq!(session.owed(leg), 1, "until that is heard");
        assert_eq!((session.given_up(), session.owed(leg)), (Some(leg), 0));
        session.took(cancel.len());
        assert!(session.is_idle() && !session.is_needed(leg));
        // Again, and there is nothing left that it could be of.
        assert_eq!(session.client_step(&cancel, false), Ok(ClientStep::Drop(cancel.len())));
        session.took(cancel.len());
        assert_eq!(session.given_up(), None);
        let reply = reply_of(minor, false, 3, false);
        let (first, rest) = reply.split_at(20);
        assert_eq!(session.node_step(leg, first), Ok(NodeStep::Give(20)));
        assert!(!session.gave(leg, 20) && !session.is_idle(), "what begins ends too");
        assert_eq!(session.node_step(leg, rest), Ok(NodeStep::Give(rest.len())));
        assert!(!session.gave(leg, rest.len()) && session.is_idle());
    }
}

#[test]
fn a_node_s_end_is_told_to_who_waits_for_it_alone() {
    const CLOSE: &[u8] = b"GIOP\x01\x02\x00\x05\0\0\0\0";
    let limits = Limits { head_bytes_max: 4096, first_bytes: 0 };
    // Of two nodes, each is asked so many times.
    for (asked, is_told) in [([1, 0], true), ([0, 1], false), ([2, 1], false), ([0, 0], false)] {
        let mut session = Session::new(Protocol::Iiop, limits, true);
        let legs = [(); 2].map(|()| session.open().expect("there is room").0);
        let request = |session: &mut Session, id: u32, leg: Leg| {
            let request = request_of(2, false, id, true, b"k");
            assert!(matches!(session.client_step(&request, false), Ok(ClientStep::Choose(Some(_)))));
            assert!(session.assign(leg));
            session.client_step(&request, false).expect("it's GIOP");
            session.took(request.len());
        };
        let mut id = 0;
        for (&leg, times) in legs.iter().zip(asked) {
            (0..times).for_each(|_| {
                id += 1;
                request(&mut session, id, leg);
            });
        }
        let step = if is_told { NodeStep::Give(12) } else { NodeStep::Drop(12) };
        assert_eq!(session.node_step(legs[0], CLOSE), Ok(step), "{asked:?}");
        assert!(session.is_closing(legs[0]) && !session.gave(legs[0], 12));
        assert_eq!(session.has_said_goodbye(), is_told);
        assert_eq!(session.is_needed(legs[0]), !is_told && asked[0] > 0);
        assert_eq!(session.is_idle(), is_told || asked == [0, 0]);
        assert_eq!(session.owed(legs[0]), asked[0], "it's the node's work until the leg is closed");
        if is_told {
            assert_eq!(session.client_step(&request_of(2, false, 9, true, b"k"), false), Ok(ClientStep::End));
        }
    }
}

/// A request with contexts, and a body that begins at a multiple of eight.
fn request_with(minor: u8, is_little: bool, contexts: &[(u32, &[u8])]) -> Vec<u8> {
    Writer::message(0, minor, is_little, false, |writer| {
        let write = |writer: &mut Writer| {
            writer.long(contexts.len() as u32);
            contexts.iter().for_each(|(id, said)| {
                writer.long(*id);
                writer.bytes(said);
            });
        };
        if minor < 2 {
            write(writer);
        }
        writer.long(7);
        writer.out.extend_from_slice(&[3, 0, 0, 0]);
        if minor == 2 {
            writer.short(0);
        }
        writer.bytes(b"key");
        writer.bytes(b"echo\0");
        if minor == 2 {
            write(writer);
        }
        writer.align(8);
        writer.out.extend_from_slice(b"the body");
    })
}

#[test]
fn each_node_is_told_which_code_sets_a_client_uses() {
    let said = [0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1, 9];
    let padded = [&said[..], &[0; 4]].concat();
    for minor in 1..3 {
        for is_little in [false, true] {
            for others in [&[][..], &[(17, &b"abc"[..])]] {
                let limits = Limits { head_bytes_max: 4096, first_bytes: 0 };
                let mut session = Session::new(Protocol::Iiop, limits, true);
                let first = request_with(minor, !is_little, &[(17, b"abc"), (CODE_SETS, &said)]);
                let later = request_with(minor, is_little, others);
                // Two nodes are asked twice each; the second one is told with the first request that it gets.
                let legs = [(); 2].map(|()| session.open().expect("there is room").0);
                let mut told = Vec::new();
                for (request, leg) in [(&first, legs[0]), (&later, legs[0]), (&later, legs[1]), (&later, legs[1])] {
                    assert!(matches!(session.client_step(request, false), Ok(ClientStep::Choose(Some(_)))));
                    assert!(session.assign(leg));
                    let mut message = Vec::new();
                    let mut rest = &request[..];
                    if let Ok(ClientStep::Instead(to, bytes, words)) = session.client_step(rest, false) {
                        assert_eq!(to, leg);
                        message = words;
                        session.took_instead(leg, bytes);
                        rest = &rest[bytes..];
                    }
                    assert_eq!(session.client_step(rest, false), Ok(ClientStep::Forward(leg, rest.len())));
                    session.took(rest.len());
                    message.extend_from_slice(rest);
                    told.push(message);
                }
                let with_code_sets = [&[(CODE_SETS, &padded[..])][..], others].concat();
                let introduced = request_with(minor, is_little, &with_code_sets);
                assert_eq!(told, [first, later.clone(), introduced, later], "1.{minor}");
            }
        }
    }
}

#[test]
fn what_is_known_of_a_client_is_learned_elsewhere() {
    let said = [0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1, 9];
    let later = request_with(2, true, &[]);
    for first in [request_with(2, false, &[(CODE_SETS, &said)]), request_with(2, false, &[])] {
        let [mut here, mut there] = [parser(), parser()];
        assert!(matches!(here.begin(&first, false), Ok(Begin::Request(_))));
        there.learn(&here.knows().unwrap());
        assert_eq!(there.introduce(&later), here.introduce(&later));
        assert_eq!((there.has_begun, there.code_sets.clone()), (here.has_begun, here.code_sets.clone()));
    }
}

#[test]
fn who_says_nothing_of_code_sets_is_passed_on_as_it_is() {
    let limits = Limits { head_bytes_max: 4096, first_bytes: 0 };
    for minor in 0..3 {
        let mut session = Session::new(Protocol::Iiop, limits, true);
        for _ in 0..2 {
            let request = request_of(minor, false, 1, true, b"k");
            assert!(matches!(session.client_step(&request, false), Ok(ClientStep::Choose(Some(_)))));
            let leg = session.open().expect("there is room").0;
            assert!(session.assign(leg));
            assert_eq!(session.client_step(&request, false), Ok(ClientStep::Forward(leg, request.len())));
            session.took(request.len());
        }
    }
}

#[test]
fn what_isn_t_giop_is_told_at_its_first_wrong_byte() {
    for input in [
        &b"H"[..],
        b"GIOX",
        b"GIOP\x02\0\0\0\0\0\0\0",
        b"GIOP\x01\x03\0\0\0\0\0\0",
        b"GIOP\x01\x00\x02\0\0\0\0\0",
        b"GIOP\x01\x00\0\x07\0\0\0\0",
        b"GIOP\x01\x00\0\0\xff\0\0\0",
        b"GIOP\x01\x02\0\x01\0\0\0\0",
    ] {
        assert!(matches!(begin(input), Err(Mistake::Client(_))), "{input:?}");
    }
    assert_eq!(begin(b"GIOP\x01\x02\0\0\0\0\0\x04\0\0\0\x01"), Err(MALFORMED), "it ends before its head does");
}

use answer::Answering;
