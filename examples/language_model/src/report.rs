//! What the providers have counted, as a table or as JSON.

use core::{fmt, time::Duration};

use serde::Serialize;

use crate::books::Tally;

/// One run.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    name: &'static str,
    calls: usize,
    answered: u32,
    seconds: f64,
    arrivals: u32,
    tokens: u32,
    violations: u32,
    refused: u32,
    too_early: u32,
    others_tokens: u32,
}

impl Line {
    pub(crate) fn new(
        name: &'static str,
        calls: usize,
        answered: u32,
        took: Duration,
        tally: Tally,
    ) -> Self {
        Self {
            name,
            calls,
            answered,
            seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
            arrivals: tally.arrivals,
            tokens: tally.tokens,
            violations: tally.violations,
            refused: tally.refused,
            too_early: tally.too_early,
            others_tokens: tally.others_tokens,
        }
    }
}

/// All runs.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) runs: Vec<Line>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<24}{:>6}{:>10}{:>9}{:>8}{:>12}{:>6}{:>11}{:>15}",
            "run",
            "calls",
            "answered",
            "seconds",
            "tokens",
            "violations",
            "429s",
            "too early",
            "others' tokens"
        )?;
        for line in &self.runs {
            write!(
                f,
                "\n{:<24}{:>6}{:>10}{:>9.1}{:>8}{:>12}{:>6}{:>11}{:>15}",
                line.name,
                line.calls,
                line.answered,
                line.seconds,
                line.tokens,
                line.violations,
                line.refused,
                line.too_early,
                line.others_tokens
            )?;
        }
        Ok(())
    }
}
