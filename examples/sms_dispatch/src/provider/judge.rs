//! Two judges of one quota. One checks every window, the other checks fixed windows that begin at a phase unknown to the
//! client. They share no code with the library.

#![expect(
    clippy::disallowed_types,
    reason = "a provider has a clock of its own; sharing the library's would share its mistakes"
)]

use core::{mem, time::Duration};
use std::time::Instant;

use crate::strict::Sliding;

/// The length of the ban after a violation of the quota.
pub(super) const BAN: Duration = Duration::from_secs(2);

/// The violations of a client.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    /// Arrivals above the quota, as either judge counts.
    pub(crate) violations: u32,
    pub(crate) sliding: u32,
    pub(crate) fixed: u32,
    pub(crate) bans: u32,
    /// Arrivals above a quota that the client could not know yet. The refusal announced it.
    pub(crate) announcements: u32,
}

/// Counts arrivals, and bans a client that exceeds the quota.
#[derive(Debug)]
pub(super) struct Judge {
    sliding: Sliding,
    fixed: Fixed,
    /// Whether the client can know the quota, from the contract or from an answer.
    is_known: bool,
    banned_until: Option<Instant>,
    tally: Tally,
}

impl Judge {
    /// Allows at most `units` in a window. The first fixed window began `phase` before `start`.
    pub(super) const fn new(units: u32, window: Duration, start: Instant, phase: Duration) -> Self {
        Self {
            sliding: Sliding::new(units, window),
            fixed: Fixed {
                units,
                window,
                start,
                phase,
                index: 0,
                total: 0,
            },
            is_known: true,
            banned_until: None,
            tally: Tally {
                violations: 0,
                sliding: 0,
                fixed: 0,
                bans: 0,
                announcements: 0,
            },
        }
    }

    /// Changes to another quota without notice. Earlier arrivals count in its windows too.
    ///
    /// The next answer has to announce it. From then on the client is expected to keep it.
    pub(super) const fn lower(&mut self, units: u32, window: Duration, at: Instant) {
        self.sliding.units = units;
        self.sliding.window = window;
        self.fixed = Fixed {
            units,
            window,
            start: at,
            phase: self.fixed.phase,
            index: 0,
            total: 0,
        };
        self.is_known = false;
    }

    /// Judges an arrival. A refusal has the time to wait. Every arrival counts, including a refused one.
    pub(super) fn arrive(&mut self, at: Instant, cost: u32) -> Result<(), Duration> {
        let sliding = self.sliding.is_over(at, cost);
        let fixed = self.fixed.is_over(at, cost);
        let is_over = sliding || fixed;
        let was_known = mem::replace(&mut self.is_known, true);
        if was_known {
            self.tally.sliding += u32::from(sliding);
            self.tally.fixed += u32::from(fixed);
            self.tally.violations += u32::from(is_over);
        } else {
            self.tally.announcements += u32::from(is_over);
        }

        let left = self
            .banned_until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(at));
        if !left.is_zero() {
            return Err(left);
        }
        match (is_over, was_known) {
            (false, _) => Ok(()),
            // One window later none of the arrivals that exceeded it counts any more.
            (true, false) => Err(self.sliding.window),
            (true, true) => {
                self.tally.bans += 1;
                self.banned_until = Some(at + BAN);
                Err(BAN)
            }
        }
    }

    pub(super) const fn tally(&self) -> Tally {
        self.tally
    }
}

/// The sum over the fixed window of the arrival.
#[derive(Debug)]
struct Fixed {
    units: u32,
    window: Duration,
    start: Instant,
    phase: Duration,
    index: u128,
    total: u32,
}

impl Fixed {
    fn is_over(&mut self, at: Instant, cost: u32) -> bool {
        let since = at.saturating_duration_since(self.start) + self.phase;
        let index = since.as_nanos() / self.window.as_nanos();
        if index != self.index {
            self.index = index;
            self.total = 0;
        }
        self.total += cost;
        self.total > self.units
    }
}

#[cfg(test)]
mod tests {
    use super::{BAN, Duration, Instant, Judge, Tally};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn arrivals_exactly_a_window_apart_pass() {
        let start = Instant::now();
        let mut judge = Judge::new(1, ms(50), start, Duration::ZERO);

        for k in 0..5 {
            assert_eq!(judge.arrive(start + ms(50) * k, 1), Ok(()));
        }
        assert_eq!(judge.tally(), Tally::default());
    }

