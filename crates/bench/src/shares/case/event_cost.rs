//! Figure 11 of the paper: what an event costs in the tree, by the number of leaves. Measured by the tree's own benchmark.

use std::io;

use super::Measured;
use crate::experiment::plot::{Plot, Scale};
use crate::experiment::samples::median;
use crate::experiment::{Case, Samples};
use crate::result::{Figure, Mark};
use crate::shares::bench::Bench;
use crate::shares::tree_bench::TreeBench;

const NAME: &str = "event-cost";
/// The benchmark's names: the paper's worst case, and what a worker does.
const WORST: &str = "new_first";
const USUAL: &str = "stages";
const POLICIES: [&str; 3] = ["round_robin", "weighted_fair", "strict_priority"];
const RATIO_MAX: f64 = 1.2;
const NS_MAX: f64 = 100.0;
const NS_MAX_LEAVES: &str = "64";

pub(super) struct EventCost;

fn at<'a>(samples: &'a Samples, point: &'a str, metric: &'static str, policy: &'a str) -> Measured<'a> {
    Measured { samples, case: NAME, point, subject: policy, metric }
}

impl Case<Bench> for EventCost {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "push, pop and charge of an event, 1 to 4,096 leaves, by policy (figure 11)"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let tree = TreeBench::build()?;
        // A process for each round: where its trees lie in memory, and so in the caches, is chance.
        for round in 0..bench.options.rounds.max(1) {
            for (case, metric) in [(WORST, "worst_ns"), (USUAL, "usual_ns")] {
                for (leaves, policy, ns) in tree.event_ns(case)? {
                    if POLICIES.contains(&policy.as_str()) {
                        bench.records.record((NAME, &leaves, round), &policy, metric, ns);
                    }
                }
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mut marks = Vec::new();
        let ratio = |point: &String| {
            let of = |policy| at(samples, point, "worst_ns", policy).values();
            let fair = of("weighted_fair").into_iter();
            let pairs = fair.zip(of("round_robin")).map(|(fair, plain)| fair / plain);
            Some((point.clone(), median(pairs.collect())?))
        };
        let ratios = samples.points(NAME).iter().filter_map(ratio).collect::<Vec<_>>();
        let worst = ratios.into_iter().max_by(|left, right| left.1.total_cmp(&right.1));
        let (point, value) = worst.map_or((String::new(), None), |(point, ratio)| (point, Some(ratio)));
        let fair = at(samples, &point, "worst_ns", "weighted_fair");
        marks.push(fair.at_most(
            value,
            Some(RATIO_MAX),
            "x",
            "an event's cost beside round robin's, at its worst",
            String::new(),
        ));
        let fair = at(samples, NS_MAX_LEAVES, "worst_ns", "weighted_fair");
        marks.push(fair.at_most(fair.median(), Some(NS_MAX), "ns", "an event with 64 leaves", String::new()));
        marks
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let of = |policy| at(samples, NS_MAX_LEAVES, "usual_ns", policy).told("an event alone, below a stage", "ns");
        POLICIES.into_iter().filter_map(of).collect()
    }

    fn caption(&self, point: &str, _samples: &Samples) -> String {
        format!("{point} leaves")
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![("worst_ns", "worst case, ns", 1), ("usual_ns", "alone, below a stage, ns", 1)]
    }

    fn plots(&self, samples: &Samples) -> Vec<Plot> {
        let series = POLICIES.map(|policy| {
            let points = samples.points(NAME).into_iter().filter_map(|point| {
                let ns = at(samples, &point, "worst_ns", policy).median()?;
                Some((point.parse().ok()?, ns))
            });
            (policy.to_owned(), points.collect())
        });
        let title = "push, pop and charge of an event, ns: all leaves empty, the new one first".to_owned();
        let x = ("leaves (log)", Scale::Logarithmic);
        vec![Plot { name: "event-cost", title, x, y: Scale::Linear, series: series.into() }]
    }
}
