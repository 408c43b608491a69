use core::mem;
use core::time::Duration;
use std::sync::{Arc, OnceLock};

use crate::limiter::{SharedObserver, Stats};
use crate::policy::{Decision, Ledger};
use crate::time::{Clock, Tick};
use crate::wait::{Intent, Offer, Resource, WaitQueue, Waiters};

use super::hold_time::HoldTime;

/// The state of [`Permits`](super::Permits). Every permit is in use, cooling down or free.
pub(super) struct SemaphoreState {
    clock: Clock,
    pub(super) limit: u32,
    cooldown: Duration,
    /// How long permits are held, to estimate a wait.
    hold_time: Option<HoldTime>,
    /// Whether keys pay for the time for which they hold permits.
    counts_time: bool,
    /// Whether the time matters: there is a cool-down, keys pay for it, or waits are estimated.
    reads_clock: bool,
    pub(super) in_use: u32,
    /// Whether the free permits may be taken without the lock. What is in use is known when the offer has ended.
    is_offered: bool,
    /// The permits that cool down, with the ticks at which they become free. If the clock goes back, which it may between
    /// two runtimes, a permit still becomes free after those released before it.
    cooling: Ledger,
    pub(super) stats: Stats,
    /// Of the permits of one key.
    pub(super) keeper: Option<Arc<dyn Keeper>>,
}

/// Remembers the permits of one key.
pub(super) trait Keeper: Send + Sync {
    /// A permit cools down from now on. The permits are remembered for as long.
    fn keep_while_cooling(&self, permits: Arc<WaitQueue<SemaphoreState>>);

    /// The permits are gone: they were not in use, no handle waited for them, and none was cooling down.
    fn forget(&self, stats: Stats);
}

impl SemaphoreState {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            clock: Clock::new(),
            limit,
            cooldown: Duration::ZERO,
            hold_time: None,
            counts_time: false,
            reads_clock: false,
            in_use: 0,
            is_offered: false,
            cooling: Ledger::default(),
            stats: Stats::default(),
            keeper: None,
        }
    }

    pub(super) fn set_cooldown(&mut self, cooldown: Duration) {
        self.cooldown = cooldown;
        self.reads_clock = !cooldown.is_zero() || self.hold_time.is_some() || self.counts_time;
    }

    pub(super) const fn count_time(&mut self) {
        self.counts_time = true;
        self.reads_clock = true;
    }

    pub(super) fn estimate_waits(&mut self) {
        self.hold_time = Some(HoldTime::default());
        self.reads_clock = true;
    }

    /// How long a request for one permit waits behind the queued ones, as far as that is known or estimated; zero if not.
    pub(super) fn wait_behind(&mut self, waiters: &Waiters) -> Duration {
        let now = self.now(!waiters.is_empty());
        let wait = self.availability(now, 1).retry_in();
        let known = wait.filter(|wait| *wait < Duration::MAX);
        let first = known.unwrap_or_else(|| self.estimated_wait(0));
        if waiters.is_empty() {
            return first;
        }
        let behind = first.max(self.estimated_wait(waiters.cost()));
        // The newest request may become the first before.
        behind.min(first.max(waiters.newest_first_at().since(now)))
    }

    /// How long it probably takes until `ahead` permits and one more have come back; zero if that is not known.
    fn estimated_wait(&self, ahead: u64) -> Duration {
        let Some(hold_time) = &self.hold_time else {
            return Duration::ZERO;
        };
        let wanted = u64::from(self.in_use) + self.cooling.spent_from(0) + ahead + 1;
        let missing = wanted.saturating_sub(self.limit.into());
        hold_time.until_returned(missing, self.limit, self.cooldown)
    }

    /// Returns whether the keeper has to remember the permits, since the released ones cool down.
    #[inline]
    pub(super) fn release(&mut self, now: Tick, count: u32) -> bool {
        self.in_use = self.in_use.saturating_sub(count);
        if !self.reads_clock {
            return false;
        }
        if let Some(hold_time) = &mut self.hold_time {
            hold_time.release(count, self.limit);
        }
        if self.cooldown.is_zero() {
            return false;
        }
        let free_at = now.after(self.cooldown);
        self.cooling.spend(free_at.as_nanos(), count);
        self.keeper.is_some()
    }

    /// When `count` permits are free, if no other request takes permits before.
    fn availability(&mut self, now: Tick, count: u32) -> Decision {
        let mut cooling = 0;
        if !self.cooling.is_empty() {
            self.cooling.forget(now.as_nanos());
            cooling = self.cooling.spent_from(0);
        }
        let used = u64::from(self.in_use) + cooling + u64::from(count);
        let missing = used.saturating_sub(u64::from(self.limit));
        if count == 0 || missing == 0 {
            return Decision::Pass;
        }
        // A limit of zero is a pause. How many permits there will be after it is not known.
        if count > self.limit && self.limit > 0 {
            return Decision::Never {
                capacity: self.limit,
            };
        }
        // The request passes when at most `room` permits still cool down.
        let room = cooling.checked_sub(missing).filter(|_| self.limit > 0);
        let free_at = room.and_then(|room| self.cooling.must_go(room));
        Decision::Wait {
            // Without end, until permits are released or the limit grows.
            retry_in: free_at.map_or(Duration::MAX, |at| Tick::from_nanos(at).since(now)),
        }
    }
}

