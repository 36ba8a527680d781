//! What the worker's operations cost: charged by the model's prices as they happen, corrected when the thread's clock is read. Who pays is
//! for the caller to say, what an operation is worth for `CostModel`.

use std::time::Duration;

use leat_logic::schedule::{Batch, Cost, CostModel, LeafId, Operation};

/// Charges between two readings of the thread's clock: it takes half a microsecond.
const MEASURE_NS: u64 = 1_000_000;

/// What an event costs in which nothing was done: a leaf with free ones would have all turns.
const EVENT_NS_MIN: u64 = 100;

/// Of the events that may be measured by themselves, one in so many is.
const EVENTS_EACH_SAMPLE: u32 = 32;

/// Parts of a nanosecond in the price of a byte.
const BYTE_PRICE_BITS: u32 = 20;

/// As whole numbers: each, and for each byte in parts of a nanosecond.
#[derive(Clone, Copy, Debug, Default)]
struct Price {
    each_ns: u64,
    byte: u64,
}

/// See the module.
pub(super) struct Meter {
    model: CostModel,
    batch: Batch,
    /// What the event that is measured by itself has done.
    sample: Batch,
    is_sampling: bool,
    events_to_sample: u32,
    prices: [Price; Operation::COUNT],
    /// What the event that is running has cost so far, by the prices.
    spent_ns: u64,
    /// The same, of what was measured as it happened.
    measured_ns: u64,
    /// All that was measured as it happened since the clock was read.
    measured_in_batch_ns: u64,
    /// The thread's clock when it was last read.
    read: Duration,
    /// What the event that is running has sent.
    sent_bytes: u64,
}

impl Meter {
    /// Of a thread that has used `read` so far.
    pub(super) fn new(read: Duration) -> Meter {
        let mut meter = Meter {
            model: CostModel::new(),
            batch: Batch::new(),
            sample: Batch::new(),
            is_sampling: false,
            events_to_sample: 0,
            prices: [Price::default(); Operation::COUNT],
            spent_ns: 0,
            measured_ns: 0,
            measured_in_batch_ns: 0,
            read,
            sent_bytes: 0,
        };
        meter.take_prices();
        meter
    }

    fn take_prices(&mut self) {
        for &operation in Operation::ALL {
            let (each_ns, kib_ns) = self.model.price(operation);
            let byte = (kib_ns * f64::from(1_u32 << BYTE_PRICE_BITS) / 1024.0) as u64;
            self.prices[operation as usize] = Price { each_ns: each_ns as u64, byte };
        }
    }

    /// What an operation on `bytes` bytes costs by now.
    #[inline]
    pub(super) fn price(&self, operation: Operation, bytes: u64) -> u64 {
        let price = self.prices[operation as usize];
        price.each_ns + (bytes.saturating_mul(price.byte) >> BYTE_PRICE_BITS)
    }

    /// The event that is running has done this.
    #[inline]
    pub(super) fn did(&mut self, operation: Operation, bytes: u64) {
        if self.is_sampling {
            self.sample.count(operation, bytes);
        } else {
            self.batch.count(operation, bytes);
            self.spent_ns += self.price(operation, bytes);
        }
        if matches!(operation, Operation::Send | Operation::SendFile | Operation::Refuse) {
            self.sent_bytes += bytes;
        }
    }

