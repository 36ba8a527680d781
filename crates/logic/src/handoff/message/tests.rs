//! Every message, written and read.

use super::*;
use crate::dispatch::ContentKey;
use crate::handoff::ServerId;

fn every_message() -> Vec<Message> {
    let flow = FlowId { home: ServerId(2), serial: 1 << 60 };
    let generation = Generation(300);
    let bytes = Bytes::from_static(b"bytes");
    let load = Load { flows: 1, requests: 2, cpu_permille: 1_000, queued_bytes: 1 << 40, ..Load::default() };
    let load = Load { is_draining: true, is_failing: true, is_crowded: true, ..load };
    let head = Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n");
    let question = Question { number: 7, head, is_stuck: true };
    let holding = |phase| Holding { flow, generation, phase };
    let mut messages = vec![
        Message::Hello { incarnation: Incarnation(u64::MAX), number: 7, offers_max: 64, process: None },
        Message::Hello {
            incarnation: Incarnation(1),
            number: 1,
            offers_max: 64,
            process: Some(Process { number: u64::MAX, is_only: true }),
        },
        Message::Holding {
            flows: [HoldingPhase::Taking, HoldingPhase::Taken, HoldingPhase::Returning, HoldingPhase::Ended]
                .map(holding)
                .to_vec(),
            is_last: false,
        },
        Message::Holding { flows: vec![], is_last: true },
        Message::Heartbeat { number: 9, load },
        Message::Lease { number: 9, duration_ms: 1_000, homes: vec![0, 3] },
        Message::Offer { flow, generation, image: bytes.clone(), is_lent: false },
        Message::Offer { flow, generation, image: bytes.clone(), is_lent: true },
        Message::Taken { flow, generation },
        Message::Return { flow, generation, image: bytes.clone() },
        Message::Began { flow, generation, progress: bytes },
        Message::Ended { flow, generation, is_cut: false },
        Message::Ended { flow, generation, is_cut: true },
        Message::Recall { flow, generation, terms: RecallTerms::AtOnce },
        Message::Recall { flow, generation, terms: RecallTerms::IfUnborn },
        Message::Recall { flow, generation, terms: RecallTerms::AtRest },
        Message::Release { flow, generation },
        Message::Keep { flow, generation, next: generation.next() },
        Message::Where { flow, generation, question },
        Message::Rules(Rules { is_asked: true, keep_ms: 10_000, ..Rules::default() }),
        Message::Rules(Rules { are_births_lent: true, ..Rules::default() }),
        Message::Rules(Rules { are_all_told: true, ..Rules::default() }),
        Message::Bequeath,
        Message::Followed { hears_passed: true },
        Message::Inherited,
        Message::Present { load, process: Process { number: u64::MAX, is_only: true }, workers: vec![0, 300] },
        Message::Known { flow, generation },
        Message::Probed { sequence: u32::MAX, is_sent: true },
        Message::Seen(vec![
            Sample::Reply { content: ContentKey(u64::MAX), bytes: 1 },
            Sample::Work { work: 3, reply_bytes: 0, cpu_ns: 70_000 },
            Sample::Connection { requests: 10 },
        ]),
    ];
    let vips = ["10.77.0.100:80", "[fd77::100]:80"].map(|vip| vip.parse().unwrap());
    messages.extend(vips.map(|vip| Message::Lives { flow, generation, ends: Ends { client: vip, vip } }));
    messages.extend(vips.map(|vip| Message::Probe { ends: Ends { client: vip, vip }, sequence: 300 }));
    let [ends, _] = vips.map(|vip: std::net::SocketAddr| Ends { client: vip, vip });
    messages.push(Message::Yield { ends, next: u32::MAX, acknowledged: 7 });
    let answers = [Yielding::Given, Yielding::Later, Yielding::Never, Yielding::Switched];
    messages.extend(answers.map(|answer| Message::Yielded { ends, next: 7, answer, shown: u32::MAX }));
    let answers = [There::Stay, There::Fetch(ServerId(3)), There::Move, There::Nowhere];
    messages.extend(answers.map(|there| Message::There { flow, generation, number: 7, there }));
    messages.extend(REASONS.map(|reason| Message::Refused { flow, generation, reason }));
    messages
}

#[test]
fn what_is_written_is_read_and_half_of_it_is_awaited() {
    for message in every_message() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let length = bytes.len();
        assert!((0..length).all(|end| Message::decode(&bytes[..end]) == Ok(None)), "{message:?}");
        bytes.push(0xFF);
        assert_eq!(Message::decode(&bytes), Ok(Some((length, Some(message)))));
    }
}

#[test]
fn what_later_versions_add_is_skipped_or_refused_by_its_kind() {
    assert_eq!(Message::decode(&[200, 2, 7, 7, 1]), Ok(Some((4, None))));
    assert_eq!(Message::decode(&[201, 0]), Err(DecodeError::Unknown { what: "a message's kind", found: 201 }));
    // A field more or less, and a reason without a name.
    let grown = [TAKEN, 5, 1, 2, 3, 99, 99];
    let (flow, generation) = (FlowId { home: ServerId(1), serial: 2 }, Generation(3));
    let offer = Message::Offer { flow, generation, image: Bytes::new(), is_lent: false };
    assert_eq!(Message::decode(&[OFFER, 4, 1, 2, 3, 0]), Ok(Some((6, Some(offer)))));
    let there = Message::There { flow, generation, number: 7, there: There::Stay };
    assert_eq!(Message::decode(&[THERE, 6, 1, 2, 3, 7, 0, 0]), Ok(Some((8, Some(there)))));
    assert_eq!(Message::decode(&grown), Ok(Some((7, Some(Message::Taken { flow, generation })))));
    let refused = Message::Refused { flow, generation, reason: RefuseReason::Other };
    assert_eq!(Message::decode(&[REFUSED, 4, 1, 2, 3, 77]), Ok(Some((6, Some(refused)))));
    assert!(matches!(Message::decode(&[OFFER, 0xFF, 0xFF, 0xFF, 0x7F]), Err(DecodeError::TooLarge { .. })));
    assert_eq!(Message::decode(&[TAKEN, 1, 0]), Err(DecodeError::Truncated("the flow's serial")));
}
