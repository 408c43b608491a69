use std::time::Instant;

use super::*;

async fn down(when_down: OutagePolicy) -> (Server, Redis) {
    let mut server = Server::start().await;
    let redis = client(&server.url(), when_down, DEADLINE);
    redis.connect().await.unwrap();
    server.kill();
    (server, redis)
}

#[tokio::test]
async fn open_grants_local_leases_to_every_request_and_they_count_when_redis_is_back() {
    let (mut server, redis) = down(OutagePolicy::open()).await;
    let permits = permits(&redis, 2, LONG);
    let mut local = Vec::new();
    for _ in 0..3 {
        let lease = permits.try_acquire().await.unwrap().unwrap();
        assert!(lease.is_local() && !lease.is_lost());
        local.push(lease);
    }
    assert!(taken(&permits).await.is_local());
    assert_eq!(redis.stats().passed_alone, 4);

    local.truncate(1);
    server.start_again().await;
    until("it is up", async || permits.in_use().await.is_ok()).await;
    let one = taken(&permits).await;
    assert!(!one.is_local());
    none_is_free(permits.try_acquire().await);
    drop(local);
    assert!(!taken(&permits).await.is_local());
}

#[tokio::test]
async fn closed_grants_nothing_until_redis_is_back() {
    let (mut server, redis) = down(OutagePolicy::closed()).await;
    let permits = permits(&redis, 1, LONG);

    none_is_free(permits.try_acquire().await);
    let waiting = waiting(&permits, 1).remove(0);
    sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    server.start_again().await;
    assert!(!ends(waiting).await.is_local());
}

#[tokio::test]
async fn insured_grants_a_share_after_all_other_leases_have_ended() {
    let (_server, redis) = down(OutagePolicy::insured(2)).await;
    let permits = permits(&redis, 5, SHORT);
    let start = Instant::now();
    none_is_free(permits.try_acquire().await);

    let one = taken(&permits).await;
    // Until then other processes may hold all leases.
    assert!(start.elapsed() >= SHORT);
    let two = taken(&permits).await;
    none_is_free(permits.try_acquire().await);
    assert!(one.is_local() && two.is_local());

    drop(one);
    let _three = taken(&permits).await;
    none_is_free(permits.try_acquire().await);
}

#[tokio::test]
async fn an_insurance_counts_holders_of_lost_leases_until_they_are_dropped() {
    let mut server = Server::start().await;
    let redis = client(&server.url(), OutagePolicy::insured(1), DEADLINE);
    let permits = permits(&redis, 2, SHORT);
    let lost = taken(&permits).await;

    server.kill();
    lost.lost().await;
    let _local = taken(&permits).await;
    none_is_free(permits.try_acquire().await);
    drop(lost);
    let _other = taken(&permits).await;
}

#[tokio::test]
async fn a_waiter_cancelled_during_an_outage_leaves_no_task_running() {
    let (_server, redis) = down(OutagePolicy::closed()).await;
    let waiting = waiting(&permits(&redis, 1, LONG), 1).remove(0);
    until("it is down", async || redis.stats().outages > 0).await;

    waiting.abort();
    let before = redis.stats();
    sleep(Duration::from_millis(2500)).await;
    assert!(redis.stats().skipped <= before.skipped + 1);
    assert!(format!("{redis:?}").contains("is_up: false"));
}

#[tokio::test]
async fn a_frozen_server_delays_a_request_by_at_most_the_deadline() {
    let mut server = Server::start().await;
    let redis = client(&server.url(), OutagePolicy::open(), DEADLINE);
    let permits = permits(&redis, 1, LONG);
    let held = taken(&permits).await;
    assert!(!held.is_local());

    server.freeze();
    let lease = timeout(PATIENCE, permits.try_acquire()).await.unwrap();
    assert!(lease.unwrap().unwrap().is_local());
    assert!(redis.stats().timeouts >= 1);
    server.thaw();
}
