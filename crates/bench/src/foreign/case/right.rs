//! Whether every reply of every server is right, byte for byte, by way of a dispatcher.

use std::io;
use std::time::Duration;

use crate::experiment::{Case, Samples};
use crate::foreign::bench::{Bench, Meters, SIZES, vip};
use crate::lab::cost::Meter;
use crate::load::{Failure, Plan};
use crate::result::Mark;
use crate::server::Server;
use crate::workload::mix::Mix;

const WINDOW: Duration = Duration::from_secs(2);
/// To each server, with as many requests to a connection.
const WINDOWS_MAX: u32 = 15;

pub(super) struct Right {
    pub(super) name: &'static str,
    pub(super) has_loss: bool,
}

impl Case<Bench> for Right {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        if self.has_loss {
            "every reply is right, byte for byte, where one packet in a hundred is lost"
        } else {
            "every reply is right, byte for byte"
        }
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        if self.has_loss {
            bench.lose_packets()?;
        }
        for server in Bench::servers() {
            if let Err(error) = self.try_server(bench, server.as_ref()) {
                bench.records.note(self.name, &format!("{}: {error}", server.name()));
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mark = |server: String| {
            let of = |metric| samples.values(self.name, "", &server, metric).iter().sum::<f64>();
            let answered = of("answered");
            Mark {
                case: self.name.to_owned(),
                mark: format!("of {answered:.0} requests none wrong, reset or unanswered"),
                value: Some(of("failed")),
                limit: Some(0.0),
                unit: String::new(),
                met: answered > 0.0 && of("failed") == 0.0,
                note: String::new(),
                subject: server,
            }
        };
        samples.servers(self.name).into_iter().map(mark).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("answered", "answered in 2 s", 0),
            ("compared", "bodies compared", 0),
            ("born", "connections begun at it", 0),
            ("failed", "failed", 0),
            ("closed_early", "of them reset or closed early", 0),
        ]
    }
}

impl Right {
    /// Half of the requests one to a connection, half ten; every size equally often.
    fn try_server(&self, bench: &mut Bench, server: &dyn Server) -> io::Result<()> {
        let _placed = bench.place(server, 2)?;
        let files = SIZES.map(|(_, file, _)| file);
        // What is lost makes it slow.
        let requests = bench.options.requests / if self.has_loss { 20 } else { 2 };
        let mut round = 0;
        for requests_per_connection in [1, 10] {
            let mix = bench.requests(&files, requests_per_connection == 1);
            let mut answered = 0;
            for _ in 0..WINDOWS_MAX {
                if answered >= requests {
                    break;
                }
                answered += self.window(bench, server.name(), round, (requests_per_connection, &mix))?;
                round += 1;
            }
        }
        Ok(())
    }

    /// Returns how many were answered.
    fn window(&self, bench: &mut Bench, server: &str, round: u32, (each, mix): (u32, &Mix)) -> io::Result<u64> {
        let before = bench.births()?;
        let plan = Plan { warm_up: Duration::ZERO, window: WINDOW, ..bench.saturate(vip(), each) };
        let mut meters = Meters { server: Meter::new(Vec::new()), leat: Meter::new(Vec::new()) };
        let outcome = bench.measure(&plan, mix, &mut meters)?;
        let born = bench.births()?.saturating_sub(before);
        let closed_early = outcome.failures.get(&Failure::ClosedEarly).copied().unwrap_or_default();
        let found = [
            ("answered", outcome.answered),
            ("compared", outcome.verified),
            ("born", born),
            ("failed", outcome.failed()),
            ("closed_early", closed_early),
        ];
        for (metric, value) in found {
            bench.records.record((self.name, "", round), server, metric, value as f64);
        }
        if outcome.failed() > 0 {
            bench.records.note(self.name, &format!("{server}: {:?}", outcome.failures));
        }
        Ok(outcome.answered)
    }
}
