//! Whether every reply of every server is right, byte for byte, by way of a dispatcher.

use std::io;
use std::time::{Duration, Instant};

use crate::experiment::{Case, Samples};
use crate::foreign::bench::{Bench, LARGE, Meters, SIZES, vip};
use crate::lab::cost::Meter;
use crate::load::{Failure, Plan};
use crate::result::Mark;
use crate::server::Server;
use crate::workload::mix::Mix;

const WINDOW_S: u64 = 5;
/// A reply of 100 MB that is under way at the end of a window ends in this time, or counts as failed.
const DRAIN: Duration = Duration::from_secs(60);
/// What is lost makes it slow: more connections ask, which mostly wait.
const CONNECTIONS_WITH_LOSS: usize = 256;

pub(super) struct Right {
    pub(super) name: &'static str,
    pub(super) is_large: bool,
    pub(super) has_loss: bool,
}

impl Case<Bench> for Right {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        match (self.is_large, self.has_loss) {
            (false, false) => "every reply is right, byte for byte",
            (false, true) => "every reply is right, byte for byte, where one packet in a hundred is lost",
            (true, false) => "every reply of 1 to 100 MB is right, byte for byte",
            (true, true) => "every reply of 1 to 100 MB is right, byte for byte, where one packet in a hundred is lost",
        }
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        if self.has_loss {
            bench.lose_packets()?;
        }
        for server in bench.wanted_servers() {
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
            ("answered", "answered in 5 s", 0),
            ("compared", "bodies compared", 0),
            ("mb", "MB", 0),
            ("born", "connections begun at it", 0),
            ("failed", "failed", 0),
            ("closed_early", "of them reset or closed early", 0),
        ]
    }
}

impl Right {
    /// Half of the requests one to a connection, half ten.
    fn try_server(&self, bench: &mut Bench, server: &dyn Server) -> io::Result<()> {
        let _placed = bench.place(server, 2)?;
        // Every small size equally often; of the large ones as many bytes of each.
        let (files, all): (Vec<_>, u64) = if self.is_large {
            (LARGE.iter().map(|&(file, bytes)| (file, 1.0 / bytes as f64)).collect(), bench.options.large)
        } else {
            (SIZES.iter().map(|&(_, file, _)| (file, 1.0)).collect(), bench.options.requests)
        };
        let requests = all / 2;
        let limit = Duration::from_secs(bench.options.limit_s) / 2;
        let mut round = 0;
        for requests_per_connection in [1, 10] {
            let mix = bench.weighted(&files, requests_per_connection == 1);
            let (began, mut answered) = (Instant::now(), 0);
            while answered < requests && began.elapsed() < limit {
                answered += self.window(bench, server.name(), round, (requests_per_connection, &mix))?;
                round += 1;
                let (name, seconds) = (server.name(), began.elapsed().as_secs());
                eprintln!("  {name}, {requests_per_connection} a connection: {answered} of {requests} in {seconds} s");
            }
        }
        Ok(())
    }

    /// Returns how many were answered.
    fn window(&self, bench: &mut Bench, server: &str, round: u32, (each, mix): (u32, &Mix)) -> io::Result<u64> {
        let before = bench.births()?;
        let plan = bench.saturate(vip(), each);
        let connections = if self.has_loss { CONNECTIONS_WITH_LOSS } else { plan.connections };
        let window = Duration::from_secs(WINDOW_S);
        let plan = Plan { connections, warm_up: Duration::ZERO, window, drain: DRAIN, ..plan };
        let mut meters = Meters { server: Meter::new(Vec::new()), leat: Meter::new(Vec::new()) };
        let outcome = bench.measure(&plan, mix, &mut meters)?;
        let born = bench.births()?.saturating_sub(before);
        let closed_early = outcome.failures.get(&Failure::ClosedEarly).copied().unwrap_or_default();
        let found = [
            ("answered", outcome.answered as f64),
            ("compared", outcome.verified as f64),
            ("mb", outcome.received_bytes as f64 / 1e6),
            ("born", born as f64),
            ("failed", outcome.failed() as f64),
            ("closed_early", closed_early as f64),
        ];
        for (metric, value) in found {
            bench.records.record((self.name, "", round), server, metric, value);
        }
        if outcome.failed() > 0 {
            eprintln!("  {server}: {:?}", outcome.failures);
            bench.records.note(self.name, &format!("{server}: {:?}", outcome.failures));
        }
        Ok(outcome.answered)
    }
}
