//! One client's conversation with its nodes: which of its bytes go to which of them, and whose answer the client gets next. Who a node is, and
//! whether there is room, is the caller's to know: a node is a leg here, a number.

use std::collections::{BTreeMap, VecDeque};

use super::prologue::Prologue;
use super::{
    Answers, Begin, Gathered, LEGS_MAX, Limits, Mistake, Order, Parser, Protocol, REQUESTS_MAX, Replaces, Request,
    Scope, Separable,
};
use crate::dispatch::Facts;

/// A node that the client has to do with: the place of it among them.
pub type Leg = usize;

/// What is to be done with a client's bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientStep<'i> {
    /// Nothing, until more have come.
    NeedMore,
    /// Nothing, until some answers have been given.
    Wait,
    /// A request begins, for the node of this content, or for any. [`Session::assign`] or [`Session::refuse`] says whose it is.
    Choose(Option<Facts<'i>>),
    /// The same, for the node of content that the client hasn't named in one piece.
    ChooseGathered(Gathered),
    /// A leg to any node must be there before anything else: [`Session::open`].
    Open,
    /// So many go to this leg; fewer may be passed on now. [`Session::took`] says how many were.
    Forward(Leg, usize),
    /// Instead of so many, others go to this leg, all at once. [`Session::took_instead`] says that they did.
    Instead(Leg, usize, Vec<u8>),
    /// So many go to every leg, all at once. [`Session::took_everywhere`] says that they did.
    Everywhere(usize),
    /// So many are for nobody. [`Session::took`] says that they are gone.
    Drop(usize),
    /// The client wants no more.
    End,
}

/// What is to be done with a node's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStep {
    /// Nothing, until more have come.
    NeedMore,
    /// Nothing, until others have been given.
    NotItsTurn,
    /// So many go to the client; fewer may be passed on now. [`Session::gave`] says how many were.
    Give(usize),
    /// So many are for nobody. [`Session::gave`] says that they are gone.
    Drop(usize),
}

/// Where a conversation is on the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Between,
    /// Bytes of a request; `None`: for nobody.
    Request(Option<Leg>),
    /// All that comes is for this leg.
    Passing(Leg),
    Ended,
}

/// Bytes that have been recognised and not yet moved.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    bytes: usize,
    is_last: bool,
}

/// What is known of a request whose leg is about to be chosen.
#[derive(Clone, Copy, Debug, Default)]
struct Beginning {
    id: Option<u32>,
    is_answered: bool,
    has_followers: bool,
    waits: bool,
}

/// Who speaks to the client next.
#[derive(Debug)]
enum Turn {
    Leg(Leg),
    /// Words that no node has said.
    Own(Vec<u8>),
}

/// A request that is somewhere, by its number.
#[derive(Debug)]
struct Sent {
    leg: Leg,
    is_answered: bool,
}

/// What becomes of an answer that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// It's the client's, and one piece of work.
    Answer,
    /// The same, and it may wait for what other clients do.
    Awaited,
    /// It's the client's, for what all nodes were told: that of this number in the prologue.
    ForAll(u32),
    /// It's for nobody: another node's is the client's.
    Nobody,
}

#[derive(Debug, Default)]
struct Node {
    is_open: bool,
    answers: Option<Box<dyn Answers>>,
    /// In the order of the answers.
    expected: VecDeque<Expected>,
    /// Requests by number that are to be answered.
    unanswered: usize,
    left: Left,
    /// The bytes that are left are for nobody.
    drops: bool,
    /// The request that ends with them.
    id: Option<u32>,
    /// It takes no more requests.
    is_closing: bool,
    /// What the client has said once for all it has heard.
    is_introduced: bool,
}

impl Expected {
    /// Whether it's the answer of a request that was assigned.
    fn is_work(self) -> bool {
        matches!(self, Expected::Answer | Expected::Awaited)
    }
}

impl Node {
    /// Whether the client waits for something of it.
    fn owes(&self) -> bool {
        self.unanswered > 0 || self.expected.iter().any(|&expected| expected != Expected::Nobody)
    }
}

