//! Limits that wait on tokio's own timers, which no request passes too early. On the real clock: lower bounds only.

use std::future::Future;
use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::concurrency::Permits;
use paceline::limiter::Limiter;
use paceline::policy::Interval;
use paceline::prelude::*;
use paceline::time::Resolution;

use crate::timed::now;

const SPACING: Duration = Duration::from_micros(1_050);

const GRANTS: u32 = 5;

async fn takes_as_long_as_it_should(grants: impl Future<Output = ()>) {
    let start = now();
    grants.await;
    let elapsed = start.elapsed();
    assert!(elapsed >= SPACING * (GRANTS - 1), "{elapsed:?}");
}

#[tokio::test]
async fn any_limit_may_wait_to_the_millisecond() {
    let interval = Interval::every(SPACING);
    let limit = interval.shared().with_resolution(Resolution::Millis);
    assert_eq!(limit.clone().resolution(), Resolution::Millis);
    takes_as_long_as_it_should(async {
        for _ in 0..GRANTS {
            limit.acquire(1).await.unwrap();
        }
    })
    .await;

    let limit = interval.owned().with_resolution(Resolution::Millis);
    assert_eq!(limit.resolution(), Resolution::Millis);
    takes_as_long_as_it_should(async {
        stream::iter(0..GRANTS).pace(limit).count().await;
    })
    .await;

    let limits = interval.keyed::<u32>();
    let limits = limits.with_resolution(Resolution::Millis).with_max_keys(10);
    assert_eq!(limits.clone().at(1).resolution(), Resolution::Millis);
    takes_as_long_as_it_should(async {
        for _ in 0..GRANTS {
            limits.acquire(1, 1).await.unwrap();
        }
    })
    .await;

    let permits = Permits::new(1).with_cooldown(SPACING);
    let permits = permits.with_resolution(Resolution::Millis);
    takes_as_long_as_it_should(async {
        for _ in 0..GRANTS {
            drop(permits.clone().acquire().await);
        }
    })
    .await;
}

#[test]
fn waits_are_exact_by_default() {
    let interval = Interval::every(SPACING);
    assert_eq!(Resolution::default(), Resolution::Exact);
    assert_eq!(interval.shared().resolution(), Resolution::Exact);
    assert_eq!(interval.owned().resolution(), Resolution::Exact);
    let of_key = interval.keyed::<u32>().at(1).resolution();
    assert_eq!(of_key, Resolution::Exact);
}
