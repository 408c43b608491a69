//! Where a wake-up could be lost: the timer of the queue moves to another runtime, or its runtime ends, stands still or cannot
//! have timers.

use std::time::Duration;

use futures::poll;
use testkit::wakes::Driven;
use tokio::runtime::Builder;

use super::{Kind, block_on, is_any_timer_armed, runtime};
use crate::timed::ms;

claims! {
    bare:
    a_passed_over_head_is_woken_although_the_timer_has_moved_to_another_runtime: in_order,
    the_timeout_goes_on_when_its_task_and_the_second_waiter_end_together: in_order newest,
    permits_can_be_given_back_in_a_runtime_that_has_ended: in_order newest,
    permits_can_be_given_back_in_a_runtime_without_timers: in_order newest,
    a_waiter_that_has_moved_is_not_woken_by_a_timer_where_it_was: in_order,
}

claims! {
    paused:
    a_head_that_passes_early_leaves_no_timer_armed: in_order newest,
}

/// The runtime of the head stands still, as it does between two calls of `block_on`.
fn a_passed_over_head_is_woken_although_the_timer_has_moved_to_another_runtime<K: Kind>() {
    let limit = K::spaced(20);
    let (here, there) = (runtime(), runtime());
    assert!(limit.try_acquire());
    let mut first = limit.acquire();
    there.block_on(async { assert!(poll!(&mut first).is_pending()) });
    // The task of the timeout runs here.
    here.block_on(async { drop(limit.waiters(1)) });
    let mut head = Driven::new(limit.acquire());
    there.block_on(async { assert!(head.poll().is_pending()) });
    let others = [(); 2].map(|()| here.spawn(limit.acquire()));
    while limit.0.waiting() < 4 {
        here.block_on(tokio::task::yield_now());
    }

    there.block_on(first);
    for other in others {
        block_on(&here, other).unwrap();
    }
    block_on(&there, head.woken());
    block_on(&there, async {
        while head.poll().is_pending() {
            head.woken().await;
        }
    });
}

fn the_timeout_goes_on_when_its_task_and_the_second_waiter_end_together<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let (here, there) = (runtime(), runtime());
    let _idle = here.block_on(async { limit.waiters(1) });
    let starts_the_task = there.spawn(limit.acquire(1));
    there.block_on(tokio::task::yield_now());
    let _second = there.spawn(limit.acquire(1));
    there.block_on(tokio::task::yield_now());
    starts_the_task.abort();
    while limit.waiting() > 2 {
        there.block_on(tokio::task::yield_now());
    }
    let third = here.spawn(limit.acquire(1));
    here.block_on(tokio::task::yield_now());

    drop(there);
    drop(held);
    drop(block_on(&here, third).unwrap());
}

/// Where the waiter is does not concern the caller.
fn permits_can_be_given_back_in_a_runtime_that_has_ended<K: Kind>() {
    let limit = K::new(1, ms(100));
    let held = limit.try_acquire(1);
    let there = runtime();
    let waiters = there.block_on(async { limit.waiters(1) });
    let handle = there.handle().clone();
    drop(there);

    let _inside = handle.enter();
    drop(held);
    assert!(waiters[0].is_woken());
}

fn permits_can_be_given_back_in_a_runtime_without_timers<K: Kind>() {
    let limit = K::new(1, ms(100));
    let held = limit.try_acquire(1);
    let bare = Builder::new_current_thread().build().unwrap();
    bare.block_on(async {
        let waiters = limit.waiters(1);
        drop(held);
        assert!(waiters[0].is_woken(), "it says that it cannot sleep here");
    });
}

fn a_waiter_that_has_moved_is_not_woken_by_a_timer_where_it_was<K: Kind>() {
    let limit = K::new(1, ms(200));
    let (here, there) = (runtime(), runtime());
    drop(limit.try_acquire(1));
    let head = here.block_on(async { limit.waiters(1) });
    let mut waiters = there.block_on(async { limit.waiters(1) });
    limit.pause();
    drop(head);
    waiters[0].change_task();
    here.block_on(async { assert!(waiters[0].poll().is_pending()) });

    there.block_on(async { limit.resume(1) });
    block_on(&here, waiters[0].woken());
}

async fn a_head_that_passes_early_leaves_no_timer_armed<K: Kind>() {
    let limit = K::new(2, Duration::from_secs(3_600));
    let (one, _other) = (limit.try_acquire(1), limit.try_acquire(1));
    let mut waiters = limit.waiters(1);
    drop(one);
    limit.resize(3);
    assert!(waiters[0].is_woken());
    let _grant = waiters[0].poll();
    let wakes = waiters[0].wakes();
    assert!(!is_any_timer_armed().await);
    assert_eq!(waiters[0].wakes(), wakes);
}
