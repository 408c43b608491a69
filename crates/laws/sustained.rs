//! The sustained rate of a counter is not much below its bound. The other policies sustain their quota, says a law.

use paceline::policy::{Decision, Policy, SlidingCounter};
use paceline::time::Tick;

use super::trace::nanos;

/// A long time.
const TIMES: u64 = 1000;

/// How many requests pass in `span` ns if each comes as soon as it can pass. A single request comes first and counts too;
/// the others begin `offset` ns later.
fn greedy(policy: &impl Policy, offset: u64, span: u64) -> u64 {
    let mut state = policy.fresh(Tick::ZERO);
    assert_eq!(policy.decide(&mut state, Tick::ZERO, 1), Decision::Pass);
    let mut now = Tick::from_nanos(offset);
    let mut passed = 1;
    loop {
        match policy.decide(&mut state, now, 1) {
            Decision::Pass => passed += 1,
            Decision::Wait { retry_in } => {
                assert!(!retry_in.is_zero(), "{state:?} at {now:?}");
                now = now.after(retry_in);
            }
            Decision::Never { .. } => panic!("1 never passes {state:?}"),
        }
        if now.as_nanos() >= offset + span {
            return passed;
        }
        assert!(passed < 1_000_000, "no limit: {state:?}");
    }
}

/// "At least `limit` in window · (1 + 1 / `buckets`)", if a bucket is a whole number of nanoseconds; else it is rounded up.
#[test]
fn a_strict_counter_passes_its_limit_in_a_window_and_a_bucket() {
    for (limit, window, buckets) in [
        (1, 1, 1),
        (2, 12, 4),
        (3, 100, 10),
        (7, 100, 1),
        (7, 100, 3),
        (5, 7, 60),
        (100, 1_000_000_000, 10),
    ] {
        let policy = SlidingCounter::strict(limit, nanos(window), buckets);
        let bucket = window.div_ceil(buckets.into());
        let time = bucket * (u64::from(buckets) + 1);
        for offset in [0, 1, bucket - 1, bucket, window / 2, window, time - 1, time] {
            let passed = greedy(&policy, offset, TIMES * time);
            let least = TIMES * u64::from(limit);
            assert!(passed >= least, "{passed} {policy:?} {offset}");
        }
        // And not more, if the whole limit comes at once.
        let passed = greedy(&policy, 0, TIMES * time);
        assert_eq!(passed, TIMES * u64::from(limit), "{policy:?}");
    }
}

/// The share of the last window is above zero until the end of the present one, and the last permit waits for that.
#[test]
fn a_smooth_counter_passes_its_limit_less_one_in_every_window() {
    for (limit, window) in [(2, 12), (3, 100), (7, 100), (100, 1_000_000_000)] {
        let policy = SlidingCounter::smooth(limit, nanos(window));
        let least = TIMES * u64::from(limit - 1);
        for offset in [0, 1, window / 2, window - 1, window] {
            let passed = greedy(&policy, offset, TIMES * window);
            assert!(passed >= least, "{passed} {policy:?} {offset}");
        }
        // And one more in the first window.
        assert_eq!(greedy(&policy, 0, TIMES * window), least + 1, "{policy:?}");
    }
    let one = SlidingCounter::smooth(1, nanos(100));
    assert_eq!(greedy(&one, 0, TIMES * 2 * 100), TIMES);
}

/// A refused request does not count: a stream of 101 requests a window is cut to the limit of 100, and not to 0.
#[test]
fn a_steady_stream_a_little_over_the_limit_is_cut_and_not_starved() {
    let window = nanos(101 * 1000);
    for (policy, least) in [
        (SlidingCounter::smooth(100, window), 99),
        (SlidingCounter::strict(100, window, 10), 90),
        (SlidingCounter::strict(100, window, 101), 99),
    ] {
        let mut state = policy.fresh(Tick::ZERO);
        let mut now = Tick::ZERO;
        for window in 0..300 {
            let mut passed = 0;
            for _ in 0..101 {
                passed += u32::from(policy.decide(&mut state, now, 1).is_pass());
                now = now.after(nanos(1000));
            }
            let allowed = least..=100;
            assert!(allowed.contains(&passed), "{passed} in {window} {policy:?}");
        }
    }
}
