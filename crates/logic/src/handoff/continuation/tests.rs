//! From an image and what was seen of the client to what is sent next.

use super::super::{FlowId, ServerId, TcpWindow};
use super::*;

const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Four bytes sent, two not yet, then 100 bytes of content from offset 50 on.
fn image() -> Image {
    let tcp = TcpState {
        local: ([192, 0, 2, 1], 80).into(),
        remote: ([192, 0, 2, 2], 999).into(),
        send_next: 2,
        receive_next: 1_000,
        window: TcpWindow { snd_wnd: 10, max_window: 500, ..TcpWindow::default() },
        mss: 1_460,
        window_scale: None,
        sack: true,
        timestamp: Some(5),
        unread: Vec::new(),
        sent: b"abcd".to_vec(),
        unsent: b"ef".to_vec(),
    };
    let http = HttpState { head: HEAD.to_vec(), ..HttpState::default() };
    let flow = FlowId { home: ServerId(1), serial: 1 };
    Image { flow, tcp: Some(tcp), congestion: None, http, reply: Some(reply(vec![content(50, 100)])) }
}

fn content(first: u64, length: u64) -> Piece {
    Piece::Content { first, length }
}

fn reply(pieces: Vec<Piece>) -> ReplyState {
    ReplyState {
        site: "s".into(),
        path: b"/".to_vec(),
        coding: None,
        etag: b"\"e\"".to_vec(),
        complete_length: 150,
        status: 200,
        content_bytes: 150,
        pieces,
        resend_bytes: 0,
    }
}

fn seen(acknowledged_bytes: u64) -> Witness {
    Witness { acknowledged_bytes, window_bytes: 40, ..Witness::default() }
}

/// The send queue, its end, what is left of the reply, and how much of that counts as sent.
fn plan(image: Image, seen: &Witness) -> Result<(Vec<u8>, u32, Vec<Piece>, u64), Impossible> {
    let image = continue_from(image, vec![], seen)?;
    let (tcp, reply) = (image.tcp.unwrap(), image.reply.unwrap());
    assert!(tcp.unsent.is_empty());
    Ok((tcp.sent, tcp.send_next, reply.pieces, reply.resend_bytes))
}

#[test]
fn the_acknowledged_byte_is_where_it_goes_on() {
    // Sequence numbers wrap within the send queue: its six bytes end at 2.
    assert_eq!(plan(image(), &seen(0)), Ok((b"abcdef".to_vec(), 2, vec![content(50, 100)], 34)));
    assert_eq!(plan(image(), &seen(5)), Ok((b"f".to_vec(), 2, vec![content(50, 100)], 39)));
    assert_eq!(plan(image(), &seen(6)), Ok((vec![], 2, vec![content(50, 100)], 40)));
    assert_eq!(plan(image(), &seen(90)), Ok((vec![], 86, vec![content(134, 16)], 16)));
    assert_eq!(plan(image(), &seen(106)), Ok((vec![], 102, vec![], 0)));
    assert_eq!(plan(image(), &seen(107)), Err(Impossible::Unknown));
    let exact = Witness { is_exact: true, ..seen(90) };
    assert_eq!(plan(image(), &exact), Ok((vec![], 86, vec![content(134, 16)], 0)));
    let from_head = continue_from(image(), vec![], &Witness { is_exact: true, ..seen(4) }).unwrap().tcp.unwrap();
    assert_eq!(
        (from_head.sent, from_head.unsent, from_head.send_next),
        (vec![], b"ef".to_vec(), 2),
        "it goes out at once"
    );
}

#[test]
fn content_needs_a_strong_tag_and_what_is_no_content_doesnt() {
    for etag in [&b""[..], b"W/\"e\"", b"e"] {
        let mut image = image();
        image.reply.as_mut().unwrap().etag = etag.to_vec();
        assert_eq!(plan(image.clone(), &seen(6)), Err(Impossible::NoStrongTag));
        assert!(plan(image, &seen(106)).is_ok());
    }
    assert!(reply(vec![]).continues_with(Some(b"\"e\"")));
    assert!(!reply(vec![]).continues_with(Some(b"W/\"e\"")));
    assert!(!reply(vec![]).continues_with(Some(b"\"f\"")) && !reply(vec![]).continues_with(None));
}

