//! The pretend reactor: sockets are links of the pretend network, and waiting is what makes time pass.
//!
//! Holds the worker to the trait's contract as strictly as the trait holds the reactor: what may not happen on a real host is reported.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use leat_host::knocking::Knocking;
use leat_host::reactor::{
    COMPLETIONS_MAX, Completion, Listener, Peer, RECEIVE_BUFFER_BYTES, Reactor, ReceiveBuffer, SendNow, Socket, Token,
    Transmit,
};
use leat_logic::admission::LetIn;
use leat_logic::schedule::Gather;

use crate::agenda::MILLISECOND;
use crate::files::OpenFile;
use crate::link::{Done, Receiving};
use crate::world::World;

/// The longest that the worker's own work takes between two waits.
const WORK_NS_MAX: u64 = 40_000;
/// How late a wait may end.
const LATENESS_NS_MAX: u64 = MILLISECOND;

/// See the module.
#[derive(Debug)]
pub(crate) struct SimReactor {
    world: Rc<RefCell<World>>,
    memory: Vec<Vec<u8>>,
    free: Vec<u16>,
    /// Links whose receive waits for a buffer.
    starved: VecDeque<u32>,
    /// Listeners by their place, with the token that their connections are awaited with.
    awaited: Vec<(usize, Token)>,
    polled: Vec<(i32, Token)>,
    heads: Vec<Vec<u8>>,
    /// Whether cancelling takes effect late, as io_uring's does, or at once, as epoll's.
    cancels_late: bool,
}

impl SimReactor {
    /// A reactor with so many receive buffers.
    pub(crate) fn new(world: Rc<RefCell<World>>, buffers: u16, cancels_late: bool) -> SimReactor {
        world.borrow_mut().receive_buffers_free = buffers;
        SimReactor {
            world,
            memory: vec![Vec::new(); usize::from(buffers)],
            free: (0..buffers).collect(),
            starved: VecDeque::new(),
            awaited: Vec::new(),
            polled: Vec::new(),
            heads: Vec::new(),
            cancels_late,
        }
    }

    fn harvest(&mut self, world: &mut World, completions: &mut Vec<Completion>) {
        let most = world.random.fragment(COMPLETIONS_MAX);
        for &(descriptor, token) in &self.polled {
            if world.rung.remove(&descriptor) {
                completions.push(Completion::Readable { token });
            }
        }
        self.harvest_waiting(world, completions);
        while completions.len() < most {
            let ready: Vec<u32> = world.network.ready.iter().copied().collect();
            if ready.is_empty() {
                return;
            }
            let start = world.random.below(ready.len() as u64) as usize;
            for place in 0..ready.len() {
                let number = ready[(start + place) % ready.len()];
                if completions.len() >= most {
                    break;
                }
                match self.next_of(world, number) {
                    Some(completion) => completions.push(completion),
                    None => drop(world.network.ready.remove(&number)),
                }
            }
        }
    }

    fn harvest_waiting(&mut self, world: &mut World, completions: &mut Vec<Completion>) {
        let backlog = &world.network.backlog;
        self.awaited.retain(|&(place, listener)| {
            let waits = backlog.get(&place).is_some_and(|backlog| !backlog.is_empty());
            if waits {
                completions.push(Completion::ConnectionsWait { listener });
            }
            !waits
        });
    }

    /// The next completion of one link. What is received keeps its order; a send's end may come before or after.
    fn next_of(&mut self, world: &mut World, number: u32) -> Option<Completion> {
        let link = world.network.links.get_mut(&number)?;
        let token = link.token?;
        let can_receive = link.receiving != Receiving::Off && !link.starved;
        if !link.done.is_empty() && (!can_receive || world.random.percent(50)) {
            return link.done.pop_front().map(|done| completion(done, token));
        }
        if can_receive {
            let stops_now = link.pausing && (!self.cancels_late || world.random.percent(50));
            let skips_data = stops_now || (link.is_shut && (!self.cancels_late || self.free.is_empty()));
            if !link.received.is_empty() && !skips_data {
                let Some(id) = self.free.pop() else {
                    link.starved = true;
                    self.starved.push_back(number);
                    return link.done.pop_front().map(|done| completion(done, token));
                };
                world.receive_buffers_free -= 1;
                let count = world.random.fragment(link.received.len().min(RECEIVE_BUFFER_BYTES));
                self.memory[usize::from(id)] = link.received.drain(..count).collect();
                if link.receiving == Receiving::Once {
                    link.receiving = Receiving::Off;
                }
                world.network.received_taken(&mut world.agenda, &mut world.random, number);
                return Some(Completion::Received { token, buffer: ReceiveBuffer::new(id, count as u32) });
            }
            let end = if stops_now {
                Some(Done::ReceiveStopped(None))
            } else if link.reset_by_client {
                Some(Done::ReceiveStopped(Some(io::ErrorKind::ConnectionReset)))
            } else if link.ended || link.is_shut {
                Some(Done::EndOfInput)
            } else if link.pausing {
                Some(Done::ReceiveStopped(None))
            } else {
                None
            };
            if let Some(end) = end {
                link.receiving = Receiving::Off;
                link.pausing = false;
                return Some(completion(end, token));
            }
        }
        link.done.pop_front().map(|done| completion(done, token))
    }

