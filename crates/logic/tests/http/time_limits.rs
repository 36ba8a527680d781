//! Time-outs of a connection, with a clock that the tests set.

use leat_logic::http::{AfterReply, Connection, EndOfInput, Expired, Limits, Persistence, Progress, RejectReason};
use leat_logic::time::Instant;
use std::time::Duration;

const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n";

fn at(seconds: u64) -> Instant {
    Instant::default().after(Duration::from_secs(seconds))
}

fn limits() -> Limits {
    Limits {
        head_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(75),
        stall_timeout: Duration::from_secs(30),
        body_rate_min: 0,
        linger_timeout: Duration::from_secs(2),
        ..Limits::default()
    }
}

fn expect_request(connection: &mut Connection, now: u64, input: &[u8]) {
    let (consumed, progress) = connection.handle_input(at(now), input, &limits());
    assert!(matches!(progress, Progress::Request(_)), "{progress:?}");
    assert_eq!(consumed, input.len());
}

fn expect_more_wanted(connection: &mut Connection, now: u64, input: &[u8]) {
    let (_, progress) = connection.handle_input(at(now), input, &limits());
    assert!(matches!(progress, Progress::NeedInput), "{progress:?}");
}

/// The deadline is `seconds`, and not a nanosecond earlier.
fn expect_expiry(connection: &mut Connection, seconds: u64, expired: Expired) {
    assert_eq!(connection.poll_timeout(&limits()), at(seconds));
    let just_before = Instant { ns: at(seconds).ns - 1 };
    assert_eq!(connection.handle_timeout(just_before, &limits()), None);
    assert_eq!(connection.handle_timeout(at(seconds), &limits()), Some(expired));
}

#[test]
fn a_client_that_says_nothing_is_left_in_silence() {
    let mut connection = Connection::new(at(100));
    expect_more_wanted(&mut connection, 105, b"\r\n");
    expect_expiry(&mut connection, 110, Expired::Idle);
    assert_eq!(connection.poll_timeout(&limits()), Instant::NEVER);
}

#[test]
fn a_slow_first_head_counts_from_accept() {
    let mut connection = Connection::new(at(100));
    for now in 101..110 {
        let sent = usize::try_from(now - 100).expect("small");
        expect_more_wanted(&mut connection, now, &HEAD[..sent]);
    }
    expect_expiry(&mut connection, 110, Expired::Late(RejectReason::HeadTimeout.into()));
    // The answer goes out, then the client may read it.
    assert_eq!(connection.reply(at(110), &limits(), false), Persistence::Close);
    assert_eq!(connection.handle_reply_sent(at(111)), AfterReply::Close { linger: true });
    expect_more_wanted(&mut connection, 112, HEAD);
    expect_expiry(&mut connection, 114, Expired::Linger);
}

#[test]
fn who_still_sends_after_the_last_reply_is_listened_to_for_half_a_minute() {
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, POST);
    connection.reply(at(2), &limits(), true);
    assert_eq!(connection.handle_reply_sent(at(3)), AfterReply::Close { linger: true });
    // Often enough that each pause alone is less than is counted.
    let step = Duration::from_micros(400);
    let mut now = at(3);
    while now < at(32) {
        assert_eq!(connection.handle_timeout(now, &limits()), None);
        assert!(matches!(connection.handle_input(now, b"content", &limits()), (7, Progress::NeedInput)));
        now = now.after(step);
    }
    assert_eq!(connection.waits_since(), Some(at(3)), "its place can be had all the same");
    expect_expiry(&mut connection, 33, Expired::Linger);
}

#[test]
fn a_close_waits_for_the_clients_end_where_that_is_wanted() {
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(!connection.linger(at(2)), "its reply isn't out");
    connection.reply(at(2), &limits(), false);
    assert_eq!(connection.handle_reply_sent(at(3)), AfterReply::Close { linger: false });
    assert!(connection.linger(at(3)));
    expect_more_wanted(&mut connection, 4, HEAD);
    expect_expiry(&mut connection, 6, Expired::Linger);
}

#[test]
fn a_slow_later_head_counts_from_its_first_byte() {
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, HEAD);
    assert_eq!(connection.poll_timeout(&limits()), Instant::NEVER);
    connection.reply(at(2), &limits(), false);
    assert_eq!(connection.handle_reply_sent(at(3)), AfterReply::NextRequest);
    assert!(connection.is_idle());
    assert_eq!(connection.poll_timeout(&limits()), at(78));
    // An empty line begins no head.
    expect_more_wanted(&mut connection, 40, b"\r\n");
    assert_eq!(connection.poll_timeout(&limits()), at(78));
    expect_more_wanted(&mut connection, 50, b"G");
    assert!(!connection.is_idle());
    expect_more_wanted(&mut connection, 55, b"GE");
    expect_expiry(&mut connection, 60, Expired::Late(RejectReason::HeadTimeout.into()));
}

