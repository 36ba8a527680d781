//! A node's processes that are upgraded or stopped: one that ends gives back what it has, beside the one that follows it on the same machine.

use std::time::Duration;

use super::*;

/// A process that hasn't given back everything by then ends all the same.
const DRAIN_NS: u64 = 30 * SECOND;
/// The same of one that nobody follows.
const STOP_NS: u64 = 3 * SECOND;
/// What begins at one that nobody follows before everybody knows that it ends has come by then: by the last choice that stands, and a way each.
const BIRTHS_WITHIN_NS: u64 = births::CHOICE_NS + births::ACCEPT_NS_MAX + 2 * LATENCY_NS_MAX;

impl World {
    /// Which of a server's processes is the youngest, or the one before.
    pub(super) fn process_at(&mut self, server: usize) -> usize {
        let up = |machine: &usize| self.machines[*machine].server == server && self.machines[*machine].is_up();
        let mut up: Vec<usize> = (0..self.machines.len()).filter(up).collect();
        let youngest = up.pop().unwrap_or(server);
        if up.is_empty() || self.random.percent(50) { youngest } else { *self.random.pick(&up) }
    }

    pub(super) fn youngest(&self, server: usize) -> usize {
        self.machines.iter().rposition(|machine| machine.server == server).unwrap_or(server)
    }

    /// Whether another process on the same machine has a socket of a flow, so that no second one can be made.
    pub(super) fn is_taken(&self, machine: usize, flow: FlowId) -> bool {
        let server = self.machines[machine].server;
        let others = self.machines.iter().enumerate().filter(|(other, _)| *other != machine);
        others.filter(|(_, other)| other.server == server).any(|(_, other)| other.sockets.contains_key(&flow))
    }

    /// Which of a server's processes gets a flow's packets: that which has a socket of it.
    pub(super) fn receiver(&self, server: usize, flow: FlowId) -> usize {
        let has_it = |machine: &Machine| machine.server == server && machine.sockets.contains_key(&flow);
        self.machines.iter().position(has_it).unwrap_or(server)
    }

    /// Another process of a node begins, and the one before is told to end.
    pub(super) fn upgrade(&mut self, server: usize) {
        let old = self.youngest(server);
        if !self.machines[old].is_up() || self.machines[old].ends {
            return;
        }
        let follower = self.machines[old].follower();
        self.machines.push(follower);
        let new = self.machines.len() - 1;
        self.summary.upgrades += 1;
        self.start(new);
        let life = self.machines[old].life;
        let delay_ns = *self.random.pick(&[0, MILLISECOND, 300 * MILLISECOND]);
        self.after(delay_ns, Happening::End { machine: old, life, is_followed: true });
    }

    /// A node's process is to end; another begins when it has.
    pub(super) fn stop(&mut self, server: usize) {
        let machine = self.youngest(server);
        let life = self.machines[machine].life;
        self.happen(Happening::End { machine, life, is_followed: false });
    }

    pub(super) fn end(&mut self, machine: usize, life: u64, is_followed: bool) {
        let state = &mut self.machines[machine];
        let now = state.clock(self.now_ns);
        if state.life != life || state.ends {
            return;
        }
        let Some(node) = state.node() else { return };
        let most_ns = if is_followed { DRAIN_NS } else { STOP_NS };
        node.leave(now, is_followed, now.after(Duration::from_nanos(most_ns)));
        state.ends = true;
        if !is_followed {
            state.accepts_until_ns = self.now_ns + BIRTHS_WITHIN_NS;
            self.after(BIRTHS_WITHIN_NS, Happening::Wake(machine));
        }
        self.trace(|| format!("{machine} is to end"));
        self.after(most_ns, Happening::Expire { machine, life });
    }

    /// Whether a process is to end, and another has followed.
    pub(super) fn has_heir(&self, machine: usize) -> bool {
        machine != HOME && self.machines[machine].ends && self.is_followed(machine)
    }

