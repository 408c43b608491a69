//! The rule is behind a lock of its own, under which nothing foreign runs but the rule and the function that makes a policy. What it
//! finds is applied to the limit after unlock, by one thread at a time.
//!
//! One call at a time: the limit holds all requests but one, in their queue, until the outcome of that call is reported.

use core::fmt;
use core::task::Context;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::feedback::Feedback;
use crate::policy::{Decision, Interval, Policy, Status};
use crate::time::{Clock, Rate, Resolution, Tick};

use super::future::Obeying;
use super::rate_call::Report;
use super::rate_rule::interval;
use super::{
    AcquireError, Answer, CallOutcome, Limiter, Obey, PolicyExt, RateCall, RateRule, Shared,
    forward_all,
};

/// A limit with a rate that follows what a provider allows. Clones share both.
///
/// Each call reports how it ended, and a [`RateRule`] finds the rate from that: [`HoldAndProbe`](super::HoldAndProbe), or
/// [`AdditiveIncrease`](super::AdditiveIncrease).
///
/// ```
/// use paceline::limiter::{AdaptiveRate, HoldAndProbe};
/// use paceline::policy::SlidingLog;
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// // It allows 20 calls in any second. The client does not know that.
/// let provider = SlidingLog::new(20, Duration::from_secs(1)).shared();
///
/// let rate = AdaptiveRate::new(HoldAndProbe::new(Rate::per_second(1), Rate::per_second(1_000)));
/// for _ in 0..1_000 {
///     let call = rate.call().await;
///     match provider.try_acquire(1).is_pass() {
///         true => call.accepted(),
///         false => call.refused(None), // 429 or 503
///     }
/// }
/// assert!((18.0..21.0).contains(&rate.calls_per_second()));
/// assert!(provider.stats().refused < 10);
/// # }
/// ```
///
/// In a simulation of providers that allow 41 calls a second, then 13, then 41, with a bucket, a log or windows of a second, and a
/// client that does not know it, from 1/s and from 1,000/s; each number is that of the worst provider and start:
///
/// | rule | used at 41/s and 13/s, in % | refused of 1,000 |
/// |---|---|---|
/// | a fixed 41/s | 98, 98 | 23, 688 |
/// | AWS adaptive retry | 52, 79 | 27, 39 |
/// | CUBIC | 91, 89 | 13, 41 |
/// | Scrapy's `AutoThrottle` | 74, 98 | 0, 544 |
/// | `AdditiveIncrease` | 86, 94 | 1, 11 |
/// | `HoldAndProbe` | 96, 97 | 1, 6 |
///
/// # In a fleet
///
/// Each process has its own rate. They share nothing, and become equal: 4, 8 or 16 clients with at least 3 calls a second each use 90 % of
/// the limit in the simulation, and each gets at least a third of an equal share over ten minutes, or three quarters over an hour. If one
/// leaves, the others use its share in about a minute. Each is refused 3 to 5 times a minute at any rate: at 10 calls a second each that
/// is 7 of 1,000 calls, at 5/s 15, at 2/s 40, and at 1/s 80, where a client may get a twentieth of an equal share. So use at most half as
/// many processes as the provider allows calls a second. For more, all of them share a fixed limit in Redis, which `RedisLimiter::retune`
/// of `paceline-redis` changes.
///
/// # On streams
///
/// It is a [`Limiter`]. An item that has passed [begins](Self::begin) its call:
///
/// ```
/// use futures::StreamExt;
/// use paceline::limiter::{AdaptiveRate, HoldAndProbe};
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let rate = AdaptiveRate::new(HoldAndProbe::new(Rate::per_second(10), Rate::per_second(1_000)));
/// let calls = futures::stream::iter(0..100).pace(rate.clone()).map(|n| {
///     let call = rate.begin();
///     async move {
///         call.accepted();
///         n
///     }
/// });
/// assert_eq!(calls.buffer_unordered(10).count().await, 100);
/// assert!(rate.calls_per_second() > 20.0);
/// # }
/// ```
///
/// With [`retry`](crate::stream::Concurrent::retry): `rate.call().await` inside of the future, so that each attempt asks.
///
/// In a client of `tower` layers, and around a service whose limit follows its health, `PaceLayer::obeying` of `paceline-tower` reports
/// the outcomes.
///
/// **Waits** as [`Shared`](Shared#the-queue) does: first come, first served. Where the rule asks for one call at a time, the others
/// wait until its outcome is reported, or for a minute. A request that does not want to wait so long is refused at once.
///
/// **Costs**: a call costs 1. A request that costs more waits for a minute where the rule asks for one call at a time.
///
/// **Under a lock**: the rule is called under one of its own. It must not use this limit. A rate of zero counts as one call a day, since
/// without calls nothing more would be observed.
///
/// **Moves** its limit only if the rate has moved by 1 %, since that wakes every waiter.
///
/// **Window bound**: that of the policy at the highest rate in the window. With [`new`](Self::new) calls are spread evenly.
#[doc(alias("adaptive rate limit", "AIMD", "AutoThrottle", "429"))]
pub struct AdaptiveRate<R, P: Policy = Interval> {
    limit: Shared<P>,
    control: Arc<Control<R, P>>,
}

