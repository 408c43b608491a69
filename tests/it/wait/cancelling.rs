//! A request that is cancelled leaves no trace: it spends no permit and creates none.

use std::collections::VecDeque;

use proptest::prelude::*;
use testkit::wakes::Driven;

use super::{KeyedLimit, Kind, PermitLimit, SharedLimit, is_any_timer_armed, paused_runtime};
use crate::timed::{ms, now, since, sleep};

claims! {
    when_a_dear_head_leaves_the_next_waiter_is_woken,
    a_waiter_that_leaves_from_the_middle_wakes_no_other,
    a_woken_waiter_that_leaves_wakes_the_next,
    a_request_that_was_never_polled_is_not_queued,
}

paused_claims! {
    a_request_that_times_out_spends_no_permit_and_creates_none,
    the_next_waiter_sleeps_until_its_permits_are_due_when_the_head_leaves,
    a_head_that_comes_back_and_leaves_returns_the_timer_to_the_next_waiter,
    a_head_that_leaves_leaves_no_timer_armed,
}

fn when_a_dear_head_leaves_the_next_waiter_is_woken<K: Kind>() {
    let runtime = paused_runtime();
    let _inside = runtime.enter();
    let limit = K::of(3);
    let _held = limit.try_acquire(2);
    let mut dear = Driven::new(limit.acquire(3));
    assert!(dear.poll().is_pending());
    let mut cheap = limit.waiters(1);

    drop(dear);
    assert!(cheap[0].is_woken(), "one permit is free");
    let _grant = cheap[0].poll();
    assert!(limit.try_acquire(1).is_none());
    assert_eq!(limit.waiting(), 0);
}

fn a_waiter_that_leaves_from_the_middle_wakes_no_other<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let mut waiters = limit.waiters(3);
    waiters.remove(1);
    assert!(waiters.iter().all(|waiter| !waiter.is_woken()));
    assert_eq!(limit.waiting(), 2);

    drop(held);
    assert!(waiters[0].is_woken());
    let first = waiters[0].poll();
    assert!(first.is_ready() && !waiters[1].is_woken());
    drop(first);
    assert!(waiters[1].is_woken());
}

fn a_woken_waiter_that_leaves_wakes_the_next<K: Kind>() {
    let limit = K::of(1);
    let held = limit.try_acquire(1);
    let mut waiters = limit.waiters(3);
    drop(held);
    assert!(waiters[0].is_woken());

    waiters.remove(0);
    assert!(waiters[0].is_woken());
    waiters.remove(0);
    assert!(waiters[0].is_woken());
    assert!(waiters[0].poll().is_ready());
}

fn a_request_that_was_never_polled_is_not_queued<K: Kind>() {
    let limit = K::of(1);
    let _never = limit.acquire(1);
    assert_eq!(limit.waiting(), 0);
    assert!(limit.try_acquire(1).is_some());
}

async fn a_request_that_times_out_spends_no_permit_and_creates_none<K: Kind>() {
    let start = now();
    let limit = K::spaced(100);
    assert!(limit.try_acquire());
    for _ in 0..5 {
        let timeout = tokio::time::timeout(ms(10), limit.acquire()).await;
        assert!(timeout.is_err());
    }
    for at in [100, 200] {
        limit.acquire().await;
        assert_eq!(since(start), at);
    }
}

async fn the_next_waiter_sleeps_until_its_permits_are_due_when_the_head_leaves<K: Kind>() {
    let start = now();
    let limit = K::spaced(100);
    assert!(limit.try_acquire());
    let head = limit.waiters(1);
    let next = tokio::spawn(limit.acquire());
    sleep(50).await;

    drop(head);
    next.await.unwrap();
    assert_eq!(since(start), 100);
}

/// The timer of the queue is armed for the next waiter, then for the head that has come back, and has to be armed again.
async fn a_head_that_comes_back_and_leaves_returns_the_timer_to_the_next_waiter<K: Kind>() {
    let limit = K::spaced(100);
    assert!(limit.try_acquire());
    let mut waiters = limit.waiters(4);
    sleep(100).await;
    assert!(waiters[0].poll().is_ready());
    sleep(111).await;
    assert!(waiters[2].poll().is_ready(), "the second is passed over");

    limit.0.pause();
    assert!(waiters[1].poll().is_pending());
    limit.0.resume(1);
    drop(waiters.remove(1));
    assert!(!waiters[2].is_woken());
    sleep(100).await;
    assert!(waiters[2].is_woken());
    assert!(waiters[2].poll().is_ready());
}

