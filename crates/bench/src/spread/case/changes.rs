//! A front dies, a node is added, a front is added that remembers nothing, all under load on connections that stay: which of them are cut?

use std::io;
use std::thread;
use std::time::Duration;

use leat::ctl::Command;

use crate::experiment::{Case, Samples};
use crate::load::Outcome;
use crate::result::Mark;
use crate::spread::bench::{ADDED, Bench, FRONTS, LEAT, vip};

const FAILED: &str = "failed";
const CONNECTIONS: usize = 200;
/// From one change to the next.
const PAUSE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(6);

pub(super) struct Changes {
    pub(super) name: &'static str,
    /// The nodes' servers are nginx.
    pub(super) is_foreign: bool,
}

impl Case<Bench> for Changes {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        match self.is_foreign {
            false => "a front killed, a node added, a front added, under load on connections that stay",
            true => "the same, where the nodes' servers are nginx",
        }
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let nginx = self.is_foreign.then(|| bench.with_nginx()).transpose()?;
        for round in 0..bench.options.rounds {
            let outcome = under_load(nginx.as_ref().unwrap_or(bench))?;
            let failed = outcome.failed() - outcome.left_over();
            bench.records.record((self.name, "", round), LEAT, FAILED, failed as f64);
            bench.records.record((self.name, "", round), LEAT, "answered", outcome.answered as f64);
            if failed > 0 {
                bench.records.note(self.name, &format!("round {round}: {:?}", outcome.failures));
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let failures = samples.values(self.name, "", LEAT, FAILED);
        let answered: f64 = samples.values(self.name, "", LEAT, "answered").iter().sum();
        let value = (!failures.is_empty()).then(|| failures.iter().sum());
        let mark = format!("of {answered} requests none failed, in {} rounds", failures.len());
        vec![Mark::at_most((self.name.to_owned(), LEAT), &mark, value, Some(0.0), "", String::new())]
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![("answered", "answered", 0), (FAILED, "failed", 0)]
    }
}

fn under_load(bench: &Bench) -> io::Result<Outcome> {
    let added = || ADDED.to_owned();
    for (front, _) in FRONTS {
        bench.tell(front, &Command::Drain { node: added() })?;
    }
    let (plan, mix) = (bench.saturate(vip(), CONNECTIONS, WINDOW), bench.requests(false));
    thread::scope(|scope| {
        let load = scope.spawn(|| bench.measure(LEAT, &plan, &mix));
        let mut child = None;
        let changes = (|| {
            let [first, second] = FRONTS;
            thread::sleep(PAUSE);
            bench.kill_front(first.0)?;
            bench.route_to(&[second])?;
            thread::sleep(PAUSE);
            bench.tell(second.0, &Command::Resume { node: added() })?;
            thread::sleep(PAUSE);
            child = Some(bench.start_front(first.0)?);
            bench.route_to(&FRONTS)
        })();
        let outcome = load.join().map_err(|_| io::Error::other("the thread of the load panicked"))?;
        if let Some(mut child) = child {
            // It ends with the next round's first change, or with the lab.
            thread::spawn(move || child.wait());
        }
        changes.and(outcome.map(|(outcome, _)| outcome))
    })
}
