//! Redis is slow or gone, or comes back without its data.

mod answers;
mod lost_state;
mod outages;
mod refusals;
mod runtimes;
mod slowness;

use std::time::Duration;

use paceline::policy::SlidingLog;
use paceline_redis::{OutagePolicy, Redis, RedisLimiter, RedisPolicy};

use crate::limits::{client, log, pause};
use crate::servers::Server;

/// The deadline of tests that count calls, outages or timeouts: a busy machine answers within it.
pub(crate) const DEADLINE: Duration = Duration::from_millis(500);

/// A client with [`DEADLINE`], which is not connected yet.
pub(crate) fn opened(url: &str, when_down: OutagePolicy) -> Redis {
    client(url, when_down, DEADLINE)
}

/// A connected client with [`DEADLINE`].
pub(crate) async fn redis(url: &str, when_down: OutagePolicy) -> Redis {
    let redis = opened(url, when_down);
    until_up(&redis).await;
    redis
}

/// A connected limit of so many permits a minute, with [`DEADLINE`] and a server of its own.
pub(crate) async fn a_minute_of(
    permits: u32,
    when_down: OutagePolicy,
) -> (Server, Redis, RedisLimiter<SlidingLog>) {
    let server = Server::start().await;
    let redis = redis(&server.url(), when_down).await;
    let limit = redis.limit("a", log(permits)).unwrap();
    (server, redis, limit)
}

/// A connected client with the default deadline, which a busy machine may miss: for tests of what holds with timeouts too.
pub(crate) async fn hasty(url: &str, when_down: OutagePolicy) -> Redis {
    let redis = Redis::open(url, when_down).unwrap();
    until_up(&redis).await;
    redis
}

/// From now on the server asks for the password `secret`.
pub(crate) async fn lock(server: &Server) {
    let lock = ["CONFIG", "SET", "requirepass", "secret"];
    server.cli::<()>(&lock).await;
}

/// Waits until the client is connected. If it never is, the test runner stops the test.
pub(crate) async fn until_up(redis: &Redis) {
    while redis.connect().await.is_err() {
        pause(Duration::from_millis(5)).await;
    }
}

/// Asks until the client notices the outage.
pub(crate) async fn notice<P: RedisPolicy>(redis: &Redis, limit: &RedisLimiter<P>) {
    while redis.is_up() {
        let _ = limit.try_acquire(1).await;
    }
}

/// Waits until the client has noticed an outage.
pub(crate) async fn until_down(redis: &Redis) {
    while redis.is_up() {
        pause(Duration::from_millis(5)).await;
    }
}