#[test]
fn a_request_that_was_answered_unseen_is_answered_anew_only_if_nothing_came_of_it() {
    let mut image = Image { reply: None, ..image() };
    let tcp = image.tcp.as_mut().unwrap();
    (tcp.sent, tcp.unsent) = (vec![], vec![]);
    assert_eq!(continue_from(image.clone(), vec![], &seen(0)), Err(Impossible::Unknown));
    let exact = Witness { is_exact: true, ..seen(0) };
    assert_eq!(continue_from(image.clone(), vec![], &exact).map(|image| image.http.head), Ok(HEAD.to_vec()));
    assert_eq!(
        continue_from(image.clone(), vec![], &Witness { acknowledged_bytes: 1, ..exact.clone() }),
        Err(Impossible::Unknown)
    );
    image.http.head = b"POST / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    expect_loss(&continue_from(image.clone(), vec![], &exact).unwrap(), b"POST / HTTP/1.1", 1_000);
    let more = Witness { client_bytes: 50_000, ..exact.clone() };
    expect_loss(&continue_from(image.clone(), vec![], &more).unwrap(), b"POST / HTTP/1.1", 51_000);
    // Behind one that may be answered anew, neither is done again.
    let behind = b"POST /b HTTP/1.1\r\n\r\n";
    image.http.head = HEAD.to_vec();
    image.tcp.as_mut().unwrap().unread = behind.to_vec();
    let seen = Witness { client_bytes: behind.len() as u64, ..exact };
    let one = continue_from(image, vec![], &seen).unwrap();
    assert!(one.http.connection.closes_after_reply() && one.tcp.unwrap().unread.is_empty());
}

/// Its client is told that its request isn't done again, and all else of it is taken for read.
fn expect_loss(image: &Image, line: &[u8], receive_next: u32) {
    let (tcp, http) = (image.tcp.as_ref().unwrap(), &image.http);
    assert!(http.connection.tells_of_loss() && !http.connection.expects_again());
    assert_eq!((&http.input[..], tcp.receive_next), (line, receive_next));
    assert!(image.reply.is_none() && http.head.is_empty() && tcp.unread.is_empty());
}

#[test]
fn a_request_that_may_have_been_done_is_refused_if_its_beginning_was_kept_and_its_client_has_nothing_of_an_answer() {
    let told = || {
        let http = HttpState::default();
        vec![Progress { server_bytes: 900, acknowledged_bytes: 900, client_bytes: 70, http, reply: None }]
    };
    let at = |said: &[u8], (bytes, is_exact, has_ended)| {
        let unkept_bytes = bytes - said.len() as u64;
        let client_bytes = 70 + bytes;
        let said = Witness { client_bytes, client_said: said.to_vec(), unkept_bytes, is_exact, has_ended, ..seen(900) };
        continue_from(image(), told(), &said).unwrap()
    };
    let post = b"POST /a HTTP/1.1\r\nContent-Le";
    expect_loss(&at(post, (50_000, true, false)), b"POST /a HTTP/1.1", 51_070);
    expect_loss(&at(post, (post.len() as u64, true, false)), b"POST /a HTTP/1.1", 1_070 + post.len() as u32);
    let ended = at(post, (50_000, true, true));
    expect_loss(&ended, b"POST /a HTTP/1.1", 51_071);
    assert!(ended.http.connection.has_input_ended());
    // Its client may have an answer, or it's no such request, or nobody knows: if it wasn't acknowledged it comes again.
    let begins: [&[u8]; 5] = [b"GET /a HTTP/1.1\r\nCookie", b"\r\nPOST / HTTP/1.1", b"POST", b"{} x", b""];
    for (said, is_exact) in [(&post[..], false)].into_iter().chain(begins.map(|said| (said, true))) {
        let again = at(said, (50_000, is_exact, false)).http.connection;
        assert_eq!((again.expects_again(), again.tells_of_loss()), (true, is_exact), "{said:?}");
    }
    // What was kept is from within it.
    let inside = Witness { client_bytes: 50_000, client_said: post.to_vec(), is_exact: true, ..seen(900) };
    assert!(continue_from(image(), told(), &inside).unwrap().http.connection.expects_again());
}

