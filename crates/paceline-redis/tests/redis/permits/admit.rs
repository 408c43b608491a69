//! Handles that admit work, on a server.

use std::cell::Cell;
use std::future::poll_fn;

use futures::poll;
use paceline::concurrency::Admit;
use paceline::limiter::Limits;

use super::*;

#[tokio::test]
async fn permits_in_redis_keep_the_claims() {
    let server = Server::start().await;
    let redis = process(&server.url());
    redis.connect().await.unwrap();
    let number = Cell::new(0);
    let make = |n| {
        number.set(number.get() + 1);
        let name = format!("jobs {}", number.get());
        redis.permits(&name, n, LONG).unwrap()
    };
    claims::hold_for(make).await;
}

#[tokio::test]
async fn keyed_permits_in_redis_keep_the_claims() {
    fn at<L: Limits<String>>(permits: &L, number: u32) -> L::Limit
    where
        L::Error: std::fmt::Debug,
    {
        permits.at(format!("user {number}")).unwrap()
    }
    let server = Server::start().await;
    let redis = process(&server.url());
    redis.connect().await.unwrap();
    let (one, two) = (
        redis.keyed_permits("one", 1, LONG).unwrap(),
        redis.keyed_permits("two", 2, LONG).unwrap(),
    );
    let number = Cell::new(0);
    let make = |n| {
        number.set(number.get() + 1);
        at(if n == 1 { &one } else { &two }, number.get())
    };
    claims::hold_for(make).await;
    let key: Result<RedisPermits, _> = Limits::at(&one, "");
    assert!(key.is_err());
}

#[tokio::test]
async fn handles_and_futures_share_a_queue() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 1, LONG);
    let held = taken(&permits).await;
    let mut handle = permits.clone();
    assert!(poll!(poll_fn(|cx| handle.poll_admit((), cx))).is_pending());
    let behind = tokio::spawn({
        let permits = permits.clone();
        async move { taken(&permits).await }
    });
    sleep(Duration::from_millis(30)).await;

    drop(held);
    let lease = poll_fn(|cx| handle.poll_admit((), cx));
    let lease = timeout(PATIENCE, lease).await.unwrap().unwrap();
    assert!(!behind.is_finished());
    drop(lease);
    drop(timeout(PATIENCE, behind).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_lease_for_a_handle_that_is_not_polled_is_released_when_it_gives_up() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 1, LONG);
    let held = taken(&permits).await;
    let mut idle = permits.clone();
    assert!(poll!(poll_fn(|cx| idle.poll_admit((), cx))).is_pending());
    sleep(Duration::from_millis(30)).await;
    held.release().await.unwrap();
    until("the lease is granted", async || {
        permits.in_use().await.unwrap() == 1
    })
    .await;

    idle.give_up();
    drop(taken(&permits).await);
    until("no lease is left", async || {
        permits.in_use().await.unwrap() == 0
    })
    .await;
}

#[tokio::test]
async fn a_fault_is_the_error_of_the_handle() {
    let server = Server::start().await;
    let redis = process(&server.url());
    redis.connect().await.unwrap();
    server.cli::<()>(&["SET", KEY, "mine"]).await;
    let mut permits = permits(&redis, 1, LONG);
    let refused = poll_fn(|cx| permits.poll_admit((), cx)).await;
    assert!(refused.unwrap_err().to_string().contains("WRONGTYPE"));
}
