//! Carries frames between a client and the switch, as `line` decides: a process of its own for each client, in the client's namespace.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use leat_host::tap::{FRAME_BYTES_MAX, Tap};

use super::line::{Line, Traits};

/// Frames that are taken in before the others' turn.
const TAKEN_AT_ONCE: usize = 64;

/// One end of a line: a tap in a namespace.
pub(super) struct End<'a> {
    pub(super) namespace: &'a Path,
    pub(super) device: &'a str,
}

/// Carries frames both ways until somebody ends the process; `up` is called when it begins.
///
/// # Errors
/// A tap isn't there, or waiting for frames fails.
pub(super) fn carry(ends: [End<'_>; 2], traits: Traits, offloads: bool, up: impl FnOnce()) -> io::Result<()> {
    let [near, far] = ends.map(|end| Tap::attach(end.namespace, end.device, offloads));
    let taps = [&near?, &far?];
    up();
    let began = Instant::now();
    let mut lines = [Line::new(traits, 1), Line::new(traits, 2)];
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    loop {
        for (place, line) in lines.iter_mut().enumerate() {
            for _ in 0..TAKEN_AT_ONCE {
                let Some(frame) = taps[place].read(&mut buffer) else { break };
                line.send(began.elapsed(), frame);
            }
            while let Some(frame) = line.poll(began.elapsed()) {
                taps[1 - place].write(&frame);
            }
        }
        let next = lines.iter().filter_map(Line::poll_timeout).min();
        Tap::wait(taps, next.map(|due| due.saturating_sub(began.elapsed()).max(Duration::from_micros(1))))?;
    }
}
