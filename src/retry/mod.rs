//! Retries that do not add to the load of a provider that fails.
//!
//! A [`Retry`] says which failed calls are made again, and when. Its [`RetryBudget`] bounds how many. Three users share them:
//!
//! | to retry | take |
//! |---|---|
//! | the items of a stream | [`concurrent(…).retry(…)`](crate::stream::Concurrent::retry) |
//! | the requests of a service or client of `tower` | `RetryPolicy` of `paceline-tower`, outside of a `PaceLayer` |
//! | in a loop of your own | [`Retry::after`] |
//!
//! Each attempt takes its permit and asks its limit anew, since the limit is inside of what is retried.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limiter::{Share, random_up_to};
use crate::time::error::ConfigError;
use crate::time::or_panic;

/// How many retries there may be: a share of the successes, and a reserve. Clones share it.
///
/// It starts with `cap` retries. Each success adds the share of a retry, up to the cap; each retry takes one. Time adds nothing. So
/// all retries are at most `cap` + `share` · successes, and so are those in any stretch of time with its successes. While a provider
/// fails there are at most `cap` retries, however long that takes.
///
/// First attempts are not bounded: a limit does that.
///
/// ```
/// use paceline::limiter::Share;
/// use paceline::retry::{Attempts, Failure, Retry, RetryBudget};
///
/// let budget = RetryBudget::new(2, Share::percent(25));
/// let retry = Retry::new(budget.clone());
/// let is_retried = || retry.after(&mut Attempts::default(), Failure::Transient).is_some();
/// assert!(is_retried() && is_retried() && !is_retried());
///
/// for _ in 0..4 {
///     assert_eq!(budget.left(), 0);
///     retry.succeeded(&mut Attempts::default());
/// }
/// assert_eq!(budget.left(), 1);
/// ```
///
/// Sources: the retry budgets of Finagle and of gRPC's retry throttling, both of which count successes. Those that are filled by time
/// allow retries without end.
#[doc(alias("retry throttling", "TpsBudget", "token bucket"))]
#[derive(Clone, Debug)]
pub struct RetryBudget {
    cap: u32,
    share: Share,
    credit: Arc<Mutex<Credit>>,
}

#[derive(Debug)]
struct Credit {
    /// In ten-thousandths of a retry.
    left: u64,
    /// All retries so far.
    retries: u64,
}

/// The parts of a retry.
const WHOLE: u64 = 10_000;

impl RetryBudget {
    /// A budget that holds at most `cap` retries and is full. Each success adds `share` of a retry.
    #[must_use]
    pub fn new(cap: u32, share: Share) -> Self {
        let credit = Credit {
            left: u64::from(cap) * WHOLE,
            retries: 0,
        };
        Self {
            cap,
            share,
            credit: Arc::new(Mutex::new(credit)),
        }
    }

    /// The number of retries that it holds now.
    #[must_use]
    pub fn left(&self) -> u32 {
        u32::try_from(self.lock().left / WHOLE).unwrap_or(self.cap)
    }

    /// The number of the retry.
    fn take(&self) -> Option<u64> {
        let mut credit = self.lock();
        credit.left = credit.left.checked_sub(WHOLE)?;
        credit.retries += 1;
        Some(credit.retries)
    }

    fn lock(&self) -> MutexGuard<'_, Credit> {
        self.credit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the error of a call means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Failure {
    /// The same call would fail again: it is not retried.
    Final,
    /// The call may succeed later, such as after a timeout or a lost connection.
    Transient,
    /// The provider refused the call for its rate (429, 503). This is no attempt: it did not look at the call. A retry takes from the
    /// budget all the same, so bound the [refusals](Retry::with_refusals) of one item.
    Refused {
        /// How long it asks the caller to wait. It is obeyed however long it is: a [`Feedback`](crate::feedback::Feedback) caps it.
        retry_after: Option<Duration>,
    },
}

impl Failure {
    /// How long the provider asks the caller to wait, if it does.
    #[must_use]
    pub const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after } => retry_after,
            Self::Final | Self::Transient => None,
        }
    }
}

/// Which calls are made again, and when.
///
/// ```
/// use paceline::limiter::Share;
/// use paceline::retry::{Attempts, Failure, GiveUp, Retry, RetryBudget};
/// use std::time::Duration;
///
/// // A burst of 100 retries, then 1 for each 10 successes.
/// let budget = RetryBudget::new(100, Share::percent(10));
/// let (least, most) = (Duration::from_millis(100), Duration::from_secs(2));
/// let retry = Retry::new(budget).with_attempts(3).with_backoff(least..=most);
///
/// let mut attempts = Attempts::default();
/// let first = retry.after(&mut attempts, Failure::Transient).unwrap();
/// assert!((least..=least * 2).contains(&first));
/// let second = retry.after(&mut attempts, Failure::Transient).unwrap();
/// assert!((least..=least * 4).contains(&second));
///
/// let retry_after = Some(Duration::from_secs(7));
/// assert_eq!(retry.after(&mut attempts, Failure::Refused { retry_after }), retry_after);
///
/// assert_eq!(retry.after(&mut attempts, Failure::Transient), None);
/// assert_eq!(attempts.given_up, Some(GiveUp::Attempts));
/// assert_eq!((attempts.calls, attempts.refusals), (4, 1));
/// ```
///
/// # The wait
///
/// The nth retry of an item waits evenly at random between `least` and `least` · 2ⁿ, at most `most`: exponential backoff with full jitter
/// (Brooker, *Exponential Backoff And Jitter*, 2015), with a lower bound. A `Retry-After` is obeyed exactly instead, but not below
/// `least`.
///
/// # Panics
///
/// The methods with a `try_` sibling panic on a value out of range.
#[derive(Clone, Debug)]
pub struct Retry {
    budget: RetryBudget,
    attempts: u32,
    refusals: u32,
    least: Duration,
    most: Duration,
    seed: u64,
}

