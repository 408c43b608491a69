//! Plots, as SVG: lines over an axis, or bars.

use std::error::Error;
use std::fs;
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

const SIZE: (u32, u32) = (940, 440);
/// Of the lines, and of the names at their ends.
const BESIDE: u32 = 290;
const ROW: i32 = 17;

/// They are seen on a white page and on a dark one. Black takes the colour of the page's text.
const STYLE: &str = r##"
<style>svg:root{color:#1f2328}@media(prefers-color-scheme:dark){svg:root{color:#e6edf3}}[fill="#000000"]{fill:currentColor}[stroke="#000000"]{stroke:currentColor}</style>"##;
const OURS: [RGBColor; 5] = [
    RGBColor(47, 125, 225),
    RGBColor(229, 72, 139),
    RGBColor(18, 165, 148),
    RGBColor(138, 92, 246),
    RGBColor(217, 130, 43),
];
const THEIRS: [RGBColor; 4] = [
    RGBColor(125, 133, 144),
    RGBColor(166, 124, 82),
    RGBColor(110, 127, 165),
    RGBColor(122, 143, 92),
];

impl Drawing {
    /// Whether there was something to draw.
    pub(super) fn draw(&self, figures: &[&Figure], path: &Path) -> io::Result<bool> {
        let drawn = match self.shape {
            Shape::Lines { x, .. } | Shape::Times { x } => {
                let lines = self.lines(figures);
                let is_any = !lines.is_empty();
                is_any.then(|| self.draw_lines(&lines, x))
            }
            Shape::Bars { case } => {
                let bars = self.bars(figures, case);
                let is_any = !bars.is_empty();
                is_any.then(|| self.draw_bars(&bars))
            }
        };
        let Some(drawn) = drawn else {
            return Ok(false);
        };
        let drawn = drawn.map_err(|error| io::Error::other(error.to_string()))?;
        let head = drawn.find('>').map_or(0, |end| end + 1);
        let (head, shapes) = drawn.split_at(head);
        fs::write(path, format!("{head}{STYLE}{shapes}"))?;
        Ok(true)
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

    /// Returns the text of the picture.
    fn draw_bars(&self, bars: &[(&str, f64)]) -> Result<String, Box<dyn Error>> {
        const LEFT: i32 = 330;
        const TOP: i32 = 48;
        const ROW: i32 = 26;
        let mut text = String::new();
        let rows = i32::try_from(bars.len())?;
        let height = u32::try_from(TOP + rows * ROW + 12)?;
        let area = SVGBackend::with_string(&mut text, (SIZE.0, height)).into_drawing_area();
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
                THEIRS[0]
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
        drop(area);
        Ok(text)
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

    /// Returns the text of the picture.
    fn draw_lines(&self, lines: &[Line<'_>], x_name: &str) -> Result<String, Box<dyn Error>> {
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.draw(&Text::new(self.title, (16, 14), ("sans-serif", 18)))?;
        let (chart_area, _) = area.margin(36, 0, 0, 0).split_horizontally(SIZE.0 - BESIDE);
        let mut builder = ChartBuilder::on(&chart_area);
        builder
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(74);
        let x = around(lines, |point| point.0, !self.is_over_time());
        let y = around(lines, |point| point.1, self.is_y_log());
        if self.is_over_time() {
            let chart = builder.build_cartesian_2d(x, y)?;
            self.fill_in(chart, &area, lines, x_name)?;
        } else if self.is_y_log() {
            let chart = builder.build_cartesian_2d(x.log_scale(), y.log_scale())?;
            self.fill_in(chart, &area, lines, x_name)?;
        } else {
            let chart = builder.build_cartesian_2d(x.log_scale(), y)?;
            self.fill_in(chart, &area, lines, x_name)?;
        }
        area.present()?;
        drop((chart_area, area));
        Ok(text)
    }

    fn fill_in<'a, X, Y>(
        &self,
        mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
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
            .disable_x_mesh()
            .max_light_lines(1)
            .bold_line_style(THEIRS[0].mix(0.3))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (line, style) in lines.iter().zip(styles(lines)) {
            let points = || line.points.iter().copied();
            chart.draw_series(LineSeries::new(points(), style))?;
            if !self.is_over_time() {
                let dots = points().map(|point| Circle::new(point, 3, style.color.filled()));
                chart.draw_series(dots)?;
            }
        }
        let last = |line: &Line<'_>| {
            let last = line.points.iter().max_by(|a, b| a.0.total_cmp(&b.0));
            last.map(|last| chart.backend_coord(last))
        };
        let ends: Vec<(i32, i32)> = lines.iter().filter_map(last).collect();
        names(area, lines, &ends)
    }
}

/// Ours are thick.
fn styles(lines: &[Line<'_>]) -> Vec<ShapeStyle> {
    let (mut ours, mut theirs) = (OURS.iter().cycle(), THEIRS.iter().cycle());
    let style = |line: &Line<'_>| {
        let is_ours = line.name.starts_with("paceline");
        let colour = if is_ours { ours.next() } else { theirs.next() };
        let colour = colour.unwrap_or(&BLACK);
        colour.stroke_width(if is_ours { 3 } else { 1 })
    };
    lines.iter().map(style).collect()
}

/// Each at the end of its line, or as near as there is room.
fn names(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    lines: &[Line<'_>],
    ends: &[(i32, i32)],
) -> Result<(), Box<dyn Error>> {
    let right = ends.iter().map(|end| end.0).max().unwrap_or_default();
    let styles = styles(lines);
    let heights = apart(&ends.iter().map(|end| end.1).collect::<Vec<_>>());
    for (((line, style), end), y) in lines.iter().zip(styles).zip(ends).zip(heights) {
        let thin = style.color.stroke_width(1);
        let to = [(end.0 + 4, end.1), (right + 22, y)];
        area.draw(&PathElement::new(to, thin))?;
        let font = ("sans-serif", 13).into_font().color(&style.color);
        area.draw(&Text::new(line.name.to_owned(), (right + 26, y - 7), font))?;
    }
    Ok(())
}

/// Heights that are at least a row apart, in the same order, and that fit into the picture.
fn apart(heights: &[i32]) -> Vec<i32> {
    let bottom = i32::try_from(SIZE.1).unwrap_or(i32::MAX) - ROW;
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by_key(|&at| heights[at]);
    let mut placed = heights.to_vec();
    for pair in order.windows(2) {
        placed[pair[1]] = placed[pair[1]].max(placed[pair[0]] + ROW);
    }
    let mut below = bottom + ROW;
    for &at in order.iter().rev() {
        placed[at] = placed[at].min(below - ROW);
        below = placed[at];
    }
    placed
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_order_and_do_not_lie_on_each_other() {
        assert_eq!(apart(&[50, 50, 200, 49]), [66, 83, 200, 49]);
    }

    #[test]
    fn names_at_the_bottom_move_up() {
        let bottom = 440 - ROW;
        let expected = [bottom - ROW, bottom, bottom - 2 * ROW];
        assert_eq!(apart(&[bottom, 600, bottom - 3]), expected);
    }
}
