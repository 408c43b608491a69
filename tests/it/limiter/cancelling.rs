//! Giving up leaves no trace: no slot used, none granted.

use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use proptest::prelude::*;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since};

#[tokio::test(start_paused = true)]
async fn the_next_in_line_goes_when_it_can() {
    let start = now();
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 5).shared();
    limit.acquire(5).await.unwrap();
    let mut dear = Driven::new(limit.acquire(5));
    let mut cheap = Driven::new(limit.acquire(1));
    assert!(dear.poll().is_pending());
    assert!(cheap.poll().is_pending());
    jump(ms(150)).await;

    drop(dear);
    assert!(cheap.is_woken(), "a token is there");
    assert!(cheap.poll().is_ready());
    limit.acquire(1).await.unwrap();
    assert_eq!(
        since(start),
        200,
        "nothing was counted for the one who left"
    );
}

#[tokio::test(start_paused = true)]
async fn one_who_leaves_from_the_middle_lets_those_behind_move_up() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut first = Driven::new(limit.acquire(1));
    let mut middle = Driven::new(limit.acquire(7));
    let mut last = Driven::new(limit.acquire(1));
    assert!(first.poll().is_pending());
    assert!(middle.poll().is_pending());
    assert!(last.poll().is_pending());
    assert_eq!(limit.peek(1), wait(1_000));

    drop(middle);
    assert!(
        !first.is_woken() && !last.is_woken(),
        "nothing to do for them yet"
    );
    assert_eq!(limit.peek(1), wait(300));
    jump(ms(100)).await;
    assert!(first.poll().is_ready());
    jump(ms(100)).await;
    assert!(last.is_woken());
    assert!(last.poll().is_ready());
}

fn wait(millis: u64) -> paceline::policy::Decision {
    paceline::policy::Decision::Wait {
        retry_in: ms(millis),
    }
}

#[tokio::test(start_paused = true)]
async fn one_who_was_called_and_leaves_calls_the_next() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| Driven::new(limit.acquire(1))).collect();
    for one in &mut waiting {
        assert!(one.poll().is_pending());
    }
    jump(ms(100)).await;
    assert!(waiting[0].is_woken());

    waiting.remove(0);
    assert!(waiting[0].is_woken());
    waiting.remove(0);
    assert!(waiting[0].is_woken());
    assert!(waiting[0].poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_acquire_spends_no_slot_and_mints_none() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    for _ in 0..5 {
        tokio::time::timeout(ms(10), limit.acquire(1))
            .await
            .unwrap_err();
    }
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 100);
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 200);
}

proptest! {
    /// Whoever comes, waits, is polled at odd times, leaves or passes: those who stay are served as if the others had
    /// never been there, in order and as early as the limit allows.
    #[test]
    fn those_who_stay_are_served_as_if_the_others_had_never_come(
        waiters in prop::collection::vec((1_u32..4, prop::option::of(0_u64..60)), 1..24),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let start = now();
            let limit = TokenBucket::new(Rate::new(1, ms(10)), 3).shared();
            let (tasks, stays): (Vec<_>, Vec<_>) = waiters
                .iter()
                .map(|&(cost, leaves)| {
                    let limit = limit.clone();
                    let task = tokio::spawn(async move {
                        let patience = ms(leaves.unwrap_or(1_000_000));
                        let passed = tokio::time::timeout(patience, limit.acquire(cost)).await;
                        passed.is_ok().then(|| since(start))
                    });
                    (task, cost)
                })
                .unzip();
            let mut passed = Vec::new();
            for (task, cost) in tasks.into_iter().zip(stays) {
                passed.push((task.await.unwrap(), cost));
            }
            // A plain count of tokens, of those alone who passed.
            let (mut tokens, mut now) = (3_u64, 0_u64);
            for (at, cost) in passed.into_iter().filter_map(|(at, cost)| Some((at?, u64::from(cost)))) {
                assert!(at >= now, "in order");
                let missing = cost.saturating_sub(tokens + (at - now) / 10);
                assert_eq!(missing, 0, "the tokens are there at {at}");
                tokens = (tokens + (at - now) / 10).min(3) - cost;
                now = at - at % 10;
            }
        });
    }
}
