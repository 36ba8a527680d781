//! Two ends of a link, and somebody between them.

use bytes::Bytes;

use super::super::{FlowId, Generation, Load};
use super::*;

const NOW: Instant = Instant { ns: 1 };

fn key(secret: u8) -> LinkKey {
    LinkKey::from_secret(&[secret; SECRET_BYTES_MIN]).unwrap()
}

struct Pair {
    left: LinkSession,
    right: LinkSession,
}

impl Pair {
    fn new(left: LinkKey, right: LinkKey) -> Pair {
        Pair {
            left: LinkSession::connect(NOW, ServerId(1), &left, [1; 32]).unwrap(),
            right: LinkSession::accept(NOW, ServerId(2), &right, [2; 32]).unwrap(),
        }
    }

    fn open() -> Pair {
        let mut pair = Pair::new(key(7), key(7));
        pair.exchange().unwrap();
        pair
    }

    /// Moves bytes until nobody has any more.
    fn exchange(&mut self) -> Result<(), LinkError> {
        loop {
            let (there, back) = (output(&mut self.left), output(&mut self.right));
            if there.is_empty() && back.is_empty() {
                return Ok(());
            }
            feed(&mut self.right, &there)?;
            feed(&mut self.left, &back)?;
        }
    }
}

fn output(session: &mut LinkSession) -> Vec<u8> {
    let mut out = Vec::new();
    session.poll_output(&mut out).unwrap();
    out
}

fn feed(session: &mut LinkSession, bytes: &[u8]) -> Result<(), LinkError> {
    assert_eq!(session.handle_input(bytes)?, bytes.len());
    Ok(())
}

fn heartbeat(number: u64) -> Message {
    Message::Heartbeat { number, load: Load::default() }
}

fn offer(length: usize) -> Message {
    let flow = FlowId { home: ServerId(1), serial: 5 };
    Message::Offer { flow, generation: Generation(1), image: Bytes::from(vec![9; length]), is_lent: false }
}

