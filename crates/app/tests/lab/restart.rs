//! A dispatcher that dies and is started again: what nodes hold goes on as if nothing had been, and in the end the kernel has forgotten all of it. What of
//! that a reload can do, and what it can't.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::motion::{ask, connect, content, read_reply, read_slowly};
use super::privileges::forget_pins;
use super::{Folder, Lab, is_possible, within};

#[test]
fn a_dispatcher_that_is_killed_and_started_again_cuts_nothing() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("restart"));
    let (small, big) = (content("small", 1_000), content("big", 8 << 20));
    fs::write(folder.path("site/small"), &small).expect("a file to serve");
    fs::write(folder.path("site/big"), &big).expect("a file to serve");
    let file = folder.path("cluster.toml");
    let log = folder.path("again.log");
    fs::write(&file, configuration(2)).expect("a configuration");
    lab.well(&["up", &file]);
    // One that has ended is to go by itself, whoever lives then.
    lab.at("client1", || read(&mut connect(), &small));
    let mut idle = connect_and_read(&lab, 30, &small);
    let held = lab.total(["n1", "n2"], "leat_flows");
    assert_eq!(held, 30, "nodes have them");
    let mut again = None;
    let outcomes = read_slowly(&lab, 8, "big", &big, || {
        lab.kill("dispatcher");
        within("it has ended", || lab.processes("dispatcher").is_empty());
        again = Some(start(&lab, &file, &log));
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
    lab.at("client1", || {
        idle.iter_mut().for_each(|stream| read(stream, &small));
        read(&mut connect(), &small);
    });
    let said = || fs::read_to_string(&log).expect("it was started");
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0, "{}", said());
    assert_eq!(lab.number("dispatcher", "leat_flows"), 30, "it knows those that were begun in its earlier life");
    assert!(lab.number("dispatcher", "leat_flow_entries") >= 30);
    drop(idle);
    within("no entry is left", || lab.number("dispatcher", "leat_flow_entries") == 0);
    assert_eq!(lab.number("dispatcher", "leat_flows"), 0);
    lab.kill("dispatcher");
    again.expect("it was started").wait().expect("it has ended");
}

#[test]
fn a_dispatcher_that_is_upgraded_to_fewer_workers_cuts_nothing() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("fewer"));
    let small = content("small", 1_000);
    fs::write(folder.path("site/small"), &small).expect("a file to serve");
    let write = |workers: u32| {
        fs::write(folder.path("cluster.toml"), configuration(workers)).expect("a configuration");
    };
    write(3);
    lab.well(&["up", &folder.path("cluster.toml")]);
    let mut idle = connect_and_read(&lab, 30, &small);
    write(1);
    await_next_engine(&lab, |lab| lab.tell_supervisor("dispatcher", "-USR2"));
    lab.at("client1", || {
        idle.iter_mut().for_each(|stream| read(stream, &small));
        read(&mut connect(), &small);
    });
    lab.at("client1", || idle.iter_mut().for_each(|stream| read(stream, &small)));
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

#[test]
fn a_dispatcher_that_is_upgraded_with_connections_of_its_own_cuts_nothing_that_nodes_have() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("own"));
    let (small, big) = (content("small", 1_000), content("big", 8 << 20));
    fs::write(folder.path("site/small"), &small).expect("a file to serve");
    fs::write(folder.path("site/big"), &big).expect("a file to serve");
    fs::write(folder.path("cluster.toml"), configuration(2)).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let (mut idle, half) = lab.at("client1", || {
        let mut clients: Vec<_> = (0..20).map(|_| connect()).collect();
        clients.iter_mut().for_each(|stream| read(stream, &small));
        let mut half = connect();
        half.write_all(b"GET /small HTTP/1.1\r\nHost:").expect("half a head");
        (clients, half)
    });
    let established = ["exec", "dispatcher", "ss", "-Htn", "state", "established", "sport", "=", ":80"];
    within("the dispatcher has it", || !lab.well(&established).is_empty());
    let outcomes = read_slowly(&lab, 8, "big", &big, || {
        for _ in 0..2 {
            await_next_engine(&lab, |lab| lab.tell_supervisor("dispatcher", "-USR2"));
            lab.at("client1", || read(&mut connect(), &small));
        }
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
    lab.at("client1", || idle.iter_mut().for_each(|stream| read(stream, &small)));
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    drop(half);
}

#[test]
fn nobody_waits_for_what_a_dispatchers_worker_that_has_gone_would_say() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("links"));
    let write = |workers: u32| {
        fs::write(folder.path("cluster.toml"), configuration(workers)).expect("a configuration");
    };
    write(2);
    lab.well(&["up", &folder.path("cluster.toml")]);
    await_links(&lab);
    write(1);
    lab.reload("dispatcher");
    within("those of the worker that has gone are closed", || links(&lab) == 4);
    // Both within less than the drain time-out of 30 s.
    lab.tell_supervisor("n1", "-TERM");
    within("n1 has ended", || lab.processes("n1").trim().is_empty());
    lab.stop("dispatcher");
    lab.tell_supervisor("n2", "-TERM");
    within("n2 has ended, whose dispatcher says nothing", || lab.processes("n2").trim().is_empty());
    lab.kill("dispatcher");
}

