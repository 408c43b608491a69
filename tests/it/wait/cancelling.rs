//! A request that is cancelled leaves no trace: it spends no permit and creates none.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::{
    KeyedLimit, Kind, OLDEST, PermitLimit, SharedLimit, is_any_timer_armed, paused_runtime,
};
use crate::timed::{ms, now, since, sleep};

claims! {
    bare:
    a_request_that_was_never_polled_is_not_queued: in_order newest fair,
}

claims! {
    paused:
    a_head_that_comes_back_and_leaves_returns_the_timer_to_the_next_waiter: in_order,
    without_a_waiter_no_timer_is_armed_also_not_that_of_a_head_that_has_left: in_order newest,
}

fn a_request_that_was_never_polled_is_not_queued<K: Kind>() {
    let limit = K::of(1);
    let _never = limit.acquire(1);
    assert_eq!(limit.waiting(), 0);
    assert!(limit.try_acquire(1).is_some());
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

async fn without_a_waiter_no_timer_is_armed_also_not_that_of_a_head_that_has_left<K: Kind>() {
    let limit = K::new(1, ms(3_600_000));
    drop(limit.try_acquire(1));
    assert!(!is_any_timer_armed().await);
    drop(limit.waiters(1));
    assert!(!is_any_timer_armed().await);
}

/// All times are multiples of this but for the arrivals and the timeouts, and no two of these leave the same rest. So no request
/// joins or times out in an instant in which anything else happens, and the order in which tasks run makes no difference.
const UNIT: u64 = 64;

#[derive(Clone, Copy, Debug)]
struct Visit {
    joins: u64,
    cost: u32,
    holds: u64,
    timeout: Option<u64>,
}

impl Visit {
    fn leaves(&self) -> u64 {
        self.timeout
            .map_or(u64::MAX, |timeout| self.joins + timeout)
    }
}

fn visits() -> impl Strategy<Value = Vec<Visit>> {
    let visit = (0_u64..20, 1_u32..4, 0_u64..8, prop::option::of(0_u64..30));
    prop::collection::vec(visit, 1..20).prop_map(|mut visits| {
        visits.sort_by_key(|(joins, ..)| *joins);
        let visits = visits.into_iter().zip(1..);
        let visits = visits.map(|((joins, cost, holds, timeout), n)| Visit {
            joins: joins * UNIT + n,
            cost,
            holds: holds * UNIT,
            timeout: timeout.map(|timeout| timeout * UNIT + 20),
        });
        visits.collect()
    })
}

/// When each request passes, if it does: a plain queue and a count, one millisecond after the other. When something happens
/// `newest_after` since the queue was empty, the newest request is first from then on.
fn foreseen(permits: u32, cooldown: u64, newest_after: u64, visits: &[Visit]) -> Vec<Option<u64>> {
    let mut passed = vec![None; visits.len()];
    let mut queue: VecDeque<usize> = VecDeque::new();
    let (mut queued_since, mut is_newest_first) = (u64::MAX, false);
    for now in 0..30_000 {
        let mut visited = visits.iter().zip(&passed);
        let happens = visited.any(|(visit, passed)| {
            let released = passed.map(|at| at + visit.holds);
            visit.joins == now || released.unwrap_or_else(|| visit.leaves()) == now
        });
        is_newest_first |= happens && now >= queued_since.saturating_add(newest_after);
        queue.extend((0..visits.len()).filter(|&n| visits[n].joins == now));
        let head = |queue: &VecDeque<usize>| {
            let head = if is_newest_first {
                queue.back()
            } else {
                queue.front()
            };
            head.copied()
        };
        let fits = |n: usize, passed: &[Option<u64>]| {
            let out = visits.iter().zip(passed).filter(|(visit, passed)| {
                passed.is_some_and(|at| now < at + visit.holds + cooldown)
            });
            out.map(|(visit, _)| visit.cost).sum::<u32>() + visits[n].cost <= permits
        };
        // A request that leaves asks once more, and may find that the newest is first from now on.
        let leaves = |n: &usize| visits[*n].leaves() == now;
        let leaves_last = head(&queue).filter(|n| leaves(n) && fits(*n, &passed));
        if let Some(n) = leaves_last {
            passed[n] = Some(now);
        }
        queue.retain(|n| !leaves(n));
        while let Some(n) = head(&queue).filter(|n| fits(*n, &passed)) {
            passed[n] = Some(now);
            queue.retain(|other| *other != n);
        }
        queued_since = queued_since.min(now);
        if queue.is_empty() {
            (queued_since, is_newest_first) = (u64::MAX, false);
        }
    }
    passed
}

async fn passed<K: Kind>(limit: K, visits: &[Visit]) -> Vec<Option<u64>> {
    let start = now();
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
            let foreseen = foreseen(permits, cooldown, u64::MAX, &visits);
            let cooldown = ms(cooldown);
            let shared = SharedLimit::<OLDEST>::new(permits, cooldown);
            assert_eq!(passed(shared, &visits).await, foreseen);
            assert_eq!(passed(KeyedLimit::new(permits, cooldown), &visits).await, foreseen);
            let pool = PermitLimit::<OLDEST>::new(permits, cooldown);
            assert_eq!(passed(pool, &visits).await, foreseen);
        });
    }

    #[test]
    fn under_overload_the_newest_request_passes_exactly_when_a_plain_queue_says(
        permits in 3_u32..6,
        newest_after in (0_u64..12).prop_map(|units| units * UNIT),
        visits in visits(),
    ) {
        paused_runtime().block_on(async {
            let foreseen = foreseen(permits, 0, newest_after, &visits);
            let after = ms(newest_after);
            let shared = SharedLimit::<OLDEST>::of(permits).newest_first(after);
            assert_eq!(passed(shared, &visits).await, foreseen);
            let pool = PermitLimit::<OLDEST>::of(permits).newest_first(after);
            assert_eq!(passed(pool, &visits).await, foreseen);
        });
    }
}
