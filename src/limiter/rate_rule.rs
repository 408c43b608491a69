use core::time::Duration;

use crate::time::{OutOfRange, Rate, Tick};

/// How a call ended, for a [`RateRule`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a call shows that the rate is allowed, that it is not, or neither"
)]
pub enum CallOutcome {
    /// The provider answered.
    Accepted,
    /// The provider refused the call for its rate: 429 or 503.
    Refused {
        /// How long it asks the caller to wait.
        retry_after: Option<Duration>,
    },
    /// The call says nothing about the rate: it failed for another reason, or was cancelled.
    Ignored,
}

/// Finds from the outcomes of calls how many a second the provider allows: [`HoldAndProbe`](super::HoldAndProbe),
/// [`AdditiveIncrease`](super::AdditiveIncrease), or your own.
///
/// It is arithmetic: it has no clock and no lock, and does not know the limit. [`AdaptiveRate`](super::AdaptiveRate) joins the two.
///
/// ```
/// use paceline::limiter::{AdaptiveRate, CallOutcome, RateRule};
/// use paceline::time::Tick;
///
/// /// Half the rate after each refusal, and never more.
/// struct Cautious(f64);
///
/// impl RateRule for Cautious {
///     fn observe(&mut self, _: Tick, _: Tick, outcome: CallOutcome) {
///         if let CallOutcome::Refused { .. } = outcome {
///             self.0 /= 2.0;
///         }
///     }
///
///     fn rate(&self, _: Tick) -> f64 {
///         self.0
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let rate = AdaptiveRate::new(Cautious(10.0));
/// rate.call().await.refused(None);
/// assert_eq!(rate.calls_per_second(), 5.0);
/// # }
/// ```
pub trait RateRule {
    /// Takes in the outcome of a call that was sent at `sent_at` and ended `now`.
    fn observe(&mut self, now: Tick, sent_at: Tick, outcome: CallOutcome);

    /// The number of calls a second. It may change with the time alone.
    fn rate(&self, now: Tick) -> f64;

    /// Takes in the quota that the provider has named. Provided: changes nothing.
    fn observe_quota(&mut self, now: Tick, quota: Rate) {
        let _ = (now, quota);
    }

    /// `Some`: only one call may be under way, and it may begin from then on. Provided: `None`.
    fn one_at_a_time(&self) -> Option<Tick> {
        None
    }
}

/// A rule that is chosen at run time.
impl<R: RateRule + ?Sized> RateRule for Box<R> {
    fn observe(&mut self, now: Tick, sent_at: Tick, outcome: CallOutcome) {
        (**self).observe(now, sent_at, outcome);
    }

    fn rate(&self, now: Tick) -> f64 {
        (**self).rate(now)
    }

    fn observe_quota(&mut self, now: Tick, quota: Rate) {
        (**self).observe_quota(now, quota);
    }

    fn one_at_a_time(&self) -> Option<Tick> {
        (**self).one_at_a_time()
    }
}

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The share of a rate that has to be used before the rate grows: an unused rate says nothing about the provider.
pub(super) const USED: f64 = 0.75;

/// For how long a rate has been used, second by second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// When the present second began.
    since: Option<Tick>,
    calls: u32,
    /// Whether the rate grows in the present second, since it was used in the one before.
    grows: bool,
    grown: Duration,
}

impl Usage {
    /// Counts a call at this rate. A second that began at `from` or later makes the rate grow in the next one, if it was used.
    ///
    /// Returns whether a second is over that used it. A second is longer at less than two calls a second.
    pub(super) fn count(&mut self, now: Tick, outcome: CallOutcome, rate: f64, from: Tick) -> bool {
        let since = *self.since.get_or_insert(now);
        let (passed, length) = (now.since(since), SECOND.max(interval(rate / 2.0)));
        let is_over = passed >= length;
        let mut is_used = false;
        if is_over {
            let needed = (USED * rate * length.as_secs_f64()).floor();
            is_used = f64::from(self.calls) >= needed && passed < length * 2;
            self.grown = self.grown(now);
            (self.since, self.calls, self.grows) = (Some(now), 0, is_used && since >= from);
        }
        self.calls += u32::from(outcome == CallOutcome::Accepted);
        is_used
    }

    /// For how long the rate has grown since the last restart.
    pub(super) fn grown(&self, now: Tick) -> Duration {
        let since = now.since(self.since.unwrap_or(now));
        let most = SECOND * u32::from(self.grows);
        self.grown.saturating_add(since.min(most))
    }

    pub(super) const fn restart(&mut self) {
        (self.grows, self.grown) = (false, Duration::ZERO);
    }
}

/// The time between two calls of this rate.
pub(super) fn interval(rate: f64) -> Duration {
    Duration::try_from_secs_f64(1.0 / rate.max(0.0)).unwrap_or(Duration::MAX)
}

pub(super) fn per_second(rate: Rate) -> f64 {
    f64::from(rate.permits()) / rate.period().as_secs_f64()
}

/// Both in calls a second.
pub(super) fn checked(floor: Rate, ceiling: Rate) -> Result<(f64, f64), OutOfRange> {
    let (low, high) = (per_second(floor), per_second(ceiling));
    if low > high {
        let message = "the floor of a rate must not be above its ceiling, in calls a second";
        return Err(OutOfRange::new("floor", message).got(low, high));
    }
    Ok((low, high))
}

/// The calls a second at which a rule starts.
pub(super) fn checked_start(start: Rate, floor: f64, ceiling: f64) -> Result<f64, OutOfRange> {
    let start = per_second(start);
    if (floor..=ceiling).contains(&start) {
        return Ok(start);
    }
    let message =
        "the start of a rate must lie between its floor and its ceiling, in calls a second";
    Err(OutOfRange::new("start", message).got_float(start))
}