/// What the permits have beside the lock.
#[derive(Default)]
pub(super) struct Front {
    offer: Offer,
    pub(super) observer: OnceLock<SharedObserver>,
}

impl Front {
    /// Releases permits without the lock, if nobody waits for them.
    #[inline]
    pub(super) fn release(&self, count: u32) -> bool {
        self.offer.give_back(count)
    }
}

impl Resource for SemaphoreState {
    type Front = Front;

    /// The limit may grow until it is the waiter's turn, so a waiter for more permits than the limit is not refused before.
    const REFUSES_QUEUED: bool = false;

    const MAY_BE_DIVIDED: bool = true;

    #[inline]
    fn take_prefetched(front: &Front, intent: Intent, cost: u32) -> bool {
        front.offer.take(intent, cost)
    }

    #[inline]
    fn reclaim(&mut self, front: &Front) {
        if mem::take(&mut self.is_offered) {
            let (free, requests) = front.offer.end();
            self.in_use = self.limit - free;
            self.stats.passed += u64::from(requests);
        }
    }

    /// Every free permit, if the time does not matter. Those of a key are counted when its queue is forgotten, which knows no front.
    #[inline]
    fn prefetch(&mut self, front: &Front, _now: Tick, _cost: u32) {
        let is_timeless = !self.reads_clock && self.cooling.is_empty();
        let free = self.limit.checked_sub(self.in_use);
        if let Some(free) = free.filter(|_| is_timeless && self.keeper.is_none()) {
            front.offer.begin(free);
            self.is_offered = true;
        }
    }

    /// Without a cool-down and without waiters the time does not matter. Every change of the permits in use reads it before.
    fn now(&mut self, is_queued: bool) -> Tick {
        let is_needed = is_queued || self.reads_clock || !self.cooling.is_empty();
        if !is_needed {
            return Tick::ZERO;
        }
        let now = self.clock.now();
        if let Some(hold_time) = &mut self.hold_time {
            hold_time.count(now, self.in_use);
        }
        now
    }

    fn decide(&mut self, intent: Intent, now: Tick, cost: u32) -> Decision {
        let decision = self.availability(now, cost);
        if decision.is_pass() && intent == Intent::Acquire {
            self.in_use += cost;
            self.stats.passed += u64::from(cost > 0);
        }
        decision
    }

    fn on_queued(&mut self) {
        self.stats.held_back += 1;
    }
}

