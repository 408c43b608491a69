use super::*;

#[tokio::test]
async fn a_request_that_waits_for_too_long_fails_and_takes_nothing() {
    let (_server, permits) = so_many(1).await;
    let held = permits.acquire_within(LONG).await.unwrap();

    let time = Duration::from_millis(50);
    let late = permits.acquire_within(time).await.unwrap_err();
    assert!(late.is_too_late());
    assert_eq!(late.retry_in(), Some(time));
    drop(held);
    drop(permits.acquire_within(LONG).await.unwrap());
}

#[tokio::test]
async fn a_lease_is_free_again_however_it_is_dropped() {
    let (server, permits) = so_many(1).await;

    drop(taken(&permits).await);
    drop(taken(&permits).await.release());
    let lease = taken(&permits).await;
    std::thread::spawn(move || drop(lease)).join().unwrap();
    drop(taken(&permits).await);
    until_all_are_given_back(&server).await;
    assert_eq!(permits.in_use().await.unwrap(), 0);
}

#[tokio::test]
async fn a_lease_granted_to_a_cancelled_request_is_released() {
    let (server, relay) = relayed().await;
    let permits = permits(&process(&relay.url()), 1, LONG);
    drop(taken(&permits).await);
    until_all_are_given_back(&server).await;
    relay.delay_replies(Duration::from_secs(2)).await;

    let leaving = waiting(&permits, 1).remove(0);
    until("it is granted", async || alive(&server).await == 1).await;
    leaving.abort();
    until_all_are_given_back(&server).await;
}
