//! Naive models of the policies, written from the semantics and not from the code.

mod aligned;
mod windows;

use paceline::policy::{Decision, Interval, Ramp, TokenBucket, Unlimited};
use paceline::time::Tick;

use super::subject::owes;

pub(super) use aligned::Calendar;
pub(super) use windows::{Buckets, List, Page};

/// What a policy should do. A model may be slow, and it need not handle overflow.
pub(super) trait Model<P>: Sized {
    /// By how many nanoseconds the policy may be late because a retune rounds. It is never early.
    const LATE_WHEN_RETUNED: u128 = 0;

    fn start(policy: &P, now: Tick) -> Self;

    /// The first instant from `now` on at which `cost` may pass.
    fn due(&self, now: Tick, cost: u32) -> Due;

    /// Counts a `cost` that passes.
    fn count(&mut self, now: Tick, cost: u32);

    /// Counts a `cost` that may not pass; `None` if the exact result would overflow.
    fn charge(&mut self, now: Tick, cost: u32) -> Option<()> {
        self.count(now, cost);
        Some(())
    }

    /// Refunds `cost`.
    fn refund(&mut self, now: Tick, cost: u32);

    /// Refunds `cost` of what was spent at `spent_at`.
    fn refund_from(&mut self, now: Tick, _spent_at: Tick, cost: u32) {
        self.refund(now, cost);
    }

    /// The same history with other parameters; `None` if the exact result would overflow.
    fn retuned(&self, policy: &P, now: Tick) -> Option<Self>;
}

/// In nanoseconds. It may be beyond the last tick.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Due {
    At(u128),
    Never { capacity: u32 },
}

impl Due {
    /// The result of two limits together.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(one), Self::At(other)) => Self::At(one.max(other)),
            (Self::Never { capacity: one }, Self::Never { capacity: other }) => Self::Never {
                capacity: one.min(other),
            },
            (never @ Self::Never { .. }, _) | (_, never) => never,
        }
    }

    /// Whether `decision` is this instant, or later by at most `slack` nanoseconds. After the last tick every wait is right.
    pub(super) fn agrees_with(self, decision: Decision, now: Tick, slack: u128) -> bool {
        let now = u128::from(now.as_nanos());
        let last = u128::from(u64::MAX);
        match (self, decision) {
            (Self::At(due), Decision::Pass) => due <= now,
            (Self::At(due), Decision::Wait { retry_in }) => {
                let end = now.saturating_add(retry_in.as_nanos());
                let soonest = due.max(now);
                end >= soonest.min(last) && (end <= soonest + slack || end >= last)
            }
            (Self::Never { capacity }, Decision::Never { capacity: other }) => capacity == other,
            _ => false,
        }
    }
}

/// The model of an [`Interval`]: after each request no other one for cost · d.
#[derive(Clone, Debug)]
pub(super) struct Spacing {
    interval: u128,
    passed: Vec<(u128, u32)>,
    /// Whether the last entry is the start of a delayed interval and not a request.
    unpaid: bool,
}

impl Model<Interval> for Spacing {
    fn start(policy: &Interval, now: Tick) -> Self {
        let delayed = *policy == policy.with_delayed_start();
        Self {
            interval: policy.interval().as_nanos(),
            // As if a request had passed at the start.
            passed: Vec::from_iter(delayed.then_some((now.as_nanos().into(), 1))),
            unpaid: delayed,
        }
    }

    fn due(&self, now: Tick, cost: u32) -> Due {
        if cost == 0 {
            return Due::At(now.as_nanos().into());
        }
        let closed_until = |&(at, cost): &(u128, u32)| at + u128::from(cost) * self.interval;
        let due = self.passed.iter().map(closed_until).max().unwrap_or(0);
        Due::At(due.max(now.as_nanos().into()))
    }

    fn count(&mut self, now: Tick, cost: u32) {
        if cost > 0 {
            self.passed.push((now.as_nanos().into(), cost));
            self.unpaid = false;
        }
    }

    /// The wait becomes longer by its intervals. In the policy the largest sum of costs is the largest cost.
    fn charge(&mut self, now: Tick, cost: u32) -> Option<()> {
        let is_closed = self.due(now, 1) != Due::At(now.as_nanos().into());
        match self.passed.last_mut() {
            Some((_, last)) if is_closed => *last = last.checked_add(cost)?,
            _ => self.count(now, cost),
        }
        Some(())
    }

