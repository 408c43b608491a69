//! A head that is not polled within 10 ms after its permits were due is passed over, and keeps its position.

use std::thread;

use futures::poll;
use testkit::clock::jump;
use tokio::runtime::Handle;
use tokio::task::yield_now;

use super::{Kind, block_on, is_any_timer_armed, runtime_with_threads};
use crate::timed::{ms, now, since, sleep};

claims! {
    bare:
    outside_a_runtime_an_idle_head_is_waited_for: in_order,
    one_waiter_in_a_runtime_is_enough_for_the_timeout: in_order newest,
    idle_and_eager_requests_all_pass: in_order newest,
}

claims! {
    paused:
    an_idle_head_does_not_starve_the_waiters_behind_it: in_order fair,
    an_idle_head_does_not_starve_waiters_for_permits_that_return_by_time: in_order,
    several_idle_heads_are_passed_over_one_after_the_other: in_order fair,
    a_woken_waiter_that_finds_nothing_waits_again_with_the_whole_timeout: in_order,
    returns_of_other_permits_do_not_restart_the_timeout: in_order,
    during_a_pause_no_head_is_passed_over: in_order,
    no_head_is_passed_over_because_the_whole_runtime_is_late: in_order newest,
    a_passed_over_head_that_leaves_changes_nothing: in_order newest fair,
    no_timer_is_armed_before_permits_are_due: in_order newest,
    the_task_of_the_timeout_ends_with_the_waiters_and_with_the_queue: in_order newest,
}

async fn an_idle_head_does_not_starve_the_waiters_behind_it<K: Kind>() {
    let start = now();
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let idle = limit.waiters(1);
    let behind = tokio::spawn(limit.acquire(1));
    sleep(100).await;

    drop(held);
    drop(behind.await.unwrap());
    assert_eq!(since(start), 110, "its permit was due at 100");
    drop(limit.acquire(1).await);
    assert_eq!(since(start), 110, "the timeout is waited for once");
    assert_eq!(limit.waiting(), 1);
    drop(idle);
}

async fn an_idle_head_does_not_starve_waiters_for_permits_that_return_by_time<K: Kind>() {
    let start = now();
    let limit = K::spaced(100);
    assert!(limit.try_acquire());
    let _idle = limit.waiters(1);
    limit.acquire().await;
    assert_eq!(since(start), 110);
    limit.acquire().await;
    assert_eq!(since(start), 210);
}

async fn several_idle_heads_are_passed_over_one_after_the_other<K: Kind>() {
    let start = now();
    let limit = K::spaced(100);
    assert!(limit.try_acquire());
    let idle = limit.waiters(5);
    limit.acquire().await;
    assert_eq!(since(start), 100 + 5 * 10);
    assert_eq!(limit.0.waiting(), 5);
    drop(idle);
}

async fn a_woken_waiter_that_finds_nothing_waits_again_with_the_whole_timeout<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let mut idle = limit.waiters(1);
    let mut first = limit.waiters(1);
    let mut second = limit.waiters(1);
    drop(held);
    sleep(11).await;
    let grant = idle[0].poll();
    assert!(grant.is_ready() && first[0].is_woken());

    assert!(first[0].poll().is_pending());
    sleep(1_000).await;
    assert!(!second[0].is_woken() && second[0].poll().is_pending());
    drop(grant);
    assert!(first[0].is_woken() && first[0].poll().is_ready());
}

async fn returns_of_other_permits_do_not_restart_the_timeout<K: Kind>() {
    let start = now();
    let limit = K::of(20);
    let mut held: Vec<_> = (0..20).map(|_| limit.try_acquire(1)).collect();
    let _idle = limit.waiters(1);
    let behind = tokio::spawn(limit.acquire(1));
    yield_now().await;
    let releases = tokio::spawn(async move {
        while held.pop().is_some() {
            sleep(1).await;
        }
    });
    drop(behind.await.unwrap());
    assert_eq!(since(start), 10);
    releases.await.unwrap();
}

async fn during_a_pause_no_head_is_passed_over<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let mut first = limit.waiters(1);
    let mut second = limit.waiters(1);
    drop(held);
    limit.pause();
    sleep(1_000).await;
    assert!(!second[0].is_woken());

    limit.resume(1);
    assert!(second[0].poll().is_pending());
    assert!(first[0].poll().is_ready());
}

