//! The server's clock steps back by an hour, or a failover leads to a server with a clock an hour behind.

use std::time::Duration;

use futures::future::join_all;
use paceline::policy::{All, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, RedisPolicy};
use tokio::time::timeout;

use crate::failing::{redis, until_up};
use crate::servers::{PATIENCE, Relay, Server};

const HOUR: i64 = 3_600;

const LIMIT: u32 = 4;

/// Long enough for a busy machine to spend a limit within it.
const WINDOW: Duration = Duration::from_secs(2);

/// A limit of each policy.
fn each_policy() -> impl RedisPolicy {
    All::new((
        Interval::every(WINDOW),
        SlidingLog::new(LIMIT, WINDOW),
        FixedWindow::new(LIMIT, WINDOW),
        TokenBucket::new(Rate::new(LIMIT, WINDOW), LIMIT),
        SlidingCounter::strict(LIMIT, WINDOW, 4),
        SlidingCounter::smooth(LIMIT, WINDOW),
    ))
}

/// Uses a limit of each policy, makes the step, and checks that all go on and each state was counted as lost once.
async fn all_go_on(url: String, step: impl Future<Output = ()>) {
    let before = redis(&url, OutagePolicy::closed()).await;
    let known = before.limit("a", each_policy()).unwrap();
    known.acquire(1).await.unwrap();

    step.await;
    until_up(&before).await;
    let after = redis(&url, OutagePolicy::closed()).await;
    let new = after.limit("a", each_policy()).unwrap();
    let both = [&known, &new].map(|limit| timeout(PATIENCE, limit.acquire(1)));
    for waited in join_all(both).await {
        waited.expect("it goes on").unwrap();
    }
    assert_eq!(before.stats().lost_states + after.stats().lost_states, 6);
}

#[tokio::test]
async fn a_step_back_of_an_hour_costs_one_wait() {
    let server = Server::start_with_clock().await;
    all_go_on(server.url(), async { server.set_clock(-HOUR) }).await;
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
