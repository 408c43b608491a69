use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::{Rate, Tick, saturating_duration};

use super::{Decision, OutOfRange, Policy, Quota, Status, credit_of, spread};

/// A token bucket: a burst passes at once, and in the long run no more than the rate.
///
/// It starts full with `burst` tokens, or with fewer ([`with_start`](Self::with_start)) or none
/// ([`with_empty_start`](Self::with_empty_start)). Tokens arrive one by one, each exactly
/// period / permits after the one before, until there are `burst`. A request of cost c takes c tokens, or waits until they
/// have arrived.
///
/// A request that costs more than the burst never passes. With [`with_debt`](Self::with_debt) it passes when the bucket is
/// full, and leaves a debt.
///
/// **Window bound**: a half-open window of T holds at most burst + rate · T, wherever it begins; with debt, the largest
/// cost in it + rate · T if that is more. Note that this is more than the rate: with "10/s, burst 10" 19 requests pass in
/// the first second. If the provider counts in windows, use [`Interval`](super::Interval).
///
/// The arithmetic is exact: a rate of 3/s does not drift, even after 100 days. (A bucket with a burst of 1 cannot keep a
/// fraction of a token: each permit is less than 1 ns late, never early.)
///
/// The algorithm is GCRA, the generic cell rate algorithm of ATM traffic management (ITU-T I.371), in its virtual
/// scheduling form: the state is not a number of tokens but the instant at which the bucket will be full again.
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
#[doc(alias("gcra", "leaky bucket", "Bandwidth"))]
pub struct TokenBucket {
    rate: Rate,
    burst: u32,
    /// The tokens of a fresh state, at most the burst.
    start: u32,
    pub(crate) may_owe: bool,
    /// The shares of a nanosecond and of one token, computed once: the rate as a fraction in lowest terms.
    nano: u32,
    token: Shares,
    /// The shares of a full burst, computed once.
    room: Shares,
}

