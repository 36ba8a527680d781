//! The bounds of dispatching, in one place.

use std::time::Duration;

/// Nodes of one dispatcher: a set of them is one word.
pub const NODES_MAX: usize = 64;

/// The largest weight of a node; 100 is an ordinary one.
pub const WEIGHT_MAX: u32 = 10_000;

/// The least and the most entries that a table can be given.
pub const TABLE_ENTRIES_MIN: usize = 16;
/// See [`TABLE_ENTRIES_MIN`].
pub const TABLE_ENTRIES_MAX: usize = 1 << 24;

/// Entries that expired and are cleared away with one choice.
pub(super) const EXPIRED_PER_CHOICE: usize = 4;

/// A node whose first link comes within this time was there from the start: servers that are started together find each other by then.
pub(super) const FIRST_LINK_TIME: Duration = Duration::from_secs(10);

/// Part of its weight that a node starts with, in thousandths.
pub(super) const SLOW_START_PERMILLE: u64 = 100;

/// Doublings of an ejection's time.
pub(super) const EJECTION_DOUBLINGS_MAX: u32 = 10;

/// Part of the nodes that failed requests may eject at once, in hundredths.
pub(super) const EJECTED_PERCENT_MAX: usize = 50;

/// A node without failures for so long has its ejections forgotten.
pub(super) const EJECTIONS_FORGOTTEN: Duration = Duration::from_secs(600);

/// Contents whose size is remembered, in all.
pub(super) const SIZES_REMEMBERED: usize = 1 << 14;

/// Sites whose averages are kept apart; later ones share the last.
pub(super) const SITES_MAX: usize = 1024;
