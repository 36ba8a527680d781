//! Plots of lines with points, as SVG.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

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

/// How values are laid on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    /// Values below 1 are drawn at 1.
    Logarithmic,
}

impl Scale {
    /// Logarithms are drawn on a plain axis, whose labels then say what they are the logarithms of.
    fn place(self, value: f64) -> f64 {
        if self == Scale::Logarithmic { value.max(1.0).log10() } else { value }
    }

    fn label(self, place: f64, decimals: usize) -> String {
        let value = if self == Scale::Logarithmic { 10f64.powf(place) } else { place };
        format!("{value:.decimals$}")
    }
}

/// One plot.
pub(crate) struct Plot {
    /// File name without its ending.
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) x: (&'static str, Scale),
    pub(crate) y: Scale,
    /// Name and points; those without points aren't drawn.
    pub(crate) series: Vec<(String, Vec<(f64, f64)>)>,
}

type DrawError = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;

impl Plot {
    /// Writes `NAME.svg`; nothing where there is nothing to draw.
    pub(crate) fn write(mut self, folder: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.series.retain(|(_, points)| !points.is_empty());
        if self.series.is_empty() {
            return Ok(());
        }
        self.draw(&folder.join(format!("{}.svg", self.name))).map_err(|error| error.to_string().into())
    }

    fn draw(&self, path: &Path) -> Result<(), DrawError> {
        let (x_description, x_scale) = self.x;
        let values = || self.series.iter().flat_map(|(_, values)| values.iter().copied());
        let x_max = values().map(|(x, _)| x_scale.place(x)).fold(0.0, f64::max) * 1.05;
        let y_max = values().map(|(_, y)| self.y.place(y)).fold(0.0, f64::max) * 1.05;
        let decimals = if y_max < 5.0 && self.y == Scale::Linear { 2 } else { 0 };
        let area = SVGBackend::new(path, (900, 560)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
        chart
            .configure_mesh()
            .x_desc(x_description)
            .x_label_formatter(&|place| x_scale.label(*place, 0))
            .y_label_formatter(&|place| self.y.label(*place, decimals))
            .light_line_style(WHITE)
            .draw()?;
        for ((name, values), colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let points: Vec<_> = values.iter().map(|&(x, y)| (x_scale.place(x), self.y.place(y))).collect();
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
}
