use crate::servers::Cut;

use super::*;

/// Whether the server has forgotten it, or would let another in.
async fn has_ended(server: &Server) -> bool {
    alive(server).await == 0
}

#[tokio::test]
async fn a_holder_that_is_gone_without_a_word_lapses_and_another_gets_in() {
    let server = Server::start().await;
    let url = server.url();
    let gone = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let lease = runtime.block_on(async { taken(&permits(&steady(&url), 1, STEADY)).await });
        // With all tasks, before anybody can give it back.
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
async fn one_lapses_while_others_are_renewed() {
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
async fn a_holder_that_is_cut_off_knows_before_another_gets_in() {
    let (server, relay) = relayed().await;
    let here = permits(&steady(&relay.url()), 1, STEADY);
    let there = permits(&steady(&server.url()), 1, STEADY);
    let lease = taken(&here).await;

    relay.cut(Cut::BlackHole).await;
    let other = taken(&there).await;
    assert!(lease.is_lost());
    timeout(PATIENCE, lease.lost()).await.unwrap();
    assert!(!other.is_lost());

    // What is heard of it later changes nothing, and takes nothing from anybody.
    relay.mend().await;
    until("it is up again", async || here.in_use().await.is_ok()).await;
    assert!(lease.is_lost());
    drop(lease);
    until("it has been tried", async || here.in_use().await.is_ok()).await;
    assert_eq!(alive(&server).await, 1);
    assert!(!other.is_lost());
}

/// The answer comes a quarter of a second after the lease was granted: what counts is when it was asked for.
#[tokio::test]
async fn a_holder_whose_answers_are_late_knows_before_the_server_forgets() {
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
    // So late that the answer is heard.
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
async fn a_server_that_is_frozen_tells_nobody_and_all_know() {
    let mut server = Server::start().await;
    let redis = hasty(&server.url());
    let permits = permits(&redis, 2, SHORT);
    let lease = taken(&permits).await;
    let heard = tokio::spawn(async move { lease.lost().await });

    server.freeze();
    timeout(PATIENCE, heard).await.unwrap().unwrap();
    // No call waits for it.
    assert!(permits.try_acquire().await.unwrap().is_none());
    server.thaw();
    assert_eq!(redis.stats().lost_leases, 1);
}

#[tokio::test]
async fn what_redis_forgot_is_told_at_the_next_renewal_and_not_added_again() {
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

    // There is no harm in giving it back.
    let other = taken(&permits).await;
    lease.release().await.unwrap();
    assert_eq!(alive(&server).await, 1);
    assert!(!other.is_lost());
}

#[tokio::test]
async fn a_lease_that_lapsed_in_redis_is_not_renewed() {
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
async fn a_server_that_is_started_anew_has_forgotten_and_all_are_told() {
    let mut server = Server::start().await;
    let permits = permits(&hasty(&server.url()), 1, LONG);
    let lease = taken(&permits).await;

    server.kill();
    // So that it is noticed: nothing is to be renewed for minutes.
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

/// The task that renews, and the connection, run in the runtime in which it was asked for first.
#[tokio::test]
async fn a_lease_outlives_the_runtime_that_renewed_it_if_somebody_listens() {
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
async fn a_lease_that_is_well_is_not_lost() {
    let server = Server::start().await;
    let permits = permits(&steady(&server.url()), 1, STEADY);
    let lease = taken(&permits).await;

    assert!(timeout(STEADY * 2, lease.lost()).await.is_err());
    assert_eq!(alive(&server).await, 1);
}
