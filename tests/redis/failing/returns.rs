use std::time::Duration;

use futures::FutureExt;
use paceline::policy::{Decision, SlidingLog, TokenBucket};
use paceline::redis::{OutagePolicy, Redis};
use paceline::time::{Clock, Rate};

use super::{hasty, redis, until_down, until_up};
use crate::limits::{MINUTE, PATIENT, Passed, counted_in, pause, wait_of};
use crate::servers::{Relay, Server};

/// How late a permit may be used after it was counted: the default deadline and 100 ms.
const LATE: Duration = Duration::from_millis(125);

#[tokio::test]
async fn over_the_end_of_an_outage_no_window_holds_more_than_the_limit() {
    let mut server = Server::start().await;
    let redis = hasty(&server.url(), OutagePolicy::insured(1)).await;
    let window = Duration::from_millis(400);
    let limit = redis.limit("a", SlidingLog::new(10, window)).unwrap();
    limit.acquire(1).await.unwrap();

    server.freeze();
    let mut passed = Passed::default();
    let mut clock = Clock::new();
    let began = clock.now();
    let mut is_frozen = true;
    while clock.now().since(began) < 5 * window {
        limit.acquire(1).await.unwrap();
        passed.note();
        if is_frozen && clock.now().since(began) > 3 * window {
            server.thaw();
            is_frozen = false;
        }
    }
    assert!(redis.stats().passed_alone >= 10, "{:?}", redis.stats());
    let most = passed.most_in(window.saturating_sub(LATE));
    assert!(most <= 10, "{most}: {passed:?}");
}

#[tokio::test]
async fn after_an_outage_the_bucket_lacks_what_insurances_may_have_passed() {
    let mut server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::insured(1)).await;
    let rate = Rate::new(1, Duration::from_millis(700));
    let limit = redis.limit("a", TokenBucket::new(rate, 3)).unwrap();
    limit.acquire(1).await.unwrap();

    server.freeze();
    while redis.is_up() {
        let _ = limit.try_acquire(1).await;
    }
    pause(Duration::from_millis(2_200)).await;
    for _ in 0..3 {
        assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    }
    server.thaw();
    until_up(&redis).await;
    let there = limit.try_acquire_up_to(3).await.unwrap();
    assert!(there <= 1, "{there}");
}

#[tokio::test]
async fn permits_of_the_outage_policy_are_not_given_back_to_redis() {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    let redis = redis(&relay.url(), OutagePolicy::open()).await;
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    limit.acquire(3).await.unwrap();

    let ended = || redis.stats().passed_alone + redis.stats().answered;
    for _ in 0..5 {
        // The connection of this call breaks; the next one works.
        relay.switch_to(server.address()).await;
        let before = ended();
        let mut asking = Box::pin(limit.acquire(1));
        assert!(asking.as_mut().now_or_never().is_none());
        while ended() == before {
            pause(Duration::from_millis(1)).await;
        }
        drop(asking);
        pause(Duration::from_millis(20)).await;
        until_up(&redis).await;
    }
    assert!(redis.stats().passed_alone > 0, "{:?}", redis.stats());
    // A reply that a busy machine reads too late adds more.
    let counted = counted_in(&server, &limit.keys()[0]).await;
    assert!(counted >= 3, "{counted}");
}

#[tokio::test]
async fn a_slow_first_connection_is_not_taken_for_a_restart() {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    pause(Duration::from_millis(2_500)).await;
    relay.delay_replies(Duration::from_millis(60)).await;
    let redis = Redis::open(&relay.url(), OutagePolicy::closed()).unwrap();
    let limit = redis.limit("a", SlidingLog::new(1_000, MINUTE)).unwrap();
    wait_of(limit.try_acquire(1).await);
    until_down(&redis).await;

    relay.delay_replies(Duration::ZERO).await;
    limit.acquire(1).await.unwrap();
    assert_eq!(redis.stats().lost_states, 0);
}

