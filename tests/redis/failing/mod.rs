//! Redis is slow or gone, or comes back without what it knew.

mod faults;
mod fleet;
mod lost_state;
mod outages;
mod refusals;
mod returns;
mod slowness;

use std::time::Duration;

use paceline::redis::{OutagePolicy, Redis};

use crate::limits::pause;

/// Connected, with the deadline that it has by itself.
pub(crate) async fn redis(url: &str, when_down: OutagePolicy) -> Redis {
    let redis = Redis::open(url, when_down).unwrap();
    until_up(&redis).await;
    redis
}

/// Until it is connected and has been of use. It hangs if it never is: the test is stopped then.
pub(crate) async fn until_up(redis: &Redis) {
    while redis.connect().await.is_err() {
        pause(Duration::from_millis(5)).await;
    }
}

/// Until it is known that there is an outage.
pub(crate) async fn until_down(redis: &Redis) {
    while redis.is_up() {
        pause(Duration::from_millis(5)).await;
    }
}
