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
            return Err(OutOfRange::new("good", message).got(good, bad));
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

#[cfg(test)]
mod tests {
    #![expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the model has floats, and is compared up to their precision"
    )]

    use proptest::prelude::*;

    use super::*;

    /// As it was published, in seconds and with floats: the amount lies between −delay / ramp and 1.
    #[derive(Clone, Copy, Debug)]
    struct Published {
        good: f64,
        bad: f64,
        delay: f64,
        ramp: f64,
        classes: f64,
    }

    impl Published {
        fn step(&self, amount: f64, used: f64, dt: f64) -> f64 {
            let g = match used {
                used if used < self.good => used / self.good - 1.0,
                used if used < self.bad => 0.0,
                used => (used - self.bad) / (1.0 - self.bad),
            };
            let moved = amount + dt.min(self.delay) * g / self.ramp;
            moved.max(-self.delay / self.ramp).min(1.0)
        }

        fn share(&self, amount: f64, class: f64) -> f64 {
            (self.classes * amount - class.min(self.classes - 1.0)).clamp(0.0, 1.0)
        }
    }

    fn both(good: f64, bad: f64, delay: u64, ramp: u64, classes: u8) -> (Curve, Published) {
        let curve = Curve::DEFAULT
            .with_thresholds(good, bad)
            .and_then(|curve| curve.with_delay(Duration::from_millis(delay)))
            .and_then(|curve| curve.with_ramp(Duration::from_millis(ramp)))
            .and_then(|curve| curve.with_classes(classes));
        let published = Published {
            good,
            bad,
            delay: delay as f64 / 1e3,
            ramp: ramp as f64 / 1e3,
            classes: classes.into(),
        };
        (curve.unwrap(), published)
    }

    prop_compose! {
        fn curves()(
            good in 0.01..0.98_f64,
            gap in 0.01..1.0_f64,
            delay in 1..100_000_u64,
            ramp in 1..500_000_u64,
            classes in 1..20_u8,
        ) -> (Curve, Published) {
            both(good, good + gap * (0.99 - good), delay, ramp, classes)
        }
    }

    proptest! {
        #[test]
        fn decides_as_the_published_arithmetic_does(
            (curve, published) in curves(),
            steps in proptest::collection::vec((0.0..=1.0_f64, 0..200_000_u64), 1..100),
            class in 0..25_u8,
        ) {
            let (mut amount, mut expected) = (curve.rest(), -published.delay / published.ramp);
            for (n, (used, millis)) in (1..).zip(steps) {
                amount = curve.step(amount, used, Duration::from_millis(millis));
                expected = published.step(expected, used, millis as f64 / 1e3);
                // Each step is rounded to a nanosecond.
                let close = f64::from(n) * 1e-9 / published.ramp + 1e-9;
                prop_assert!((curve.relative(amount) - expected).abs() < close);

                let share = curve.share(amount, Class::Sheddable(class));
                let close = close * published.classes;
                prop_assert!((share - published.share(expected, class.into())).abs() < close);
                prop_assert_eq!(curve.share(amount, Class::Critical).to_bits(), 0);
            }
        }

        #[test]
        fn of_evenly_spread_chances_its_share_is_shed(
            (curve, _) in curves(),
            part in 0.0..=1.0_f64,
            class in 0..25_u8,
        ) {
            let (rest, ramp) = (curve.rest() as f64, curve.ramp as f64);
            let amount = (rest + part * (ramp - rest)) as i64;
            let class = Class::Sheddable(class);
            let chances = (0..1_000_u64).map(|n| n * (u64::MAX / 1_000));
            let is_shed = |chance: &u64| curve.sheds(amount, class, || *chance);
            let shed = chances.filter(is_shed).count() as f64;
            prop_assert!((shed - 1_000.0 * curve.share(amount, class)).abs() <= 1.0);
            prop_assert_eq!(curve.admits_all(amount, class), shed == 0.0);
        }

        #[test]
        fn a_less_important_class_is_shed_first_and_a_larger_amount_sheds_no_less(
            (curve, _) in curves(),
            amounts in (any::<i64>(), any::<i64>()),
            class in 0..25_u8,
        ) {
            let within = |amount: i64| amount.clamp(curve.rest(), curve.ramp);
            let (one, other) = (within(amounts.0), within(amounts.1));
            let share = |amount, class| curve.share(amount, Class::Sheddable(class));
            prop_assert!(share(one.min(other), class) <= share(one.max(other), class));
            prop_assert!(share(one, class + 1) <= share(one, class));
        }
    }

    #[test]
    fn chance_sheds_all_or_none_at_the_ends() {
        let curve = Curve::DEFAULT;
        let class = Class::Sheddable(0);
        for amount in [curve.rest(), -1, 0] {
            assert!(!curve.sheds(amount, class, || unreachable!()));
        }
        assert!(curve.sheds(curve.ramp, class, || unreachable!()));
        assert!(curve.sheds(1, class, || 0));
        assert!(!curve.sheds(curve.ramp - 1, class, || u64::MAX));
        assert!(!curve.sheds(curve.ramp, Class::Critical, || 0));
    }
}
