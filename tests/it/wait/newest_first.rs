//! While the queue has not been empty for a time, its newest waiter is first.

use paceline::policy::Interval;
use paceline::prelude::*;
use testkit::clock::jump;
use testkit::wakes::Driven;

use super::{Kind, OLDEST, PermitLimit, SharedLimit};
use crate::timed::{ms, now, since, sleep};

const AFTER: u64 = 100;

#[tokio::test(start_paused = true)]
async fn after_a_pause_the_newest_waiters_are_first() {
    let after = ms(AFTER);
    newest_are_first_after_a_pause(SharedLimit::<OLDEST>::of(2).newest_first(after)).await;
    newest_are_first_after_a_pause(PermitLimit::<OLDEST>::of(2).newest_first(after)).await;
}

async fn newest_are_first_after_a_pause<K: Kind>(limit: K) {
    let all = limit.try_acquire(2);
    let mut waiters = limit.waiters(3);
    limit.pause();
    sleep(10 * AFTER).await;
    drop(all);
    limit.resume(2);
    assert!(waiters[2].is_woken(), "the newest");
    let one = waiters[2].poll();
    let two = waiters[1].poll();
    assert!(one.is_ready() && two.is_ready());
    assert!(waiters[0].poll().is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_woken_waiter_that_is_overtaken_is_not_passed_over() {
    let after = ms(AFTER);
    overtaken_is_not_passed_over(SharedLimit::<OLDEST>::of(1).newest_first(after)).await;
    overtaken_is_not_passed_over(PermitLimit::<OLDEST>::of(1).newest_first(after)).await;
}

/// It finds nothing when it asks, and its timeout begins when there is something again.
async fn overtaken_is_not_passed_over<K: Kind>(limit: K) {
    let held = limit.try_acquire(1);
    let mut waiters = limit.waiters(2);
    sleep(AFTER).await;
    drop(held);
    assert!(waiters[1].is_woken());
    let newest = limit.try_acquire(1);
    assert!(newest.is_some());
    sleep(50).await;
    drop(newest);
    assert!(waiters[0].poll().is_pending());
    assert!(!waiters[0].is_woken());
    let start = now();
    waiters[0].woken().await;
    assert_eq!(since(start), 10, "after a permit was free");
}

/// The timer of the queue is armed for the newest alone, also when the clock is late. The first one had a timer of its own when it
/// was alone.
#[tokio::test(start_paused = true)]
async fn each_waiter_of_a_rate_is_woken_once_when_its_turn_comes() {
    let start = now();
    let limit = Interval::every(ms(10)).shared().with_newest_first(ms(0));
    limit.acquire_one().await;
    let mut waiters: Vec<_> = (0..20).map(|_| Driven::new(limit.acquire_one())).collect();
    for waiter in &mut waiters {
        assert!(waiter.poll().is_pending());
    }
    jump(ms(7)).await;
    for (n, waiter) in waiters.iter_mut().enumerate().rev() {
        waiter.woken().await;
        if n == 0 {
            assert!(waiter.poll().is_pending());
            waiter.woken().await;
        }
        let late = if n == 10 { 25 } else { 0 };
        jump(ms(late)).await;
        assert!(waiter.poll().is_ready(), "{n} at {}", since(start));
        assert_eq!(waiter.wakes(), if n == 0 { 2 } else { 1 }, "{n}");
    }
    assert_eq!(since(start), 200 + 25);
}

/// Before the overload the estimate counts the waiters ahead, but not beyond its beginning.
#[tokio::test(start_paused = true)]
async fn no_request_is_refused_at_once_that_could_pass_as_the_newest() {
    let start = now();
    let limit = Interval::every(ms(100)).shared().with_newest_first(ms(250));
    limit.acquire_one().await;
    let _ahead: Vec<_> = (0..5)
        .map(|_| tokio::spawn(limit.acquire_owned(1)))
        .collect();
    tokio::task::yield_now().await;

    let refused = limit.acquire_within(1, ms(249)).await.unwrap_err();
    assert_eq!((refused.retry_in(), since(start)), (Some(ms(250)), 0));
    let in_time = tokio::spawn(limit.acquire_within(1, ms(310)));
    sleep(260).await;
    assert_eq!(limit.peek(1).retry_in(), Some(ms(40)), "before all others");
    assert!(in_time.await.unwrap().is_ok());
    assert_eq!(since(start), 300);
}