async fn a_head_that_leaves_leaves_no_timer_armed<K: Kind>() {
    let limit = K::new(1, ms(3_600_000));
    let held = limit.try_acquire(1);
    let mut waiters = limit.waiters(1);
    drop(held);
    waiters.clear();
    assert!(!is_any_timer_armed().await);
}

/// All times but the timeouts are multiples of this, and no two timeouts leave the same rest. So no request times out in an
/// instant in which anything else happens, and the order in which tasks run makes no difference.
const UNIT: u64 = 32;

#[derive(Clone, Copy, Debug)]
struct Visit {
    joins: u64,
    cost: u32,
    holds: u64,
    timeout: Option<u64>,
}

fn visits() -> impl Strategy<Value = Vec<Visit>> {
    let visit = (0_u64..20, 1_u32..4, 0_u64..8, prop::option::of(0_u64..30));
    prop::collection::vec(visit, 1..20).prop_map(|mut visits| {
        visits.sort_by_key(|(joins, ..)| *joins);
        let visits = visits.into_iter().zip(1..);
        let visits = visits.map(|((joins, cost, holds, timeout), n)| Visit {
            joins: joins * UNIT,
            cost,
            holds: holds * UNIT,
            timeout: timeout.map(|timeout| timeout * UNIT + n),
        });
        visits.collect()
    })
}

/// When each request passes, if it does: a plain queue and a count, one millisecond after the other.
fn foreseen(permits: u32, cooldown: u64, visits: &[Visit]) -> Vec<Option<u64>> {
    let mut passed = vec![None; visits.len()];
    let mut queue: VecDeque<usize> = VecDeque::new();
    for now in 0..15_000 {
        queue.retain(|&n| {
            let Visit { joins, timeout, .. } = visits[n];
            timeout.is_none_or(|timeout| joins + timeout > now)
        });
        queue.extend((0..visits.len()).filter(|&n| visits[n].joins == now));
        while let Some(&head) = queue.front() {
            let is_out =
                |n: &usize| passed[*n].is_some_and(|at| now < at + visits[*n].holds + cooldown);
            let out: u32 = (0..visits.len())
                .filter(is_out)
                .map(|n| visits[n].cost)
                .sum();
            if out + visits[head].cost > permits {
                break;
            }
            passed[head] = Some(now);
            queue.pop_front();
        }
    }
    passed
}

async fn passed<K: Kind>(permits: u32, cooldown: u64, visits: &[Visit]) -> Vec<Option<u64>> {
    let start = now();
    let limit = K::new(permits, ms(cooldown));
    let mut tasks = Vec::new();
    for &Visit {
        joins,
        cost,
        holds,
        timeout,
    } in visits
    {
        sleep(joins - since(start)).await;
        let request = limit.acquire(cost);
        tasks.push(tokio::spawn(async move {
            let timeout = ms(timeout.unwrap_or(1_000_000));
            let grant = tokio::time::timeout(timeout, request).await.ok()?;
            let passed = since(start);
            sleep(holds).await;
            drop(grant);
            Some(passed)
        }));
        // It joins in this instant, before the next one.
        tokio::task::yield_now().await;
    }
    let mut passed = Vec::new();
    for task in tasks {
        passed.push(task.await.unwrap());
    }
    assert_eq!(limit.waiting(), 0);
    passed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_request_passes_exactly_when_a_plain_queue_says(
        permits in 3_u32..6,
        cooldown in (0_u64..8).prop_map(|units| units * UNIT),
        visits in visits(),
    ) {
        paused_runtime().block_on(async {
            let foreseen = foreseen(permits, cooldown, &visits);
            assert_eq!(passed::<SharedLimit>(permits, cooldown, &visits).await, foreseen);
            assert_eq!(passed::<KeyedLimit>(permits, cooldown, &visits).await, foreseen);
            assert_eq!(passed::<PermitLimit>(permits, cooldown, &visits).await, foreseen);
        });
    }
}