async fn no_head_is_passed_over_because_the_whole_runtime_is_late<K: Kind>() {
    let limit = K::spaced(100);
    assert!(limit.try_acquire());
    let mut timed = limit.waiters(3);
    let pool = K::of(1);
    let held = pool.try_acquire(1);
    let mut waiters = pool.waiters(3);
    yield_now().await;
    drop(held);
    jump(ms(10_000)).await;

    assert!(timed[1].poll().is_pending());
    assert!(timed[0].poll().is_ready());
    assert!(waiters[1].poll().is_pending());
    assert!(waiters[0].poll().is_ready());
}

async fn a_passed_over_head_that_leaves_changes_nothing<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let idle = limit.waiters(1);
    let behind = tokio::spawn(limit.acquire(1));
    yield_now().await;
    drop(held);
    let grant = behind.await.unwrap();
    let mut next = limit.waiters(1);

    drop(idle);
    assert_eq!(limit.waiting(), 1);
    assert!(!next[0].is_woken());
    drop(grant);
    assert!(next[0].is_woken() && next[0].poll().is_ready());
}

async fn no_timer_is_armed_before_permits_are_due<K: Kind>() {
    let limit = K::of(1);
    let _held = limit.try_acquire(1);
    let _waiters = limit.waiters(2);
    assert!(!is_any_timer_armed().await);
}

async fn the_task_of_the_timeout_ends_with_the_waiters_and_with_the_queue<K: Kind>() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let one = limit.waiters(1);
    yield_now().await;
    assert_eq!(tasks(), 0, "no second waiter is queued");

    let mut more = limit.waiters(2);
    yield_now().await;
    assert_eq!(tasks(), 1);
    drop((one, held));
    let grant = more.remove(0).poll();
    assert!(grant.is_ready());
    drop(more);
    yield_now().await;
    assert_eq!(tasks(), 0);

    let more = limit.waiters(2);
    yield_now().await;
    assert_eq!(tasks(), 1);
    drop(more);
    yield_now().await;
    assert_eq!(tasks(), 0, "the permit is held and no waiter is queued");

    let more = limit.waiters(2);
    drop(grant);
    yield_now().await;
    assert_eq!(tasks(), 1);
    drop((more, limit));
    yield_now().await;
    assert_eq!(tasks(), 0, "the queue is gone within the timeout");
}

fn outside_a_runtime_an_idle_head_is_waited_for<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let mut idle = limit.waiters(1);
    let mut behind = limit.waiters(1);
    drop(held);
    thread::sleep(ms(30));
    assert_eq!((idle[0].wakes(), behind[0].wakes()), (1, 0));
    assert!(behind[0].poll().is_pending());
    assert!(idle[0].poll().is_ready());
    assert!(behind[0].is_woken());
}

fn one_waiter_in_a_runtime_is_enough_for_the_timeout<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let _idle = limit.waiters(2);
    let runtime = runtime_with_threads(1);
    let behind = runtime.spawn(limit.acquire(1));
    while limit.waiting() < 3 {
        thread::yield_now();
    }
    thread::spawn(move || drop(held)).join().unwrap();
    drop(block_on(&runtime, behind).unwrap());
}

/// On the real clock, in parallel.
fn idle_and_eager_requests_all_pass<K: Kind>() {
    let runtime = runtime_with_threads(4);
    let limit = K::of(2);
    let tasks: Vec<_> = (0..100_u32)
        .map(|n| {
            let limit = limit.clone();
            runtime.spawn(async move {
                for _ in 0..10 {
                    let mut request = limit.acquire(1 + n % 2);
                    let waits = poll!(&mut request).is_pending();
                    if waits && n % 50 == 0 {
                        sleep(12).await;
                    }
                    let grant = if waits { Some(request.await) } else { None };
                    yield_now().await;
                    drop(grant);
                }
            })
        })
        .collect();
    for task in block_on(&runtime, futures::future::join_all(tasks)) {
        task.unwrap();
    }
    assert_eq!(limit.waiting(), 0);
    assert!(limit.try_acquire(2).is_some());
}
