//! Classes of requests, of which one waits less than another.
#![expect(
    clippy::disallowed_methods,
    reason = "tests measure on tokio's paused clock"
)]

use std::cell::RefCell;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, StreamExt, stream};
use paceline::concurrency::Permits;
use paceline::limiter::{Combined, Priority, Shared};
use paceline::policy::Interval;
use paceline::prelude::*;
use tokio::time::{Instant, sleep};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The order in which these requests pass, of which each comes after so many milliseconds, in this class.
async fn order(limit: &Shared<Interval>, requests: &[(u64, Priority)]) -> Vec<usize> {
    let passed = RefCell::new(Vec::new());
    let calls = requests.iter().enumerate().map(|(number, (at, priority))| {
        let handle = limit.clone().with_priority(*priority);
        let passed = &passed;
        async move {
            sleep(ms(*at)).await;
            handle.acquire_one().await;
            passed.borrow_mut().push(number);
        }
    });
    join_all(calls).await;
    passed.into_inner()
}

use Priority::{High, Low, Normal};

/// A limit that was used now.
async fn used(interval: Duration) -> Shared<Interval> {
    let limit = Interval::every(interval).shared();
    limit.acquire_one().await;
    limit
}

#[tokio::test(start_paused = true)]
async fn a_class_above_passes_before_those_below_and_each_in_the_order_of_arrival() {
    let limit = used(ms(100)).await;
    let requests = [Low, Normal, High, Low, Normal, High].map(|class| (0, class));
    assert_eq!(order(&limit, &requests).await, [2, 5, 1, 4, 0, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_long_enough_passes_before_a_newer_one_of_a_class_above() {
    let limit = used(ms(1_000)).await.with_ageing(ms(100));
    // Of two that differ by exactly the ageing the older one is first.
    let requests = [
        (0, Low),
        (99, Normal),
        (101, Normal),
        (199, High),
        (200, High),
        (201, High),
    ];
    assert_eq!(order(&limit, &requests).await, [1, 3, 0, 4, 2, 5]);
}

#[tokio::test(start_paused = true)]
async fn no_request_starves_in_a_flood_of_a_class_above() {
    let limit = used(ms(10)).await.with_ageing(ms(500));
    let low = limit.clone().with_priority(Low);
    let start = Instant::now();
    let flood = tokio::spawn({
        let limit = limit.clone().with_priority(High);
        async move {
            let calls = stream::iter(0..1_000).map(|_| limit.acquire_one());
            calls.buffer_unordered(50).count().await
        }
    });
    tokio::task::yield_now().await;
    low.acquire_one().await;
    // It stands before every request that comes a second after it.
    let waited = start.elapsed();
    assert!((ms(1_000)..ms(1_600)).contains(&waited), "{waited:?}");
    assert_eq!(flood.await.unwrap(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn an_urgent_request_takes_the_next_slot_and_costs_no_other_one() {
    let limit = used(ms(100)).await;
    let urgent = limit.clone().with_priority(High);
    let start = Instant::now();
    let at = |call: BoxFuture<'static, ()>| async move {
        call.await;
        start.elapsed().as_millis()
    };
    let calls = (0..3)
        .map(|_| at(limit.acquire_one().boxed()))
        .collect::<Vec<_>>();
    let late = async {
        sleep(ms(50)).await;
        at(urgent.acquire_one().boxed()).await
    };
    let (waited, late) = futures::join!(join_all(calls), late);
    assert_eq!((late, waited), (100, vec![200, 300, 400]));
}

#[tokio::test(start_paused = true)]
async fn a_try_overtakes_no_class_and_a_deadline_does_not_refuse_what_would_be_in_time() {
    let limit = used(ms(100)).await;
    let urgent = limit.clone().with_priority(High);
    let waiting = [(); 3].map(|()| tokio::spawn(limit.acquire_one()));
    sleep(ms(1)).await;
    assert!(!urgent.try_acquire(1).is_pass());
    let start = Instant::now();
    urgent.acquire_within(1, ms(99)).await.unwrap();
    assert_eq!(start.elapsed(), ms(99));
    for one in waiting {
        one.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_urgent_request_leaves_the_order_of_the_others() {
    let limit = used(ms(100)).await;
    let urgent = limit.clone().with_priority(High);
    let start = Instant::now();
    let first = tokio::spawn(limit.acquire_one());
    sleep(ms(10)).await;
    let mut cancelled = Box::pin(urgent.acquire_one());
    assert!(cancelled.as_mut().now_or_never().is_none());
    drop(cancelled);
    first.await.unwrap();
    assert_eq!(start.elapsed(), ms(100));
}

#[tokio::test(start_paused = true)]
async fn an_urgent_head_that_is_not_polled_is_passed_over() {
    let limit = used(ms(100)).await;
    let urgent = limit.clone().with_priority(High);
    let mut kept = Box::pin(urgent.acquire_one());
    assert!(kept.as_mut().now_or_never().is_none());
    let start = Instant::now();
    limit.acquire_one().await;
    let waited = start.elapsed();
    assert!(waited >= ms(110) && waited <= ms(112), "{waited:?}");
    kept.await;
    assert_eq!(start.elapsed(), waited + ms(100));
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_new_parameters_keep_the_order() {
    let limit = used(ms(100)).await;
    limit.pause_for(ms(1_000));
    let start = Instant::now();
    let retuned = async {
        sleep(ms(500)).await;
        limit.retune(Interval::every(ms(10)));
        limit.resume();
    };
    let requests = [(0, Low), (0, Normal), (100, High)];
    let (order, ()) = futures::join!(order(&limit, &requests), retuned);
    assert_eq!(order, [2, 1, 0]);
    assert_eq!(start.elapsed(), ms(520));
}

#[tokio::test(start_paused = true)]
async fn a_key_and_permits_have_classes_too() {
    let users = Interval::every(ms(100)).keyed::<u32>();
    let urgent = users.clone().with_priority(High);
    users.acquire_one(1).await;
    let start = Instant::now();
    let at = |call: BoxFuture<'static, ()>| async move {
        call.await;
        start.elapsed().as_millis()
    };
    let calls = [
        users.acquire_one(1),
        users.acquire_one(1),
        urgent.acquire_one(1),
    ];
    let at = join_all(calls.map(|call| at(call.boxed()))).await;
    assert_eq!(at, [200, 300, 100]);

    let permits = Permits::new(1);
    let held = permits.acquire().await;
    let passed = RefCell::new(Vec::new());
    let work = |number: u32, permits: Permits| {
        let passed = &passed;
        async move {
            let _permit = permits.acquire().await;
            passed.borrow_mut().push(number);
        }
    };
    let calls = [
        work(0, permits.clone()),
        work(1, permits.clone().with_priority(Low)),
        work(2, permits.clone().with_priority(High)),
        work(3, permits.clone().with_priority(Normal)),
    ];
    let released = async {
        sleep(ms(10)).await;
        drop(held);
    };
    futures::join!(join_all(calls), released);
    assert_eq!(*passed.borrow(), [2, 0, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn combined_requests_have_no_class_and_cannot_block_each_other() {
    // Requests for one of them have classes.
    let a = Interval::every(ms(10)).shared().with_priority(Normal);
    let b = Interval::every(ms(10)).shared().with_ageing(ms(7));
    let both = |count: usize| {
        let (a, b) = (a.clone(), b.clone());
        join_all((0..count).map(move |number| {
            let (a, b) = (a.clone(), b.clone());
            async move {
                if number % 2 == 0 {
                    Combined::new((a, b)).acquire(1).await.unwrap();
                } else {
                    Combined::new((b, a)).acquire(1).await.unwrap();
                }
            }
        }))
    };
    let start = Instant::now();
    both(60).await;
    assert_eq!(start.elapsed(), ms(590));

    let (urgent, late) = (a.clone().with_priority(High), b.clone().with_priority(Low));
    let one = |limit: Shared<Interval>| join_all((0..20).map(move |_| limit.acquire_one()));
    let start = Instant::now();
    futures::join!(both(40), one(urgent), one(late));
    // Those for both wait for the urgent ones at one limit, and those with time wait for them at the other one.
    assert_eq!(start.elapsed(), ms(800));
}

#[test]
fn a_combined_takes_no_handle_with_a_class_and_says_what_to_do() {
    let account = Interval::every(ms(10)).shared();
    let urgent = account.clone().with_priority(High);
    let users = Interval::every(ms(10)).keyed::<u32>().with_priority(Low);
    let message = |make: &dyn Fn() -> String| {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(make)).unwrap_err();
        panic.downcast_ref::<String>().expect("a message").clone()
    };
    let first = message(&|| format!("{:?}", Combined::new((urgent.clone(), users.at(1)))));
    assert_eq!(
        first,
        "limit 0 of a `Combined` has the class High: its requests have no class, since two of them could wait for each other; \
         hand it a handle with `Priority::Normal`, or ask a limit with a class alone"
    );
    let last = (account.clone(), account.clone(), users.at(1));
    let last = message(&|| format!("{:?}", Combined::new(last.clone())));
    assert!(last.starts_with("limit 2 of a `Combined` has the class Low"));

    let users = users.with_priority(Normal);
    let both = Combined::new((urgent.with_priority(Normal), users.at(1)));
    assert!(both.try_acquire_each([1, 1]).is_pass());
}

#[test]
#[should_panic(
    expected = "a class can be worth a year of waiting at most, got 31536000s and 31622400s"
)]
fn more_than_a_year_is_refused_with_both_values() {
    let limit = Interval::every(ms(1)).shared();
    let _ = limit.with_ageing(Duration::from_secs(366 * 86_400));
}
