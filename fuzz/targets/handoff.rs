//! Images, messages and links fed with anything: never a panic; what is read can be written and is then read the same; nothing opens a link.
#![no_main]

use leat_logic::handoff::{Image, LinkKey, LinkSession, Message, Progress, ServerId};
use leat_logic::time::Instant;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else { return };
    match kind % 4 {
        0 => {
            if let Ok(image) = Image::decode(bytes) {
                let written = image.encode().expect("what was read is within the limits");
                assert_eq!(Image::decode(&written), Ok(image));
            }
        }
        1 => {
            if let Ok(progress) = Progress::decode(bytes) {
                let written = progress.encode().expect("what was read is within the limits");
                assert_eq!(Progress::decode(&written), Ok(progress));
            }
        }
        2 => {
            let mut rest = bytes;
            while let Ok(Some((length, message))) = Message::decode(rest) {
                rest = &rest[length..];
                if let Some(message) = message {
                    let mut written = Vec::new();
                    message.encode(&mut written);
                    assert_eq!(Message::decode(&written), Ok(Some((written.len(), Some(message)))));
                }
            }
        }
        _ => {
            let key = LinkKey::from_secret(&[7; 32]).expect("long enough");
            let now = Instant { ns: 1 };
            for session in [
                LinkSession::accept(now, ServerId(1), &key, [1; 32]),
                LinkSession::connect(now, ServerId(1), &key, [1; 32]),
            ] {
                let mut session = session.expect("a handshake can begin");
                let mut rest = bytes;
                while let Ok(taken) = session.handle_input(rest) {
                    rest = &rest[taken..];
                    if rest.is_empty() {
                        break;
                    }
                }
                assert_eq!(session.peer(), None);
            }
        }
    }
});
