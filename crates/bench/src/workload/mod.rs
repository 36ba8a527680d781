//! What is asked for: file sets made from a seed, and mixes of requests over them.

pub(crate) mod content;
pub(crate) mod file_set;
pub(crate) mod mix;
pub(crate) mod specweb99;
