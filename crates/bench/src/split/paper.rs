//! What the paper's text says of its prototype: bare machines of 2.8 GHz, saturated, beside as many separate servers. Its plots have more points than
//! can be read off them; these are the ones that are written out.

/// What a cluster reached, as a part of what as many separate servers would.
pub(super) struct Published {
    /// The setup, as here.
    pub(super) setup: &'static str,
    pub(super) size: &'static str,
    pub(super) relative: f64,
}

const fn published(setup: &'static str, size: &'static str, relative: f64) -> Published {
    Published { setup, size, relative }
}

/// Figures 3, 6, 9, 10 and 12.
pub(super) const RELATIVE: [Published; 9] = [
    published("1+1 full", "64 KB", 0.75),
    published("1+3 full", "64 KB", 0.925),
    published("1+1 partial", "64 KB", 1.25),
    // Of 100 KB.
    published("1+1 partial", "128 KB", 1.125),
    published("1+3 partial", "64 KB", 1.10),
    published("2+1 full", "4 KB", 1.065),
    published("2+1 partial", "4 KB", 1.22),
    // Figure 6: with two data servers 83.3 %.
    published("1+2 full", "64 KB", 0.833),
    published("1+1 partial", "100 KB", 1.177),
];

/// Figure 7: how much shorter times were with three data servers than with one server, at the load that the latter just bears.
pub(super) const CONNECTION_TIME: f64 = 1.62 / 0.365;
pub(super) const RESPONSE_TIME: f64 = 2.38 / 0.922;
