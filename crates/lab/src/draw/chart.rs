//! Lines and points over two axes.

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

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
    /// What was published of the same: circles around nothing, in the colour of the series.
    pub published: Vec<(f64, f64)>,
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

/// Where the legend begins, how high its lines are, and how wide a letter of it is, all in pixels and on average.
const LEGEND: (i32, i32) = (74, 34);
const LINE: i32 = 18;
const LETTER: i32 = 7;
/// Half the width of a circle around a published point.
const RING: i32 = 6;

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
        let points = || self.series.iter().flat_map(|series| series.points.iter().chain(&series.published));
        let x = Axis::over(self.x.1, points().map(|point| point.0), false);
        let y = Axis::over(self.y.1, points().map(|point| point.1), true);
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let below = self.legend().last().map_or(LEGEND.1, |(_, _, (_, y))| y + LINE);
        let (head, body) = area.split_vertically(below);
        self.head(&head)?;
        let mut chart = ChartBuilder::on(&body)
            .margin(10)
            .margin_top(6)
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
            match series.mark {
                Mark::Dashed => chart.draw_series(DashedLineSeries::new(placed(), 6, 4, style))?,
                Mark::Points => chart.draw_series(placed().map(|at| Circle::new(at, 3, colour.filled())))?,
                Mark::Both => {
                    chart.draw_series(placed().map(|at| Circle::new(at, 3, colour.filled())))?;
                    chart.draw_series(LineSeries::new(placed(), style))?
                }
                Mark::Line => chart.draw_series(LineSeries::new(placed(), style))?,
            };
            let published = series.published.iter().filter_map(|(a, b)| Some((x.place(*a)?, y.place(*b)?)));
            chart.draw_series(published.map(|at| Circle::new(at, RING, style)))?;
        }
        drop(chart);
        area.present()?;
        Ok(())
    }

    /// Title and legend, over the plot: so it covers nothing.
    fn head(&self, head: &DrawingArea<SVGBackend<'_>, Shift>) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let middle = i32::try_from(SIZE.0 / 2)?;
        let centred = Pos::new(HPos::Center, VPos::Top);
        let style = ("sans-serif", 17).into_font().color(&INK).pos(centred);
        head.draw(&Text::new(self.title.as_str(), (middle, 10), style))?;
        for (name, number, (x, y)) in self.legend() {
            match number {
                Some(number) => {
                    let colour = COLOURS[number % COLOURS.len()];
                    head.draw(&Rectangle::new([(x, y + 5), (x + 18, y + 9)], colour.filled()))?;
                }
                None => head.draw(&Circle::new((x + 9, y + 7), RING, INK.stroke_width(2)))?,
            }
            head.draw(&Text::new(name, (x + 24, y), ("sans-serif", 13).into_font().color(&INK)))?;
        }
        Ok(())
    }

    /// Names, numbers and places of the series that have a name, line by line; and of what circles are, which are no
    /// series.
    fn legend(&self) -> Vec<(&str, Option<usize>, (i32, i32))> {
        let (mut x, mut y) = (LEGEND.0, LEGEND.1);
        let mut placed = Vec::new();
        let names = self.series.iter().enumerate().map(|(number, series)| (series.name.as_str(), Some(number)));
        let circles = self.series.iter().any(|series| !series.published.is_empty());
        let names = names.chain(circles.then_some(("as published", None)));
        for (name, number) in names.filter(|(name, _)| !name.is_empty()) {
            let wide = i32::try_from(name.chars().count()).unwrap_or(0) * LETTER + 42;
            if x > LEGEND.0 && x + wide > SIZE.0 as i32 {
                (x, y) = (LEGEND.0, y + LINE);
            }
            placed.push((name, number, (x, y)));
            x += wide;
        }
        placed
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Heights of all circles: points of series. A legend has none.
    fn circles(svg: &str) -> Vec<i32> {
        svg.split("<circle")
            .skip(1)
            .map(|rest| rest.split("cy=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect()
    }

    #[test]
    fn the_legend_covers_no_point() {
        let names =
            ["buddy", "stream", "stream-pack", "lazy-reads", "lazy-reads-loc", "a much longer name of a preset"];
        let series = names.iter().enumerate().map(|(number, name)| Series {
            name: (*name).into(),
            points: vec![(0.0, 0.0), (0.5, 10.0 + number as f64), (1.0, 0.0), (1.0, 20.0)],
            mark: Mark::Both,
            ..Series::default()
        });
        let chart = Chart { title: "Title".into(), series: series.collect(), ..Chart::default() };
        let legend = chart.legend();
        assert_eq!(legend.len(), names.len());
        let rows = legend.windows(2).filter(|two| two[0].2.1 != two[1].2.1).count();
        assert_eq!(rows, 1, "what has no room in one line goes on in the next: {legend:?}");
        let svg = chart.svg().unwrap();
        let lowest = legend.last().unwrap().2.1 + LINE;
        let points = circles(&svg);
        assert_eq!(points.len(), 4 * names.len());
        assert!(points.iter().all(|y| *y > lowest), "{lowest}: {points:?}");
        assert!(names.iter().all(|name| svg.contains(name)));
    }
    #[test]
    fn what_was_published_is_drawn_around_ours() {
        let series = |published| Series { name: "ours".into(), points: vec![(1.0, 2.0)], mark: Mark::Both, published };
        let chart = |published| Chart { series: vec![series(published)], ..Chart::default() }.svg().unwrap();
        let (without, with) = (chart(Vec::new()), chart(vec![(1.0, 2.0), (3.0, 40.0)]));
        assert_eq!((circles(&without).len(), circles(&with).len()), (1, 1 + 2 + 1), "and one in the legend");
        assert!(with.contains("as published") && !without.contains("as published"));
    }
}
