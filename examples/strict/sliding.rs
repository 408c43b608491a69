//! A judge of every window. It shares no code with the library.

#![expect(
    clippy::disallowed_types,
    reason = "a provider has a clock of its own; sharing the library's would share its mistakes"
)]

use core::time::Duration;
use std::time::Instant;

/// The sum over the window that ends with each arrival. A window is fullest at its last arrival, so this covers all
/// windows.
#[derive(Debug)]
pub(crate) struct Sliding {
    pub(crate) units: u32,
    pub(crate) window: Duration,
    /// All arrivals, since a later window may be longer.
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

    /// Counts an arrival, and returns whether it exceeds the quota.
    pub(crate) fn is_over(&mut self, at: Instant, cost: u32) -> bool {
        self.arrivals.push((at, cost));
        // The window is half-open: an arrival exactly one window ago is not in it.
        let inside =
            |&&(earlier, _): &&(Instant, u32)| at.saturating_duration_since(earlier) < self.window;
        let costs = self.arrivals.iter().rev().take_while(inside);
        costs.map(|(_, cost)| cost).sum::<u32>() > self.units
    }
}
