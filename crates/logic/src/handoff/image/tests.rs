//! Images survive the way there; what isn't one is refused.

use std::time::Duration;

use super::super::wire::{DecodeError, put_bytes, put_number};
use super::super::{Congestion, HttpState, Piece, ReplyState, TcpState, TcpWindow, WindowScale};
use super::super::{FlowId, ServerId, limits};
use super::{IMAGE_VERSION, Image};
use crate::http::{BodyState, ConnectionState};
use crate::serve::coding::Coding;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Small and large numbers alike.
    fn number(&mut self) -> u64 {
        let shift = self.below(64);
        self.next() >> shift
    }

    fn small(&mut self) -> u32 {
        self.number() as u32
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next() as u8).collect()
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
        (self.below(3) > 0).then(|| make(self))
    }
}

fn any_tcp(random: &mut Random) -> TcpState {
    let is_ipv6 = random.below(2) == 1;
    let mut address = || match is_ipv6 {
        false => (random.small().to_be_bytes(), random.next() as u16).into(),
        true => ((u128::from(random.next()) << 64 | 1).to_be_bytes(), random.next() as u16).into(),
    };
    let (local, remote) = (address(), address());
    TcpState {
        local,
        remote,
        send_next: random.next() as u32,
        receive_next: random.next() as u32,
        window: TcpWindow {
            snd_wl1: random.next() as u32,
            snd_wnd: random.small(),
            max_window: random.small(),
            rcv_wnd: random.small(),
            rcv_wup: random.next() as u32,
        },
        mss: random.next() as u16,
        window_scale: random
            .maybe(|random| WindowScale { send: random.below(15) as u8, receive: random.below(15) as u8 }),
        sack: random.below(2) == 1,
        timestamp: random.maybe(|random| random.next() as u32),
        unread: random.bytes(80),
        sent: random.bytes(300),
        unsent: random.bytes(300),
    }
}

fn any_reply(random: &mut Random) -> ReplyState {
    let complete_length = random.number();
    let pieces = (0..random.below(limits::PIECE_COUNT_MAX as u64 + 1))
        .map(|_| match random.below(2) {
            0 => Piece::Literal(random.bytes(60)),
            _ => {
                let first = random.next() % complete_length.saturating_add(1).max(1);
                Piece::Content { first, length: random.next() % (complete_length - first).max(1) }
            }
        })
        .collect();
    ReplyState {
        site: "example.org".into(),
        path: random.bytes(50),
        coding: *[None, Some(Coding::Brotli), Some(Coding::Gzip)].get(random.below(3) as usize).unwrap(),
        etag: b"\"0123456789abcdefghijklmn\"".to_vec(),
        complete_length,
        status: 206,
        content_bytes: random.number(),
        pieces,
        resend_bytes: random.below(limits::RESEND_BYTES_MAX + 1),
    }
}

fn any_image(random: &mut Random) -> Image {
    let connection = ConnectionState {
        elapsed: Duration::from_nanos(random.number()),
        requests: random.small(),
        phase: random.next() as u8,
        flags: random.next() as u8,
        empty_lines: random.next() as u8,
        body: BodyState {
            place: random.next() as u8,
            remaining: random.number(),
            received: random.number(),
            overhead: random.next() as u16,
        },
    };
    Image {
        flow: FlowId { home: ServerId(random.small()), serial: random.number() },
        tcp: random.maybe(any_tcp),
        congestion: random.maybe(|random| Congestion {
            srtt_us: random.small(),
            rttvar_us: random.small(),
            cwnd: random.small(),
            ssthresh: random.small(),
        }),
        http: HttpState {
            connection,
            input: random.bytes(90),
            head: random.bytes(90),
            elapsed: Duration::from_nanos(random.number()),
        },
        reply: random.maybe(any_reply),
    }
}

#[test]
fn what_is_written_is_read() {
    let mut random = Random(1);
    for _ in 0..3_000 {
        let image = any_image(&mut random);
        assert_eq!(Image::decode(&image.encode().unwrap()), Ok(image));
    }
}

#[test]
fn an_image_that_ends_early_is_no_image() {
    let mut random = Random(2);
    let mut image = any_image(&mut random);
    image.congestion = Some(Congestion::default());
    image.reply = Some(any_reply(&mut random));
    let bytes = image.encode().unwrap();
    let whole = (0..bytes.len()).filter(|&end| Image::decode(&bytes[..end]).is_ok()).count();
    // Only where the optional last section would begin.
    assert_eq!(whole, 1);
}

#[test]
fn damage_is_refused_or_read_as_something_that_can_be_written() {
    let mut random = Random(3);
    let mut read = 0;
    for _ in 0..20_000 {
        let mut bytes = any_image(&mut random).encode().unwrap();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        if let Ok(image) = Image::decode(&bytes) {
            read += 1;
            assert_eq!(Image::decode(&image.encode().unwrap()), Ok(image));
        }
    }
    assert!(read > 1_000, "{read}");
}