#[test]
fn a_later_reply_that_was_told_of_takes_the_place_of_the_first() {
    let told = Progress {
        server_bytes: 5_000_000_000,
        acknowledged_bytes: 0,
        client_bytes: 70,
        http: HttpState::default(),
        reply: Some(reply(vec![Piece::Literal(b"head".to_vec()), content(0, 150)])),
    };
    let at = |acknowledged_bytes| Witness { client_bytes: 70, ..seen(acknowledged_bytes) };
    let image_after = continue_from(image(), vec![told.clone()], &at(5_000_000_010)).unwrap();
    let tcp = image_after.tcp.unwrap();
    assert_eq!(tcp.receive_next, 1_070);
    assert_eq!(tcp.send_next, 0xFFFF_FFFC_u32.wrapping_add((5_000_000_010_u64 % (1 << 32)) as u32));
    assert_eq!(image_after.reply.unwrap().pieces, [content(6, 144)]);
    // Half of the head goes into the send queue.
    let tcp = continue_from(image(), vec![told.clone()], &at(5_000_000_002)).unwrap().tcp.unwrap();
    assert_eq!(tcp.sent, b"ad");
    assert_eq!(continue_from(image(), vec![told.clone()], &at(4_999_999_999)), Err(Impossible::Unknown));
    assert_eq!(Progress::decode(&told.encode().unwrap()), Ok(told));
}

#[test]
fn a_reply_that_was_acknowledged_to_its_end_leaves_the_connection_at_rest() {
    let whole = 106;
    let at = |change: fn(&mut Image), client_bytes| {
        let mut image = image();
        change(&mut image);
        continue_from(image, vec![], &Witness { client_bytes, ..seen(whole) })
    };
    let asked = at(|_| {}, 30).unwrap();
    assert!(asked.reply.is_none() && asked.http.head.is_empty() && asked.next_bytes().is_empty());
    assert!(asked.http.connection.expects_again());
    let tcp = asked.tcp.unwrap();
    assert_eq!((tcp.send_next, tcp.receive_next), (0xFFFF_FFFC_u32.wrapping_add(106), 1_000));
    // Nothing was to follow, or more of the request's body was to come, or of its answer.
    assert_eq!(at(|image| image.http.connection.close_after_reply(), 30), Err(Impossible::Unknown));
    assert_eq!(at(|image| image.http.connection.phase = 2, 30), Err(Impossible::Unknown));
    assert_eq!(at(|image| image.http.input = b"GET /".to_vec(), 30), Err(Impossible::Unknown));
    let nearly = Witness { client_bytes: 30, ..seen(whole - 1) };
    let nearly = continue_from(image(), vec![], &nearly).unwrap();
    assert!(nearly.reply.is_some() && !nearly.http.connection.expects_again());
}

#[test]
fn a_connection_that_was_told_to_rest_goes_on_from_there() {
    let told = Progress {
        server_bytes: 900,
        acknowledged_bytes: 900,
        client_bytes: 70,
        http: HttpState::default(),
        reply: None,
    };
    let at = |acknowledged, client_bytes| {
        continue_from(image(), vec![told.clone()], &Witness { client_bytes, ..seen(acknowledged) })
    };
    let rested = at(900, 70).unwrap();
    let tcp = rested.tcp.as_ref().unwrap();
    assert_eq!((tcp.send_next, tcp.receive_next), (0xFFFF_FFFC_u32.wrapping_add(900), 1_070));
    assert!(tcp.sent.is_empty() && rested.reply.is_none() && rested.next_bytes().is_empty());
    assert!(!rested.http.connection.expects_again());
    // It has asked since. Where the dead node's kernel hadn't acknowledged that, it comes once more.
    let asked = at(900, 71).unwrap();
    assert!(asked.http.connection.expects_again() && asked.tcp.unwrap().receive_next == 1_070);
    assert_eq!(at(901, 70), Err(Impossible::Unknown), "it has been told more");
    assert_eq!(Progress::decode(&told.encode().unwrap()), Ok(told));
}

