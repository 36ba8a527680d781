//! A dispatcher and two nodes, as simple as they can be: a thread for each connection, and channels where a real one has links. Any of the three
//! serves a request whose path begins with its letter (`d`, `a`, `b`); other requests move their connection there first.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use leat_host::clock;
use leat_host::handoff::{Freezer, Frozen};
use leat_host::namespace::Namespace;
use leat_host::steering::{self, Dispatcher, FlowKey, Heard, Node, Reach, Service};
use leat_logic::handoff::{FlowId, Generation, ServerId, TcpState};

use crate::content;
use crate::lab::{Lab, VIP4, VIP6};

/// A connection on its way.
struct Parcel {
    state: TcpState,
    /// Read already, beginning with the request that is to be served.
    input: Vec<u8>,
    serial: u64,
    ready: Sender<bool>,
    /// Locked until the giver has closed its socket.
    giving: Arc<Mutex<()>>,
}

/// What all three share: where the other ones are, and the dispatcher's map.
pub(crate) struct Shared {
    pub(crate) dispatcher: Dispatcher,
    doors: Mutex<HashMap<u8, Sender<Parcel>>>,
    serial: AtomicU64,
    pub(crate) moves: AtomicU64,
    freezer: Freezer,
    stopping: AtomicBool,
}

pub(crate) struct Cluster {
    pub(crate) shared: Arc<Shared>,
    pub(crate) nodes: Vec<Mutex<Node>>,
}

const NODES: [(u8, u32); 2] = [(b'a', 1), (b'b', 2)];

impl Cluster {
    pub(crate) fn start(lab: &Lab) -> Cluster {
        let dispatcher = load_dispatcher(lab, 1 << 16);
        let shared = Arc::new(Shared {
            dispatcher,
            doors: Mutex::default(),
            serial: AtomicU64::new(1),
            moves: AtomicU64::new(0),
            freezer: Freezer::new(),
            stopping: AtomicBool::new(false),
        });
        let nodes = [&lab.a, &lab.b].map(|machine| Mutex::new(load_node(lab, machine)));
        for (name, machine) in [(b'd', &lab.dispatcher), (b'a', &lab.a), (b'b', &lab.b)] {
            let (door, parcels) = channel();
            shared.doors.lock().unwrap().insert(name, door);
            let shared = Arc::clone(&shared);
            machine.start(move || take_in(name, &parcels, &shared));
        }
        for vip in [VIP4, VIP6] {
            let shared = Arc::clone(&shared);
            let listener = lab.dispatcher.run(move || TcpListener::bind(vip).unwrap()).unwrap();
            lab.dispatcher.start(move || accept(&listener, &shared));
        }
        let tending = Arc::clone(&shared);
        lab.dispatcher.start(move || tend(&tending));
        Cluster { shared, nodes: nodes.into() }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.doors.lock().unwrap().clear();
    }
}

pub(crate) fn load_dispatcher(lab: &Lab, capacity: u32) -> Dispatcher {
    let pins = lab.pins(&lab.dispatcher);
    lab.dispatcher
        .run(move || {
            let dispatcher = Dispatcher::load(&pins, capacity).unwrap();
            let reach = |last: u16, network: u8, routed| Reach {
                interface: "eth0".to_owned(),
                ipv4: Some([10, network, 0, last as u8].into()),
                ipv6: Some(format!("fd{network}::{last}").parse().unwrap()),
                routed,
                forwards: false,
            };
            dispatcher.set_node(1, &reach(11, 77, false)).unwrap();
            dispatcher.set_node(2, &reach(12, 78, true)).unwrap();
            dispatcher.attach("eth0").unwrap();
            dispatcher
        })
        .unwrap()
}

