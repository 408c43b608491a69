//! Somebody first in line who was woken and is not polled.

use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{StreamExt, poll, stream};
use paceline::concurrency::{AcquirePermit, Permits};
use paceline::prelude::*;
use testkit::clock::jump;
use testkit::wakes::Driven;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::yield_now;

use crate::timed::{ms, now, since, sleep};

const LONG: Duration = Duration::from_secs(20);

/// So many who wait, in order.
fn waiting(permits: &Permits, many: usize) -> Vec<Driven<AcquirePermit>> {
    let mut waiting: Vec<_> = (0..many).map(|_| Driven::new(permits.acquire())).collect();
    for one in &mut waiting {
        assert!(one.poll().is_pending());
    }
    waiting
}

#[tokio::test(start_paused = true)]
async fn an_idle_head_does_not_starve_those_behind_it() {
    let start = now();
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let idle = waiting(&permits, 1);
    let behind = tokio::spawn(permits.acquire());
    sleep(100).await;

    drop(held);
    drop(behind.await.unwrap());
    assert_eq!(
        since(start),
        110,
        "its turn was at 100, and then comes the patience"
    );
    drop(permits.acquire().await);
    assert_eq!(since(start), 110, "it is waited for once, not each time");
    assert_eq!(idle[0].wakes(), 1);
}

#[tokio::test(start_paused = true)]
async fn however_many_are_idle_one_behind_the_other() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let _idle = waiting(&permits, 5);
    let start = now();
    drop(held);
    drop(permits.acquire().await);
    assert_eq!(since(start), 5 * 10);
}

#[tokio::test(start_paused = true)]
async fn futures_that_nobody_polls_any_more_do_not_starve_the_others() {
    let permits = Permits::new(2);
    let held = permits.try_acquire_many(2);
    let mut some: FuturesUnordered<_> = (0..3).map(|_| permits.acquire()).collect();
    assert!(poll!(some.next()).is_pending());
    let start = now();
    drop(held);

    drop(permits.acquire().await);
    assert_eq!(since(start), 30);
    assert_eq!(some.by_ref().count().await, 3);
}

