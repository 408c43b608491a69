use std::time::Duration;

use paceline::time::Clock;
use paceline_redis::OutagePolicy;

use super::{redis, until_up};
use crate::limits::{counted_in, log, pause};
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

/// With Nagle's algorithm all requests but the first would wait for its reply, so that they took two trips.
#[tokio::test]
async fn requests_are_sent_without_waiting_for_earlier_ones_to_be_acknowledged() {
    // A system acknowledges what has no reply after 40 ms.
    let trip = Duration::from_millis(35);
    let (_server, relay) = relayed().await;
    let mut clock = Clock::new();

    // A busy machine can be slow in a round: one round of a single trip is enough.
    loop {
        let redis = redis(&relay.url(), OutagePolicy::closed()).await;
        let limits = redis.keyed("a", log(1_000)).unwrap();
        relay.delay_replies(trip).await;
        let start = clock.now();
        let asking = (0..8).map(|key| {
            let limits = limits.clone();
            async move {
                pause(Duration::from_millis(1) * key).await;
                let limit = limits.at(&format!("{key}")).unwrap();
                limit.try_acquire(1).await.unwrap()
            }
        });
        futures::future::join_all(asking).await;
        let took = clock.now().since(start);
        assert!(took >= trip, "the replies are delayed");
        if took < 2 * trip {
            return;
        }
        relay.delay_replies(Duration::ZERO).await;
    }
}
