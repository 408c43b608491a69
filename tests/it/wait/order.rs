//! First come, first served, whatever the costs, with one wake-up for each grant.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use testkit::clock::jump;
use testkit::wakes::{Driven, count_polls};

use super::Kind;
use crate::timed::{ms, now, since, sleep};

paused_claims! {
    serves_in_order_of_arrival_whatever_the_costs,
    a_late_wake_up_keeps_the_order_and_the_spacing,
    a_new_request_joins_behind_a_head_whose_permits_are_due,
    a_waiter_that_moves_to_another_task_is_woken_there_by_the_timer,
    a_return_that_changes_nothing_for_the_head_does_not_wake_it,
    one_wake_up_a_grant_when_permits_return_by_time,
    one_wake_up_a_grant_when_permits_are_given_back,
    a_hundred_thousand_waiters_are_served_in_order_with_one_wake_up_each,
    a_hundred_thousand_waiters_can_leave_in_any_order,
}

claims! {
    fair:
    trying_never_overtakes_a_waiter,
    one_return_of_many_permits_serves_one_waiter_after_the_other,
    a_waiter_that_moves_to_another_task_is_woken_there,
}

paused_claims! {
    newest first:
    a_late_wake_up_keeps_the_order_and_the_spacing,
    a_waiter_that_moves_to_another_task_is_woken_there_by_the_timer,
    a_return_that_changes_nothing_for_the_head_does_not_wake_it,
    one_wake_up_a_grant_when_permits_are_given_back,
}

claims! {
    a_request_for_many_is_not_starved_by_requests_for_one,
    trying_never_overtakes_a_waiter,
    one_return_of_many_permits_serves_one_waiter_after_the_other,
    a_waiter_that_moves_to_another_task_is_woken_there,
}

claims! {
    newest first:
    one_return_of_many_permits_serves_one_waiter_after_the_other,
    a_waiter_that_moves_to_another_task_is_woken_there,
}