    /// Only the last request can be refunded, with what was charged since.
    fn refund(&mut self, _now: Tick, cost: u32) {
        if let Some((at, last)) = self.passed.pop() {
            let back = cost.min(last - u32::from(self.unpaid));
            self.passed = vec![(at, last - back)];
        }
    }

    /// The intervals of an earlier request are over.
    fn refund_from(&mut self, now: Tick, spent_at: Tick, cost: u32) {
        let last = self.passed.last().map_or(0, |&(at, _)| at);
        if last <= spent_at.as_nanos().into() {
            self.refund(now, cost);
        }
    }

    /// The next request passes at last + cost · d. Earlier requests no longer count.
    fn retuned(&self, policy: &Interval, _now: Tick) -> Option<Self> {
        Some(Self {
            interval: policy.interval().as_nanos(),
            passed: self.passed.last().copied().into_iter().collect(),
            unpaid: self.unpaid,
        })
    }
}

/// The model of a [`Ramp`]: after each request no other one before its cost has come.
#[derive(Clone, Debug)]
pub(super) struct Slope {
    policy: Ramp,
    begun: Option<u128>,
    last: u128,
    cost: u32,
    /// When the last request could have passed.
    could: u128,
}

impl Slope {
    /// Twice the rate at an instant, in parts of a permit of which 2 · within · period are a whole one.
    fn twice_the_rate(&self, since: u128) -> u128 {
        let within = self.policy.within().as_nanos();
        let [from, to] =
            [self.policy.from(), self.policy.to()].map(|rate| u128::from(rate.permits()));
        let gone = since.min(within);
        2 * (from * (within - gone) + to * gone)
    }

    /// What comes between two instants: trapezoids.
    fn comes(&self, begun: u128, first: u128, last: u128) -> u128 {
        let bend = begun + self.policy.within().as_nanos();
        let bend = bend.clamp(first, last);
        [(first, bend), (bend, last)]
            .into_iter()
            .fold(0, |sum: u128, (first, last)| {
                let sides = self.twice_the_rate(first - begun) + self.twice_the_rate(last - begun);
                sum.saturating_add((sides / 2).saturating_mul(last - first))
            })
    }

    /// When the cost of the last request has come.
    fn open_at(&self) -> u128 {
        let Some(begun) = self.begun.filter(|_| self.cost > 0) else {
            return self.could;
        };
        let permit = 2 * self.policy.within().as_nanos() * self.policy.to().period().as_nanos();
        let cost = u128::from(self.cost) * permit;
        let (mut first, mut last) = (self.last, u128::from(u64::MAX) + 1);
        while first < last {
            let middle = first.midpoint(last);
            if self.comes(begun, self.last, middle) < cost {
                first = middle + 1;
            } else {
                last = middle;
            }
        }
        first
    }
}

impl Model<Ramp> for Slope {
    fn start(policy: &Ramp, _now: Tick) -> Self {
        Self {
            policy: *policy,
            begun: None,
            last: 0,
            cost: 0,
            could: 0,
        }
    }

    fn due(&self, now: Tick, cost: u32) -> Due {
        let now = now.as_nanos().into();
        Due::At(if cost == 0 {
            now
        } else {
            self.open_at().max(now)
        })
    }

    fn count(&mut self, now: Tick, cost: u32) {
        if cost == 0 {
            return;
        }
        let now = now.as_nanos().into();
        let could = self.open_at();
        let idle = self.policy.restart_after();
        if self.begun.is_none() || idle.is_some_and(|idle| could + idle.as_nanos() <= now) {
            self.begun = Some(now);
        }
        (self.last, self.cost) = (now, cost);
        self.could = could;
    }

    fn charge(&mut self, now: Tick, cost: u32) -> Option<()> {
        if cost > 0 && self.due(now, 1) != Due::At(now.as_nanos().into()) {
            self.cost = self.cost.checked_add(cost)?;
        } else {
            self.count(now, cost);
        }
        Some(())
    }

    /// Only the last request can be refunded. Without it, the ramp has not begun if it was the first.
    fn refund(&mut self, _now: Tick, cost: u32) {
        self.cost = self.cost.saturating_sub(cost);
        if self.cost == 0 && self.begun == Some(self.last) {
            (self.begun, self.could) = (None, 0);
        }
    }

    fn refund_from(&mut self, now: Tick, spent_at: Tick, cost: u32) {
        if self.last <= spent_at.as_nanos().into() {
            self.refund(now, cost);
        }
    }

