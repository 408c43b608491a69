//! First come, first served, whatever the costs, and about one wake-up a permit.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use paceline::concurrency::Permits;
use testkit::wakes::{Driven, count_polls};

use crate::timed::{ms, now, since, sleep};

/// Who was let in at which millisecond, when each stays for 10.
async fn served(permits: &Permits, costs: &[u32]) -> Vec<(usize, u64)> {
    let start = now();
    let entered = Arc::new(Mutex::new(Vec::new()));
    let tasks = costs.iter().enumerate().map(|(n, &cost)| {
        let (entering, entered) = (permits.acquire_many(cost), Arc::clone(&entered));
        tokio::spawn(async move {
            let _permit = entering.await.unwrap();
            entered.lock().unwrap().push((n, since(start)));
            sleep(10).await;
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    Arc::into_inner(entered).unwrap().into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn serves_in_order_of_arrival_whatever_the_costs() {
    let entered = served(&Permits::new(3), &[1, 3, 1, 1, 2, 1]).await;
    assert_eq!(
        entered,
        [(0, 0), (1, 10), (2, 20), (3, 20), (4, 30), (5, 30)]
    );
}

#[test]
fn who_wants_many_is_not_starved_by_those_who_want_one() {
    let permits = Permits::new(2);
    let one = permits.try_acquire();
    let mut dear = Driven::new(permits.acquire_many(2));
    let mut cheap = Driven::new(permits.acquire());
    assert!(dear.poll().is_pending());
    assert!(cheap.poll().is_pending(), "one is free, and not for it");

    drop(one);
    assert!(dear.is_woken());
    assert!(!cheap.is_woken());
    assert!(cheap.poll().is_pending());
    assert!(dear.poll().is_ready());
}

#[test]
fn trying_never_overtakes_the_line() {
    let permits = Permits::new(2);
    let one = permits.try_acquire();
    let mut dear = Driven::new(permits.acquire_many(2));
    assert!(dear.poll().is_pending());

    assert!(permits.try_acquire().is_none(), "somebody waits for it");
    drop(one);
    assert!(
        permits.try_acquire().is_none(),
        "nor before the one who was woken has run"
    );
    drop(dear);
    assert!(permits.try_acquire().is_some());
}

#[test]
fn one_release_that_frees_many_lets_one_after_the_other_in() {
    let permits = Permits::new(3);
    let all = permits.try_acquire_many(3);
    let mut waiting: Vec<_> = (0..4).map(|_| Driven::new(permits.acquire())).collect();
    for one in &mut waiting {
        assert!(one.poll().is_pending());
    }

    drop(all);
    let mut inside = Vec::new();
    for one in &mut waiting[..3] {
        assert!(one.is_woken());
        inside.push(one.poll());
    }
    assert!(!waiting[3].is_woken());
    assert_eq!(permits.in_use(), 3);
    inside.pop();
    assert!(waiting[3].is_woken());
}

#[test]
fn another_task_that_takes_the_future_over_is_the_one_woken() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut waits = Driven::new(permits.acquire());
    assert!(waits.poll().is_pending());
    waits.change_task();
    assert!(waits.poll().is_pending());

    drop(held);
    assert!(waits.is_woken());
    assert!(waits.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn one_wake_up_a_permit_and_two_if_it_cools_down_first() {
    for (cooldown, most) in [(0, 2), (10, 3)] {
        let permits = Permits::new(2).with_cooldown(ms(cooldown));
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let counted = count_polls(permits.acquire());
                let polls = counted.polls();
                let task = tokio::spawn(async move {
                    let _permit = counted.await;
                    sleep(7).await;
                });
                (task, polls)
            })
            .collect();
        let mut polls = Vec::new();
        for (task, counted) in tasks {
            task.await.unwrap();
            polls.push(counted.count());
        }
        assert_eq!(polls[..2], [1, 1]);
        assert!(
            polls[2..].iter().all(|polls| *polls <= most),
            "joins, passes: {polls:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_waiters_are_served_in_order_with_one_wake_up_each() {
    const WAITERS: usize = 100_000;
    let permits = Permits::new(10);
    let held: Vec<_> = (0..10).map(|_| permits.try_acquire()).collect();
    let mut waiting: FuturesUnordered<_> = (0..WAITERS)
        .map(|n| {
            let counted = count_polls(permits.acquire());
            let polls = counted.polls();
            async move {
                drop(counted.await);
                (n, polls.count())
            }
        })
        .collect();
    assert!(futures::poll!(waiting.next()).is_pending());

    drop(held);
    let (mut expected, mut polls) = (0, 0);
    while let Some((n, polled)) = waiting.next().await {
        assert_eq!(n, expected);
        expected += 1;
        polls += polled;
    }
    assert_eq!(expected, WAITERS);
    assert!(polls <= 2 * WAITERS + WAITERS / 100, "{polls} polls");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_waiters_can_leave_in_any_order() {
    const WAITERS: usize = 100_000;
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut waiting: Vec<_> = (0..WAITERS).map(|_| Box::pin(permits.acquire())).collect();
    for one in &mut waiting {
        assert!(futures::poll!(one.as_mut()).is_pending());
    }
    let last = waiting.pop().unwrap();
    let (odd, even): (Vec<_>, Vec<_>) = waiting
        .into_iter()
        .enumerate()
        .partition(|(n, _)| n % 2 == 1);
    drop(odd);
    even.into_iter().rev().for_each(drop);

    drop(held);
    drop(last.await);
}
