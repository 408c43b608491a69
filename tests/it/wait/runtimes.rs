//! Waiters in several runtimes, and runtimes that end under them. On the real clock: lower bounds and liveness only.

use futures::future::BoxFuture;
use futures::poll;
use testkit::wakes::Driven;
use tokio::runtime::{Builder, Runtime};

use super::{Kind, block_on, runtime, runtime_with_threads};

claims! {
    bare:
    the_next_waiter_is_served_in_its_own_runtime_when_the_runtime_of_the_head_ends: in_order,
    a_head_is_served_although_the_runtime_of_the_waiter_behind_has_ended: in_order newest,
    a_runtime_that_ends_wakes_the_head_for_which_its_timer_is_armed: in_order newest,
    a_runtime_shut_down_under_a_waiter_stops_no_other_waiter: in_order newest,
    the_timeout_goes_on_when_the_runtime_of_its_task_ends: in_order newest,
    the_timeout_goes_on_when_the_runtime_ends_before_its_task_has_run: in_order newest,
    where_the_task_of_the_timeout_cannot_start_no_waiter_is_woken: in_order newest,
    without_timers_in_a_runtime_an_idle_head_is_waited_for: in_order,
}

/// Two requests that have joined the queue in this order, each in its runtime. The first can pass after 20 ms.
fn joined<K: Kind>(runtimes: [&Runtime; 2]) -> [BoxFuture<'static, ()>; 2] {
    let limit = K::spaced(20);
    assert!(limit.try_acquire());
    runtimes.map(|runtime| {
        let mut request = limit.acquire();
        runtime.block_on(async { assert!(poll!(&mut request).is_pending()) });
        request
    })
}

fn the_next_waiter_is_served_in_its_own_runtime_when_the_runtime_of_the_head_ends<K: Kind>() {
    let (here, there) = (runtime(), runtime());
    let [first, second] = joined::<K>([&there, &here]);
    block_on(&there, first);
    drop(there);
    block_on(&here, second);
}

fn a_head_is_served_although_the_runtime_of_the_waiter_behind_has_ended<K: Kind>() {
    for head_leaves in [false, true] {
        let (here, there) = (runtime(), runtime());
        let [head, behind] = joined::<K>([&here, &there]);
        drop(there);
        if head_leaves {
            drop(head);
        } else {
            block_on(&here, head);
        }
        block_on(&here, behind);
    }
}

/// The next waiter has become the head there, and another task polls it.
fn a_runtime_that_ends_wakes_the_head_for_which_its_timer_is_armed<K: Kind>() {
    let limit = K::spaced(60_000);
    let (here, there) = (runtime(), runtime());
    assert!(limit.try_acquire());
    let mut waiters = there.block_on(async { limit.waiters(2) });
    there.block_on(async { drop(waiters.remove(0)) });
    assert!(!waiters[0].is_woken());
    drop(there);
    here.block_on(async {
        assert!(waiters[0].is_woken());
        assert!(waiters[0].poll().is_pending());
    });
}

fn a_runtime_shut_down_under_a_waiter_stops_no_other_waiter<K: Kind>() {
    let limit = K::spaced(50);
    assert!(limit.try_acquire());
    let here = runtime();
    let mut first = limit.acquire();
    here.block_on(async { assert!(poll!(&mut first).is_pending()) });

    let there = runtime_with_threads(1);
    let (handle, mut behind) = (there.handle().clone(), limit.acquire());
    let (joined, has_joined) = std::sync::mpsc::channel();
    let _blocked = there.spawn_blocking(move || {
        handle.block_on(async {
            assert!(poll!(&mut behind).is_pending());
            joined.send(()).unwrap();
            behind.await;
        });
    });
    has_joined.recv().unwrap();
    there.shutdown_background();
    block_on(&here, first);
}

fn the_timeout_goes_on_when_the_runtime_of_its_task_ends<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let (there, here) = (runtime_with_threads(1), runtime_with_threads(1));
    let _idle = limit.waiters(1);
    let entered = there.enter();
    let mut behind = limit.waiters(1);
    drop(entered);
    drop(there);
    assert!(behind[0].is_woken(), "it starts the task where it is");

    let entered = here.enter();
    assert!(behind[0].poll().is_pending());
    drop(entered);
    drop(held);
    block_on(&here, behind[0].woken());
    assert!(behind[0].poll().is_ready());
}

/// The second waiter has started the task, and has moved to another runtime since.
fn the_timeout_goes_on_when_the_runtime_ends_before_its_task_has_run<K: Kind>() {
    let limit = K::spaced(60_000);
    assert!(limit.try_acquire());
    let (here, there) = (runtime(), runtime());
    let _first = here.block_on(async { limit.waiters(1) });
    let mut second = Driven::new(limit.acquire());
    there.block_on(async { assert!(second.poll().is_pending()) });
    here.block_on(async { assert!(second.poll().is_pending()) });
    drop(there);
    assert_eq!(second.wakes(), 1);
}

/// A runtime that has ended drops every task before it runs.
fn where_the_task_of_the_timeout_cannot_start_no_waiter_is_woken<K: Kind>() {
    let limit = K::of(1);
    let _held = limit.try_acquire(1);
    let ended = runtime().handle().clone();
    let _inside = ended.enter();

    let mut waiters = limit.waiters(3);
    let wakes = |waiters: &[Driven<_>]| waiters.iter().map(Driven::wakes).sum::<usize>();
    assert_eq!(
        wakes(&waiters),
        0,
        "a woken waiter would start it in vain, again and again"
    );
    assert!(waiters[1].poll().is_pending());
    assert_eq!(wakes(&waiters), 0);
}

fn without_timers_in_a_runtime_an_idle_head_is_waited_for<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let bare = Builder::new_current_thread().build().unwrap();
    bare.block_on(async {
        let mut idle = limit.waiters(1);
        let mut behind = limit.waiters(1);
        drop(held);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(bare.metrics().num_alive_tasks(), 0);
        assert_eq!((idle[0].wakes(), behind[0].wakes()), (1, 0));
        assert!(idle[0].poll().is_ready());
        assert!(behind[0].is_woken() && behind[0].poll().is_ready());
    });
}
