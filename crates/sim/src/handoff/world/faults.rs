//! Processes that come and go, sessions that open and break, and what must be left in the end.

use leat_logic::handoff::{self, RecallTerms};

use super::*;

fn incarnation_of(machine: usize, life: u64) -> Incarnation {
    Incarnation(life * 100 + machine as u64)
}

impl World {
    pub(super) fn start(&mut self, machine: usize) {
        if self.machines[machine].is_up() || self.is_followed(machine) {
            return;
        }
        let state = &mut self.machines[machine];
        state.life += 1;
        let life = state.life;
        let now = state.clock(self.now_ns);
        if machine == HOME {
            // Its programs take the place of those by which they were.
            self.standing.clear();
            self.begun.clear();
            let entries: Vec<_> =
                self.steering.iter().map(|(&flow, &(to, generation))| (flow, to, generation)).collect();
            let mut home = Home::recover(now, self.limits.0.clone(), entries);
            let are_births_lent = self.random.percent(30);
            home.set_rules(Rules { is_asked: true, keep_ms: 1, are_births_lent, ..Rules::default() });
            state.process = Process::Home(Box::new(home));
        } else {
            let incarnation = incarnation_of(machine, life);
            state.process = Process::Node(Box::new(Node::new(self.limits.1.clone(), incarnation)));
            self.after(MILLISECOND, Happening::Connect { node: machine, life });
        }
        self.trace(|| format!("{machine} starts"));
    }

    pub(super) fn crash(&mut self, machine: usize) {
        if !self.machines[machine].is_up() {
            return;
        }
        self.trace(|| format!("{machine} dies"));
        self.faults += 1;
        if machine == HOME {
            self.excuse_what_home_holds();
        }
        self.machines[machine].die();
        let sessions = if machine == HOME {
            (1..self.machines.len()).flat_map(|node| self.sessions.of_node(node)).collect()
        } else {
            self.sessions.of_node(machine)
        };
        for session in sessions {
            self.cut_session(session);
        }
        let delay_ns = *self.random.pick(&[10 * MILLISECOND, 500 * MILLISECOND, 4 * SECOND]);
        self.after(delay_ns, Happening::Start(machine));
    }

    /// A dying home takes along what it has in hand; what lives at a node, or is frozen there to be returned, must go on.
    fn excuse_what_home_holds(&mut self) {
        for (&flow, client) in &self.clients {
            if client.is_over {
                continue;
            }
            let is_elsewhere = self.machines[1..].iter().any(|node| node.sockets.contains_key(&flow));
            let is_steered = matches!(self.steering.get(&flow), Some((Target::Node(_), _)));
            if !is_elsewhere || !is_steered {
                self.excuses.entry(flow).or_insert("its home died");
            }
        }
    }

    pub(super) fn connect(&mut self, node: usize, life: u64) {
        let home_life = self.machines[HOME].life;
        let home_is_up = self.machines[HOME].is_up();
        let now = self.machines[node].clock(self.now_ns);
        let slowest_ns = *self.random.pick(&[MILLISECOND, MILLISECOND, 300 * MILLISECOND]);
        let handshake_ns = self.random.below(slowest_ns);
        let server = self.machines[node].server;
        let mut others = self.machines.iter().enumerate().filter(|(other, at)| *other != node && at.server == server);
        let is_only = others.all(|(_, other)| !other.is_up()) || self.has(Defect::OverlooksOthers);
        let state = &mut self.machines[node];
        if state.life != life || state.session.is_some() {
            return;
        }
        let Some(process) = state.node() else { return };
        if !home_is_up {
            self.after(100 * MILLISECOND, Happening::Connect { node, life });
            return;
        }
        // The home may hear of a later session before an earlier one.
        let opened_ns = self.now_ns + handshake_ns;
        let session = self.sessions.open(node, (life, home_life), opened_ns);
        process.connected(now, session, Some(handoff::Process { number: incarnation_of(node, life).0, is_only }));
        state.session = Some(session);
        self.at(opened_ns, Happening::Opened(session));
    }

    pub(super) fn session_opened(&mut self, session: SessionId) {
        let Some(state) = self.sessions.get(session) else { return };
        let (node, home_life) = (ServerId(self.machines[state.node].server as u32), state.lives.1);
        if self.machines[HOME].life == home_life
            && let Some(home) = self.machines[HOME].home()
        {
            home.connected(node, session);
        }
    }