impl TokenBucket {
    /// A bucket that starts with `burst` tokens and refills at `rate`.
    ///
    /// # Panics
    ///
    /// If `burst` is zero, since no request could ever pass. [`try_new`](Self::try_new) returns an error instead.
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
        let (nano, token) = lowest_terms(rate);
        Ok(Self {
            rate,
            burst,
            start: burst,
            may_owe: false,
            nano,
            token,
            room: token * burst as Shares,
        })
    }

    /// Starts without tokens when the limit is created.
    #[must_use]
    pub const fn with_empty_start(self) -> Self {
        Self { start: 0, ..self }
    }

    /// Starts with this number of tokens when the limit is created, for example as many as were left before a restart.
    ///
    /// ```
    /// use paceline::policy::{Policy, TokenBucket};
    /// use paceline::time::{Rate, Tick};
    ///
    /// const LIMIT: TokenBucket = TokenBucket::new(Rate::per_second(10), 100).with_start(30);
    /// assert_eq!(LIMIT.room(&LIMIT.fresh(Tick::ZERO), Tick::ZERO), 30);
    /// ```
    ///
    /// # Panics
    ///
    /// If `tokens` is more than the burst.
    #[must_use]
    #[track_caller]
    #[doc(alias = "initialTokens")]
    pub const fn with_start(self, tokens: u32) -> Self {
        OutOfRange::or_panic(self.try_with_start(tokens))
    }

    /// For the text of a policy.
    pub(super) const fn try_with_start(self, tokens: u32) -> Result<Self, OutOfRange> {
        if tokens > self.burst {
            let message = "a token bucket starts with at most its burst";
            return Err(OutOfRange::new("tokens", message).got_counts(tokens, self.burst));
        }
        Ok(Self {
            start: tokens,
            ..self
        })
    }

    /// Passes a request that costs more than the burst when the bucket is full. The request leaves a debt, and later
    /// requests wait until the debt is paid.
    #[must_use]
    pub const fn with_debt(self) -> Self {
        Self {
            may_owe: true,
            ..self
        }
    }

    /// The window bound holds for *arrivals*, if each request takes a time in `delay` to arrive. See [the module](super#a-margin).
    ///
    /// The burst is smaller by the tokens that come within the difference, rounded up. If that leaves none, it is 1, and the rate is
    /// so low that the provider's bucket has a token for each arrival. A request that costs more than the smaller burst never passes.
    ///
    /// ```
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let ms = Duration::from_millis;
    /// let bucket = TokenBucket::new(Rate::per_second(100), 20);
    /// let near = bucket.with_margin(ms(5)..=ms(85));
    /// assert_eq!(near, TokenBucket::new(Rate::per_second(100), 12));
    /// let far = bucket.with_margin(ms(5)..=ms(295));
    /// assert_eq!(far, TokenBucket::new(Rate::new(1, ms(15)), 1));
    /// ```
    ///
    /// # Panics
    ///
    /// If the longest delay is less than the shortest or a year longer, or [`with_debt`](Self::with_debt): a debt has no bound that a margin could
    /// keep. Do not add the debt afterwards.
    #[must_use]
    #[track_caller]
    pub const fn with_margin(self, delay: RangeInclusive<Duration>) -> Self {
        OutOfRange::or_panic(self.try_with_margin(&delay))
    }

    /// For the text of a policy.
    #[expect(clippy::cast_possible_truncation, reason = "less than the old burst")]
    pub(super) const fn try_with_margin(
        self,
        delay: &RangeInclusive<Duration>,
    ) -> Result<Self, OutOfRange> {
        let spread = match spread(delay) {
            Ok(spread) => spread.as_nanos(),
            Err(error) => return Err(error),
        };
        if self.may_owe {
            let message = "a token bucket with debt has no margin";
            return Err(OutOfRange::new("delay", message));
        }
        let (permits, burst) = (self.rate.permits() as u128, self.burst as u128);
        let period = self.rate.period().as_nanos();
        let come = (permits * spread).div_ceil(period);
        let bucket = if come < burst {
            Self::new(self.rate, (burst - come) as u32)
        } else {
            // A burst of the provider may arrive at once, and the next request a token later.
            let every = (period + permits * spread).div_ceil(permits * burst);
            Self::new(Rate::new(1, saturating_duration(every)), 1)
        };
        let start = if self.start < bucket.burst {
            self.start
        } else {
            bucket.burst
        };
        Ok(Self { start, ..bucket })
    }

    /// The rate at which tokens arrive.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The largest number of tokens in the bucket.
    #[must_use]
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    /// The tokens of a fresh state.
    #[must_use]
    pub const fn start(&self) -> u32 {
        self.start
    }

    /// Whether it was made [`with_debt`](Self::with_debt).
    #[must_use]
    pub const fn may_owe(&self) -> bool {
        self.may_owe
    }

    pub(super) const fn starts_full(&self) -> bool {
        self.start == self.burst
    }

    /// The decision on a request that cannot pass `now`.
    #[cold]
    fn refuse(&self, full_at: Shares, now: Shares, cost: u32) -> Decision {
        let earliest = match self.burst.checked_sub(cost) {
            Some(left) => full_at.saturating_sub(self.shares_of(left)),
            None if self.may_owe => full_at,
            None => {
                return Decision::Never {
                    capacity: self.burst,
                };
            }
        };
        Decision::Wait {
            retry_in: saturating_duration(self.nanos(earliest - now)),
        }
    }

    const fn shares_at(&self, tick: Tick) -> Shares {
        tick.as_nanos() as Shares * self.nano as Shares
    }

    const fn shares_of(&self, tokens: u32) -> Shares {
        tokens as Shares * self.token
    }

    /// When the bucket is full.
    fn full_at(&self, state: TokenBucketState) -> Tick {
        u64::try_from(self.nanos(state.shares())).map_or(Tick::MAX, Tick::from_nanos)
    }

    /// The time that the shares take in nanoseconds, rounded up so that no request passes early.
    fn nanos(&self, shares: Shares) -> u128 {
        match u64::try_from(shares) {
            // The usual case; a division of 64 bits takes less than half the time.
            Ok(shares) => shares.div_ceil(self.nano.into()).into(),
            Err(_) => shares.div_ceil(self.nano.into()),
        }
    }
}

impl Policy for TokenBucket {
    type State = TokenBucketState;

    fn fresh(&self, now: Tick) -> TokenBucketState {
        let missing = self.shares_of(self.burst - self.start);
        TokenBucketState::full_at(self.shares_at(now) + missing)
    }

    #[inline]
    fn decide(&self, state: &mut TokenBucketState, now: Tick, cost: u32) -> Decision {
        if cost == 0 {
            return Decision::Pass;
        }
        let now = self.shares_at(now);
        let full_at = state.shares();
        let taken = self.shares_of(cost);
        let missing = full_at.saturating_sub(now);
        // The tokens are there if at most a burst is missing afterwards. A debt needs a full bucket.
        let is_there = missing + taken <= self.room;
        let may_owe = self.may_owe && cost > self.burst && missing == 0;
        if !(is_there || may_owe) {
            return self.refuse(full_at, now, cost);
        }
        *state = TokenBucketState::full_at(now + missing + taken);
        Decision::Pass
    }

