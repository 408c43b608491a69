use crate::time::{OutOfRange, Rate, Tick, or_panic};

use super::rate_rule::{Usage, checked, checked_start};
use super::{CallOutcome, RateRule};

/// Additive increase, multiplicative decrease: the rate grows by a step each second, and a refusal cuts it to a share.
///
/// It grows by 0.2 calls a second each second, and only after a second in which at least ¾ of it was accepted. A refusal cuts it to 0.9,
/// if its call was sent after the last cut. It stays between a floor, where it starts, and a ceiling.
///
/// [`HoldAndProbe`](super::HoldAndProbe) gets more of what a provider allows, with fewer refusals.
///
/// ```
/// use paceline::limiter::{AdditiveIncrease, CallOutcome, RateRule};
/// use paceline::time::{Rate, Tick};
///
/// let mut rule = AdditiveIncrease::new(Rate::per_second(10), Rate::per_second(100)).with_backoff(0.5);
/// let (sent_at, now) = (Tick::from_nanos(1), Tick::from_nanos(2));
/// for _ in 0..100 {
///     rule.observe(now, sent_at, CallOutcome::Refused { retry_after: None });
/// }
/// assert_eq!(rule.rate(now), 10.0);
/// ```
#[doc(alias("AIMD"))]
#[derive(Clone, Copy, Debug)]
pub struct AdditiveIncrease {
    floor: f64,
    ceiling: f64,
    step: f64,
    backoff: f64,
    /// After the last cut.
    rate: f64,
    cut_at: Option<Tick>,
    usage: Usage,
}

impl AdditiveIncrease {
    /// A rate that starts at `floor` and stays between `floor` and `ceiling`.
    ///
    /// # Panics
    ///
    /// If the floor is above the ceiling; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(floor: Rate, ceiling: Rate) -> Self {
        or_panic(Self::try_new(floor, ceiling))
    }

    /// [`new`](Self::new), for rates from a configuration.
    ///
    /// # Errors
    ///
    /// If the floor is above the ceiling.
    pub fn try_new(floor: Rate, ceiling: Rate) -> Result<Self, OutOfRange> {
        let (floor, ceiling) = checked(floor, ceiling)?;
        Ok(Self {
            floor,
            ceiling,
            step: 0.2,
            backoff: 0.9,
            rate: floor,
            cut_at: None,
            usage: Usage::default(),
        })
    }

    /// Starts at this rate instead of the floor.
    ///
    /// # Panics
    ///
    /// If `start` is below the floor or above the ceiling; see [`try_with_start`](Self::try_with_start).
    #[must_use]
    #[track_caller]
    pub fn with_start(self, start: Rate) -> Self {
        or_panic(self.try_with_start(start))
    }

    /// [`with_start`](Self::with_start), for a rate from a configuration.
    ///
    /// # Errors
    ///
    /// If `start` is below the floor or above the ceiling.
    pub fn try_with_start(mut self, start: Rate) -> Result<Self, OutOfRange> {
        self.rate = checked_start(start, self.floor, self.ceiling)?;
        Ok(self)
    }

    /// By how many calls a second the rate grows each second; 0.2 by default.
    ///
    /// # Panics
    ///
    /// If `step` is not a number from 0 on; see [`try_with_step`](Self::try_with_step).
    #[must_use]
    #[track_caller]
    pub fn with_step(self, step: f64) -> Self {
        or_panic(self.try_with_step(step))
    }

    /// [`with_step`](Self::with_step), for a number from a configuration.
    ///
    /// # Errors
    ///
    /// If `step` is not a number from 0 on.
    pub fn try_with_step(self, step: f64) -> Result<Self, OutOfRange> {
        if !(step.is_finite() && step >= 0.0) {
            let message = "the step must be a number from 0 on";
            return Err(OutOfRange::new("step", message).got_float(step));
        }
        Ok(Self { step, ..self })
    }

    /// The share of the rate that remains after a refusal; 0.9 by default.
    ///
    /// # Panics
    ///
    /// If `backoff` is not above 0 and below 1; see [`try_with_backoff`](Self::try_with_backoff).
    #[must_use]
    #[track_caller]
    pub fn with_backoff(self, backoff: f64) -> Self {
        or_panic(self.try_with_backoff(backoff))
    }

    /// [`with_backoff`](Self::with_backoff), for a number from a configuration.
    ///
    /// # Errors
    ///
    /// If `backoff` is not above 0 and below 1.
    pub fn try_with_backoff(self, backoff: f64) -> Result<Self, OutOfRange> {
        if !(0.0 < backoff && backoff < 1.0) {
            let message = "the backoff must be above 0 and below 1";
            return Err(OutOfRange::new("backoff", message).got_float(backoff));
        }
        Ok(Self { backoff, ..self })
    }
}

impl RateRule for AdditiveIncrease {
    fn observe(&mut self, now: Tick, sent_at: Tick, outcome: CallOutcome) {
        let rate = self.rate(now);
        self.usage.count(now, outcome, rate, Tick::ZERO);
        let is_after_cut = self.cut_at.is_none_or(|cut_at| sent_at > cut_at);
        if matches!(outcome, CallOutcome::Refused { .. }) && is_after_cut {
            (self.rate, self.cut_at) = (rate * self.backoff, Some(now));
            self.usage.restart();
        }
    }

    fn rate(&self, now: Tick) -> f64 {
        let grown = self.usage.grown(now).as_secs_f64();
        (self.rate + self.step * grown).clamp(self.floor, self.ceiling)
    }
}