#[test]
fn what_the_client_sent_and_nobody_has_ends_the_connection_after_the_reply() {
    let more = Witness { client_bytes: 30, ..seen(50) };
    let after = continue_from(image(), vec![], &more).unwrap();
    assert_eq!(after.tcp.unwrap().receive_next, 1_030);
    let mut closing = crate::http::ConnectionState::default();
    closing.close_after_reply();
    assert_eq!(after.http.connection, closing);
    let awaited = Image { reply: None, ..image() };
    let exact = Witness { client_bytes: 30, is_exact: true, ..seen(6) };
    assert_eq!(continue_from(awaited, vec![], &exact), Err(Impossible::RequestLost));
}

#[test]
fn a_request_that_died_with_its_node_is_answered_from_what_was_kept_of_it_if_its_client_has_nothing_of_an_answer() {
    let next = b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n";
    let told = Progress {
        server_bytes: 500,
        acknowledged_bytes: 0,
        client_bytes: 70,
        http: HttpState { head: HEAD.to_vec(), ..HttpState::default() },
        reply: Some(reply(vec![Piece::Literal(b"head".to_vec()), content(0, 150)])),
    };
    let at = |acknowledged_bytes, said: &[u8], is_exact| {
        let client_bytes = 70 + next.len() as u64;
        let seen = Witness { client_bytes, client_said: said.to_vec(), is_exact, ..seen(acknowledged_bytes) };
        continue_from(image(), vec![told.clone()], &seen)
    };
    let known = [b"...", &next[..]].concat();
    for said in [&next[..], &known] {
        let tcp = at(654, said, true).unwrap().tcp.unwrap();
        assert_eq!((&tcp.unread[..], tcp.receive_next), (&next[..], 1_070 + next.len() as u32));
    }
    // Somebody may have it, or it isn't all there, or may have had an effect: if it wasn't acknowledged, it comes again.
    let post = next.map(|byte| if byte == b'G' { b'P' } else { byte });
    let options = b"OPTIONS / HTTP/1.1\r\nX: y\r\n\r\n";
    assert_eq!(options.len(), next.len());
    assert_eq!(at(654, options, true).unwrap().tcp.unwrap().unread, options);
    expect_loss(&at(654, &post, true).unwrap(), b"PET /b HTTP/1.1", 1_070 + next.len() as u32);
    for (said, is_exact) in [(&next[..], false), (&next[1..], true), (&post, false)] {
        let again = at(654, said, is_exact).unwrap();
        assert!(again.http.connection.expects_again() && again.tcp.unwrap().unread.is_empty(), "{is_exact}");
    }
    // In the middle of the reply before it: both are sent, if there's nothing of the second.
    let both = at(600, next, true).unwrap();
    assert!(both.reply.is_some() && both.tcp.unwrap().unread == next);
    let mut closing = crate::http::ConnectionState::default();
    closing.close_after_reply();
    let one = at(600, next, false).unwrap();
    assert!(one.http.connection == closing && one.tcp.unwrap().unread.is_empty());
}

#[test]
fn a_reply_that_was_told_of_as_it_stands_goes_on_without_a_tag_whatever_was_asked() {
    let whole = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
    let made = ReplyState {
        path: Vec::new(),
        etag: Vec::new(),
        complete_length: 0,
        ..reply(vec![Piece::Literal(whole.to_vec())])
    };
    let head = b"POST /orders HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    let http = HttpState { head, ..HttpState::default() };
    let told = Progress { server_bytes: 500, acknowledged_bytes: 500, client_bytes: 70, http, reply: Some(made) };
    let told = Progress::decode(&told.encode().unwrap()).unwrap();
    for acknowledged in [0, 9, whole.len() as u64] {
        let seen = Witness { client_bytes: 70, ..seen(500 + acknowledged) };
        let after = continue_from(image(), vec![told.clone()], &seen).unwrap();
        assert_eq!(after.tcp.unwrap().sent, whole[acknowledged as usize..], "as sent: the client may have it");
        let reply = after.reply.unwrap();
        assert!(reply.is_all_here() && reply.pieces.is_empty());
    }
}

