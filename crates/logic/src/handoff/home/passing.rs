//! What passes from one process of a node to the one that follows, socket and all: the home takes the younger one's word for it. Until that has come, and only the
//! older one's lease has run out, the younger one is asked before anybody else goes on with a flow.

use super::super::message::{Message, RecallTerms};
use super::super::{FlowId, Generation};
use super::{Flow, Holder, Home, Life};

impl Home {
    /// A process has what another one of its node had.
    pub(super) fn hear_passed(&mut self, flow: FlowId, life: Life) {
        let Some(&Flow { generation, holder: Holder::Node { life: before, recalled, .. }, .. }) = self.flows.get(&flow)
        else {
            return;
        };
        self.send(before, Message::Release { flow, generation });
        self.settle_at_node(flow, life);
        // Where its socket stood when that was made, this process doesn't know.
        self.drop_image(flow);
        if let Some(terms) = recalled {
            self.recall(flow, terms);
        }
    }

    /// A node's process says nothing of a flow any more: one that followed may have it, and is asked. False where there is none.
    pub(super) fn seek_at_heir(&mut self, flow: FlowId) -> bool {
        let Some(record) = self.flows.get_mut(&flow) else { return false };
        let Holder::Node { life, recalled, .. } = record.holder else { return false };
        let Some(heir) = self.nodes.heir_of(life) else { return false };
        let generation = record.generation;
        record.holder = Holder::Node { life: heir, unconfirmed: Some(generation), recalled };
        // Where there is no session its next list answers.
        self.send(heir, Message::Recall { flow, generation, terms: RecallTerms::IfUnborn });
        true
    }

    /// The process that was asked has it.
    pub(super) fn found(&mut self, flow: FlowId) {
        if let Some(Flow { generation, holder: Holder::Node { unconfirmed, .. }, .. }) = self.flows.get_mut(&flow)
            && *unconfirmed == Some(*generation)
        {
            *unconfirmed = None;
        }
    }
}

impl Flow {
    /// Whether another process of that one's node has it, as far as is known here.
    pub(super) fn is_beside(&self, life: Life, generation: Generation) -> bool {
        let is_other = |at: Life| at.0 == life.0 && at != life;
        self.generation == generation && matches!(self.holder, Holder::Node { life: at, .. } if is_other(at))
    }
}
