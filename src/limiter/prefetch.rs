//! Permits that the policy approves ahead of time, so that they pass without a clock reading and without a lock.
//!
//! A reading of the clock costs more than the decision itself. Where the policy allows it ([`Policy::credit`]), one
//! decision approves some permits in advance; what was taken of them is counted at the next reading.
//!
//! To count late is stricter: the bucket never holds more than it would have held. Windows that begin with their first
//! request are excluded, since a later count would move their borders. If the clock goes back, prefetched permits count as
//! of the reading that approved them. It is a thirty-second of the burst; at most 256, since more saves nothing; at least
//! 15, since of a small burst every permit counts. On tokio's paused clock nothing is prefetched, so tests see exact
//! instants. After a request that costs as much as a whole prefetch there is none.
//!
//! A `Shared` limit [offers](Offer) them to all threads. The clock is read after the reclaim, or a permit would be counted earlier
//! than it passed. An idle key has no prefetch: that would be memory for each key.

use crate::policy::Policy;
use crate::time::{Tick, is_real};
use crate::wait::Offer;

/// Approved permits of one owner, and those taken that are not counted yet.
#[derive(Clone, Debug)]
pub(super) struct Prefetch {
    left: u32,
    taken: u32,
    /// When they were approved.
    from: Tick,
}

impl Prefetch {
    pub(super) const fn new() -> Self {
        Self {
            left: 0,
            taken: 0,
            from: Tick::ZERO,
        }
    }

    /// Approves what the policy allows after a request of this cost has passed.
    ///
    /// None on a paused clock, where tests assert exact instants and would see that some are counted late.
    #[inline]
    pub(super) fn reserve<P: Policy>(
        &mut self,
        policy: &P,
        state: &P::State,
        now: Tick,
        cost: u32,
    ) {
        let credit = policy.credit(state, now);
        // Less than another such request needs is of no use, and whether the clock is real takes two more readings.
        let is_useful = credit > cost && policy.peek(state, now, credit).is_pass() && is_real();
        self.left = if is_useful { credit } else { 0 };
        self.from = now;
    }

    /// Whether `cost` permits are left. Cost 0 has to ask.
    #[inline]
    pub(super) const fn has(&self, cost: u32) -> bool {
        cost > 0 && cost <= self.left
    }

    #[inline]
    pub(super) const fn take(&mut self, cost: u32) -> bool {
        let is_left = self.has(cost);
        if is_left {
            self.left -= cost;
            self.taken += cost;
        }
        is_left
    }

    /// Counts the permits that were taken. `now` was read after that.
    #[inline]
    pub(super) fn commit<P: Policy>(&mut self, policy: &P, state: &mut P::State, now: Tick) {
        if self.taken > 0 {
            // In another runtime the clock may have gone back.
            let passed = policy.decide(state, now.max(self.from), self.taken);
            debug_assert!(
                passed.is_pass(),
                "prefetched permits pass whenever they are counted"
            );
            // If the policy panics, they are still to be counted.
            self.taken = 0;
        }
    }

    pub(super) const fn is_committed(&self) -> bool {
        self.taken == 0
    }

    /// Offers what is left to all threads.
    #[inline]
    pub(super) fn offer_to(&self, offer: &Offer) {
        if self.left > 0 {
            offer.begin(self.left);
        }
    }

    /// Ends the offer, and returns how many requests have taken of it.
    #[inline]
    pub(super) fn reclaim(&mut self, offer: &Offer) -> u32 {
        if self.left == 0 {
            return 0;
        }
        let (left, requests) = offer.end();
        self.taken += self.left - left;
        self.left = 0;
        requests
    }
}
