use super::*;

#[tokio::test]
async fn the_limit_is_granted_and_no_more() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 3, LONG);
    let held = [
        taken(&permits).await,
        taken(&permits).await,
        taken(&permits).await,
    ];

    assert!(permits.try_acquire().await.unwrap().is_none());
    assert_eq!(permits.in_use().await.unwrap(), 3);
    assert!(
        held.iter()
            .all(|lease| !lease.is_lost() && !lease.is_local())
    );
    assert_eq!(permits.limit(), 3);
}

#[tokio::test]
async fn a_request_that_waits_for_too_long_fails_and_takes_nothing() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 1, LONG);
    let held = permits.acquire_within(LONG).await.unwrap();

    let time = Duration::from_millis(50);
    let late = permits.acquire_within(time).await.unwrap_err();
    assert!(late.is_too_late());
    assert_eq!(late.retry_in(), Some(time));
    drop(held);
    drop(permits.acquire_within(LONG).await.unwrap());
}

#[tokio::test]
async fn a_dropped_lease_is_free_again() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 1, LONG);

    for _ in 0..5 {
        drop(taken(&permits).await);
    }
    until("none is in use", async || {
        permits.in_use().await.is_ok_and(|count| count == 0)
    })
    .await;
}

#[tokio::test]
async fn release_returns_when_redis_has_applied_it() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 1, LONG);
    let lease = taken(&permits).await;
    assert_eq!(members(&server).await.len(), 1);

    lease.release().await.unwrap();
    assert_eq!(members(&server).await.len(), 0);
}

#[tokio::test]
async fn an_unpolled_release_releases_too() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 1, LONG);

    drop(taken(&permits).await.release());
    drop(taken(&permits).await);
}

#[tokio::test]
async fn different_names_are_different_limits_and_equal_names_are_one() {
    let server = Server::start().await;
    let redis = process(&server.url());
    let other = redis.permits("other", 1, LONG).unwrap();
    let jobs = permits(&redis, 1, LONG);
    let same = permits(&redis, 1, LONG);

    let _job = taken(&jobs).await;
    assert!(same.try_acquire().await.unwrap().is_none());
    let _other = taken(&other).await;
}

#[tokio::test]
async fn a_cancelled_acquire_holds_nothing() {
    let server = Server::start().await;
    let redis = process(&server.url());
    let permits = permits(&redis, 1, LONG);
    let held = taken(&permits).await;
    let waiting = tokio::spawn({
        let permits = permits.clone();
        async move { permits.acquire().await }
    });
    sleep(Duration::from_millis(50)).await;

    waiting.abort();
    drop(held);
    until("none is in use", async || alive(&server).await == 0).await;
    drop(taken(&permits).await);
}

#[tokio::test]
async fn a_lease_granted_to_a_cancelled_request_is_released() {
    let (server, relay) = relayed().await;
    let redis = process(&relay.url());
    let permits = permits(&redis, 1, LONG);
    drop(taken(&permits).await);
    until("it is given back", async || alive(&server).await == 0).await;
    relay.delay_replies(Duration::from_secs(2)).await;

    let leaving = tokio::spawn(async move { permits.acquire().await });
    until("it is granted", async || alive(&server).await == 1).await;
    leaving.abort();
    drop(leaving);

    until("it is given back", async || alive(&server).await == 0).await;
}

#[tokio::test]
async fn a_guard_can_be_dropped_outside_a_runtime() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 1, LONG);
    let lease = taken(&permits).await;

    std::thread::spawn(move || drop(lease)).join().unwrap();
    drop(taken(&permits).await);
}
