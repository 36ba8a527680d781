//! A reactor in which every operation has its price, and all that isn't the worker's own work takes no time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use leat_host::knocking::Knocking;
use leat_host::reactor::{
    COMPLETIONS_MAX, Completion, Listener, Peer, RECEIVE_BUFFERS, Reactor, ReceiveBuffer, SendNow, Socket, Token,
    Transmit,
};
use leat_logic::admission::LetIn;
use leat_logic::schedule::Gather;

use super::clients::{Crowd, QUEUE_MAX};
use crate::files::OpenFile;
use crate::world::World;

/// Processor time of what a worker does, as it is about on a machine of today.
const TURN_NS: u64 = 700;
const ACCEPT_NS: u64 = 9_000;
const RECEIVE_NS: u64 = 2_500;
const SEND_NS: u64 = 4_500;
const CLOSE_NS: u64 = 5_000;
/// Of what is sent.
const KIB_NS: u64 = 300;

pub(super) struct CrowdReactor {
    world: Rc<RefCell<World>>,
    crowd: Rc<RefCell<Crowd>>,
    memory: Vec<Vec<u8>>,
    free: Vec<u16>,
    /// Listeners whose connections are awaited.
    awaited: Option<Token>,
    polled: Vec<(RawFd, Token)>,
    /// A descriptor that is readable, once whenever it's rung.
    bell: RawFd,
    rung: Rc<Cell<bool>>,
    /// What goes out with the next wait, as io_uring's does.
    submitted: Vec<(Socket, Token, Transmit)>,
    done: VecDeque<Completion>,
}

impl CrowdReactor {
    pub(super) fn new(world: Rc<RefCell<World>>, crowd: Rc<RefCell<Crowd>>, bell: RawFd) -> CrowdReactor {
        CrowdReactor {
            world,
            crowd,
            memory: vec![Vec::new(); usize::from(RECEIVE_BUFFERS)],
            free: (0..RECEIVE_BUFFERS).collect(),
            awaited: None,
            polled: Vec::new(),
            bell,
            rung: Rc::new(Cell::new(true)),
            submitted: Vec::new(),
            done: VecDeque::new(),
        }
    }

    /// To tell that the worker's mailbox has something.
    pub(super) fn rung(&self) -> Rc<Cell<bool>> {
        self.rung.clone()
    }

    /// Does something that takes so long on a machine of today; what else happens meanwhile.
    fn work(&mut self, ns: u64) {
        let mut world = self.world.borrow_mut();
        world.work(ns * self.crowd.borrow().price_times);
        self.crowd.borrow_mut().advance_to(world.agenda.now_ns());
    }

    fn start_receiving(&mut self, socket: Socket, token: Token, is_once: bool) {
        let mut crowd = self.crowd.borrow_mut();
        if let Some(connection) = crowd.connections.get_mut(&socket.0) {
            connection.token = Some(token);
            connection.is_receiving = true;
            connection.is_once = is_once;
            crowd.ready.push_back(socket.0);
        }
    }

    fn send_part(&mut self, socket: Socket, head: &[u8], len: usize) -> SendNow {
        self.work(SEND_NS);
        let taken = self.crowd.borrow_mut().take(socket.0, head, len);
        match taken {
            None => SendNow::Blocked,
            Some(count) => {
                self.work(count as u64 * KIB_NS / 1024);
                SendNow::Sent(count)
            }
        }
    }

    fn send_submitted(&mut self) {
        for (socket, token, transmit) in std::mem::take(&mut self.submitted) {
            self.work(SEND_NS + transmit.len() as u64 * KIB_NS / 1024);
            let is_refusal = transmit.head.starts_with(b"HTTP/1.1 503");
            self.crowd.borrow_mut().replied(socket.0, is_refusal);
            self.done.push_back(Completion::Sent { token, error: None, waited: false });
        }
    }

