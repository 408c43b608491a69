//! Leases of a fleet: one holder, many holders, the keys in Redis, and what happens when Redis is slow, gone or has lost its
//! data. In real time.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "servers know nothing of a paused clock"
)]

mod admit;
#[path = "../../../../../tests/it/concurrency/claims.rs"]
mod claims;
mod down;
mod fair;
mod fit;
mod keyed;
mod keys;
mod lost;
mod one;
mod together;
mod trips;
mod turns;

use std::time::Duration;

use paceline_redis::{Lease, OutagePolicy, Redis, RedisPermits, ServerError};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::failing::DEADLINE;
use crate::limits::{PATIENT, client};
use crate::servers::{PATIENCE, Relay, Server, until};

pub(crate) const KEY: &str = "paceline:{jobs}:permits";

/// Long enough that no lease ends during a test, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Short enough to wait for, and long enough for a busy machine to renew it.
pub(crate) const STEADY: Duration = Duration::from_secs(3);

/// Short enough to wait for its end.
pub(crate) const SHORT: Duration = Duration::from_secs(2);

/// A client with its own connection, which Redis takes for a process. Its deadline is long enough for a busy machine.
pub(crate) fn process(url: &str) -> Redis {
    client(url, OutagePolicy::closed(), PATIENT)
}

/// The same, for leases of [`STEADY`].
pub(crate) fn steady(url: &str) -> Redis {
    client(url, OutagePolicy::closed(), Duration::from_millis(700))
}

/// The same, for leases of [`SHORT`], and for tests in which Redis does not answer.
pub(crate) fn hasty(url: &str) -> Redis {
    client(url, OutagePolicy::closed(), DEADLINE)
}

pub(crate) fn permits(redis: &Redis, n: u32, lease: Duration) -> RedisPermits {
    redis.permits("jobs", n, lease).unwrap()
}

/// So many permits, in a process with a server of its own.
pub(crate) async fn so_many(n: u32) -> (Server, RedisPermits) {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), n, LONG);
    (server, permits)
}

/// So many permits, in each of two processes.
pub(crate) async fn in_two_processes(n: u32) -> (Server, RedisPermits, RedisPermits) {
    let (server, here) = so_many(n).await;
    let there = permits(&process(&server.url()), n, LONG);
    (server, here, there)
}

/// Holds so many leases.
pub(crate) async fn hold(permits: &RedisPermits, count: usize) -> Vec<Lease> {
    let mut held = Vec::new();
    for _ in 0..count {
        held.push(taken(permits).await);
    }
    held
}

/// Requests that wait, spawned in one batch.
pub(crate) fn waiting(permits: &RedisPermits, count: usize) -> Vec<JoinHandle<Lease>> {
    let spawn = || {
        let permits = permits.clone();
        tokio::spawn(async move { permits.acquire().await.unwrap() })
    };
    std::iter::repeat_with(spawn).take(count).collect()
}

/// What was spawned has to end.
pub(crate) async fn ends<T>(task: JoinHandle<T>) -> T {
    timeout(PATIENCE, task).await.expect("it ends").unwrap()
}

#[track_caller]
pub(crate) fn none_is_free(answer: Result<Option<Lease>, ServerError>) {
    assert!(answer.unwrap().is_none());
}

pub(crate) async fn relayed() -> (Server, Relay) {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    (server, relay)
}

/// A lease that must be available. A busy machine may miss a deadline, so this waits.
pub(crate) async fn taken(permits: &RedisPermits) -> Lease {
    let lease = timeout(PATIENCE, permits.acquire()).await;
    lease.expect("one is free").unwrap()
}

/// Waits until no lease in Redis is left that has not ended.
pub(crate) async fn until_all_are_given_back(server: &Server) {
    until("all are given back", async || alive(server).await == 0).await;
}

/// The members in Redis, and when their leases end.
pub(crate) async fn members(server: &Server) -> Vec<(String, u64)> {
    let members: Vec<(String, f64)> = server.cli(&["ZRANGE", KEY, "0", "-1", "WITHSCORES"]).await;
    let leases = members.into_iter().filter(|(id, _)| id != "at");
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole microseconds, far below 2^53"
    )]
    leases.map(|(id, end)| (id, end as u64)).collect()
}

/// How many leases in Redis have not ended.
pub(crate) async fn alive(server: &Server) -> usize {
    let members = members(server).await;
    let now = server.time_us().await;
    members.iter().filter(|(_, end)| *end > now).count()
}

/// How many scripts the server has run.
pub(crate) async fn calls(server: &Server) -> u64 {
    count(server, "eval").await + count(server, "evalsha").await
}

/// How often the server has run this command, including from scripts.
pub(crate) async fn count(server: &Server, command: &str) -> u64 {
    let stat = server
        .info("commandstats", &format!("cmdstat_{command}"))
        .await;
    let Some((_, rest)) = stat.split_once("calls=") else {
        return 0;
    };
    let digits = rest.split(',').next();
    digits.and_then(|count| count.parse().ok()).unwrap()
}
