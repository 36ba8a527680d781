//! What a command says to whoever has called it. That nobody reads it (`| head`), or that there's no room for it, changes nothing of what the command
//! does, nor its exit code.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes to standard output.
pub fn print(text: impl Display) {
    let mut out = io::stdout().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Writes to standard error.
pub fn complain(text: impl Display) {
    let _ = write!(io::stderr(), "{text}");
}
