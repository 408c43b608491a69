//! While the queue has not been empty for a time, its newest waiter is first.

use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::wakes::Driven;

use super::{Kind, PermitLimit, SharedLimit};
use crate::timed::{ms, now, since, sleep};

const AFTER: u64 = 100;

fn shared(permits: u32) -> SharedLimit<false> {
    SharedLimit::of(permits).newest_first(ms(AFTER))
}

fn pool(permits: u32) -> PermitLimit<false> {
    PermitLimit::of(permits).newest_first(ms(AFTER))
}

/// Runs a claim for both kinds that have the option.
macro_rules! claims_for_both {
    ($($name:ident),+ $(,)?) => {
        mod limits {
            $(
                #[tokio::test(start_paused = true)]
                async fn $name() {
                    super::$name(super::shared).await;
                }
            )+
        }
        mod permits {
            $(
                #[tokio::test(start_paused = true)]
                async fn $name() {
                    super::$name(super::pool).await;
                }
            )+
        }
    };
}

claims_for_both! {
    the_order_of_arrival_holds_until_the_queue_was_not_empty_for_long_enough,
    an_idle_newest_waiter_is_passed_over_and_is_first_again_when_it_asks,
    a_woken_waiter_that_is_overtaken_is_not_passed_over,
    after_a_pause_the_newest_waiters_are_first,
}

async fn the_order_of_arrival_holds_until_the_queue_was_not_empty_for_long_enough<K: Kind>(
    new: fn(u32) -> K,
) {
    let limit = new(1);
    let held = limit.try_acquire(1);
    let mut waiters = limit.waiters(4);
    jump(ms(AFTER - 1)).await;
    drop(held);
    assert!(waiters[0].is_woken());
    let first = waiters[0].poll();

    jump(ms(1)).await;
    drop(first);
    assert!(waiters[3].is_woken(), "the newest");
    assert!(!waiters[1].is_woken() && !waiters[2].is_woken());
    let newest = waiters[3].poll();
    assert!(newest.is_ready());
    drop(newest);
    assert!(waiters[2].is_woken() && !waiters[1].is_woken());
    assert!(waiters[1].poll().is_pending());
    drop(waiters[2].poll());
    assert!(waiters[1].is_woken());
    assert!(waiters[1].poll().is_ready());
    assert_eq!(limit.waiting(), 0);
}

async fn an_idle_newest_waiter_is_passed_over_and_is_first_again_when_it_asks<K: Kind>(
    new: fn(u32) -> K,
) {
    let start = now();
    let limit = new(1);
    let held = limit.try_acquire(1);
    let oldest = limit.waiters(1);
    let older = tokio::spawn(limit.acquire(1));
    sleep(AFTER).await;
    let mut idle = limit.waiters(1);
    drop(held);
    let grant = older.await.unwrap();
    assert_eq!(since(start), AFTER + 10);

    let mut waiters = limit.waiters(1);
    assert!(idle[0].poll().is_pending());
    drop(grant);
    assert!(waiters[0].is_woken(), "it is newer");
    drop(waiters.remove(0));
    let grant = idle[0].poll();
    assert!(grant.is_ready() && !oldest[0].is_woken());
}

/// It finds nothing when it asks, and its timeout begins when there is something again.
async fn a_woken_waiter_that_is_overtaken_is_not_passed_over<K: Kind>(new: fn(u32) -> K) {
    let limit = new(1);
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

async fn after_a_pause_the_newest_waiters_are_first<K: Kind>(new: fn(u32) -> K) {
    let limit = new(2);
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
    let _ahead: Vec<_> = (0..5).map(|_| tokio::spawn(limit.acquire_one())).collect();
    tokio::task::yield_now().await;

    let refused = limit.acquire_within(1, ms(249)).await.unwrap_err();
    assert_eq!((refused.retry_in(), since(start)), (Some(ms(250)), 0));
    let in_time = tokio::spawn(limit.acquire_within(1, ms(310)));
    sleep(260).await;
    assert_eq!(limit.peek(1).retry_in(), Some(ms(40)), "before all others");
    assert!(in_time.await.unwrap().is_ok());
    assert_eq!(since(start), 300);
}

#[tokio::test(start_paused = true)]
async fn a_window_bound_holds_whatever_the_order() {
    let start = now();
    let limit = TokenBucket::new(Rate::per_second(100), 5).shared();
    let limit = limit.with_newest_first(ms(20));
    let mut tasks = Vec::new();
    for n in 0..200_u64 {
        tasks.push(tokio::spawn({
            let request = limit.acquire(1 + u32::try_from(n % 3).unwrap());
            async move {
                request.await.unwrap();
                (since(start), 1 + n % 3)
            }
        }));
        sleep(2).await;
    }
    let mut passed = Vec::new();
    for task in tasks {
        passed.push(task.await.unwrap());
    }
    passed.sort_unstable();
    for (index, (from, _)) in passed.iter().enumerate() {
        let mut sum = 0;
        for (at, cost) in &passed[index..] {
            sum += cost;
            assert!(sum <= 5 + (at - from) / 10, "{from} to {at}: {sum}");
        }
    }
}
