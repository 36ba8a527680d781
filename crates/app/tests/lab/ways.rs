//! By which way a connection's first request gets to its node, as `hand_over` says and a reload changes.

use std::collections::BTreeMap;
use std::fs;

use super::motion::{self, Begun};
use super::{Folder, Lab, is_possible};

#[test]
fn a_first_request_takes_the_way_that_hand_over_names() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(16), Folder::new("ways"));
    let files = BTreeMap::from([("small".to_owned(), motion::content("small", 1_000))]);
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'\nhand_over = 'never'");
    let socket = folder.path("leat.sock");
    let ask_some = || {
        lab.at("client1", || {
            for _ in 0..20 {
                let (mut stream, mut rest) = (motion::connect(), Vec::new());
                for _ in 0..2 {
                    motion::ask(&mut stream, &["small"]);
                    assert!(motion::read_reply(&mut stream, &mut rest).expect("a reply") == files["small"]);
                }
            }
        });
        lab.number("dispatcher", "leat_births_total") + lab.number("dispatcher", "leat_handoffs_total")
    };
    let explain = || motion::tell(&socket, &["ctl", "explain", "GET /small"]);
    assert_eq!(ask_some(), 0, "all were proxied");
    let said = explain();
    assert!(said.contains("first request: proxy: `hand_over` in [cluster] says so ("), "{said}");
    let file = folder.path("cluster.toml");
    let text = fs::read_to_string(&file).expect("it's there");
    fs::write(&file, text.replace("'never'", "'always'")).expect("a configuration");
    lab.reload("dispatcher");
    assert_eq!(ask_some(), 20, "every connection went to a node");
    let said = explain();
    assert!(!said.contains("first request: proxy: it takes the least") && said.contains(", proxy "), "{said}");
}
