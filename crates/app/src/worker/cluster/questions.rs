//! What is asked of a running dispatcher by its control socket or its admin address, and what it's told by them. What there is to ask is `ctl`'s to say.

use leat_logic::handoff;
use serde_json::Value;

use super::super::{Host, Worker};
use super::home::Home;
use super::{Part, number_of};
use crate::ctl::{self, Command, Question};

impl Home {
    /// How many flows each node holds.
    fn list_flows(&self) -> Value {
        let (mut foreign, mut nodes) = (0, Vec::new());
        let mut held = vec![0_u64; self.nodes.len()];
        for server in self.flows.holders() {
            let place = server.server().checked_sub(number_of(0)).and_then(|place| held.get_mut(place as usize));
            place.into_iter().for_each(|count| *count += 1);
        }
        for (place, (node, held)) in self.nodes.iter().zip(held).enumerate() {
            let number = number_of(place);
            // What is at a server that isn't leat is as many as that node says.
            let load = self.foreign(number).and_then(|(server, _)| self.linked.get(&server));
            let told = load.map_or(0, |load| u64::from(load.flows));
            foreign += told;
            nodes.push((self.dispatcher.name(*node).to_owned(), held + told));
        }
        let handoff::HomeCounters { born, taken, .. } = self.flows.counters();
        let flows = self.flows.flow_count() as u64 + foreign;
        let mut list = ctl::list_flows([flows, born + self.entrusted, taken], &nodes);
        let is_draining = |place: &usize| self.draining.contains(&number_of(*place));
        list["draining"] = (0..self.nodes.len()).filter(is_draining).map(|place| nodes[place].0.as_str()).collect();
        list
    }
}

impl<H: Host> Worker<H> {
    /// Answers what was asked of the dispatcher, and does what it was told.
    pub(in crate::worker) fn answer_question(&mut self, question: Question) {
        let now = self.now;
        self.read_begun();
        if let Command::Split { request, client } = &question.command {
            let answer = self.explain_split(request, *client);
            return question.answer(answer);
        }
        if question.command == Command::Ports {
            return question.answer(Ok(self.list_ports()));
        }
        if let Some(answer) = self.answer_by_front(&question.command) {
            return question.answer(answer);
        }
        if let Some(answer) = self.answer_by_peer(&question.command) {
            return question.answer(answer);
        }
        let is_known = self.tell_ports(&question.command);
        if let Some(answer) = self.answer_by_ports(&question.command, is_known) {
            return question.answer(answer);
        }
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else {
            question.answer(Err("this leat is no dispatcher, or couldn't become one: its log says why".to_owned()));
            return;
        };
        let answer = match &question.command {
            Command::Flows => Ok(home.list_flows()),
            command => ctl::answer(&mut home.dispatcher, command, now).map(|answer| match command {
                Command::Drain { node } => home.begin_drain(node, now),
                Command::Resume { node } => {
                    home.end_drain(node);
                    answer
                }
                _ => answer,
            }),
        };
        home.renew_rules();
        question.answer(answer);
        self.run_effects();
    }
}
