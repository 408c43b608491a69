//! The quota, the limit that keeps it, and the lengths of the phases.

use core::time::Duration;

use paceline::time::Rate;

use crate::fleet::WORKERS;

/// How much later a permit can be used than it was counted: the docs of `RedisLimiter` allow 100 ms from its arrival, and the
/// round trip takes at most the deadline, 25 ms.
const PERMIT_LATE: Duration = Duration::from_millis(125);

/// With fewer requests, each worker's share is too small to tell the phases apart; with more a second, the machine is too slow.
const FEWEST: u32 = 4 * WORKERS;
const MOST_A_SECOND: u32 = 300;
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// The settings that all policies share.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The number of requests that the provider accepts in any `window`.
    pub(crate) requests: u32,
    pub(crate) window: Duration,
    /// How much longer than another a request may travel.
    pub(crate) way: Duration,
    pub(crate) lengths: Lengths,
    pub(crate) seed: u64,
}

/// The length of each phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    pub(crate) before: Duration,
    pub(crate) worker_killed: Duration,
    pub(crate) redis_down: Duration,
    pub(crate) back: Duration,
}

impl Plan {
    pub(crate) fn new(
        quota: Rate,
        way: Duration,
        lengths: Lengths,
        seed: u64,
    ) -> Result<Self, String> {
        let (requests, window) = (quota.permits(), quota.period());
        if requests < FEWEST {
            return Err(format!(
                "a quota for {WORKERS} workers takes at least {FEWEST} requests in a window, got {quota}"
            ));
        }
        if !(SHORTEST..=LONGEST).contains(&window) {
            return Err(format!(
                "a quota's window lasts {SHORTEST:?} to {LONGEST:?} here, got {quota}"
            ));
        }
        if quota > Rate::per_second(MOST_A_SECOND) {
            return Err(format!(
                "a quota takes at most {MOST_A_SECOND} requests a second here, got {quota}"
            ));
        }
        Ok(Self {
            requests,
            window,
            way,
            lengths,
            seed,
        })
    }

    /// The window of the limit in Redis.
    ///
    /// Let Redis count `i` and then `m` at `c_i ≤ c_m`. They arrive between `c + lo` and `c + PERMIT_LATE + lo + way`, where
    /// `lo` is the shortest travel time. So if `m` arrives after `i`, it is at least `c_m − c_i − PERMIT_LATE − way` later.
    /// With that added to the window, requests a window apart in Redis arrive at least a window of the provider apart.
    pub(crate) fn limit_window(&self) -> Duration {
        self.window + self.margin()
    }

    pub(crate) fn margin(&self) -> Duration {
        PERMIT_LATE + self.way
    }

    /// How long the provider takes to answer. A worker waits for the answer, and each worker could still use up the quota alone.
    pub(crate) fn takes(&self) -> Duration {
        self.window / self.requests
    }

    /// The longest time without a request while nothing fails: a burst takes a third of a window, except for its last
    /// requests.
    pub(crate) fn silence(&self) -> Duration {
        self.limit_window().mul_f64(0.9)
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Lengths, Plan, Rate};

    fn plan(quota: &str) -> Result<Plan, String> {
        let second = Duration::from_secs(1);
        let lengths = Lengths {
            before: second,
            worker_killed: second,
            redis_down: second,
            back: second,
        };
        Plan::new(quota.parse::<Rate>().unwrap(), second, lengths, 0)
    }

    #[test]
    fn a_quota_too_small_or_too_large_for_the_example_is_refused_with_its_numbers() {
        for (quota, said) in [
            ("11/s", "at least 12 requests in a window, got 11/s"),
            ("12/99ms", "lasts 100ms to 10s here, got 12/99ms"),
            ("12/11s", "lasts 100ms to 10s here, got 12/11s"),
            ("301/s", "at most 300 requests a second here, got 301/s"),
        ] {
            let error = plan(quota).unwrap_err();
            assert!(error.ends_with(said), "{error}");
        }
    }

    #[test]
    fn each_worker_could_use_up_the_quota_alone() {
        assert_eq!(plan("50/500ms").unwrap().takes(), Duration::from_millis(10));
    }
}