    /// Gives a socket that is to be frozen to the process that followed, as soon as that may be; freezes it after all if it never may.
    pub(super) fn pass(&mut self, machine: usize, life: u64, flow: FlowId, tries: u64) {
        let heir = self.youngest(self.machines[machine].server);
        let to = (heir, self.machines[heir].life);
        let state = &mut self.machines[machine];
        let now = state.clock(self.now_ns);
        if state.life != life || !state.sockets.get(&flow).is_some_and(|socket| socket.is_freezing) {
            return;
        }
        match state.node() {
            Some(node) if node.may_pass(now, flow) => {
                let generation = node.pass(flow).expect("it's there");
                let delay_ns = self.random.below(20 * MILLISECOND);
                self.after(delay_ns, Happening::Passed { flow, generation, from: (machine, life), to });
            }
            Some(_) if tries > 0 => {
                self.after(20 * MILLISECOND, Happening::Pass { machine, life, flow, tries: tries - 1 })
            }
            Some(_) => self.begin_freezing(machine, flow),
            None => {}
        }
    }

    /// A process has let go of a socket, or the other one won't have it.
    pub(super) fn passed(&mut self, flow: FlowId, generation: Generation, from: (usize, u64), to: (usize, u64)) {
        let giver = &mut self.machines[from.0];
        if giver.stands_still_until_ns > self.now_ns {
            let until_ns = giver.stands_still_until_ns;
            return self.at(until_ns, Happening::Passed { flow, generation, from, to });
        }
        let now = giver.clock(self.now_ns);
        let is_fenced = giver.node().is_none_or(|node| node.is_fenced(now));
        let Some(mut socket) = giver.sockets.remove(&flow).filter(|_| giver.life == from.1) else { return };
        let takes = !is_fenced && self.machines[to.0].life == to.1 && self.machines[to.0].is_up();
        let machine = if takes && !self.random.percent(10) { to.0 } else { from.0 };
        self.summary.passed += u64::from(machine == to.0);
        self.trace(|| format!("{flow} goes to {machine}, socket and all"));
        (socket.is_freezing, socket.is_told) = (false, false);
        let state = &mut self.machines[machine];
        state.sockets.insert(flow, socket);
        let now = state.clock(self.now_ns);
        if let Some(node) = state.node() {
            node.take_over(now, flow, generation);
        }
        if machine == to.0 {
            self.start_ticking(machine, flow);
            if self.now_ns < FAULTS_END_NS && self.random.percent(20) {
                // Who has let go of it dies, and who has it isn't heard.
                self.happen(Happening::CutSession(self.machines[machine].server));
                self.crash(from.0);
            }
        }
    }

    /// A process ends that has nothing any more.
    pub(super) fn exit_if_done(&mut self, machine: usize) {
        let state = &mut self.machines[machine];
        let is_done = state.ends
            && state.accepts_until_ns <= self.now_ns
            && state.sockets.is_empty()
            && state.under_way.is_empty();
        if is_done && state.node().is_some_and(|node| node.has_left()) {
            self.exit(machine);
        }
    }

    /// What a process hasn't given back by then ends with it.
    pub(super) fn expire(&mut self, machine: usize, life: u64) {
        let state = &self.machines[machine];
        if state.life != life || !state.is_up() {
            return;
        }
        let left: Vec<FlowId> = state.sockets.keys().chain(state.under_way.keys()).copied().collect();
        self.summary.expired += left.len() as u64;
        // What has changed since, nobody else can send, and a client that never reads never gets it all.
        let can_go_on = |flow: &FlowId| state.sockets.get(flow).is_none_or(|socket| socket.can_go_on(self.version));
        if self.faults == 0 && left.iter().any(can_go_on) && self.is_followed(machine) {
            self.fail(format!("{machine} ends with {left:?}, and nothing has gone wrong"));
        }
        self.excuses.extend(left.into_iter().map(|flow| (flow, "its node's process ended")));
        self.faults += 1;
        self.exit(machine);
    }

    fn exit(&mut self, machine: usize) {
        self.trace(|| format!("{machine} ends"));
        self.machines[machine].die();
        for session in self.sessions.of_node(machine) {
            self.cut_session(session);
        }
        let delay_ns = *self.random.pick(&[MILLISECOND, SECOND]);
        self.after(delay_ns, Happening::Start(machine));
    }

    /// Whether a process has ended for good.
    pub(super) fn is_followed(&self, machine: usize) -> bool {
        machine != self.youngest(self.machines[machine].server)
    }
}