#[test]
fn an_idle_connection_is_closed_in_silence() {
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, HEAD);
    connection.reply(at(2), &limits(), false);
    connection.handle_reply_sent(at(3));
    expect_expiry(&mut connection, 78, Expired::Idle);
    // As after a last reply: what is on its way then must not reset the connection.
    assert!(connection.is_lingering());
    expect_expiry(&mut connection, 80, Expired::Linger);
    assert_eq!(connection.poll_timeout(&limits()), Instant::NEVER);
}

#[test]
fn a_body_that_stalls_is_refused() {
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, POST);
    assert_eq!(connection.poll_timeout(&limits()), at(31));
    let (consumed, progress) = connection.handle_input(at(20), b"abc", &limits());
    assert!(matches!((consumed, progress), (3, Progress::Body(b"abc"))));
    expect_more_wanted(&mut connection, 25, b"");
    expect_expiry(&mut connection, 50, Expired::Late(RejectReason::BodyTimeout.into()));
    assert_eq!(connection.reply(at(50), &limits(), false), Persistence::Close);
    assert_eq!(connection.handle_reply_sent(at(51)), AfterReply::Close { linger: true });
}

#[test]
fn a_body_must_keep_the_least_rate_one_second_with_another() {
    let slow = Limits { body_rate_min: 2, body_bytes_max: 1 << 20, ..limits() };
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";
    for (bytes, refused_at) in [(1, Some(59)), (2, None), (3, None)] {
        let mut connection = Connection::new(at(0));
        connection.handle_input(at(0), head, &slow);
        let expired = (1..=300).find(|&second| {
            let is_late = connection.handle_timeout(at(second), &slow);
            assert!(matches!(is_late, None | Some(Expired::Late(_))));
            connection.handle_input(at(second), &b"abc"[..bytes], &slow);
            is_late.is_some()
        });
        assert_eq!(expired, refused_at, "{bytes} a second");
    }
    // A burst is no credit for later.
    let mut connection = Connection::new(at(0));
    connection.handle_input(at(0), head, &slow);
    connection.handle_input(at(1), &[b'x'; 500], &slow);
    assert_eq!(connection.poll_timeout(&slow), at(31));
}

#[test]
fn a_body_that_is_discarded_must_keep_the_rate_too() {
    let slow = Limits { body_rate_min: 2, ..limits() };
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, POST);
    connection.reply(at(2), &slow, false);
    assert_eq!(connection.handle_reply_sent(at(2)), AfterReply::DrainBody);
    connection.handle_input(at(20), b"abcd", &slow);
    assert_eq!(connection.poll_timeout(&slow), at(34));
}

#[test]
fn a_reply_that_nobody_takes_is_cut() {
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, HEAD);
    // Our own slowness is not the client's.
    assert_eq!(connection.handle_timeout(at(1_000_000), &limits()), None);
    connection.reply(at(1_000_000), &limits(), false);
    connection.handle_transmit_progress(at(1_000_010));
    expect_expiry(&mut connection, 1_000_040, Expired::Stalled);
}

#[test]
fn a_drained_body_that_stalls_is_cut() {
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, POST);
    connection.reply(at(2), &limits(), false);
    assert_eq!(connection.handle_reply_sent(at(3)), AfterReply::DrainBody);
    expect_more_wanted(&mut connection, 4, b"abc");
    expect_expiry(&mut connection, 34, Expired::Stalled);
}

#[test]
fn a_half_closed_client_gets_every_answer() {
    let mut connection = Connection::new(at(0));
    let two = [HEAD, HEAD].concat();
    let (consumed, progress) = connection.handle_input(at(1), &two, &limits());
    assert!(matches!(progress, Progress::Request(_)));
    assert_eq!(connection.handle_end_of_input(), EndOfInput::AnswerFirst);
    connection.reply(at(2), &limits(), false);
    assert_eq!(connection.handle_reply_sent(at(3)), AfterReply::NextRequest);
    expect_request(&mut connection, 4, &two[consumed..]);
    connection.reply(at(5), &limits(), false);
    assert_eq!(connection.handle_reply_sent(at(6)), AfterReply::NextRequest);
    let (_, progress) = connection.handle_input(at(7), b"", &limits());
    assert!(matches!(progress, Progress::Ended));
}

#[test]
fn a_head_that_a_half_closed_client_left_unfinished_ends_it() {
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, HEAD);
    assert_eq!(connection.handle_end_of_input(), EndOfInput::AnswerFirst);
    connection.reply(at(2), &limits(), false);
    connection.handle_reply_sent(at(3));
    let (_, progress) = connection.handle_input(at(7), b"GET / HT", &limits());
    assert!(matches!(progress, Progress::Ended));
}

#[test]
fn a_body_cut_off_while_the_reply_is_under_way_ends_after_it() {
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, POST);
    assert_eq!(connection.reply(at(2), &limits(), false), Persistence::Persistent);
    assert_eq!(connection.handle_end_of_input(), EndOfInput::AnswerFirst);
    assert_eq!(connection.handle_reply_sent(at(3)), AfterReply::Close { linger: false });
}