    fn harvest(&mut self, completions: &mut Vec<Completion>) {
        if self.rung.get()
            && let Some(&(_, token)) = self.polled.iter().find(|&&(polled, _)| polled == self.bell)
        {
            self.rung.set(false);
            completions.push(Completion::Readable { token });
        }
        if !self.crowd.borrow().queue.is_empty()
            && let Some(listener) = self.awaited.take()
        {
            completions.push(Completion::ConnectionsWait { listener });
        }
        while completions.len() < COMPLETIONS_MAX {
            if let Some(done) = self.done.pop_front() {
                completions.push(done);
            } else if let Some(received) = self.receive_next() {
                completions.push(received);
            } else {
                return;
            }
        }
    }

    fn receive_next(&mut self) -> Option<Completion> {
        loop {
            let number = self.crowd.borrow_mut().ready.pop_front()?;
            let completion = {
                let mut crowd = self.crowd.borrow_mut();
                let Some(connection) = crowd.connections.get_mut(&number) else { continue };
                let (Some(token), true) = (connection.token, connection.is_receiving) else { continue };
                if connection.is_pausing {
                    connection.is_receiving = false;
                    connection.is_pausing = false;
                    return Some(Completion::ReceiveStopped { token, error: None });
                } else if !connection.received.is_empty() {
                    let Some(id) = self.free.pop() else {
                        crowd.ready.push_front(number);
                        return None;
                    };
                    let bytes = std::mem::take(&mut connection.received);
                    let buffer = ReceiveBuffer::new(id, bytes.len() as u32);
                    self.memory[usize::from(id)] = bytes;
                    connection.is_receiving = !connection.is_once;
                    if connection.has_ended {
                        crowd.ready.push_back(number);
                    }
                    Completion::Received { token, buffer }
                } else if connection.has_ended {
                    connection.is_receiving = false;
                    return Some(Completion::EndOfInput { token });
                } else {
                    continue;
                }
            };
            self.work(RECEIVE_NS);
            return Some(completion);
        }
    }
}

impl Reactor for CrowdReactor {
    type File = Rc<OpenFile>;

    fn await_connections(&mut self, _listener: Listener, token: Token) {
        self.awaited = Some(token);
    }

    fn stop_awaiting_connections(&mut self, _listener: Listener, _token: Token) {
        self.awaited = None;
    }

    fn accept(&mut self, _listener: Listener) -> io::Result<Option<Socket>> {
        self.work(ACCEPT_NS);
        Ok(self.crowd.borrow_mut().accept().map(Socket))
    }

    fn set_queue_max(&mut self, _listener: Listener, connections: Option<u32>) {
        self.crowd.borrow_mut().queue_max = connections.map_or(QUEUE_MAX, |connections| connections as usize);
    }

    fn let_in(&mut self, _listener: Listener, whom: &LetIn) {
        self.crowd.borrow_mut().let_in = whom.clone();
    }

    fn knocking(&self, _listener: Listener) -> Knocking {
        let crowd = self.crowd.borrow();
        Knocking { waiting: crowd.queue.len() as u32, dropped: crowd.dropped }
    }

    fn receive_once(&mut self, socket: Socket, token: Token) {
        self.start_receiving(socket, token, true);
    }

    fn receive(&mut self, socket: Socket, token: Token) {
        self.start_receiving(socket, token, false);
    }

    fn pause(&mut self, socket: Socket, _token: Token) {
        let mut crowd = self.crowd.borrow_mut();
        if let Some(connection) = crowd.connections.get_mut(&socket.0) {
            connection.is_pausing = true;
            crowd.ready.push_back(socket.0);
        }
    }

    fn bytes(&self, buffer: &ReceiveBuffer) -> &[u8] {
        &self.memory[usize::from(buffer.id())]
    }

    fn release(&mut self, buffer: ReceiveBuffer) {
        self.memory[usize::from(buffer.id())] = Vec::new();
        self.free.push(buffer.id());
    }

