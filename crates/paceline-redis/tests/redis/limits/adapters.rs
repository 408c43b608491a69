use std::time::Duration;

use futures::{SinkExt, StreamExt, stream};
use paceline::limiter::{Event, Mode, Observed, Switch, Switched, TooCostly};
use paceline::policy::{SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;

use super::{MINUTE, Passed, pause, redis};
use crate::servers::Server;

#[tokio::test]
async fn pace_keeps_the_limit_and_the_order() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let window = Duration::from_secs(2);
    let limit = redis.limit("a", SlidingLog::new(5, window)).unwrap();

    let mut passed = Passed::default();
    let mut items = Vec::new();
    let mut paced = stream::iter(0..20).pace(limit);
    while let Some(item) = paced.next().await {
        passed.note();
        items.push(item);
    }
    assert!(items.into_iter().eq(0..20));
    // Half of the window is for answers that a busy machine notes late.
    assert!(passed.most_in(window / 2) <= 5, "{passed:?}");
}

#[tokio::test]
async fn one_limit_serves_streams_sinks_and_plain_calls() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(6, MINUTE)).unwrap();

    assert_eq!(stream::iter(0..2).pace(limit.clone()).count().await, 2);
    let mut sink = Vec::new().pace_sends(limit.clone());
    sink.send(1).await.unwrap();
    sink.send(2).await.unwrap();
    let (sent, _) = sink.into_parts();
    assert_eq!(sent, [1, 2]);
    limit.acquire(1).await.unwrap();
    let answers: Vec<_> = stream::iter(0..3).enforce(limit.clone()).collect().await;
    assert!(answers[0].is_ok());
    for refused in &answers[1..] {
        let retry_in = refused.as_ref().unwrap_err().retry_in().unwrap();
        assert!(retry_in > MINUTE / 2, "{retry_in:?}");
    }
    let mut shed = stream::iter(0..5).shed(limit);
    assert_eq!(shed.by_ref().count().await, 0);
    assert_eq!(shed.shed_count(), 5);
}

#[tokio::test]
async fn costs_and_batches_work_as_in_memory() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let bucket = TokenBucket::new(Rate::new(1, Duration::from_millis(20)), 3);
    let limit = redis.limit("a", bucket).unwrap();

    let by_cost: Vec<_> = stream::iter([1, 3, 4, 0])
        .pace_by_cost(limit.clone(), |cost| *cost)
        .collect()
        .await;
    let passed: Vec<_> = by_cost
        .into_iter()
        .map(|item| item.map_err(TooCostly::into_item))
        .collect();
    assert_eq!(passed, [Ok(1), Ok(3), Err(4), Ok(0)]);

    let batches: Vec<_> = stream::iter(0..7).pace_batches(limit, 3).collect().await;
    assert_eq!(batches, [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
}

#[tokio::test]
async fn an_observer_of_the_limit_sees_each_decision() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis
        .limit("a", SlidingLog::new(1, Duration::from_millis(50)))
        .unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let limit = Observed::new(limit, move |event| sender.send(event).unwrap());
    let mut clock = paceline::time::Clock::new();
    let start = clock.now();

    assert_eq!(stream::iter(0..2).pace(limit).count().await, 2);
    let waits: Vec<_> = receiver
        .iter()
        .map(|event| match event {
            Event::Passed { waited, .. } => waited,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(waits.len(), 2);
    // How much of the window was over when it was asked is not known.
    let took = clock.now().since(start);
    assert!(took >= Duration::from_millis(50), "{took:?}");
    assert!(waits[1] > Duration::ZERO && waits[1] <= took, "{waits:?}");
}

#[tokio::test]
async fn a_switch_watches_a_limit_in_redis_and_turns_it_off_while_redis_hangs() {
    let mut server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(3, MINUTE)).unwrap();
    let switch = Switch::new().with_mode(Mode::Shadow);
    let limit = Switched::new(limit, switch.clone());

    // What conforms is counted in Redis.
    for _ in 0..5 {
        limit.acquire_one().await;
    }
    let stats = switch.stats();
    assert_eq!(
        (stats.shadowed, stats.held_back, stats.unreachable),
        (5, 2, 0)
    );
    switch.set_mode(Mode::Active);
    assert!(!limit.try_acquire(1).await.is_pass());

    let waits = tokio::spawn(limit.acquire_one());
    pause(Duration::from_millis(20)).await;
    assert!(!waits.is_finished());
    switch.set_mode(Mode::Off);
    waits.await.unwrap();

    // No denial of this one is cached.
    let limit = redis.limit("b", SlidingLog::new(3, MINUTE)).unwrap();
    let limit = Switched::new(limit, switch.clone());
    server.freeze();
    switch.set_mode(Mode::Shadow);
    let asks = tokio::spawn(limit.acquire_one());
    pause(Duration::from_millis(20)).await;
    assert!(!asks.is_finished(), "the answer is under way");
    switch.set_mode(Mode::Off);
    asks.await.unwrap();
    limit.acquire_one().await;
    assert_eq!(switch.stats(), stats);
}