fn load_node(lab: &Lab, machine: &Namespace) -> Node {
    let pins = lab.pins(machine);
    let own = machine.name().ends_with('b').then_some(["10.78.0.12", "fd78::12"]);
    machine
        .run(move || {
            let mut node = Node::load(&pins).unwrap();
            for (index, vip) in [VIP4, VIP6].into_iter().enumerate() {
                let own = own.map(|own| own[index].parse().unwrap());
                node.add_service(&Service { vip: vip.parse().unwrap(), own, marked: true, foreign: None }).unwrap();
            }
            node.set_lease(u64::MAX).unwrap();
            node.attach("eth0").unwrap();
            // Somebody else's server on the same port: what comes without a connection mustn't be reset on its behalf.
            let other = TcpListener::bind("0.0.0.0:80").unwrap();
            thread::spawn(move || {
                while let Ok((mut stream, _)) = other.accept() {
                    let _ = stream.write_all(b"node itself");
                }
            });
            node
        })
        .unwrap()
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    listener.set_nonblocking(true).unwrap();
    while !shared.stopping.load(Ordering::Relaxed) {
        wait_readable(&[listener.as_fd()]);
        while let Ok((stream, _)) = listener.accept() {
            let shared = Arc::clone(shared);
            stream.set_nonblocking(false).unwrap();
            stream.set_nodelay(true).unwrap();
            let serial = shared.serial.fetch_add(1, Ordering::Relaxed);
            thread::spawn(move || Connection { stream, input: Vec::new(), serial, given: None }.live(b'd', &shared));
        }
    }
}

/// Packets that wait.
fn tend(shared: &Shared) {
    let descriptors = shared.dispatcher.descriptors().unwrap();
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    while !shared.stopping.load(Ordering::Relaxed) {
        wait_readable(&descriptors);
        shared.dispatcher.receive(clock::now());
    }
}

fn wait_readable(descriptors: &[std::os::fd::BorrowedFd<'_>]) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled: Vec<_> = descriptors.iter().map(|one| PollFd::from_borrowed_fd(*one, PollFlags::IN)).collect();
    let _ = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 200_000_000 }));
}

/// The taking side of a server.
fn take_in(name: u8, parcels: &Receiver<Parcel>, shared: &Arc<Shared>) {
    while let Ok(parcel) = parcels.recv() {
        let thawed = shared.freezer.thaw(&parcel.state);
        let _ = parcel.ready.send(thawed.is_ok());
        let Ok(socket) = thawed.map_err(|error| println!("thaw: {error}")) else { continue };
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(false).unwrap();
        let shared = Arc::clone(shared);
        let Parcel { input, serial, giving, .. } = parcel;
        thread::spawn(move || Connection { stream, input, serial, given: Some(giving) }.live(name, &shared));
    }
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    serial: u64,
    /// It may still be at the server that gave it: a link would say so in its order.
    given: Option<Arc<Mutex<()>>>,
}

enum Next {
    Closed,
    Elsewhere(u8),
}

impl Connection {
    fn live(mut self, here: u8, shared: &Shared) {
        self.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let key = FlowKey { client: self.stream.peer_addr().unwrap(), vip: self.stream.local_addr().unwrap() };
        while let Ok(Next::Elsewhere(there)) = self.serve(here) {
            match self.give(there, key, shared) {
                // Whoever has it now goes on.
                None => return,
                Some(back) => self = back,
            }
        }
        let _ = steering::mark_closing(&self.stream);
        drop(self.stream);
        if here == b'd' {
            shared.dispatcher.flows().delete(key, id(self.serial)).unwrap();
        } else {
            shared.dispatcher.flows().close(key, id(self.serial)).unwrap();
        }
    }

