//! Plots of throughput and latency against offered load.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::case::CURVE;
use super::samples::Samples;

const COLOURS: [RGBColor; 10] = [
    RGBColor(31, 119, 180),
    RGBColor(23, 190, 207),
    RGBColor(44, 160, 44),
    RGBColor(255, 127, 14),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(127, 127, 127),
    RGBColor(188, 189, 34),
];

/// A server's points: offered per second, value.
type Series = (String, Vec<(f64, f64)>);

/// Writes the plots whose samples are there.
pub(crate) fn write_all(samples: &Samples, folder: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let throughput = series(samples, "answered_per_s");
    if throughput.is_empty() {
        return Ok(());
    }
    let text = |error: DrawingAreaErrorKind<_>| error.to_string();
    draw(&folder.join("throughput.svg"), "answered per second", &throughput, false).map_err(text)?;
    let latency = series(samples, "p99_us");
    draw(&folder.join("latency.svg"), "p99 latency, us (log)", &latency, true).map_err(text)?;
    Ok(())
}

fn series(samples: &Samples, metric: &str) -> Vec<Series> {
    let points = samples.points(CURVE);
    let of = |server: &String| -> Vec<(f64, f64)> {
        let values = points
            .iter()
            .filter_map(|point| Some((point.parse().ok()?, samples.median(CURVE, point, server, metric)?)));
        values.collect()
    };
    let all = samples.servers(CURVE).into_iter().map(|server| {
        let values = of(&server);
        (server, values)
    });
    all.filter(|(_, values)| !values.is_empty()).collect()
}

type DrawError = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;

fn draw(path: &Path, title: &str, all: &[Series], logarithmic: bool) -> Result<(), DrawError> {
    // Logarithms are drawn on a plain axis: labels then say 10 to the power of what.
    let scale = |value: f64| if logarithmic { value.max(1.0).log10() } else { value };
    let values = || all.iter().flat_map(|(_, values)| values.iter().copied());
    let x_max = values().map(|(x, _)| x).fold(0.0, f64::max) * 1.05;
    let y_max = values().map(|(_, y)| scale(y)).fold(0.0, f64::max) * 1.05;
    let area = SVGBackend::new(path, (900, 560)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
    let label = |value: &f64| if logarithmic { format!("{:.0}", 10f64.powf(*value)) } else { format!("{value:.0}") };
    chart
        .configure_mesh()
        .x_desc("offered per second")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&label)
        .light_line_style(WHITE)
        .draw()?;
    for ((name, values), colour) in all.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<_> = values.iter().map(|&(x, y)| (x, scale(y))).collect();
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()
}