    /// A few of the tokens that are there. Tokens that are counted late are missing for longer, which is stricter.
    #[inline]
    fn credit(&self, state: &TokenBucketState, now: Tick) -> u32 {
        credit_of(self, state, now, self.burst)
    }

    /// The whole tokens that are there. None while it is in debt.
    fn room(&self, state: &TokenBucketState, now: Tick) -> u32 {
        let missing = state.shares().saturating_sub(self.shares_at(now));
        let whole = self.room.saturating_sub(missing) / self.token;
        u32::try_from(whole).unwrap_or(self.burst)
    }

    /// The rate, over the longer of its period and the time in which the bucket fills, so that a caller that spreads the permits
    /// over the window keeps exactly to the rate, and never sees more remaining than the quota.
    fn quota(&self) -> Option<Quota> {
        let permits = self.burst.max(self.rate.permits());
        let window = saturating_duration(self.nanos(self.shares_of(permits)));
        Some(Quota { permits, window })
    }

    /// It resets when the bucket is full, also if it did not start full.
    fn status(&self, state: &TokenBucketState, now: Tick) -> Status {
        let reset_in = self.full_at(*state).since(now);
        Status::new(self.quota(), self.room(state, now), reset_in)
    }

    fn refund(&self, state: &mut TokenBucketState, now: Tick, cost: u32) {
        let full_at = state.shares();
        let full = full_at.min(self.shares_at(now));
        let refunded = full_at.saturating_sub(self.shares_of(cost));
        *state = TokenBucketState::full_at(refunded.max(full));
    }

    /// The bucket may fall below zero tokens, also without [`with_debt`](Self::with_debt).
    fn charge(&self, state: &mut TokenBucketState, now: Tick, cost: u32) {
        if cost == 0 {
            return;
        }
        let full_at = state.shares().max(self.shares_at(now));
        *state = TokenBucketState::in_debt(full_at.saturating_add(self.shares_of(cost)));
    }

    /// Keeps the tokens with their fraction, up to the new burst. Keeps a debt up to one new burst. Equal parameters change
    /// nothing.
    fn retune(&self, old: &Self, state: &mut TokenBucketState, now: Tick) {
        if self == old {
            return;
        }
        let missing = state.shares().saturating_sub(old.shares_at(now));
        let (whole, part) = (missing / old.token, missing % old.token);
        let missing = whole
            .saturating_mul(self.token)
            .saturating_add(scaled_up(part, self.token, old.token))
            .saturating_add(self.shares_of(self.burst.saturating_sub(old.burst)))
            .saturating_sub(self.shares_of(old.burst.saturating_sub(self.burst)));
        let full_at = self.shares_at(now) + missing.min(2 * self.room);
        *state = TokenBucketState::in_debt(full_at);
    }

    fn settled_at(&self, state: &TokenBucketState) -> Tick {
        if !self.starts_full() {
            return Tick::MAX;
        }
        self.full_at(*state)
    }

    fn is_settled(&self, state: &TokenBucketState, now: Tick) -> bool {
        self.starts_full() && state.shares() <= self.shares_at(now)
    }

    fn saves_until(&self, state: &TokenBucketState) -> Tick {
        self.full_at(*state)
    }

    /// The lower half, which lasts for 584 years with a rate of 1,000/s and for 26 days with one of 7,919/s.
    fn to_word(&self, state: &TokenBucketState) -> Option<u64> {
        (state.high == 0).then_some(state.low)
    }

    fn of_word(&self, word: u64) -> TokenBucketState {
        TokenBucketState { high: 0, low: word }
    }
}

/// Leaves out the fields that are computed from the others.
impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBucket")
            .field("rate", &self.rate)
            .field("burst", &self.burst)
            .finish_non_exhaustive()
    }
}

/// The instant at which a [`TokenBucket`] will be full again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TokenBucketState {
    /// Two halves of a `u128`, because a `u128` beside a key of 8 bytes would leave 8 bytes of padding.
    high: u64,
    low: u64,
}