    /// Takes a link out of the line for buffers.
    fn leave_line(&mut self, world: &mut World, number: u32) {
        self.starved.retain(|&waiting| waiting != number);
        if let Some(link) = world.network.links.get_mut(&number) {
            link.starved = false;
        }
        world.network.ready.insert(number);
    }
}

fn completion(done: Done, token: Token) -> Completion {
    match done {
        Done::Sent(error) => Completion::Sent { token, error: error.map(io::Error::from), waited: true },
        Done::Writable => Completion::Writable { token },
        Done::ReceiveStopped(error) => Completion::ReceiveStopped { token, error: error.map(io::Error::from) },
        Done::EndOfInput => Completion::EndOfInput { token },
    }
}

impl Reactor for SimReactor {
    type File = Rc<OpenFile>;

    fn await_connections(&mut self, listener: Listener, token: Token) {
        let mut world = self.world.borrow_mut();
        match world.listeners.get(&listener.0) {
            Some(&place) if self.awaited.iter().all(|&(_, known)| known != token) => self.awaited.push((place, token)),
            Some(_) => world.violation(format!("{listener:?} is awaited twice")),
            None => world.violation(format!("the worker listens at {listener:?}, which isn't its own")),
        }
    }

    fn stop_awaiting_connections(&mut self, _listener: Listener, token: Token) {
        self.awaited.retain(|&(_, known)| known != token);
    }

    fn accept(&mut self, listener: Listener) -> io::Result<Option<Socket>> {
        let mut world = self.world.borrow_mut();
        let Some(&place) = world.listeners.get(&listener.0) else {
            world.violation(format!("the worker accepts at {listener:?}, which isn't its own"));
            return Ok(None);
        };
        if world.random.below(1_000) < world.faults.accept_failures_in_1000 {
            return Err(io::Error::from_raw_os_error(24));
        }
        let number = world.network.backlog.get_mut(&place).and_then(VecDeque::pop_front);
        if let Some(number) = number {
            world.accepted += 1;
            let now_ns = world.agenda.now_ns();
            if let Some(link) = world.network.links.get_mut(&number) {
                link.moved_at_ns = now_ns;
            }
        }
        Ok(number.map(Socket))
    }

    fn set_queue_max(&mut self, _listener: Listener, _connections: Option<u32>) {}

    fn let_in(&mut self, _listener: Listener, _whom: &LetIn) {}

    fn knocking(&self, _listener: Listener) -> Knocking {
        Knocking::default()
    }

    fn receive_once(&mut self, socket: Socket, token: Token) {
        self.world.borrow_mut().start_receiving(socket, token, Receiving::Once);
    }

    fn receive(&mut self, socket: Socket, token: Token) {
        self.world.borrow_mut().start_receiving(socket, token, Receiving::On);
    }

    fn pause(&mut self, socket: Socket, token: Token) {
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        let Some(link) = world.link(socket, token) else { return };
        if link.receiving != Receiving::Off {
            link.pausing = true;
            self.leave_line(&mut world, socket.0);
        }
    }

    fn bytes(&self, buffer: &ReceiveBuffer) -> &[u8] {
        let bytes = &self.memory[usize::from(buffer.id())];
        if bytes.len() != buffer.len() {
            self.world.borrow_mut().violation(format!("{buffer:?} is read after it was given back"));
        }
        bytes
    }

    fn release(&mut self, buffer: ReceiveBuffer) {
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        if self.free.contains(&buffer.id()) {
            world.violation(format!("{buffer:?} is given back twice"));
            return;
        }
        self.memory[usize::from(buffer.id())] = Vec::new();
        self.free.push(buffer.id());
        world.receive_buffers_free += 1;
        if let Some(&number) = self.starved.front() {
            self.leave_line(&mut world, number);
        }
    }

    fn send_buffer(&mut self) -> Vec<u8> {
        self.heads.pop().unwrap_or_default()
    }

    fn send(&mut self, socket: Socket, token: Token, transmit: Transmit) {
        let mut world = self.world.borrow_mut();
        let World { network, agenda, random, .. } = &mut *world;
        if network.is_sending(socket.0) {
            world.violation(format!("{socket:?}: a send while another is under way"));
            return;
        }
        network.send(agenda, random, socket.0, transmit);
        world.link(socket, token);
    }

    fn send_now(&mut self, socket: Socket, bytes: &[u8], _more: bool) -> SendNow {
        let mut world = self.world.borrow_mut();
        world.check_direct_send(socket);
        let World { network, agenda, random, .. } = &mut *world;
        network.send_now(agenda, random, socket.0, bytes)
    }

