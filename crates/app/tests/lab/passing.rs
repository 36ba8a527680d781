//! Nodes are upgraded that pass their clients' requests on to other servers: WebSockets, uploads and downloads, which last for as long as they like. They go to
//! the next process, so that the one before needn't wait for them, and homes know where they are.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, RwLock};

use super::motion::{Begun, connect, content, read_reply, up_with};
use super::{Folder, Lab, is_possible, within};

const NODES: [&str; 3] = ["n1", "n2", "n3"];
const BEHIND: &str = "127.0.0.1:9001";
const HALF_BYTES: usize = 300_000;
/// Of each kind, at all nodes.
const CLIENTS: usize = 6;

#[test]
fn what_nodes_pass_on_goes_to_their_next_processes() {
    go_to_next_processes(Begun::AtDispatcher);
}

#[test]
fn what_nodes_pass_on_goes_to_their_next_processes_if_begun_at_a_node() {
    go_to_next_processes(Begun::AtNode);
}

fn go_to_next_processes(begun: Begun) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("passing"));
    let handler = format!("[[site.handler]]\npath = '/far/*'\nproxy = {{ to = ['{BEHIND}'] }}\n");
    // Had they to wait, it would be for longer than this test does.
    let settings = "policy = 'round_robin'\n[limits]\ndrain_timeout = '2m'";
    up_with(&lab, &folder, begun, &BTreeMap::new(), [settings, &handler]);
    // Servers behind the nodes say the rest once it's open.
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().expect("nobody has failed");
    for node in NODES {
        let listener = lab.at(node, || TcpListener::bind(BEHIND)).expect("nobody else has it");
        let gate = gate.clone();
        std::thread::spawn(move || serve(&listener, &gate));
    }
    let half = content("half", HALF_BYTES);
    let begin = |path: &str, fields: &str, body: &[u8]| {
        let mut stream = lab.at("client1", connect);
        let head = format!("POST /far/{path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).expect("it's open");
        stream
    };
    let websocket = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                     Sec-WebSocket-Version: 13\r\n";
    let mut tunnels: Vec<_> = (0..CLIENTS).map(|_| open_tunnel(lab.at("client1", connect), websocket)).collect();
    let length = format!("Content-Length: {}\r\n", 2 * HALF_BYTES);
    let uploads: Vec<_> = (0..CLIENTS).map(|_| begin("sum", &length, &half)).collect();
    let mut downloads: Vec<_> = (0..CLIENTS).map(|_| begin("long", "Content-Length: 0\r\n", &[])).collect();
    let began: Vec<_> = downloads.iter_mut().map(|stream| read_some(stream).expect("the first half")).collect();
    for node in ["n1", "n2", "n3", "n1"] {
        super::spread::upgrade(&lab, node);
        let processes = || lab.processes(node).split_whitespace().count();
        within("the old engine has nothing any more", || processes() == 2);
        tunnels.iter_mut().for_each(|stream| echo(stream).expect("it's still there"));
    }
    drop(closed);
    for mut stream in uploads {
        stream.write_all(&half).expect("it's open");
        let said = read_reply(&mut stream, &mut Vec::new()).expect("a reply");
        assert_eq!(said, (2 * HALF_BYTES).to_string().into_bytes());
        // What follows is answered like any other.
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").expect("it's open");
        assert!(read_reply(&mut stream, &mut Vec::new()).expect("a reply").ends_with(b"the end"));
    }
    for (mut stream, mut came) in downloads.into_iter().zip(began) {
        let said = read_reply(&mut stream, &mut came).expect("the rest of the reply");
        assert!(said == [&half[..], &half].concat());
    }
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    assert_eq!(lab.number("dispatcher", "leat_flows"), CLIENTS as u64, "nodes have them");
    drop(tunnels);
    within("nothing is left of them", || lab.number("dispatcher", "leat_flow_entries") == 0);
    assert_eq!(lab.number("dispatcher", "leat_flows"), 0);
}

/// Switches to a WebSocket.
fn open_tunnel(mut stream: TcpStream, fields: &str) -> TcpStream {
    let head = format!("GET /far/echo HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).expect("it's open");
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a reply");
        said.push(byte[0]);
    }
    assert!(said.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&said));
    stream
}

/// A message to and fro.
fn echo(stream: &mut TcpStream) -> io::Result<()> {
    let (message, mut back) = ([0x82, 3, 1, 2, 3], [0; 5]);
    stream.write_all(&message)?;
    stream.read_exact(&mut back)?;
    assert_eq!(back, message);
    Ok(())
}

fn read_some(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut came = vec![0; HALF_BYTES];
    let count = stream.read(&mut came)?;
    came.truncate(count);
    Ok(came)
}

/// A server behind a node, for as long as the tests run.
fn serve(listener: &TcpListener, gate: &Arc<RwLock<()>>) {
    for stream in listener.incoming().flatten() {
        let gate = gate.clone();
        std::thread::spawn(move || answer(stream, &gate));
    }
}

fn answer(stream: TcpStream, gate: &RwLock<()>) -> io::Result<()> {
    let (mut reader, mut stream) = (BufReader::new(stream.try_clone()?), stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        if head.contains("/far/echo") {
            stream.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            )?;
            return io::copy(&mut reader, &mut stream).map(drop);
        }
        if head.contains("/far/sum") {
            let count = io::copy(&mut reader.by_ref().take(2 * HALF_BYTES as u64), &mut io::sink())?.to_string();
            stream
                .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{count}", count.len()).as_bytes())?;
        } else {
            let half = content("half", HALF_BYTES);
            stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 2 * half.len()).as_bytes())?;
            stream.write_all(&half)?;
            // Also where the test has failed meanwhile.
            drop(gate.read());
            stream.write_all(&half)?;
        }
    }
}