    fn retuned(&self, policy: &Ramp, _now: Tick) -> Option<Self> {
        let policy = *policy;
        Some(Self { policy, ..*self })
    }
}

/// The model of a [`TokenBucket`]: the tokens as an exact fraction.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    policy: TokenBucket,
    burst: u32,
    debt: bool,
    /// The parts of a token.
    token: i128,
    /// The parts that arrive in a nanosecond.
    speed: i128,
    /// The parts in the bucket at `since`.
    parts: i128,
    since: u64,
}

impl Bucket {
    fn parts_at(&self, now: Tick) -> i128 {
        let came = i128::from(now.as_nanos() - self.since) * self.speed;
        (self.parts + came).min(self.full())
    }

    fn full(&self) -> i128 {
        i128::from(self.burst) * self.token
    }
}

impl Model<TokenBucket> for Bucket {
    const LATE_WHEN_RETUNED: u128 = 1;

    fn start(policy: &TokenBucket, now: Tick) -> Self {
        let token = policy.rate().period().as_nanos();
        let mut bucket = Self {
            policy: *policy,
            burst: policy.burst(),
            debt: owes(policy),
            token: i128::try_from(token).unwrap(),
            speed: policy.rate().permits().into(),
            parts: 0,
            since: now.as_nanos(),
        };
        bucket.parts = i128::from(policy.start()) * bucket.token;
        bucket
    }

    fn due(&self, now: Tick, cost: u32) -> Due {
        if cost > self.burst && !self.debt {
            return Due::Never {
                capacity: self.burst,
            };
        }
        let needed = i128::from(cost.min(self.burst)) * self.token;
        let missing = if cost == 0 {
            0
        } else {
            (needed - self.parts_at(now)).max(0)
        };
        let wait = u128::try_from(missing)
            .unwrap()
            .div_ceil(u128::try_from(self.speed).unwrap());
        Due::At(u128::from(now.as_nanos()) + wait)
    }

    fn count(&mut self, now: Tick, cost: u32) {
        self.parts = self.parts_at(now) - i128::from(cost) * self.token;
        self.since = now.as_nanos();
    }

    fn charge(&mut self, now: Tick, cost: u32) -> Option<()> {
        let parts = i128::from(cost).checked_mul(self.token)?;
        let parts = self.parts_at(now).checked_sub(parts)?;
        self.parts = Some(parts).filter(|parts| *parts > i128::MIN / 4)?;
        self.since = now.as_nanos();
        Some(())
    }

    /// Up to the burst: a full bucket takes nothing back.
    fn refund(&mut self, now: Tick, cost: u32) {
        self.count(now, 0);
        self.parts = (self.parts + i128::from(cost) * self.token).min(self.full());
    }

    /// Keeps the tokens with their fraction, up to the new burst, and a debt up to one new burst. Equal parameters change
    /// nothing.
    fn retuned(&self, policy: &TokenBucket, now: Tick) -> Option<Self> {
        let new = Self::start(policy, now);
        // With two periods of centuries the policy rounds to 33 bits, as its code says.
        self.token.checked_mul(new.token)?.checked_mul(2)?;
        // An old and a new token in common parts.
        let common = self
            .token
            .checked_mul(new.token / gcd(self.token, new.token))?;
        // Half of the range, so that two of the largest sums fit.
        common.checked_mul(i128::from(u32::MAX) * 4)?;
        let mut kept = Self {
            token: common,
            speed: new.speed.checked_mul(common / new.token)?,
            parts: self.parts_at(now).checked_mul(common / self.token)?,
            ..new
        };
        i128::from(u64::MAX).checked_mul(kept.speed)?;
        if self.policy != *policy {
            kept.parts = kept.parts.clamp(-kept.full(), kept.full());
        }
        Some(kept)
    }
}

/// The model of [`Unlimited`].
#[derive(Clone, Debug)]
pub(super) struct Free;

impl Model<Unlimited> for Free {
    fn start(_policy: &Unlimited, _now: Tick) -> Self {
        Self
    }

    fn due(&self, now: Tick, _cost: u32) -> Due {
        Due::At(now.as_nanos().into())
    }

    fn count(&mut self, _now: Tick, _cost: u32) {}

    fn refund(&mut self, _now: Tick, _cost: u32) {}

    fn retuned(&self, _policy: &Unlimited, _now: Tick) -> Option<Self> {
        Some(Self)
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
