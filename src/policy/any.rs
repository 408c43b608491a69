use core::cmp::Reverse;
use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::Tick;

use super::any_limit::AnyState;
use super::{
    AlignedWindow, AnyKind, AnyLimit, Decision, FixedWindow, Interval, OutOfRange, Policy, Quota,
    Ramp, SlidingCounter, SlidingLog, Status, TokenBucket, Unlimited, spread,
};

/// A policy of a kind that is chosen at run time, such as one from a configuration.
///
/// It is made from any other policy of this crate, or from a text such as `100/min burst 20`. The
/// [module `config`](crate::config) has the table of the texts.
///
/// ```
/// use paceline::policy::{AnyPolicy, Interval, TokenBucket};
/// use paceline::prelude::*;
/// use paceline::time::Rate;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let policy: AnyPolicy = "100/min burst 20".parse().unwrap();
/// assert_eq!(policy, TokenBucket::new(Rate::per_minute(100), 20).into());
///
/// let limit = policy.shared();
/// assert!(limit.try_acquire(20).is_pass());
///
/// // The kind may change too. The 20 permits stay spent: the interval begins anew.
/// let spacing = Interval::every(Duration::from_millis(50));
/// limit.retune(spacing.into());
/// assert_eq!(limit.try_acquire(1).retry_in(), Some(Duration::from_millis(50)));
/// # }
/// ```
///
/// **Window bound**: that of the policy that it was made from; of several, that of each. After a change of its kind the new bound
/// holds from the change on.
///
/// # A change of its parameters
///
/// `retune` keeps what was spent, and is never looser than that:
///
/// * A limit that is in the old policy and in the new one keeps its state.
/// * If as many others are in the old policy as in the new one, each takes the place of another, in order. To parameters of the
///   same kind it goes on as that kind does; see there. To another kind it carries over the used permits: as many are spent in
///   the new limit `now`, or all that it has. A debt beyond that is forgotten.
/// * Otherwise each new limit begins with as many permits spent as the most spent of the old limits.
///
/// # Inside an [`All`](super::All)
///
/// It counts as one limit there, however many it consists of, so that [`binding`](Status::binding) may name the same number for two
/// limits. [`and`](Self::and) joins policies with a number for each.
#[derive(Clone, Debug, Eq, PartialEq)]
#[doc(alias("BucketConfiguration", "Quota", "dyn Policy"))]
pub struct AnyPolicy {
    /// None is no limit.
    limits: Vec<AnyLimit>,
}

impl AnyPolicy {
    /// Both this policy and `other`: a request passes if both pass it. It is what [`All`](super::All) does.
    ///
    /// ```
    /// use paceline::policy::{AnyPolicy, SlidingLog};
    /// use paceline::time::Rate;
    ///
    /// let each = |rate| AnyPolicy::from(SlidingLog::from_rate(rate));
    /// let both = each(Rate::per_second(10)).and(each(Rate::per_day(500)));
    /// assert_eq!("10/s and 500/day".parse(), Ok(both));
    /// ```
    #[must_use]
    pub fn and(mut self, other: impl Into<Self>) -> Self {
        self.limits.append(&mut other.into().limits);
        self
    }

    /// Counts each request as 1, whatever it costs. It is what [`PerRequest`](super::PerRequest) does.
    ///
    /// ```
    /// use paceline::policy::{AnyPolicy, FixedWindow, PerRequest};
    /// use std::time::Duration;
    ///
    /// let window = FixedWindow::new(60, Duration::from_secs(60));
    /// assert_eq!(AnyPolicy::from(window).per_request(), PerRequest::new(window).into());
    /// assert_eq!("60/min fixed per request".parse(), Ok(AnyPolicy::from(window).per_request()));
    /// ```
    #[must_use]
    pub fn per_request(mut self) -> Self {
        for limit in &mut self.limits {
            limit.per_request = true;
        }
        self
    }