#[test]
fn messages_arrive_in_order_however_the_bytes_are_cut() {
    let mut pair = Pair::open();
    assert_eq!((pair.left.peer(), pair.right.peer()), (Some(ServerId(2)), Some(ServerId(1))));
    let sent: Vec<Message> = (0..300).map(heartbeat).chain([offer(200_000), heartbeat(300)]).collect();
    sent.iter().for_each(|message| pair.left.queue(message).unwrap());
    let bytes = output(&mut pair.left);
    // 300 messages and more than 200,000 bytes in four frames.
    let overhead = bytes.len() - sent.iter().map(|message| encoded(message).len()).sum::<usize>();
    assert_eq!(overhead, 4 * (2 + TAG_BYTES));
    let mut received = Vec::new();
    for piece in bytes.chunks(1_000) {
        feed(&mut pair.right, piece).unwrap();
        received.extend(std::iter::from_fn(|| pair.right.poll_message().unwrap()));
    }
    assert_eq!(received, sent);
    pair.right.queue(&heartbeat(1)).unwrap();
    pair.exchange().unwrap();
    assert_eq!(pair.left.poll_message(), Ok(Some(heartbeat(1))));
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

#[test]
fn who_doesnt_know_the_key_gets_nowhere() {
    let mut pair = Pair::new(key(7), key(8));
    pair.left.queue(&heartbeat(1)).unwrap();
    assert_eq!(pair.exchange(), Err(LinkError::Unproved));
    assert_eq!((pair.left.peer(), pair.right.peer()), (None, None));
    assert_eq!(output(&mut pair.right), []);
    assert_eq!(pair.right.handle_input(&[0, 1, 2]), Err(LinkError::Ended));
    assert!(LinkKey::from_secret(&[1; SECRET_BYTES_MIN - 1]).is_none());
}

#[test]
fn a_handshake_that_is_replayed_opens_nothing() {
    let mut pair = Pair::new(key(7), key(7));
    let first = output(&mut pair.left);
    feed(&mut pair.right, &first).unwrap();
    let answer = output(&mut pair.right);
    feed(&mut pair.left, &answer).unwrap();
    pair.left.queue(&heartbeat(1)).unwrap();
    let rest = output(&mut pair.left);
    feed(&mut pair.right, &rest).unwrap();
    assert_eq!(pair.right.poll_message(), Ok(Some(heartbeat(1))));

    // All of it again, to a server that draws other random numbers.
    let mut again = LinkSession::accept(NOW, ServerId(2), &key(7), [3; 32]).unwrap();
    feed(&mut again, &first).unwrap();
    assert_eq!(again.peer(), None);
    assert_eq!(again.handle_input(&rest), Err(LinkError::Unproved));
    assert_eq!(again.poll_message(), Ok(None));
}

#[test]
fn a_server_doesnt_talk_with_itself() {
    let mut left = LinkSession::connect(NOW, ServerId(1), &key(7), [1; 32]).unwrap();
    let mut right = LinkSession::accept(NOW, ServerId(1), &key(7), [2; 32]).unwrap();
    assert_eq!(right.handle_input(&output(&mut left)), Err(LinkError::Itself(1)));
}

#[test]
fn every_changed_bit_of_a_handshake_is_noticed() {
    let first = output(&mut Pair::new(key(7), key(7)).left);
    for bit in 0..first.len() * 8 {
        let mut changed = first.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let mut right = LinkSession::accept(NOW, ServerId(2), &key(7), [2; 32]).unwrap();
        // A changed length may ask for more bytes than ever come.
        let result = right.handle_input(&changed);
        assert!(result.is_err() || output(&mut right).is_empty(), "bit {bit}");
        assert_eq!(right.peer(), None);
    }
}

#[test]
fn a_frame_that_isnt_the_next_ends_the_link() {
    let frame = |pair: &mut Pair, number| {
        pair.left.queue(&heartbeat(number)).unwrap();
        output(&mut pair.left)
    };
    // Changed, cut short, replayed, left out, taken from another connection.
    type Attack = fn(&[u8], &[u8]) -> Vec<u8>;
    let attacks: [(&str, Attack); 5] = [
        ("changed", |_, next| next.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 9)).collect()),
        ("shortened", |_, next| [&[0, next[1] - 1], &next[2..next.len() - 1]].concat()),
        ("replayed", |before, _| before.to_vec()),
        ("empty", |_, _| vec![0, 0]),
        ("made up", |_, _| [&[0, 32][..], &[5; 32]].concat()),
    ];
    for (name, attack) in attacks {
        let mut pair = Pair::open();
        let before = frame(&mut pair, 1);
        feed(&mut pair.right, &before).unwrap();
        let next = frame(&mut pair, 2);
        assert_eq!(pair.right.handle_input(&attack(&before, &next)), Err(LinkError::Forged), "{name}");
        assert_eq!((pair.right.peer(), pair.right.poll_message()), (None, Ok(None)), "{name}");
    }
    let mut pair = Pair::open();
    frame(&mut pair, 1);
    let second = frame(&mut pair, 2);
    assert_eq!(pair.right.handle_input(&second), Err(LinkError::Forged), "left out");
}

#[test]
fn what_isnt_taken_is_bounded() {
    let mut pair = Pair::open();
    while pair.left.queue(&offer(1 << 20)).is_ok() {}
    assert_eq!(pair.left.queue(&heartbeat(1)), Err(LinkError::Ended));

    let mut pair = Pair::open();
    for _ in 0..12 {
        pair.left.queue(&offer(1 << 20)).unwrap();
    }
    let bytes = output(&mut pair.left);
    let taken = pair.right.handle_input(&bytes).unwrap();
    assert!(taken < bytes.len() && pair.right.inbox.len() < LINK_INBOX_BYTES_MAX + FRAME_BYTES_MAX);
    let mut left = &bytes[taken..];
    let mut count = 0;
    while count < 12 {
        if pair.right.poll_message().unwrap().is_some() {
            count += 1;
        } else {
            left = &left[pair.right.handle_input(left).unwrap()..];
        }
    }
    assert!(left.is_empty());
}

#[test]
fn nobody_may_take_forever() {
    let mut session = LinkSession::accept(NOW, ServerId(2), &key(7), [2; 32]).unwrap();
    let due = session.poll_timeout();
    assert_eq!(session.handle_timeout(NOW), Ok(()));
    assert_eq!(session.handle_timeout(due), Err(LinkError::Timeout));
    assert_eq!(Pair::open().left.poll_timeout(), Instant::NEVER);
}
