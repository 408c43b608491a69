//! Giving up leaves no trace.

use std::collections::VecDeque;

use paceline::concurrency::Permits;
use proptest::prelude::*;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since, sleep};

#[test]
fn the_next_in_line_goes_when_it_can() {
    let permits = Permits::new(3);
    let held = permits.try_acquire_many(2);
    let mut dear = Driven::new(permits.acquire_many(3));
    let mut cheap = Driven::new(permits.acquire());
    assert!(dear.poll().is_pending());
    assert!(cheap.poll().is_pending());

    drop(dear);
    assert!(cheap.is_woken(), "one is free");
    assert!(cheap.poll().is_ready());
    drop(held);
    assert_eq!(permits.in_use(), 0, "nothing was taken by who left");
}

#[test]
fn one_who_leaves_from_the_middle_wakes_nobody() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut waiting: Vec<_> = (0..3).map(|_| Driven::new(permits.acquire())).collect();
    for one in &mut waiting {
        assert!(one.poll().is_pending());
    }
    waiting.remove(1);
    assert!(waiting.iter().all(|one| !one.is_woken()));

    drop(held);
    assert!(waiting[0].is_woken());
    let first = waiting[0].poll();
    assert!(!waiting[1].is_woken());
    drop(first);
    assert!(waiting[1].is_woken());
}

#[test]
fn one_who_was_woken_and_leaves_wakes_the_next() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut waiting: Vec<_> = (0..3).map(|_| Driven::new(permits.acquire())).collect();
    for one in &mut waiting {
        assert!(one.poll().is_pending());
    }
    drop(held);
    assert!(waiting[0].is_woken());

    waiting.remove(0);
    assert!(waiting[0].is_woken());
    waiting.remove(0);
    assert!(waiting[0].is_woken());
    assert!(waiting[0].poll().is_ready());
}

#[test]
fn a_future_that_was_never_polled_has_no_place_in_line() {
    let permits = Permits::new(1);
    let _never = permits.acquire();
    assert!(permits.try_acquire().is_some());
}

/// Everything but patience is in these, and no two who give up do so in the same part of one: so whatever ends because of
/// others, nobody gives up just then, and the order in which tasks run does not matter.
const UNIT: u64 = 32;

#[derive(Clone, Copy, Debug)]
struct Visit {
    comes: u64,
    cost: u32,
    stays: u64,
    patience: Option<u64>,
}

fn visits() -> impl Strategy<Value = Vec<Visit>> {
    let visit = (0_u64..20, 1_u32..4, 0_u64..8, prop::option::of(0_u64..30));
    prop::collection::vec(visit, 1..20).prop_map(|mut visits| {
        visits.sort_by_key(|(comes, ..)| *comes);
        let visits = visits.into_iter().zip(1..);
        let visits = visits.map(|((comes, cost, stays, patience), n)| Visit {
            comes: comes * UNIT,
            cost,
            stays: stays * UNIT,
            patience: patience.map(|patience| patience * UNIT + n),
        });
        visits.collect()
    })
}

/// When each is let in, if it is: one millisecond after the other, with nothing but a queue and a count.
fn foreseen(limit: u32, cooldown: u64, visits: &[Visit]) -> Vec<Option<u64>> {
    let mut entered = vec![None; visits.len()];
    let mut queue: VecDeque<usize> = VecDeque::new();
    for now in 0..15_000 {
        queue.retain(|&n| {
            visits[n]
                .patience
                .is_none_or(|patience| visits[n].comes + patience > now)
        });
        queue.extend((0..visits.len()).filter(|&n| visits[n].comes == now));
        while let Some(&first) = queue.front() {
            let out: u32 = (0..visits.len())
                .filter(|&n| entered[n].is_some_and(|at| now < at + visits[n].stays + cooldown))
                .map(|n| visits[n].cost)
                .sum();
            if out + visits[first].cost > limit {
                break;
            }
            entered[first] = Some(now);
            queue.pop_front();
        }
    }
    entered
}

proptest! {
    /// Whoever comes, waits, leaves, holds and gives back: each is let in exactly when a plain queue says.
    #[test]
    fn everybody_is_let_in_exactly_when_a_plain_queue_says(
        limit in 3_u32..6,
        cooldown in (0_u64..8).prop_map(|units| units * UNIT),
        visits in visits(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let start = now();
            let permits = Permits::new(limit).with_cooldown(ms(cooldown));
            let mut tasks = Vec::new();
            for &Visit { comes, cost, stays, patience } in &visits {
                sleep(comes - since(start)).await;
                let permits = permits.clone();
                tasks.push(tokio::spawn(async move {
                    let patience = ms(patience.unwrap_or(1_000_000));
                    let permit = tokio::time::timeout(patience, permits.acquire_many(cost)).await;
                    let entered = since(start);
                    let permit = permit.ok()?.unwrap();
                    sleep(stays).await;
                    drop(permit);
                    Some(entered)
                }));
                // It joins the line in this instant, before the next one.
                tokio::task::yield_now().await;
            }
            let mut entered = Vec::new();
            for task in tasks {
                entered.push(task.await.unwrap());
            }
            assert_eq!(entered, foreseen(limit, cooldown, &visits));
            assert_eq!(permits.in_use(), 0);
        });
    }
}
