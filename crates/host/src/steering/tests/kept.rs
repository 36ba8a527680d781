//! What is kept of what clients say at nodes, should those die.

use super::kept::Kept;
use super::*;

#[test]
fn what_a_client_says_in_several_packets_is_kept_until_it_has_heard_something() {
    in_lab_by_both("kept", |dispatcher| {
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let mut segment = Segment::new(client, vip, ACK, 1000);
            let key = segment.key();
            steer(dispatcher, key, 1);
            segment.acknowledged = 700;
            let mut say = |bytes: usize, byte: u8, acknowledged: u32| {
                (segment.payload, segment.acknowledged) = (vec![byte; bytes], acknowledged);
                arrive(dispatcher, &segment);
                segment.sequence += bytes as u32;
                dispatcher.client_said(key, segment.sequence).unwrap()
            };
            let kept = |bytes: &[u8], more| Kept { bytes: bytes.to_vec(), more };
            assert_eq!(say(3, b'a', 700), kept(b"aaa", 0));
            assert_eq!(say(2, b'b', 700), kept(b"aaabb", 0), "the rest of it");
            assert_eq!(say(4, b'c', 701), kept(b"cccc", 0), "the next one: it has heard an answer");
            // Three whole packets.
            assert_eq!(say(1448, b'd', 702), kept(&[b'd'; 1448], 0));
            let full = |rest: &[u8]| [&[b'd'; 1448][..], &[b'e'; 1448], rest].concat();
            assert_eq!(say(1448, b'e', 702), kept(&full(&[]), 0));
            assert_eq!(say(1448, b'f', 702), kept(&full(&[b'f'; 1448]), 0));
            assert_eq!(say(1, b'g', 702), kept(&full(&[b'f'; 1448]), 1), "there's no more room");
            assert_eq!(say(1400, b'g', 702), kept(&full(&[b'f'; 1448]), 1401), "nor for that");
            assert_eq!(say(1024, b'h', 703), kept(&[b'h'; 1024], 0), "all where each has room");
            assert_eq!(say(1, b'i', 703), kept(&[&[b'h'; 1024][..], b"i"].concat(), 0));
            assert_eq!(say(1, b'j', 704), kept(b"j", 0));
            assert_eq!(say(2047, b'k', 704), kept(&[b"j", &[b'k'; 2047][..]].concat(), 0));
            let full = [b"j", &[b'k'; 2047][..], &[b'l'; 2048]].concat();
            assert_eq!(say(2048, b'l', 704), kept(&full, 0));
            assert_eq!(say(1, b'm', 704), kept(&full, 1), "behind more than half of the room");
            assert_eq!(say(1, b'n', 705), kept(b"n", 0));
            assert_eq!(say(1, b'o', 705), kept(b"no", 0));
            assert_eq!(say(2049, b'p', 705), kept(b"no", 2049), "more than half of the room");
            assert_eq!(say(1, b'q', 705), kept(b"no", 2050), "behind a gap in what is kept");
            assert_eq!(say(3000, b'r', 706), kept(&[b'r'; 3000], 0), "two that have come as one");
            // What came before is no beginning of what comes behind a gap.
            segment.sequence += 1;
            (segment.payload, segment.acknowledged) = (b"i".to_vec(), 701);
            arrive(dispatcher, &segment);
            assert_eq!(dispatcher.client_said(key, segment.sequence + 1).unwrap(), kept(b"i", 0));
            // More, and then again what came first, as if that had been lost.
            let mut more = segment.clone();
            (more.sequence, more.payload) = (segment.sequence + 1, b"jk".to_vec());
            for segment in [&more, &segment, &more] {
                arrive(dispatcher, segment);
                assert_eq!(dispatcher.client_said(key, more.sequence + 2).unwrap(), kept(b"ijk", 0));
            }
            // The next request is worth more than the end of one that is too long, if it may be answered anew.
            segment.sequence += 3;
            for (said, more) in [(&[b'l'; 2049][..], true), (b"POST /", true), (b"GET /", false), (b"HE", false)] {
                segment.payload = said.to_vec();
                arrive(dispatcher, &segment);
                segment.sequence += said.len() as u32;
                let known = dispatcher.client_said(key, segment.sequence).unwrap();
                assert_eq!((known.more > 0, known.bytes[0]), (more, if more { b'i' } else { b'G' }));
            }
            // What has been said before changes nothing, kept or not.
            let known = dispatcher.client_said(key, segment.sequence).unwrap();
            arrive(dispatcher, &Segment { sequence: segment.sequence - 2, payload: b"HE".to_vec(), ..segment.clone() });
            assert_eq!(dispatcher.client_said(key, segment.sequence).unwrap(), known);
        }
    });
}

/// What it costs to keep a request: `costs` in `tests.rs` has the command.
#[test]
#[ignore = "a measurement"]
fn costs() {
    in_lab("kept-costs", |dispatcher| {
        let mut segment = Segment::new(CLIENT4, VIP4, ACK, 1000);
        steer(dispatcher, segment.key(), 1);
        let mut programs = dispatcher.programs.lock().unwrap();
        let program = programs.classifier("dispatcher_ingress").unwrap();
        for bytes in [0, 100, 1000, 1448, 2896] {
            segment.payload = vec![b'x'; bytes];
            let mut ask = || {
                let frame = segment.frame();
                let options = TestRunOptions { data_in: Some(&frame), ..TestRunOptions::default() };
                // The next one is another request: its client has heard an answer.
                segment.sequence += bytes as u32;
                segment.acknowledged += 1;
                program.test_run(options).unwrap().duration
            };
            let mut times: Vec<_> = (0..20_000).map(|_| ask()).collect();
            times.sort();
            println!("{bytes} bytes: {:?} a packet, the median, without the redirect itself", times[times.len() / 2]);
        }
    });
}
