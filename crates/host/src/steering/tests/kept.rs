//! What is kept of what clients say at nodes, should those die.

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
            assert_eq!(say(3, b'a', 700), b"aaa");
            assert_eq!(say(2, b'b', 700), b"aaabb", "the rest of it");
            assert_eq!(say(4, b'c', 701), b"cccc", "the next one: it has heard an answer");
            assert_eq!(say(507, b'd', 701).len(), 511);
            assert_eq!(say(512, b'e', 701), [&b"cccc"[..], &[b'd'; 507], &[b'e'; 512]].concat());
            assert_eq!(say(1, b'f', 701), b"f", "there's no more room");
            assert_eq!(say(513, b'g', 701), [b'g'; 513], "nor for that");
            assert_eq!(say(1025, b'h', 701), b"", "too long by itself");
            // What came before is no beginning of what comes behind a gap.
            segment.sequence += 1;
            (segment.payload, segment.acknowledged) = (b"i".to_vec(), 701);
            arrive(dispatcher, &segment);
            assert_eq!(dispatcher.client_said(key, segment.sequence + 1).unwrap(), b"i");
            // More, and then again what came first, as if that had been lost.
            let mut more = segment.clone();
            (more.sequence, more.payload) = (segment.sequence + 1, b"jk".to_vec());
            for segment in [&more, &segment, &more] {
                arrive(dispatcher, segment);
                assert_eq!(dispatcher.client_said(key, more.sequence + 2).unwrap(), b"ijk");
            }
        }
    });
}
