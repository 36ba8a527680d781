//! Connections that move between servers while their clients go on, in network namespaces: freeze and thaw with steering, as they're meant to
//! be used together. Needs root.

mod client;
mod cluster;
mod content;
mod lab;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use leat_host::clock;
use leat_host::namespace::Namespace;
use leat_host::steering::Flows;
use leat_logic::handoff::{Generation, ServerId};

use client::Client;
use cluster::{Cluster, id, load_dispatcher};
use lab::{Lab, VIP4, VIP6};

/// A client that waits longer noticed something.
const STALL_MAX: Duration = Duration::from_secs(1);

/// Runs clients in a namespace, all at once, and returns the longest that any of them waited.
fn clients(machine: &Namespace, count: usize, work: impl Fn(usize) -> Client + Send + Sync + 'static) -> Duration {
    let work = Arc::new(work);
    let start = Arc::new(Barrier::new(count));
    let running: Vec<_> = (0..count)
        .map(|number| {
            let (work, start) = (Arc::clone(&work), Arc::clone(&start));
            machine.start(move || {
                start.wait();
                work(number).stall
            })
        })
        .collect();
    running.into_iter().map(|client| client.join().unwrap().unwrap()).max().unwrap()
}

#[test]
fn a_connection_goes_round_all_servers() {
    let Some(lab) = Lab::new("round") else { return };
    let cluster = Cluster::start(&lab);
    for vip in [VIP4, VIP6] {
        let stall = clients(&lab.client, 1, move |_| {
            let mut client = Client::connect(vip);
            for (server, bytes) in
                [('d', 100), ('a', 1000), ('b', 1000), ('a', 64_000), ('d', 64_000), ('b', 10_000_000)]
            {
                client.get(server, bytes);
            }
            client.get('a', 10_000_000);
            client
        });
        assert!(stall < STALL_MAX, "{vip}: waited {stall:?}");
    }
    assert_eq!(cluster.shared.moves.load(Ordering::Relaxed), 12);
    let counters = cluster.shared.dispatcher.counters().unwrap();
    assert_eq!(counters.lost, 0, "{counters:?}");
}

#[test]
fn an_upload_moves_in_its_middle() {
    let Some(lab) = Lab::new("upload") else { return };
    let _cluster = Cluster::start(&lab);
    for vip in [VIP4, VIP6] {
        let stall = clients(&lab.client, 4, move |number| {
            let mut client = Client::connect(vip);
            for round in 0..10 {
                client.post(['a', 'b', 'd'][(number + round) % 3], 3_000_000);
            }
            client
        });
        assert!(stall < STALL_MAX, "{vip}: waited {stall:?}");
    }
}

#[test]
fn pipelined_requests_are_answered_each_where_it_belongs() {
    let Some(lab) = Lab::new("pipeline") else { return };
    let _cluster = Cluster::start(&lab);
    for vip in [VIP4, VIP6] {
        let stall = clients(&lab.client, 4, move |_| {
            let mut client = Client::connect(vip);
            let requests = [('a', 10), ('b', 100_000), ('b', 5), ('d', 50_000), ('a', 300_000), ('b', 0)];
            for _ in 0..10 {
                for (server, bytes) in requests {
                    client.ask(server, bytes);
                }
                for (server, bytes) in requests {
                    client.expect(server, &content::of(bytes));
                }
            }
            client
        });
        assert!(stall < STALL_MAX, "{vip}: waited {stall:?}");
    }
}

#[test]
fn clients_without_options_move_as_well() {
    let options = ["tcp_timestamps", "tcp_sack", "tcp_window_scaling"];
    let Some(lab) = Lab::new("options") else { return };
    let _cluster = Cluster::start(&lab);
    // Each alone, then all.
    for without in [&options[..1], &options[1..2], &options[2..], &options] {
        for option in options {
            let value = if without.contains(&option) { "0" } else { "1" };
            lab.client.set(&format!("net.ipv4.{option}"), value).unwrap();
        }
        let stall = clients(&lab.client, 2, |_| {
            let mut client = Client::connect(VIP4);
            client.get('a', 1_000_000);
            client.post('b', 1_000_000);
            client.get('d', 1_000_000);
            client.post('a', 1_000_000);
            client
        });
        assert!(stall < STALL_MAX, "without {without:?}: waited {stall:?}");
    }
}

#[test]
fn segments_that_are_lost_only_cost_time() {
    let Some(lab) = Lab::new("loss") else { return };
    let cluster = Cluster::start(&lab);
    lab.without_offloads();
    lab.lose(20);
    clients(&lab.client, 8, |number| {
        let mut client = Client::connect([VIP4, VIP6][number % 2]);
        for round in 0..10 {
            let server = ['a', 'b', 'd'][(number + round) % 3];
            if round % 2 == 0 { client.get(server, 30_000) } else { client.post(server, 30_000) }
        }
        client
    });
    assert!(cluster.shared.moves.load(Ordering::Relaxed) >= 60);
}

