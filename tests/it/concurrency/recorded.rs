//! A controller that does nothing but record. The tests of `paceline-tower` have it, too.

use paceline::concurrency::{Adaptive, Controller, Outcome};
use paceline::time::Tick;
use testkit::clock::ms;

/// A limit that stays, and what was observed.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    limit: u32,
    pub(super) seen: Vec<(Tick, u32, Outcome)>,
}

impl Recorded {
    pub(crate) const fn at(limit: u32) -> Self {
        let seen = Vec::new();
        Self { limit, seen }
    }
}

impl Controller for Recorded {
    fn observe(&mut self, now: Tick, in_use: u32, outcome: Outcome) {
        self.seen.push((now, in_use, outcome));
    }

    fn limit(&self) -> u32 {
        self.limit
    }
}

/// The outcomes that were observed.
pub(crate) fn outcomes(adaptive: &Adaptive<Recorded>) -> Vec<Outcome> {
    let seen = adaptive.controller().seen.into_iter();
    seen.map(|(_, _, outcome)| outcome).collect()
}

pub(crate) const fn success(millis: u64) -> Outcome {
    let latency = ms(millis);
    Outcome::Success { latency }
}
