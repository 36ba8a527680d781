//! A pretend host, driven from a seed.
