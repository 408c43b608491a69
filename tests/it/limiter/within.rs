use futures::FutureExt;
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn fails_at_once_when_the_queue_ahead_takes_too_long() {
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
async fn fails_at_the_deadline_when_the_limit_has_become_stricter() {
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
async fn a_refusal_costs_nothing_and_leaves_the_queue() {
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
async fn a_cost_too_large_differs_from_a_wait_too_long() {
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
async fn within_no_time_means_now_or_never() {
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
async fn within_the_longest_time_it_waits() {
    let limit = Interval::every(ms(86_400_000)).shared();
    limit.acquire(1).await.unwrap();
    limit.acquire_within(1, Duration::MAX).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_a_waiter_ahead_leaves_the_answer_changes() {
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

/// The queue is simulated once for many requests. The estimate is never too long.
#[tokio::test(start_paused = true)]
async fn a_long_queue_is_estimated_too() {
    let start = now();
    let limit = Interval::every(ms(1)).shared();
    let mut ahead: Vec<_> = (0..1_000).map(|_| Driven::new(limit.acquire(1))).collect();
    for one in &mut ahead {
        let _ = one.poll();
    }

    assert!(limit.acquire_within(1, ms(999)).await.is_err());
    assert_eq!(since(start), 0);

    // Half of them leave. Until the next simulation there is no estimate, so the request is queued.
    ahead.truncate(500);
    let mut unsure = Driven::new(limit.acquire_within(1, ms(499)));
    let unsure_at_first = unsure.poll().is_pending();
    let mut in_time = Driven::new(limit.acquire_within(1, ms(501)));
    assert!(in_time.poll().is_pending());
    assert!(unsure_at_first || since(start) == 0);
}

/// A look spends nothing, so it does not delay the waiters behind it.
#[tokio::test(start_paused = true)]
async fn a_look_that_passes_does_not_count_in_the_estimate() {
    use paceline::limiter::Limiter;

    let limit = Interval::every(ms(1)).shared();
    limit.acquire(1).await.unwrap();
    let mut looks = limit.clone();
    let mut looking = Driven::new(std::future::poll_fn(move |cx| looks.poll_open(50, cx)));
    assert!(looking.poll().is_ready(), "it has to wait");
    let mut ahead: Vec<_> = (0..100).map(|_| Driven::new(limit.acquire(1))).collect();
    for one in &mut ahead {
        assert!(one.poll().is_pending());
    }
    assert!(
        limit.acquire_within(1, ms(149)).await.is_err(),
        "the look at 50 permits comes first"
    );

    jump(ms(1)).await;
    assert!(looking.poll().is_ready(), "it could pass, and leaves");
    let mut in_time = Driven::new(limit.acquire_within(1, ms(100)));
    assert!(in_time.poll().is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_when_the_request_could_have_passed() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let retry_in =
        |refused: Result<(), paceline::limiter::AcquireError>| refused.unwrap_err().retry_in();
    assert_eq!(
        retry_in(limit.acquire_within(1, ms(50)).await),
        Some(ms(100))
    );

    let mut ahead = Driven::new(limit.acquire(3));
    assert!(ahead.poll().is_pending());
    let behind = limit.acquire_within(1, ms(399)).await;
    assert_eq!(retry_in(behind), Some(ms(400)), "behind the queue");
    drop(ahead);

    let users = Interval::every(ms(100)).keyed::<&str>();
    users.acquire("ann", 1).await.unwrap();
    jump(ms(30)).await;
    let refused = users.acquire_within("ann", 1, ms(50)).await;
    assert_eq!(retry_in(refused), Some(ms(70)));

    let bucket = TokenBucket::new(Rate::per_second(1), 3).shared();
    let never = bucket.acquire_within(4, ms(50)).await;
    assert_eq!(retry_in(never), None);
    assert_eq!(bucket.acquire(4).await.unwrap_err().retry_in(), None);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_its_time_a_request_says_how_long_a_retry_takes() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut waits = Driven::new(limit.acquire_within(1, ms(150)));
    assert!(waits.poll().is_pending());
    jump(ms(50)).await;
    limit.pause_for(ms(1_000));
    let mut behind = Driven::new(limit.acquire(2));
    assert!(behind.poll().is_pending());

    // It is polled 20 ms after its time is over.
    jump(ms(120)).await;
    let refused = waits.into_inner().await.unwrap_err();
    let behind_the_other = ms(1_000 - 120 + 200);
    assert_eq!(refused.retry_in(), Some(behind_the_other));
    assert!(refused.is_too_late());
    assert_eq!((limit.waiting(), limit.stats().refused), (1, 1));
    assert_eq!(
        limit.peek(1).retry_in(),
        Some(behind_the_other),
        "no second question"
    );
}

/// The limit becomes too small for the request while it waits, and the pause ends with its time.
#[tokio::test(start_paused = true)]
async fn there_is_no_retry_for_a_request_that_can_no_longer_pass() {
    let bucket = |burst| TokenBucket::new(Rate::new(1, ms(100)), burst);
    let limit = bucket(3).shared();
    limit.acquire(3).await.unwrap();
    let mut waits = Driven::new(limit.acquire_within(3, ms(350)));
    assert!(waits.poll().is_pending());
    limit.retune(bucket(2));
    let refused = waits.into_inner().await.unwrap_err();
    assert!(refused.is_too_costly());
    assert_eq!(refused.retry_in(), None);
}

#[tokio::test(start_paused = true)]
async fn a_key_without_room_says_when_there_may_be_some() {
    let users = Interval::every(ms(100)).keyed::<u32>().with_max_keys(1);
    users.acquire(1, 1).await.unwrap();
    jump(ms(10)).await;
    let refused = users.acquire_within(2, 1, ms(50)).await.unwrap_err();
    assert_eq!(refused.retry_in(), Some(ms(90)));
    let mut waits = Driven::new(users.acquire_within(2, 1, ms(95)));
    assert!(waits.poll().is_pending());
    users.with(&1, |limit| limit.pause_for(ms(500)));
    jump(ms(95)).await;
    assert_eq!(
        waits.into_inner().await.unwrap_err().retry_in(),
        Some(ms(405))
    );
}
