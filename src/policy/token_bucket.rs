use core::fmt;

use crate::time::{Rate, Tick};

use super::bucket_state::{Scale, Shares};
use super::credit::credit_of;
use super::sums::saturating_duration;
use super::{Decision, OutOfRange, Policy, TokenBucketState};

/// A bucket of tokens: bursts pass at once, and in the long run no more than the rate.
///
/// It starts full with `burst` tokens, or empty with [`empty`](Self::empty). Tokens arrive one by one, each exactly
/// period / permits after the one before, up to `burst`; while the bucket is full none arrive. A request of cost c takes c
/// tokens, or waits until they are there.
///
/// A request dearer than the burst can never pass; [`with_debt`](Self::with_debt) lets it pass when the bucket is full,
/// and owe the rest.
///
/// **Window bound**: a half-open window of T holds at most burst + rate · T, wherever it begins; with debt, the dearest
/// request in it + rate · T if that is more. Note that this is more than the rate: "10/s, burst 10" lets 19 through in
/// its first second. Where a provider counts a window, use [`Interval`](super::Interval).
///
/// The sums are exact: a rate of 3/s has no drift, not after 100 days either. (With a burst of 1 there is no room to keep
/// a fraction in: each permit is under 1 ns late, never early.)
///
/// The algorithm is GCRA, the generic cell rate algorithm of ATM traffic management (ITU-T I.371), in its virtual
/// scheduling form: instead of a count of tokens it keeps the instant at which the bucket will be full again.
///
/// ```
/// use paceline::policy::{Decision, Policy, TokenBucket};
/// use paceline::time::{Rate, Tick};
/// use std::time::Duration;
///
/// const LIMIT: TokenBucket = TokenBucket::new(Rate::new(1, Duration::from_nanos(10)), 2);
/// let at = Tick::from_nanos;
/// let mut state = LIMIT.fresh(at(0));
///
/// assert_eq!(LIMIT.decide(&mut state, at(0), 2), Decision::Pass);
/// assert_eq!(
///     LIMIT.decide(&mut state, at(3), 1),
///     Decision::Wait { retry_in: Duration::from_nanos(7) }
/// );
/// assert_eq!(LIMIT.decide(&mut state, at(10), 1), Decision::Pass);
/// assert_eq!(LIMIT.decide(&mut state, at(10), 3), Decision::Never { capacity: 2 });
/// ```
#[derive(Clone, Copy, Eq, PartialEq)]
#[doc(alias("gcra", "leaky bucket"))]
pub struct TokenBucket {
    rate: Rate,
    burst: u32,
    pub(super) starts_empty: bool,
    pub(super) may_owe: bool,
    scale: Scale,
}

impl TokenBucket {
    /// `burst` tokens to start with, and `rate` more.
    ///
    /// # Panics
    ///
    /// If `burst` is zero: nothing could ever pass. [`try_new`](Self::try_new) returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(rate: Rate, burst: u32) -> Self {
        OutOfRange::or_panic(Self::try_new(rate, burst))
    }

    /// The same as [`new`](Self::new), for values from a configuration.
    ///
    /// # Errors
    ///
    /// If `burst` is zero.
    pub const fn try_new(rate: Rate, burst: u32) -> Result<Self, OutOfRange> {
        if burst == 0 {
            return Err(OutOfRange::new(
                "burst",
                "a token bucket needs a burst of at least 1, got 0",
            ));
        }
        Ok(Self {
            rate,
            burst,
            starts_empty: false,
            may_owe: false,
            scale: Scale::new(rate, burst),
        })
    }

    /// Starts without a token when the limit's clock starts.
    #[must_use]
    pub const fn empty(self) -> Self {
        Self {
            starts_empty: true,
            ..self
        }
    }

    /// Lets a request that is dearer than the burst pass once the bucket is full. It leaves the bucket in debt, and
    /// everybody waits until that is paid.
    #[must_use]
    pub const fn with_debt(self) -> Self {
        Self {
            may_owe: true,
            ..self
        }
    }

    /// How fast tokens arrive.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// How many tokens there are at most.
    #[must_use]
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    /// The answer to a request that cannot pass `now`.
    #[cold]
    fn refuse(&self, full_at: Shares, now: Shares, cost: u32) -> Decision {
        let Some(earliest) = self.earliest(full_at, cost) else {
            return Decision::Never {
                capacity: self.burst,
            };
        };
        Decision::Wait {
            retry_in: saturating_duration(self.scale.nanos(earliest - now)),
        }
    }

    /// From when on `cost` tokens will be there; `None` if there can never be so many.
    fn earliest(&self, full_at: Shares, cost: u32) -> Option<Shares> {
        if cost <= self.burst {
            return Some(full_at.saturating_sub(self.scale.shares_of(self.burst - cost)));
        }
        self.may_owe.then_some(full_at)
    }
}

impl Policy for TokenBucket {
    type State = TokenBucketState;

    fn fresh(&self, now: Tick) -> TokenBucketState {
        let missing = if self.starts_empty { self.burst } else { 0 };
        TokenBucketState::full_at(self.scale.shares_at(now) + self.scale.shares_of(missing))
    }