    /// The bytes that the event that has run sent.
    #[inline]
    pub(super) fn take_sent_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.sent_bytes)
    }

    /// The event that is running has used so much processor time, by the clock.
    pub(super) fn measured(&mut self, used: Duration) {
        let used_ns = used.as_nanos() as u64;
        self.measured_ns += used_ns;
        self.measured_in_batch_ns += used_ns;
    }

    /// As [`Meter::did`], where that was measured.
    pub(super) fn took(&mut self, operation: Operation, used: Duration) {
        let mut sample = Batch::new();
        sample.count(operation, 0);
        self.model.learn(&sample, used.as_nanos() as u64);
        self.measured(used);
    }

    /// Whether the event that is about to run, all of whose work is over when it returns, is measured by itself: where events of several leaves come
    /// in the same proportion all the time, whole batches can't tell what each of them costs.
    pub(super) fn begin_sample(&mut self) -> bool {
        self.events_to_sample = self.events_to_sample.checked_sub(1).unwrap_or(EVENTS_EACH_SAMPLE - 1);
        self.is_sampling = self.events_to_sample == 0;
        self.is_sampling
    }

    /// That event has used so much processor time, and is charged that.
    pub(super) fn end_sample(&mut self, used: Duration) {
        self.is_sampling = false;
        let by_price_ns = (used.as_nanos() as u64).saturating_sub(self.measured_ns);
        self.model.learn(&self.sample, by_price_ns);
        self.sample.clear();
        self.measured(Duration::from_nanos(by_price_ns));
    }

    /// What the event that is running has cost so far, but for one that is measured by itself.
    pub(super) fn so_far(&self) -> Cost {
        Cost::from_ns(self.spent_ns + self.measured_ns)
    }

    /// What the event that has run cost in all, for `leaf` to pay.
    #[inline]
    pub(super) fn charge(&mut self, leaf: LeafId) -> Cost {
        let measured_ns = std::mem::take(&mut self.measured_ns);
        let spent_ns = std::mem::take(&mut self.spent_ns).max(EVENT_NS_MIN.saturating_sub(measured_ns));
        self.batch.charge(leaf, Cost::from_ns(spent_ns));
        Cost::from_ns(spent_ns + measured_ns)
    }

    /// Something has been done for `leaf` by no event of its own; what it cost. Nothing while an event is measured: it's in that.
    pub(super) fn charge_apart(&mut self, leaf: LeafId, operation: Operation, bytes: u64) -> Cost {
        if self.is_sampling {
            self.sample.count(operation, bytes);
            return Cost::from_ns(0);
        }
        let cost = Cost::from_ns(self.price(operation, bytes));
        self.batch.count(operation, bytes);
        self.batch.charge(leaf, cost);
        cost
    }

    /// `to` pays what `from` was charged: so much of an error as is found for it, too.
    pub(super) fn transfer(&mut self, from: LeafId, to: LeafId, ns: u64) {
        self.batch.transfer(from, to, ns);
    }

    /// Something has been done for nobody in particular.
    #[inline]
    pub(super) fn overhead(&mut self, operation: Operation) {
        self.batch.count(operation, 0);
    }

    /// Whether enough has been charged, or measured, for the clock to be read: beside what computes, those who ask for little mustn't pay for what was
    /// missed in all the time until they have used as much.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.batch.charged_ns() + self.measured_in_batch_ns >= MEASURE_NS
    }

    /// Learns from the thread's clock what the operations since it was last read have cost; who has paid how much too little.
    pub(super) fn measure(&mut self, read: Duration, mut correct: impl FnMut(LeafId, i64)) {
        let used = read.saturating_sub(self.read).as_nanos() as u64;
        self.read = read;
        let by_price_ns = used.saturating_sub(std::mem::take(&mut self.measured_in_batch_ns));
        let error_ns = self.model.observe(&self.batch, by_price_ns);
        for (leaf, delta_ns) in self.batch.corrections(error_ns) {
            correct(leaf, delta_ns);
        }
        self.batch.clear();
        self.take_prices();
    }

    /// Forgets who was charged: the leaves are no more.
    pub(super) fn forget(&mut self, read: Duration) {
        self.read = read;
        self.measured_in_batch_ns = 0;
        self.batch.clear();
    }

    pub(super) fn model(&self) -> &CostModel {
        &self.model
    }
}

#[cfg(test)]
mod tests {
    use leat_logic::schedule::{PolicyKind, Share, Tree};

    use super::*;

    #[test]
    fn in_the_end_everything_that_was_measured_is_charged() {
        let mut tree: Tree<()> = Tree::new(PolicyKind::WeightedFair);
        let leaf = tree.add_leaf(tree.root(), Share::default()).unwrap();
        let mut meter = Meter::new(Duration::from_secs(5));
        let (mut charged_ns, mut events) = (0_i64, 0);
        while !meter.is_due() {
            meter.overhead(Operation::Turn);
            meter.did(Operation::Receive, 300);
            meter.did(Operation::Serve, 0);
            charged_ns += meter.charge(leaf).ns as i64;
            charged_ns += meter.charge_apart(leaf, Operation::Close, 0).ns as i64;
            events += 1;
        }
        meter.measured(Duration::from_nanos(70_000));
        charged_ns += meter.charge(leaf).ns as i64;
        let used = Duration::from_nanos(9_000 * events + 70_000);
        meter.measure(Duration::from_secs(5) + used, |_, delta_ns| charged_ns += delta_ns);
        assert_eq!(charged_ns, used.as_nanos() as i64);
        assert!(!meter.is_due());
    }