    #[test]
    fn only_the_sliding_judge_finds_an_arrival_a_nanosecond_too_early() {
        let start = Instant::now();
        let mut judge = Judge::new(1, ms(50), start, Duration::ZERO);

        assert_eq!(judge.arrive(start + ms(30), 1), Ok(()));
        assert_eq!(
            judge.arrive(
                (start + ms(80))
                    .checked_sub(Duration::from_nanos(1))
                    .unwrap(),
                1
            ),
            Err(BAN)
        );
        assert_eq!(
            judge.tally(),
            Tally {
                violations: 1,
                sliding: 1,
                fixed: 0,
                bans: 1,
                announcements: 0
            }
        );
    }

    #[test]
    fn costs_are_summed_over_every_window() {
        let start = Instant::now();
        let mut judge = Judge::new(10, ms(100), start, Duration::ZERO);

        assert_eq!(judge.arrive(start + ms(60), 6), Ok(()));
        assert_eq!(judge.arrive(start + ms(99), 4), Ok(()));
        // The six have left the window, the four have not.
        assert_eq!(judge.arrive(start + ms(160), 6), Ok(()));
        assert_eq!(judge.arrive(start + ms(198), 1), Err(BAN));
    }

    #[test]
    fn both_judges_can_object_to_one_arrival() {
        let start = Instant::now();
        let mut judge = Judge::new(1, ms(50), start, Duration::ZERO);

        assert_eq!(judge.arrive(start + ms(10), 1), Ok(()));
        assert_eq!(judge.arrive(start + ms(20), 1), Err(BAN));
        assert_eq!(
            judge.tally(),
            Tally {
                violations: 1,
                sliding: 1,
                fixed: 1,
                bans: 1,
                announcements: 0
            }
        );
    }

    #[test]
    fn the_phase_moves_the_fixed_windows() {
        let start = Instant::now();
        let mut fixed = Judge::new(1, ms(50), start, ms(40)).fixed;

        assert!(!fixed.is_over(start + ms(9), 1));
        assert!(!fixed.is_over(start + ms(10), 1));
        assert!(fixed.is_over(start + ms(59), 1));
    }

    #[test]
    fn a_ban_refuses_everything_and_ends() {
        let start = Instant::now();
        let mut judge = Judge::new(1, ms(50), start, Duration::ZERO);
        assert_eq!(judge.arrive(start, 1), Ok(()));
        assert_eq!(judge.arrive(start, 1), Err(BAN));

        assert_eq!(judge.arrive(start + ms(1500), 1), Err(ms(500)));
        assert_eq!(judge.arrive(start + BAN, 1), Ok(()));
        assert_eq!(judge.tally().bans, 1);
    }
    #[test]
    fn a_lowered_quota_counts_earlier_arrivals_and_one_refusal_announces_it() {
        let start = Instant::now();
        let mut judge = Judge::new(1, ms(250), start, Duration::ZERO);
        for k in 0..4 {
            assert_eq!(judge.arrive(start + ms(250) * k, 1), Ok(()));
        }
        judge.lower(3, ms(1000), start + ms(1000));

        // The arrivals at 250, 500 and 750 ms are in its window.
        assert_eq!(judge.arrive(start + ms(1000), 1), Err(ms(1000)));
        let announced = Tally {
            announcements: 1,
            ..Tally::default()
        };
        assert_eq!(judge.tally(), announced);

        // Exactly the wait of the refusal.
        for k in 0..3 {
            assert_eq!(judge.arrive(start + ms(2000 + k), 1), Ok(()));
        }
        assert_eq!(judge.arrive(start + ms(2999), 1), Err(BAN));
        assert_eq!(judge.tally().violations, 1);
        assert_eq!(judge.tally().announcements, 1);
    }

    #[test]
    fn after_an_accepting_answer_announced_it_every_excess_is_a_violation() {
        let start = Instant::now();
        let mut judge = Judge::new(1, ms(250), start, Duration::ZERO);
        assert_eq!(judge.arrive(start, 1), Ok(()));
        assert_eq!(judge.arrive(start + ms(250), 1), Ok(()));
        judge.lower(3, ms(1000), start + ms(500));

        assert_eq!(judge.arrive(start + ms(500), 1), Ok(()));
        assert_eq!(judge.arrive(start + ms(750), 1), Err(BAN));
        assert_eq!(judge.tally().announcements, 0);
        assert_eq!(judge.tally().violations, 1);
    }
}
