//! More want to connect than can be served: whose network asks for little is let in beside those.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::on_both_reactors;
use crate::support::{Client, Directory, Reactor, Server};

const THREADS: usize = 8;
/// Connections that each of them leaves open.
const OPEN: usize = 100;
/// Another network than that of `127.0.0.1`, where the flood comes from.
const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 9, 1));
const VISITORS: usize = 20;
/// A first packet that was dropped is sent again after a second.
const AT_ONCE: Duration = Duration::from_millis(900);

/// Connections that ask for a site, one after the other as fast as they're let in; nobody waits for replies.
struct Flood {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn new(address: SocketAddr) -> Flood {
        let stop = Arc::new(AtomicBool::new(false));
        let ask = move |stop: Arc<AtomicBool>| {
            let mut open = VecDeque::new();
            while !stop.load(Ordering::Relaxed) {
                let Ok(mut client) = TcpStream::connect_timeout(&address, Duration::from_millis(20)) else { continue };
                let _ = client.write_all(b"GET /burn HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
                open.push_back(client);
                if open.len() > OPEN {
                    open.pop_front();
                }
            }
        };
        let threads = (0..THREADS).map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || ask(stop))
        });
        Flood { threads: threads.collect(), stop }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn a_networks_flood_keeps_nobody_else_out_and_is_named(reactor: Reactor) {
    let directory = Directory::new();
    let site = |name: &str| {
        format!(
            "[[site]]\nname = \"{name}\"\nhosts = [\"{name}.test\"]\nlisten = \"127.0.0.1:0\"\n\
             [[site.handler]]\npath = \"/*\"\nburn = {{ us = 5000 }}\n"
        )
    };
    let server = Server::configured(reactor, &directory, &format!("workers = 1\n{}{}", site("a"), site("b")));
    let flood = Flood::new(server.address());
    let said = server.wait_for_stderr(&["more want to connect to 127.0.0.1:0 than can be served", "127.0.0.0/24"]);
    assert!(said.contains("is let in"), "{said}");
    let is_served_at_once = || {
        let began = Instant::now();
        let mut visitor = Client::connect_from(ELSEWHERE, server.address());
        let reply = visitor.ask("GET / HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n");
        assert_eq!(reply.status, 200);
        began.elapsed() < AT_ONCE
    };
    let at_once = (0..VISITORS).filter(|_| is_served_at_once()).count();
    flood.end();
    assert!(at_once * 4 >= VISITORS * 3, "{at_once} of {VISITORS}");
}

on_both_reactors!(a_networks_flood_keeps_nobody_else_out_and_is_named);
