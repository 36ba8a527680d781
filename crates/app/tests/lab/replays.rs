//! Connections at servers that aren't leat on kernels that can't be handed them: their handshakes are replayed, and their packets translated. What goes on there is
//! the same as where nothing is, so these are the same tests once more, and those of what is translated.

use std::fs;

use super::{Lab, foreign, is_possible, transplants};

/// Whether a lab's dispatcher and nodes do that.
pub(super) fn have_replayed(lab: &Lab) -> bool {
    ["dispatcher", "n1", "n2"].iter().all(|node| {
        let log = fs::read_to_string(format!("/run/leat-lab/{}/{node}.log", lab.name)).expect("a lab's logs");
        log.contains("by handshakes that are replayed")
    })
}

#[test]
fn nginx_answers_whose_kernel_has_had_another_handshake() {
    if is_possible() && foreign::has_nginx() {
        foreign::nginx_answers("replays", "replay = true");
    }
}

#[test]
fn each_request_is_answered_by_who_has_it_where_handshakes_are_replayed() {
    if is_possible() && foreign::has_nginx() {
        transplants::each_by_who_has_it("replays-each", "replay = true");
    }
}

#[test]
fn odd_requests_are_answered_by_who_has_it_where_handshakes_are_replayed() {
    if is_possible() && foreign::has_nginx() {
        transplants::odd_ways("replays-odd", "replay = true");
    }
}
