use std::time::Duration;

use paceline_redis::OutagePolicy;

use super::{redis, until_up};
use crate::limits::{client, counted_in, log, pause};
use crate::permits::relayed;

#[tokio::test]
async fn a_call_with_a_lost_reply_is_counted_once_and_not_repeated() {
    let (server, relay) = relayed().await;
    let redis = redis(&relay.url(), OutagePolicy::closed()).await;
    let limit = redis.limit("a", log(10)).unwrap();
    limit.acquire(1).await.unwrap();
    let key = &limit.keys()[0];

    relay.drop_replies(true).await;
    assert!(!limit.try_acquire(2).await.unwrap().is_pass());
    relay.drop_replies(false).await;
    pause(Duration::from_millis(50)).await;
    until_up(&redis).await;
    // The two permits were charged once, and the reply was lost.
    assert_eq!(counted_in(&server, key).await, 1 + 2);
}

/// With Nagle's algorithm a request would wait for the reply to the one before, and so for longer than the deadline.
#[tokio::test]
async fn requests_are_sent_without_waiting_for_earlier_ones_to_be_acknowledged() {
    let (_server, relay) = relayed().await;
    let closed = OutagePolicy::closed();
    let redis = client(&relay.url(), closed, Duration::from_millis(30));
    let limits = redis.keyed("a", log(1_000)).unwrap();

    // A busy machine misses the deadline in some rounds: one round in which all requests are in time is enough.
    loop {
        relay.delay_replies(Duration::ZERO).await;
        until_up(&redis).await;
        relay.delay_replies(Duration::from_millis(20)).await;
        let before = redis.stats();
        let asking = (0..32).map(|key| {
            let limits = limits.clone();
            async move {
                pause(Duration::from_millis(2) * key).await;
                limits.at(&format!("{key}")).unwrap().try_acquire(1).await
            }
        });
        futures::future::join_all(asking).await;
        // Permits of a late round may be returned in this one.
        let after = redis.stats();
        if after.timeouts == before.timeouts && after.answered >= before.answered + 32 {
            return;
        }
    }
}
