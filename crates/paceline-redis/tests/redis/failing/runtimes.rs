//! Runtimes that end, stand still or have a paused clock, with a real connection.

use futures::{StreamExt, stream};
use paceline::prelude::*;
use paceline_redis::{OutagePolicy, Redis};
use tokio::runtime::{Builder, Runtime};

use super::until_up;
use crate::limits::{PATIENT, client, log, wait_of};
use crate::servers::Server;

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

#[test]
fn a_runtime_that_ends_while_connecting_does_not_block_the_next() {
    let servers = runtime();
    let server = servers.block_on(Server::start());
    for polls in 0..12 {
        let redis = client(&server.url(), OutagePolicy::closed(), PATIENT);
        let limit = redis.limit("a", log(100)).unwrap();
        runtime().block_on(async {
            let mut asking = Box::pin(limit.peek(1));
            for _ in 0..=polls {
                if futures::poll!(asking.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        });
        runtime().block_on(async {
            let asked = tokio::time::timeout(PATIENT * 2, limit.acquire(1)).await;
            asked.expect("somebody makes trips").unwrap();
            assert!(limit.peek(1).await.is_ok());
        });
    }
    drop(server);
}

#[test]
fn a_blocked_runtime_delays_another_by_at_most_the_deadline() {
    let (still, running) = (runtime(), runtime());
    let server = running.block_on(Server::start());
    let redis = Redis::open(&server.url(), OutagePolicy::closed()).unwrap();
    let limit = redis.limit("a", log(5)).unwrap();
    running.block_on(until_up(&redis));

    // The task was started in a runtime that does not run.
    let mut asking = Box::pin(limit.try_acquire(1));
    still.block_on(async { assert!(futures::poll!(asking.as_mut()).is_pending()) });
    running.block_on(async {
        let asked = tokio::time::timeout(PATIENT, limit.try_acquire(1)).await;
        wait_of(asked.expect("there is a deadline"));
        let mut enforced = stream::iter([1]).enforce(limit.clone());
        let refused = tokio::time::timeout(PATIENT, enforced.next()).await;
        assert!(refused.expect("an adapter has one, too").unwrap().is_err());
        let asked = tokio::time::timeout(PATIENT, limit.acquire_within(1, PATIENT / 20)).await;
        assert!(asked.expect("there is an end").unwrap_err().is_too_late());
    });
    // When that runtime runs again, the requests continue.
    let _ = still.block_on(asking).unwrap();
    still.block_on(limit.acquire(1)).unwrap();
    drop(server);
}

/// Tokio's paused clock does not wait for sockets, so whether a reply is in time is arbitrary.
#[test]
fn on_a_paused_clock_nothing_hangs() {
    let real = Runtime::new().unwrap();
    let server = real.block_on(Server::start());
    let mut paused = Builder::new_current_thread();
    let paused = paused.enable_all().start_paused(true).build().unwrap();
    let redis = Redis::open(&server.url(), OutagePolicy::open()).unwrap();
    let limit = redis.limit("a", log(1_000)).unwrap();
    paused.block_on(async {
        for _ in 0..100 {
            assert!(limit.try_acquire(1).await.is_ok());
        }
    });
    drop((paused, server));
}
