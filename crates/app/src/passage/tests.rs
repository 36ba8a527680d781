//! What happens to a connection on its way when the other engine answers, refuses, dies, or says something wrong.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leat_host::channel;
use leat_logic::handoff::{PassageMessage, Verdict};

use super::*;
use crate::worker::control::Control;

/// A client and what the server has of it, as a worker gives it.
fn passenger() -> (TcpStream, Passenger) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = listener.accept().unwrap().0.into();
    let listener = "127.0.0.1:0".parse().unwrap();
    let (site, generation, image) = ("site".to_owned(), Some(Generation(3)), vec![1, 2, 3]);
    (client, Passenger { socket, file: None, listener, site, generation, worker: None, server: None, image })
}

/// The next message that `mailbox` gets.
fn next(mailbox: &Mailbox) -> Control {
    let start = Instant::now();
    loop {
        if let Some(message) = mailbox.take().pop() {
            return message;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "no message");
        std::thread::yield_now();
    }
}

fn mailbox() -> Arc<Mailbox> {
    Arc::new(Mailbox::new().unwrap())
}

#[test]
fn a_connection_goes_from_one_end_to_the_other() {
    let (old, new) = (mailbox(), mailbox());
    let (ours, theirs) = UnixStream::pair().unwrap();
    let doors = Arc::new(Doors::default());
    doors.set(vec![(0, new.clone())]);
    take(7, theirs, doors).unwrap();
    let passage = give(1, ours, vec![old.clone()]).unwrap();
    let (mut client, passenger) = passenger();
    assert!(passage.offer(passenger, old.clone()).is_none());
    let Control::Offered { passenger, key, answer } = next(&new) else { panic!("an offer") };
    assert_eq!((key.0, passenger.image.as_slice(), passenger.site.as_str()), (7, &[1, 2, 3][..], "site"));
    assert_eq!(passenger.generation, Some(Generation(3)));
    answer.say(Verdict::Taken);
    let Control::Begin { key: begun } = next(&new) else { panic!("it begins") };
    assert_eq!(begun, key);
    assert!(matches!(next(&old), Control::Passed));
    TcpStream::from(passenger.socket).write_all(b"hello").unwrap();
    let mut heard = String::new();
    client.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "hello", "the old engine has no descriptor of it left");
}

#[test]
fn what_is_refused_comes_back() {
    let (old, new) = (mailbox(), mailbox());
    let (ours, theirs) = UnixStream::pair().unwrap();
    let doors = Arc::new(Doors::default());
    take(1, theirs, doors.clone()).unwrap();
    let passage = give(1, ours, vec![old.clone()]).unwrap();
    let offer = || assert!(passage.offer(passenger().1, old.clone()).is_none());
    offer();
    assert!(
        matches!(next(&old), Control::Returned { verdict: Some(Verdict::Refused), .. }),
        "nobody takes connections"
    );
    doors.set(vec![(0, new.clone())]);
    for verdict in [Some(Verdict::Unwanted), Some(Verdict::Refused), None] {
        offer();
        let Control::Offered { answer, .. } = next(&new) else { panic!("an offer") };
        match verdict {
            Some(verdict) => answer.say(verdict),
            // The worker has ended before it looked.
            None => drop(answer),
        }
        let Control::Returned { number, verdict: heard, .. } = next(&old) else { panic!("it's back") };
        assert_eq!((number, heard), (1, verdict.or(Some(Verdict::Refused))));
    }
}

#[test]
fn an_engine_that_dies_with_an_offer_changes_nothing() {
    let old = mailbox();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let passage = give(3, ours, vec![old.clone()]).unwrap();
    let (mut client, passenger) = passenger();
    assert!(passage.offer(passenger, old.clone()).is_none());
    let offer = channel::receive_bytes(&theirs).unwrap().unwrap();
    assert_eq!(offer.descriptors.len(), 1);
    drop((offer, theirs));
    let mut messages = Vec::new();
    while messages.len() < 2 {
        messages.extend(old.take());
    }
    assert!(matches!(messages[0], Control::PassageEnded { number: 3 }));
    let Control::Returned { passenger, verdict: None, .. } = messages.remove(1) else { panic!("it's back") };
    TcpStream::from(passenger.socket).write_all(b"still here").unwrap();
    let mut heard = String::new();
    client.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "still here");
    // What comes too late comes back as well.
    assert!(passage.offer(self::passenger().1, old.clone()).is_none());
    assert!(matches!(next(&old), Control::Returned { .. }));
}

#[test]
fn it_ends_with_the_last_who_gives_once_all_is_settled() {
    let old = mailbox();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let passage = give(1, ours, vec![old.clone()]).unwrap();
    let another = passage.clone();
    assert!(passage.offer(passenger().1, old.clone()).is_none());
    drop((passage, another));
    assert!(channel::receive_bytes(&theirs).unwrap().is_some(), "the offer");
    channel::send_bytes(&theirs, &PassageMessage::Answer(vec![(1, Verdict::Taken)]).encode(), &[]).unwrap();
    let go = channel::receive_bytes(&theirs).unwrap().unwrap();
    assert_eq!(PassageMessage::decode(&go.bytes), Ok(PassageMessage::Go(vec![1])));
    assert!(channel::receive_bytes(&theirs).unwrap().is_none());
    assert!(matches!(next(&old), Control::Passed));
}

#[test]
fn an_end_that_makes_no_sense_is_given_nothing_more() {
    let old = mailbox();
    for wrong in [vec![9, 9], PassageMessage::Answer(vec![(77, Verdict::Taken)]).encode(), vec![]] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let passage = give(1, ours, vec![old.clone()]).unwrap();
        channel::send_bytes(&theirs, &wrong, &[]).unwrap();
        assert!(matches!(next(&old), Control::PassageEnded { number: 1 }), "{wrong:?}");
        assert!(passage.offer(passenger().1, old.clone()).is_none());
        assert!(matches!(next(&old), Control::Returned { .. }), "{wrong:?}");
    }
}

#[test]
fn what_was_not_let_go_of_is_dropped_untouched() {
    let new = mailbox();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let doors = Arc::new(Doors::default());
    doors.set(vec![(0, new.clone())]);
    take(2, theirs, doors).unwrap();
    let old = mailbox();
    let passage = give(1, ours, vec![old.clone()]).unwrap();
    assert!(passage.offer(passenger().1, old.clone()).is_none());
    let Control::Offered { key, answer, .. } = next(&new) else { panic!("an offer") };
    // The old engine is told of another new one before it hears the answer.
    passage.end();
    assert!(matches!(
        old_messages(&old).as_slice(),
        [Control::PassageEnded { .. }, Control::Returned { verdict: None, .. }]
    ));
    answer.say(Verdict::Taken);
    let Control::Withdraw { key: withdrawn } = next(&new) else { panic!("it's withdrawn") };
    assert_eq!(withdrawn, key);
}

fn old_messages(mailbox: &Mailbox) -> Vec<Control> {
    let (start, mut messages) = (Instant::now(), Vec::new());
    while messages.len() < 2 && start.elapsed() < Duration::from_secs(10) {
        messages.extend(mailbox.take());
    }
    messages
}
