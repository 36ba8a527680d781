//! The storage against real files, in a directory of each test's own.

mod changes;
mod fixture;
mod memory;
mod paths;
mod pool;
