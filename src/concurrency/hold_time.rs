//! The estimated wait for permits, an option. The mean hold time is the time in use, summed over all permits, for each
//! permit that was released. The k-th request waits about k times that, divided by the number of permits. This is a guess,
//! and may refuse a request that would have been in time. It refuses nothing until each permit has come back once on
//! average, or while a permit is free and no request waits.

use core::time::Duration;

use crate::time::Tick;

/// The mean time for which permits are held, over the recent past.
///
/// It is the time for which permits were in use, summed over all of them, for each permit that was released. So it needs no time
/// for each permit, and a permit that does not come back counts, too.
#[derive(Default)]
pub(super) struct HoldTime {
    counted_until: Tick,
    /// Nanoseconds for which permits were in use, summed over the permits.
    held: u128,
    released: u64,
}

impl HoldTime {
    /// Counts the permits that were in use until now. To be called before their number changes.
    pub(super) fn count(&mut self, now: Tick, in_use: u32) {
        let time = now.since(self.counted_until);
        self.held = self
            .held
            .saturating_add(time.as_nanos() * u128::from(in_use));
        self.counted_until = self.counted_until.max(now);
    }

    /// What is older than four to eight rounds of all permits is forgotten step by step.
    pub(super) fn release(&mut self, count: u32, limit: u32) {
        self.released = self.released.saturating_add(count.into());
        if self.released >= 8 * u64::from(limit.max(2)) {
            self.released /= 2;
            self.held /= 2;
        }
    }

    /// How long it takes until `count` permits of `limit` come back, each with a `cooldown` after that. Zero until each permit
    /// has come back once on average.
    pub(super) fn until_returned(&self, count: u64, limit: u32, cooldown: Duration) -> Duration {
        if limit == 0 || self.released < limit.into() {
            return Duration::ZERO;
        }
        let unavailable = self.held / u128::from(self.released) + cooldown.as_nanos();
        let wait = unavailable.saturating_mul(count.into()) / u128::from(limit);
        u64::try_from(wait).map_or(Duration::MAX, Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 4;

    fn at(millis: u64) -> Tick {
        Tick::ZERO.after(Duration::from_millis(millis))
    }

    /// All permits are taken at once, and come back so many milliseconds later, as often as this.
    fn rounds(hold: &mut HoldTime, start: u64, millis: u64, count: u64) -> u64 {
        for round in 1..=count {
            hold.count(at(start + round * millis), LIMIT);
            for _ in 0..LIMIT {
                hold.release(1, LIMIT);
            }
        }
        start + count * millis
    }

    fn one(hold: &HoldTime) -> u128 {
        hold.until_returned(1, LIMIT, Duration::ZERO).as_millis()
    }

    #[test]
    fn a_permit_of_n_comes_back_in_one_nth_of_the_time_for_which_each_is_held() {
        let mut hold = HoldTime::default();
        rounds(&mut hold, 0, 100, 1);
        let wait = |count, cooldown| hold.until_returned(count, LIMIT, cooldown).as_millis();
        assert_eq!(
            [1, 2, 40].map(|count| wait(count, Duration::ZERO)),
            [25, 50, 1_000]
        );
        assert_eq!(wait(1, Duration::from_millis(60)), 40);
    }

    #[test]
    fn nothing_is_known_before_as_many_permits_have_come_back_as_there_are() {
        let mut hold = HoldTime::default();
        for millis in 1..=3 {
            hold.count(at(millis), LIMIT);
            hold.release(1, LIMIT);
            assert_eq!(one(&hold), 0);
        }
        hold.count(at(4), LIMIT);
        hold.release(1, LIMIT);
        assert_eq!(one(&hold), 1);
        assert_eq!(hold.until_returned(1, 0, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn the_mean_follows_after_some_rounds() {
        let mut hold = HoldTime::default();
        let now = rounds(&mut hold, 0, 100, 20);
        assert_eq!(one(&hold), 25);
        let now = rounds(&mut hold, now, 300, 5);
        assert!((50..75).contains(&one(&hold)), "{}", one(&hold));
        let now = rounds(&mut hold, now, 300, 20);
        assert!((74..=75).contains(&one(&hold)), "{}", one(&hold));
        rounds(&mut hold, now, 10, 60);
        assert_eq!(one(&hold), 2, "10 ms of 4");
    }

    #[test]
    fn permits_that_do_not_come_back_count_as_they_are_held() {
        let mut hold = HoldTime::default();
        let now = rounds(&mut hold, 0, 100, 1);
        hold.count(at(now + 400), LIMIT);
        assert_eq!(one(&hold), 125);
        hold.count(at(now + 9_400), 0);
        assert_eq!(
            one(&hold),
            125,
            "while none is in use the time does not count"
        );
    }

    #[test]
    fn the_largest_numbers_have_room_and_a_clock_may_go_back() {
        let mut hold = HoldTime::default();
        hold.count(Tick::MAX, u32::MAX);
        hold.count(Tick::ZERO, u32::MAX);
        hold.count(Tick::MAX, u32::MAX);
        hold.release(u32::MAX, u32::MAX);
        assert_eq!(
            hold.until_returned(u64::MAX, u32::MAX, Duration::MAX),
            Duration::MAX
        );
        assert_eq!(
            hold.until_returned(1, u32::MAX, Duration::ZERO).as_nanos(),
            u128::from(u64::MAX / u64::from(u32::MAX))
        );
    }
}
