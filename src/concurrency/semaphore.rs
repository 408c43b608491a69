use core::time::Duration;
use std::collections::VecDeque;

use crate::policy::Decision;
use crate::time::{Clock, Tick};
use crate::wait::{Intent, Resource};

/// The state of [`Permits`](super::Permits): how many there are, how many are in use, and which cool down until when.
///
/// Every permit is in use, cooling down or free.
#[derive(Debug)]
pub(super) struct SemaphoreState {
    clock: Clock,
    limit: u32,
    cooldown: Duration,
    in_use: u64,
    /// In the order in which they come back.
    cooling: VecDeque<Cooling>,
    /// How many have come back from cooling down, ever.
    back: u64,
}

/// Permits that come back together.
#[derive(Debug)]
struct Cooling {
    until: Tick,
    /// How many will have come back then, ever. Sums instead of numbers, so that finding an instant is a binary search.
    back: u64,
}

impl SemaphoreState {
    pub(super) const fn new(limit: u32) -> Self {
        Self {
            clock: Clock::new(),
            limit,
            cooldown: Duration::ZERO,
            in_use: 0,
            cooling: VecDeque::new(),
            back: 0,
        }
    }

    pub(super) fn set_cooldown(&mut self, cooldown: Duration) {
        self.cooldown = cooldown;
    }

    pub(super) fn resize(&mut self, limit: u32) {
        self.limit = limit;
    }

    pub(super) fn release(&mut self, now: Tick, count: u32) {
        self.in_use = self.in_use.saturating_sub(u64::from(count));
        if !self.cooldown.is_zero() {
            self.cool(now.after(self.cooldown), count);
        }
    }

    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn in_use(&self) -> u32 {
        u32::try_from(self.in_use).unwrap_or(u32::MAX)
    }

    /// When that many permits can be had, if no others are taken before.
    fn availability(&mut self, now: Tick, count: u32) -> Decision {
        self.settle(now);
        let used = self.in_use + self.cooling() + u64::from(count);
        let missing = used.saturating_sub(u64::from(self.limit));
        if count == 0 || missing == 0 {
            return Decision::Pass;
        }
        // A limit of zero is a pause, and says nothing about how many there will be after it.
        if count > self.limit && self.limit > 0 {
            return Decision::Never {
                capacity: self.limit,
            };
        }
        let needed = self.back + missing;
        let first = self.cooling.partition_point(|some| some.back < needed);
        let known = self.cooling.get(first).filter(|_| self.limit > 0);
        Decision::Wait {
            // Without end: until some are released, or there are more.
            retry_in: known.map_or(Duration::MAX, |some| some.until.since(now)),
        }
    }

    /// How many cool down.
    fn cooling(&self) -> u64 {
        self.cooling.back().map_or(0, |last| last.back - self.back)
    }

    fn cool(&mut self, until: Tick, count: u32) {
        let back = self.back + self.cooling() + u64::from(count);
        match self.cooling.back_mut() {
            // Also if the clock went back, which it may between two runtimes: nobody comes back before those ahead.
            Some(last) if last.until >= until => last.back = back,
            _ => self.cooling.push_back(Cooling { until, back }),
        }
    }

    /// Those come back whose time has come.
    fn settle(&mut self, now: Tick) {
        while let Some(some) = self.cooling.front().filter(|some| some.until <= now) {
            self.back = some.back;
            self.cooling.pop_front();
        }
    }
}

impl Resource for SemaphoreState {
    type Prefetched = ();

    /// A waiter of more permits than there are now may still get them when the limit grows, until its turn comes.
    const REFUSES_QUEUED: bool = false;

    /// Without a cool-down and without waiters the time does not matter.
    fn now(&mut self, is_queued: bool) -> Tick {
        let is_needed = is_queued || !self.cooldown.is_zero() || !self.cooling.is_empty();
        if is_needed {
            self.clock.now()
        } else {
            Tick::ZERO
        }
    }

    fn decide(&mut self, intent: Intent, now: Tick, cost: u32) -> Decision {
        let decision = self.availability(now, cost);
        if decision.is_pass() && intent == Intent::Acquire {
            self.in_use += u64::from(cost);
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Eq, PartialEq)]
    enum Outlook {
        Now,
        At(Tick),
        /// Not before some are released, or there are more.
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
            self.in_use += u64::from(count);
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
        assert_eq!(permits.in_use(), 1);
        assert_eq!(permits.now(false), Tick::ZERO, "the time does not matter");
    }

    #[test]
    fn a_permit_comes_back_one_cooldown_after_its_release_and_not_a_nanosecond_before() {
        let mut permits = cooling(2, 10);
        permits.take(2);
        permits.release(at(5), 1);
        assert_eq!(permits.in_use(), 1);

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
        permits.resize(2);
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
        permits.resize(4);
        assert_eq!(permits.outlook(at(4), 1), Outlook::At(at(10)));
    }

    #[test]
    fn a_limit_of_zero_is_a_pause_and_refuses_no_request() {
        let mut permits = cooling(2, 10);
        permits.take(1);
        permits.release(at(0), 1);
        permits.resize(0);

        for now in [0, 10, 1_000] {
            assert_eq!(permits.outlook(at(now), 1), Outlook::Unknown);
            assert_eq!(permits.outlook(at(now), 9), Outlook::Unknown);
            assert_eq!(permits.outlook(at(now), 0), Outlook::Now);
        }
        permits.resize(1);
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
