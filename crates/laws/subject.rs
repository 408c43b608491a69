//! What the laws need to know about a policy.

mod aligned;
mod all;
mod windows;

use std::fmt::Debug;
use std::time::Duration;

use paceline::policy::{Decision, Interval, Policy, Ramp, Status, TokenBucket, Unlimited};
use paceline::time::{Rate, Tick};
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof};

use super::model::{Bucket, Free, Model, Slope, Spacing};

pub(super) use aligned::Aligned;

/// A policy that the laws are checked for.
pub(super) trait Subject: Policy<State: 'static> + Clone + Debug + 'static {
    /// Independent of the policy, and simple enough to be obviously right.
    type Model: Model<Self>;

    /// The number of traces for each law, as a multiple of the usual number.
    const TIMES: u32 = 8;

    /// Whether the policy divides time into windows that begin with a request.
    const PHASED: bool = false;

    /// Whether a limit is as a new one after its reset.
    const RESETS: bool = true;

    /// Whether a refund of permits whose window is over returns nothing. A bucket does not know whether it was full in between.
    const RETURNS_IN_TIME: bool = true;

    /// Random parameters, including extreme ones.
    fn any() -> BoxedStrategy<Self>;

    /// The same limit, with the best possible start.
    fn full(&self) -> Self {
        self.clone()
    }

    /// The short unit of time of the policy in nanoseconds: the time of one permit, or a bucket.
    fn grain(&self) -> u64;

    /// The long unit of time of the policy in nanoseconds: a period, or a window.
    fn period(&self) -> u64 {
        self.grain()
    }

    /// The most that can pass at once.
    fn burst(&self) -> u32;

    /// Whether the docs of the policy allow this window.
    fn allows(&self, window: &Window) -> bool;

    /// How many of its quotas a window of the quota may hold, says the policy's docs.
    fn quotas_in_a_window(&self) -> u128 {
        1
    }

    /// Whether its quota passes in the long run, and not a little less.
    fn sustains_its_quota(&self) -> bool {
        true
    }

    /// The status of each limit in it.
    fn parts(&self, state: &Self::State, now: Tick) -> Vec<Status> {
        let reset_in = self.full().settled_at(state).since(now);
        vec![Status::new(self.quota(), self.room(state, now), reset_in)]
    }
}

/// A window of a trace, from one request that passed to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Nanoseconds from the first to the last request. The shortest half-open window with both is only slightly longer.
    pub(super) span: u64,
    /// The sum of the costs in it.
    pub(super) total: u128,
    /// The largest cost in it.
    pub(super) dearest: u32,
    /// The cost of the last request.
    pub(super) last: u32,
}

impl Subject for Interval {
    type Model = Spacing;

    fn any() -> BoxedStrategy<Self> {
        let interval = prop_oneof![
            1 => Just(Duration::ZERO),
            6 => (1..50u64).prop_map(Duration::from_nanos),
            2 => durations(),
        ];
        (interval, any::<bool>())
            .prop_map(|(interval, delayed)| {
                let every = Self::every(interval);
                if delayed {
                    every.with_delayed_start()
                } else {
                    every
                }
            })
            .boxed()
    }

    fn full(&self) -> Self {
        Self::every(self.interval())
    }

    fn grain(&self) -> u64 {
        nanos(self.interval())
    }

    fn burst(&self) -> u32 {
        1
    }

    /// "A half-open window of m · d holds at most m; with costs, less than m plus the cost of its last request."
    fn allows(&self, window: &Window) -> bool {
        let interval = self.interval().as_nanos();
        if interval == 0 {
            return true;
        }
        // The least m with span < m · d.
        let m = u128::from(window.span) / interval + 1;
        window.total < m + u128::from(window.last)
    }
}

impl Subject for Ramp {
    type Model = Slope;

    /// It begins with a request.
    const PHASED: bool = true;

    const RESETS: bool = false;

    fn any() -> BoxedStrategy<Self> {
        let longest = Duration::from_nanos(1 << 47);
        let time = || {
            prop_oneof![
                8 => (1..50u64).prop_map(Duration::from_nanos),
                3 => durations().prop_map(move |time| time.min(longest)),
            ]
        };
        let permits = || prop_oneof![8 => 1..12u32, 1 => Just(u32::MAX), 1 => 1..=u32::MAX];
        let restart = prop_oneof![2 => Just(None), 3 => (1..100u64).prop_map(Some)];
        (permits(), permits(), time(), time(), restart)
            .prop_map(|(from, to, period, within, restart)| {
                let ramp = Self::new(Rate::new(from, period), Rate::new(to, period), within);
                match restart {
                    Some(idle) => ramp.with_restart_after(Duration::from_nanos(idle)),
                    None => ramp,
                }
            })
            .boxed()
    }

