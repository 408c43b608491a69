//! Plots, as SVG: lines over an axis, or bars.

use std::error::Error;
use std::io;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::figures::{Figure, Value};

use super::table::short;

/// A plot of a section.
pub(super) struct Drawing {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) metric: &'static str,
    pub(super) part: &'static str,
    pub(super) shape: Shape,
}

#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// The axis of the cases, and whether the other one is logarithmic, too.
    Lines { x: &'static str, is_y_log: bool },
    /// What changes over time, in so many points that they have no dots. No axis is logarithmic.
    Times { x: &'static str },
    /// A bar for each contender in this case.
    Bars { case: &'static str },
}

struct Line<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const SIZE: (u32, u32) = (940, 460);
const LEGEND: u32 = 280;

/// Dark enough on white, and distinct in grey.
const COLOURS: [RGBColor; 10] = [
    RGBColor(31, 119, 180),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(127, 127, 127),
    RGBColor(188, 189, 34),
    RGBColor(23, 190, 207),
    RGBColor(255, 127, 14),
    RGBColor(0, 0, 0),
];
const OURS: [RGBColor; 5] = [
    RGBColor(214, 39, 40),
    RGBColor(255, 127, 14),
    RGBColor(150, 20, 90),
    RGBColor(240, 180, 0),
    RGBColor(255, 90, 160),
];

impl Drawing {
    /// Whether there was something to draw.
    pub(super) fn draw(&self, figures: &[&Figure], path: &Path) -> io::Result<bool> {
        let drawn = match self.shape {
            Shape::Lines { x, .. } | Shape::Times { x } => {
                let lines = self.lines(figures);
                let is_any = !lines.is_empty();
                let drawn = is_any.then(|| self.draw_lines(&lines, x, path));
                drawn.transpose()
            }
            Shape::Bars { case } => {
                let bars = self.bars(figures, case);
                let is_any = !bars.is_empty();
                is_any.then(|| self.draw_bars(&bars, path)).transpose()
            }
        };
        drawn
            .map(|drawn| drawn.is_some())
            .map_err(|error| io::Error::other(error.to_string()))
    }

    fn bars<'a>(&self, figures: &[&'a Figure], case: &str) -> Vec<(&'a str, f64)> {
        let drawn = figures.iter().filter(|figure| {
            figure.metric == self.metric && figure.part == self.part && figure.case == case
        });
        drawn
            .filter_map(|figure| match figure.value {
                Value::Is(value) => Some((figure.contender.as_str(), value)),
                Value::Not(_) => None,
            })
            .collect()
    }

    fn draw_bars(&self, bars: &[(&str, f64)], path: &Path) -> Result<(), Box<dyn Error>> {
        const LEFT: i32 = 330;
        const TOP: i32 = 48;
        const ROW: i32 = 26;
        let rows = i32::try_from(bars.len())?;
        let height = u32::try_from(TOP + rows * ROW + 12)?;
        let area = SVGBackend::new(path, (SIZE.0, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let font = |size| ("sans-serif", size).into_font();
        area.draw(&Text::new(self.title, (16, 14), font(18)))?;
        let most = bars.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        for (row, (name, value)) in (0..).zip(bars) {
            let top = TOP + row * ROW;
            #[expect(clippy::cast_possible_truncation, reason = "at most the width")]
            let width = (value / most * 420.0) as i32;
            let colour = if name.starts_with("paceline") {
                OURS[0]
            } else {
                COLOURS[0]
            };
            let corners = [(LEFT, top), (LEFT + width.max(1), top + ROW - 8)];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
            area.draw(&Text::new((*name).to_owned(), (16, top + 3), font(13)))?;
            area.draw(&Text::new(
                short(*value),
                (LEFT + width + 8, top + 3),
                font(13),
            ))?;
        }
        area.present()?;
        Ok(())
    }

    const fn is_y_log(&self) -> bool {
        matches!(self.shape, Shape::Lines { is_y_log: true, .. })
    }

    const fn is_over_time(&self) -> bool {
        matches!(self.shape, Shape::Times { .. })
    }

    fn lines<'a>(&self, figures: &[&'a Figure]) -> Vec<Line<'a>> {
        let mut lines: Vec<Line<'a>> = Vec::new();
        for figure in figures {
            let is_drawn = figure.metric == self.metric && figure.part == self.part;
            let (true, Some(x), Value::Is(y)) = (is_drawn, figure.x, &figure.value) else {
                continue;
            };
            // A logarithm has no place for zero.
            if self.is_y_log() && *y <= 0.0 {
                continue;
            }
            match lines.iter_mut().find(|line| line.name == figure.contender) {
                Some(line) => line.points.push((x, *y)),
                None => lines.push(Line {
                    name: &figure.contender,
                    points: vec![(x, *y)],
                }),
            }
        }
        lines
    }

    fn draw_lines(
        &self,
        lines: &[Line<'_>],
        x_name: &str,
        path: &Path,
    ) -> Result<(), Box<dyn Error>> {
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (chart_area, beside) = area.split_horizontally(SIZE.0 - LEGEND);
        legend(&beside, lines)?;
        let mut builder = ChartBuilder::on(&chart_area);
        builder
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(74);
        let x = around(lines, |point| point.0, !self.is_over_time());
        let y = around(lines, |point| point.1, self.is_y_log());
        if self.is_over_time() {
            let chart = builder.build_cartesian_2d(x, y)?;
            self.fill_in(chart, lines, x_name)?;
        } else if self.is_y_log() {
            let chart = builder.build_cartesian_2d(x.log_scale(), y.log_scale())?;
            self.fill_in(chart, lines, x_name)?;
        } else {
            let chart = builder.build_cartesian_2d(x.log_scale(), y)?;
            self.fill_in(chart, lines, x_name)?;
        }
        area.present()?;
        Ok(())
    }

    fn fill_in<'a, X, Y>(
        &self,
        mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
        lines: &[Line<'_>],
        x_name: &str,
    ) -> Result<(), Box<dyn Error>>
    where
        X: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .x_desc(x_name)
            .y_desc(self.metric)
            .x_label_formatter(&|x| tick(*x))
            .y_label_formatter(&|y| tick(*y))
            .light_line_style(RGBColor(240, 240, 240))
            .draw()?;
        for (line, style) in lines.iter().zip(styles(lines)) {
            let points = || line.points.iter().copied();
            chart.draw_series(LineSeries::new(points(), style))?;
            if !self.is_over_time() {
                let dots = points().map(|point| Circle::new(point, 3, style.color.filled()));
                chart.draw_series(dots)?;
            }
        }
        Ok(())
    }
}