    fn send_buffer(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn send(&mut self, socket: Socket, token: Token, transmit: Transmit) {
        self.submitted.push((socket, token, transmit));
    }

    fn send_now(&mut self, socket: Socket, bytes: &[u8], _more: bool) -> SendNow {
        self.send_part(socket, bytes, bytes.len())
    }

    fn send_parts_now(&mut self, socket: Socket, parts: &[IoSlice<'_>]) -> SendNow {
        let first = parts.first().map_or(&[][..], |part| &part[..]);
        self.send_part(socket, first, parts.iter().map(|part| part.len()).sum())
    }

    fn send_file_now(
        &mut self,
        socket: Socket,
        _token: Token,
        _file: &Self::File,
        _offset: u64,
        len: usize,
    ) -> SendNow {
        self.send_part(socket, &[], len)
    }

    fn await_writable(&mut self, _socket: Socket, _token: Token) {
        // Who doesn't read never does.
    }

    fn stop_awaiting_writable(&mut self, _socket: Socket, _token: Token) {
        // It has been told at once.
    }

    fn has_unread(&self, _socket: Socket) -> bool {
        false
    }

    fn unacknowledged_bytes(&self, _socket: Socket) -> usize {
        0
    }

    fn since_arrival(&self, socket: Socket) -> Duration {
        let crowd = self.crowd.borrow();
        let arrived_ns = crowd.connections.get(&socket.0).map(|connection| connection.received_at_ns);
        let now_ns = self.world.borrow().agenda.now_ns();
        Duration::from_nanos(arrived_ns.map_or(0, |arrived_ns| now_ns.saturating_sub(arrived_ns)))
    }

    fn peer(&self, socket: Socket) -> Option<SocketAddr> {
        Some((self.crowd.borrow().address(socket.0), 1).into())
    }

    fn own_address(&self, _socket: Socket) -> Option<SocketAddr> {
        Some((Ipv4Addr::LOCALHOST, 2).into())
    }

    fn shutdown(&mut self, socket: Socket, _token: Token, _both: bool) {
        // The client, which has its reply by then, ends its side at once.
        let mut crowd = self.crowd.borrow_mut();
        if let Some(connection) = crowd.connections.get_mut(&socket.0) {
            connection.has_ended = true;
            crowd.ready.push_back(socket.0);
        }
    }

    fn close(&mut self, socket: Socket, _reset: bool) {
        self.work(CLOSE_NS);
        self.crowd.borrow_mut().closed(socket.0);
    }

    fn give_up(&mut self, _socket: Socket, _token: Token) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn adopt(&mut self, _socket: OwnedFd) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn connect(&mut self, _to: &Peer) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn connected(&mut self, _socket: Socket) -> io::Result<()> {
        Ok(())
    }

    fn poll_readable(&mut self, descriptor: i32, token: Token) {
        self.polled.push((descriptor, token));
    }

    fn stop_polling(&mut self, _descriptor: i32, token: Token) {
        self.polled.retain(|&(_, known)| known != token);
    }

    fn free_buffers(&self) -> usize {
        if self.crowd.borrow().is_short_of_buffers { 0 } else { self.free.len() }
    }

    fn has_more(&self) -> bool {
        // Asked by who computes, too: time has gone by since the last wait.
        self.crowd.borrow_mut().advance_to(self.world.borrow().agenda.now_ns());
        !self.done.is_empty() || !self.crowd.borrow().ready.is_empty()
    }

    fn wait(&mut self, timeout: Option<Duration>, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.wait_for_several(Gather { arrivals: 1, time: Duration::ZERO }, timeout, completions)
    }

    fn wait_for_several(
        &mut self,
        gather: Gather,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        self.work(TURN_NS);
        self.send_submitted();
        let began_ns = self.world.borrow().agenda.now_ns();
        let deadline_ns = timeout.map(|timeout| began_ns + timeout.as_nanos() as u64);
        let gathered_ns = began_ns + gather.time.as_nanos() as u64;
        loop {
            self.harvest(completions);
            let now_ns = self.world.borrow().agenda.now_ns();
            let is_gathering = now_ns < gathered_ns && completions.len() < gather.arrivals as usize;
            if (!completions.is_empty() && !is_gathering)
                || deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns)
            {
                return Ok(());
            }
            let gathered_ns = is_gathering.then_some(gathered_ns);
            let next_ns = self.crowd.borrow().next_ns().into_iter().chain(deadline_ns).chain(gathered_ns).min();
            let next_ns =
                next_ns.ok_or_else(|| io::Error::other("the worker waits for ever and nothing is to come"))?;
            self.world.borrow_mut().agenda.advance_to(next_ns);
            self.crowd.borrow_mut().advance_to(next_ns);
        }
    }
}
