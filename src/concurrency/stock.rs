use core::time::Duration;
use std::collections::VecDeque;

use crate::time::Tick;

/// The sums of [`Permits`](super::Permits): how many there are, how many are in use, and which cool down until when.
///
/// Every permit is in use, cooling down or free. It is given the time, and never asks for it.
#[derive(Debug)]
pub(super) struct Stock {
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
    /// How many will have come back then, ever. Sums instead of numbers, so that to find an instant is a binary search.
    back: u64,
}

/// When so many permits can be had, if nobody takes any before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outlook {
    Now,
    At(Tick),
    /// Not before some are released, or there are more.
    Unknown,
    /// There are never so many, unless the limit grows.
    TooMany,
}

impl Outlook {
    /// When whoever asked has something to come for `now`: permits, or to hear that they are too many.
    pub(super) fn turn_at(self, now: Tick) -> Tick {
        match self {
            Self::Now | Self::TooMany => now,
            Self::At(due) => due,
            Self::Unknown => Tick::MAX,
        }
    }
}

impl Stock {
    pub(super) const fn new(limit: u32) -> Self {
        Self {
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

    /// To be called when the outlook is [`Outlook::Now`].
    pub(super) fn take(&mut self, count: u32) {
        self.in_use += u64::from(count);
    }

    pub(super) fn release(&mut self, now: Tick, count: u32) {
        self.in_use = self.in_use.saturating_sub(u64::from(count));
        if !self.cooldown.is_zero() {
            self.cool(now.after(self.cooldown), count);
        }
    }

    pub(super) fn outlook(&mut self, now: Tick, count: u32) -> Outlook {
        self.settle(now);
        let missing =
            (self.in_use + self.cooling() + u64::from(count)).saturating_sub(u64::from(self.limit));
        if count == 0 || missing == 0 {
            return Outlook::Now;
        }
        // A limit of zero is a pause, and says nothing about how many there will be after it.
        if count > self.limit && self.limit > 0 {
            return Outlook::TooMany;
        }
        let needed = self.back + missing;
        let first = self.cooling.partition_point(|some| some.back < needed);
        match self.cooling.get(first) {
            Some(some) if self.limit > 0 => Outlook::At(some.until),
            _ => Outlook::Unknown,
        }
    }

    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn in_use(&self) -> u32 {
        u32::try_from(self.in_use).unwrap_or(u32::MAX)
    }

    /// Whether what it says depends on the time.
    pub(super) fn keeps_time(&self) -> bool {
        !self.cooldown.is_zero() || !self.cooling.is_empty()
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn cooling(limit: u32, nanos: u64) -> Stock {
        let mut stock = Stock::new(limit);
        stock.set_cooldown(Duration::from_nanos(nanos));
        stock
    }

    #[test]
    fn without_a_cooldown_a_permit_comes_back_when_it_is_released() {
        let mut stock = Stock::new(3);
        assert_eq!(stock.outlook(at(0), 3), Outlook::Now);
        stock.take(2);

        assert_eq!(stock.outlook(at(0), 1), Outlook::Now);
        assert_eq!(stock.outlook(at(0), 2), Outlook::Unknown);
        assert_eq!(stock.outlook(at(0), 4), Outlook::TooMany);
        stock.release(at(0), 1);
        assert_eq!(stock.outlook(at(0), 2), Outlook::Now);
        assert_eq!(stock.in_use(), 1);
        assert!(!stock.keeps_time());
    }

    #[test]
    fn a_permit_comes_back_one_cooldown_after_its_release_and_not_a_nanosecond_before() {
        let mut stock = cooling(2, 10);
        stock.take(2);
        stock.release(at(5), 1);
        assert_eq!(stock.in_use(), 1);

        assert_eq!(stock.outlook(at(5), 1), Outlook::At(at(15)));
        assert_eq!(stock.outlook(at(14), 1), Outlook::At(at(15)));
        assert_eq!(stock.outlook(at(14), 2), Outlook::Unknown);
        assert_eq!(stock.outlook(at(15), 1), Outlook::Now);
    }

    #[test]
    fn many_permits_can_be_had_when_enough_have_come_back() {
        let mut stock = cooling(6, 10);
        stock.take(6);
        for (now, count) in [(1, 2), (1, 1), (3, 2), (4, 1)] {
            stock.release(at(now), count);
        }

        let due = [11, 11, 11, 13, 13, 14];
        for (count, due) in (1..).zip(due) {
            assert_eq!(stock.outlook(at(4), count), Outlook::At(at(due)), "{count}");
        }
        assert_eq!(stock.outlook(at(11), 3), Outlook::Now);
        stock.take(3);
        assert_eq!(stock.outlook(at(11), 1), Outlook::At(at(13)));
        assert_eq!(stock.outlook(at(11), 3), Outlook::At(at(14)));
        assert_eq!(stock.outlook(at(14), 3), Outlook::Now);
    }

    #[test]
    fn a_smaller_limit_takes_effect_as_permits_come_back() {
        let mut stock = cooling(4, 10);
        stock.take(4);
        stock.resize(2);
        for now in 0..3 {
            assert_eq!(stock.outlook(at(now), 1), Outlook::Unknown, "at {now}");
            stock.release(at(now), 1);
        }
        assert_eq!(stock.outlook(at(3), 1), Outlook::At(at(12)));
        assert_eq!(stock.outlook(at(3), 2), Outlook::Unknown);
        stock.release(at(3), 1);

        assert_eq!(stock.outlook(at(4), 1), Outlook::At(at(12)));
        assert_eq!(stock.outlook(at(4), 2), Outlook::At(at(13)));
        assert_eq!(stock.outlook(at(4), 3), Outlook::TooMany);
        stock.resize(4);
        assert_eq!(stock.outlook(at(4), 1), Outlook::At(at(10)));
    }

    #[test]
    fn a_limit_of_zero_lets_nothing_pass_and_judges_nobody() {
        let mut stock = cooling(2, 10);
        stock.take(1);
        stock.release(at(0), 1);
        stock.resize(0);

        for now in [0, 10, 1_000] {
            assert_eq!(stock.outlook(at(now), 1), Outlook::Unknown);
            assert_eq!(stock.outlook(at(now), 9), Outlook::Unknown);
            assert_eq!(stock.outlook(at(now), 0), Outlook::Now);
        }
        stock.resize(1);
        assert_eq!(stock.outlook(at(1_000), 1), Outlook::Now);
    }

    #[test]
    fn a_clock_that_goes_back_lets_nobody_come_back_early() {
        let mut stock = cooling(2, 10);
        stock.take(2);
        stock.release(at(100), 1);
        stock.release(at(50), 1);

        assert_eq!(stock.outlook(at(109), 1), Outlook::At(at(110)));
        assert_eq!(stock.outlook(at(110), 2), Outlook::Now);
    }

    #[test]
    fn the_largest_numbers_have_room() {
        let mut stock = Stock::new(u32::MAX);
        stock.set_cooldown(Duration::MAX);
        stock.take(u32::MAX);
        assert_eq!(stock.outlook(at(0), u32::MAX), Outlook::Unknown);
        stock.release(at(1), u32::MAX);
        assert_eq!(stock.outlook(at(1), u32::MAX), Outlook::At(Tick::MAX));
    }
}