async fn serves_in_order_of_arrival_whatever_the_costs<K: Kind>() {
    let start = now();
    let limit = K::of(3);
    let served = Arc::new(Mutex::new(Vec::new()));
    let tasks = [1, 3, 1, 1, 2, 1].into_iter().enumerate().map(|(n, cost)| {
        let (request, served) = (limit.acquire(cost), Arc::clone(&served));
        tokio::spawn(async move {
            let _grant = request.await;
            served.lock().unwrap().push((n, since(start)));
            sleep(10).await;
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(
        *served.lock().unwrap(),
        [(0, 0), (1, 10), (2, 20), (3, 20), (4, 30), (5, 30)]
    );
}

async fn a_late_wake_up_keeps_the_order_and_the_spacing<K: Kind>() {
    let limit = K::spaced(100);
    assert!(limit.try_acquire());
    let mut waiters = limit.waiters(3);

    jump(ms(580)).await;
    assert!(waiters[2].poll().is_pending());
    assert!(waiters[1].poll().is_pending());
    assert!(waiters[0].poll().is_ready());
    assert!(
        waiters[1].poll().is_pending(),
        "100 ms after the grant before, not after the instant when that was due"
    );
    jump(ms(100)).await;
    assert!(waiters[1].is_woken());
    assert!(waiters[1].poll().is_ready());
}

async fn a_new_request_joins_behind_a_head_whose_permits_are_due<K: Kind>() {
    let limit = K::spaced(100);
    assert!(limit.try_acquire());
    let mut waiters = limit.waiters(1);
    jump(ms(150)).await;

    let mut newcomer = limit.waiters(1);
    assert!(waiters[0].poll().is_ready());
    assert!(newcomer[0].poll().is_pending());
}

fn a_request_for_many_is_not_starved_by_requests_for_one<K: Kind>() {
    let limit = K::of(2);
    let one = limit.try_acquire(1);
    let mut dear = Driven::new(limit.acquire(2));
    assert!(dear.poll().is_pending());
    let mut cheap = limit.waiters(1);

    drop(one);
    assert!(dear.is_woken() && !cheap[0].is_woken());
    assert!(cheap[0].poll().is_pending());
    assert!(dear.poll().is_ready());
}

fn trying_never_overtakes_a_waiter<K: Kind>() {
    let limit = K::of(2);
    let one = limit.try_acquire(1);
    let mut dear = Driven::new(limit.acquire(2));
    assert!(dear.poll().is_pending());

    assert!(limit.try_acquire(1).is_none(), "a waiter is ahead");
    drop(one);
    assert!(
        limit.try_acquire(1).is_none(),
        "nor between the wake-up of a waiter and its poll"
    );
    drop(dear);
    assert!(limit.try_acquire(1).is_some());
}

fn one_return_of_many_permits_serves_one_waiter_after_the_other<K: Kind>() {
    let limit = K::of(3);
    let all = limit.try_acquire(3);
    let mut waiters = limit.waiters(4);

    drop(all);
    let mut grants = Vec::new();
    for waiter in &mut waiters[..3] {
        assert!(waiter.is_woken());
        grants.push(waiter.poll());
    }
    assert!(!waiters[3].is_woken());
    grants.pop();
    assert!(waiters[3].is_woken());
}

fn a_waiter_that_moves_to_another_task_is_woken_there<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let mut waiter = Driven::new(limit.acquire(1));
    assert!(waiter.poll().is_pending());
    waiter.change_task();
    assert!(waiter.poll().is_pending());

    drop(held);
    assert!(waiter.is_woken());
    assert!(waiter.poll().is_ready());
}

async fn a_waiter_that_moves_to_another_task_is_woken_there_by_the_timer<K: Kind>() {
    let limit = K::spaced(100);
    assert!(limit.try_acquire());
    let mut waiters = limit.waiters(2);
    waiters[1].change_task();
    assert!(waiters[1].poll().is_pending());

    jump(ms(100)).await;
    assert!(waiters[0].poll().is_ready());
    waiters[1].change_task();
    assert!(waiters[1].poll().is_pending());
    jump(ms(100)).await;
    assert!(waiters[1].is_woken());
    assert!(waiters[1].poll().is_ready());
}

async fn a_return_that_changes_nothing_for_the_head_does_not_wake_it<K: Kind>() {
    let limit = K::new(3, ms(100));
    let mut held: Vec<_> = (0..3).map(|_| limit.try_acquire(1)).collect();
    let mut waiters = limit.waiters(1);

    held.pop();
    assert!(
        !waiters[0].is_woken(),
        "the timer of the queue wakes it when the permit is due"
    );
    sleep(10).await;
    held.clear();
    assert!(!waiters[0].is_woken(), "the first permit is back earlier");
    sleep(90).await;
    assert!(waiters[0].is_woken());
    assert!(waiters[0].poll().is_ready());
}

async fn one_wake_up_a_grant_when_permits_return_by_time<K: Kind>() {
    let limit = K::spaced(10);
    let counted = (0..100).map(|_| count_polls(limit.acquire()));
    let tasks = counted.map(|counted| (counted.polls(), tokio::spawn(counted)));

    let mut polls = Vec::new();
    for (counted, task) in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
        polls.push(counted.count());
    }
    assert_eq!(polls[0], 1, "passes at once");
    assert!(
        polls[1..].iter().all(|polls| *polls == 2),
        "joins, passes: {polls:?}"
    );
}

async fn one_wake_up_a_grant_when_permits_are_given_back<K: Kind>() {
    for cooldown in [0, 10] {
        let limit = K::new(2, ms(cooldown));
        let tasks = (0..100).map(|_| {
            let counted = count_polls(limit.acquire(1));
            let polls = counted.polls();
            let task = tokio::spawn(async move {
                let _grant = counted.await;
                sleep(7).await;
            });
            (task, polls)
        });
        let mut polls = Vec::new();
        for (task, counted) in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
            polls.push(counted.count());
        }
        assert_eq!(polls[..2], [1, 1]);
        assert!(
            polls[2..].iter().all(|polls| *polls == 2),
            "joins, passes: {polls:?}"
        );
    }
}

const MANY: usize = 100_000;

async fn a_hundred_thousand_waiters_are_served_in_order_with_one_wake_up_each<K: Kind>() {
    let limit = K::of(10);
    let held = limit.try_acquire(10);
    let requests = (0..MANY).map(|n| {
        let counted = count_polls(limit.acquire(1));
        let polls = counted.polls();
        async move {
            drop(counted.await);
            (n, polls.count())
        }
    });
    let mut waiters: FuturesUnordered<_> = requests.collect();
    assert!(futures::poll!(waiters.next()).is_pending());

    drop(held);
    let (mut served, mut polls) = (0, 0);
    while let Some((n, polled)) = waiters.next().await {
        assert_eq!(n, served);
        served += 1;
        polls += polled;
    }
    assert_eq!(served, MANY);
    assert_eq!(polls, 2 * MANY);
}

async fn a_hundred_thousand_waiters_can_leave_in_any_order<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let mut waiters: Vec<_> = (0..MANY).map(|_| limit.acquire(1)).collect();
    for waiter in &mut waiters {
        assert!(futures::poll!(waiter).is_pending());
    }
    // Every second one from the front, then the others from the back, but for the last.
    let last = waiters.pop().unwrap();
    let (odd, even): (Vec<_>, Vec<_>) = waiters
        .into_iter()
        .enumerate()
        .partition(|(n, _)| n % 2 == 1);
    drop(odd);
    even.into_iter().rev().for_each(drop);

    drop(held);
    drop(last.await);
    assert_eq!(limit.waiting(), 0);
}
