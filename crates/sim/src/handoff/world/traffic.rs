//! Packets between clients and sockets, and what applications do with what they get.

use super::super::client::REQUEST_BYTES;
use super::*;

impl World {
    pub(super) fn new_client(&mut self) {
        let serial = self.clients.len() as u64 + 1;
        let flow = FlowId { home: ServerId(0), serial };
        let servers = self.nodes as u64 + 1;
        let now_ns = self.now_ns;
        let is_birth = self.random.percent(40);
        let Some(home) = self.machines[HOME].home() else { return };
        if !is_birth && !home.open(flow) {
            return;
        }
        let mut client = Client::new(&mut self.random, flow, servers, now_ns);
        if self.options.pipelined {
            client.pipeline();
        }
        self.clients.insert(flow, client);
        if is_birth {
            self.unborn.insert(flow);
        } else {
            self.machines[HOME].sockets.insert(flow, Socket::accepted(flow, now_ns));
            self.start_ticking(HOME, flow);
        }
        self.after(0, Happening::ClientTick(flow));
    }

    pub(super) fn client_tick(&mut self, flow: FlowId) {
        self.client_speaks(flow);
        let client = &self.clients[&flow];
        if !client.is_over && client.vanishes_ns > self.now_ns {
            self.after(150 * MILLISECOND, Happening::ClientTick(flow));
        }
    }

    fn client_speaks(&mut self, flow: FlowId) {
        let now_ns = self.now_ns;
        let Some(packet) = self.clients.get_mut(&flow).and_then(|client| client.speak(now_ns)) else { return };
        let is_lost = now_ns < self.deaf_until_ns;
        if let Some(delay_ns) = self.way().filter(|_| !is_lost) {
            self.after(delay_ns, Happening::AtHome(packet));
        }
    }

    /// How long a packet is on its way; some never arrive.
    fn way(&mut self) -> Option<u64> {
        if self.random.percent(3) {
            return None;
        }
        let most_ns = if self.random.percent(2) { LATENCY_NS_MAX } else { 3 * MILLISECOND };
        Some(self.random.below(most_ns))
    }

    pub(super) fn packet_at_home(&mut self, packet: Packet) {
        let flow = packet.flow;
        let seen = self.seen.entry(flow).or_default();
        seen.acknowledged = seen.acknowledged.max(packet.acknowledgement);
        if packet.data.1 > seen.sent {
            (seen.kept, seen.sent) = packet.data;
        }
        match self.steering.get(&flow) {
            Some((Target::Hold, _)) => {}
            Some((Target::Node(node), generation)) => {
                let (node, may_begin) = (node.0 as usize, *generation == Generation::BORN);
                if let Some(delay_ns) = self.way() {
                    self.after(delay_ns, Happening::AtNode(node, packet, may_begin));
                }
            }
            None if self.machines[HOME].sockets.contains_key(&flow) => self.packet_at(HOME, packet),
            None if self.unborn.contains(&flow) => self.begin(packet),
            // Nobody knows it: the home's kernel says so.
            None => self.after(MILLISECOND, Happening::Reset(flow)),
        }
    }

    /// A node without a socket for it drops it.
    pub(super) fn packet_at(&mut self, machine: usize, packet: Packet) {
        let now_ns = self.now_ns;
        let Some(socket) = self.machines[machine].sockets.get_mut(&packet.flow) else { return };
        if socket.is_frozen {
            return;
        }
        let before = (socket.unacknowledged, socket.received);
        socket.handle_packet(&packet, now_ns);
        let has_news = before != (socket.unacknowledged, socket.received);
        self.application(machine, packet.flow);
        if has_news {
            self.transmit(machine, packet.flow);
        }
    }

    pub(super) fn start_ticking(&mut self, machine: usize, flow: FlowId) {
        let state = &self.machines[machine];
        let Some(socket) = state.sockets.get(&flow) else { return };
        let (generation, life) = (socket.generation, state.life);
        self.after(0, Happening::SocketTick { machine, flow, generation, life });
    }