#[test]
fn the_socket_itself_cant_be_made_again() {
    assert_eq!(continue_from(Image { tcp: None, ..image() }, vec![], &seen(0)), Err(Impossible::NoTcp));
}

#[test]
fn a_request_is_untouched_whose_client_has_heard_and_said_nothing() {
    let offered = || Image { reply: None, ..image() };
    let long = Duration::from_millis(800);
    // What was queued before the offer may be acknowledged.
    assert!(is_untouched(&offered(), &seen(0), long) && is_untouched(&offered(), &seen(6), long));
    assert!(!is_untouched(&offered(), &seen(7), long), "some of a reply");
    assert!(!is_untouched(&offered(), &Witness { client_bytes: 1, ..seen(0) }, long), "more of the client");
    assert!(!is_untouched(&offered(), &seen(0), Duration::from_millis(100)), "its acknowledgement may be under way");
    assert!(!is_untouched(&image(), &seen(0), long), "a reply has begun");
    let with_head = |head: &[u8]| {
        let http = HttpState { head: head.to_vec(), ..HttpState::default() };
        Image { http, ..offered() }
    };
    assert!(
        !is_untouched(&with_head(b"POST / HTTP/1.1\r\nHost: a\r\n\r\n"), &seen(0), long),
        "it may have had its effect"
    );
    assert!(is_untouched(&with_head(b"OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n"), &seen(0), long));
    assert!(!is_untouched(&with_head(b""), &seen(0), long), "there is no request");
    let mut pipelined = offered();
    pipelined.http.input = HEAD.to_vec();
    assert!(!is_untouched(&pipelined, &seen(0), long), "what is behind it may have had its effect");
}

#[test]
fn a_request_is_untouched_that_nobody_has_read_where_its_connection_was_to_begin() {
    let unread = |bytes: &[u8]| {
        let mut image = Image { reply: None, http: HttpState::default(), ..image() };
        image.tcp.as_mut().unwrap().unread = bytes.to_vec();
        image
    };
    let (long, of) = (Duration::from_millis(800), |bytes: &[u8]| bytes.len() as u64);
    let said = |client_bytes| Witness { client_bytes, ..seen(0) };
    assert!(is_untouched(&unread(HEAD), &said(of(HEAD)), long));
    assert!(!is_untouched(&unread(HEAD), &said(of(HEAD) + 1), long), "more of the client");
    assert!(!is_untouched(&unread(HEAD), &Witness { acknowledged_bytes: 7, ..said(of(HEAD)) }, long), "a reply");
    assert!(!is_untouched(&unread(HEAD), &said(of(HEAD)), Duration::from_millis(100)), "it may be under way");
    let two = [HEAD, HEAD].concat();
    assert!(!is_untouched(&unread(&two), &said(of(&two)), long), "the second may have had its effect");
    let post = b"POST / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(!is_untouched(&unread(post), &said(of(post)), long), "it may have had its effect");
}

#[test]
fn what_the_client_sent_is_counted_from_what_nobody_had_read() {
    let mut began = Image { reply: None, http: HttpState::default(), ..image() };
    let tcp = began.tcp.as_mut().unwrap();
    (tcp.sent, tcp.unsent, tcp.unread) = (vec![], vec![], HEAD.to_vec());
    let first = tcp.receive_next.wrapping_sub(HEAD.len() as u32);
    assert_eq!(began.next_bytes(), HEAD);
    let http = HttpState { head: HEAD.to_vec(), ..HttpState::default() };
    let reply = Some(reply(vec![content(0, 150)]));
    // The request came again in one packet with the next one's beginning, and its node has read both.
    let told = Progress { server_bytes: 0, acknowledged_bytes: 0, client_bytes: 50, http, reply };
    let seen = Witness { client_bytes: 50, timestamp: Some(9), ..seen(20) };
    let tcp = continue_from(began, vec![told], &seen).unwrap().tcp.unwrap();
    assert_eq!((tcp.receive_next, tcp.unread, tcp.timestamp), (first.wrapping_add(50), vec![], Some(9)));
}

