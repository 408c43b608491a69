use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::{SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use paceline_redis::OutagePolicy;

use super::{a_minute_of, hasty, notice, opened, redis, until_down, until_up};
use crate::limits::{Passed, passed, pause};
use crate::servers::Server;

#[tokio::test]
async fn a_stream_continues_when_a_killed_server_is_back() {
    let mut server = Server::start().await;
    let redis = hasty(&server.url(), OutagePolicy::closed()).await;
    let window = Duration::from_millis(200);
    let limit = redis.limit("a", SlidingLog::new(5, window)).unwrap();

    let mut paced = stream::iter(0..30).pace(limit);
    let mut passed = Passed::default();
    for item in 0..30 {
        if item == 8 {
            server.kill();
            server.start_again().await;
        }
        assert_eq!(paced.next().await, Some(item));
        passed.note();
    }
    // A permit may be late by 100 ms.
    assert!(passed.most_in(window / 2) <= 5, "{passed:?}");
}

#[tokio::test]
async fn a_frozen_server_is_detected_and_so_is_its_return() {
    let (mut server, redis, limit) = a_minute_of(1_000, OutagePolicy::open()).await;
    limit.acquire(1).await.unwrap();

    server.freeze();
    notice(&redis, &limit).await;
    assert!(redis.stats().timeouts >= 3, "{:?}", redis.stats());
    // Nobody asks a server that is known to be down.
    let skipped = redis.stats().skipped;
    passed(limit.try_acquire(1).await);
    assert_eq!(limit.try_acquire_up_to(7).await, Ok(7));
    assert!(redis.stats().skipped > skipped);

    server.thaw();
    until_up(&redis).await;
    let answered = redis.stats().answered;
    passed(limit.try_acquire(1).await);
    assert_eq!(redis.stats().answered, answered + 1);
    // It is the same run of the server.
    assert_eq!(redis.stats().lost_states, 0);
}

#[tokio::test]
async fn a_bucket_does_not_fill_while_other_insurances_may_be_in_use() {
    let mut server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::insured(2)).await;
    let bucket = TokenBucket::new(Rate::per_second(1), 10);
    let (limit, other) = (redis.limit("a", bucket), redis.limit("b", bucket));
    let (limit, other) = (limit.unwrap(), other.unwrap());
    assert_eq!(limit.try_acquire_up_to(10).await, Ok(10));

    server.freeze();
    // Requests to the limit itself would be counted when the server runs again.
    notice(&redis, &other).await;
    pause(Duration::from_secs(4)).await;
    server.thaw();
    until_up(&redis).await;
    // It fills until the outage is noticed, for about half a second. With the outage it would be six seconds.
    let there = limit.try_acquire_up_to(10).await.unwrap();
    assert!(there <= 2, "{there}");
}

#[tokio::test]
async fn a_refused_first_connection_is_an_outage() {
    let mut server = Server::start().await;
    server.kill();
    let redis = opened(&server.url(), OutagePolicy::closed());
    let log = SlidingLog::new(5, Duration::from_millis(100));
    let limit = redis.limit("a", log).unwrap();

    assert!(!limit.try_acquire(1).await.unwrap().is_pass());
    until_down(&redis).await;
    let error = redis.connect().await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    server.start_again().await;
    limit.acquire(1).await.unwrap();
    assert_eq!(redis.stats().connects, 1);
}