    /// Each of its limits with a margin for the delays until a request arrives, as the policies have it (see
    /// [the module](super#a-margin)).
    ///
    /// ```
    /// use paceline::policy::AnyPolicy;
    /// use std::time::Duration;
    ///
    /// let ms = Duration::from_millis;
    /// let policy: AnyPolicy = "10/s and 100/s burst 20".parse()?;
    /// let policy = policy.try_with_margin(ms(5)..=ms(80))?;
    /// assert_eq!(policy, "10/1075ms and 100/s burst 12".parse()?);
    /// assert_eq!(policy, "10/s margin 5ms to 80ms and 100/s burst 20 margin 75ms".parse()?);
    /// # Ok::<(), paceline::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If one of the policies has none: the longest delay is less than the shortest, a bucket may owe, or the period of a ramp or a
    /// window of the calendar does not allow it.
    pub fn try_with_margin(mut self, delay: RangeInclusive<Duration>) -> Result<Self, OutOfRange> {
        spread(&delay)?;
        for limit in &mut self.limits {
            limit.kind = match limit.kind.clone() {
                AnyKind::Bucket(policy) => AnyKind::Bucket(policy.try_with_margin(&delay)?),
                AnyKind::Interval(policy) => AnyKind::Interval(policy.with_margin(delay.clone())),
                AnyKind::Ramp(policy) => AnyKind::Ramp(policy.try_with_margin(&delay)?),
                AnyKind::Log(policy) => AnyKind::Log(policy.with_margin(delay.clone())),
                AnyKind::Counter(policy) => AnyKind::Counter(policy.with_margin(delay.clone())),
                AnyKind::Window(policy) => AnyKind::Log(policy.with_margin(delay.clone())),
                AnyKind::Aligned(policy) => AnyKind::Aligned(policy.try_with_margin(&delay)?),
            };
        }
        Ok(self)
    }

    fn of(kind: AnyKind) -> Self {
        let limit = AnyLimit {
            kind,
            per_request: false,
        };
        Self {
            limits: vec![limit],
        }
    }

    /// What it consists of, in order: nothing for [`Unlimited`].
    ///
    /// ```
    /// use paceline::policy::{AnyKind, AnyPolicy};
    ///
    /// let policy: AnyPolicy = "10/s burst 5 and 500/day per request".parse()?;
    /// let [each, all] = policy.limits() else { panic!("two limits") };
    /// assert!(matches!(&each.kind, AnyKind::Bucket(bucket) if bucket.burst() == 5));
    /// assert!(matches!(all.kind, AnyKind::Log(_)) && all.per_request);
    /// # Ok::<(), paceline::config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn limits(&self) -> &[AnyLimit] {
        &self.limits
    }

    /// The state in which all of each limit was spent `now`.
    ///
    /// ```
    /// use paceline::policy::{AnyPolicy, Policy};
    /// use paceline::time::Tick;
    ///
    /// let policy: AnyPolicy = "10/s and 500/day".parse()?;
    /// let spent = policy.spent(Tick::ZERO);
    /// assert_eq!(policy.settled_at(&spent), Tick::from_nanos(86_400_000_000_000));
    /// # Ok::<(), paceline::config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn spent(&self, now: Tick) -> AnyPolicyState {
        let limits = self.limits.iter();
        let limits = limits.map(|limit| limit.begin_with_spent(now, u32::MAX));
        AnyPolicyState {
            limits: limits.collect(),
        }
    }

    fn pairs<'a>(
        &'a self,
        state: &'a AnyPolicyState,
    ) -> impl Iterator<Item = (&'a AnyLimit, &'a AnyState)> {
        self.limits.iter().zip(&state.limits)
    }

    fn pairs_mut<'a>(
        &'a self,
        state: &'a mut AnyPolicyState,
    ) -> impl Iterator<Item = (&'a AnyLimit, &'a mut AnyState)> {
        self.limits.iter().zip(&mut state.limits)
    }
}

impl Policy for AnyPolicy {
    type State = AnyPolicyState;

    fn fresh(&self, now: Tick) -> AnyPolicyState {
        let limits = self.limits.iter().map(|limit| limit.fresh(now)).collect();
        AnyPolicyState { limits }
    }

    fn decide(&self, state: &mut AnyPolicyState, now: Tick, cost: u32) -> Decision {
        if let ([limit], [state]) = (&self.limits[..], &mut state.limits[..]) {
            return limit.decide(state, now, cost);
        }
        let decision = self.peek(state, now, cost);
        if decision.is_pass() {
            for (limit, state) in self.pairs_mut(state) {
                let _ = limit.decide(state, now, cost);
            }
        }
        decision
    }

    fn peek(&self, state: &AnyPolicyState, now: Tick, cost: u32) -> Decision {
        let decisions = self
            .pairs(state)
            .map(|(limit, state)| limit.peek(state, now, cost));
        decisions.fold(Decision::Pass, Decision::strictest)
    }

    fn foresee(&self, state: &mut AnyPolicyState, then: Tick) {
        for (limit, state) in self.pairs_mut(state) {
            limit.foresee(state, then);
        }
    }

    fn credit(&self, state: &AnyPolicyState, now: Tick) -> u32 {
        let credits = self
            .pairs(state)
            .map(|(limit, state)| limit.credit(state, now));
        credits.min().unwrap_or(u32::MAX)
    }

    fn room(&self, state: &AnyPolicyState, now: Tick) -> u32 {
        let rooms = self
            .pairs(state)
            .map(|(limit, state)| limit.room(state, now));
        rooms.min().unwrap_or(u32::MAX)
    }

