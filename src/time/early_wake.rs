use core::time::Duration;

/// How long before its due instant a task asks to be woken, so that it is seldom woken late.
///
/// It is learnt from how late wake-ups came, and separately for short and long waits: a core that is idle for longer sleeps more
/// deeply and wakes later.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyWake([Estimate; AIMS.len()]);

/// The first is for waits shorter than [`SHORT`], and each other one for waits up to twice as long. The last has no end.
///
/// A wake-up that is early costs processor time. One that is late makes the wait longer, which matters less for a long wait. So
/// the aim is that 19 in 20 short waits are woken in time, and 3 in 4, 1 in 2 and 1 in 3 of longer ones.
const AIMS: [Aim; 5] = [
    Aim::new(19, 1, 100_000),
    Aim::new(3, 1, 100_000),
    Aim::new(3, 1, 200_000),
    Aim::new(1, 1, 400_000),
    Aim::new(1, 2, 800_000),
];

const SHORT: Duration = Duration::from_micros(900);

impl EarlyWake {
    pub(super) const fn new() -> Self {
        let first = Estimate {
            nanos: UNKNOWN,
            learned: 0,
        };
        Self([first; AIMS.len()])
    }

    /// How long before the end of a wait of this length to wake up.
    pub(super) fn before(&self, wait: Duration) -> Duration {
        Duration::from_nanos(self.0[class(wait)].nanos.into())
    }

    /// The wake-up for a wait of this length came `late` after the instant that was asked for.
    pub(super) fn learn(&mut self, wait: Duration, late: Duration) {
        let class = class(wait);
        self.0[class].learn(AIMS[class], late);
    }
}

/// The index in [`AIMS`].
fn class(wait: Duration) -> usize {
    let shorts = wait.as_nanos() / SHORT.as_nanos();
    let doublings = shorts.checked_ilog2().map_or(0, |log| log as usize + 1);
    doublings.min(AIMS.len() - 1)
}

/// Of `in_time + late` wake-ups, `in_time` are to be in time.
#[derive(Clone, Copy, Debug)]
struct Aim {
    in_time: u32,
    late: u32,
    /// The maximum in nanoseconds. There is one because the rest of the wait keeps a core busy. A wake-up that is later than this
    /// changes no estimate: the task or the machine was busy with something else.
    most: u32,
}

impl Aim {
    const fn new(in_time: u32, late: u32, most: u32) -> Self {
        Self {
            in_time,
            late,
            most,
        }
    }
}

/// A running estimate of a quantile of the lateness.
///
/// The first wake-up sets it. Each later one moves it by a small step: up if the wake-up was late, down if it was in time. It
/// settles where the steps up and down cancel out (stochastic approximation, Robbins and Monro 1951).
#[derive(Clone, Copy, Debug)]
struct Estimate {
    nanos: u32,
    learned: u32,
}

/// The estimate before the first wake-up, in nanoseconds.
const UNKNOWN: u32 = 40_000;

/// The maximum of the estimate, in steps.
const STEPS: u32 = 2_000;

/// The first steps are larger, by this factor.
const FIRST: u32 = 32;

impl Estimate {
    fn learn(&mut self, aim: Aim, late: Duration) {
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

    const LONGEST: Duration = Duration::MAX;

    #[test]
    fn waits_are_classed_by_doublings_of_900_microseconds() {
        let waits = [0, 899, 900, 1_799, 1_800, 3_599, 3_600, 7_199, 7_200].map(micros);
        assert_eq!(waits.map(class), [0, 0, 1, 1, 2, 2, 3, 3, 4]);
        assert_eq!(class(LONGEST), AIMS.len() - 1);
    }

    #[test]
    fn one_in_twenty_short_waits_is_woken_late() {
        let settled = settled(micros(100));
        assert!(micros(18) < settled && settled < micros(21), "{settled:?}");
    }

    #[test]
    fn one_in_two_long_waits_and_two_in_three_of_the_longest_are_woken_late() {
        let long = settled(micros(5_000));
        assert!(micros(14) < long && long < micros(16), "{long:?}");
        let longest = settled(LONGEST);
        assert!(micros(12) < longest && longest < micros(15), "{longest:?}");
    }

    /// After latenesses from 10 to 19.9 µs, each equally often.
    fn settled(wait: Duration) -> Duration {
        let mut early = EarlyWake::new();
        for n in 0..20_000_u64 {
            early.learn(wait, micros(10) + Duration::from_nanos(n * 37 % 100 * 100));
        }
        early.before(wait)
    }

    #[test]
    fn the_first_wake_up_sets_the_estimate_of_its_class_alone() {
        let mut early = EarlyWake::new();
        assert_eq!(early.before(LONGEST), micros(40));
        early.learn(LONGEST, micros(140));
        assert_eq!(early.before(LONGEST), micros(140));
        assert_eq!(early.before(Duration::ZERO), micros(40));
    }

    #[test]
    fn first_steps_are_large_and_one_step_up_equals_all_steps_down() {
        let mut early = EarlyWake::new();
        let mut learns = |late: u64| {
            early.learn(Duration::ZERO, Duration::from_nanos(late));
            early.before(Duration::ZERO).as_nanos()
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
    fn the_maximum_is_100_microseconds_or_a_ninth_of_waits_up_to_7_2_milliseconds() {
        let waits = [
            (0, 100),
            (1_799, 100),
            (1_800, 200),
            (3_599, 200),
            (3_600, 400),
            (7_199, 400),
            (7_200, 800),
            (3_600_000_000, 800),
        ];
        for (wait, most) in waits.map(|(wait, most)| (micros(wait), micros(most))) {
            let mut early = EarlyWake::new();
            early.learn(wait, Duration::ZERO);
            let estimates = (0..5_000).map(|_| {
                early.learn(wait, most);
                early.before(wait)
            });
            assert_eq!(estimates.max(), Some(most), "{wait:?}");

            early.learn(wait, Duration::ZERO);
            let learnt = early.before(wait);
            early.learn(wait, most + Duration::from_nanos(1));
            assert_eq!(early.before(wait), learnt, "{wait:?}");
        }
    }

    #[test]
    fn the_estimate_has_a_maximum_and_later_wake_ups_teach_nothing() {
        let mut early = EarlyWake::new();
        let short = Duration::ZERO;
        for _ in 0..1_000 {
            early.learn(short, micros(5_000));
            early.learn(short, Duration::MAX);
        }
        assert_eq!(early.before(short), micros(40));
        early.learn(short, micros(5));
        for _ in 0..1_000 {
            early.learn(short, micros(100));
        }
        assert!(early.before(short) >= micros(99), "{early:?}");
        for _ in 0..10_000 {
            early.learn(short, Duration::ZERO);
        }
        assert_eq!(early.before(short), Duration::ZERO);
    }
}