fn with_section(tag: u64, value: &[u8]) -> Result<Image, DecodeError> {
    let image = Image { reply: None, ..any_image(&mut Random(4)) };
    let mut bytes = image.encode().unwrap();
    put_number(&mut bytes, tag);
    put_bytes(&mut bytes, value);
    Image::decode(&bytes).inspect(|read| assert_eq!(*read, image))
}

#[test]
fn what_later_versions_add_is_skipped_or_refused_by_its_tag() {
    assert!(with_section(1_000, b"a hint").is_ok());
    assert_eq!(with_section(9, b"keys"), Err(DecodeError::Section(9)));
    assert_eq!(with_section(1_001, b""), Err(DecodeError::Section(1_001)));
    let long = vec![0; limits::SKIPPED_BYTES_MAX + 1];
    assert!(matches!(with_section(1_000, &long), Err(DecodeError::TooLarge { .. })));
    assert!(matches!(with_section(4, b""), Err(DecodeError::Malformed(_))), "out of order");
    assert_eq!(Image::decode(&[IMAGE_VERSION + 1]), Err(DecodeError::Version(IMAGE_VERSION + 1)));
    assert_eq!(Image::decode(&[]), Err(DecodeError::Truncated("the version")));
}

#[test]
fn a_section_may_grow_at_its_end() {
    let mut bytes = vec![IMAGE_VERSION];
    for (tag, value) in [(1, &[7, 8, 99][..]), (5, &[0; 20])] {
        put_number(&mut bytes, tag);
        put_bytes(&mut bytes, value);
    }
    let image = Image::decode(&bytes).unwrap();
    assert_eq!(image.flow, FlowId { home: ServerId(7), serial: 8 });
    assert_eq!(image.http, HttpState::default());
}

#[test]
fn too_much_is_neither_written_nor_read() {
    let tcp = any_tcp(&mut Random(6));
    let mut image = Image { tcp: Some(tcp), ..any_image(&mut Random(5)) };
    let too_large = |image: &Image| matches!(image.encode(), Err(DecodeError::TooLarge { what: "the input", .. }));
    image.http.input = vec![0; limits::INPUT_BYTES_MAX + 1];
    assert!(too_large(&image));
    image.tcp = None;
    assert!(image.encode().is_ok(), "its socket goes along");
    image.http.input = vec![0; limits::PASSAGE_INPUT_BYTES_MAX + 1];
    assert!(too_large(&image));
    image.http.input.clear();
    let tcp = TcpState {
        sent: vec![0; limits::QUEUE_BYTES_MAX / 2 + 1],
        unsent: vec![0; limits::QUEUE_BYTES_MAX / 2],
        ..any_tcp(&mut Random(6))
    };
    image.tcp = Some(tcp);
    assert!(matches!(image.encode(), Err(DecodeError::TooLarge { what: "the unsent bytes", .. })));
}

/// An image must stay readable for the next version: these bytes are never to change.
#[test]
fn the_bytes_are_these() {
    let image = Image {
        flow: FlowId { home: ServerId(3), serial: 0x1F00C },
        tcp: Some(TcpState {
            local: ([192, 0, 2, 1], 80).into(),
            remote: ([198, 51, 100, 7], 40_000).into(),
            send_next: 0x0102_0304,
            receive_next: 1_000,
            window: TcpWindow { snd_wl1: 990, snd_wnd: 300, max_window: 65_535, rcv_wnd: 128, rcv_wup: 1_000 },
            mss: 1_460,
            window_scale: Some(WindowScale { send: 7, receive: 10 }),
            sack: true,
            timestamp: Some(0xA0B0_C0D0),
            unread: b"u".to_vec(),
            sent: b"se".to_vec(),
            unsent: b"uns".to_vec(),
        }),
        congestion: Some(Congestion { srtt_us: 1, rttvar_us: 2, cwnd: 10, ssthresh: 200 }),
        http: HttpState {
            connection: ConnectionState { requests: 2, phase: 3, flags: 1, ..ConnectionState::default() },
            input: b"GET".to_vec(),
            head: b"H".to_vec(),
            elapsed: Duration::from_nanos(5),
        },
        reply: Some(ReplyState {
            site: "s".into(),
            path: b"/p".to_vec(),
            coding: Some(Coding::Gzip),
            etag: b"\"e\"".to_vec(),
            complete_length: 500,
            status: 200,
            content_bytes: 500,
            pieces: vec![Piece::Literal(b"h".to_vec()), Piece::Content { first: 100, length: 400 }],
            resend_bytes: 3,
        }),
    };
    let hex: String = image.encode().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "01\
         0104038ce007\
         02050102 0ac801\
         032e 0e c00002010050 c63364079c40 01020304000003e8 0aac02ffff0380010005b4 7a a0b0c0d0 0175 027365 03756e73\
         0510 03010000 00020000000347455401 48 05\
         0719 0173 022f70 03 03226522 f403 c801 f403 03 02 000168 0164 9003"
            .replace(' ', "")
    );
    assert_eq!(image.request_id().to_string(), "3-1f00c-2");
}
