use crate::servers::Cut;

use super::*;

/// Whether the server would grant the lease to another holder.
async fn has_ended(server: &Server) -> bool {
    alive(server).await == 0
}

#[tokio::test]
async fn the_lease_of_a_dead_holder_expires_and_another_gets_in() {
    let server = Server::start().await;
    let url = server.url();
    let gone = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let lease = runtime.block_on(async { taken(&permits(&steady(&url), 1, STEADY)).await });
        // All tasks end before the lease can be released.
        runtime.shutdown_background();
        std::mem::forget(lease);
    });
    gone.join().unwrap();
    let permits = permits(&steady(&server.url()), 1, STEADY);
    let (_, end) = members(&server).await.remove(0);

    let lease = taken(&permits).await;
    assert!(server.time_us().await >= end);
    assert!(!lease.is_lost());
}

#[tokio::test]
async fn one_lease_expires_while_others_are_renewed() {
    let (server, relay) = relayed().await;
    let here = permits(&steady(&relay.url()), 2, STEADY);
    let there = permits(&steady(&server.url()), 2, STEADY);
    let lost = taken(&here).await;
    let kept = taken(&there).await;
    assert!(there.try_acquire().await.unwrap().is_none());

    relay.cut(Cut::BlackHole).await;
    let _next = taken(&there).await;
    assert!(lost.is_lost());
    assert!(!kept.is_lost());
    assert_eq!(members(&server).await.len(), 2);
}

#[tokio::test]
async fn a_holder_that_is_cut_off_knows_before_another_holder_gets_in() {
    let (server, relay) = relayed().await;
    let here = permits(&steady(&relay.url()), 1, STEADY);
    let there = permits(&steady(&server.url()), 1, STEADY);
    let lease = taken(&here).await;

    relay.cut(Cut::BlackHole).await;
    let other = taken(&there).await;
    assert!(lease.is_lost());
    timeout(PATIENCE, lease.lost()).await.unwrap();
    assert!(!other.is_lost());

    // Later replies do not change that, and take nothing from the new holder.
    relay.mend().await;
    until("it is up again", async || here.in_use().await.is_ok()).await;
    assert!(lease.is_lost());
    drop(lease);
    until("it has been tried", async || here.in_use().await.is_ok()).await;
    assert_eq!(alive(&server).await, 1);
    assert!(!other.is_lost());
}

/// The answer arrives a quarter of a second after the grant. The lease counts from the request.
#[tokio::test]
async fn a_holder_with_late_answers_knows_before_the_server_forgets() {
    let (server, relay) = relayed().await;
    let redis = process_with(
        &relay.url(),
        OutagePolicy::closed(),
        Duration::from_millis(500),
    );
    redis.connect().await.unwrap();
    relay.delay_replies(Duration::from_millis(250)).await;
    let lease = taken(&permits(&redis, 1, Duration::from_secs(2))).await;
    relay.cut(Cut::BlackHole).await;

    until("the server forgets", async || {
        let forgets = has_ended(&server).await;
        assert!(!forgets || lease.is_lost());
        forgets
    })
    .await;
}

#[tokio::test]
async fn a_holder_of_a_renewed_lease_knows_before_the_server_forgets() {
    let (server, relay) = relayed().await;
    let redis = process_with(
        &relay.url(),
        OutagePolicy::closed(),
        Duration::from_millis(500),
    );
    let lease = taken(&permits(&redis, 1, Duration::from_secs(2))).await;
    let granted = members(&server).await;
    relay.delay_replies(Duration::from_millis(250)).await;
    until("it is renewed", async || members(&server).await != granted).await;
    // Long enough for the delayed reply to arrive.
    sleep(Duration::from_millis(300)).await;
    relay.cut(Cut::BlackHole).await;

    until("the server forgets", async || {
        let forgets = has_ended(&server).await;
        assert!(!forgets || lease.is_lost());
        forgets
    })
    .await;
}

#[tokio::test]
async fn when_the_server_is_frozen_holders_know_that_their_leases_are_lost() {
    let mut server = Server::start().await;
    let redis = hasty(&server.url());
    let permits = permits(&redis, 2, SHORT);
    let lease = taken(&permits).await;
    let heard = tokio::spawn(async move { lease.lost().await });

    server.freeze();
    timeout(PATIENCE, heard).await.unwrap().unwrap();
    // No call waits for the frozen server.
    assert!(permits.try_acquire().await.unwrap().is_none());
    server.thaw();
    assert_eq!(redis.stats().lost_leases, 1);
}

#[tokio::test]
async fn a_lease_that_redis_forgot_is_lost_at_the_next_renewal() {
    let server = Server::start().await;
    let redis = hasty(&server.url());
    let permits = permits(&redis, 1, Duration::from_secs(3));
    let lease = taken(&permits).await;

    server.flush_all().await;
    assert!(!lease.is_lost());
    timeout(PATIENCE, lease.lost()).await.unwrap();
    assert!(lease.is_lost());
    assert_eq!(members(&server).await.len(), 0);
    assert_eq!(redis.stats().lost_leases, 1);

    // Releasing the lost lease does not affect the other holder.
    let other = taken(&permits).await;
    lease.release().await.unwrap();
    assert_eq!(alive(&server).await, 1);
    assert!(!other.is_lost());
}

#[tokio::test]
async fn a_lease_that_expired_in_redis_is_not_renewed() {
    let server = Server::start().await;
    let redis = hasty(&server.url());
    let permits = permits(&redis, 1, Duration::from_secs(3));
    let lease = taken(&permits).await;
    let (id, _) = members(&server).await.remove(0);

    let past = (server.time_us().await - 1).to_string();
    server.cli::<()>(&["ZADD", KEY, &past, &id]).await;
    timeout(PATIENCE, lease.lost()).await.unwrap();
    assert_eq!(members(&server).await.len(), 0);
}

#[tokio::test]
async fn after_a_server_restart_holders_hear_that_their_leases_are_lost() {
    let mut server = Server::start().await;
    let permits = permits(&hasty(&server.url()), 1, LONG);
    let lease = taken(&permits).await;

    server.kill();
    // Only this call notices the outage: no renewal is due for minutes.
    until("it is down", async || {
        permits
            .in_use()
            .await
            .is_err_and(|error| error.is_skipped())
    })
    .await;
    server.start_again().await;

    timeout(PATIENCE, lease.lost()).await.unwrap();
}

/// The task that renews, and the connection, run in the runtime of the first request.
#[tokio::test]
async fn a_lease_outlives_the_runtime_that_renewed_it_if_its_holder_waits_for_its_loss() {
    let server = Server::start().await;
    let url = server.url();
    let (send, lease) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.spawn(async move {
        let lease = taken(&permits(&steady(&url), 1, STEADY)).await;
        drop(send.send(lease));
    });
    let lease = lease.await.unwrap();
    let listening = tokio::spawn(async move {
        lease.lost().await;
    });
    tokio::task::yield_now().await;

    runtime.shutdown_background();
    sleep(STEADY * 2).await;
    assert!(!listening.is_finished());
    assert_eq!(alive(&server).await, 1);
}

#[tokio::test]
async fn a_renewed_lease_is_not_lost() {
    let server = Server::start().await;
    let permits = permits(&steady(&server.url()), 1, STEADY);
    let lease = taken(&permits).await;

    assert!(timeout(STEADY * 2, lease.lost()).await.is_err());
    assert_eq!(alive(&server).await, 1);
}