    fn send_parts_now(&mut self, socket: Socket, parts: &[IoSlice<'_>]) -> SendNow {
        let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.send_now(socket, &all, false)
    }

    fn send_file_now(&mut self, socket: Socket, _token: Token, file: &Self::File, offset: u64, len: usize) -> SendNow {
        let mut world = self.world.borrow_mut();
        world.check_direct_send(socket);
        let pages = file.inode.borrow().pages.clone();
        let World { network, agenda, random, faults, .. } = &mut *world;
        network.send_pages(agenda, random, socket.0, (&pages, faults.queued_pages_change), offset as usize, len)
    }

    fn await_writable(&mut self, socket: Socket, token: Token) {
        let mut world = self.world.borrow_mut();
        let Some(link) = world.link(socket, token) else { return };
        let was_awaited = std::mem::replace(&mut link.awaits_writable, true);
        if was_awaited {
            world.violation(format!("{socket:?}: await_writable while another is under way"));
        }
        let World { network, agenda, .. } = &mut *world;
        network.pump(agenda, socket.0);
    }

    fn stop_awaiting_writable(&mut self, socket: Socket, token: Token) {
        let mut world = self.world.borrow_mut();
        let Some(link) = world.link(socket, token) else { return };
        if std::mem::take(&mut link.awaits_writable) {
            link.done.push_back(Done::Writable);
            world.network.ready.insert(socket.0);
        }
    }

    fn has_unread(&self, _socket: Socket) -> bool {
        false
    }

    fn unacknowledged_bytes(&self, socket: Socket) -> usize {
        self.world.borrow().network.unacknowledged_bytes(socket.0)
    }

    fn since_arrival(&self, socket: Socket) -> Duration {
        let world = self.world.borrow();
        let arrived_ns = world.network.links.get(&socket.0).map(|link| link.received_at_ns);
        Duration::from_nanos(arrived_ns.map_or(0, |arrived_ns| world.agenda.now_ns() - arrived_ns))
    }

    fn peer(&self, _socket: Socket) -> Option<SocketAddr> {
        None
    }

    fn own_address(&self, _socket: Socket) -> Option<SocketAddr> {
        None
    }

    fn shutdown(&mut self, socket: Socket, token: Token, both: bool) {
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        if world.link(socket, token).is_none() {
            return;
        }
        let World { network, agenda, random, .. } = &mut *world;
        network.shutdown(agenda, random, socket.0, both);
        if both {
            self.leave_line(&mut world, socket.0);
        }
    }

    fn close(&mut self, socket: Socket, reset: bool) {
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        let is_sending = world.network.is_sending(socket.0);
        let Some(link) = world.network.links.get(&socket.0) else { return };
        if link.closed {
            world.violation(format!("{socket:?} is closed twice"));
            return;
        }
        let owes = is_sending || link.awaits_writable || !link.done.is_empty() || link.receiving != Receiving::Off;
        if owes {
            let text = format!("{socket:?} is closed while something is under way: {}", link.describe());
            world.violation(text);
        }
        world.trace(|| format!("close {} reset {reset}", socket.0));
        let World { network, agenda, random, .. } = &mut *world;
        network.close(agenda, random, socket.0, reset);
        self.leave_line(&mut world, socket.0);
        world.network.ready.remove(&socket.0);
    }

    fn give_up(&mut self, _socket: Socket, _token: Token) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Socket> {
        // Only its number is looked at: it stands for the worker's end of a link to a program.
        let link = self.world.borrow_mut().programs.ends.remove(&socket.as_raw_fd());
        link.map(Socket).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn connect(&mut self, _to: &Peer) -> io::Result<Socket> {
        Err(io::ErrorKind::ConnectionRefused.into())
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
        self.free.len()
    }

    fn has_more(&self) -> bool {
        let mut world = self.world.borrow_mut();
        !world.network.ready.is_empty() && world.random.percent(30)
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
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        world.count_turn()?;
        let work_ns = world.random.below(WORK_NS_MAX);
        let lateness_ns = world.random.below(LATENESS_NS_MAX);
        let now_ns = world.agenda.now_ns() + work_ns;
        world.agenda.advance_to(now_ns);
        world.worked_ns += work_ns;
        let deadline_ns = match timeout {
            Some(Duration::ZERO) => Some(now_ns),
            Some(timeout) => Some(now_ns + timeout.as_nanos() as u64 + lateness_ns),
            None => None,
        };
        let gathered_ns = now_ns + gather.time.as_nanos() as u64;
        loop {
            world.run_due();
            let known = completions.len();
            self.harvest(&mut world, completions);
            world.note_completions(&completions[known..]);
            let now_ns = world.agenda.now_ns();
            let is_gathering = now_ns < gathered_ns && completions.len() < gather.arrivals as usize;
            if !completions.is_empty() && !is_gathering {
                return Ok(());
            }
            if deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns) || world.has_failed() {
                return Ok(());
            }
            let gathered_ns = is_gathering.then_some(gathered_ns);
            match world.agenda.next_ns().into_iter().chain(deadline_ns).chain(gathered_ns).min() {
                Some(next_ns) => world.agenda.advance_to(next_ns),
                None => {
                    world.violation("the worker waits for ever and nothing is to come".to_owned());
                    return Ok(());
                }
            }
        }
    }
}