/// Ours are thick.
fn styles(lines: &[Line<'_>]) -> Vec<ShapeStyle> {
    let (mut ours, mut theirs) = (OURS.iter().cycle(), COLOURS.iter().cycle());
    let style = |line: &Line<'_>| {
        let is_ours = line.name.starts_with("paceline");
        let colour = if is_ours { ours.next() } else { theirs.next() };
        let colour = colour.unwrap_or(&BLACK);
        colour.stroke_width(if is_ours { 3 } else { 1 })
    };
    lines.iter().map(style).collect()
}

/// Beside the lines and not on them.
fn legend(area: &Area<'_>, lines: &[Line<'_>]) -> Result<(), Box<dyn Error>> {
    for (row, (line, style)) in (0..).zip(lines.iter().zip(styles(lines))) {
        let y = 60 + 22 * row;
        area.draw(&PathElement::new([(6, y), (28, y)], style))?;
        let font = ("sans-serif", 13).into_font();
        area.draw(&Text::new(line.name.to_owned(), (36, y - 6), font))?;
    }
    Ok(())
}

/// The values, and a little room.
fn around(lines: &[Line<'_>], of: fn(&(f64, f64)) -> f64, is_log: bool) -> Range<f64> {
    let values = || lines.iter().flat_map(|line| line.points.iter().map(of));
    let least = values().fold(f64::INFINITY, f64::min);
    let most = values().fold(f64::NEG_INFINITY, f64::max);
    if is_log {
        return least / 1.3..most * 1.3;
    }
    let least = least.min(0.0);
    least..most + (most - least).max(1e-9) * 0.05
}

fn tick(number: f64) -> String {
    match number.abs() {
        1e9.. => format!("{}G", number / 1e9),
        1e6.. => format!("{}M", number / 1e6),
        1e3.. => format!("{}k", number / 1e3),
        _ => format!("{}", (number * 1e6).round() / 1e6),
    }
}
