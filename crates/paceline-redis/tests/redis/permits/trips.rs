use crate::servers::Cut;

use super::*;

#[tokio::test]
async fn what_is_asked_at_once_takes_a_few_calls_and_what_is_dropped_at_once_takes_one() {
    let server = Server::start().await;
    let redis = process(&server.url());
    redis.connect().await.unwrap();
    let mut held = Vec::new();
    for asking in waiting(&permits(&redis, 64, LONG), 64) {
        held.push(ends(asking).await);
    }
    assert_eq!(alive(&server).await, 64);
    let before = calls(&server).await;
    assert!(before <= 3, "{before}");

    drop(held);
    until_all_are_given_back(&server).await;
    assert_eq!(calls(&server).await - before, 1);
}

#[tokio::test]
async fn a_release_and_a_request_share_one_round_trip() {
    let (server, permits) = so_many(1).await;
    let mut held = taken(&permits).await;
    let before = calls(&server).await;

    for _ in 0..20 {
        drop(held);
        let lease = permits.try_acquire().await.unwrap();
        held = lease.expect("it was given back before");
    }
    assert_eq!(calls(&server).await - before, 20);
}

#[tokio::test]
async fn waiters_ask_less_and_less_often() {
    let (server, here, there) = in_two_processes(1).await;
    let _held = taken(&there).await;
    let before = calls(&server).await;
    let waiting = waiting(&here, 10);

    sleep(Duration::from_millis(640)).await;
    let asked = calls(&server).await - before;
    // Each 2 ms up to 32 ms, then each sixteenth of the time: 64 calls, and fewer on a busy machine. One call asks for all.
    assert!((1..=70).contains(&asked), "{asked}");
    for waiting in waiting {
        waiting.abort();
    }
}

#[tokio::test]
async fn many_leases_are_renewed_in_one_call() {
    let server = Server::start().await;
    let permits = permits(&steady(&server.url()), 50, STEADY);
    let held = hold(&permits, 50).await;
    let before = calls(&server).await;
    let members = members(&server).await;
    let ended = members.iter().map(|(_, end)| *end).max().unwrap();

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
    until_all_are_given_back(&server).await;
    relay.drop_replies(false).await;

    // Another holder has the permit now, and keeps it while the release is repeated.
    let other = process(&server.url());
    let held = taken(&other.permits("jobs", 1, LONG).unwrap()).await;
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

    until_all_are_given_back(&server).await;
}

#[tokio::test]
async fn a_grant_with_a_lost_reply_is_released() {
    let (server, relay) = relayed().await;
    let redis = hasty(&relay.url());
    let permits = permits(&redis, 1, LONG);
    drop(taken(&permits).await);
    until_all_are_given_back(&server).await;
    let removed = count(&server, "zrem").await;

    relay.drop_replies(true).await;
    none_is_free(permits.try_acquire().await);
    // The granted lease is removed, although the reply to that is lost too.
    until("it is removed", async || {
        count(&server, "zrem").await > removed
    })
    .await;
    relay.drop_replies(false).await;

    until_all_are_given_back(&server).await;
}