/// A conversation at rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    /// Requests so far.
    pub requests: u64,
    /// What was said to all nodes, with a code for what it makes up for.
    pub said: Vec<(u8, Vec<u8>)>,
    /// What the parser knows of the client.
    pub parser: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    parser: Box<dyn Parser>,
    /// `None`: the first request's node has the whole connection.
    order: Option<Order>,
    answers: Option<fn() -> Box<dyn Answers>>,
    limits: Limits,
    state: State,
    beginning: Beginning,
    /// Nobody has had a byte of the request in hand.
    is_untold: bool,
    /// What the request for all nodes that begins makes up for.
    replaces: Replaces,
    left: Left,
    nodes: Vec<Node>,
    turns: VecDeque<Turn>,
    /// Where answers say whose they are: who is speaking, and what is somewhere.
    speaking: Option<Leg>,
    sent: BTreeMap<u32, Sent>,
    /// Who has a request that nobody waits for any more, which the caller hasn't heard yet.
    given_up: Option<Leg>,
    mistake: Option<Mistake>,
    /// The client hears that what it waits for won't be answered.
    has_closed: bool,
    /// What every node is told before all else.
    prologue: Prologue,
    requests: u64,
}

impl Session {
    /// A conversation that begins. `is_separate`: each request may go to another node, where the protocol has such.
    #[must_use]
    pub fn new(protocol: Protocol, limits: Limits, is_separate: bool) -> Session {
        let separable = protocol.separable().filter(|_| is_separate);
        Session {
            parser: protocol.parser(limits),
            order: separable.map(|separable| separable.order),
            answers: separable.map(|Separable { answers, .. }| *answers),
            limits,
            state: State::Between,
            beginning: Beginning::default(),
            is_untold: false,
            replaces: Replaces::Nothing,
            left: Left::default(),
            nodes: Vec::new(),
            turns: VecDeque::new(),
            speaking: None,
            sent: BTreeMap::new(),
            given_up: None,
            mistake: None,
            has_closed: false,
            prologue: Prologue::default(),
            requests: 0,
        }
    }

    /// The conversation of a client whose whole connection has gone to a node: to the first leg, which there is.
    #[must_use]
    pub fn passing(protocol: Protocol, limits: Limits) -> Session {
        let mut session = Session::new(protocol, limits, false);
        session.nodes.push(Node { is_open: true, ..Node::default() });
        let _ = session.assign(0);
        session
    }

    /// What there is to know of a client that waits for nothing, and has begun nothing, so that it can go on elsewhere, with other nodes; `None` while that isn't so.
    #[must_use]
    pub fn export(&self) -> Option<SessionState> {
        let is_at_rest = self.state == State::Between && self.is_idle() && self.mistake.is_none() && !self.has_closed;
        let (said, parser) = (self.prologue.export()?, self.parser.knows()?);
        (is_at_rest && self.given_up.is_none()).then_some(SessionState { requests: self.requests, said, parser })
    }

    /// The conversation of a client that has been at rest elsewhere. `None` for what no session exports.
    #[must_use]
    pub fn resume(protocol: Protocol, limits: Limits, is_separate: bool, state: &SessionState) -> Option<Session> {
        let mut session = Session::new(protocol, limits, is_separate);
        session.prologue = Prologue::import(&state.said)?;
        session.requests = state.requests;
        session.parser.learn(&state.parser);
        Some(session)
    }

