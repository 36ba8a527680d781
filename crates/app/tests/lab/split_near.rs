//! Data servers that are near to some clients: whose requests they get, and how many.

use std::fs;
use std::net::IpAddr;

use leat::ctl::{self, Command};

use super::split::{Cluster, ONLY, SIZES, ask, connect};
use super::{Folder, Lab, is_possible};

/// Each data server is near to one of the lab's clients, in this order.
const CLIENTS: [(&str, &str); 2] = [("client1", "198.18.0.1"), ("client2", "198.18.0.2")];

/// A cluster that delegates as `split` says.
fn write(folder: &Folder, split: &str) -> String {
    let file = Cluster { split, rest: "[lab]\nclients = 2\n", ..ONLY }.write(folder, "cluster");
    let mut text = fs::read_to_string(&file).expect("it's there");
    for (name, (_, address)) in ["ds1", "ds2"].iter().zip(CLIENTS) {
        let named = format!("name = '{name}'\n");
        assert!(text.contains(&named), "{text}");
        text = text.replace(&named, &format!("{named}near = '{address}'\n"));
    }
    fs::write(&file, text).expect("a configuration");
    file
}

/// So many connections of one request each.
fn ask_often(lab: &Lab, client: &str, count: u64) {
    lab.at(client, || (0..count).for_each(|_| ask(&mut connect(), SIZES[1])));
}

/// The connections that each data server was handed, or that began there.
fn taken(lab: &Lab) -> [u64; 2] {
    let names = ["leat_handoffs_total", "leat_births_total"];
    ["ds1", "ds2"].map(|host| lab.numbers(names.map(|name| (host, 9180, name))).iter().sum())
}

fn explain(folder: &Folder, client: &str) -> serde_json::Value {
    let client: Option<IpAddr> = client.parse().ok();
    let command = Command::Split { request: format!("GET /{}", SIZES[1]), client };
    ctl::ask(folder.path("cluster.sock").as_ref(), &command).expect("it answers")
}

#[test]
fn a_clients_requests_go_to_the_data_server_near_to_it() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("near"));
    lab.well(&["up", &write(&folder, "delegation = 'full'\nsize_min = '64KiB'")]);
    ask_often(&lab, "client1", 6);
    let [first, second] = taken(&lab);
    assert!(first >= 6 && second == 0, "{first} at the near one, {second} at the other");
    // Both for the same, all the time: no choice that stands for one's may be the other's.
    let count = 20;
    std::thread::scope(|scope| {
        for (client, _) in CLIENTS {
            let lab = &lab;
            scope.spawn(move || ask_often(lab, client, count));
        }
    });
    assert_eq!(lab.number("cs", "leat_births_unasked_total"), 0);
    let after = taken(&lab);
    // One that is late to begin may begin twice.
    let is_right = |more: u64| (count..count + count / 4).contains(&more);
    assert!(is_right(after[0] - first) && is_right(after[1] - second), "{count} each: {first}, {second}, {after:?}");
    let explained = explain(&folder, CLIENTS[1].1);
    let text = explained["text"].as_str().expect("it's said in words");
    assert_eq!(explained["near"], true, "{explained}");
    assert!(text.contains("goes to ds2") && text.contains("another one is nearer to the client"), "{text}");
    let text = explain(&folder, "")["text"].to_string();
    assert!(text.contains("--client"), "{text}");
    // Where none is near that may be given something, the others are.
    let drained = ctl::ask(folder.path("cluster.sock").as_ref(), &Command::Drain { node: "ds1".to_owned() });
    drained.expect("it takes on nothing more");
    let before = taken(&lab);
    ask_often(&lab, "client1", 3);
    let after = taken(&lab);
    assert!(after[0] == before[0] && after[1] >= before[1] + 3, "{before:?} {after:?}");
    assert_eq!(explain(&folder, CLIENTS[0].1)["near"], false);
    assert_eq!(lab.number("cs", "leat_flows_cut_total"), 0);
}

#[test]
fn what_has_a_data_server_near_may_be_delegated_always() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("always"));
    lab.well(&["up", &write(&folder, "size_min = '64KiB'")]);
    let delegated = || lab.number("cs", "leat_requests_delegated_total");
    ask_often(&lab, "client2", 3);
    assert_eq!(delegated(), 0, "this server has nothing else to do");
    assert_eq!(explain(&folder, CLIENTS[1].1)["delegated"], false);
    write(&folder, "size_min = '64KiB'\nload_min = 100\nnear = 'always'");
    lab.reload("cs");
    ask_often(&lab, "client2", 3);
    lab.at("client2", || ask(&mut connect(), SIZES[0]));
    assert_eq!(delegated(), 3, "but for the small one");
    assert_eq!(taken(&lab), [0, 3]);
    let explained = explain(&folder, CLIENTS[1].1);
    assert_eq!(explained["delegated"], true, "{explained}");
    assert_eq!(explain(&folder, "203.0.113.1")["delegated"], false, "none is near");
    assert_eq!(lab.number("cs", "leat_flows_cut_total"), 0);
}
