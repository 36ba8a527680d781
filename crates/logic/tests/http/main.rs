//! Golden tests of `leat_logic::http`: text files with inputs and what must come of them. What comes as a stream of bytes is replayed
//! whole, split in two at every byte, and byte by byte; the outcome must be the same each time.
//!
//! `LEAT_BLESS=1 cargo test -p leat-logic --test http` writes what came out into the files, for review as a diff.

mod conditional;
mod connection;
mod driver;
mod golden;
mod other_parser;
mod replies;
mod time_limits;
mod values;