#[tokio::test(start_paused = true)]
async fn nor_does_a_stream_that_nobody_polls() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut calls = Box::pin(stream::iter([1]).concurrent(permits.clone(), std::future::ready));
    assert!(poll!(calls.next()).is_pending());
    let start = now();
    drop(held);

    drop(permits.acquire().await);
    assert_eq!(since(start), 10);
    assert_eq!(calls.next().await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn an_idle_head_keeps_its_place() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut idle = waiting(&permits, 1);
    let passed = tokio::spawn(permits.acquire());
    yield_now().await;
    drop(held);
    let passed = passed.await.unwrap();
    let mut behind = waiting(&permits, 1);

    assert!(idle[0].poll().is_pending(), "the permit is gone");
    drop(passed);
    assert!(idle[0].is_woken() && !behind[0].is_woken());
    assert!(
        behind[0].poll().is_pending(),
        "and the next one is not its own"
    );
    assert!(idle[0].poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn an_idle_head_takes_what_is_free_when_it_is_polled_at_last() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut idle = waiting(&permits, 1);
    let mut behind = waiting(&permits, 1);
    drop(held);
    sleep(11).await;

    assert!(behind[0].is_woken());
    assert!(idle[0].poll().is_ready(), "before the one who was woken");
    assert!(behind[0].poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_more_permits_than_are_free_is_not_overtaken() {
    let start = now();
    let permits = Permits::new(3);
    let mut held: Vec<_> = (0..3).map(|_| permits.try_acquire()).collect();
    let many = permits.acquire_many(3);
    let many = tokio::spawn(async move { (since(start), many.await.unwrap()).0 });
    yield_now().await;
    let mut behind = waiting(&permits, 2);

    for _ in 0..3 {
        sleep(1_000).await;
        assert!(behind.iter_mut().all(|one| one.poll().is_pending()));
        held.pop();
    }
    many.await.unwrap();
    assert!(behind.iter().all(|one| one.wakes() <= 1));
    assert_eq!(since(start), 3_000);
}

#[tokio::test(start_paused = true)]
async fn who_was_woken_and_found_nothing_waits_again_with_all_patience() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut idle = waiting(&permits, 1);
    let mut first = waiting(&permits, 1);
    let mut second = waiting(&permits, 1);
    drop(held);
    sleep(11).await;
    let taken = idle[0].poll();
    assert!(taken.is_ready() && first[0].is_woken());

    assert!(first[0].poll().is_pending(), "it was not idle");
    sleep(1_000).await;
    assert!(!second[0].is_woken() && second[0].poll().is_pending());
    drop(taken);
    assert!(first[0].is_woken() && first[0].poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn the_patience_begins_when_a_permit_has_cooled_down() {
    let start = now();
    let permits = Permits::new(1).with_cooldown(ms(100));
    drop(permits.try_acquire());
    let _idle = waiting(&permits, 1);
    drop(permits.acquire().await);
    assert_eq!(since(start), 110);
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_nobodys_turn() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut first = waiting(&permits, 1);
    let mut second = waiting(&permits, 1);
    drop(held);
    permits.resize(0);
    sleep(1_000).await;
    assert!(!second[0].is_woken());

    permits.resize(1);
    assert!(second[0].poll().is_pending());
    assert!(first[0].poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn nor_does_one_who_does_not_hear_that_there_will_never_be_so_many() {
    let permits = Permits::new(2);
    let held = permits.try_acquire_many(2);
    let mut dear = Driven::new(permits.acquire_many(2));
    assert!(dear.poll().is_pending());
    let behind = tokio::spawn(permits.acquire());
    yield_now().await;
    let start = now();
    permits.resize(1);
    drop(held);

    drop(behind.await.unwrap());
    assert_eq!(since(start), 10);
    assert!(dear.poll().is_ready(), "refused");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_overtaken_because_the_whole_runtime_is_late() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut waiting = waiting(&permits, 3);
    yield_now().await;
    drop(held);
    jump(ms(10_000)).await;
    assert!(waiting[1].poll().is_pending());
    assert!(waiting[0].poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn nobody_is_woken_for_it_while_all_goes_well() {
    let permits = Permits::new(1);
    let mut held = permits.try_acquire();
    for one in &mut waiting(&permits, 4) {
        sleep(1_000).await;
        drop(held);
        let Poll::Ready(permit) = one.poll() else {
            panic!("it is free")
        };
        held = Some(permit);
        assert_eq!(one.wakes(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn one_who_leaves_from_aside_changes_nothing() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let idle = waiting(&permits, 1);
    let behind = tokio::spawn(permits.acquire());
    yield_now().await;
    drop(held);
    let taken = behind.await.unwrap();
    let mut next = waiting(&permits, 1);

    drop(idle);
    assert!(!next[0].is_woken());
    drop(taken);
    assert!(next[0].is_woken() && next[0].poll().is_ready());
}

/// A paused clock leaps to the next timer, and time outs of whole hours would be seen.
#[tokio::test(start_paused = true)]
async fn nothing_is_armed_while_nobodys_turn_has_come() {
    let permits = Permits::new(1);
    let _held = permits.try_acquire();
    let _waiting = waiting(&permits, 2);
    let start = now();
    let (tell, told) = futures::channel::oneshot::channel();
    let thread = thread::spawn(move || {
        thread::sleep(ms(50));
        tell.send(()).unwrap();
    });
    told.await.unwrap();
    thread.join().unwrap();
    assert_eq!(since(start), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_watches_when_nobody_waits() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let one = waiting(&permits, 1);
    yield_now().await;
    assert_eq!(tasks(), 0, "nobody stands behind the first");

    let mut more = waiting(&permits, 2);
    yield_now().await;
    assert_eq!(tasks(), 1);
    drop((one, held));
    let permit = more.remove(0).poll();
    assert!(permit.is_ready());
    drop(more);
    yield_now().await;
    assert_eq!(tasks(), 0);

    let more = waiting(&permits, 2);
    yield_now().await;
    assert_eq!(tasks(), 1);
    drop(more);
    drop((permit, permits));
    yield_now().await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_watch_costs_no_wake_up_a_grant() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut waiting = waiting(&permits, 1_000);
    yield_now().await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks, 1, "one for all of them");
    drop(held);
    for one in &mut waiting {
        assert!(one.is_woken());
        assert!(one.poll().is_ready());
        assert_eq!(one.wakes(), 1);
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap()
}

#[test]
fn outside_a_runtime_nobody_watches_and_the_line_is_as_before() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut idle = waiting(&permits, 1);
    let mut behind = waiting(&permits, 1);
    drop(held);
    thread::sleep(ms(30));
    assert_eq!((idle[0].wakes(), behind[0].wakes()), (1, 0));
    assert!(behind[0].poll().is_pending());
    assert!(idle[0].poll().is_ready());
    assert!(behind[0].is_woken());
}

#[test]
fn who_waits_in_a_runtime_is_watched_over_wherever_the_others_are() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let _idle = waiting(&permits, 2);
    let here = runtime();
    let behind = permits.acquire();
    let behind = here.spawn(async { tokio::time::timeout(LONG, behind).await });
    while here.metrics().num_alive_tasks() < 2 {
        thread::yield_now();
    }
    thread::spawn(move || drop(held)).join().unwrap();
    drop(here.block_on(behind).unwrap().unwrap());
}

#[test]
fn the_watch_goes_on_when_the_runtime_it_was_in_ends() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let (there, here) = (runtime(), runtime());
    let _idle = waiting(&permits, 1);
    let entered = there.enter();
    let mut behind = waiting(&permits, 1);
    drop(entered);
    drop(there);
    assert!(behind[0].is_woken(), "to start another watch where it is");

    let entered = here.enter();
    assert!(behind[0].poll().is_pending());
    drop(entered);
    drop(held);
    let woken = async { tokio::time::timeout(LONG, behind[0].woken()).await };
    here.block_on(woken).unwrap();
    assert!(behind[0].poll().is_ready());
}

#[test]
fn in_a_runtime_without_timers_nobody_watches_and_nobody_is_hurt() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let bare = Builder::new_current_thread().build().unwrap();
    bare.block_on(async {
        let mut idle = waiting(&permits, 1);
        let mut behind = waiting(&permits, 1);
        drop(held);
        for _ in 0..100 {
            yield_now().await;
        }
        assert_eq!(bare.metrics().num_alive_tasks(), 0);
        assert_eq!((idle[0].wakes(), behind[0].wakes()), (1, 0));
        assert!(idle[0].poll().is_ready());
        assert!(behind[0].poll().is_ready());
    });
}

/// On the wall clock, in parallel: whoever dawdles comes through, and so do the others.
#[test]
fn the_idle_and_the_eager_all_come_through() {
    let here = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    let permits = Permits::new(2);
    let tasks: Vec<_> = (0..200_u32)
        .map(|n| {
            let permits = permits.clone();
            here.spawn(async move {
                for _ in 0..20 {
                    let mut acquire = permits.acquire_many(1 + n % 2);
                    let waits = poll!(&mut acquire).is_pending();
                    if waits && n.is_multiple_of(50) {
                        sleep(12).await;
                    }
                    let permit = if waits { Some(acquire.await) } else { None };
                    assert!(permits.in_use() <= 2);
                    yield_now().await;
                    drop(permit);
                }
            })
        })
        .collect();
    let all = async { tokio::time::timeout(LONG, futures::future::join_all(tasks)).await };
    for task in here.block_on(all).unwrap() {
        task.unwrap();
    }
    assert_eq!(permits.in_use(), 0);
}

/// In a runtime that has ended every task is dropped before it runs.
#[test]
fn where_no_watch_can_begin_nobody_wakes_themselves_over_and_over() {
    let ended = Builder::new_current_thread().build().unwrap();
    let handle = ended.handle().clone();
    drop(ended);
    let _inside = handle.enter();

    let permits = Permits::new(1);
    let _held = permits.try_acquire();
    let mut waiting = waiting(&permits, 3);
    let wakes = |waiting: &[Driven<_>]| [waiting[1].wakes(), waiting[2].wakes()];
    assert_eq!(wakes(&waiting), [1, 0], "the third has asked the second to");
    assert!(waiting[1].poll().is_pending());
    assert_eq!(wakes(&waiting), [1, 0]);
}
