//! A judge that looks at every window there is, written apart from the library.

#![expect(
    clippy::disallowed_types,
    reason = "a provider has a clock of its own; sharing the library's would share its mistakes"
)]

use core::time::Duration;
use std::time::Instant;

/// The sum over the window that ends with the arrival. Each window's fullest moment is its last arrival, so no
/// position is missed.
#[derive(Debug)]
pub(crate) struct Sliding {
    pub(crate) units: u32,
    pub(crate) window: Duration,
    /// All there ever were, so that a longer window finds what it needs.
    arrivals: Vec<(Instant, u32)>,
}

impl Sliding {
    pub(crate) const fn new(units: u32, window: Duration) -> Self {
        Self {
            units,
            window,
            arrivals: Vec::new(),
        }
    }

    /// Counts an arrival, and says whether it was too many.
    pub(crate) fn is_over(&mut self, at: Instant, cost: u32) -> bool {
        self.arrivals.push((at, cost));
        // Half-open: an arrival exactly one window ago is gone.
        let inside =
            |&&(earlier, _): &&(Instant, u32)| at.saturating_duration_since(earlier) < self.window;
        let costs = self.arrivals.iter().rev().take_while(inside);
        costs.map(|(_, cost)| cost).sum::<u32>() > self.units
    }
}