impl<R: RateRule> AdaptiveRate<R> {
    /// Calls that are spread evenly, as many as the rule allows.
    #[must_use]
    pub fn new(rule: R) -> Self {
        let limit = Interval::from_rate(rate_of(&rule, Tick::ZERO)).shared();
        Self::around(limit, rule, Interval::from_rate)
    }
}

impl<R: RateRule, P: Policy> AdaptiveRate<R, P> {
    /// Retunes this `limit`, now and whenever the rate moves, to the policy of a rate. The rate is one permit in a period.
    ///
    /// ```
    /// use paceline::limiter::{AdaptiveRate, HoldAndProbe};
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let rule = HoldAndProbe::new(Rate::per_second(2), Rate::per_second(100));
    /// let limit = TokenBucket::new(Rate::per_second(2), 10).shared();
    /// let rate = AdaptiveRate::around(limit, rule, |rate| TokenBucket::new(rate, 10));
    /// assert_eq!(rate.limit().status().unwrap().remaining, 10);
    /// # }
    /// ```
    ///
    /// Ask the limit itself for what only it can do, and then [`begin`](Self::begin) the call: a deadline, or
    /// [any of](super::AnyOf) several limits, each with a rate of its own.
    ///
    /// ```
    /// use paceline::limiter::{AdaptiveRate, HoldAndProbe};
    /// use paceline::prelude::*;
    /// use tokio::time::Instant;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), paceline::limiter::AcquireError> {
    /// # let (floor, usual) = (Rate::per_second(2), Duration::from_secs(60));
    /// # let (rule, deadline) = (HoldAndProbe::new(floor, Rate::per_second(100)), Instant::now() + usual);
    /// let limit = Interval::from_rate(floor).shared().by_deadline(usual);
    /// let rate = AdaptiveRate::around(limit.clone(), rule, Interval::from_rate);
    /// limit.acquire_by(1, deadline).await?;
    /// let call = rate.begin();
    /// # call.accepted();
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn around(
        limit: Shared<P>,
        rule: R,
        policy: impl Fn(Rate) -> P + Send + Sync + 'static,
    ) -> Self {
        let rate = rate_of(&rule, Tick::ZERO);
        limit.retune(policy(rate));
        let found = Found {
            clock: Clock::new(),
            rule,
            period: rate.period(),
            alone: None,
            phase: 0,
            applied: 0,
            is_applying: false,
        };
        let control = Control {
            limit: limit.clone(),
            policy: Box::new(policy),
            found: Mutex::new(found),
        };
        let control = Arc::new(control);
        Self { limit, control }
    }

    /// The limit: to read it, or to [pause](Shared::pause_for) it. A [`retune`](Shared::retune) lasts until the rate moves.
    #[must_use]
    pub const fn limit(&self) -> &Shared<P> {
        &self.limit
    }

    /// The rate of the rule now.
    #[must_use]
    pub fn calls_per_second(&self) -> f64 {
        let mut found = self.control.lock();
        let now = found.now();
        found.rule.rate(now)
    }

    /// A copy of the rule as it is now.
    #[must_use]
    pub fn rule(&self) -> R
    where
        R: Clone,
    {
        self.control.lock().rule.clone()
    }
}

impl<R: RateRule + Send + 'static, P: Policy<State: Send> + Send + Sync + 'static>
    AdaptiveRate<R, P>
{
    /// Waits until a call may begin, behind every request that came before.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; nothing was counted.
    pub async fn call(&self) -> RateCall {
        self.limit.acquire_one().await;
        self.begin()
    }

    /// Waits until a call may begin, if it may `within` this time: see [`Shared::acquire_within`].
    ///
    /// # Errors
    ///
    /// [`is_too_late`](AcquireError::is_too_late).
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; nothing was counted.
    pub async fn call_within(&self, within: Duration) -> Result<RateCall, AcquireError> {
        self.limit.acquire_within(1, within).await?;
        Ok(self.begin())
    }

    /// A call, if one may begin now and no request waits.
    #[must_use = "a call that is dropped at once reports nothing"]
    pub fn try_call(&self) -> Option<RateCall> {
        let passes = self.limit.try_acquire(1).is_pass();
        passes.then(|| self.begin())
    }

    /// The call of a request that has just passed, such as an item of a stream.
    pub fn begin(&self) -> RateCall {
        let mut found = self.control.lock();
        RateCall {
            sent_at: found.now(),
            phase: found.phase,
            control: Some(Arc::clone(&self.control) as Arc<dyn Report>),
        }
    }
}

impl<R, P: Policy> Limiter for AdaptiveRate<R, P> {
    type Error = core::convert::Infallible;