impl Drop for SemaphoreState {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.forget(self.stats);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Eq, PartialEq)]
    enum Outlook {
        Now,
        At(Tick),
        /// Not before permits are released, or the limit grows.
        Unknown,
        TooMany,
    }

    impl SemaphoreState {
        fn outlook(&mut self, now: Tick, count: u32) -> Outlook {
            match self.decide(Intent::Peek, now, count) {
                Decision::Pass => Outlook::Now,
                Decision::Wait { retry_in } if retry_in == Duration::MAX => Outlook::Unknown,
                Decision::Wait { retry_in } => Outlook::At(now.after(retry_in)),
                Decision::Never { .. } => Outlook::TooMany,
            }
        }

        fn take(&mut self, count: u32) {
            self.in_use += count;
        }
    }

    const fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn cooling(limit: u32, nanos: u64) -> SemaphoreState {
        let mut permits = SemaphoreState::new(limit);
        permits.set_cooldown(Duration::from_nanos(nanos));
        permits
    }

    #[test]
    fn without_a_cooldown_a_permit_comes_back_when_it_is_released() {
        let mut permits = SemaphoreState::new(3);
        assert_eq!(permits.outlook(at(0), 3), Outlook::Now);
        permits.take(2);

        assert_eq!(permits.outlook(at(0), 1), Outlook::Now);
        assert_eq!(permits.outlook(at(0), 2), Outlook::Unknown);
        assert_eq!(permits.outlook(at(0), 4), Outlook::TooMany);
        permits.release(at(0), 1);
        assert_eq!(permits.outlook(at(0), 2), Outlook::Now);
        assert_eq!(permits.in_use, 1);
        assert_eq!(permits.now(false), Tick::ZERO, "the time does not matter");
    }

    #[test]
    fn a_permit_comes_back_one_cooldown_after_its_release_and_not_a_nanosecond_before() {
        let mut permits = cooling(2, 10);
        permits.take(2);
        permits.release(at(5), 1);
        assert_eq!(permits.in_use, 1);

        assert_eq!(permits.outlook(at(5), 1), Outlook::At(at(15)));
        assert_eq!(permits.outlook(at(14), 1), Outlook::At(at(15)));
        assert_eq!(permits.outlook(at(14), 2), Outlook::Unknown);
        assert_eq!(permits.outlook(at(15), 1), Outlook::Now);
    }

    #[test]
    fn many_permits_can_be_had_when_enough_have_come_back() {
        let mut permits = cooling(6, 10);
        permits.take(6);
        for (now, count) in [(1, 2), (1, 1), (3, 2), (4, 1)] {
            permits.release(at(now), count);
        }

        let due = [11, 11, 11, 13, 13, 14];
        for (count, due) in (1..).zip(due) {
            assert_eq!(
                permits.outlook(at(4), count),
                Outlook::At(at(due)),
                "{count}"
            );
        }
        assert_eq!(permits.outlook(at(11), 3), Outlook::Now);
        permits.take(3);
        assert_eq!(permits.outlook(at(11), 1), Outlook::At(at(13)));
        assert_eq!(permits.outlook(at(11), 3), Outlook::At(at(14)));
        assert_eq!(permits.outlook(at(14), 3), Outlook::Now);
    }

    #[test]
    fn a_smaller_limit_takes_effect_as_permits_come_back() {
        let mut permits = cooling(4, 10);
        permits.take(4);
        permits.limit = 2;
        for now in 0..3 {
            assert_eq!(permits.outlook(at(now), 1), Outlook::Unknown, "at {now}");
            permits.release(at(now), 1);
        }
        assert_eq!(permits.outlook(at(3), 1), Outlook::At(at(12)));
        assert_eq!(permits.outlook(at(3), 2), Outlook::Unknown);
        permits.release(at(3), 1);

        assert_eq!(permits.outlook(at(4), 1), Outlook::At(at(12)));
        assert_eq!(permits.outlook(at(4), 2), Outlook::At(at(13)));
        assert_eq!(permits.outlook(at(4), 3), Outlook::TooMany);
        permits.limit = 4;
        assert_eq!(permits.outlook(at(4), 1), Outlook::At(at(10)));
    }

    #[test]
    fn a_limit_of_zero_is_a_pause_and_refuses_no_request() {
        let mut permits = cooling(2, 10);
        permits.take(1);
        permits.release(at(0), 1);
        permits.limit = 0;

        for now in [0, 10, 1_000] {
            assert_eq!(permits.outlook(at(now), 1), Outlook::Unknown);
            assert_eq!(permits.outlook(at(now), 9), Outlook::Unknown);
            assert_eq!(permits.outlook(at(now), 0), Outlook::Now);
        }
        permits.limit = 1;
        assert_eq!(permits.outlook(at(1_000), 1), Outlook::Now);
    }

    #[test]
    fn a_clock_that_goes_back_returns_no_permit_early() {
        let mut permits = cooling(2, 10);
        permits.take(2);
        permits.release(at(100), 1);
        permits.release(at(50), 1);

        assert_eq!(permits.outlook(at(109), 1), Outlook::At(at(110)));
        assert_eq!(permits.outlook(at(110), 2), Outlook::Now);
    }

    #[test]
    fn the_largest_numbers_have_room() {
        let mut permits = SemaphoreState::new(u32::MAX);
        permits.set_cooldown(Duration::MAX);
        permits.take(u32::MAX);
        assert_eq!(permits.outlook(at(0), u32::MAX), Outlook::Unknown);
        permits.release(at(1), u32::MAX);
        assert_eq!(permits.outlook(at(1), u32::MAX), Outlook::At(Tick::MAX));
    }
}
