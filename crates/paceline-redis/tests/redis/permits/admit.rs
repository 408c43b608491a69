//! Handles that admit work, on a server.

use std::cell::Cell;
use std::future::poll_fn;

use futures::poll;
use paceline::concurrency::Admit;

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
async fn handles_and_futures_share_a_queue() {
    let (_server, permits) = so_many(1).await;
    let held = taken(&permits).await;
    let mut handle = permits.clone();
    assert!(poll!(poll_fn(|cx| handle.poll_admit((), cx))).is_pending());
    let behind = waiting(&permits, 1).remove(0);
    sleep(Duration::from_millis(30)).await;

    drop(held);
    let lease = poll_fn(|cx| handle.poll_admit((), cx));
    let lease = timeout(PATIENCE, lease).await.unwrap().unwrap();
    assert!(!behind.is_finished());
    drop(lease);
    drop(ends(behind).await);
}