#[test]
fn a_dispatcher_that_is_reloaded_to_fewer_workers_cuts_nothing() {
    reload_to_fewer_workers("reload", &["dispatcher"], "", |lab| {
        within("the worker has gone once it had nothing left", || links(lab) == 4);
    });
}

#[test]
fn nodes_that_are_reloaded_to_fewer_workers_cut_nothing() {
    reload_to_fewer_workers("nodes", &["n1", "n2"], "", |_| {});
}

#[test]
fn the_only_node_is_reloaded_to_fewer_workers_and_cuts_nothing() {
    // The workers that stay can't have a socket beside the one that a reply is under way on.
    reload_to_fewer_workers("only", &["n1"], "paths = '/nothing/*'\n", |lab| {
        within("the worker has gone once it had nothing left", || links(lab) == 6);
    });
}

/// Reloads hosts from two workers to one while clients get replies that take several times as long as a drain may. `of_second`: more of the second node.
/// `when_read`: what is to be so when they have.
fn reload_to_fewer_workers(name: &str, hosts: &[&str], of_second: &str, when_read: impl Fn(&Lab)) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new(name));
    let (small, big) = (content("small", 1_000), content("big", 24 << 20));
    fs::write(folder.path("site/small"), &small).expect("a file to serve");
    fs::write(folder.path("site/big"), &big).expect("a file to serve");
    let write = |workers: u32| {
        let second = "address = '10.77.0.12'\n";
        let text = configuration(workers).replace(second, &format!("{second}{of_second}"));
        let text = text + "[limits]\ndrain_timeout = '1s'\n";
        fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    };
    write(2);
    lab.well(&["up", &folder.path("cluster.toml")]);
    accept_at_dispatcher(&lab);
    await_links(&lab);
    let mut idle = connect_and_read(&lab, 20, &small);
    let began = Instant::now();
    let outcomes = read_slowly(&lab, 8, "big", &big, || {
        write(1);
        hosts.iter().for_each(|host| lab.reload(host));
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
    assert!(began.elapsed() > Duration::from_secs(3), "they were under way when the time for a drain was over");
    when_read(&lab);
    lab.at("client1", || idle.iter_mut().for_each(|stream| read(stream, &small)));
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    for host in ["dispatcher", "n1", "n2"] {
        let log = fs::read_to_string(format!("/run/leat-lab/{}/{host}.log", lab.name)).unwrap_or_default();
        assert!(log.lines().count() < 100, "{host}: {} lines", log.lines().count());
    }
}

#[test]
fn what_nodes_have_of_workers_that_came_later_outlives_the_dispatchers_process() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("numbers"));
    let small = content("small", 1_000);
    fs::write(folder.path("site/small"), &small).expect("a file to serve");
    let write = |workers: u32| {
        fs::write(folder.path("cluster.toml"), configuration(workers)).expect("a configuration");
    };
    write(2);
    let file = folder.path("cluster.toml");
    lab.well(&["up", &file]);
    accept_at_dispatcher(&lab);
    // While one of the first has something to do it keeps its number.
    let half = lab.at("client1", || {
        let mut clients: Vec<_> = (0..8).map(|_| connect()).collect();
        clients.iter_mut().for_each(|stream| stream.write_all(b"GET /small HTTP/1.1\r\nHost:").expect("half a head"));
        clients
    });
    let established = ["exec", "dispatcher", "ss", "-Htn", "state", "established", "sport", "=", ":80"];
    within("the dispatcher has them", || lab.well(&established).lines().count() == half.len());
    for workers in [1, 2] {
        write(workers);
        lab.reload("dispatcher");
    }
    let mut idle = connect_and_read(&lab, 20, &small);
    await_next_engine(&lab, |lab| lab.tell_supervisor("dispatcher", "-USR2"));
    // Longer than a lease lasts, and than those are waited for that nobody has: only then would it show. They ask now and then.
    let began = Instant::now();
    lab.at("client1", || {
        while began.elapsed() < Duration::from_secs(4) {
            idle.iter_mut().for_each(|stream| read(stream, &small));
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    drop(half);
    // Nothing but the kernel knows which workers there were.
    write(1);
    lab.kill("dispatcher");
    within("it has ended", || lab.processes("dispatcher").is_empty());
    let mut again = start(&lab, &file, &folder.path("again.log"));
    let said = || fs::read_to_string(folder.path("again.log")).expect("it was started");
    within("it's there again", || said().contains("node n2: its link is up"));
    lab.at("client1", || idle.iter_mut().for_each(|stream| read(stream, &small)));
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0, "{}", said());
    lab.kill("dispatcher");
    again.wait().expect("it has ended");
}

#[test]
fn connections_from_before_a_dispatchers_upgrade_outlive_their_nodes() {
    outlive_their_nodes(|lab| lab.tell_supervisor("dispatcher", "-USR2"));
}

#[test]
fn connections_from_before_a_dispatchers_crash_outlive_their_nodes() {
    outlive_their_nodes(|lab| lab.kill_engine("dispatcher"));
}

fn outlive_their_nodes(restart: impl Fn(&Lab) + Sync) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("before"));
    let (small, big) = (content("small", 1_000), content("big", 16 << 20));
    fs::write(folder.path("site/small"), &small).expect("a file to serve");
    fs::write(folder.path("site/big"), &big).expect("a file to serve");
    fs::write(folder.path("cluster.toml"), configuration(2)).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    accept_at_dispatcher(&lab);
    await_links(&lab);
    let mut idle = connect_and_read(&lab, 40, &small);
    let at = |node| lab.number(node, "leat_flows");
    assert!(at("n1") >= 10 && at("n2") >= 10, "each has some");
    let outcomes = read_slowly(&lab, 4, "big", &big, || {
        await_next_engine(&lab, &restart);
        // Of replies under way there is one when they have ended.
        let returned = || lab.number("dispatcher", "leat_handoffs_returned_total");
        within("there is an image of each that rests", || returned() >= idle.len() as u64);
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
    within("those that have closed are forgotten", || lab.number("dispatcher", "leat_flows") == idle.len() as u64);
    lab.kill("n1");
    within("it has ended", || lab.processes("n1").is_empty());
    lab.at("client1", || idle.iter_mut().for_each(|stream| read(stream, &small)));
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

#[test]
fn nodes_speak_on_when_a_machine_with_fewer_workers_has_a_dispatchers_place() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("machine"));
    let small = content("small", 1_000);
    fs::write(folder.path("site/small"), &small).expect("a file to serve");
    let file = folder.path("cluster.toml");
    fs::write(&file, configuration(3)).expect("a configuration");
    lab.well(&["up", &file]);
    accept_at_dispatcher(&lab);
    let idle = connect_and_read(&lab, 30, &small);
    fs::write(&file, configuration(1)).expect("a configuration");
    lab.kill("dispatcher");
    within("it has ended", || lab.processes("dispatcher").is_empty());
    forget_pins(&lab, "dispatcher");
    let mut again = start(&lab, &file, &folder.path("again.log"));
    let began = Instant::now();
    within("somebody new is answered", || lab.curl("client1", "http://10.77.0.100/small") == "200");
    // For a while they may still speak by leases of those that have gone.
    while began.elapsed() < Duration::from_secs(5) {
        assert_eq!(lab.curl("client1", "http://10.77.0.100/small"), "200", "after {:?}", began.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    let log = |node| fs::read_to_string(format!("/run/leat-lab/{}/{node}.log", lab.name)).unwrap_or_default();
    let said = log("n1") + &log("n2");
    assert!(said.contains("connections end: they are of worker "), "{said}");
    drop(idle);
    lab.kill("dispatcher");
    again.wait().expect("it has ended");
}

#[test]
fn a_reload_that_changes_the_vip_is_refused() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("vip"));
    fs::write(folder.path("site/small"), content("small", 1_000)).expect("a file to serve");
    let write = |text: String| fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    write(configuration(1));
    lab.well(&["up", &folder.path("cluster.toml")]);
    let log = || fs::read_to_string(format!("/run/leat-lab/{}/dispatcher.log", lab.name)).unwrap_or_default();
    for (key, text) in [
        ("vip", configuration(1).replace("'10.77.0.100:80'", "'10.77.0.100:81'")),
        ("spread", configuration(1).replace("policy = 'round_robin'", "spread = 'l4'")),
    ] {
        write(text);
        lab.tell_supervisor("dispatcher", "-HUP");
        within("it's refused", || log().contains(&format!("a reload can't change `cluster.{key}`")));
        assert_eq!(lab.curl("client1", "http://10.77.0.100/small"), "200");
    }
    write(configuration(2));
    lab.reload("dispatcher");
    assert_eq!(lab.curl("client1", "http://10.77.0.100/small"), "200");
}

