//! Models of the policies that count in windows: lists that are searched from end to end.

use std::iter;

use paceline::policy::{FixedWindow, SlidingCounter, SlidingLog};
use paceline::time::Tick;

use super::{Due, Model};

/// The model of a [`SlidingLog`]: each request that passed, with its instant.
#[derive(Clone, Debug)]
pub(crate) struct List {
    limit: u32,
    window: u128,
    passed: Vec<(u128, u32)>,
}

impl Model<SlidingLog> for List {
    fn start(policy: &SlidingLog, _now: Tick) -> Self {
        Self {
            limit: policy.limit(),
            window: policy.window().as_nanos(),
            passed: Vec::new(),
        }
    }

    fn due(&self, now: Tick, cost: u32) -> Due {
        let gone: Vec<_> = self.passed.iter().map(|(at, _)| at + self.window).collect();
        due(self.limit, now, cost, &gone, |then| {
            let counts = total(&self.passed, |at| at + self.window > then);
            counts + u128::from(cost) <= self.limit.into()
        })
    }

    fn count(&mut self, now: Tick, cost: u32) {
        let now = now.as_nanos().into();
        if cost > 0 {
            self.passed.retain(|(at, _)| at + self.window > now);
            self.passed.push((now, cost));
        }
    }

    fn refund(&mut self, _now: Tick, cost: u32) {
        take_newest(&mut self.passed, cost);
    }

    /// The latest first, of what is in the window and was spent by then.
    fn refund_from(&mut self, now: Tick, spent_at: Tick, cost: u32) {
        self.passed
            .retain(|(at, _)| at + self.window > now.as_nanos().into());
        take_newest_until(&mut self.passed, spent_at.as_nanos().into(), cost);
    }

    /// An expired entry stays expired.
    fn retuned(&self, policy: &SlidingLog, now: Tick) -> Option<Self> {
        let mut kept = Self::start(policy, now);
        kept.passed.clone_from(&self.passed);
        kept.passed
            .retain(|(at, _)| at + self.window > now.as_nanos().into());
        Some(kept)
    }
}

/// The model of a [`SlidingCounter`]: each request that passed, with its bucket.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    limit: u32,
    window: u128,
    /// The length of a bucket. The bucket of a smooth counter is the window.
    bucket: u128,
    /// The number of buckets in a window.
    count: u128,
    smooth: bool,
    /// The beginning of the first bucket.
    origin: u128,
    passed: Vec<(u128, u32)>,
}

impl Buckets {
    fn bucket_at(&self, at: u128) -> u128 {
        (at - self.origin) / self.bucket
    }

    /// When a window of buckets after `bucket`, and one more that may lie partly in the window, have begun.
    fn gone(&self, bucket: u128) -> u128 {
        self.origin + (bucket + self.count + 1) * self.bucket
    }

    fn all_gone(&self) -> u128 {
        let gone = self.passed.iter().map(|&(bucket, _)| self.gone(bucket));
        gone.max().unwrap_or(0)
    }

    fn forget_what_is_gone(&mut self, now: Tick) {
        let now = now.as_nanos().into();
        let all = std::mem::take(&mut self.passed).into_iter();
        self.passed = all.filter(|&(of, _)| self.gone(of) > now).collect();
    }

    fn strictly_passes(&self, then: u128, cost: u32) -> bool {
        let counts = total(&self.passed, |bucket| self.gone(bucket) > then);
        counts + u128::from(cost) <= self.limit.into()
    }

    /// Whether previous · overlap / window + current + cost ≤ limit.
    fn smoothly_passes(&self, then: u128, cost: u32) -> bool {
        if self.all_gone() <= then {
            return cost <= self.limit;
        }
        let present = self.bucket_at(then);
        let of = |bucket| total(&self.passed, |of| of == bucket);
        let previous = present.checked_sub(1).map_or(0, of);
        let overlap = self.origin + (present + 1) * self.window - then;
        previous * overlap + (of(present) + u128::from(cost)) * self.window
            <= u128::from(self.limit) * self.window
    }

    /// A request that passes at one instant passes at every later one, so a binary search finds the first.
    fn smoothly_due(&self, now: u128, cost: u32) -> u128 {
        let (mut early, mut late) = (now, self.all_gone().max(now));
        while early < late {
            let middle = early.midpoint(late);
            if self.smoothly_passes(middle, cost) {
                late = middle;
            } else {
                early = middle + 1;
            }
        }
        early
    }
}

impl Model<SlidingCounter> for Buckets {
    fn start(policy: &SlidingCounter, _now: Tick) -> Self {
        // The last tick means never.
        let window = policy.window().as_nanos().min(u64::MAX.into());
        let count = policy.buckets().map_or(1, u128::from);
        Self {
            limit: policy.limit(),
            window,
            bucket: window.div_ceil(count),
            count,
            smooth: policy.buckets().is_none(),
            origin: 0,
            passed: Vec::new(),
        }
    }

