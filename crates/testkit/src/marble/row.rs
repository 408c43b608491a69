//! A timeline, drawn by hand or as it happened.

use std::{collections::BTreeSet, fmt, iter::repeat_n, time::Duration};

use super::{
    TICK,
    parse::{Thing, parse},
};
use crate::patience::Stuck;

/// After more empty ticks than this a row names the instant instead of drawing the ticks.
const LONG_GAP: u32 = 100;

/// A timeline: what happened, and when.
///
/// It equals a drawn row when the same things happen in the same instants; white space, and ticks after the last
/// thing, do not matter. What happened between two ticks is drawn with its instant, `a@15ms`. A row that hangs ends in
/// `…`, and equals no drawn row.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Row {
    things: Vec<(Duration, Thing)>,
    stuck: Option<Stuck>,
}

impl Row {
    /// The row drawn so: see the [module](super) for the tokens.
    #[must_use]
    #[track_caller]
    pub fn new(row: &str) -> Self {
        let things = parse(row).into_iter().map(|drawn| (drawn.at, drawn.thing));
        Self {
            things: things.collect(),
            stuck: None,
        }
    }

    /// What happened, each with its instant, in the tokens of a row: items, groups, and `|` for the end.
    pub fn things(&self) -> impl Iterator<Item = (Duration, &str)> {
        self.things.iter().map(|(at, thing)| match thing {
            Thing::Item(mark) => (*at, mark.as_str()),
            Thing::End => (*at, "|"),
        })
    }

    pub(super) fn push(&mut self, at: Duration, mark: String) {
        self.things.push((at, Thing::Item(mark)));
    }

    pub(super) fn end(&mut self, at: Duration) {
        self.things.push((at, Thing::End));
    }

    pub(super) fn stick(&mut self, stuck: Stuck) {
        self.stuck = Some(stuck);
    }

    /// What is drawn at one instant, if anything.
    fn cell(&self, column: &Column) -> String {
        let things = self.things().filter(|(at, _)| *at == column.at);
        let marks: Vec<&str> = things.map(|(_, mark)| mark).collect();
        let cell = match marks.as_slice() {
            [] if column.is_named || self.has_ended_before(column.at) => return String::new(),
            [] => return "-".to_owned(),
            [mark] => (*mark).to_owned(),
            several => format!("({})", several.concat()),
        };
        if column.is_named {
            return format!("{cell}@{:?}", column.at);
        }
        cell
    }

    fn has_ended_before(&self, instant: Duration) -> bool {
        matches!(self.things.last(), Some((at, Thing::End)) if *at < instant)
    }
}

impl PartialEq<str> for Row {
    fn eq(&self, drawn: &str) -> bool {
        *self == Self::new(drawn)
    }
}

impl PartialEq<&str> for Row {
    fn eq(&self, drawn: &&str) -> bool {
        self == *drawn
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&draw(&[self]).concat())
    }
}

/// As drawn, so that a failed `assert_eq!` shows rows.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Draws rows under each other, every instant in a column of its own.
pub(super) fn draw(rows: &[&Row]) -> Vec<String> {
    let mut lines = vec![String::new(); rows.len()];
    for column in columns(rows) {
        let cells: Vec<String> = rows.iter().map(|row| row.cell(&column)).collect();
        let width = cells.iter().map(|cell| cell.chars().count()).max();
        let width = width.unwrap_or_default();
        for (line, cell) in lines.iter_mut().zip(&cells) {
            line.push_str(cell);
            line.extend(repeat_n(' ', width - cell.chars().count() + 1));
        }
    }
    for (line, row) in lines.iter_mut().zip(rows) {
        match row.stuck {
            Some(Stuck::Hangs) => line.push('…'),
            Some(Stuck::Spins) => line.push_str("… (spins)"),
            Some(Stuck::GoesOn) => line.push_str("… (goes on)"),
            None => line.truncate(line.trim_end().len()),
        }
    }
    lines
}

/// An instant that is drawn: a tick that follows the one before, or any other, which is named.
struct Column {
    at: Duration,
    is_named: bool,
}

fn columns(rows: &[&Row]) -> Vec<Column> {
    let things = rows.iter().flat_map(|row| &row.things);
    let instants: BTreeSet<Duration> = things.map(|(at, _)| *at).collect();

    let mut columns = Vec::new();
    let mut tick = 0;
    for at in instants {
        let is_gap = at.saturating_sub(TICK * tick) > TICK * LONG_GAP;
        while !is_gap && TICK * tick < at {
            columns.push(Column {
                at: TICK * tick,
                is_named: false,
            });
            tick += 1;
        }
        let is_named = TICK * tick != at;
        columns.push(Column { at, is_named });
        if is_gap {
            tick = ticks_before(at);
        }
        if TICK * tick <= at {
            tick += 1;
        }
    }
    columns
}

fn ticks_before(at: Duration) -> u32 {
    u32::try_from(at.as_nanos() / TICK.as_nanos()).unwrap_or(u32::MAX)
}
