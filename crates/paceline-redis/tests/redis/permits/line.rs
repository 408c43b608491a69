use std::sync::{Arc, Mutex};

use super::*;

#[tokio::test]
async fn waiters_of_one_process_are_served_in_order() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 3, LONG);
    let held = [
        taken(&permits).await,
        taken(&permits).await,
        taken(&permits).await,
    ];
    let order = Arc::new(Mutex::new(Vec::new()));

    let mut waiting = Vec::new();
    for number in 0..6 {
        let (permits, order) = (permits.clone(), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let lease = taken(&permits).await;
            order.lock().unwrap().push(number);
            lease
        }));
        // Each waiter joins the queue before the next one is spawned.
        tokio::task::yield_now().await;
        sleep(Duration::from_millis(10)).await;
    }
    let mut held: Vec<_> = held.into();
    for waiting in waiting {
        held.remove(0).release().await.unwrap();
        held.push(timeout(PATIENCE, waiting).await.unwrap().unwrap());
    }

    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_try_does_not_overtake_a_waiter() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 1, LONG);
    let held = taken(&permits).await;
    let waiting = tokio::spawn({
        let permits = permits.clone();
        async move { permits.acquire().await.unwrap() }
    });
    tokio::task::yield_now().await;
    sleep(Duration::from_millis(30)).await;

    drop(held);
    assert!(permits.try_acquire().await.unwrap().is_none());
    let _next = waiting.await.unwrap();
}

#[tokio::test]
async fn a_waiter_finds_a_lease_that_another_process_releases() {
    let server = Server::start().await;
    let here = permits(&process(&server.url()), 1, LONG);
    let there = permits(&process(&server.url()), 1, LONG);
    let held = taken(&there).await;
    let waiting = tokio::spawn(async move { taken(&here).await });
    sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());

    drop(held);
    drop(timeout(PATIENCE, waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn waiters_ask_less_and_less_often() {
    let server = Server::start().await;
    let here = permits(&process(&server.url()), 1, LONG);
    let there = permits(&process(&server.url()), 1, LONG);
    let _held = taken(&there).await;
    let before = calls(&server).await;
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            tokio::spawn({
                let here = here.clone();
                async move { taken(&here).await }
            })
        })
        .collect();

    sleep(Duration::from_millis(640)).await;
    let asked = calls(&server).await - before;

    // Each 2 ms up to 32 ms, then each sixteenth of the time: 64 calls, and fewer on a busy machine. One call asks for all.
    assert!((1..=70).contains(&asked), "{asked}");
    for waiting in waiting {
        waiting.abort();
    }
}
