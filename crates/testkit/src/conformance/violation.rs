//! Broken rules, of streams, sinks and services alike.

use std::{fmt, panic::Location};

/// A rule that was broken, and how.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Violation<R> {
    /// Which rule.
    pub rule: R,
    /// What happened, with the schedule that shows it.
    pub detail: String,
}

impl<R> Violation<R> {
    pub(super) fn new(rule: R, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { rule, detail }
    }
}

/// The rule, its promise, and what happened.
impl<R: fmt::Debug + fmt::Display> fmt::Display for Violation<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, detail } = self;
        write!(f, "{rule:?} ({rule}): {detail}")
    }
}

/// The first violation of each rule.
pub(super) struct Found<R>(pub(super) Vec<Violation<R>>);

impl<R: PartialEq> Found<R> {
    pub(super) fn note(&mut self, outcome: Result<(), Violation<R>>) {
        let Err(violation) = outcome else { return };
        let is_known = self.0.iter().any(|known| known.rule == violation.rule);
        if !is_known {
            self.0.push(violation);
        }
    }
}

/// Panics with the list of violations and the line of the caller, if there are any.
pub(super) fn assert_none<R>(violations: &[Violation<R>], caller: &Location<'_>)
where
    R: fmt::Debug + fmt::Display,
{
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(
        lines.is_empty(),
        "does not conform, at {caller}:\n  {}",
        lines.join("\n  ")
    );
}
