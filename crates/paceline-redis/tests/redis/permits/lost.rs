use crate::servers::Cut;

use super::*;

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
async fn a_holder_that_is_cut_off_knows_before_another_holder_gets_in_and_others_keep_their_leases()
{
    let (server, relay) = relayed().await;
    let redis = steady(&relay.url());
    let here = permits(&redis, 2, STEADY);
    let there = permits(&steady(&server.url()), 2, STEADY);
    let lost = taken(&here).await;
    let kept = taken(&there).await;
    none_is_free(there.try_acquire().await);

    relay.cut(Cut::BlackHole).await;
    let other = taken(&there).await;
    assert!(lost.is_lost());
    timeout(PATIENCE, lost.lost()).await.unwrap();
    assert!(!kept.is_lost() && !other.is_lost());
    assert_eq!(members(&server).await.len(), 2);
    // No call waits for a server that does not answer.
    none_is_free(here.try_acquire().await);
    until("it is counted", async || redis.stats().lost_leases == 1).await;

    // Later replies do not change that, and take nothing from the new holder.
    relay.mend().await;
    until("it is up again", async || here.in_use().await.is_ok()).await;
    assert!(lost.is_lost());
    drop(lost);
    until("it has been tried", async || here.in_use().await.is_ok()).await;
    assert_eq!(alive(&server).await, 2);
    assert!(!kept.is_lost() && !other.is_lost());
}

/// Answers arrive a quarter of a second after a grant, or after a renewal. The lease counts from the request.
#[tokio::test]
async fn a_holder_with_late_answers_knows_before_the_server_forgets() {
    for is_renewed in [false, true] {
        let (server, relay) = relayed().await;
        let redis = hasty(&relay.url());
        redis.connect().await.unwrap();
        let late = Duration::from_millis(250);
        if !is_renewed {
            relay.delay_replies(late).await;
        }
        let lease = taken(&permits(&redis, 1, SHORT)).await;
        if is_renewed {
            let granted = members(&server).await;
            relay.delay_replies(late).await;
            until("it is renewed", async || members(&server).await != granted).await;
            // Long enough for the delayed reply to arrive.
            sleep(Duration::from_millis(300)).await;
        }
        relay.cut(Cut::BlackHole).await;

        until("the server forgets", async || {
            let forgets = alive(&server).await == 0;
            assert!(!forgets || lease.is_lost(), "renewed: {is_renewed}");
            forgets
        })
        .await;
    }
}

#[tokio::test]
async fn a_lease_that_redis_forgot_or_that_expired_there_is_lost_at_the_next_renewal() {
    for is_forgotten in [true, false] {
        let server = Server::start().await;
        let redis = hasty(&server.url());
        let permits = permits(&redis, 1, STEADY);
        let lease = taken(&permits).await;

        if is_forgotten {
            server.flush_all().await;
        } else {
            let (id, _) = members(&server).await.remove(0);
            let past = (server.time_us().await - 1).to_string();
            server.cli::<()>(&["ZADD", KEY, &past, &id]).await;
        }
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
}

#[tokio::test]
async fn after_a_server_restart_holders_hear_that_their_leases_are_lost() {
    let mut server = Server::start().await;
    let permits = permits(&hasty(&server.url()), 1, LONG);
    let lease = taken(&permits).await;

    server.kill();
    // Only this call notices the outage: no renewal is due for minutes.
    until("it is down", async || {
        let asked = permits.in_use().await;
        asked.is_err_and(|error| error.is_skipped())
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
