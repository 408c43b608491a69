use crate::servers::Cut;

use super::*;

#[tokio::test]
async fn leases_dropped_together_are_released_in_one_call() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 100, LONG);
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(taken(&permits).await);
    }
    let before = calls(&server).await;

    drop(held);
    until("all are given back", async || alive(&server).await == 0).await;
    assert_eq!(calls(&server).await - before, 1);
}

#[tokio::test]
async fn simultaneous_requests_are_granted_in_a_few_calls() {
    let server = Server::start().await;
    let redis = process(&server.url());
    let permits = permits(&redis, 64, LONG);
    redis.connect().await.unwrap();
    let asking: Vec<_> = (0..64)
        .map(|_| {
            tokio::spawn({
                let permits = permits.clone();
                async move { permits.acquire().await.unwrap() }
            })
        })
        .collect();

    let mut held = Vec::new();
    for asking in asking {
        held.push(asking.await.unwrap());
    }
    assert_eq!(alive(&server).await, 64);
    assert!(calls(&server).await <= 3);
}

#[tokio::test]
async fn a_release_and_a_request_share_one_round_trip() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 1, LONG);
    let mut held = taken(&permits).await;
    let before = calls(&server).await;

    for _ in 0..20 {
        drop(held);
        held = permits
            .try_acquire()
            .await
            .unwrap()
            .expect("it was given back before");
    }
    assert_eq!(calls(&server).await - before, 20);
}

#[tokio::test]
async fn many_leases_are_renewed_in_one_call() {
    let server = Server::start().await;
    let permits = permits(&steady(&server.url()), 50, STEADY);
    let mut held = Vec::new();
    for _ in 0..50 {
        held.push(taken(&permits).await);
    }
    let before = calls(&server).await;
    let ended = members(&server)
        .await
        .iter()
        .map(|(_, end)| *end)
        .max()
        .unwrap();

    until("all have been renewed", async || {
        server.time_us().await > ended
    })
    .await;
    sleep(STEADY).await;
    let asked = calls(&server).await - before;

    assert_eq!(alive(&server).await, 50);
    assert!(held.iter().all(|lease| !lease.is_lost()));
    // Two lease times, with one call for each third: not 300.
    assert!((3..=15).contains(&asked), "{asked}");
    assert_eq!(permits.in_use().await.unwrap(), 50);
}

#[tokio::test]
async fn repeating_a_release_with_a_lost_reply_is_harmless() {
    let (server, relay) = relayed().await;
    let redis = hasty(&relay.url());
    let permits = permits(&redis, 1, LONG);
    let lease = taken(&permits).await;

    relay.drop_replies(true).await;
    assert!(lease.release().await.unwrap_err().is_timeout());
    until("it is given back", async || alive(&server).await == 0).await;
    relay.drop_replies(false).await;

    // Another holder has the permit now, and keeps it while the release is repeated.
    let other = permits_of(&server);
    let held = taken(&other).await;
    until("it is up again", async || permits.in_use().await.is_ok()).await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(alive(&server).await, 1);
    assert!(!held.is_lost());
}

#[tokio::test]
async fn a_failed_release_is_repeated_when_redis_is_back() {
    let (server, relay) = relayed().await;
    let permits = permits(&hasty(&relay.url()), 1, LONG);
    let lease = taken(&permits).await;

    relay.cut(Cut::Refuse).await;
    drop(lease);
    sleep(Duration::from_millis(300)).await;
    assert_eq!(alive(&server).await, 1);
    relay.mend().await;

    until("it is given back", async || alive(&server).await == 0).await;
}

fn permits_of(server: &Server) -> RedisPermits {
    permits(&process(&server.url()), 1, LONG)
}

#[tokio::test]
async fn a_grant_with_a_lost_reply_is_released() {
    let (server, relay) = relayed().await;
    let redis = hasty(&relay.url());
    let permits = permits(&redis, 1, LONG);
    drop(taken(&permits).await);
    until("it is given back", async || alive(&server).await == 0).await;

    let removed = count(&server, "zrem").await;

    relay.drop_replies(true).await;
    assert!(permits.try_acquire().await.unwrap().is_none());
    // The granted lease is removed, although the reply to that is lost too.
    until("it is removed", async || {
        count(&server, "zrem").await > removed
    })
    .await;
    relay.drop_replies(false).await;

    until("it is given back", async || alive(&server).await == 0).await;
}
