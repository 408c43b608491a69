//! The server's clock steps by an hour, or a failover leads to a server with a clock an hour behind.

use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use paceline::policy::{FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisPolicy};
use tokio::sync::Barrier;
use tokio::time::timeout;

use super::process;
use crate::failing::{DEADLINE, until_up};
use crate::limits::{MINUTE, PATIENT};
use crate::servers::{Cut, PATIENCE, Relay, Server};

const HOUR: i64 = 3_600;

const LIMIT: u32 = 4;

/// Long enough for a busy machine to spend a limit within it.
const WINDOW: Duration = Duration::from_secs(2);

const POLICIES: usize = 6;

/// A process that uses limits before the step, and the moments before and after it.
struct Scene {
    url: String,
    known: Redis,
    /// Passed by all policies and the step, twice.
    step: Barrier,
}

/// Spends a limit of each policy, makes the step, and checks that each limit goes on and its state was counted as lost.
async fn all_go_on(url: String, step: impl Future<Output = ()>) {
    let known = process(&url, OutagePolicy::closed(), DEADLINE).await;
    let scene = Scene {
        url,
        known,
        step: Barrier::new(POLICIES + 1),
    };
    let bucket = TokenBucket::new(Rate::new(LIMIT, WINDOW), LIMIT);
    let strict = SlidingCounter::strict(LIMIT, WINDOW, 4);
    let smooth = SlidingCounter::smooth(LIMIT, WINDOW);
    let limits = join_all([
        goes_on(&scene, "interval", Interval::every(WINDOW)).boxed(),
        goes_on(&scene, "log", SlidingLog::new(LIMIT, WINDOW)).boxed(),
        goes_on(&scene, "window", FixedWindow::new(LIMIT, WINDOW)).boxed(),
        goes_on(&scene, "bucket", bucket).boxed(),
        goes_on(&scene, "strict", strict).boxed(),
        goes_on(&scene, "smooth", smooth).boxed(),
    ]);
    let step = async {
        scene.step.wait().await;
        step.await;
        until_up(&scene.known).await;
        scene.step.wait().await;
    };
    let (limits, ()) = futures::join!(limits, step);
    let stuck: Vec<_> = limits.into_iter().flatten().collect();
    assert!(stuck.is_empty(), "{stuck:?}");
}

/// What does not go on.
async fn goes_on<P: RedisPolicy>(scene: &Scene, name: &str, policy: P) -> Vec<String> {
    let known = scene.known.limit(name, policy.clone()).unwrap();
    known.acquire(1).await.unwrap();
    while known.try_acquire_up_to(LIMIT).await.unwrap() > 0 {}
    scene.step.wait().await;
    scene.step.wait().await;
    let process = process(&scene.url, OutagePolicy::closed(), DEADLINE).await;
    let new = process.limit(name, policy).unwrap();
    let waits = join_all([&known, &new].map(|limit| timeout(PATIENCE, limit.acquire(1)))).await;
    let mut stuck = Vec::new();
    for (process, waited) in ["known", "new"].iter().zip(waits) {
        if waited.is_err() {
            stuck.push(format!("{name}, {process}: stands still"));
        }
    }
    if scene.known.stats().lost_states + process.stats().lost_states == 0 {
        stuck.push(format!("{name}: no state was counted as lost"));
    }
    stuck
}

#[tokio::test]
async fn a_step_back_of_an_hour_costs_one_wait() {
    let server = Server::start_with_clock().await;
    let step = async {
        server.set_clock(-HOUR);
    };
    all_go_on(server.url(), step).await;
}

#[tokio::test]
async fn a_failover_to_a_clock_an_hour_behind_costs_one_wait() {
    let mut master = Server::start_with_clock().await;
    master.set_clock(HOUR);
    let replica = Server::start_replica_of(&master).await;
    let relay = Relay::start(master.address());
    let step = async {
        replica.catch_up_with(&master).await;
        master.kill();
        replica.promote().await;
        relay.switch_to(replica.address()).await;
    };
    all_go_on(relay.url(), step).await;
}

#[tokio::test]
async fn a_step_forward_of_an_hour_passes_one_burst() {
    let server = Server::start_with_clock().await;
    let before = process(&server.url(), OutagePolicy::closed(), PATIENT).await;
    let policy = SlidingLog::new(LIMIT, MINUTE);
    before.limit("a", policy).unwrap().acquire(1).await.unwrap();

    server.set_clock(HOUR);
    let after = process(&server.url(), OutagePolicy::closed(), PATIENT).await;
    let limit = after.limit("a", policy).unwrap();
    assert_eq!(limit.try_acquire_up_to(2 * LIMIT).await, Ok(LIMIT));
    assert_eq!(limit.try_acquire_up_to(1).await, Ok(0));
}

#[tokio::test]
async fn a_lease_whose_holder_died_ends_though_the_clock_stepped_back() {
    let server = Server::start_with_clock().await;
    let relay = Relay::start(server.address());
    let holder = process(&relay.url(), OutagePolicy::closed(), DEADLINE).await;
    let holder = holder.permits("jobs", 1, WINDOW).unwrap();
    let _lease = holder.acquire().await.unwrap();
    relay.cut(Cut::BlackHole).await;
    server.set_clock(-HOUR);

    let other = process(&server.url(), OutagePolicy::closed(), DEADLINE).await;
    let other = other.permits("jobs", 1, WINDOW).unwrap();
    let lease = timeout(PATIENCE, other.acquire()).await;
    assert!(lease.is_ok(), "the lease has not ended");
}
