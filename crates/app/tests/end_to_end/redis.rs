//! A port for Redis before two of Debian's redis-server, asked by redis-cli and by hand. Skipped, and saying so, where they aren't installed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::on_both_reactors;
use crate::ports::{connect, count, dispatch, rest};
use crate::support::{Directory, Reactor, Server, eventually};

/// Two servers at 127.0.0.2 and 127.0.0.3, and a dispatcher before them.
struct Store {
    servers: Vec<Child>,
    port: u16,
    dispatcher: Server,
    _directory: Directory,
}

impl Store {
    /// `None` where there is no redis-server.
    fn start(reactor: Reactor) -> Option<Store> {
        let is_there = |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
        if !is_there("redis-server") || !is_there("redis-cli") {
            eprintln!("skipped: redis-server and redis-cli aren't installed (apt-get install redis-server)");
            return None;
        }
        let directory = Directory::new();
        // Free at both addresses a moment ago: who takes it meanwhile shows as an error of the test.
        let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let servers = ["127.0.0.2", "127.0.0.3"].map(|address| {
            Command::new("redis-server")
                .args(["--bind", address, "--port", &port.to_string(), "--save", "", "--daemonize", "no"])
                .args(["--protected-mode", "no", "--dir", &directory.path().display().to_string()])
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        });
        for address in ["127.0.0.2", "127.0.0.3"] {
            eventually("the server answers", || TcpStream::connect((address, port)).ok());
        }
        let dispatcher = dispatch(reactor, &directory, 2, port, "protocol = \"redis\"");
        Some(Store { servers: servers.into(), port, dispatcher, _directory: directory })
    }

    /// What redis-cli prints.
    fn ask(&self, arguments: &[&str]) -> String {
        ask_at("127.0.0.1", self.dispatcher.address().port(), arguments)
    }

    /// What `DBSIZE` says at each server.
    fn sizes(&self) -> [usize; 2] {
        ["127.0.0.2", "127.0.0.3"]
            .map(|address| ask_at(address, self.port, &["DBSIZE"]).trim().parse().expect("a number"))
    }
}

fn ask_at(address: &str, port: u16, arguments: &[&str]) -> String {
    let output =
        Command::new("redis-cli").args(["-h", address, "-p", &port.to_string()]).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Drop for Store {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn keys_are_spread_and_found_again(reactor: Reactor) {
    let Some(store) = Store::start(reactor) else { return };
    assert_eq!(store.ask(&["SET", "greeting", "hello world"]), "OK\n");
    assert_eq!(store.ask(&["GET", "greeting"]), "hello world\n");
    assert_eq!(store.ask(&["-3", "HGETALL", "nothing"]).trim(), "", "by RESP 3");
    let mut pipelined = Vec::new();
    for number in 0..1000 {
        pipelined
            .extend_from_slice(format!("*3\r\n$3\r\nSET\r\n$5\r\nk{number:04}\r\n$5\r\nv{number:04}\r\n").as_bytes());
        pipelined.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n$5\r\nk{number:04}\r\n").as_bytes());
    }
    pipelined.extend_from_slice(b"QUIT\r\n");
    let mut client = connect(store.dispatcher.address());
    let mut writing = client.try_clone().unwrap();
    let writer = std::thread::spawn(move || writing.write_all(&pipelined).unwrap());
    let heard = rest(&mut client);
    writer.join().unwrap();
    let mut expected: String = (0..1000).map(|number| format!("+OK\r\n$5\r\nv{number:04}\r\n")).collect();
    expected += "+OK\r\n";
    assert!(heard == expected.as_bytes(), "answers come in the order of the requests");
    let [first, second] = store.sizes();
    assert_eq!(first + second, 1001);
    assert!(first > 300 && second > 300, "{first} and {second}");
    assert!(count(&store.dispatcher, "requests_total") > 2000);
}

fn what_needs_one_node_is_refused_with_the_reason(reactor: Reactor) {
    let Some(store) = Store::start(reactor) else { return };
    assert!(store.ask(&["MULTI"]).contains("MULTI needs a connection to one node"));
    assert!(store.ask(&["MSET", "a", "1", "b", "2"]).contains("CROSSSLOT"));
    assert_eq!(store.ask(&["MSET", "{t}a", "1", "{t}b", "2"]), "OK\n");
    assert_eq!(store.ask(&["MGET", "{t}a", "{t}b"]), "1\n2\n");
    assert_eq!(store.ask(&["PING"]), "PONG\n");
    // What is said of the connection is said to every node, once each.
    let mut client = connect(store.dispatcher.address());
    client.write_all(b"SELECT 3\r\n").unwrap();
    for number in 0..20 {
        client.write_all(format!("SET in3-{number} x\r\n").as_bytes()).unwrap();
    }
    let mut heard = vec![0; 21 * 5];
    client.read_exact(&mut heard).unwrap();
    assert_eq!(heard, b"+OK\r\n".repeat(21));
    let in_three = ["127.0.0.2", "127.0.0.3"].map(|address| ask_at(address, store.port, &["-n", "3", "DBSIZE"]));
    let counts = in_three.map(|text| text.trim().parse::<usize>().expect("a number"));
    assert!(counts.iter().sum::<usize>() == 20 && counts.iter().all(|&count| count > 0), "{counts:?}");
}

fn values_of_any_size_come_through(reactor: Reactor) {
    let Some(store) = Store::start(reactor) else { return };
    let value = crate::support::directory::noise(20_000_000, 7);
    let mut client = connect(store.dispatcher.address());
    let mut writing = client.try_clone().unwrap();
    let head = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n", value.len());
    let request = [head.as_bytes(), &value, b"\r\n*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n"].concat();
    let writer = std::thread::spawn(move || writing.write_all(&request).unwrap());
    let expected = [format!("+OK\r\n${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    let mut heard = vec![0; expected.len()];
    client.read_exact(&mut heard).unwrap();
    writer.join().unwrap();
    assert!(heard == expected);
}

fn a_server_that_dies_costs_its_keys_and_no_others(reactor: Reactor) {
    let Some(mut store) = Store::start(reactor) else { return };
    for number in 0..20 {
        assert_eq!(store.ask(&["SET", &format!("k{number}"), "v"]), "OK\n");
    }
    let [first, _] = store.sizes();
    store.servers[1].kill().unwrap();
    store.servers[1].wait().unwrap();
    store.dispatcher.wait_for_stderr(&["node n2 can't be reached", "node n2 is down"]);
    let found = (0..20).filter(|number| store.ask(&["GET", &format!("k{number}")]) == "v\n").count();
    assert_eq!(found, first, "what the other has is found, and the rest is asked for there");
}

on_both_reactors!(
    keys_are_spread_and_found_again,
    what_needs_one_node_is_refused_with_the_reason,
    values_of_any_size_come_through,
    a_server_that_dies_costs_its_keys_and_no_others,
);
