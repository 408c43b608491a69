//! First come, first served, and about one wake-up a grant.

use std::future::Future;
use std::sync::{Arc, Mutex};

use futures::stream::FuturesUnordered;
use futures::{StreamExt, future};
use paceline::limiter::Shared;
use paceline::policy::{Interval, Policy, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::wakes::{Driven, count_polls};

use crate::timed::{ms, now, since};

/// Who passed at which millisecond, in the order in which they passed.
async fn served<P>(limit: &Shared<P>, costs: &[u32]) -> Vec<(usize, u64)>
where
    P: Policy + Send + 'static,
    P::State: Send,
{
    let start = now();
    let passed = Arc::new(Mutex::new(Vec::new()));
    let tasks = costs.iter().enumerate().map(|(n, &cost)| {
        let (passing, passed) = (limit.acquire(cost), Arc::clone(&passed));
        tokio::spawn(async move {
            passing.await.unwrap();
            passed.lock().unwrap().push((n, since(start)));
        })
    });
    future::join_all(tasks.collect::<Vec<_>>()).await;
    Arc::into_inner(passed).unwrap().into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn serves_in_order_of_arrival_whatever_the_costs() {
    let limit = TokenBucket::new(Rate::new(1, ms(10)), 5).shared();

    let passed = served(&limit, &[1, 5, 1, 2, 4, 1, 1]).await;
    assert_eq!(
        passed,
        [
            (0, 0),
            (1, 10),
            (2, 20),
            (3, 40),
            (4, 80),
            (5, 90),
            (6, 100)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_wake_up_keeps_the_order_and_the_spacing() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| Driven::new(limit.acquire(1))).collect();
    for one in &mut waiting {
        assert!(one.poll().is_pending());
    }

    jump(ms(580)).await;
    assert!(waiting[2].poll().is_pending());
    assert!(waiting[1].poll().is_pending());
    assert!(waiting[0].poll().is_ready());
    assert!(
        waiting[1].poll().is_pending(),
        "100 after the one before, not after its due instant"
    );
    jump(ms(100)).await;
    assert!(waiting[1].is_woken());
    assert!(waiting[1].poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn who_joins_late_stands_behind() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut first = Driven::new(limit.acquire(1));
    assert!(first.poll().is_pending());
    jump(ms(150)).await;

    let mut newcomer = Driven::new(limit.acquire(1));
    assert!(
        newcomer.poll().is_pending(),
        "a slot is open, and it is the other's"
    );
    assert!(first.poll().is_ready());
    assert!(newcomer.poll().is_pending());
}

#[tokio::test(start_paused = true)]
async fn one_wake_up_a_grant() {
    let limit = Interval::every(ms(10)).shared();
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let counted = count_polls(limit.acquire(1));
            let polls = counted.polls();
            (tokio::spawn(counted), polls)
        })
        .collect();

    let mut polls = Vec::new();
    for (task, counted) in tasks {
        task.await.unwrap().unwrap();
        polls.push(counted.count());
    }
    assert_eq!(polls[0], 1, "passes at once");
    assert!(
        polls[1..].iter().all(|polls| *polls == 2),
        "joins the line, passes: {polls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_waiters_are_served_in_order_with_one_wake_up_each() {
    const WAITERS: usize = 100_000;
    let start = now();
    let limit = TokenBucket::new(Rate::new(100, ms(1)), 1).shared();
    let mut waiting: FuturesUnordered<_> = (0..WAITERS)
        .map(|n| {
            let counted = count_polls(limit.acquire(1));
            let polls = counted.polls();
            async move {
                counted.await.unwrap();
                (n, polls.count())
            }
        })
        .collect();

    let (mut expected, mut polls) = (0, 0);
    while let Some((n, polled)) = waiting.next().await {
        assert_eq!(n, expected);
        expected += 1;
        polls += polled;
    }
    assert_eq!(expected, WAITERS);
    assert!(start.elapsed() >= ms(999));
    assert!(polls <= 2 * WAITERS + WAITERS / 100, "{polls} polls");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_waiters_can_leave_in_any_order() {
    const WAITERS: usize = 100_000;
    let limit = Interval::every(ms(1)).shared();
    limit.acquire(1).await.unwrap();
    let mut waiting: Vec<_> = (0..WAITERS).map(|_| Box::pin(limit.acquire(1))).collect();
    for one in &mut waiting {
        poll_once(one.as_mut()).await;
    }
    // Every second one from the front, then the rest from the back, but for the last.
    let last = waiting.pop().unwrap();
    let (odd, even): (Vec<_>, Vec<_>) = waiting
        .into_iter()
        .enumerate()
        .partition(|(n, _)| n % 2 == 1);
    drop(odd);
    even.into_iter().rev().for_each(drop);

    let start = now();
    last.await.unwrap();
    assert_eq!(since(start), 1);
}

async fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) {
    assert!(futures::poll!(future).is_pending());
}
