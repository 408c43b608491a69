use core::time::Duration;

/// How much earlier than an instant to be woken, so that one is hardly ever woken after it.
///
/// It follows the lateness of the wake-ups themselves: so far up that one in so many comes later still. Each one moves it by a
/// small step, a late one up and any other down a little, so that it stands still where so many steps down are one step up:
/// the stochastic approximation of a quantile (Robbins and Monro, 1951).
#[derive(Clone, Copy, Debug)]
pub(super) struct Lead {
    nanos: u32,
    /// How many are in time for one that is not.
    odds: u32,
    learned: u32,
}

/// One step down. A step up is as long as several of them.
const STEP: u32 = 50;

/// The first steps are so many times as large.
const FIRST: u32 = 32;

/// To wait for the rest of it keeps a core busy, so it has an end. Who was later still says nothing: they were busy with
/// something else, or the machine was.
const MOST: u32 = 100_000;

impl Lead {
    pub(super) const fn new(odds: u32) -> Self {
        Self {
            nanos: 40_000,
            odds,
            learned: 0,
        }
    }

    pub(super) fn get(self) -> Duration {
        Duration::from_nanos(self.nanos.into())
    }

    /// One was woken so long after the instant that was asked for.
    pub(super) fn learn(&mut self, late: Duration) {
        if late > Duration::from_nanos(MOST.into()) {
            return;
        }
        let is_late = late > self.get();
        let step = self.step();
        self.learned = self.learned.saturating_add(1);
        self.nanos = if is_late {
            (self.nanos + step * self.odds).min(MOST)
        } else {
            self.nanos.saturating_sub(step)
        };
    }

    /// Large steps to begin with, when it is as good as unknown where it should stand.
    fn step(self) -> u32 {
        STEP * (FIRST / (1 + self.learned / 8)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn it_settles_where_one_in_twenty_is_later() {
        let mut lead = Lead::new(19);
        for n in 0..20_000_u64 {
            // From 10 to 19.9 µs, each as often.
            lead.learn(micros(10) + Duration::from_nanos(n * 37 % 100 * 100));
        }
        let settled = lead.get();
        assert!(micros(18) < settled && settled < micros(21), "{settled:?}");
    }

    #[test]
    fn it_has_an_end_and_who_is_later_still_says_nothing() {
        let mut lead = Lead::new(19);
        for _ in 0..1_000 {
            lead.learn(micros(5_000));
        }
        assert_eq!(lead.get(), micros(40));
        for _ in 0..1_000 {
            lead.learn(micros(100));
        }
        assert!(lead.get() >= micros(99), "{:?}", lead.get());
        for _ in 0..10_000 {
            lead.learn(Duration::ZERO);
        }
        assert_eq!(lead.get(), Duration::ZERO);
    }
}
