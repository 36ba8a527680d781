//! Messages about leat itself, on standard error: a line for people or a JSON object. Requests go to the access logs.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

use leat_logic::http::HttpDate;

use crate::config::{Log, LogFormat, LogLevel};

/// The level in force, and in the upper half whether lines are JSON.
static SETTINGS: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

const JSON: u8 = 0x80;

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
    let settings = SETTINGS.load(Ordering::Relaxed);
    if level as u8 > settings & !JSON {
        return;
    }
    let time = HttpDate::from(leat_host::clock::wall()).format();
    let time = String::from_utf8_lossy(&time);
    let line = if settings & JSON == 0 {
        format!("{time} leat[{}] {name}: {message}\n", std::process::id())
    } else {
        let object = serde_json::json!({
            "time": time, "process": std::process::id(), "level": name, "message": message.to_string(),
        });
        format!("{object}\n")
    };
    // Nobody is left to tell when standard error is gone.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
