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
            assert_eq!(say(507, b'd', 701).bytes.len(), 511);
            let full = [&b"cccc"[..], &[b'd'; 507], &[b'e'; 512]].concat();
            assert_eq!(say(512, b'e', 701), kept(&full, 0));
            assert_eq!(say(1, b'f', 701), kept(&full, 1), "there's no more room");
            assert_eq!(say(1400, b'g', 701), kept(&full, 1401), "nor for that");
            assert_eq!(say(1, b'h', 702), kept(b"h", 0));
            assert_eq!(say(513, b'i', 702), kept(b"h", 513), "more than half of the room");
            assert_eq!(say(1, b'j', 702), kept(b"h", 514), "behind a gap in what is kept");
            assert_eq!(say(1025, b'k', 703), kept(&[b'k'; 1024], 1), "too long by itself");
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
            for (said, more) in [(&[b'l'; 1400][..], true), (b"POST /", true), (b"GET /", false), (b"HE", false)] {
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