impl TokenBucketState {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the other half keeps the upper bits"
    )]
    const fn full_at(shares: Shares) -> Self {
        Self {
            high: (shares >> 64) as u64,
            low: shares as u64,
        }
    }

    /// The same for a number that may be too large. Beyond [`MOST`] a bucket is never full again.
    fn in_debt(shares: Shares) -> Self {
        Self::full_at(shares.min(MOST))
    }

    const fn shares(self) -> Shares {
        (self.high as Shares) << 64 | self.low as Shares
    }
}

/// Time in units of 1 ns / permits, or fewer of them if the rate can be reduced. A token takes a whole number of them.
///
/// The largest value is a tick (64 bits) times the permits (32 bits), plus a cost (32 bits) times a period (94 bits).
type Shares = u128;

/// No state has more. With the most permits it is later than the last tick, and the largest cost can be added to it.
const MOST: Shares = Shares::MAX / 2;

/// The shares of a nanosecond and of a token: permits / period in lowest terms, so that equal rates have equal shares, and the
/// number of shares stays small.
const fn lowest_terms(rate: Rate) -> (u32, Shares) {
    let (permits, period) = (rate.permits(), rate.period().as_nanos());
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder is less than the divisor, which has 32 bits"
    )]
    let (mut common, mut rest) = (permits, (period % permits as Shares) as u32);
    while rest > 0 {
        (common, rest) = (rest, common % rest);
    }
    (permits / common, period / common as Shares)
}

