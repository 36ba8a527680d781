//! Who wants to link and is no node.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::motion::tell;
use super::{Folder, Lab, is_possible, within};

/// Writes the file of a cluster with these nodes, of weights.
fn write(folder: &Folder, nodes: &[(u8, u32)]) {
    let node = |(number, weight): &(u8, u32)| {
        format!("[[cluster.node]]\nname = 'n{number}'\naddress = '10.77.0.1{number}'\nweight = {weight}\n")
    };
    let text = format!(
        "[admin]\nsocket = '{}'\n[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n\
         policy = 'round_robin'\n[cluster.health]\nslow_start = '0s'\n{}[[site]]\nroot = 'site'\n",
        folder.path("leat.sock"),
        nodes.iter().map(node).collect::<String>()
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
}

#[test]
fn who_only_connects_keeps_no_node_from_its_link() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("strangers"));
    write(&folder, &[(1, 100), (2, 100)]);
    lab.well(&["up", &folder.path("cluster.toml")]);
    let socket = folder.path("leat.sock");
    let is_linked = || tell(&socket, &["ctl", "nodes"]).contains("  n1  may be chosen");
    within("the first is linked", is_linked);
    let (is_full, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            lab.at("client1", || {
                let mut strangers: Vec<TcpStream> = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    // Those that have been ended come again.
                    strangers.retain_mut(|stream| match stream.read(&mut [0; 256]) {
                        Ok(count) => count > 0,
                        Err(error) => error.kind() == ErrorKind::WouldBlock,
                    });
                    while strangers.len() < 100 {
                        let to = SocketAddr::from(([10, 77, 0, 1], 7450));
                        let Ok(stream) = TcpStream::connect_timeout(&to, Duration::from_secs(1)) else { break };
                        stream.set_nonblocking(true).expect("it's a socket");
                        strangers.push(stream);
                    }
                    is_full.store(true, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        });
        within("there are strangers", || is_full.load(Ordering::Relaxed));
        lab.kill_engine("n1");
        let start = std::time::Instant::now();
        within("its link is down", || !is_linked() || start.elapsed() > Duration::from_secs(2));
        // A panic would leave the strangers at it.
        let linked = std::panic::catch_unwind(|| within("it's linked again", is_linked));
        is_over.store(true, Ordering::Relaxed);
        linked.expect("nobody keeps it from that");
    });
}