#[test]
fn a_chunk_that_breaks_while_the_reply_is_under_way_ends_after_it() {
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(connection.reply(at(2), &limits(), false), Persistence::Persistent);
    expect_more_wanted(&mut connection, 3, b"x");
    expect_more_wanted(&mut connection, 3, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(connection.handle_reply_sent(at(4)), AfterReply::Close { linger: true });
}

#[test]
fn the_caller_can_end_a_connection_with_a_reply() {
    let mut connection = Connection::new(at(0));
    expect_request(&mut connection, 1, HEAD);
    assert_eq!(connection.reply(at(2), &limits(), true), Persistence::Close);
    assert_eq!(connection.handle_reply_sent(at(3)), AfterReply::Close { linger: true });
    assert_eq!(connection.handle_end_of_input(), EndOfInput::Close);
}

#[test]
fn limits_may_shrink_between_two_pieces_of_a_head() {
    let mut connection = Connection::new(at(0));
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nB: c\r\nD: e\r\nF: g\r\n\r\n";
    expect_more_wanted(&mut connection, 1, &head[..36]);
    let smaller = Limits { header_count_max: 1, head_bytes_max: 20, ..limits() };
    let (_, progress) = connection.handle_input(at(2), head, &smaller);
    assert!(matches!(progress, Progress::Reject(_)), "{progress:?}");
}

/// A connection of a server that has died, whose client has asked since that server last told of it.
fn asked_before(has_nothing: bool) -> Connection {
    let mut state = Connection::new(at(0)).export(at(90));
    state.expect_again(has_nothing);
    Connection::import(at(100), &state).expect("what is exported can be imported")
}

#[test]
fn what_may_have_come_to_a_server_that_died_is_answered_if_it_comes_again_and_can_be_repeated() {
    let mut connection = asked_before(false);
    expect_request(&mut connection, 104, HEAD);
    // The one after that is like any other.
    _ = connection.reply(at(104), &limits(), false);
    _ = connection.handle_reply_sent(at(104));
    expect_request(&mut connection, 105, POST);
    for has_nothing in [false, true] {
        expect_loss(&mut asked_before(has_nothing), POST);
    }
}

/// What has come to a server that died, and may have been done, is refused, and nothing that comes behind it is taken for a request.
fn expect_loss(connection: &mut Connection, input: &[u8]) {
    let (_, progress) = connection.handle_input(at(104), input, &limits());
    let lost = RejectReason::RequestLost;
    assert!(matches!(progress, Progress::Reject(rejection) if rejection.reason == lost), "{progress:?}");
    let (consumed, progress) = connection.handle_input(at(104), HEAD, &limits());
    assert!(consumed == HEAD.len() && matches!(progress, Progress::NeedInput), "{progress:?}");
    assert_eq!(connection.reply(at(104), &limits(), false), Persistence::Close);
    assert_eq!(connection.handle_reply_sent(at(105)), AfterReply::Close { linger: true });
    assert_eq!(connection.request_count(), 1);
}

#[test]
fn a_request_that_was_lost_is_refused_whatever_comes() {
    for in_hand in [false, true] {
        let mut before = Connection::new(at(0));
        if in_hand {
            expect_request(&mut before, 50, POST);
        }
        let mut state = before.export(at(90));
        state.lose_request();
        assert!(state.tells_of_loss() && !state.expects_again());
        let mut connection = Connection::import(at(100), &state).unwrap();
        expect_loss(&mut connection, b"POST / HTTP/1.1");
    }
}

#[test]
fn what_a_server_that_died_has_acknowledged_is_not_waited_for() {
    let lost = Expired::Late(RejectReason::RequestLost.into());
    for (has_nothing, expired) in [(false, Expired::Stalled), (true, lost)] {
        expect_expiry(&mut asked_before(has_nothing), 105, expired);
        let mut connection = asked_before(has_nothing);
        expect_more_wanted(&mut connection, 104, &HEAD[..9]);
        expect_expiry(&mut connection, 105, expired);
    }
}

#[test]
fn time_in_which_nothing_is_received_is_not_the_clients() {
    // Before and after a first head, and in content: as much later as it wasn't received from while it was the client's turn.
    let mut connection = Connection::new(at(100));
    connection.handle_unread(at(90), at(103));
    expect_more_wanted(&mut connection, 104, &HEAD[..3]);
    connection.handle_unread(at(105), at(125));
    expect_request(&mut connection, 125, HEAD);
    assert!(!connection.awaits_input());
    connection.handle_unread(at(125), at(1_000));
    connection.reply(at(126), &limits(), false);
    connection.handle_unread(at(126), at(1_000));
    assert_eq!(connection.poll_timeout(&limits()), at(156), "it's the client that takes nothing");
    connection.handle_reply_sent(at(130));
    connection.handle_unread(at(120), at(140));
    assert_eq!(connection.poll_timeout(&limits()), at(215));
    expect_request(&mut connection, 150, POST);
    connection.handle_unread(at(155), at(160));
    expect_expiry(&mut connection, 185, Expired::Late(RejectReason::BodyTimeout.into()));
}