    pub(super) fn tick(&mut self, machine: usize, flow: FlowId, generation: Generation, life: u64) {
        let state = &self.machines[machine];
        let is_same = state.life == life
            && state.sockets.get(&flow).is_some_and(|socket| socket.generation == generation && !socket.is_frozen);
        if !is_same {
            return;
        }
        self.application(machine, flow);
        self.transmit(machine, flow);
        self.after(TICK_NS, Happening::SocketTick { machine, flow, generation, life });
    }

    /// Whether a kernel lets out what a socket sends.
    fn may_leave(&self, machine: usize) -> bool {
        let state = &self.machines[machine];
        machine == HOME || self.has(Defect::NoFence) || state.clock(self.now_ns) < state.lease_until
    }

    fn transmit(&mut self, machine: usize, flow: FlowId) {
        let is_open = self.may_leave(machine);
        let Some(socket) = self.machines[machine].sockets.get_mut(&flow).filter(|socket| !socket.is_frozen) else {
            return;
        };
        let segments = socket.transmit();
        let (generation, acknowledged) = (socket.generation, socket.received);
        let is_unaccepted = socket.is_unaccepted;
        if !is_open {
            return;
        }
        // A kernel acknowledges what waits to be accepted, and says nothing else of it.
        if !is_unaccepted {
            self.check_owner(machine, flow, generation);
        }
        for (start, bytes) in segments {
            if let Some(delay_ns) = self.way() {
                self.after(delay_ns, Happening::ToClient { flow, start, bytes, acknowledged });
            }
        }
    }

    /// The invariant that all this is for.
    fn check_owner(&mut self, machine: usize, flow: FlowId, generation: Generation) {
        let highest = self.highest.entry(flow).or_default();
        if generation < *highest {
            let highest = highest.0;
            return self.fail(format!("{machine} sends on {flow} under {}, after {highest} did", generation.0));
        }
        *highest = generation;
        let is_live = |other: usize| {
            let socket = self.machines[other].sockets.get(&flow);
            socket.is_some_and(|socket| !socket.is_frozen && !socket.is_unaccepted) && self.may_leave(other)
        };
        let other = (0..self.machines.len()).find(|&other| other != machine && is_live(other));
        if let Some(other) = other {
            self.fail(format!("{machine} sends on {flow}, and {other} may as well"));
        }
    }

    pub(super) fn client_receives(&mut self, flow: FlowId, start: u64, bytes: &[u8], acknowledged: u64) {
        let now_ns = self.now_ns;
        let Some(client) = self.clients.get_mut(&flow) else { return };
        if client.is_over || now_ns >= client.vanishes_ns {
            return;
        }
        match client.receive(start, bytes, acknowledged) {
            Ok(()) if !bytes.is_empty() => self.client_speaks(flow),
            Ok(()) => {}
            Err(what) => self.fail(what),
        }
    }

    pub(super) fn client_reset(&mut self, flow: FlowId) {
        let excuse = self.excuses.get(&flow).copied();
        let Some(client) = self.clients.get_mut(&flow) else { return };
        if client.is_over {
            return;
        }
        client.handle_reset();
        let was_cut = client.was_cut;
        self.trace(|| format!("{flow}: reset, {}", if was_cut { "too early" } else { "all is there" }));
        if was_cut && excuse.is_none() {
            self.fail(format!("{flow} is reset for no reason"));
        }
    }