    fn due(&self, now: Tick, cost: u32) -> Due {
        if self.smooth && (1..=self.limit).contains(&cost) {
            return Due::At(self.smoothly_due(now.as_nanos().into(), cost));
        }
        let gone: Vec<_> = self.passed.iter().map(|&(of, _)| self.gone(of)).collect();
        let passes = |then| self.strictly_passes(then, cost);
        due(self.limit, now, cost, &gone, passes)
    }

    fn count(&mut self, now: Tick, cost: u32) {
        if cost == 0 {
            return;
        }
        self.forget_what_is_gone(now);
        let now = now.as_nanos().into();
        if self.passed.is_empty() {
            self.origin = now;
        }
        self.passed.push((self.bucket_at(now), cost));
    }

    fn refund(&mut self, _now: Tick, cost: u32) {
        take_newest(&mut self.passed, cost);
    }

    /// The latest buckets first, of those that count and had begun by then.
    fn refund_from(&mut self, now: Tick, spent_at: Tick, cost: u32) {
        self.forget_what_is_gone(now);
        let spent_at = spent_at.as_nanos().into();
        if self.origin <= spent_at {
            let bucket = self.bucket_at(spent_at);
            take_newest_until(&mut self.passed, bucket, cost);
        }
    }

    /// A bucket's count came before the end of the bucket and before now; no more is known.
    fn retuned(&self, policy: &SlidingCounter, now: Tick) -> Option<Self> {
        let mut kept = Self::start(policy, now);
        kept.origin = self.origin;
        let mut old = self.clone();
        old.forget_what_is_gone(now);
        for (bucket, cost) in old.passed {
            let end = self.origin + (bucket + 1) * self.bucket;
            let latest = (end - 1).min(now.as_nanos().into());
            kept.passed.push((kept.bucket_at(latest), cost));
        }
        Some(kept)
    }
}

/// The model of a [`FixedWindow`]: one page, and a new page when the window has ended.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    limit: u32,
    window: u128,
    began: u128,
    passed: Vec<(u128, u32)>,
}

impl Model<FixedWindow> for Page {
    fn start(policy: &FixedWindow, _now: Tick) -> Self {
        Self {
            limit: policy.limit(),
            window: policy.window().as_nanos(),
            began: 0,
            passed: Vec::new(),
        }
    }

    fn due(&self, now: Tick, cost: u32) -> Due {
        let over = self.began + self.window;
        due(self.limit, now, cost, &[over], |then| {
            let counts = total(&self.passed, |_| then < over);
            counts + u128::from(cost) <= self.limit.into()
        })
    }

    fn count(&mut self, now: Tick, cost: u32) {
        let now = now.as_nanos().into();
        if cost == 0 {
            return;
        }
        if self.passed.is_empty() || self.began + self.window <= now {
            self.passed.clear();
            self.began = now;
        }
        self.passed.push((now, cost));
    }

    fn refund(&mut self, _now: Tick, cost: u32) {
        take_newest(&mut self.passed, cost);
    }

    /// Only of this page.
    fn refund_from(&mut self, now: Tick, spent_at: Tick, cost: u32) {
        if self.began <= spent_at.as_nanos().into() {
            self.refund(now, cost);
        }
    }

    /// The count and the beginning of its window.
    fn retuned(&self, policy: &FixedWindow, now: Tick) -> Option<Self> {
        let mut kept = Self::start(policy, now);
        kept.began = self.began;
        kept.passed.clone_from(&self.passed);
        Some(kept)
    }
}

/// The first instant from `now` on at which `passes` holds, if it can change only at the instants in `gone`.
pub(super) fn due(
    limit: u32,
    now: Tick,
    cost: u32,
    gone: &[u128],
    passes: impl Fn(u128) -> bool,
) -> Due {
    let now = now.as_nanos().into();
    if cost == 0 {
        return Due::At(now);
    }
    if cost > limit {
        return Due::Never { capacity: limit };
    }
    let later = gone.iter().copied().filter(|&gone| gone > now);
    let passes = iter::once(now).chain(later).filter(|&then| passes(then));
    Due::At(passes.min().unwrap())
}

pub(super) fn total(passed: &[(u128, u32)], counts: impl Fn(u128) -> bool) -> u128 {
    let counting = passed.iter().filter(|(at, _)| counts(*at));
    counting.map(|&(_, cost)| u128::from(cost)).sum()
}

/// What is later than `until` stays.
fn take_newest_until(passed: &mut Vec<(u128, u32)>, until: u128, cost: u32) {
    let earlier = passed.iter().filter(|(at, _)| *at <= until).count();
    let later = passed.split_off(earlier);
    take_newest(passed, cost);
    passed.extend(later);
}

pub(super) fn take_newest(passed: &mut Vec<(u128, u32)>, mut cost: u32) {
    while let Some((_, newest)) = passed.last_mut().filter(|_| cost > 0) {
        let taken = cost.min(*newest);
        cost -= taken;
        *newest -= taken;
        if *newest == 0 {
            passed.pop();
        }
    }
}
