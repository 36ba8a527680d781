//! Figure 7 and table 2 of the paper: where the time goes, stage by stage, by leat's own counters; and what a connection that lasts
//! for few requests costs.

use std::io;

use super::Measured;
use crate::experiment::plot::{Plot, Scale};
use crate::experiment::{Case, Records, Samples};
use crate::result::{Figure, Mark};
use crate::shares::bench::{Bench, FILE, SMALL_FILE, Trial};
use crate::shares::leat::{Setup, SharedSite};
use crate::workload::mix::CLOSE;

const NAME: &str = "stages";
const REQUESTS_PER_CONNECTION: [u32; 6] = [1, 2, 3, 5, 10, 20];
const CONNECTIONS: usize = 64;
/// As leat's counters call them.
const STAGES: [&str; 4] = ["receive", "serve", "compute", "transmit"];
const FILES: [&str; 2] = [SMALL_FILE, FILE];
/// Requests, whatever the stage.
const ALL: &str = "all";
/// Work of connections whose site isn't known yet: accepting, and heads that come.
const UNKNOWN: &str = "(unknown)";

pub(super) struct Stages;

fn point(file: &str, requests: u32) -> String {
    format!("{file}, {requests} requests a connection")
}

impl Case<Bench> for Stages {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "CPU of each stage, by requests for each connection (figure 7, table 2)"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let started = bench.start(&Setup::of_sites(vec![SharedSite::of_weight("a", 100)]))?;
        for file in FILES {
            for requests in REQUESTS_PER_CONNECTION {
                let fields = if requests == 1 { CLOSE } else { "" };
                let mut plan = bench.saturate(CONNECTIONS);
                plan.requests_per_connection = Some(requests);
                let clients = [(plan, bench.file("a", file, fields))];
                let point = point(file, requests);
                let keep = |records: &mut Records, round: u32, trial: &Trial| {
                    let at = (NAME, point.as_str(), round);
                    records.record(at, ALL, "cpu_us", trial.cpu_us_per_request());
                    records.record(at, ALL, "answered_per_s", trial.answered_per_s());
                    let cores = |site, stage| trial.counters.as_ref()?.of(site, Some(stage), "cores_used");
                    let answered_per_s = trial.answered_per_s();
                    for stage in STAGES {
                        for (site, subject) in [("a", stage.to_owned()), (UNKNOWN, format!("{stage}, site not known"))]
                        {
                            if let Some(cores) = cores(site, stage).filter(|&cores| cores > 0.0) {
                                records.record(at, &subject, "cpu_us", cores * 1e6 / answered_per_s);
                            }
                        }
                    }
                    [trial.cpu_us_per_request()]
                };
                bench.until_sure(&started, &clients, 0.02, keep)?;
            }
        }
        Ok(())
    }

    fn marks(&self, _samples: &Samples) -> Vec<Mark> {
        Vec::new()
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let points = samples.points(NAME);
        let told = points.iter().flat_map(|point| {
            let of = move |subject: String| {
                let measured = Measured { samples, case: NAME, point, subject: &subject, metric: "cpu_us" };
                measured.told("CPU a request", "us")
            };
            samples.servers(NAME).into_iter().filter_map(of)
        });
        told.collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![("cpu_us", "CPU us a request", 2), ("answered_per_s", "answered/s", 0)]
    }

    fn plots(&self, samples: &Samples) -> Vec<Plot> {
        let plot = |(file, name): (&str, &'static str)| {
            let series = samples.servers(NAME).into_iter().map(|subject| {
                let points = REQUESTS_PER_CONNECTION.into_iter().filter_map(|requests| {
                    let cpu_us = samples.median(NAME, &point(file, requests), &subject, "cpu_us")?;
                    Some((f64::from(requests), cpu_us))
                });
                let points = points.collect();
                (subject, points)
            });
            let title = format!("CPU us a request, {file}");
            Plot {
                name,
                title,
                x: ("requests for each connection", Scale::Linear),
                y: Scale::Linear,
                series: series.collect(),
            }
        };
        FILES.into_iter().zip(["stages-small", "stages-64-kb"]).map(plot).collect()
    }
}