/// Clients that keep their connections after a reply.
fn connect_and_read(lab: &Lab, count: usize, small: &[u8]) -> Vec<std::net::TcpStream> {
    lab.at("client1", || {
        let mut clients: Vec<_> = (0..count).map(|_| connect()).collect();
        clients.iter_mut().for_each(|stream| read(stream, small));
        clients
    })
}

/// Has the dispatcher's engine followed by another, and waits until that has taken over.
fn await_next_engine(lab: &Lab, restart: impl Fn(&Lab)) {
    let before = lab.processes("dispatcher");
    restart(lab);
    within("another engine has taken over", || {
        let now = lab.processes("dispatcher");
        now != before && now.split_whitespace().count() == 2
    });
}

/// How many links there are with the dispatcher.
fn links(lab: &Lab) -> usize {
    lab.well(&["exec", "dispatcher", "ss", "-Htn", "( sport >= :7450 and sport <= :7460 )"]).lines().count()
}

fn await_links(lab: &Lab) {
    within("each of two nodes' two workers has a link to each of the dispatcher's two", || links(lab) == 8);
}

/// Has connections come to each of its workers before they go to a node: what begins there is of any home.
fn accept_at_dispatcher(lab: &Lab) {
    lab.well(&["exec", "client1", "sh", "-c", "echo 0 > /proc/sys/net/ipv4/tcp_timestamps"]);
}

/// A dispatcher before two nodes.
fn configuration(workers: u32) -> String {
    format!(
        "workers = {workers}\n[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n\
         policy = 'round_robin'\n[[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n\
         [[cluster.node]]\nname = 'n2'\naddress = '10.77.0.12'\n[admin]\nlisten = '127.0.0.1:9180'\n[[site]]\nroot = 'site'\n"
    )
}

fn read(stream: &mut std::net::TcpStream, content: &[u8]) {
    ask(stream, &["small"]);
    assert_eq!(read_reply(stream, &mut Vec::new()).expect("a reply"), content);
}

/// Starts leat in the dispatcher's namespace.
pub(super) fn start(lab: &Lab, file: &str, log: &str) -> std::process::Child {
    start_at(lab, "dispatcher", file, log)
}

/// The same in that of a front.
pub(super) fn start_at(lab: &Lab, host: &str, file: &str, log: &str) -> std::process::Child {
    let namespace = format!("/run/netns/leat-lab-{}-{host}", lab.name);
    let program = std::env::var_os("LEAT_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_leat").into());
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={namespace}")).arg(program).args(["dispatch", "--config", file]);
    let log = fs::File::create(log).expect("a file for what it says");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("nsenter can be run")
}
