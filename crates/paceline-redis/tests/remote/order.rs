//! The order of requests in one process.

use std::future::poll_fn;

use futures::future::join_all;
use testkit::clock::Stopwatch;
use tokio::task::JoinSet;

use super::server::Server;
use super::{Limit, MINUTE, WaitMode, ms, one, process, settle, wait_of};
use crate::remote::OutagePolicy;
use paceline::policy::{Decision, SlidingLog};

/// A limit of five a minute with two left.
async fn with_two_left(server: &Server<SlidingLog>) -> Limit<SlidingLog> {
    let process = process(server, OutagePolicy::closed()).await;
    let limit = process.limit(0, SlidingLog::new(5, MINUTE));
    limit.acquire(3).await.unwrap();
    limit
}

#[tokio::test(start_paused = true)]
async fn waiters_pass_in_the_order_in_which_they_joined() {
    let server = Server::start();
    server.world().reply_in = ms(1);
    let process = process(&server, OutagePolicy::closed()).await;
    let limit = process.limit(0, SlidingLog::new(3, ms(50)));
    let mut waiters = JoinSet::new();
    let watch = Stopwatch::start();
    for number in 0..30 {
        let limit = limit.clone();
        waiters.spawn(async move {
            limit.acquire(number % 3 + 1).await.unwrap();
            (watch.elapsed(), number)
        });
        settle().await;
    }
    let mut passed = waiters.join_all().await;
    passed.sort();
    let order: Vec<_> = passed.into_iter().map(|(_, number)| number).collect();
    assert_eq!(order, (0..30).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_cheaper_request_does_not_overtake() {
    let (_server, _process, limit) = one(OutagePolicy::closed(), SlidingLog::new(10, MINUTE)).await;
    let passed = join_all([4, 4, 4, 1, 2].map(|cost| limit.passes(cost))).await;
    assert_eq!(passed, [true, true, false, false, false]);
}

#[tokio::test(start_paused = true)]
async fn a_try_does_not_overtake_a_waiter() {
    let server = Server::start();
    let limit = with_two_left(&server).await;
    let waiter = limit.join(5);
    settle().await;
    let calls = server.world().calls.len();
    // The waiter's minute.
    assert_eq!(wait_of(limit.try_acquire(1).await), MINUTE);
    assert_eq!(server.world().calls.len(), calls);
    drop(waiter);
    assert!(limit.passes(2).await);
}

#[tokio::test(start_paused = true)]
async fn a_try_behind_a_waiter_under_way_may_retry_in_a_millisecond() {
    let server = Server::start();
    let limit = with_two_left(&server).await;
    server.world().reply_in = ms(10);
    let waiter = limit.join(2);
    settle().await;
    assert_eq!(wait_of(limit.try_acquire(1).await), ms(1));
    drop(waiter);
}

#[tokio::test(start_paused = true)]
async fn tries_during_a_call_are_sent_without_waiting_for_it() {
    let server = Server::start();
    let limit = with_two_left(&server).await;
    server.world().reply_in = ms(20);
    let tries = [0, 8].map(|later| {
        let limit = limit.clone();
        tokio::spawn(async move {
            super::sleep(ms(later)).await;
            let watch = Stopwatch::start();
            assert!(limit.passes(1).await);
            watch.elapsed()
        })
    });
    for (took, expected) in join_all(tries).await.into_iter().zip([20, 20]) {
        assert_eq!(took.unwrap(), ms(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_reduced_cost_does_not_wait_for_the_old_cost() {
    let server = Server::start();
    let limit = with_two_left(&server).await;
    let mut handle = limit.join(5);
    settle().await;
    let watch = Stopwatch::start();
    let answer = poll_fn(|cx| handle.poll_ask(1, WaitMode::Wait, cx)).await;
    assert_eq!((answer, watch.elapsed()), (Ok(Decision::Pass), ms(0)));
    assert_eq!(limit.take_all().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_turns_into_a_try_no_longer_blocks_others() {
    let server = Server::start();
    let limit = with_two_left(&server).await;
    let mut handle = limit.join(5);
    settle().await;
    let answer = poll_fn(|cx| handle.poll_ask(5, WaitMode::Try, cx)).await;
    assert_eq!(wait_of(answer), MINUTE);
    limit.acquire(1).await.unwrap();
    assert_eq!(limit.take_all().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_turns_into_a_try_behind_another_is_answered() {
    let server = Server::start();
    let limit = with_two_left(&server).await;
    let _first = limit.join(5);
    let mut second = limit.join(1);
    settle().await;
    let answer = poll_fn(|cx| second.poll_ask(1, WaitMode::Try, cx)).await;
    assert_eq!(wait_of(answer), MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_cached_for_its_cost_until_its_retry_time() {
    let server = Server::start();
    let limit = with_two_left(&server).await;
    assert_eq!(wait_of(limit.try_acquire(3).await), MINUTE);
    let calls = server.world().calls.len();
    super::sleep(ms(10_000)).await;
    for cost in [3, 4, 5] {
        let wait = wait_of(limit.try_acquire(cost).await);
        assert_eq!(wait, ms(50_000));
    }
    assert_eq!(server.world().calls.len(), calls);
    assert!(limit.passes(2).await, "a cheaper one may pass");
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_waits_and_is_not_polled_delays_others_by_its_permit_only() {
    let (_server, _process, limit) = one(OutagePolicy::closed(), SlidingLog::new(1, ms(50))).await;
    let _idle = limit.join(1);
    let watch = Stopwatch::start();
    for number in 1..=3 {
        limit.acquire(1).await.unwrap();
        assert_eq!(watch.elapsed(), ms(50) * number);
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_made_during_a_denied_call_is_denied_too() {
    let (server, _process, limit) = one(OutagePolicy::closed(), SlidingLog::new(1, MINUTE)).await;
    limit.acquire(1).await.unwrap();
    server.world().reply_in = ms(20);
    let tries = [0, 6].map(|later| {
        let limit = limit.clone();
        async move {
            super::sleep(ms(later)).await;
            wait_of(limit.try_acquire(1).await)
        }
    });
    for wait in join_all(tries).await {
        assert!(wait >= MINUTE.saturating_sub(ms(20)), "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_what_the_newest_reply_says() {
    let (server, _process, limit) = one(OutagePolicy::closed(), SlidingLog::new(9, MINUTE)).await;
    let left = || {
        limit.queue.with_queue(|queue| {
            let scarcest = queue.known.scarcest;
            scarcest.map(|_| queue.known.remaining)
        })
    };
    let tried = |cost| {
        let limit = limit.clone();
        tokio::spawn(async move { limit.passes(cost).await })
    };
    assert_eq!(left(), None);

    server.world().reply_in = ms(20);
    let first = tried(1);
    super::sleep(ms(5)).await;
    server.world().reply_in = ms(1);
    assert!(tried(2).await.unwrap());
    assert_eq!(left(), Some(6));
    assert!(first.await.unwrap());
    assert_eq!(left(), Some(6), "the reply to the first was older");
}
