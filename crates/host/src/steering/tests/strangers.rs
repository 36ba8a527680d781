//! What strangers can't bring about: by guessing numbers, or by sending much.

use super::held::Held;
use super::*;

/// Of what is out of order only that counts which is near by both numbers: who guesses one has to guess the other as well.
#[test]
fn who_guesses_numbers_neither_ends_a_flow_nor_moves_it() {
    in_lab("guessed", |dispatcher| {
        let flows = dispatcher.flows();
        for (flags, ahead, bytes, acknowledged, next, has_fin) in [
            (FIN | ACK, 0, 0, 500, 1001, true),
            (FIN | ACK, 0, 9, 0x7000_0000, 1010, true),
            (ACK, 0, 9, 0x7000_0000, 1009, false),
            // What was lost in front of it comes again, and it doesn't.
            (FIN | ACK, 50, 9, 600, 1060, true),
            (ACK, 2000, 9, 600, 3009, false),
            (FIN | ACK, u32::MAX, 0, 500, 1000, true),
            // Guessed.
            (FIN | ACK, 50, 9, 0x7000_0000, 1000, false),
            (FIN | ACK, u32::MAX - 3, 9, 0x7000_0000, 1000, false),
            (ACK, 2000, 9, 0x7000_0000, 1000, false),
            (ACK, 2000, 0, 500 + (1 << 23), 1000, false),
            (FIN, 50, 9, 500, 1000, false),
            (FIN | ACK, 1 << 23, 0, 500, 1000, false),
        ] {
            let sequence = 1000u32.wrapping_add(ahead);
            let segment = Segment::new(CLIENT4, VIP4, flags, sequence);
            let segment = Segment { acknowledged, payload: vec![1; bytes], ..segment };
            steer(dispatcher, segment.key(), 1);
            assert_eq!(arrive(dispatcher, &segment), REDIRECT, "the node's kernel sorts it out");
            let flow = flows.get(segment.key()).unwrap().unwrap();
            let said = (flow.heard.client_next, flow.client_fin);
            assert_eq!(said, (next, has_fin), "{flags}, {ahead}, {bytes}, {acknowledged}");
            flows.delete(segment.key(), id(1)).unwrap();
        }
    });
}

/// Whoever sends much doesn't keep a worker from everything else: what waits is taken in by and by.
#[test]
fn what_waits_is_taken_in_a_part_at_a_time() {
    in_namespace("much", |path| {
        let dispatcher = Dispatcher::load(path, 100).unwrap();
        let (mut held, tap) = (Held::new(), held::make_tap().unwrap());
        let neighbours = format!(
            "ip link set lo up; ip addr add 192.0.2.1/24 dev {0}; ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev {0}",
            tap.name()
        );
        assert!(Command::new("sh").args(["-c", &neighbours]).status().unwrap().success());
        held.add(tap);
        let mut receive = || held.receive(dispatcher.flows(), crate::clock::now());
        while receive() {}
        let socket = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        // No more than its queue has room for.
        for _ in 0..400 {
            assert_eq!(socket.send_to(b"much", "192.0.2.2:9").unwrap(), 4);
        }
        assert_eq!([receive(), receive()], [true, false]);
    });
}
