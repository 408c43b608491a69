//! Adapters over an input that is never pending.

use std::future::pending;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use paceline::concurrency::Permits;
use paceline::limiter::Share;
use paceline::policy::Interval;
use paceline::prelude::*;
use paceline::retry::{Failure, Retry, RetryBudget};
use testkit::wakes::Driven;

use crate::stream::shed_by::Slow;
use crate::timed::{assert_left, busy, drained, ms};

fn driven(adapter: impl Stream + Send + 'static) -> Driven<BoxStream<'static, ()>> {
    Driven::new(adapter.map(drop).boxed())
}

/// Each takes items for ever: to drop them, to collect them, or to work on them.
#[tokio::test(start_paused = true)]
async fn other_tasks_run_meanwhile() {
    let (day, limit) = (ms(86_400_000), Interval::every(ms(86_400_000)));
    let ones = || stream::repeat(1);
    let results = || stream::repeat(Ok::<u32, ()>(1));
    let calls = ones().concurrent(Permits::new(u32::MAX), |_| pending::<()>());
    let retried = ones().concurrent(Permits::new(u32::MAX), |_| pending::<Result<(), ()>>());
    let retry = Retry::new(RetryBudget::new(1, Share::NONE));
    let retried = retried.retry(retry, |()| Failure::Final, usize::MAX);
    for (name, mut adapter) in [
        ("debounce", driven(ones().debounce(day))),
        ("sample", driven(ones().sample(day))),
        ("throttle_first", driven(ones().throttle_first(day))),
        ("shed", driven(ones().shed(limit.owned()))),
        ("shed_by", driven(ones().shed_by(Slow::default(), |n| *n))),
        ("grouped", driven(ones().grouped_within(usize::MAX, day))),
        (
            "tried",
            driven(results().try_grouped_within(usize::MAX, day)),
        ),
        (
            "batches",
            driven(ones().pace_batches(limit.owned(), usize::MAX)),
        ),
        (
            "by key",
            driven(ones().pace_by_key(limit.keyed(), |_| (), usize::MAX)),
        ),
        ("concurrent", driven(calls)),
        ("retry", driven(retried)),
    ] {
        // The first item may pass.
        let _ = adapter.poll_next();
        for _ in 0..3 {
            assert!(adapter.poll_next().is_pending(), "{name}");
            assert!(adapter.is_woken(), "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn windows_and_times_hold_meanwhile() {
    let groups = busy([1; 40]).grouped_within(usize::MAX, ms(10));
    let groups = drained(groups.map(|group| group.len())).await;
    assert_left(&groups, [(11, 10), (21, 10), (31, 10), (40, 10)], 40);

    let debounced = drained(busy([1, 9, 10, 2, 11, 3]).debounce(ms(10))).await;
    assert_left(&debounced, [(20, 2), (33, 4), (36, 6)], 36);

    let mut sampled = busy([1; 35]).sample(ms(10));
    let left = drained(sampled.by_ref()).await;
    assert_left(&left, [(10, 9), (20, 19), (30, 29)], 35);
    assert_eq!(sampled.dropped_count(), 32);

    let first = drained(busy([1; 25]).throttle_first(ms(10))).await;
    assert_left(&first, [(1, 1), (11, 11), (21, 21)], 25);
}

/// The tick came before the end of the input, although there was no poll in between.
#[tokio::test(start_paused = true)]
async fn an_end_of_a_slow_poll_comes_after_the_tick() {
    let input = busy([1, 14]).filter(|n| std::future::ready(*n == 1));
    assert_left(&drained(input.sample(ms(10))).await, [(15, 1)], 15);
}