#[test]
fn the_clients_end_takes_a_sequence_number_and_is_no_byte_that_is_lost() {
    let ended = Witness { has_ended: true, ..seen(6) };
    let image_after = continue_from(image(), vec![], &ended).unwrap();
    assert_eq!(image_after.tcp.unwrap().receive_next, 1_001);
    assert!(image_after.http.connection.has_input_ended() && !image_after.http.connection.closes_after_reply());
    // What its node had read and acknowledged by then is told with the end in it.
    let told =
        Progress { server_bytes: 6, acknowledged_bytes: 6, client_bytes: 71, http: HttpState::default(), reply: None };
    let image_after = continue_from(image(), vec![told], &Witness { client_bytes: 70, ..ended.clone() }).unwrap();
    assert_eq!(image_after.tcp.unwrap().receive_next, 1_071);
}

#[test]
fn what_nobody_has_read_before_the_clients_end_goes_along_as_read() {
    let mut image = Image { reply: None, ..image() };
    let tcp = image.tcp.as_mut().unwrap();
    (tcp.sent, tcp.unsent, tcp.unread) = (vec![], vec![], HEAD.to_vec());
    image.http.head.clear();
    let bytes = HEAD.len() as u64;
    let ended = Witness { has_ended: true, client_bytes: bytes, ..seen(0) };
    assert!(is_untouched(&image, &ended, ACKNOWLEDGED_WITHIN));
    for after in [
        as_it_was(image.clone(), &ended),
        continue_from(image.clone(), vec![], &Witness { is_exact: true, ..ended.clone() }).unwrap(),
    ] {
        let tcp = after.tcp.unwrap();
        assert!(tcp.unread.is_empty() && after.http.input == HEAD && after.http.connection.has_input_ended());
        assert_eq!(tcp.receive_next, 1_001);
    }
    // Who has said more than is known of says that again, and its end.
    let more = as_it_was(image, &Witness { client_bytes: bytes + 1, ..ended });
    assert!(!more.http.connection.has_input_ended() && more.tcp.unwrap().receive_next == 1_000);
}

/// What a node tells that was asked for all of these at once, and has begun to answer so many. Each reply has 154 bytes.
fn pipelined(heads: &[&[u8]], begun: usize) -> Vec<Progress> {
    let told = |number: usize| Progress {
        server_bytes: 106 + 154 * number as u64,
        acknowledged_bytes: 0,
        client_bytes: heads.concat().len() as u64,
        http: HttpState { head: heads[number].to_vec(), input: heads[number + 1..].concat(), ..HttpState::default() },
        reply: Some(reply(vec![Piece::Literal(b"head".to_vec()), content(0, 150)])),
    };
    (0..begun).map(told).collect()
}

#[test]
fn who_asked_for_several_replies_goes_on_in_the_first_that_isnt_acknowledged_if_nothing_else_came() {
    let others: [&[u8]; 3] = [b"GET /2 HTTP/1.1\r\n\r\n", b"HEAD /3 HTTP/1.1\r\n\r\n", b"GET /4 HTTP/1.1\r\n\r\n"];
    let heads = [&[HEAD][..], &others].concat();
    let seen =
        |acknowledged| Witness { client_bytes: heads.concat().len() as u64, is_exact: true, ..seen(acknowledged) };
    let told = pipelined(&heads, 3);
    // In the middle of the second, before all of them, and at the end of the first.
    for (acknowledged, in_hand, left) in [(106 + 154 + 4 + 50, 1, content(50, 100)), (106, 0, content(0, 150))] {
        let after = continue_from(image(), told.clone(), &seen(acknowledged)).unwrap();
        assert_eq!((&after.http.head[..], after.http.input), (heads[in_hand], heads[in_hand + 1..].concat()));
        assert_eq!(after.reply.unwrap().pieces, [left]);
        let sent = if in_hand == 0 { &b"head"[..] } else { b"" };
        assert_eq!((&after.tcp.unwrap().unsent[..], after.http.connection.closes_after_reply()), (sent, false));
        let unproved = Witness { is_exact: false, ..seen(acknowledged) };
        assert_eq!(continue_from(image(), told.clone(), &unproved), Err(Impossible::Unknown));
    }
    // The reply of the image itself, in the middle of which nobody knew of the requests: it's the last.
    let after = continue_from(image(), told, &seen(50)).unwrap();
    assert_eq!((after.reply.unwrap().pieces, after.tcp.unwrap().receive_next), (vec![content(94, 56)], 1_085));
    assert!(after.http.connection.closes_after_reply());
}

