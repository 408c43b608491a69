use core::time::Duration;

use crate::time::{OutOfRange, Tick};

use super::Class;

/// How utilization becomes a share of the requests to shed. It is arithmetic: it is given the time that has passed, and the chance.
///
/// What it moves is an amount in nanoseconds, from −`delay`, which is rest, up to `ramp`, where all sheddable requests are shed. So it
/// is zero at the instant at which shedding begins, and whole numbers keep the published time lines exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Curve {
    good: f64,
    bad: f64,
    delay: i64,
    ramp: i64,
    classes: u8,
}

impl Curve {
    pub(super) const DEFAULT: Self = Self {
        good: 0.7,
        bad: 0.8,
        delay: 28_000_000_000,
        ramp: 120_000_000_000,
        classes: 1,
    };

    pub(super) const fn with_thresholds(self, good: f64, bad: f64) -> Result<Self, OutOfRange> {
        // What is not a number is not in the range.
        if !(0.0 < good && good < bad && bad < 1.0) {
            let message = "the thresholds must be above 0 and below 1, and good below bad";
            return Err(OutOfRange::new("good", message));
        }
        Ok(Self { good, bad, ..self })
    }

    pub(super) fn with_delay(self, delay: Duration) -> Result<Self, OutOfRange> {
        let message = "the delay must be at least 1 ns, got 0";
        let delay = nanos_above_zero(delay, OutOfRange::new("delay", message))?;
        Ok(Self { delay, ..self })
    }

    pub(super) fn with_ramp(self, ramp: Duration) -> Result<Self, OutOfRange> {
        let message = "the ramp must be at least 1 ns, got 0";
        let ramp = nanos_above_zero(ramp, OutOfRange::new("ramp", message))?;
        Ok(Self { ramp, ..self })
    }

    pub(super) const fn with_classes(self, classes: u8) -> Result<Self, OutOfRange> {
        if classes == 0 {
            let message = "there must be at least 1 sheddable class, got 0";
            return Err(OutOfRange::new("classes", message));
        }
        Ok(Self { classes, ..self })
    }

    pub(super) const fn classes(&self) -> u8 {
        self.classes
    }

    /// The amount of a fresh process, the smallest there is.
    pub(super) const fn rest(&self) -> i64 {
        -self.delay
    }

    /// The amount after this utilization for so long. A single step is no longer than the delay, so none leads from rest to shedding.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "exact up to a hundred days, and a cast saturates"
    )]
    pub(super) fn step(&self, amount: i64, utilization: f64, elapsed: Duration) -> i64 {
        let elapsed = nanos(elapsed).min(self.delay);
        let growth = (elapsed as f64 * self.growth(utilization)).round() as i64;
        amount.saturating_add(growth).clamp(self.rest(), self.ramp)
    }

    /// The share of this class that is shed, from 0 to 1.
    #[expect(
        clippy::cast_precision_loss,
        reason = "for readers; decisions are made with whole numbers"
    )]
    pub(super) fn share(&self, amount: i64, class: Class) -> f64 {
        self.part_of_ramp(amount, class) as f64 / self.ramp as f64
    }

    /// The amount as readers know it: 0 where shedding begins, 1 where all is shed.
    #[expect(clippy::cast_precision_loss, reason = "for readers")]
    pub(super) fn relative(&self, amount: i64) -> f64 {
        amount as f64 / self.ramp as f64
    }

    /// Whether no request of this class is shed, whatever the chance.
    pub(super) fn admits_all(&self, amount: i64, class: Class) -> bool {
        amount <= 0 || self.part_of_ramp(amount, class) == 0
    }

    /// Whether a request is shed. `chance` is drawn only where it matters, and any number is as likely as any other.
    pub(super) fn sheds(&self, amount: i64, class: Class, chance: impl FnOnce() -> u64) -> bool {
        let (part, ramp) = (self.part_of_ramp(amount, class), self.ramp.unsigned_abs());
        match part {
            0 => false,
            part if part == ramp => true,
            part => u128::from(chance()) * u128::from(ramp) < u128::from(part) << 64,
        }
    }

    /// The position of a class, least important first and the critical one last.
    pub(super) fn position(&self, class: Class) -> usize {
        match class {
            Class::Critical => self.classes.into(),
            Class::Sheddable(class) => class.min(self.classes - 1).into(),
        }
    }

    /// How fast the amount grows, in its own time for each unit of time.
    fn growth(&self, utilization: f64) -> f64 {
        let used = utilization.clamp(0.0, 1.0);
        if used < self.good {
            used / self.good - 1.0
        } else if used < self.bad {
            0.0
        } else {
            (used - self.bad) / (1.0 - self.bad)
        }
    }

    /// What is shed of this class, as a part of the ramp.
    fn part_of_ramp(&self, amount: i64, class: Class) -> u64 {
        let Class::Sheddable(class) = class else {
            return 0;
        };
        let (classes, ramp) = (i128::from(self.classes), i128::from(self.ramp));
        let class = i128::from(class.min(self.classes - 1));
        let part = (classes * i128::from(amount) - class * ramp).clamp(0, ramp);
        u64::try_from(part).unwrap_or_default()
    }
}

/// A time in nanoseconds, or 292 years.
fn nanos(time: Duration) -> i64 {
    let nanos = Tick::ZERO.after(time).as_nanos();
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

fn nanos_above_zero(time: Duration, error: OutOfRange) -> Result<i64, OutOfRange> {
    Some(nanos(time)).filter(|nanos| *nanos > 0).ok_or(error)
}
