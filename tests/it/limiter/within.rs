use futures::FutureExt;
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn no_is_said_at_once_when_those_ahead_take_too_long() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let ahead: Vec<_> = (0..4).map(|_| tokio::spawn(limit.acquire(1))).collect();
    tokio::task::yield_now().await;

    let refused = limit.acquire_within(1, ms(499)).await.unwrap_err();
    assert!(refused.is_too_late() && !refused.is_too_costly());
    assert_eq!(refused.to_string(), "could not pass within 499ms");
    assert_eq!(since(start), 0);

    limit.acquire_within(1, ms(500)).await.unwrap();
    assert_eq!(since(start), 500);
    assert!(ahead.iter().all(tokio::task::JoinHandle::is_finished));
}

#[tokio::test(start_paused = true)]
async fn no_is_said_at_the_deadline_when_the_limit_became_stricter() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let waiting = tokio::spawn(limit.acquire_within(1, ms(150)));
    sleep(50).await;

    limit.pause_for(ms(1_000));
    assert!(waiting.await.unwrap().unwrap_err().is_too_late());
    assert_eq!(since(start), 150);
    assert_eq!(limit.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_costs_nothing_and_leaves_the_line() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    for _ in 0..10 {
        assert!(limit.acquire_within(1, ms(99)).await.is_err());
    }
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 100);
}

#[tokio::test(start_paused = true)]
async fn what_could_never_pass_is_told_apart_from_what_is_late() {
    let limit = TokenBucket::new(Rate::per_second(1), 3).shared();
    limit.acquire(3).await.unwrap();

    let refused = limit.acquire_within(4, ms(1)).await.unwrap_err();
    assert!(refused.is_too_costly() && !refused.is_too_late());
    assert_eq!(refused.too_costly().map(|never| never.capacity()), Some(3));
    assert_eq!(
        refused.to_string(),
        "a cost of 4 can never pass a limit of 3 at once"
    );
}

#[tokio::test(start_paused = true)]
async fn no_time_at_all_means_now_or_not() {
    let limit = TokenBucket::new(Rate::per_second(1), 1).shared();

    assert!(
        limit
            .acquire_within(1, ms(0))
            .now_or_never()
            .unwrap()
            .is_ok()
    );
    assert!(
        limit
            .acquire_within(1, ms(0))
            .now_or_never()
            .unwrap()
            .is_err()
    );
    assert!(
        limit
            .acquire_within(0, ms(0))
            .now_or_never()
            .unwrap()
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn for_ever_is_long_enough() {
    let limit = Interval::every(ms(86_400_000)).shared();
    limit.acquire(1).await.unwrap();
    limit
        .acquire_within(1, std::time::Duration::MAX)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_somebody_ahead_leaves_the_answer_changes_with_it() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut dear = Driven::new(limit.acquire(9));
    let mut next = Driven::new(limit.acquire(1));
    assert!(dear.poll().is_pending());
    assert!(next.poll().is_pending());
    assert!(limit.acquire_within(1, ms(999)).await.is_err());

    drop(dear);
    let mut in_time = Driven::new(limit.acquire_within(1, ms(200)));
    assert!(in_time.poll().is_pending());
    jump(ms(100)).await;
    assert!(next.poll().is_ready());
    jump(ms(100)).await;
    assert!(in_time.poll().is_ready());
}

/// The line is gone through once for many questions, and what it says is never too much.
#[tokio::test(start_paused = true)]
async fn a_long_line_is_foreseen_too() {
    let start = now();
    let limit = Interval::every(ms(1)).shared();
    let mut ahead: Vec<_> = (0..1_000).map(|_| Driven::new(limit.acquire(1))).collect();
    for one in &mut ahead {
        let _ = one.poll();
    }

    assert!(limit.acquire_within(1, ms(999)).await.is_err());
    assert_eq!(since(start), 0);

    // Half of them leave: nothing is known for sure, so it is tried, until it is known again.
    ahead.truncate(500);
    let mut unsure = Driven::new(limit.acquire_within(1, ms(499)));
    let unsure_at_first = unsure.poll().is_pending();
    let mut in_time = Driven::new(limit.acquire_within(1, ms(501)));
    assert!(in_time.poll().is_pending());
    assert!(unsure_at_first || since(start) == 0);
}

/// Looking at the head of a long line spends nothing, so those behind are not through any earlier or later for it.
#[tokio::test(start_paused = true)]
async fn who_only_looks_and_leaves_does_not_count_in_what_is_foreseen() {
    use paceline::limiter::Limiter;

    let limit = Interval::every(ms(1)).shared();
    limit.acquire(1).await.unwrap();
    let mut looks = limit.clone();
    let mut looking = Driven::new(std::future::poll_fn(move |cx| looks.poll_open(50, cx)));
    assert!(looking.poll().is_ready(), "told to wait");
    let mut ahead: Vec<_> = (0..100).map(|_| Driven::new(limit.acquire(1))).collect();
    for one in &mut ahead {
        assert!(one.poll().is_pending());
    }
    assert!(
        limit.acquire_within(1, ms(149)).await.is_err(),
        "the dear one first, as far as is known"
    );

    jump(ms(1)).await;
    assert!(looking.poll().is_ready(), "it could pass, and leaves");
    let mut in_time = Driven::new(limit.acquire_within(1, ms(100)));
    assert!(in_time.poll().is_pending());
}