    forward_all!(self => self.limit);
}

/// Pauses the limit, and reports the outcome of each call.
impl<R: RateRule + Send + 'static, P: Policy<State: Send> + Send + Sync + 'static> Obey
    for AdaptiveRate<R, P>
{
    type Error = core::convert::Infallible;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<Self::Error>> {
        self.limit.obey(feedback)
    }

    fn begin(&self) -> Option<RateCall> {
        Some(self.begin())
    }
}

/// Another handle of the same limit and rule, which is not queued.
impl<R, P: Policy> Clone for AdaptiveRate<R, P> {
    fn clone(&self) -> Self {
        Self {
            limit: self.limit.clone(),
            control: Arc::clone(&self.control),
        }
    }
}

impl<R, P: Policy> fmt::Debug for AdaptiveRate<R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveRate")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// What all handles share.
struct Control<R, P: Policy> {
    limit: Shared<P>,
    policy: Box<dyn Fn(Rate) -> P + Send + Sync>,
    found: Mutex<Found<R>>,
}

struct Found<R> {
    clock: Clock,
    rule: R,
    /// The time between two calls, as the limit has it.
    period: Duration,
    /// One call at a time, from then on.
    alone: Option<Tick>,
    /// How often that has changed, and how many of these changes the limit has.
    phase: u64,
    applied: u64,
    is_applying: bool,
}

impl<R> Found<R> {
    /// There is an instant before the first one.
    fn now(&mut self) -> Tick {
        self.clock.now().after(Duration::from_nanos(1))
    }
}

/// What the limit does not have yet.
enum Change {
    /// One call at a time, after a wait.
    Alone(Duration),
    Together,
    Rate(Rate),
}

/// A lost call of a time with one call at a time is waited for so long.
const PATIENCE: Duration = Duration::from_secs(60);

impl<R: RateRule, P: Policy> Control<R, P> {
    fn observe(&self, call: &RateCall, outcome: CallOutcome, quota: Option<Rate>) {
        let mut found = self.lock();
        let now = found.now();
        // A call of the instant of the last change, but before it.
        let is_of_phase = call.phase == found.phase;
        let earlier = now.before(Duration::from_nanos(u64::from(!is_of_phase)));
        if let Some(quota) = quota {
            found.rule.observe_quota(now, quota);
        }
        found.rule.observe(now, call.sent_at.min(earlier), outcome);
        let alone = found.rule.one_at_a_time();
        if alone != found.alone || is_of_phase && alone.is_some() {
            found.alone = alone;
            found.phase += 1;
        }
    }

    /// Brings the limit up to what was found.
    fn apply(&self) {
        while let Some(change) = self.next_change() {
            let _applying = Applying(self);
            match change {
                Change::Alone(wait) => {
                    if !wait.is_zero() {
                        self.limit.pause_for(wait);
                    }
                    self.limit.let_one_pass(wait.saturating_add(PATIENCE));
                }
                Change::Together => self.limit.set_remaining(u32::MAX, Duration::ZERO),
                Change::Rate(rate) => self.limit.retune((self.policy)(rate)),
            }
        }
    }

    /// `None`: there is none, or another thread is about to look for it.
    fn next_change(&self) -> Option<Change> {
        let mut found = self.lock();
        let now = found.now();
        if found.is_applying {
            return None;
        }
        let rate = rate_of(&found.rule, now);
        let change = if found.applied != found.phase {
            found.applied = found.phase;
            let alone = found.alone.map(|from| Change::Alone(from.since(now)));
            alone.unwrap_or(Change::Together)
        } else if rate.period().abs_diff(found.period) > found.period / 100 {
            found.period = rate.period();
            Change::Rate(rate)
        } else {
            return None;
        };
        found.is_applying = true;
        Some(change)
    }

    fn lock(&self) -> MutexGuard<'_, Found<R>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: RateRule + Send, P: Policy<State: Send> + Send + Sync> Report for Control<R, P> {
    fn report(&self, call: &RateCall, outcome: CallOutcome, feedback: Option<&Feedback>) {
        let quota = feedback.and_then(Feedback::limit);
        self.observe(call, outcome, quota);
        self.apply();
        if let Some(feedback) = feedback {
            self.limit.apply_feedback(feedback);
        }
    }
}

/// Another thread may apply when it is dropped, also by a panic of an observer.
struct Applying<'a, R: RateRule, P: Policy>(&'a Control<R, P>);

impl<R: RateRule, P: Policy> Drop for Applying<'_, R, P> {
    fn drop(&mut self) {
        self.0.lock().is_applying = false;
    }
}

/// One permit in a period.
fn rate_of(rule: &impl RateRule, now: Tick) -> Rate {
    let (shortest, longest) = (Duration::from_nanos(1), Duration::from_secs(86_400));
    Rate::new(1, interval(rule.rate(now)).clamp(shortest, longest))
}