    pub(super) fn session_closed(&mut self, session: SessionId, at_home: bool) {
        let Some(state) = self.sessions.get(session) else { return };
        let node = state.node;
        if at_home {
            if let Some(home) = self.machines[HOME].home() {
                home.disconnected(session);
            }
        } else if self.machines[node].session == Some(session) {
            self.machines[node].session = None;
            if let Some(process) = self.machines[node].node() {
                process.disconnected(session);
            }
            self.reconnect(node);
        }
    }

    pub(super) fn reconnect(&mut self, node: usize) {
        if node != HOME {
            let life = self.machines[node].life;
            let delay_ns = self.random.below(100 * MILLISECOND);
            self.after(delay_ns, Happening::Connect { node, life });
        }
    }

    /// Each side learns of it in its own time.
    pub(super) fn cut_session(&mut self, session: SessionId) {
        if !self.sessions.cut(&mut self.random, session) {
            return;
        }
        self.trace(|| format!("{session:?} breaks"));
        for at_home in [true, false] {
            let most_ns = *self.random.pick(&[MILLISECOND, 100 * MILLISECOND, 2 * SECOND]);
            let delay_ns = self.random.below(most_ns);
            self.after(delay_ns, Happening::Closed { session, at_home });
        }
    }

    /// The home wants something back.
    pub(super) fn recall(&mut self) {
        let node = ServerId(self.random.between(1, self.nodes as u64) as u32);
        let number = self.random.below(4) as usize;
        let terms = *self.random.pick(&[RecallTerms::AtOnce, RecallTerms::AtRest]);
        let Some(home) = self.machines[HOME].home() else { return };
        home.recall_unseen(number);
        let flow = home.flows_of(|known| known == node).nth(number);
        if let Some(flow) = flow {
            home.recall(flow, terms);
        }
    }

    fn flows_known(&mut self) -> usize {
        let nodes = self.machines[1..].iter_mut();
        let at_nodes: usize = nodes.filter_map(|node| node.node().map(|node| node.flow_count())).sum();
        at_nodes + self.machines[HOME].home().map_or(0, |home| home.flow_count())
    }

    /// Whether everybody has what they wanted and nothing is left.
    pub(in super::super) fn is_over(&mut self) -> bool {
        let is_late = self.now_ns > FAULTS_END_NS
            && (0..self.machines.len()).all(|machine| self.machines[machine].is_up() || self.is_followed(machine));
        let is_done = |client: &Client| client.is_over || client.vanishes_ns <= self.now_ns;
        is_late
            && self.clients.values().all(is_done)
            && self.flows_known() == 0
            && self.machines.iter().all(|machine| machine.sockets.is_empty())
    }

    pub(in super::super) fn check_end(&mut self) {
        if self.failure.is_some() {
            return;
        }
        let is_stuck = |client: &&Client| !client.is_over && client.vanishes_ns > self.now_ns;
        if let Some(client) = self.clients.values().find(is_stuck) {
            return self.fail(format!("{} hangs: {client:?}", client.flow));
        }
        let cut = |client: &&Client| client.was_cut && !self.excuses.contains_key(&client.flow);
        if let Some(client) = self.clients.values().find(cut) {
            return self.fail(format!("{} was cut for no reason", client.flow));
        }
        let flows = self.flows_known();
        if flows > 0 {
            return self.fail(format!("{flows} flows are left in tables"));
        }
        if let Some((flow, entry)) = self.steering.first_key_value() {
            return self.fail(format!("a steering entry is left: {flow} {entry:?}"));
        }
        if self.machines.iter().any(|machine| !machine.sockets.is_empty()) {
            return self.fail("a socket is left".into());
        }
        let kept_bytes = self.machines[HOME].home().map_or(0, |home| home.kept_bytes());
        if kept_bytes > 0 {
            self.fail(format!("{kept_bytes} bytes of images are left"));
        }
    }

    pub(in super::super) fn summary(&self) -> Summary {
        let mut summary = self.summary;
        for client in self.clients.values() {
            summary.flows += 1;
            summary.served += u64::from(client.has_everything());
            match self.excuses.get(&client.flow) {
                Some(&"its home died") if client.was_cut => summary.lost_with_home += 1,
                Some(_) if client.was_cut => summary.cut += 1,
                _ => {}
            }
        }
        summary
    }
}
