//! Redis is slow or gone, or comes back without its data.

mod answers;
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

/// The deadline of tests that count calls, outages or timeouts: a busy machine answers within it.
pub(crate) const DEADLINE: Duration = Duration::from_millis(500);

/// A client with [`DEADLINE`], which is not connected yet.
pub(crate) fn opened(url: &str, when_down: OutagePolicy) -> Redis {
    let redis = Redis::open(url, when_down).unwrap();
    redis.with_deadline(DEADLINE).unwrap()
}

/// A connected client with [`DEADLINE`].
pub(crate) async fn redis(url: &str, when_down: OutagePolicy) -> Redis {
    let redis = opened(url, when_down);
    until_up(&redis).await;
    redis
}

/// A connected client with the default deadline, which a busy machine may miss: for tests of what holds with timeouts too.
pub(crate) async fn hasty(url: &str, when_down: OutagePolicy) -> Redis {
    let redis = Redis::open(url, when_down).unwrap();
    until_up(&redis).await;
    redis
}

/// Waits until the client is connected. If it never is, the test runner stops the test.
pub(crate) async fn until_up(redis: &Redis) {
    while redis.connect().await.is_err() {
        pause(Duration::from_millis(5)).await;
    }
}

/// Waits until the client has noticed an outage.
pub(crate) async fn until_down(redis: &Redis) {
    while redis.is_up() {
        pause(Duration::from_millis(5)).await;
    }
}
