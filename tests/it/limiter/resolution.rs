//! How exactly a limit waits. That each wait does so is in `precise_runtimes.rs`, and that none is early in `real_time.rs`.

use paceline::limiter::Limiter;
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Rate, Resolution};
use testkit::clock::Stopwatch;

use crate::timed::ms;

#[test]
fn any_limit_may_wait_to_the_millisecond_and_waits_exactly_by_default() {
    let interval = Interval::every(ms(1));
    let (owned, shared, keyed) = (interval.owned(), interval.shared(), interval.keyed());
    let by_default = [
        Resolution::default(),
        owned.resolution(),
        shared.resolution(),
        keyed.at(1).resolution(),
    ];
    assert_eq!(by_default, [Resolution::Exact; 4]);

    let millis = Resolution::Millis;
    let keyed = keyed.with_resolution(millis).with_max_keys(10);
    let chosen = [
        owned.with_resolution(millis).resolution(),
        shared.with_resolution(millis).clone().resolution(),
        keyed.clone().at(1).resolution(),
    ];
    assert_eq!(chosen, [millis; 3]);
}

/// On the real clock several would pass at one wake-up.
#[tokio::test(start_paused = true)]
async fn a_crowd_passes_one_by_one_on_the_paused_clock() {
    let clock = Stopwatch::start();
    let limit = TokenBucket::new(Rate::new(1, ms(1)), 20).shared();
    let crowd: Vec<_> = (0..60)
        .map(|_| {
            let passes = limit.acquire_owned(1);
            tokio::spawn(async move {
                passes.await.unwrap();
                clock.elapsed()
            })
        })
        .collect();
    for (n, request) in (1_u64..).zip(crowd) {
        assert_eq!(request.await.unwrap(), ms(n.saturating_sub(20)));
    }
}
