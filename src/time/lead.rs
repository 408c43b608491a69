use core::time::Duration;

/// How long a wait is: shorter than 900 µs, or in which doubling of that, the last of which has no end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Span(usize);

/// From here on a wait is a long one.
const LONG: Duration = Duration::from_micros(900);

/// Of one short span and four long ones.
const SPANS: [Quantile; 5] = [
    Quantile::of(19, 1, 100_000),
    Quantile::of(3, 1, 100_000),
    Quantile::of(3, 1, 200_000),
    Quantile::of(1, 1, 400_000),
    Quantile::of(1, 2, 800_000),
];

impl Span {
    pub(super) fn of(wait: Duration) -> Self {
        let longs = wait.as_nanos() / LONG.as_nanos();
        let doublings = longs.checked_ilog2().map_or(0, |log| log as usize + 1);
        Self(doublings.min(SPANS.len() - 1))
    }
}

/// How much earlier than an instant to be woken, so that one is not often woken after it: for waits of each span.
///
/// A core that sleeps for longer sleeps deeper and wakes later, so they are learnt apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leads([Lead; SPANS.len()]);

impl Leads {
    pub(super) const fn new() -> Self {
        Self([Lead::new(); SPANS.len()])
    }

    pub(super) fn get(&self, span: Span) -> Duration {
        Duration::from_nanos(self.0[span.0].nanos.into())
    }

    /// One was woken so long after the instant that was asked for.
    pub(super) fn learn(&mut self, span: Span, late: Duration) {
        self.0[span.0].learn(SPANS[span.0], late);
    }
}

/// What is aimed at.
///
/// To be early costs processor time, and to be late a part of the wait. So of short waits nineteen in twenty are woken in time,
/// and of long ones, where the same lateness is a smaller part, three in four, one in two or one in three.
#[derive(Clone, Copy, Debug)]
struct Quantile {
    /// How many are in time,
    in_time: u32,
    /// for how many that are not.
    late: u32,
    /// In nanoseconds. To wait for the rest keeps a core busy, so it has an end. Who was later still says nothing: they were
    /// busy with something else, or the machine was.
    most: u32,
}

impl Quantile {
    const fn of(in_time: u32, late: u32, most: u32) -> Self {
        Self {
            in_time,
            late,
            most,
        }
    }
}

/// It follows the lateness of the wake-ups themselves: so far up that as many come later still as are meant to. The first one is
/// believed. Each other moves it by small steps, a late one up and any other down, so that it stands still where there are as
/// many steps down as up: the stochastic approximation of a quantile (Robbins and Monro, 1951).
#[derive(Clone, Copy, Debug)]
struct Lead {
    nanos: u32,
    learned: u32,
}

/// What it is before there was any wake-up.
const UNKNOWN: u32 = 40_000;

/// One step is such a part of the most there can be.
const STEPS: u32 = 2_000;

/// The first steps are so many times as large.
const FIRST: u32 = 32;

impl Lead {
    const fn new() -> Self {
        Self {
            nanos: UNKNOWN,
            learned: 0,
        }
    }

    fn learn(&mut self, aim: Quantile, late: Duration) {
        let late = match u32::try_from(late.as_nanos()) {
            Ok(late) if late <= aim.most => late,
            _ => return,
        };
        let step = aim.most / STEPS * (FIRST / (1 + self.learned / 8)).max(1);
        self.nanos = if self.learned == 0 {
            late
        } else if late > self.nanos {
            (self.nanos + step * aim.in_time).min(aim.most)
        } else {
            self.nanos.saturating_sub(step * aim.late)
        };
        self.learned = self.learned.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    const SHORT: Span = Span(0);
    const LONGEST: Span = Span(SPANS.len() - 1);

    #[test]
    fn a_wait_is_of_the_doubling_that_it_lies_in() {
        let spans = [0, 899, 900, 1_799, 1_800, 3_599, 3_600, 7_199, 7_200].map(micros);
        assert_eq!(
            spans.map(|wait| Span::of(wait).0),
            [0, 0, 1, 1, 2, 2, 3, 3, 4]
        );
        assert_eq!(Span::of(Duration::MAX), LONGEST);
    }

    #[test]
    fn of_short_waits_one_in_twenty_is_later() {
        let settled = settled(SHORT);
        assert!(micros(18) < settled && settled < micros(21), "{settled:?}");
    }

    #[test]
    fn of_long_waits_every_other_one_is_later_and_of_very_long_ones_two_in_three() {
        let every_other = settled(Span(3));
        assert!(
            micros(14) < every_other && every_other < micros(16),
            "{every_other:?}"
        );
        let two_in_three = settled(LONGEST);
        assert!(
            micros(12) < two_in_three && two_in_three < micros(15),
            "{two_in_three:?}"
        );
    }

    /// After latenesses from 10 to 19.9 µs, each as often.
    fn settled(span: Span) -> Duration {
        let mut leads = Leads::new();
        for n in 0..20_000_u64 {
            leads.learn(span, micros(10) + Duration::from_nanos(n * 37 % 100 * 100));
        }
        leads.get(span)
    }

    #[test]
    fn the_first_wake_up_is_believed() {
        let mut leads = Leads::new();
        assert_eq!(leads.get(LONGEST), micros(40));
        leads.learn(LONGEST, micros(140));
        assert_eq!(leads.get(LONGEST), micros(140));
        assert_eq!(leads.get(SHORT), micros(40), "nothing known of that");
    }

    #[test]
    fn its_first_steps_are_large_and_a_late_one_is_as_long_as_all_that_are_in_time() {
        let mut leads = Leads::new();
        let mut learns = |late: u64| {
            leads.learn(SHORT, Duration::from_nanos(late));
            leads.get(SHORT).as_nanos()
        };
        assert_eq!(learns(50_000), 50_000);
        assert_eq!(learns(50_001), 50_000 + 19 * 1_600);
        assert_eq!(learns(80_400), 78_800, "just in time is in time");
        for _ in 3..8 {
            learns(0);
        }
        assert_eq!(learns(0), 78_800 - 5 * 1_600 - 800, "half as long");
        for _ in 0..300 {
            learns(100_000);
            learns(0);
        }
        assert_eq!(learns(100_000) - learns(0), 50);
    }

    #[test]
    fn it_has_an_end_and_who_is_later_still_says_nothing() {
        let mut leads = Leads::new();
        for _ in 0..1_000 {
            leads.learn(SHORT, micros(5_000));
            leads.learn(SHORT, Duration::MAX);
        }
        assert_eq!(leads.get(SHORT), micros(40));
        leads.learn(SHORT, micros(5));
        for _ in 0..1_000 {
            leads.learn(SHORT, micros(100));
        }
        assert!(leads.get(SHORT) >= micros(99), "{:?}", leads.get(SHORT));
        for _ in 0..10_000 {
            leads.learn(SHORT, Duration::ZERO);
        }
        assert_eq!(leads.get(SHORT), Duration::ZERO);
    }
}
