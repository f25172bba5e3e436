//! Lines and points over two axes.

use plotters::prelude::*;

use super::{COLOURS, FAINT, INK, SIZE, Scale, axis::Axis};
use crate::{Error, Result};

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mark {
    /// A line from point to point.
    #[default]
    Line,
    /// A line with its points.
    Both,
    /// Points.
    Points,
    /// A dashed line, for what is fitted, expected or published.
    Dashed,
}

/// Points that belong together.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// For the legend; empty for none.
    pub name: String,
    /// In the order in which they are joined.
    pub points: Vec<(f64, f64)>,
    /// How.
    pub mark: Mark,
}

/// A drawing of one or several series.
#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// Over it.
    pub title: String,
    /// What the horizontal axis shows, with its unit, and how.
    pub x: (String, Scale),
    /// The vertical one.
    pub y: (String, Scale),
    /// What is drawn.
    pub series: Vec<Series>,
}

impl Chart {
    /// The drawing, as SVG.
    ///
    /// # Errors
    /// If the library refuses, which it has no known reason to.
    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        let drawn = self.draw(&mut svg);
        drawn.map_err(|why| Error::Drawing { what: self.title.clone(), why: why.to_string() })?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = Axis::over(self.x.1, points().map(|point| point.0), false);
        let y = Axis::over(self.y.1, points().map(|point| point.1), true);
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 17).into_font().color(&INK))
            .margin(10)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x.clone(), y.clone())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .label_style(("sans-serif", 13).into_font().color(&INK))
            .axis_desc_style(("sans-serif", 14).into_font().color(&INK))
            .x_desc(&self.x.0)
            .y_desc(&self.y.0)
            .x_label_formatter(&|place| x.label(*place))
            .y_label_formatter(&|place| y.label(*place))
            .draw()?;
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let style = colour.stroke_width(2);
            let placed = || series.points.iter().filter_map(|(a, b)| Some((x.place(*a)?, y.place(*b)?)));
            let drawn = match series.mark {
                Mark::Dashed => chart.draw_series(DashedLineSeries::new(placed(), 6, 4, style))?,
                Mark::Points => chart.draw_series(placed().map(|at| Circle::new(at, 3, colour.filled())))?,
                Mark::Both => {
                    chart.draw_series(placed().map(|at| Circle::new(at, 3, colour.filled())))?;
                    chart.draw_series(LineSeries::new(placed(), style))?
                }
                Mark::Line => chart.draw_series(LineSeries::new(placed(), style))?,
            };
            if !series.name.is_empty() {
                drawn
                    .label(&series.name)
                    .legend(move |(a, b)| Rectangle::new([(a, b - 2), (a + 18, b + 2)], colour.filled()));
            }
        }
        if self.series.iter().any(|series| !series.name.is_empty()) {
            chart
                .configure_series_labels()
                .position(self.emptiest(&x, &y))
                .background_style(WHITE.mix(0.85))
                .border_style(FAINT)
                .label_font(("sans-serif", 13).into_font().color(&INK))
                .draw()?;
        }
        drop(chart);
        area.present()?;
        Ok(())
    }

    /// The corner in which the fewest points lie.
    fn emptiest(&self, x: &Axis, y: &Axis) -> SeriesLabelPosition {
        let mut counts = [0_u32; 4];
        for (a, b) in self.series.iter().flat_map(|series| &series.points) {
            let (Some(a), Some(b)) = (x.place(*a), y.place(*b)) else { continue };
            let right = (a - x.from) / (x.to - x.from);
            let up = (b - y.from) / (y.to - y.from);
            let halves = (right > 0.5, up > 0.5);
            counts[usize::from(halves.0) + 2 * usize::from(halves.1)] += 1;
        }
        // Of equals the last: people look for a legend at the upper right.
        let least = counts.iter().enumerate().rev().min_by_key(|(_, count)| **count).map_or(3, |(at, _)| at);
        match least {
            0 => SeriesLabelPosition::LowerLeft,
            1 => SeriesLabelPosition::LowerRight,
            2 => SeriesLabelPosition::UpperLeft,
            _ => SeriesLabelPosition::UpperRight,
        }
    }
}
