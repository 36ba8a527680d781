//! Messages about leat itself, on standard error: a line for people or a JSON object. Requests go to the access logs.
//!
//! Where workers are, a thread writes: whoever reads standard error may stand still. What it can't take is dropped and counted.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leat_host::lock::lock;
use leat_logic::http::HttpDate;

use crate::config::{Log, LogFormat, LogLevel};

/// The level in force, and in the upper half whether lines are JSON.
static SETTINGS: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

const JSON: u8 = 0x80;

/// Lines that may wait for the thread.
const LINES_MAX: usize = 1024;
/// How long the end waits for the thread.
const FINISH_WITHIN: Duration = Duration::from_secs(1);

/// What the thread is to write.
struct Queue {
    has_thread: bool,
    lines: VecDeque<String>,
    /// Lines that there was no room for, after those.
    dropped: u64,
    is_writing: bool,
}

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { has_thread: false, lines: VecDeque::new(), dropped: 0, is_writing: false });
static GROWN: Condvar = Condvar::new();
static WRITTEN: Condvar = Condvar::new();

/// Held for moments only: nobody writes meanwhile.
fn queue() -> MutexGuard<'static, Queue> {
    lock(&QUEUE)
}

/// From now on a thread writes, and nobody waits for it.
///
/// # Errors
/// No thread can be had.
pub fn start_thread() -> io::Result<()> {
    std::thread::Builder::new().name("messages".into()).spawn(write_all)?;
    queue().has_thread = true;
    // Standard error may be what a worker that panics would wait for, instead of ending the process.
    std::panic::set_hook(Box::new(|panic| {
        let (thread, backtrace) = (std::thread::current(), Backtrace::capture());
        let trace =
            if backtrace.status() == BacktraceStatus::Captured { format!("\n{backtrace}") } else { String::new() };
        error(format_args!("thread {} {panic}{trace}", thread.name().unwrap_or_default()));
        finish();
    }));
    Ok(())
}

/// Waits until what there is has been written, but not for long.
pub fn finish() {
    let is_left = |queue: &mut Queue| queue.has_thread && (queue.is_writing || !queue.lines.is_empty());
    // What isn't written by then is lost.
    let _ = WRITTEN.wait_timeout_while(queue(), FINISH_WITHIN, is_left);
}

fn write_all() {
    loop {
        let mut queue = queue();
        queue.is_writing = false;
        WRITTEN.notify_all();
        let has_nothing = |queue: &mut Queue| queue.lines.is_empty() && queue.dropped == 0;
        let mut queue = GROWN.wait_while(queue, has_nothing).unwrap_or_else(PoisonError::into_inner);
        let line = queue.lines.pop_front().unwrap_or_else(|| {
            let dropped = std::mem::take(&mut queue.dropped);
            format_line("warning", &format_args!("{dropped} messages were dropped: nobody read standard error"))
        });
        queue.is_writing = true;
        drop(queue);
        write_now(&line);
    }
}

/// What may be logged of one thing that clients can bring about as often as they like: so much in a second.
#[derive(Debug, Default)]
pub struct Ration {
    second: i64,
    used: u32,
}

impl Ration {
    /// Whether this is one of the first `most` of its second.
    pub fn take(&mut self, second: i64, most: u32) -> bool {
        if self.second != second {
            (self.second, self.used) = (second, 0);
        }
        let is_left = self.used < most;
        self.used += u32::from(is_left);
        is_left
    }
}

/// Puts a configuration's `[log]` in force for the whole process.
pub fn configure(log: &Log) {
    let format = if log.format == LogFormat::Json { JSON } else { 0 };
    SETTINGS.store(log.level as u8 | format, Ordering::Relaxed);
}

/// leat can't do its work.
pub fn error(message: impl Display) {
    write(LogLevel::Error, "error", &message);
}

/// leat works, though not as it was meant to.
pub fn warning(message: impl Display) {
    write(LogLevel::Warning, "warning", &message);
}

/// A start, a reload, a stop.
pub fn info(message: impl Display) {
    write(LogLevel::Info, "info", &message);
}

fn write(level: LogLevel, name: &str, message: &dyn Display) {
    if level as u8 > SETTINGS.load(Ordering::Relaxed) & !JSON {
        return;
    }
    let line = format_line(name, message);
    let mut queue = queue();
    if !queue.has_thread {
        drop(queue);
        write_now(&line);
    } else if queue.lines.len() < LINES_MAX {
        queue.lines.push_back(line);
        GROWN.notify_one();
    } else {
        queue.dropped += 1;
    }
}

fn format_line(level: &str, message: &dyn Display) -> String {
    let time = HttpDate::from(leat_host::clock::wall()).format();
    let time = String::from_utf8_lossy(&time);
    if SETTINGS.load(Ordering::Relaxed) & JSON == 0 {
        return format!("{time} leat[{}] {level}: {message}\n", std::process::id());
    }
    let object = serde_json::json!({
        "time": time, "process": std::process::id(), "level": level, "message": message.to_string(),
    });
    format!("{object}\n")
}

fn write_now(line: &str) {
    // Nobody is left to tell when standard error is gone.
    let _ = io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ration_is_for_a_second() {
        let mut ration = Ration::default();
        let taken: Vec<bool> = [0, 0, 0, 1, 1, 1, 0].into_iter().map(|second| ration.take(second, 2)).collect();
        assert_eq!(taken, [true, true, false, true, true, false, true]);
    }
}
