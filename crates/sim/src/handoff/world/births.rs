//! Connections that begin at nodes: the home sends the packet with the first request there, the node's kernel makes the connection, and its process accepts
//! that in its own time.

use super::*;

/// A process that has much to do accepts late.
pub(super) const ACCEPT_NS_MAX: u64 = 150 * MILLISECOND;
/// Between an accept and the word of it.
const TELL_NS: u64 = 5 * MILLISECOND;
/// A choice stands for so long: much longer than a real one, so that it outlives links and leases.
pub(super) const CHOICE_NS: u64 = SECOND;

impl World {
    /// A packet of a connection that nobody has yet. Until its home looks at it, it waits for its client to send it again.
    pub(super) fn begin(&mut self, packet: Packet) {
        let flow = packet.flow;
        if packet.data.1 == 0 {
            return;
        }
        let client = &self.clients[&flow];
        let (wanted, image) = (client.asked[0].wanted, Socket::unborn(client, packet.data.1));
        if self.standing.get(&wanted).is_some_and(|until_ns| *until_ns > self.now_ns) {
            return self.begin_by_choice(packet, wanted, image);
        }
        self.read_begun();
        let machine = &mut self.machines[HOME];
        let now = machine.clock(self.now_ns);
        if machine.stands_still_until_ns > self.now_ns {
            return;
        }
        let Some(home) = machine.home() else { return };
        self.unborn.remove(&flow);
        if wanted != ServerId(0) && home.born(now, flow, wanted, image).is_ok() {
            self.births.insert(flow);
            self.summary.born += 1;
            if self.random.percent(50) {
                self.standing.insert(wanted, self.now_ns + CHOICE_NS);
            }
            self.steer(flow, Target::Node(wanted), Generation::BORN);
            return self.packet_at_home(packet);
        }
        if home.open(flow) {
            self.machines[HOME].sockets.insert(flow, Socket::accepted(flow, self.now_ns));
            self.start_ticking(HOME, flow);
            self.packet_at(HOME, packet);
        }
    }

    /// The home's kernel sends it there by itself, also while its process stands still, or isn't there.
    fn begin_by_choice(&mut self, packet: Packet, node: ServerId, image: Bytes) {
        let flow = packet.flow;
        self.unborn.remove(&flow);
        self.births.insert(flow);
        self.summary.unasked += 1;
        self.steer(flow, Target::Node(node), Generation::BORN);
        if self.machines[HOME].is_up() {
            self.begun.push((flow, node, image));
        } else {
            self.excuses.entry(flow).or_insert("its home died");
        }
        self.packet_at_home(packet);
    }

    /// The home reads what has begun, before anything else that it does.
    pub(super) fn read_begun(&mut self) {
        let machine = &mut self.machines[HOME];
        if machine.stands_still_until_ns > self.now_ns {
            return;
        }
        let now = machine.clock(self.now_ns);
        let Some(home) = machine.home() else { return };
        for (flow, node, image) in self.begun.drain(..) {
            home.begun(now, flow, node, Some(image));
        }
    }

    /// A node's kernel makes a connection of a first packet, once, if a process listens.
    pub(super) fn begin_at(&mut self, server: usize, packet: Packet) {
        let flow = packet.flow;
        let is_first = packet.data.0 == 0 && packet.data.1 > 0 && packet.acknowledgement == 0;
        if !is_first || !self.births.contains(&flow) || self.accepted.contains(&(server, flow)) {
            return;
        }
        let listens = |machine: &usize| self.machines[*machine].server == server && self.machines[*machine].is_up();
        let listeners: Vec<usize> = (0..self.machines.len()).filter(listens).collect();
        if listeners.is_empty() {
            return;
        }
        let machine = *self.random.pick(&listeners);
        let state = &mut self.machines[machine];
        let life = state.life;
        let mut socket = Socket::accepted(flow, self.now_ns);
        (socket.generation, socket.is_unaccepted) = (Generation::BORN, true);
        state.sockets.insert(flow, socket);
        self.packet_at(machine, packet);
        let delay_ns = self.random.below(ACCEPT_NS_MAX);
        self.after(delay_ns, Happening::Accept { machine, flow, life });
    }

    pub(super) fn accept(&mut self, machine: usize, flow: FlowId, life: u64) {
        let (machine, life) = self.accepter(machine, flow, life);
        let state = &mut self.machines[machine];
        let waits = state.sockets.get(&flow).is_some_and(|socket| socket.is_unaccepted);
        if state.life != life || !waits {
            return;
        }
        let now = state.clock(self.now_ns);
        self.accepted.insert((state.server, flow));
        let Some(node) = state.node() else { return };
        if !node.born(now, flow) {
            state.sockets.remove(&flow);
            return;
        }
        if let Some(socket) = state.sockets.get_mut(&flow) {
            socket.is_unaccepted = false;
        }
        self.start_ticking(machine, flow);
        self.after(TELL_NS, Happening::TellBirths { machine, life });
    }

    /// A process that ends and is followed accepts no more: what waits at the listener, which both have, is the other's.
    fn accepter(&mut self, machine: usize, flow: FlowId, life: u64) -> (usize, u64) {
        let new = self.youngest(self.machines[machine].server);
        let state = &mut self.machines[machine];
        if new == machine || state.life != life || !state.ends || !self.machines[new].is_up() {
            return (machine, life);
        }
        let waits = |socket: &&Socket| socket.is_unaccepted;
        if let Some(socket) = self.machines[machine].sockets.get(&flow).filter(waits).cloned() {
            self.machines[machine].sockets.remove(&flow);
            self.machines[new].sockets.insert(flow, socket);
        }
        (new, self.machines[new].life)
    }

    pub(super) fn tell_births(&mut self, machine: usize, life: u64) {
        let state = &mut self.machines[machine];
        if state.life == life
            && let Some(node) = state.node()
        {
            node.tell_births();
        }
    }

    /// Accepts all that wait at the server's listener, which its processes share, and says so.
    pub(super) fn accept_all(&mut self, machine: usize) {
        let (server, life) = (self.machines[machine].server, self.machines[machine].life);
        for other in 0..self.machines.len() {
            let state = &self.machines[other];
            let waits = |socket: &&Socket| state.server == server && socket.is_unaccepted;
            let waiting: Vec<Socket> = state.sockets.values().filter(waits).cloned().collect();
            for socket in waiting {
                let flow = socket.flow;
                self.machines[other].sockets.remove(&flow);
                self.machines[machine].sockets.insert(flow, socket);
                self.accept(machine, flow, life);
            }
        }
        if let Some(node) = self.machines[machine].node() {
            node.none_waits();
        }
    }
}