    /// What a server's application does when it looks at a connection.
    fn application(&mut self, machine: usize, flow: FlowId) {
        let state = &self.machines[machine];
        if !state.is_up() || state.stands_still_until_ns > self.now_ns {
            return;
        }
        let Some(socket) = state
            .sockets
            .get(&flow)
            .filter(|socket| !socket.is_frozen && !socket.is_freezing && !socket.is_asking && !socket.is_unaccepted)
        else {
            return;
        };
        let is_lost = socket.pending().is_none()
            && socket.asked_before_ns.is_some_and(|since| self.now_ns - since > ASKED_AGAIN_WITHIN_NS);
        let is_stalled = is_lost || self.now_ns - socket.last_heard_ns > STALL_NS;
        if is_stalled || socket.is_ended || (socket.is_last && socket.is_drained()) {
            self.end_flow(machine, flow);
            return;
        }
        let answered = socket.begun as u32;
        if socket.has_replied()
            && let Some(node) = self.machines[machine].node()
            && node.replied(flow, answered)
        {
            self.summary.lent += 1;
            self.settle(machine);
            return;
        }
        let socket = &self.machines[machine].sockets[&flow];
        let is_told = socket.is_told;
        let Some(number) = socket.pending() else {
            let rest = socket.rest();
            if self.random.percent(20)
                && let (Some(rest), Some(node)) = (rest, self.machines[machine].node())
            {
                node.began(flow, rest.encode().expect("within the limits").into());
                self.settle(machine);
            }
            return;
        };
        let is_drained = socket.is_drained();
        let wanted = self.clients[&flow].asked[number as usize - 1].wanted;
        let server = self.machines[machine].server;
        let is_for_one = self.random.percent(30);
        if wanted.0 as usize == server || is_told || self.random.percent(20) {
            self.answer(machine, flow);
        } else if let Some(home) = self.machines[machine].home() {
            let given = if is_for_one { home.lend(flow, wanted) } else { home.give(flow, wanted) };
            if given.is_err() {
                self.answer(machine, flow);
            }
        } else if is_drained || self.random.percent(30) {
            let now = self.machines[machine].clock(self.now_ns);
            let asks = self.random.percent(60);
            let Some(node) = self.machines[machine].node() else { return };
            let question = Question { number: number as u32, head: Bytes::new(), is_stuck: false };
            let is_asking = asks && node.ask(now, flow, question);
            if !is_asking {
                node.give_back(flow);
            } else if let Some(socket) = self.machines[machine].sockets.get_mut(&flow) {
                socket.is_asking = true;
                self.summary.asked += 1;
            }
        }
        self.settle(machine);
    }

    /// The home has said where the next request belongs, or nobody has.
    pub(super) fn told(&mut self, machine: usize, flow: FlowId, there: Option<There>) {
        let Some(socket) = self.machines[machine].sockets.get_mut(&flow) else { return };
        if !socket.is_asking {
            return self.fail(format!("{machine} is told of {flow}, for which it doesn't ask"));
        }
        socket.is_asking = false;
        socket.is_told = there != Some(There::Move);
        match self.machines[machine].node() {
            Some(node) if there == Some(There::Move) => node.give_back(flow),
            _ => self.application(machine, flow),
        }
    }

    fn answer(&mut self, machine: usize, flow: FlowId) {
        let client = &self.clients[&flow];
        let state = &mut self.machines[machine];
        let head = (machine as u8).wrapping_mul(37) ^ state.life as u8;
        let Some(socket) = state.sockets.get_mut(&flow) else { return };
        assert!(socket.received <= client.asked.len() as u64 * REQUEST_BYTES, "more than was sent");
        let progress = socket.answer(client, head, self.version);
        let is_long = progress.reply.as_ref().is_some_and(|reply| reply.complete_length > 600);
        if (is_long || self.options.pipelined)
            && let Some(node) = state.node()
        {
            node.began(flow, progress.encode().expect("within the limits").into());
        }
    }

    fn end_flow(&mut self, machine: usize, flow: FlowId) {
        self.machines[machine].sockets.remove(&flow);
        if let Some(home) = self.machines[machine].home() {
            home.forget(flow);
        } else if let Some(node) = self.machines[machine].node() {
            node.ended(flow, false);
        }
        self.settle(machine);
    }
}