#[tokio::test]
async fn the_pauses_grow_for_a_server_that_accepts_connections_and_cannot_serve() {
    let server =
        Server::start_with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]).await;
    let redis = redis(&server.url(), OutagePolicy::insured(2)).await;
    let bucket = TokenBucket::new(Rate::new(1, Duration::from_millis(100)), 2);
    let limit = redis.limit("a", bucket).unwrap();

    let mut clock = Clock::new();
    let began = clock.now();
    // It takes a second. It would take more than 10 if each new connection started a new outage.
    for _ in 0..5 {
        limit.acquire(1).await.unwrap();
    }
    assert!(clock.now().since(began) >= Duration::from_secs(1));
    let stats = redis.stats();
    assert!(stats.passed_alone >= 5, "{stats:?}");
    assert!(stats.connects <= 20, "{stats:?}");

    server
        .cli::<()>(&["CONFIG", "SET", "maxmemory", "100mb"])
        .await;
    let answered = redis.stats().answered;
    while redis.stats().answered == answered {
        let _ = limit.try_acquire(1).await;
        pause(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_runtime_that_ends_while_connecting_does_not_block_the_next() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let servers = runtime();
    let server = servers.block_on(Server::start());
    for polls in 0..12 {
        let redis = Redis::open(&server.url(), OutagePolicy::closed()).unwrap();
        let redis = redis.with_deadline(PATIENT).unwrap();
        let limit = redis.limit("a", SlidingLog::new(100, MINUTE)).unwrap();
        runtime().block_on(async {
            let mut asking = Box::pin(limit.peek(1));
            for _ in 0..=polls {
                if futures::poll!(asking.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        });
        runtime().block_on(async {
            let asked = tokio::time::timeout(PATIENT * 2, limit.acquire(1)).await;
            asked.expect("somebody makes trips").unwrap();
            assert!(limit.peek(1).await.is_ok());
        });
    }
    drop(server);
}

#[test]
fn a_limit_continues_when_the_runtime_of_its_task_has_ended() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let lasting = runtime();
    let server = lasting.block_on(Server::start());
    let redis = Redis::open(&server.url(), OutagePolicy::closed()).unwrap();
    let window = Duration::from_millis(300);
    let limit = redis.limit("a", SlidingLog::new(1, window)).unwrap();

    let passing = runtime();
    let first = limit.clone();
    passing.block_on(async { while !first.try_acquire(1).await.unwrap().is_pass() {} });
    // The waiter starts the task in the runtime that ends.
    let first = limit.clone();
    passing.spawn(async move { first.acquire(1).await });
    std::thread::sleep(Duration::from_millis(20));
    let second = lasting.spawn(async move { limit.acquire(1).await });
    std::thread::sleep(Duration::from_millis(20));
    drop(passing);
    lasting.block_on(second).unwrap().unwrap();
}

#[test]
fn a_blocked_runtime_delays_another_by_at_most_the_deadline() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (still, running) = (runtime(), runtime());
    let server = running.block_on(Server::start());
    let redis = Redis::open(&server.url(), OutagePolicy::closed()).unwrap();
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    running.block_on(until_up(&redis));

    // The task was started in a runtime that does not run.
    let mut asking = Box::pin(limit.try_acquire(1));
    still.block_on(async { assert!(futures::poll!(asking.as_mut()).is_pending()) });
    running.block_on(async {
        let asked = tokio::time::timeout(PATIENT, limit.try_acquire(1)).await;
        wait_of(asked.expect("there is a deadline"));
        let asked = tokio::time::timeout(PATIENT, limit.acquire_within(1, PATIENT / 20)).await;
        assert!(asked.expect("there is an end").unwrap_err().is_too_late());
    });
    // When that runtime runs again, the requests continue.
    let _ = still.block_on(asking).unwrap();
    still.block_on(limit.acquire(1)).unwrap();
    drop(server);
}

/// Tokio's paused clock does not wait for sockets, so whether a reply is in time is arbitrary.
#[test]
fn on_a_paused_clock_nothing_hangs() {
    let real = tokio::runtime::Runtime::new().unwrap();
    let server = real.block_on(Server::start());
    let paused = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let redis = Redis::open(&server.url(), OutagePolicy::open()).unwrap();
    let limit = redis.limit("a", SlidingLog::new(1_000, MINUTE)).unwrap();
    paused.block_on(async {
        for _ in 0..100 {
            assert!(limit.try_acquire(1).await.is_ok());
        }
    });
    drop((paused, server));
}
