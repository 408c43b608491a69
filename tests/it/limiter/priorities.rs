//! Classes of requests, of which one waits less than another.

use std::cell::RefCell;
use std::time::Duration;

use Priority::{High, Low, Normal};
use futures::future::join_all;
use futures::{FutureExt, StreamExt, stream};
use paceline::concurrency::Permits;
use paceline::limiter::{Combined, Priority, Shared};
use paceline::policy::Interval;
use paceline::prelude::*;

use super::{in_two_orders, queued, spawned, used};
use crate::timed::{ms, now, since, sleep};

/// The order in which these requests pass, of which each comes after so many milliseconds, in this class.
async fn order(limit: &Shared<Interval>, requests: &[(u64, Priority)]) -> Vec<usize> {
    let passed = RefCell::new(Vec::new());
    let calls = requests.iter().enumerate().map(|(number, (at, priority))| {
        let handle = limit.clone().with_priority(*priority);
        let passed = &passed;
        async move {
            sleep(*at).await;
            handle.acquire_one().await;
            passed.borrow_mut().push(number);
        }
    });
    join_all(calls).await;
    passed.into_inner()
}

#[tokio::test(start_paused = true)]
async fn a_class_above_passes_before_those_below_and_each_in_the_order_of_arrival() {
    let requests = [Low, Normal, High, Low, Normal, High].map(|class| (0, class));
    assert_eq!(order(&used(100), &requests).await, [2, 5, 1, 4, 0, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_long_enough_passes_before_a_newer_one_of_a_class_above() {
    let limit = used(1_000).with_ageing(ms(100));
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
    let limit = used(10).with_ageing(ms(500));
    let urgent = limit.clone().with_priority(High);
    let start = now();
    let flood = tokio::spawn(async move {
        let calls = stream::iter(0..1_000).map(|_| urgent.acquire_one());
        calls.buffer_unordered(50).count().await
    });
    tokio::task::yield_now().await;
    limit.with_priority(Low).acquire_one().await;
    // It stands before every request that comes a second after it.
    let waited = since(start);
    assert!((1_000..1_600).contains(&waited), "{waited:?}");
    assert_eq!(flood.await.unwrap(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_try_overtakes_no_class_and_a_deadline_does_not_refuse_what_would_be_in_time() {
    let limit = used(100);
    let urgent = limit.clone().with_priority(High);
    let passed = spawned([(); 3].map(|()| limit.acquire_owned(1)));
    sleep(1).await;
    assert!(!urgent.try_acquire(1).is_pass());
    let start = now();
    urgent.acquire_within(1, ms(99)).await.unwrap();
    assert_eq!(since(start), 99);
    assert_eq!(passed.await, [200, 300, 400]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_urgent_request_leaves_the_order_of_the_others() {
    let limit = used(100);
    let first = spawned([limit.acquire_owned(1)]);
    sleep(10).await;
    drop(queued(limit.clone().with_priority(High).acquire_one()));
    assert_eq!(first.await, [100]);
}

#[tokio::test(start_paused = true)]
async fn the_first_class_ends_newest_first_for_those_that_wait_too() {
    let limit = used(100).with_newest_first(ms(0));
    let passed = spawned([(); 3].map(|()| limit.acquire_within(1, ms(1_000))));
    sleep(150).await;
    let _urgent = limit.clone().with_priority(High);
    assert_eq!(passed.await, [200, 300, 100]);
}

#[tokio::test(start_paused = true)]
async fn an_urgent_head_that_is_not_polled_is_passed_over() {
    let limit = used(100);
    let urgent = limit.clone().with_priority(High);
    let kept = queued(urgent.acquire_one());
    let start = now();
    limit.acquire_one().await;
    let waited = since(start);
    assert!((110..=112).contains(&waited), "{waited:?}");
    kept.into_inner().await;
    assert_eq!(since(start), waited + 100);
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_new_parameters_keep_the_order() {
    let limit = used(100);
    limit.pause_for(ms(1_000));
    let start = now();
    let retuned = async {
        sleep(500).await;
        limit.retune(Interval::every(ms(10)));
        limit.resume();
    };
    let requests = [(0, Low), (0, Normal), (100, High)];
    let (order, ()) = futures::join!(order(&limit, &requests), retuned);
    assert_eq!(order, [2, 1, 0]);
    assert_eq!(since(start), 520);
}

#[tokio::test(start_paused = true)]
async fn a_key_and_permits_have_classes_too() {
    let users = Interval::every(ms(100)).keyed::<u32>();
    let urgent = users.clone().with_priority(High);
    users.acquire_one(1).await;
    let passed = spawned([&users, &users, &urgent].map(|users| users.acquire(1, 1)));
    assert_eq!(passed.await, [200, 300, 100]);

    let permits = Permits::new(1);
    let held = permits.acquire().await;
    let classes = [Normal, Low, High, Normal];
    let passed = RefCell::new(Vec::new());
    let passed = &passed;
    let calls = classes.into_iter().enumerate().map(|(number, class)| {
        let acquire = permits.clone().with_priority(class).acquire_owned();
        acquire.map(move |_permit| passed.borrow_mut().push(number))
    });
    let released = async {
        sleep(10).await;
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
    let both = |count| in_two_orders(count, a.clone(), b.clone());
    let start = now();
    both(60).await;
    assert_eq!(since(start), 590);

    let (urgent, late) = (a.clone().with_priority(High), b.clone().with_priority(Low));
    let one = |limit: Shared<Interval>| join_all((0..20).map(move |_| limit.acquire_owned(1)));
    let start = now();
    futures::join!(both(40), one(urgent), one(late));
    // Those for both wait for the urgent ones at one limit, and those with time wait for them at the other one.
    assert_eq!(since(start), 800);
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
    let total = message(&|| {
        let users = Interval::every(ms(1)).keyed::<u32>();
        format!("{:?}", users.with_total(urgent.clone()))
    });
    assert!(total.starts_with("the total has the class High"));
    let keys = message(&|| format!("{:?}", users.clone().with_total(account.clone())));
    assert!(keys.starts_with("the limit of each key has the class Low"));

    let users = users.with_priority(Normal);
    let both = Combined::new((urgent.with_priority(Normal), users.at(1)));
    assert!(both.try_acquire_each([1, 1]).is_pass());
}

#[test]
#[should_panic(expected = "a class is worth at most a year of waiting, 31536000s, got 31622400s")]
fn more_than_a_year_is_refused_with_both_values() {
    let limit = Interval::every(ms(1)).shared();
    let _ = limit.with_ageing(Duration::from_secs(366 * 86_400));
}
