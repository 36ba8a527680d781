//! Any number of connection servers with any number of data servers, by the files that the examples have for two and two.

use std::fs;

use super::split::{SIZES, ask, connect_to, content};
use super::{Folder, Lab, is_possible, repository};

/// Replaces what an example has once and a test needs otherwise.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replace(from, to)
}

#[test]
fn two_connection_servers_share_two_data_servers() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("two-and-two"));
    fs::write(folder.path(&format!("site/{}", SIZES[1])), content(SIZES[1])).expect("a file to serve");
    let files = ["a", "b"].map(|which| {
        let example = repository().join(format!("examples/split-2-2-{which}.toml"));
        let text = fs::read_to_string(example).expect("the example");
        // All of it, as nothing would be delegated to two servers that have so little to do.
        let text = replaced(&text, "delegation = \"partial\"", "delegation = \"full\"");
        // Another test may have the example's socket.
        let text = replaced(
            &text,
            &format!("socket = \"/run/leat-{which}.sock\""),
            &format!("socket = '{}'", folder.path(&format!("{which}.sock"))),
        );
        let file = folder.path(&format!("{which}.toml"));
        fs::write(&file, text).expect("a configuration");
        file
    });
    lab.well(&["up", &files[0], &files[1]]);
    let requests = 6;
    lab.at("client1", || {
        for vip in ["10.77.0.100:80", "10.77.0.101:80"] {
            (0..requests).for_each(|_| ask(&mut connect_to(vip), SIZES[1]));
        }
    });
    for (host, port) in [("cs1", 9180), ("cs2", 9181)] {
        assert_eq!(lab.number_at(host, port, "leat_requests_delegated_total"), requests, "{host}");
        assert_eq!(lab.number_at(host, port, "leat_flows_cut_total"), 0, "{host}");
        // Moved there, or begun there.
        let taken = ["ds1", "ds2"].map(|node| {
            ["leat_handoffs_total", "leat_births_total"].map(|name| lab.number_at(node, port, name)).iter().sum::<u64>()
        });
        assert!(taken.iter().all(|&taken| taken >= 2), "{host}: {taken:?}");
    }
}