    #[inline]
    fn decide(&self, state: &mut TokenBucketState, now: Tick, cost: u32) -> Decision {
        if cost == 0 {
            return Decision::Pass;
        }
        let now = self.scale.shares_at(now);
        let full_at = state.shares();
        let taken = self.scale.shares_of(cost);
        let missing = full_at.saturating_sub(now);
        // Tokens are there as long as no more than a burst is missing afterwards; who may owe needs a full bucket.
        let is_there = missing + taken <= self.scale.room();
        let may_owe = self.may_owe && cost > self.burst && missing == 0;
        if !(is_there || may_owe) {
            return self.refuse(full_at, now, cost);
        }
        *state = TokenBucketState::full_at(now + missing + taken);
        Decision::Pass
    }

    /// A few of the tokens that are there. Counted late they are missing for as much longer, while the bucket may be full.
    #[inline]
    fn credit(&self, state: &TokenBucketState, now: Tick) -> u32 {
        credit_of(self, state, now, self.burst)
    }

    fn refund(&self, state: &mut TokenBucketState, now: Tick, cost: u32) {
        let full_at = state.shares();
        let full = full_at.min(self.scale.shares_at(now));
        let refunded = full_at.saturating_sub(self.scale.shares_of(cost));
        *state = TokenBucketState::full_at(refunded.max(full));
    }

    /// Keeps the tokens with their fraction, cut to the new burst; keeps a debt up to one new burst. The same parameters
    /// change nothing.
    fn retune(&self, old: &Self, state: &mut TokenBucketState, now: Tick) {
        if self == old && self.scale.is_as_fine_as(old.scale) {
            return;
        }
        let missing = state.shares().saturating_sub(old.scale.shares_at(now));
        let missing = self
            .scale
            .rescaled(missing, old.scale)
            .saturating_add(self.scale.shares_of(self.burst.saturating_sub(old.burst)))
            .saturating_sub(self.scale.shares_of(old.burst.saturating_sub(self.burst)));
        // 60/min is 1/s, in shares of another size.
        let most = (self != old).then_some(2 * self.scale.room());
        let missing = missing.min(most.unwrap_or(Shares::MAX));
        let full_at = self.scale.shares_at(now).saturating_add(missing);
        *state = TokenBucketState::full_at(full_at);
    }

    fn settled_at(&self, state: &TokenBucketState) -> Tick {
        if self.starts_empty {
            return Tick::MAX;
        }
        u64::try_from(self.scale.nanos(state.shares())).map_or(Tick::MAX, Tick::from_nanos)
    }

    fn is_settled(&self, state: &TokenBucketState, now: Tick) -> bool {
        !self.starts_empty && state.shares() <= self.scale.shares_at(now)
    }
}

