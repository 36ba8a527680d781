//! Clients that send much at once, one request behind the other, to two programs of a site that may hold little. It's all answered, however little that is,
//! and nobody is late while it's the server that doesn't read.

use std::sync::Arc;
use std::time::Duration;

use crate::agenda::{Happening, MILLISECOND};
use crate::link::Pace;
use crate::random::Random;
use crate::settings;
use crate::simulation::{Failure, Mail, Receives, Run};
use crate::world::{Faults, World};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Uploads {
    /// Decides everything else.
    pub seed: u64,
    /// Clients.
    pub clients: usize,
    /// Requests of each.
    pub each: usize,
    /// Bytes of memory that the site may hold.
    pub memory: u64,
    /// How many requests in a hundred come in chunks, so that all of their content has to lie here before a program has any.
    pub chunked_percent: u64,
    /// For how long clients may be silent in content.
    pub stall_timeout: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Uploaded {
    /// Replies of programs.
    pub answered: u64,
    /// Replies with 503.
    pub unavailable: u64,
    /// The most that was held at once, in bytes.
    pub held_bytes_max: u64,
    /// When all had ended, in milliseconds.
    pub ended_at_ms: u64,
}

/// Runs them to their end.
///
/// # Errors
/// What went wrong.
pub fn run_uploads(uploads: Uploads) -> Result<Uploaded, Failure> {
    let mut random = Random::new(uploads.seed);
    let receives = Receives { buffers: *random.pick(&[4, 512]), cancels_late: random.percent(50) };
    let faults = Faults {
        watching: false,
        cached_percent: 100,
        disk_errors_in_1000: 0,
        accept_failures_in_1000: 0,
        queued_pages_change: false,
        trusts_files: false,
    };
    let mut world = World::new(random, faults, false);
    for _ in 0..uploads.clients {
        let pace = Pace {
            delay_ns_max: *world.random.pick(&[0, 50_000, MILLISECOND]),
            upstream_fragment_bytes_max: *world.random.pick(&[1_460, 65_536]),
            downstream_fragment_bytes_max: 65_536,
            receive_buffer_bytes: *world.random.pick(&[2_304, 65_536]),
            send_buffer_bytes: 87_040,
            client_window_bytes: 65_536,
        };
        world.add_uploader(uploads.each, uploads.chunked_percent, pace);
    }
    world.agenda.after(0, Happening::Mail(0));
    let config = Arc::new(settings::for_uploads(uploads.memory, uploads.stall_timeout));
    let unready = |error| Failure { seed: uploads.seed, violations: vec![format!("the run can't be set up: {error}")] };
    let mut run = Run::begin(world, receives, config.clone(), vec![Mail::Configure(config)], uploads.seed);
    let run = run.as_mut().map_err(|error| unready(error.to_string()))?;
    let summary = run.finish()?;
    let unavailable = run.unavailable();
    Ok(Uploaded {
        answered: summary.replies - unavailable,
        unavailable,
        held_bytes_max: run.held_bytes_max,
        ended_at_ms: summary.ended_at_ms,
    })
}