/// Some thousand; more with `LEAT_HANDOFFS`.
#[test]
fn thousands_of_handoffs_leave_nothing_behind() {
    let Some(lab) = Lab::new("many") else { return };
    let cluster = Cluster::start(&lab);
    let moves: usize = std::env::var("LEAT_HANDOFFS").map_or(4000, |text| text.parse().unwrap());
    let (count, each) = (8, 10);
    let rounds = moves / count / each;
    let stall = clients(&lab.client, count, move |number| {
        let mut stall = Duration::ZERO;
        for round in 0..rounds {
            let mut client = Client::connect([VIP4, VIP6][round % 2]);
            for request in 0..each {
                client.get(['a', 'b', 'd'][(number + round + request) % 3], [10, 1000, 30_000][request % 3]);
            }
            stall = stall.max(client.stall);
            client.stall = stall;
            if round + 1 == rounds {
                return client;
            }
        }
        unreachable!("the last round returns")
    });
    assert!(stall < STALL_MAX, "waited {stall:?}");
    let counters = cluster.shared.dispatcher.counters().unwrap();
    let moved = cluster.shared.moves.load(Ordering::Relaxed);
    println!("{moved} moves, longest wait {stall:?}, {counters:?}");
    assert_eq!(counters.lost, 0, "{counters:?}");
    wait_until("every flow is over", || {
        let later = leat_logic::time::Instant { ns: clock::now().ns + 3_000_000_000 };
        let flows = cluster.shared.dispatcher.flows();
        let mut place = None;
        loop {
            place = flows.sweep(place, 1000, later).unwrap().1;
            if place.is_none() {
                break;
            }
        }
        entries(flows) == 0
    });
}

#[test]
fn a_port_is_used_again_after_the_node_has_closed() {
    let Some(lab) = Lab::new("port") else { return };
    let _cluster = Cluster::start(&lab);
    for vip in [VIP4, VIP6] {
        let stall = clients(&lab.client, 1, move |_| {
            for _ in 0..20 {
                let mut client = Client::connect_from(5000, vip);
                client.ask_last('a', 1000);
                client.expect('a', &content::of(1000));
                client.expect_end();
            }
            Client::connect(vip)
        });
        assert!(stall < STALL_MAX, "{vip}: waited {stall:?}");
    }
}

fn entries(flows: &Flows) -> usize {
    let (mut count, mut place) = (0, None);
    loop {
        let (entries, next) = flows.list(place, 1000).unwrap();
        count += entries.len();
        place = next;
        if place.is_none() {
            return count;
        }
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "waited in vain until {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_smaller_path_is_told_to_who_has_the_connection() {
    let Some(lab) = Lab::new("mtu") else { return };
    let cluster = Cluster::start(&lab);
    lab.without_offloads();
    lab.router.ip("link set to-client mtu 1300").unwrap();
    for (index, vip) in [VIP4, VIP6].into_iter().enumerate() {
        let stall = clients(&lab.client, 1, move |_| {
            let mut client = Client::connect(vip);
            client.get('a', 200_000);
            client.get('b', 200_000);
            client
        });
        assert!(stall < STALL_MAX, "{vip}: waited {stall:?}");
        let counters = cluster.shared.dispatcher.counters().unwrap();
        assert!(counters.errors >= 2 * (index as u64 + 1), "{counters:?}");
    }
}

#[test]
fn a_dispatcher_that_dies_cuts_nobody() {
    let Some(lab) = Lab::new("restart") else { return };
    let pins = lab.pins(&lab.dispatcher);
    let cluster = Cluster::start(&lab);
    lab.client
        .run(move || {
            let mut client = Client::connect(VIP4);
            client.get('a', 1000);
            drop(cluster);
            client.get('a', 1_000_000);
            client
        })
        .unwrap();
    assert!(pins.exists());
    let dispatcher = load_dispatcher(&lab, 77);
    assert_eq!(entries(dispatcher.flows()), 1);
    assert_eq!(dispatcher.flows().capacity(), 1 << 16, "the map is the old one");
    lab.dispatcher.run(move || dispatcher.detach("eth0").unwrap()).unwrap();
}

#[test]
fn a_full_map_refuses_and_evicts_nobody() {
    let Some(lab) = Lab::new("full") else { return };
    let dispatcher = load_dispatcher(&lab, 4);
    let flow = |port: u32| cluster::key(&format!("192.0.2.1:{}", port + 1), VIP4);
    for port in 0..4 {
        dispatcher.flows().hold(flow(port), id(7)).unwrap();
    }
    let error = dispatcher.flows().hold(flow(4), id(7)).unwrap_err();
    assert_eq!(error.to_string(), "all 4 entries for flows are taken");
    assert!(!dispatcher.flows().delete(flow(0), id(8)).unwrap(), "another flow's");
    assert!(dispatcher.flows().delete(flow(0), id(7)).unwrap());
    dispatcher.flows().hold(flow(4), id(7)).unwrap();
    dispatcher.flows().steer(flow(4), id(7), (ServerId::new(1, 0), Generation::default())).unwrap();
    assert_eq!(entries(dispatcher.flows()), 4);
}

#[test]
fn a_node_says_nothing_that_is_not_its_to_say() {
    let Some(lab) = Lab::new("guard") else { return };
    let cluster = Cluster::start(&lab);
    let node = &cluster.nodes[0];
    // To the node itself, whose port is also the VIP's.
    let text = lab.client.run(|| {
        use std::io::Read;
        let mut text = String::new();
        std::net::TcpStream::connect("10.78.0.12:80").unwrap().read_to_string(&mut text).map(|_| text)
    });
    assert_eq!(text.unwrap().unwrap(), "node itself");
    // Past its lease it's silent, and goes on with a new one.
    let stall = lab.client.start(|| {
        let mut client = Client::connect(VIP4);
        client.get('a', 1000);
        client.ask('a', 500);
        client.expect('a', &content::of(500));
        client.stall
    });
    assert!(stall.join().unwrap().unwrap() < STALL_MAX);
    node.lock().unwrap().set_lease(0).unwrap();
    let waiting = lab.client.start(|| {
        let mut client = Client::connect(VIP4);
        client.get('a', 1000);
    });
    wait_until("the node is fenced", || node.lock().unwrap().counters().unwrap().fenced > 0);
    node.lock().unwrap().set_lease(u64::MAX).unwrap();
    waiting.join().unwrap().unwrap();
}