/// Without what was computed from that.
impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBucket")
            .field("rate", &self.rate)
            .field("burst", &self.burst)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    /// One token each 10 ns.
    const LIMIT: TokenBucket = TokenBucket::new(Rate::new(1, Duration::from_nanos(10)), 3);
    const DAY: u64 = 86_400_000_000_000;

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn wait(nanos: u64) -> Decision {
        Decision::Wait {
            retry_in: Duration::from_nanos(nanos),
        }
    }

    #[test]
    fn a_full_bucket_passes_its_burst_then_one_per_spacing() {
        let mut state = LIMIT.fresh(at(0));

        for _ in 0..3 {
            assert_eq!(LIMIT.decide(&mut state, at(0), 1), Decision::Pass);
        }
        assert_eq!(LIMIT.decide(&mut state, at(0), 1), wait(10));
        assert_eq!(LIMIT.decide(&mut state, at(9), 1), wait(1));
        assert_eq!(LIMIT.decide(&mut state, at(10), 1), Decision::Pass);
        assert_eq!(LIMIT.settled_at(&state), at(40));
    }

    #[test]
    fn a_burst_is_saved_up_while_quiet_and_not_beyond() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(0), 3), Decision::Pass);

        assert_eq!(LIMIT.decide(&mut state, at(29), 3), wait(1));
        assert_eq!(LIMIT.decide(&mut state, at(1_000), 3), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut state, at(1_000), 1), wait(10));
    }

    #[test]
    fn three_a_second_do_not_drift_in_a_hundred_days() {
        let limit = TokenBucket::new(Rate::per_second(3), 2);
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.decide(&mut state, at(0), 2), Decision::Pass);
        let mut now = at(0);
        for _ in 0..3_000 {
            let Decision::Wait { retry_in } = limit.decide(&mut state, now, 1) else {
                panic!("the bucket was empty");
            };
            now = now.after(retry_in);
            assert_eq!(limit.decide(&mut state, now, 1), Decision::Pass);
        }
        assert_eq!(now, at(1_000_000_000_000), "not 999.999999 s");

        let later = at(100 * DAY + 1);
        assert_eq!(limit.decide(&mut state, later, 2), Decision::Pass);
        assert_eq!(limit.decide(&mut state, later, 1), wait(333_333_334));
    }

    #[test]
    fn an_empty_start_fills_at_the_rate() {
        let limit = LIMIT.empty();
        let mut state = limit.fresh(at(5));

        assert_eq!(limit.decide(&mut state, at(5), 1), wait(10));
        assert_eq!(limit.decide(&mut state, at(5), 3), wait(30));
        assert_eq!(limit.decide(&mut state, at(35), 3), Decision::Pass);
        assert_eq!(limit.settled_at(&state), Tick::MAX);
    }

    #[test]
    fn dearer_than_the_burst_is_never_or_owes() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(
            LIMIT.decide(&mut state, at(0), 4),
            Decision::Never { capacity: 3 }
        );
        assert_eq!(state, LIMIT.fresh(at(0)));

        let owing = LIMIT.with_debt();
        assert_eq!(owing.decide(&mut state, at(0), 1), Decision::Pass);
        assert_eq!(owing.decide(&mut state, at(0), 5), wait(10));
        assert_eq!(owing.decide(&mut state, at(10), 5), Decision::Pass);
        assert_eq!(owing.decide(&mut state, at(10), 1), wait(30));
        assert_eq!(owing.decide(&mut state, at(40), 1), Decision::Pass);
    }

    #[test]
    fn a_refund_never_makes_it_better_than_full() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(0), 2), Decision::Pass);

        LIMIT.refund(&mut state, at(5), 1);
        assert_eq!(LIMIT.decide(&mut state.clone(), at(5), 3), wait(5));
        LIMIT.refund(&mut state, at(5), u32::MAX);
        assert_eq!(LIMIT.decide(&mut state, at(5), 3), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut state, at(5), 1), wait(10));

        let mut idle = LIMIT.fresh(at(0));
        LIMIT.refund(&mut idle, at(50), 1);
        assert_eq!(LIMIT.decide(&mut idle, at(50), 3), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut idle, at(50), 1), wait(10));
    }

    #[test]
    fn a_new_rate_keeps_the_tokens_with_their_fraction() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(0), 3), Decision::Pass);

        // 1.5 tokens at 15 ns.
        let slower = TokenBucket::new(Rate::new(1, Duration::from_micros(1)), 3);
        slower.retune(&LIMIT, &mut state, at(15));
        assert_eq!(slower.decide(&mut state, at(15), 1), Decision::Pass);
        assert_eq!(slower.decide(&mut state, at(15), 1), wait(500));
    }

    #[test]
    fn a_new_burst_cuts_the_tokens_and_the_debt() {
        let mut full = LIMIT.fresh(at(0));
        let smaller = TokenBucket::new(LIMIT.rate(), 2);
        smaller.retune(&LIMIT, &mut full, at(0));
        assert_eq!(smaller.decide(&mut full, at(0), 2), Decision::Pass);
        assert_eq!(smaller.decide(&mut full, at(0), 1), wait(10));

        let mut full = LIMIT.fresh(at(0));
        let larger = TokenBucket::new(LIMIT.rate(), 9);
        larger.retune(&LIMIT, &mut full, at(0));
        assert_eq!(
            larger.decide(&mut full, at(0), 4),
            wait(10),
            "three tokens, not nine"
        );

        let owing = LIMIT.with_debt();
        let mut state = owing.fresh(at(0));
        assert_eq!(owing.decide(&mut state, at(0), 1_000), Decision::Pass);
        smaller.retune(&owing, &mut state, at(0));
        assert_eq!(
            smaller.decide(&mut state, at(0), 1),
            wait(30),
            "two owed, and one more"
        );
    }

    #[test]
    fn holds_at_the_edges_of_its_numbers() {
        let slowest = TokenBucket::new(Rate::new(1, Duration::MAX), u32::MAX).with_debt();
        let mut state = slowest.fresh(Tick::MAX);
        assert_eq!(
            slowest.decide(&mut state, Tick::MAX, u32::MAX),
            Decision::Pass
        );
        assert_eq!(
            slowest.decide(&mut state, Tick::MAX, 1),
            Decision::Wait {
                retry_in: Duration::MAX
            }
        );
        assert_eq!(slowest.settled_at(&state), Tick::MAX);

        let fastest = TokenBucket::new(Rate::new(u32::MAX, Duration::from_nanos(1)), u32::MAX);
        fastest.retune(&slowest, &mut state, Tick::MAX);
        assert_eq!(fastest.decide(&mut state, Tick::MAX, 1), wait(1));
        slowest.retune(&fastest, &mut state, Tick::MAX);
        assert_eq!(
            slowest.decide(&mut state, Tick::MAX, 1),
            Decision::Wait {
                retry_in: Duration::MAX
            }
        );
    }

    #[test]
    fn a_burst_of_0_is_an_error_with_the_message_of_the_panic() {
        let error = TokenBucket::try_new(Rate::per_second(1), 0).unwrap_err();
        assert_eq!(error.parameter(), "burst");
        assert_eq!(
            error.to_string(),
            "a token bucket needs a burst of at least 1, got 0"
        );
    }

    #[test]
    #[should_panic(expected = "a token bucket needs a burst of at least 1, got 0")]
    fn refuses_a_burst_of_nothing() {
        let _ = TokenBucket::new(Rate::per_second(1), 0);
    }
}
