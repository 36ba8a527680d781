//! Every kernel facility that leat uses.
