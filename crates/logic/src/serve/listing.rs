//! The page that lists a directory.
