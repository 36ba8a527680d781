//! Bound by processors: what each machine spends on a request that its cluster answers; the busiest one sets what the cluster could answer. Beside as
//! many separate servers, and beside what the paper published.

use std::io;

use super::super::bench::{Bench, SIZES, Size};
use super::super::paper;
use super::super::setup::{Kind, Setup};
use super::{COLUMNS, at_most, lost_percent, measure_in_turns, point, saturate, with_setups};
use crate::experiment::samples::median;
use crate::experiment::{Case, Plot, Samples, plot::Scale};
use crate::result::{Figure, Mark};

const NAME: &str = "cpu";
/// Nothing is delegated: a server on its own.
const NONE: Setup = Setup::new(Kind::Kept, 1, 1);
/// Those of the same machines are up together and measured in turns.
const TOGETHER: usize = 3;
const SETUPS: [Setup; 9] = [
    NONE,
    Setup::new(Kind::Full(10), 1, 1),
    Setup::new(Kind::Partial, 1, 1),
    Setup::new(Kind::Kept, 1, 3),
    Setup::new(Kind::Full(10), 1, 3),
    Setup::new(Kind::Partial, 1, 3),
    Setup::new(Kind::Kept, 2, 1),
    Setup::new(Kind::Full(10), 2, 1),
    Setup::new(Kind::Partial, 2, 1),
];
const LOST_PERCENT: f64 = 2.0;

pub(super) struct Cpu;

impl Case<Bench> for Cpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "processor time of each machine for a request, one request a connection; the busiest machine sets what a cluster can answer"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        for round in 0..bench.options.run.rounds {
            for setups in SETUPS.chunks(TOGETHER) {
                with_setups(bench, NAME, setups, |bench, clusters| {
                    for size in &SIZES {
                        let load = saturate(bench, if size.bytes > 1 << 17 { 12 } else { 32 }, Some(1));
                        measure_in_turns(bench, (NAME, &point(size), round), (setups, clusters), (size, &load))?;
                    }
                    Ok(())
                });
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let partial = SETUPS.iter().filter(|setup| setup.kind == Kind::Partial);
        let pairs = partial.flat_map(|setup| SIZES.iter().map(move |size| (setup, size)));
        let mark = |(setup, size): (&Setup, &Size)| {
            // Of the same servers: how many processors are busy is part of what a request takes on each.
            let none = Setup { kind: Kind::Kept, ..*setup };
            let turns = per_s_by_turns(samples, setup, size).into_iter().zip(per_s_by_turns(samples, &none, size));
            let lost = median(turns.filter_map(|(per_s, none)| lost_percent(Some(per_s), Some(none))).collect());
            let text = format!("{} falls short of no delegation", setup.name());
            at_most((NAME, size.name), &text, lost, LOST_PERCENT, "%", samples.failures(NAME, size.name, &setup.name()))
        };
        pairs.map(mark).collect()
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let pairs = SETUPS.iter().flat_map(|setup| SIZES.iter().map(move |size| (setup, size)));
        let figure = |(setup, size): (&Setup, &Size)| {
            let published = paper::RELATIVE.iter().find(|known| known.setup == setup.name() && known.size == size.name);
            let paper =
                published.map_or(String::new(), |known| format!("; the paper's: {:.1}", known.relative * 100.0));
            Some(Figure {
                case: format!("{NAME} {}", size.name),
                subject: setup.name(),
                figure: format!("of what as many separate servers could answer, bound by processors{paper}"),
                value: relative(samples, setup, size)? * 100.0,
                unit: "%".to_owned(),
            })
        };
        pairs.filter(|(setup, _)| setup.kind != Kind::Kept).filter_map(figure).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        COLUMNS.to_vec()
    }

    fn plots(&self, samples: &Samples) -> Vec<Plot> {
        let line = |setup: &Setup| {
            let place = |size: &Size| Some((size.bytes as f64 / 1024.0, relative(samples, setup, size)? * 100.0));
            (setup.name(), SIZES.iter().filter_map(place).collect())
        };
        let published = |setup: &Setup| {
            let of_setup = paper::RELATIVE.iter().filter(|known| known.setup == setup.name());
            let kilobytes = |name: &str| name.strip_suffix(" KB").and_then(|number| number.parse::<f64>().ok());
            let points = of_setup.filter_map(|known| Some((kilobytes(known.size)?, known.relative * 100.0))).collect();
            (format!("{}, paper", setup.name()), points)
        };
        let plotted = SETUPS.iter().filter(|setup| setup.kind != Kind::Kept);
        vec![Plot {
            name: "cpu",
            title: "Bound by processors: of what as many separate servers answer (%)".to_owned(),
            x: ("KB", Scale::Logarithmic),
            y: Scale::Linear,
            series: plotted.clone().map(line).chain(plotted.map(published)).collect(),
        }]
    }
}

/// What a cluster could answer in a second if each machine had one processor: as much as the busiest one can.
fn per_s(samples: &Samples, setup: &Setup, size: &Size) -> Option<f64> {
    median(per_s_by_turns(samples, setup, size))
}

fn per_s_by_turns(samples: &Samples, setup: &Setup, size: &Size) -> Vec<f64> {
    let of = |metric| samples.values(NAME, size.name, &setup.name(), metric);
    let busiest = of("first_us").into_iter().zip(of("behind_most_us")).map(|(first, behind)| match setup.kind {
        Kind::Kept => first,
        _ => first.max(behind),
    });
    busiest.filter(|busiest| *busiest > 0.0).map(|busiest| 1e6 / busiest).collect()
}

/// As a part of what as many separate servers could.
fn relative(samples: &Samples, setup: &Setup, size: &Size) -> Option<f64> {
    Some(per_s(samples, setup, size)? / (per_s(samples, &NONE, size)? * setup.machines() as f64))
}
