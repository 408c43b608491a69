use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::{Decision, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use paceline_redis::OutagePolicy;

use super::{DEADLINE, redis, until_up};
use crate::limits::{MINUTE, Passed, pause, wait_of};
use crate::servers::{Relay, Server};

#[tokio::test]
async fn flushing_all_keys_mid_stream_passes_nothing_extra() {
    let server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::closed()).await;
    let window = 3 * DEADLINE;
    let limit = redis.limit("a", SlidingLog::new(5, window)).unwrap();

    let mut paced = stream::iter(0..20).pace(limit);
    let mut passed = Passed::default();
    for item in 0..20 {
        if item % 5 == 4 {
            server.flush_all().await;
        }
        assert_eq!(paced.next().await, Some(item));
        passed.note();
    }
    // Half of the window is for permits that are used late, by up to the deadline and 100 ms.
    assert!(passed.most_in(window / 2) <= 5, "{passed:?}");
    assert!(redis.stats().lost_states >= 3, "{:?}", redis.stats());
}

#[tokio::test]
async fn every_policy_counts_as_spent_when_its_state_is_lost() {
    let server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::closed()).await;

    macro_rules! is_spent {
        ($name:expr, $policy:expr) => {
            let limit = redis.limit($name, $policy).unwrap();
            assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
            server.flush_all().await;
            assert!(wait_of(limit.try_acquire(1).await) > Duration::from_secs(5));
            assert_eq!(limit.try_acquire_up_to(9).await, Ok(0));
        };
    }
    is_spent!("a", TokenBucket::new(Rate::per_minute(6), 5));
    is_spent!("a", SlidingLog::new(5, MINUTE));
    is_spent!("a", SlidingCounter::strict(5, MINUTE, 3));
    is_spent!("b", SlidingCounter::smooth(5, MINUTE));
    is_spent!("a", FixedWindow::new(5, MINUTE));
    is_spent!("b", Interval::every(MINUTE));
    assert_eq!(redis.stats().lost_states, 6);
}

#[tokio::test]
async fn flushing_the_scripts_mid_stream_has_no_effect() {
    let server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::closed()).await;
    let limit = redis.limit("a", SlidingLog::new(100, MINUTE)).unwrap();

    for _ in 0..10 {
        server.flush_scripts().await;
        assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    }
    assert_eq!((redis.stats().answered, redis.stats().faults), (10, 0));
}

#[tokio::test]
async fn after_a_failover_to_old_state_nothing_more_passes() {
    let mut master = Server::start().await;
    let relay = Relay::start(master.address());
    let redis = redis(&relay.url(), OutagePolicy::closed()).await;
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();
    let replica = Server::start_replica_of(&master).await;
    replica.cut_off().await;
    limit.acquire(3).await.unwrap();

    // The replica has received one of the four permits.
    master.kill();
    replica.promote().await;
    relay.switch_to(replica.address()).await;
    pause(Duration::from_millis(50)).await;
    until_up(&redis).await;
    while limit.peek(1).await.is_err() {
        pause(Duration::from_millis(10)).await;
    }
    assert!(wait_of(limit.try_acquire(1).await) > MINUTE / 2);
    assert_eq!(redis.stats().lost_states, 1);
}

#[tokio::test]
async fn an_idle_limit_leaves_no_key_behind_and_does_not_count_as_lost() {
    let server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::closed()).await;
    let limit = redis
        .limit("a", SlidingLog::new(2, Duration::from_millis(50)))
        .unwrap();

    for _ in 0..3 {
        limit.acquire(2).await.unwrap();
        while server.cli::<u64>(&["DBSIZE"]).await > 0 {
            pause(Duration::from_millis(10)).await;
        }
    }
    assert_eq!(redis.stats().lost_states, 0);
}