    fn grain(&self) -> u64 {
        nanos(self.from().period() / self.from().permits()).max(1)
    }

    fn period(&self) -> u64 {
        nanos(self.within())
    }

    fn burst(&self) -> u32 {
        1
    }

    /// "A half-open window of T holds at most ⌈T · the faster rate⌉; with costs, less than that plus the cost of its last request."
    fn allows(&self, window: &Window) -> bool {
        let faster = u128::from(self.from().max(self.to()).permits());
        let before = window.total - u128::from(window.last);
        before * self.to().period().as_nanos() <= faster * u128::from(window.span)
    }

    /// The quota is that of the rate at the end.
    fn quotas_in_a_window(&self) -> u128 {
        self.from()
            .permits()
            .div_ceil(self.to().permits())
            .max(1)
            .into()
    }

    fn sustains_its_quota(&self) -> bool {
        false
    }

    /// It resets when the next request passes, and not when the ramp begins again.
    fn parts(&self, state: &Self::State, now: Tick) -> Vec<Status> {
        let reset_in = match self.peek(state, now, 1) {
            Decision::Wait { retry_in } => retry_in,
            _ => Duration::ZERO,
        };
        vec![Status::new(self.quota(), self.room(state, now), reset_in)]
    }
}

impl Subject for TokenBucket {
    type Model = Bucket;

    const RETURNS_IN_TIME: bool = false;

    fn any() -> BoxedStrategy<Self> {
        let permits = prop_oneof![
            6 => 1..12u32,
            1 => Just(u32::MAX),
            1 => 1..=u32::MAX,
        ];
        let period = prop_oneof![
            6 => (1..50u64).prop_map(Duration::from_nanos),
            3 => durations(),
        ];
        let burst = prop_oneof![
            2 => Just(1),
            4 => 2..9u32,
            1 => Just(u32::MAX),
            1 => 1..=u32::MAX,
        ];
        (permits, period, burst, 0..4u32, any::<bool>())
            .prop_map(|(permits, period, burst, start, debt)| {
                let mut bucket = Self::new(Rate::new(permits, period), burst);
                bucket = match start {
                    0 => bucket.with_empty_start(),
                    1 => bucket.with_start(burst / 2),
                    _ => bucket,
                };
                if debt {
                    bucket = bucket.with_debt();
                }
                bucket
            })
            .boxed()
    }

    fn full(&self) -> Self {
        let full = Self::new(self.rate(), self.burst());
        if owes(self) { full.with_debt() } else { full }
    }

    fn grain(&self) -> u64 {
        nanos(self.rate().period() / self.rate().permits())
    }

    fn period(&self) -> u64 {
        nanos(self.rate().period())
    }

    fn burst(&self) -> u32 {
        self.burst()
    }

    fn quotas_in_a_window(&self) -> u128 {
        2
    }

    /// "A half-open window of T holds at most burst + rate · T; with debt, the largest cost in it + rate · T if that is more."
    fn allows(&self, window: &Window) -> bool {
        let period = self.rate().period().as_nanos();
        let burst = if owes(self) {
            self.burst().max(window.dearest)
        } else {
            self.burst()
        };
        let came = u128::from(self.rate().permits()) * u128::from(window.span);
        match (window.total - u128::from(burst).min(window.total)).checked_mul(period) {
            Some(over) => over <= came,
            None => false,
        }
    }
}

impl Subject for Unlimited {
    type Model = Free;

    fn any() -> BoxedStrategy<Self> {
        Just(Self).boxed()
    }

    fn grain(&self) -> u64 {
        1
    }

    fn burst(&self) -> u32 {
        u32::MAX
    }

    fn allows(&self, _window: &Window) -> bool {
        true
    }
}

/// Whether a bucket was built [`with_debt`](TokenBucket::with_debt).
pub(super) fn owes(bucket: &TokenBucket) -> bool {
    *bucket == bucket.with_debt()
}

/// From a nanosecond to the longest duration.
fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::from_secs(1)),
        Just(Duration::from_secs(86_400)),
        Just(Duration::from_nanos(u64::MAX)),
        Just(Duration::MAX),
        (1..=u64::MAX).prop_map(Duration::from_nanos),
    ]
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
