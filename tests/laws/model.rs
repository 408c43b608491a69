//! Naive models of the policies, written from the semantics and not from the code.

mod windows;

use paceline::policy::{Decision, Interval, TokenBucket, Unlimited};
use paceline::time::Tick;

use super::subject::Owes;

pub(super) use windows::{Buckets, List, Page};

/// What a policy should be. It may be slow, and it need not know the edges of its numbers.
pub(super) trait Model<P>: Sized {
    /// So many nanoseconds may the policy be late when it has to round what it takes over, but never early.
    const LATE_WHEN_RETUNED: u128 = 0;

    fn start(policy: &P, now: Tick) -> Self;

    /// The first instant, from `now` on, at which `cost` may pass.
    fn due(&self, now: Tick, cost: u32) -> Due;

    /// `cost` has passed.
    fn count(&mut self, now: Tick, cost: u32);

    /// `cost` of what has passed is given back.
    fn refund(&mut self, now: Tick, cost: u32);

    /// The same history under other parameters; `None` where exact sums have no room.
    fn retuned(&self, policy: &P, now: Tick) -> Option<Self>;
}

/// In nanoseconds, and beyond the last tick too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Due {
    At(u128),
    Never { capacity: u32 },
}

impl Due {
    /// What two limits say together.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(one), Self::At(other)) => Self::At(one.max(other)),
            (Self::Never { capacity: one }, Self::Never { capacity: other }) => Self::Never {
                capacity: one.min(other),
            },
            (never @ Self::Never { .. }, _) | (_, never) => never,
        }
    }

    /// Whether `decision` says so, or is later by at most `slack` nanoseconds. After the last tick nobody counts.
    pub(super) fn is_told_by(self, decision: Decision, now: Tick, slack: u128) -> bool {
        let now = u128::from(now.as_nanos());
        let last = u128::from(u64::MAX);
        match (self, decision) {
            (Self::At(due), Decision::Pass) => due <= now,
            (Self::At(due), Decision::Wait { retry_in }) => {
                let told = now.saturating_add(retry_in.as_nanos());
                let soonest = due.max(now);
                told >= soonest.min(last) && (told <= soonest + slack || told >= last)
            }
            (Self::Never { capacity }, Decision::Never { capacity: told }) => capacity == told,
            _ => false,
        }
    }
}

/// An [`Interval`]: after each request, cost · d of nothing.
#[derive(Clone, Debug)]
pub(super) struct Spacing {
    interval: u128,
    passed: Vec<(u128, u32)>,
    /// The last of them is the start of a delayed one, for which nobody paid.
    unpaid: bool,
}

impl Model<Interval> for Spacing {
    fn start(policy: &Interval, now: Tick) -> Self {
        let delayed = *policy == policy.delayed();
        Self {
            interval: policy.interval().as_nanos(),
            // As if one had passed at the start.
            passed: if delayed {
                vec![(now.as_nanos().into(), 1)]
            } else {
                Vec::new()
            },
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

    /// Intervals of the last one only, and what was before it is history.
    fn refund(&mut self, _now: Tick, cost: u32) {
        if let Some((at, last)) = self.passed.pop() {
            let back = if self.unpaid { 0 } else { cost };
            self.passed = vec![(at, last.saturating_sub(back))];
        }
    }

    /// The next slot is last + cost · d; what was before the last is history.
    fn retuned(&self, policy: &Interval, _now: Tick) -> Option<Self> {
        Some(Self {
            interval: policy.interval().as_nanos(),
            passed: self.passed.last().copied().into_iter().collect(),
            unpaid: self.unpaid,
        })
    }
}

/// A [`TokenBucket`]: tokens, as an exact fraction.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    policy: TokenBucket,
    burst: u32,
    debt: bool,
    /// A token is so many parts.
    token: i128,
    /// So many parts come in a nanosecond.
    speed: i128,
    /// Parts that were there at `since`.
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
            debt: policy.owes(),
            token: i128::try_from(token).unwrap(),
            speed: policy.rate().permits().into(),
            parts: 0,
            since: now.as_nanos(),
        };
        if *policy != policy.empty() {
            bucket.parts = bucket.full();
        }
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

    /// Cut to the burst: a full bucket takes none back.
    fn refund(&mut self, now: Tick, cost: u32) {
        self.count(now, 0);
        self.parts = (self.parts + i128::from(cost) * self.token).min(self.full());
    }

    /// The tokens stay with their fraction, cut to the new burst; a debt stays up to one new burst. Nothing is cut if nothing
    /// is new.
    fn retuned(&self, policy: &TokenBucket, now: Tick) -> Option<Self> {
        let new = Self::start(policy, now);
        // Two periods of hundreds of years: what the policy keeps is rounded to 33 bits, and says so.
        self.token.checked_mul(new.token)?.checked_mul(2)?;
        // A token of the old and one of the new, in common parts.
        let common = self
            .token
            .checked_mul(new.token / gcd(self.token, new.token))?;
        // Room for two of the largest sums there will be.
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

/// [`Unlimited`].
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