    /// Of several, the one of fewest permits, which a fresh limit exhausts first; of equal ones, that of the longest window.
    fn quota(&self) -> Option<Quota> {
        let quotas = self.limits.iter().filter_map(AnyLimit::quota);
        quotas.min_by_key(|quota| (quota.permits, Reverse(quota.window)))
    }

    fn is_per_request(&self) -> bool {
        !self.limits.is_empty() && self.limits.iter().all(|limit| limit.per_request)
    }

    fn status(&self, state: &AnyPolicyState, now: Tick) -> Status {
        if let ([limit], [state]) = (&self.limits[..], &state.limits[..]) {
            return limit.status(state, now);
        }
        Status::least(
            self.pairs(state)
                .map(|(limit, state)| (limit.status(state, now), 1)),
        )
    }

    fn refund(&self, state: &mut AnyPolicyState, now: Tick, cost: u32) {
        for (limit, state) in self.pairs_mut(state) {
            limit.refund(state, now, cost);
        }
    }

    fn refund_from(&self, state: &mut AnyPolicyState, now: Tick, spent_at: Tick, cost: u32) {
        for (limit, state) in self.pairs_mut(state) {
            limit.refund_from(state, now, spent_at, cost);
        }
    }

    fn charge(&self, state: &mut AnyPolicyState, now: Tick, cost: u32) {
        for (limit, state) in self.pairs_mut(state) {
            limit.charge(state, now, cost);
        }
    }

    /// What was spent stays spent: see [the type](Self#a-change-of-its-parameters).
    fn retune(&self, old: &Self, state: &mut AnyPolicyState, now: Tick) {
        let most = old
            .pairs(state)
            .map(|(limit, state)| limit.spent(state, now));
        let most = most.max().unwrap_or(0);
        let states = core::mem::take(&mut state.limits);
        let mut before: Vec<_> = old.limits.iter().zip(states).collect();
        let kept = self.limits.iter().map(|limit| {
            let same = before.iter().position(|(old, _)| *old == limit)?;
            let (old, state) = before.remove(same);
            Some(limit.retune(old, state, now))
        });
        let kept: Vec<Option<AnyState>> = kept.collect();

        let new = kept.iter().filter(|kept| kept.is_none()).count();
        let takes_place = new == before.len();
        let mut replaced = before.into_iter().filter(|_| takes_place);
        let limits = self.limits.iter().zip(kept).map(|(limit, kept)| {
            kept.unwrap_or_else(|| match replaced.next() {
                Some((old, state)) => limit.retune(old, state, now),
                None => limit.begin_with_spent(now, most),
            })
        });
        state.limits = limits.collect();
    }

    fn settled_at(&self, state: &AnyPolicyState) -> Tick {
        let settled = self
            .pairs(state)
            .map(|(limit, state)| limit.settled_at(state));
        settled.max().unwrap_or(Tick::ZERO)
    }

    fn is_settled(&self, state: &AnyPolicyState, now: Tick) -> bool {
        let mut pairs = self.pairs(state);
        pairs.all(|(limit, state)| limit.is_settled(state, now))
    }

    /// That of one limit: of several, each loses permits while another one binds.
    fn saves_until(&self, state: &AnyPolicyState) -> Tick {
        match (&self.limits[..], &state.limits[..]) {
            ([limit], [state]) => limit.saves_until(state),
            _ => Tick::ZERO,
        }
    }

    /// The state of one limit; those of several have no room.
    fn to_word(&self, state: &AnyPolicyState) -> Option<u64> {
        match (&self.limits[..], &state.limits[..]) {
            ([limit], [state]) => limit.to_word(state),
            _ => None,
        }
    }

    fn of_word(&self, word: u64) -> AnyPolicyState {
        let limits = self.limits.iter().map(|one| one.of_word(word)).collect();
        AnyPolicyState { limits }
    }
}

/// The state of an [`AnyPolicy`]: that of each of its limits.
///
/// It belongs to the policy that made it, or to the one that it was last retuned to.
#[derive(Clone, Debug)]
pub struct AnyPolicyState {
    limits: Vec<AnyState>,
}

/// A macro, because Rust cannot convert from any of several types at once.
macro_rules! from_policy {
    ($($policy:ident is $kind:ident),+) => {
        $(
            impl From<$policy> for AnyPolicy {
                fn from(policy: $policy) -> Self {
                    Self::of(AnyKind::$kind(policy))
                }
            }
        )+
    };
}

from_policy!(
    TokenBucket is Bucket, Interval is Interval, Ramp is Ramp, SlidingLog is Log,
    SlidingCounter is Counter, FixedWindow is Window, AlignedWindow is Aligned
);

impl From<Unlimited> for AnyPolicy {
    fn from(_policy: Unlimited) -> Self {
        Self { limits: Vec::new() }
    }
}