    #[test]
    fn what_an_event_has_cost_so_far_is_what_it_is_charged() {
        let mut tree: Tree<()> = Tree::new(PolicyKind::WeightedFair);
        let leaf = tree.add_leaf(tree.root(), Share::default()).unwrap();
        let mut meter = Meter::new(Duration::ZERO);
        assert_eq!(meter.so_far().ns, 0);
        meter.did(Operation::Send, 1 << 16);
        meter.measured(Duration::from_nanos(5_000));
        let so_far = meter.so_far();
        assert!(so_far.ns > meter.price(Operation::Send, 1 << 16));
        assert_eq!(meter.charge(leaf), so_far);
        assert_eq!(meter.so_far().ns, 0, "the next event's");
    }

    #[test]
    fn no_event_is_free() {
        let mut tree: Tree<()> = Tree::new(PolicyKind::WeightedFair);
        let leaf = tree.add_leaf(tree.root(), Share::default()).unwrap();
        let mut meter = Meter::new(Duration::ZERO);
        assert_eq!(meter.charge(leaf).ns, EVENT_NS_MIN);
        meter.measured(Duration::from_nanos(1));
        assert_eq!(meter.charge(leaf).ns, EVENT_NS_MIN);
        while !meter.is_due() {
            meter.charge(leaf);
        }
    }

    #[test]
    fn events_of_which_some_are_measured_by_themselves_are_charged_what_they_cost() {
        const SENT_BYTES: u64 = 64 << 10;
        let mut tree: Tree<()> = Tree::new(PolicyKind::WeightedFair);
        let leaves = [0, 1].map(|_| tree.add_leaf(tree.root(), Share::default()).unwrap());
        let (mut meter, mut clock, mut charged_ns) = (Meter::new(Duration::ZERO), Duration::ZERO, [0_i64; 2]);
        for event in 0..100_000 {
            // As much of each all the time: one takes 20 us and the other 40, of which the prices know nothing.
            for (place, operation) in [Operation::Send, Operation::SendFile].into_iter().enumerate() {
                let is_sampled = place == 1 && meter.begin_sample();
                let used = Duration::from_micros(20 << place);
                clock += used;
                meter.did(operation, SENT_BYTES);
                if is_sampled {
                    meter.end_sample(used);
                }
                let charged = meter.charge(leaves[place]).ns as i64;
                charged_ns[place] += if event >= 50_000 { charged } else { 0 };
            }
            if meter.is_due() {
                let place = |leaf| leaves.iter().position(|&it| it == leaf).unwrap();
                meter.measure(clock, |leaf, ns| charged_ns[place(leaf)] += if event >= 50_000 { ns } else { 0 });
            }
        }
        let [one, other] = charged_ns.map(|ns| ns as f64);
        assert!((other / one - 2.0).abs() < 0.1, "{}", other / one);
    }

    #[test]
    fn what_is_measured_by_itself_is_charged_once_and_takes_nothing_with_it() {
        let mut tree: Tree<()> = Tree::new(PolicyKind::WeightedFair);
        let leaf = tree.add_leaf(tree.root(), Share::default()).unwrap();
        let mut meter = Meter::new(Duration::ZERO);
        while !meter.begin_sample() {}
        meter.end_sample(Duration::ZERO);
        meter.did(Operation::Refuse, 0);
        let before_ns = meter.price(Operation::Refuse, 0);
        (0..EVENTS_EACH_SAMPLE).for_each(|_| _ = meter.begin_sample());
        assert!(meter.is_sampling);
        meter.did(Operation::SendFile, 1_000);
        let apart = meter.charge_apart(leaf, Operation::Close, 0);
        meter.end_sample(Duration::from_micros(30));
        let charged = meter.charge(leaf);
        assert_eq!((charged.ns, apart.ns), (30_000 + before_ns, 0), "what was done before is still to be paid");
        meter.measure(Duration::from_micros(30), |_, delta_ns| assert_eq!(delta_ns, -(before_ns as i64)));
    }

    #[test]
    fn prices_are_the_models() {
        let meter = Meter::new(Duration::ZERO);
        for &operation in Operation::ALL {
            for bytes in [0, 100, 4_096, 10_000_000] {
                let (exact, price) = (meter.model().predict(operation, bytes).ns, meter.price(operation, bytes));
                assert!(exact.abs_diff(price) <= 2 + exact / 1_000, "{operation:?} {bytes}: {price} for {exact}");
            }
        }
    }
}
