//! The order of requests in one process.

use super::*;

/// A limit of five a minute with two left.
async fn with_two_left() -> (Server<SlidingLog>, Limit<SlidingLog>) {
    let (server, _process, limit) = closed(SlidingLog::new(5, MINUTE)).await;
    limit.acquire(3).await.unwrap();
    (server, limit)
}

/// How long a request that does not wait takes to pass, if it comes so many milliseconds later.
fn trying(limit: &Limit<SlidingLog>, later: u64, cost: u32) -> JoinHandle<Duration> {
    let limit = limit.clone();
    tokio::spawn(async move {
        sleep(ms(later)).await;
        let watch = Stopwatch::start();
        assert!(limit.passes(cost).await);
        watch.elapsed()
    })
}

#[tokio::test(start_paused = true)]
async fn waiters_pass_in_the_order_in_which_they_joined() {
    let (_server, _process, limit) = distant(1, SlidingLog::new(3, ms(50))).await;
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
    assert!(passed.into_iter().map(|(_, number)| number).eq(0..30));
}

#[tokio::test(start_paused = true)]
async fn a_cheaper_waiter_does_not_overtake() {
    let (_server, _process, limit) = closed(SlidingLog::new(10, MINUTE)).await;
    let waiters = [4, 4, 4, 1, 2].map(|cost| acquiring(&limit, cost));
    let waited = join_all(waiters).await.into_iter().map(Result::unwrap);
    let minutes = [0, 0, 1, 1, 1].map(|minutes| MINUTE * minutes);
    assert!(waited.eq(minutes));
}

/// It is refused if a request that waits came before it.
#[tokio::test(start_paused = true)]
async fn a_cheaper_try_is_asked_again_after_the_refusal_of_a_dearer_one() {
    for (costs, passed, calls_made) in [
        (
            &[4, 4, 4, 1, 2][..],
            &[true, true, false, true, false][..],
            2,
        ),
        (&[3, 3, 3, 3, 1], &[true, true, true, false, true], 2),
        (
            &[9, 5, 4, 3, 2, 1, 1],
            &[true, false, false, false, false, true, false],
            5,
        ),
    ] {
        let (server, _process, limit) = closed(SlidingLog::new(10, MINUTE)).await;
        let tries = costs.iter().map(|cost| limit.passes(*cost));
        assert_eq!(join_all(tries).await, passed);
        assert_eq!(calls(&server), calls_made, "{costs:?}");
    }
    let (_server, _process, limit) = closed(SlidingLog::new(10, MINUTE)).await;
    let (first, dear, waited, behind) = tokio::join!(
        limit.passes(8),
        limit.passes(8),
        within(ms(50), limit.acquire(8)),
        limit.passes(1),
    );
    assert_eq!((first, dear, waited, behind), (true, false, None, false));
}

#[tokio::test(start_paused = true)]
async fn a_try_does_not_overtake_a_waiter() {
    let (server, limit) = with_two_left().await;
    let waiter = limit.join(5);
    settle().await;
    let before = calls(&server);
    // The waiter's minute.
    assert_eq!(wait_of(limit.try_acquire(1).await), MINUTE);
    assert_eq!(calls(&server), before);
    drop(waiter);
    assert!(limit.passes(2).await);
}

#[tokio::test(start_paused = true)]
async fn a_try_behind_a_waiter_under_way_may_retry_in_a_millisecond() {
    let (server, limit) = with_two_left().await;
    server.world().reply_in = ms(10);
    let _waiter = limit.join(2);
    settle().await;
    assert_eq!(wait_of(limit.try_acquire(1).await), ms(1));
}

#[tokio::test(start_paused = true)]
async fn tries_during_a_call_are_sent_without_waiting_for_it() {
    let (server, limit) = with_two_left().await;
    server.world().reply_in = ms(20);
    for trying in [0, 8].map(|later| trying(&limit, later, 1)) {
        assert_eq!(trying.await.unwrap(), ms(20));
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_reduces_its_cost_or_turns_into_a_try_is_answered_and_blocks_no_other() {
    let denied = Decision::Wait { retry_in: MINUTE };
    for (cost, mode, answer, left) in [
        (1, WaitMode::Wait, Decision::Pass, 0),
        (5, WaitMode::Try, denied, 1),
    ] {
        let (_server, limit) = with_two_left().await;
        let mut handle = limit.join(5);
        settle().await;
        let watch = Stopwatch::start();
        assert_eq!(handle.again(cost, mode).await, Ok(answer));
        limit.acquire(1).await.unwrap();
        assert_eq!((limit.take_all().await, watch.elapsed()), (Ok(left), ms(0)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_turns_into_a_try_behind_another_is_answered() {
    let (_server, limit) = with_two_left().await;
    let _first = limit.join(5);
    let mut second = limit.join(1);
    settle().await;
    assert_eq!(wait_of(second.again(1, WaitMode::Try).await), MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_cached_for_its_cost_until_its_retry_time() {
    let (server, limit) = with_two_left().await;
    assert_eq!(wait_of(limit.try_acquire(3).await), MINUTE);
    let before = calls(&server);
    sleep(ms(10_000)).await;
    for cost in [3, 4, 5] {
        assert_eq!(wait_of(limit.try_acquire(cost).await), ms(50_000));
    }
    assert_eq!(calls(&server), before);
    assert!(limit.passes(2).await, "a cheaper one may pass");
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_waits_and_is_not_polled_delays_others_by_its_permit_only() {
    let (_server, _process, limit) = closed(SlidingLog::new(1, ms(50))).await;
    let _idle = limit.join(1);
    assert_eq!(passed_at(&limit, &[1; 3]).await, [50, 100, 150].map(ms));
}

#[tokio::test(start_paused = true)]
async fn a_try_made_during_a_denied_call_is_denied_too() {
    let (server, _process, limit) = closed(SlidingLog::new(1, MINUTE)).await;
    limit.acquire(1).await.unwrap();
    server.world().reply_in = ms(20);
    let tries = [0, 6].map(|later| {
        let limit = limit.clone();
        async move {
            sleep(ms(later)).await;
            wait_of(limit.try_acquire(1).await)
        }
    });
    for wait in join_all(tries).await {
        assert!(wait >= MINUTE.saturating_sub(ms(20)), "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_what_the_newest_reply_says() {
    let (server, _process, limit) = distant(20, SlidingLog::new(9, MINUTE)).await;
    assert_eq!(limit.left(), None);
    let first = trying(&limit, 0, 1);
    sleep(ms(5)).await;
    server.world().reply_in = ms(1);
    assert!(limit.passes(2).await);
    assert_eq!(limit.left(), Some(6));
    first.await.unwrap();
    assert_eq!(limit.left(), Some(6), "the reply to the first was older");
}