/// `part · to / from`, rounded up, for `part < from`. If the product would overflow (both periods are centuries long), the
/// fraction is rounded up to 33 bits.
fn scaled_up(part: u128, to: u128, from: u128) -> u128 {
    let bits = |number: u128| u128::BITS - number.leading_zeros();
    let excess = (bits(part) + bits(to)).saturating_sub(u128::BITS - 1);
    let part = part.div_ceil(1 << excess);
    (part * to).div_ceil(from >> excess).min(to)
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
    fn an_idle_bucket_saves_up_its_burst_and_no_more() {
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
        let limit = LIMIT.with_empty_start();
        let mut state = limit.fresh(at(5));

        assert_eq!(limit.decide(&mut state, at(5), 1), wait(10));
        assert_eq!(limit.decide(&mut state, at(5), 3), wait(30));
        assert_eq!(limit.decide(&mut state, at(35), 3), Decision::Pass);
        assert_eq!(limit.settled_at(&state), Tick::MAX);
    }

    #[test]
    fn a_start_between_empty_and_full_is_never_reached_again() {
        let limit = LIMIT.with_start(2);
        let mut state = limit.fresh(at(5));
        assert_eq!(limit.room(&state, at(5)), 2);
        assert_eq!(limit.decide(&mut state, at(5), 3), wait(10));
        assert_eq!(limit.status(&state, at(5)).reset_in.as_nanos(), 10);
        assert_eq!(limit.settled_at(&state), Tick::MAX);
        assert!(!limit.is_settled(&state, at(1_000)));
        assert_eq!(limit.decide(&mut state, at(15), 3), Decision::Pass);

        assert_eq!(LIMIT.with_start(3), LIMIT);
        assert_eq!(LIMIT.with_start(0), LIMIT.with_empty_start());
        assert_ne!(LIMIT.with_start(1), LIMIT.with_start(2));
    }

    #[test]
    #[should_panic(expected = "a token bucket starts with at most its burst, got 4 and 3")]
    fn a_start_above_the_burst_panics() {
        let _ = LIMIT.with_start(4);
    }

    #[test]
    fn a_cost_above_the_burst_never_passes_or_leaves_a_debt() {
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
    fn a_charge_takes_tokens_that_are_not_there() {
        let mut state = LIMIT.fresh(at(0));
        LIMIT.charge(&mut state, at(0), 5);
        assert_eq!(LIMIT.room(&state, at(29)), 0);
        assert_eq!(LIMIT.decide(&mut state, at(5), 1), wait(25));
        LIMIT.refund_from(&mut state, at(5), at(0), 2);
        assert_eq!(LIMIT.decide(&mut state, at(5), 1), wait(5));
        assert_eq!(LIMIT.settled_at(&state), at(30));
        LIMIT.charge(&mut state, at(60), 1);
        assert_eq!(LIMIT.room(&state, at(60)), 2);
    }

    #[test]
    fn a_debt_beyond_the_last_tick_is_never_paid() {
        let slowest = TokenBucket::new(Rate::new(1, Duration::MAX), u32::MAX);
        let fastest = TokenBucket::new(Rate::new(u32::MAX, Duration::MAX), u32::MAX);
        for limit in [slowest, fastest] {
            let mut state = limit.fresh(Tick::MAX);
            for _ in 0..9 {
                limit.charge(&mut state, Tick::MAX, u32::MAX);
            }
            let decision = limit.decide(&mut state, Tick::MAX, 1);
            let then = decision.retry_in().map(|wait| at(0).after(wait));
            assert_eq!(then, Some(Tick::MAX));
            assert_eq!(limit.settled_at(&state), Tick::MAX);
            assert_eq!(limit.room(&state, Tick::MAX), 0);
        }
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
    fn a_new_burst_caps_the_tokens_and_the_debt() {
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
    fn the_largest_and_smallest_parameters_do_not_overflow() {
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
    fn new_panics_on_a_burst_of_0() {
        let _ = TokenBucket::new(Rate::per_second(1), 0);
    }

    #[test]
    fn an_equal_rate_in_another_unit_changes_no_answer() {
        let (minutes, seconds) = (Rate::per_minute(60), Rate::per_second(1));
        let (old, new) = (TokenBucket::new(minutes, 2), TokenBucket::new(seconds, 2));
        assert_eq!(old, new);
        let at = Tick::from_nanos;
        let mut state = old.fresh(at(0));
        assert!(old.decide(&mut state, at(0), 2).is_pass());

        let now = at(400_000_000);
        let expected = old.peek(&state, now, 1);
        assert!(matches!(expected, Decision::Wait { .. }));
        new.retune(&old, &mut state, now);
        assert_eq!(new.peek(&state, now, 1), expected);
        assert_eq!(new.settled_at(&state), at(2_000_000_000));
    }

    #[test]
    fn a_state_is_a_word_for_centuries_if_the_rate_can_be_reduced_and_else_for_weeks() {
        let fits = |permits, nanos| {
            let limit = TokenBucket::new(Rate::per_second(permits), 100);
            let state = limit.fresh(at(nanos));
            let word = limit.to_word(&state);
            word.is_some_and(|word| limit.of_word(word) == state)
        };
        assert!(fits(1, u64::MAX) && fits(1_000_000, u64::MAX));
        assert!(fits(7, 83 * 365 * DAY) && fits(7_919, 26 * DAY));
        assert!(!fits(7, 84 * 365 * DAY) && !fits(7_919, 27 * DAY));
    }

    #[test]
    fn debug_prints_the_parameters() {
        let printed = format!("{:?}", TokenBucket::new(Rate::per_second(7), 2));
        assert!(
            printed.contains("permits: 7") && printed.contains("burst: 2"),
            "{printed}"
        );
    }

    #[test]
    fn a_fraction_that_would_overflow_is_rounded_up() {
        let longest = Duration::MAX.as_nanos();

        assert_eq!(scaled_up(1, 1, 2), 1);
        assert_eq!(scaled_up(0, longest, longest), 0);
        assert_eq!(scaled_up(3, 10, 4), 8);
        let half = scaled_up(longest / 2, longest, longest);
        let full = scaled_up((1 << 94) - 1, (1 << 94) - 1, 1 << 94);
        assert_eq!(
            full,
            (1 << 94) - 1,
            "rounded up to a power of two, which fits"
        );
        assert!(half >= longest / 2 && half - longest / 2 < longest >> 31);
    }

    #[test]
    fn there_is_room_for_the_whole_tokens_and_none_while_in_debt() {
        let owing = LIMIT.with_debt();
        let room =
            |state: &TokenBucketState| [0, 9, 10, 29, 30].map(|now| owing.room(state, at(now)));
        let mut state = owing.fresh(at(0));
        assert_eq!(room(&state), [3; 5]);
        assert_eq!(owing.decide(&mut state, at(0), 3), Decision::Pass);
        assert_eq!(room(&state), [0, 0, 1, 2, 3]);
        assert_eq!(owing.decide(&mut state, at(30), 5), Decision::Pass);
        assert_eq!([59, 60].map(|now| owing.room(&state, at(now))), [0, 1]);
        let status = owing.status(&state, at(40));
        assert_eq!((status.remaining, status.reset_in.as_nanos()), (0, 40));
    }

    #[test]
    fn a_bucket_that_starts_empty_resets_when_it_is_full() {
        let limit = LIMIT.with_empty_start();
        let state = limit.fresh(at(5));
        let status = limit.status(&state, at(20));
        assert_eq!((status.remaining, status.reset_in.as_nanos()), (1, 15));
        assert_eq!(limit.status(&state, at(35)).reset_in, Duration::ZERO);
    }
}