impl Retry {
    /// At most 3 attempts of an item, with a backoff of 100 ms to 20 s.
    #[must_use]
    pub fn new(budget: RetryBudget) -> Self {
        Self {
            budget,
            attempts: 3,
            refusals: 20,
            least: Duration::from_millis(100),
            most: Duration::from_secs(20),
            seed: RandomState::new().hash_one(()),
        }
    }

    /// At most `most` attempts of an item, from 1, which is no retry but after refusals.
    ///
    /// # Panics
    ///
    /// If `most` is zero; see [`try_with_attempts`](Self::try_with_attempts).
    #[must_use]
    #[track_caller]
    pub fn with_attempts(self, most: u32) -> Self {
        or_panic(self.try_with_attempts(most))
    }

    /// [`with_attempts`](Self::with_attempts), for a number from a configuration.
    ///
    /// # Errors
    ///
    /// If `most` is zero.
    pub fn try_with_attempts(mut self, most: u32) -> Result<Self, ConfigError> {
        if most == 0 {
            let message = "retries need at least 1 attempt of an item, got 0";
            return Err(ConfigError::new(message));
        }
        self.attempts = most;
        Ok(self)
    }

    /// At most `most` retries of an item for refusals, from 0; 20 by default. A refusal is no attempt, so this is what keeps one item that
    /// is refused for ever from taking the whole budget.
    #[must_use]
    pub const fn with_refusals(mut self, most: u32) -> Self {
        self.refusals = most;
        self
    }

    /// The shortest and the longest wait before a retry.
    ///
    /// # Panics
    ///
    /// If the shortest is zero, or longer than the longest; see [`try_with_backoff`](Self::try_with_backoff).
    #[must_use]
    #[track_caller]
    pub fn with_backoff(self, waits: RangeInclusive<Duration>) -> Self {
        or_panic(self.try_with_backoff(waits))
    }

    /// [`with_backoff`](Self::with_backoff), for times from a configuration.
    ///
    /// # Errors
    ///
    /// If the shortest is zero, or longer than the longest.
    pub fn try_with_backoff(
        mut self,
        waits: RangeInclusive<Duration>,
    ) -> Result<Self, ConfigError> {
        if waits.is_empty() || waits.start().is_zero() {
            let message = format!("a backoff is from at least 1 ns up to no less, got {waits:?}");
            return Err(ConfigError::new(message));
        }
        (self.least, self.most) = waits.into_inner();
        Ok(self)
    }

    /// Makes the waits the same in every run, for tests.
    #[must_use]
    pub const fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Counts a call that succeeded, also for the budget.
    pub fn succeeded(&self, attempts: &mut Attempts) {
        attempts.calls += 1;
        let share = u64::from(self.budget.share.ten_thousandths());
        let mut credit = self.budget.lock();
        credit.left = (credit.left + share).min(WHOLE * u64::from(self.budget.cap));
    }

    /// Counts a call that failed. Returns how long to wait before the next one, which takes a retry from the budget; or `None`, and
    /// `attempts` say why.
    #[must_use = "the retry was taken from the budget"]
    pub fn after(&self, attempts: &mut Attempts, failure: Failure) -> Option<Duration> {
        attempts.calls += 1;
        attempts.refusals += u32::from(matches!(failure, Failure::Refused { .. }));
        let is_last = attempts.calls - attempts.refusals >= self.attempts
            || attempts.refusals > self.refusals;
        let taken = match failure {
            Failure::Final => Err(GiveUp::Final),
            _ if is_last => Err(GiveUp::Attempts),
            _ => self.budget.take().ok_or(GiveUp::Budget),
        };
        attempts.given_up = taken.err();
        let doubled = self.least.saturating_mul(1 << attempts.calls.min(31));
        let range = doubled.min(self.most).saturating_sub(self.least);
        let jitter = random_up_to(range, self.seed, taken.ok()?);
        let wait = failure.retry_after().unwrap_or(self.least + jitter);
        Some(wait.max(self.least))
    }
}

/// The calls of one item.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Attempts {
    /// How many have ended.
    pub calls: u32,
    /// How many of them the provider refused for its rate. The others are attempts.
    pub refusals: u32,
    /// Whether one more was under way when its stream was [taken apart](crate::stream::Retried::into_parts). It may have reached the
    /// provider.
    pub is_under_way: bool,
    /// Why there are no more.
    pub given_up: Option<GiveUp>,
}

/// Why a call is not made again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum GiveUp {
    /// Its error is [`Failure::Final`].
    Final,
    /// Its item has had as many attempts, or refusals, as it may have.
    Attempts,
    /// The budget holds no retry.
    Budget,
}