    /// Hold, freeze, send, steer, release, close.
    fn give(mut self, there: u8, key: FlowKey, shared: &Shared) -> Option<Connection> {
        if let Some(given) = &self.given {
            drop(given.lock().unwrap());
        }
        let giving = Arc::new(Mutex::new(()));
        let given = giving.lock().unwrap();
        let flows = shared.dispatcher.flows();
        flows.hold(key, id(self.serial)).unwrap();
        self.read_what_is_there();
        let frozen = shared.freezer.freeze(self.stream.into()).unwrap();
        let to = NODES.iter().find(|(name, _)| *name == there).map(|(_, node)| ServerId::new(*node, 0));
        if let Some(node) = to {
            let (heard, said) = (Heard::of(frozen.state()), frozen.state().send_next);
            flows.offer(key, id(self.serial), (node, Generation::default()), heard, said).unwrap();
        }
        let (ready, answer) = channel();
        let state = frozen.state().clone();
        let parcel =
            Parcel { state, input: self.input.clone(), serial: self.serial, ready, giving: Arc::clone(&giving) };
        shared.doors.lock().unwrap().get(&there).unwrap().send(parcel).unwrap();
        if answer.recv() != Ok(true) {
            return Some(resume(frozen, self.input, self.serial, key, shared));
        }
        if to.is_some() {
            flows.unhold(key, id(self.serial)).unwrap();
        } else {
            assert!(flows.delete(key, id(self.serial)).unwrap());
        }
        shared.dispatcher.release(key, clock::now());
        frozen.close_silently();
        drop(given);
        shared.moves.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Nothing more comes while packets are held, and there's a limit to what a frozen connection may have unread.
    fn read_what_is_there(&mut self) {
        self.stream.set_nonblocking(true).unwrap();
        let mut buffer = vec![0; 1 << 20];
        while let Ok(count) = self.stream.read(&mut buffer)
            && count > 0
        {
            self.input.extend_from_slice(&buffer[..count]);
        }
    }

    /// Serves requests until one belongs elsewhere.
    fn serve(&mut self, here: u8) -> io::Result<Next> {
        loop {
            let Some(end) = self.head()? else { return Ok(Next::Closed) };
            let head = String::from_utf8(self.input[..end].to_vec()).map_err(io::Error::other)?;
            let mut words = head.split_whitespace();
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let there = path.as_bytes()[1];
            if there != here {
                return Ok(Next::Elsewhere(there));
            }
            self.input.drain(..end);
            let bytes: usize = path[3..].parse().map_err(io::Error::other)?;
            let reply = if method == "POST" { self.receive_content(bytes)? } else { content::of(bytes) };
            let head =
                format!("HTTP/1.1 200 OK\r\nServer: {}\r\nContent-Length: {}\r\n\r\n", here as char, reply.len());
            self.stream.write_all(&[head.as_bytes(), &reply].concat())?;
            if method == "LAST" {
                return Ok(Next::Closed);
            }
        }
    }

    /// Reads until a whole head is there; returns where it ends.
    fn head(&mut self) -> io::Result<Option<usize>> {
        loop {
            if let Some(at) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
                return Ok(Some(at + 4));
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer)? {
                0 => return Ok(None),
                count => self.input.extend_from_slice(&buffer[..count]),
            }
        }
    }

    fn receive_content(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let early = bytes.min(self.input.len());
        let mut received: Vec<u8> = self.input.drain(..early).collect();
        received.resize(bytes, 0);
        self.stream.read_exact(&mut received[early..])?;
        let verdict = if received == content::of(bytes) { "intact" } else { "corrupt" };
        Ok(verdict.as_bytes().to_vec())
    }
}

fn resume(frozen: Frozen, input: Vec<u8>, serial: u64, key: FlowKey, shared: &Shared) -> Connection {
    let socket = frozen.resume().unwrap();
    shared.dispatcher.flows().delete(key, id(serial)).unwrap();
    shared.dispatcher.release(key, clock::now());
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false).unwrap();
    Connection { stream, input, serial, given: None }
}

/// A flow's name.
pub(crate) fn id(serial: u64) -> FlowId {
    FlowId { home: ServerId::new(0, 0), serial }
}

/// A client's address, for tests of entries.
pub(crate) fn key(client: &str, vip: &str) -> FlowKey {
    let parse = |text: &str| text.parse::<SocketAddr>().unwrap();
    FlowKey { client: parse(client), vip: parse(vip) }
}