    /// Requests so far; a connection that is passed on as a whole counts as one.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Whether all that comes is passed on unseen.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self.state, State::Passing(_))
    }

    /// Whether answers come in the order of the requests, each of which may go to another node.
    #[must_use]
    pub fn answers_in_order(&self) -> bool {
        self.order == Some(Order::Requests)
    }

    /// Whether a request has begun whose end hasn't come.
    #[must_use]
    pub fn is_in_request(&self) -> bool {
        matches!(self.state, State::Request(_))
    }

    /// Whether no request is in hand, and all are answered, to the last byte.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_waiting = !self.has_closed && self.nodes.iter().any(Node::owes);
        let is_hearing = self.speaking.is_some();
        matches!(self.state, State::Between | State::Ended) && self.turns.is_empty() && !is_waiting && !is_hearing
    }

    /// Whether a node owes something, or is being told something.
    #[must_use]
    pub fn is_needed(&self, leg: Leg) -> bool {
        let is_speaking = self.nodes.get(leg).is_some_and(|node| node.left.bytes > 0) || self.speaking == Some(leg);
        let is_asked = || self.nodes.get(leg).is_some_and(Node::owes);
        is_speaking
            || !self.has_closed && is_asked()
            || matches!(self.state, State::Request(Some(to)) | State::Passing(to) if to == leg)
    }

    /// Whether a node has said that it takes no more requests on this leg.
    #[must_use]
    pub fn is_closing(&self, leg: Leg) -> bool {
        self.nodes.get(leg).is_some_and(|node| node.is_closing)
    }

    /// Whether the client waits for this leg's answers and for nothing else, so that it may be told that none of them comes.
    fn is_all_there_is(&self, leg: Leg) -> bool {
        let owes = |of: Leg| self.nodes[of].owes();
        let is_telling_another = matches!(self.state, State::Request(to) if to != Some(leg));
        owes(leg) && !is_telling_another && (0..self.nodes.len()).all(|other| other == leg || !owes(other))
    }

    /// Whether the client wants no more.
    #[must_use]
    pub fn has_said_goodbye(&self) -> bool {
        self.state == State::Ended
    }

    /// What the client has said that isn't the protocol. It's told by words of our own.
    #[must_use]
    pub fn mistake(&self) -> Option<Mistake> {
        self.mistake
    }

    /// Requests that count as a leg's work: those that were assigned to it and aren't answered.
    #[must_use]
    pub fn owed(&self, leg: Leg) -> usize {
        if self.state == State::Passing(leg) {
            return 1;
        }
        let count = |node: &Node| node.expected.iter().filter(|expected| expected.is_work()).count();
        let given_up = usize::from(self.given_up == Some(leg));
        self.nodes.get(leg).map_or(0, |node| node.unanswered + count(node)) + given_up
    }

    /// A leg that had a request which the client has just given up: that is its work no more.
    pub fn given_up(&mut self) -> Option<Leg> {
        self.given_up.take()
    }

    /// The leg whose answer is next and may wait for what other clients do.
    #[must_use]
    pub fn awaited(&self) -> Option<Leg> {
        let Some(&Turn::Leg(leg)) = self.turns.front() else { return None };
        (self.nodes[leg].expected.front() == Some(&Expected::Awaited)).then_some(leg)
    }

    /// What is to be done with what the client has said and nobody has taken. `is_all`: it says no more.
    ///
    /// # Errors
    /// It can't go on, and there are no words for it.
    pub fn client_step<'i>(&mut self, input: &'i [u8], is_all: bool) -> Result<ClientStep<'i>, Mistake> {
        match self.next_step(input, is_all) {
            Err(mistake) if self.explain(mistake) => Ok(ClientStep::End),
            step => step,
        }
    }

    /// Has the client hear what is wrong once it has heard all that it's owed. False where there is no way to say so.
    fn explain(&mut self, mistake: Mistake) -> bool {
        let words = self.parser.explain(mistake);
        if words.is_empty() || self.order == Some(Order::Answers) {
            return false;
        }
        if let State::Request(Some(leg)) = self.state {
            self.give_up_last(leg);
        }
        self.say(words);
        self.state = State::Ended;
        self.mistake = Some(mistake);
        true
    }

    /// The last request can't be told to the end: its node will never answer it, unless it has begun to already.
    fn give_up_last(&mut self, leg: Leg) {
        let node = &mut self.nodes[leg];
        let is_speaking = node.left.bytes > 0 && node.expected.len() == 1;
        if self.beginning.is_answered && !is_speaking && node.expected.pop_back().is_some() {
            self.turns.pop_back();
            self.given_up = Some(leg);
        }
    }

    fn next_step<'i>(&mut self, input: &'i [u8], is_all: bool) -> Result<ClientStep<'i>, Mistake> {
        match self.state {
            State::Ended => Ok(ClientStep::End),
            State::Passing(leg) if !input.is_empty() => Ok(ClientStep::Forward(leg, input.len())),
            State::Passing(_) => Ok(ClientStep::NeedMore),
            State::Request(to) => {
                if self.left.bytes == 0 {
                    let piece = self.parser.go_on(input)?;
                    self.left = Left { bytes: piece.bytes, is_last: piece.is_last };
                    if piece.bytes == 0 {
                        return Ok(ClientStep::NeedMore);
                    }
                }
                let bytes = self.left.bytes.min(input.len());
                if let Some(leg) = to.filter(|&leg| self.is_untold && !self.nodes[leg].is_introduced)
                    && let Some((instead, words)) = self.parser.introduce(&input[..bytes])
                {
                    if instead > 0 {
                        return Ok(ClientStep::Instead(leg, instead, words));
                    }
                    self.nodes[leg].is_introduced = true;
                }
                Ok(to.map_or(ClientStep::Drop(bytes), |leg| ClientStep::Forward(leg, bytes)))
            }
            State::Between => self.begin(input, is_all),
        }
    }

    fn begin<'i>(&mut self, input: &'i [u8], is_all: bool) -> Result<ClientStep<'i>, Mistake> {
        if self.turns.len() >= REQUESTS_MAX || self.sent.len() >= REQUESTS_MAX {
            return Ok(ClientStep::Wait);
        }
        // Whether a head is too long must not depend on how much has come at once.
        let (input, is_all) = match input.get(..self.limits.head_bytes_max) {
            Some(head) => (head, is_all && head.len() == input.len()),
            None => (input, is_all),
        };
        let request = match self.parser.begin(input, is_all)? {
            Begin::Request(request) => request,
            Begin::Nothing(bytes) => return Ok(ClientStep::Drop(bytes)),
            Begin::NeedMore if input.len() < self.limits.head_bytes_max => return Ok(ClientStep::NeedMore),
            Begin::NeedMore => return Err(Mistake::TooLong),
        };
        let Request { scope, id, is_answered, has_followers, waits } = request;
        self.beginning = Beginning { id, is_answered, has_followers, waits };
        match scope {
            Scope::Content(facts) => Ok(ClientStep::Choose(Some(facts))),
            Scope::Gathered(gathered) => Ok(ClientStep::ChooseGathered(gathered)),
            Scope::Every(replaces) if self.order.is_some() => {
                self.replaces = replaces;
                self.begin_everywhere(input)
            }
            Scope::Any | Scope::Every(_) => Ok(ClientStep::Choose(None)),
            // What can't be done with several nodes can with the one that gets all of the connection.
            Scope::Nobody(_) if self.order.is_none() => Ok(ClientStep::Choose(None)),
            Scope::Follows(id) => {
                let to = self.sent.get(&id).map(|sent| sent.leg);
                if !has_followers && self.sent.get(&id).is_some_and(|sent| !sent.is_answered) {
                    self.sent.remove(&id);
                }
                self.state = State::Request(to);
                self.next_step(input, is_all)
            }
            Scope::Cancels(id) => {
                let sent = self.sent.remove(&id);
                // Another node may have answered in its place.
                if let Some(&Sent { leg, is_answered: true }) = sent.as_ref()
                    && self.nodes[leg].unanswered > 0
                {
                    self.nodes[leg].unanswered -= 1;
                    self.given_up = Some(leg);
                }
                self.state = State::Request(sent.map(|sent| sent.leg));
                self.next_step(input, is_all)
            }
            Scope::Nobody(words) => {
                self.requests += 1;
                self.say(words);
                self.state = State::Request(None);
                self.next_step(input, is_all)
            }
            Scope::Ends(words) => {
                self.say(words);
                self.state = State::Ended;
                Ok(ClientStep::End)
            }
        }
    }

    /// A request that is for all nodes must be there as a whole: it's kept.
    fn begin_everywhere(&mut self, input: &[u8]) -> Result<ClientStep<'static>, Mistake> {
        if !self.nodes.iter().any(|node| node.is_open) {
            return Ok(ClientStep::Open);
        }
        // As often as it needs more bytes it begins anew.
        let piece = self.parser.go_on(input)?;
        if !piece.is_last {
            return if input.len() < self.limits.head_bytes_max {
                Ok(ClientStep::NeedMore)
            } else {
                Err(Mistake::TooLong)
            };
        }
        if !self.prologue.has_room_for(&input[..piece.bytes], self.replaces) {
            return Err(Mistake::TooLong);
        }
        Ok(ClientStep::Everywhere(piece.bytes))
    }

    /// The bytes of a request for all nodes are with all of them.
    pub fn took_everywhere(&mut self, bytes: &[u8]) {
        self.requests += 1;
        let mut expected = Expected::ForAll(self.prologue.add(bytes, self.replaces));
        for (leg, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| node.is_open) {
            node.expected.push_back(expected);
            if std::mem::replace(&mut expected, Expected::Nobody) != Expected::Nobody {
                self.turns.push_back(Turn::Leg(leg));
            }
        }
    }

    /// A leg for one more node, and what that is to be told before all else; `None` when there are too many.
    pub fn open(&mut self) -> Option<(Leg, &[u8])> {
        let leg = match self.nodes.iter().position(|node| !node.is_open) {
            Some(leg) => leg,
            None if self.nodes.len() < LEGS_MAX => {
                self.nodes.push(Node::default());
                self.nodes.len() - 1
            }
            None => return None,
        };
        let expected = std::iter::repeat_n(Expected::Nobody, self.prologue.requests()).collect();
        self.nodes[leg] = Node { is_open: true, answers: self.answers.map(|make| make()), expected, ..Node::default() };
        Some((leg, self.prologue.text()))
    }

    /// A leg's node has gone. It must not be needed any more.
    pub fn close(&mut self, leg: Leg) {
        if let Some(node) = self.nodes.get_mut(leg) {
            *node = Node::default();
        }
    }

    /// The request that begins goes to this leg. Whether it's work for it until [`Session::gave`] says that it has been answered.
    pub fn assign(&mut self, leg: Leg) -> bool {
        let Beginning { id, is_answered, has_followers, waits } = self.beginning;
        self.requests += 1;
        match self.order {
            None => {
                self.state = State::Passing(leg);
                return true;
            }
            Some(Order::Requests) if is_answered => {
                self.turns.push_back(Turn::Leg(leg));
                self.nodes[leg].expected.push_back(if waits { Expected::Awaited } else { Expected::Answer });
            }
            Some(Order::Answers) => {
                self.nodes[leg].unanswered += usize::from(is_answered);
                if let Some(id) = id.filter(|_| is_answered || has_followers) {
                    self.sent.insert(id, Sent { leg, is_answered });
                }
            }
            Some(Order::Requests) => {}
        }
        self.state = State::Request(Some(leg));
        self.is_untold = true;
        is_answered
    }

    /// No node can have the request that begins. False when there is no way to say so.
    pub fn refuse(&mut self) -> bool {
        let words = self.parser.unavailable();
        if words.is_empty() || self.order != Some(Order::Requests) {
            return false;
        }
        self.requests += 1;
        self.say(words.to_vec());
        self.state = State::Request(None);
        true
    }

    /// Whether the client is to hear from this leg how what was said to all nodes was taken.
    #[must_use]
    pub fn speaks_for_all(&self, leg: Leg) -> bool {
        let is_for_all = |expected: &Expected| matches!(expected, Expected::ForAll(_));
        self.nodes.get(leg).is_some_and(|node| node.expected.iter().any(is_for_all))
    }

    /// No node can be found for what this leg was given, of which its node has heard nothing: each of it is answered so, and the leg is closed. False
    /// when there is no way to say so.
    pub fn refuse_all(&mut self, leg: Leg) -> bool {
        let words = self.parser.unavailable();
        let is_only = (0..self.nodes.len()).all(|other| other == leg || !self.nodes[other].is_open);
        if words.is_empty() || self.order != Some(Order::Requests) {
            return false;
        }
        let Some(node) = self.nodes.get(leg) else { return false };
        // What all nodes are to be told was said of this one alone, and before it of none: then no other is told either. Else some have heard it.
        if self.speaks_for_all(leg) {
            if !is_only || node.expected.contains(&Expected::Nobody) {
                return false;
            }
            self.prologue.clear();
        }
        for turn in self.turns.iter_mut().filter(|turn| matches!(turn, Turn::Leg(of) if *of == leg)) {
            *turn = Turn::Own(words.to_vec());
        }
        if self.state == State::Request(Some(leg)) {
            self.state = State::Request(None);
        }
        self.close(leg);
        true
    }

    fn say(&mut self, words: Vec<u8>) {
        if !words.is_empty() {
            self.turns.push_back(Turn::Own(words));
        }
    }

    /// Others have been passed on instead of so many of the client's bytes.
    pub fn took_instead(&mut self, leg: Leg, bytes: usize) {
        self.nodes[leg].is_introduced = true;
        self.took(bytes);
    }

    /// So many of the client's bytes have been passed on, or dropped.
    pub fn took(&mut self, bytes: usize) {
        self.is_untold &= bytes == 0;
        if let State::Request(_) = self.state {
            self.left.bytes = self.left.bytes.saturating_sub(bytes);
            if self.left.bytes == 0 && self.left.is_last {
                self.state = State::Between;
            }
        }
    }

    /// Words for the client that come next and that no node has said.
    pub fn own_words(&mut self) -> Option<Vec<u8>> {
        match self.turns.front() {
            Some(Turn::Own(_)) => match self.turns.pop_front() {
                Some(Turn::Own(words)) => Some(words),
                _ => None,
            },
            _ => None,
        }
    }

    /// What is to be done with what a node has said and nobody has taken.
    ///
    /// # Errors
    /// It can't go on.
    pub fn node_step(&mut self, leg: Leg, input: &[u8]) -> Result<NodeStep, Mistake> {
        if input.is_empty() {
            return Ok(NodeStep::NeedMore);
        }
        let (Some(order), Some(node)) = (self.order, self.nodes.get_mut(leg)) else {
            return Ok(NodeStep::Give(input.len()));
        };
        if node.left.bytes == 0 {
            let is_dropped = node.expected.front() == Some(&Expected::Nobody);
            match order {
                Order::Requests if node.expected.is_empty() => {
                    return Err(Mistake::Node("it speaks without being asked"));
                }
                Order::Requests
                    if !is_dropped && !matches!(self.turns.front(), Some(Turn::Leg(next)) if *next == leg) =>
                {
                    return Ok(NodeStep::NotItsTurn);
                }
                Order::Answers if self.speaking.is_some_and(|speaking| speaking != leg) => {
                    return Ok(NodeStep::NotItsTurn);
                }
                _ => {}
            }
            let Some(answers) = node.answers.as_mut() else { return Ok(NodeStep::Give(input.len())) };
            let answer = answers.go_on(input)?;
            if answer.piece.bytes == 0 {
                return Ok(NodeStep::NeedMore);
            }
            node.left = Left { bytes: answer.piece.bytes, is_last: answer.piece.is_last };
            node.drops = is_dropped || answer.is_aside;
            node.id = answer.id;
            node.is_closing |= answer.is_aside;
            if order == Order::Answers && !answer.is_aside {
                self.speaking = Some(leg);
            }
            if order == Order::Answers && answer.is_aside && self.is_all_there_is(leg) {
                self.nodes[leg].drops = false;
                self.speaking = Some(leg);
                self.has_closed = true;
                self.state = State::Ended;
            }
        }
        let node = &self.nodes[leg];
        let bytes = node.left.bytes.min(input.len());
        Ok(if node.drops { NodeStep::Drop(bytes) } else { NodeStep::Give(bytes) })
    }

    /// So many of a node's bytes have been given to the client, or dropped. Whether a request has been answered with them.
    pub fn gave(&mut self, leg: Leg, bytes: usize) -> bool {
        let (Some(order), Some(node)) = (self.order, self.nodes.get_mut(leg)) else { return false };
        node.left.bytes = node.left.bytes.saturating_sub(bytes);
        if node.left.bytes > 0 || !std::mem::take(&mut node.left.is_last) {
            return false;
        }
        match order {
            Order::Requests => {
                let expected = node.expected.pop_front();
                let refuses = node.answers.as_ref().is_some_and(|answers| answers.has_refused());
                if expected != Some(Expected::Nobody) {
                    self.turns.pop_front();
                }
                if let Some(Expected::ForAll(number)) = expected {
                    self.prologue.heard(number, refuses);
                }
                expected.is_some_and(Expected::is_work)
            }
            Order::Answers => {
                if self.speaking == Some(leg) {
                    self.speaking = None;
                }
                let id = node.id.take();
                let is_known = id.and_then(|id| self.sent.remove(&id)).is_some_and(|sent| sent.is_answered);
                node.unanswered -= usize::from(is_known && node.unanswered > 0);
                is_known
            }
        }
    }
}
