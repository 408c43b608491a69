//! How a run goes.

use std::time::Duration;

use super::{
    Rule, Violation,
    manner::Manner,
    run::Trace,
    schedule::{Dice, Schedule},
};

/// What comes when, how the task behaves, and what the adapter is over.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) schedule: Schedule,
    pub(super) seed: u64,
    pub(super) manner: Manner,
    pub(super) keeps: Keeps,
    /// Of the input of a stream.
    pub(super) hint: Hint,
    /// In the inner sink of a sink.
    pub(super) room: Room,
    /// Which call on the inner sink fails.
    pub(super) fails_at: Option<usize>,
    /// How often the producer of a sink polls until it is ready, before each item.
    pub(super) asks: usize,
}

/// Which items an adapter emits, and in what order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Keeps {
    All,
    /// All, in any order.
    Unordered,
    /// Some, in order.
    Some,
}

/// How precise the `size_hint` of an input is. It is always true.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hint {
    Exact,
    AtMost,
    AtLeast,
    Nothing,
}

impl Hint {
    pub(super) const ALL: [Self; 4] = [Self::Exact, Self::AtMost, Self::AtLeast, Self::Nothing];
}

/// How fast an inner sink is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Room {
    Always,
    /// It is pending for a while after each item and at each flush. How long depends only on how many items it has accepted.
    Slow(u64, Duration),
}

impl Room {
    pub(super) fn gap(self, number: usize) -> Duration {
        match self {
            Self::Always => Duration::ZERO,
            Self::Slow(seed, scale) => {
                let number = u64::try_from(number).unwrap_or_default();
                Dice::new(seed * 1_000 + number).gap(scale)
            }
        }
    }
}

impl Scene {
    /// An eager task, over what is fast and exact.
    pub(super) fn new(seed: u64, schedule: Schedule) -> Self {
        Self {
            schedule,
            seed,
            manner: Manner::Eager,
            keeps: Keeps::All,
            hint: Hint::Exact,
            room: Room::Always,
            fails_at: None,
            asks: 1,
        }
    }

    pub(super) fn with(&self, manner: Manner) -> Self {
        Self {
            manner,
            ..self.clone()
        }
    }

    /// Whether this is the outcome of a rule that is kept.
    pub(super) fn check(&self, rule: Rule, found: Result<(), String>) -> Result<(), Violation> {
        found.map_err(|what| self.breaks(rule, &what))
    }

    pub(super) fn breaks(&self, rule: Rule, what: &str) -> Violation {
        Violation::new(rule, format!("{what}, in {self:?}"))
    }

    pub(super) fn noted(&self, trace: &Trace) -> Vec<Violation> {
        let noted = trace.noted.iter();
        noted.map(|(rule, what)| self.breaks(*rule, what)).collect()
    }

    /// Compares the items that came with those that are due.
    pub(super) fn compare(&self, trace: &Trace) -> Result<(), String> {
        let given = trace.given.iter().flat_map(|(_, items)| items);
        let mut came: Vec<u32> = given.chain(&trace.held).copied().collect();
        let due = &trace.due;
        let is_right = match self.keeps {
            Keeps::All => came == *due,
            Keeps::Unordered => {
                came.sort_unstable();
                came == *due
            }
            // What is due ascends strictly, so every ascending row of its items is a subsequence.
            Keeps::Some => {
                came.is_sorted_by(|a, b| a < b) && came.iter().all(|item| due.contains(item))
            }
        };
        if is_right {
            return Ok(());
        }
        Err(format!(
            "{came:?}, of which {:?} was held, came of {due:?}",
            trace.held
        ))
    }
}
