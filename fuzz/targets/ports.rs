//! Whatever clients and nodes of a port say: what goes to whom doesn't depend on how it's split, nothing is moved that isn't there, and nothing
//! panics or goes on for ever. The first byte chooses the protocol, the second where the client's part ends, the third the size of pieces.
#![no_main]

use leat_logic::protocol::{ClientStep, Leg, Limits, Mistake, NodeStep, Protocol, Session, proxy_header};
use libfuzzer_sys::fuzz_target;

/// What became of a conversation.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    /// What each of two nodes was told.
    told: [Vec<u8>; 2],
    mistake: bool,
}

fn run(protocol: Protocol, is_by_request: bool, input: &[u8], piece: usize) -> Run {
    let limits = Limits { head_bytes_max: 512, first_bytes: 3 };
    let mut session = Session::new(protocol, limits, is_by_request);
    let (mut run, mut legs, mut taken, mut chosen) = (Run::default(), [None::<Leg>; 2], 0, 0);
    for end in (0..input.len()).step_by(piece).chain([input.len()]) {
        let mut budget = 4 * input.len() + 4096;
        loop {
            assert!(budget > 0, "it goes on for ever");
            budget -= 1;
            let rest = &input[taken..end];
            let step = match session.client_step(rest, end == input.len()) {
                Ok(step) => step,
                Err(Mistake::TooLong | Mistake::Client(_) | Mistake::Node(_)) => {
                    run.mistake = true;
                    return run;
                }
            };
            match step {
                ClientStep::Choose(_) | ClientStep::ChooseGathered(_) => {
                    let Some(leg) = legs[chosen % 2].or_else(|| session.open().map(|(leg, _)| leg)) else { return run };
                    legs[chosen % 2] = Some(leg);
                    chosen += 1;
                    session.assign(leg);
                }
                ClientStep::Open => legs[0] = session.open().map(|(leg, _)| leg),
                ClientStep::Forward(leg, bytes) => {
                    let node = legs.iter().position(|known| *known == Some(leg)).expect("it was opened");
                    assert!(bytes > 0 && bytes <= rest.len());
                    run.told[node].extend_from_slice(&rest[..bytes]);
                    session.took(bytes);
                    taken += bytes;
                }
                ClientStep::Instead(leg, bytes, words) => {
                    let node = legs.iter().position(|known| *known == Some(leg)).expect("it was opened");
                    assert!(bytes > 0 && bytes <= rest.len());
                    run.told[node].extend_from_slice(&words);
                    session.took_instead(leg, bytes);
                    taken += bytes;
                }
                ClientStep::Drop(bytes) => {
                    assert!(bytes > 0 && bytes <= rest.len());
                    session.took(bytes);
                    taken += bytes;
                }
                ClientStep::Everywhere(bytes) => {
                    session.took_everywhere(&rest[..bytes]);
                    taken += bytes;
                }
                ClientStep::NeedMore | ClientStep::Wait | ClientStep::End => break,
            }
        }
        while session.own_words().is_some() {}
    }
    run
}

/// What a node says after it was asked something.
fn hear(protocol: Protocol, request: &[u8], input: &[u8], piece: usize) {
    let mut session = Session::new(protocol, Limits { head_bytes_max: 512, first_bytes: 0 }, true);
    let Ok(ClientStep::Choose(_)) = session.client_step(request, true) else { return };
    let Some((leg, _)) = session.open() else { return };
    session.assign(leg);
    let mut taken = 0;
    for end in (0..input.len()).step_by(piece).chain([input.len()]) {
        while let Ok(NodeStep::Give(bytes) | NodeStep::Drop(bytes)) = session.node_step(leg, &input[taken..end]) {
            assert!(bytes > 0 && bytes <= end - taken);
            session.gave(leg, bytes);
            taken += bytes;
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[which, cut, piece], rest)) = data.split_first_chunk::<3>() else { return };
    let protocol = Protocol::ALL[usize::from(which & 0x7f) % Protocol::ALL.len()];
    let piece = usize::from(piece) + 1;
    let (client, node) = rest.split_at(usize::from(cut) * (rest.len() + 1) / 256);
    let is_by_request = which < 0x80;
    let whole = run(protocol, is_by_request, client, client.len().max(1));
    let pieces = run(protocol, is_by_request, client, piece);
    if !whole.mistake && !pieces.mistake {
        assert_eq!(pieces, whole);
    }
    hear(protocol, client, node, piece);
    if let Ok(Some((size, ends))) = proxy_header::read(client) {
        assert!(size <= client.len());
        for version in [proxy_header::Version::V1, proxy_header::Version::V2] {
            let mut header = Vec::new();
            proxy_header::write(version, ends, &mut header);
            let again = proxy_header::read(&header).expect("it was written").expect("as a whole");
            assert_eq!(again.0, header.len());
        }
    }
});