#[test]
fn requests_that_came_behind_one_are_known_by_the_replies_that_began_later() {
    let heads: [&[u8]; 3] = [HEAD, b"GET /2 HTTP/1.1\r\n\r\n", b"GET /3 HTTP/1.1\r\n\r\n"];
    let length = |heads: &[&[u8]]| heads.concat().len() as u64;
    // Each came while the one before was answered.
    let mut told = pipelined(&heads, 3);
    for (number, progress) in told.iter_mut().enumerate() {
        progress.client_bytes = length(&heads[..=number]);
        progress.http.input.clear();
    }
    let seen = Witness { client_bytes: length(&heads), is_exact: true, ..seen(110) };
    let after = continue_from(image(), told.clone(), &seen).unwrap();
    assert_eq!(
        (after.http.input, after.tcp.unwrap().receive_next),
        (heads[1..].concat(), 1_000 + length(&heads) as u32)
    );
    // Its client's end behind them counts as a byte.
    let ended = Witness { has_ended: true, ..seen.clone() };
    told[2].client_bytes += 1;
    let after = continue_from(image(), told.clone(), &ended).unwrap();
    assert_eq!(
        (after.http.input, after.tcp.unwrap().receive_next),
        (heads[1..].concat(), 1_001 + length(&heads) as u32)
    );
    // One between them wasn't told of.
    told[2].client_bytes -= 1;
    told.remove(1);
    let after = continue_from(image(), told, &seen).unwrap();
    assert!(after.http.connection.closes_after_reply() && after.http.input.is_empty() && after.reply.is_some());
}

#[test]
fn nothing_is_answered_anew_behind_which_is_something_that_may_have_had_its_effect() {
    let post = b"POST /3 HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    let heads: [&[u8]; 3] = [HEAD, b"GET /2 HTTP/1.1\r\n\r\n", post];
    let seen =
        |acknowledged| Witness { client_bytes: heads.concat().len() as u64, is_exact: true, ..seen(acknowledged) };
    let after = continue_from(image(), pipelined(&heads, 2), &seen(110)).unwrap();
    assert!(after.http.connection.closes_after_reply() && after.http.input.is_empty());
    // At rest, before both of them.
    let mut rest = pipelined(&heads[..1], 1);
    let said = Witness { client_said: heads[1..].concat(), ..seen(106 + 154) };
    assert!(continue_from(image(), rest.clone(), &said).unwrap().http.connection.expects_again());
    rest[0].client_bytes = said.client_bytes;
    rest[0].http.input = heads[1..].concat();
    assert_eq!(continue_from(image(), rest, &said), Err(Impossible::NotRepeatable));
}

#[test]
fn a_request_of_which_a_part_was_told_of_and_the_rest_was_kept_is_answered_anew() {
    let next = b"GET /2 HTTP/1.1\r\n\r\n";
    let at = |acknowledged, next: &[u8]| {
        let (first, rest) = next.split_at(8);
        let mut told = pipelined(&[HEAD], 1);
        told[0].client_bytes += first.len() as u64;
        told[0].http.input = first.to_vec();
        let client_bytes = (HEAD.len() + next.len()) as u64;
        let seen = Witness { client_bytes, client_said: rest.to_vec(), is_exact: true, ..seen(acknowledged) };
        continue_from(image(), told, &seen)
    };
    for acknowledged in [106 + 154, 110] {
        let after = at(acknowledged, next).unwrap();
        assert_eq!([after.http.input, after.tcp.unwrap().unread].concat(), next);
    }
    let post = b"POST /2 HTTP/1.1\r\n\r\n";
    let all = 1_000 + (HEAD.len() + post.len()) as u32;
    expect_loss(&at(106 + 154, post).unwrap(), b"POST /2 HTTP/1.1", all);
}
