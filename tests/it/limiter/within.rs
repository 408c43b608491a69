//! Requests with a deadline, of which those that would be late are refused at once.

use std::future::poll_fn;
use std::task::Poll;

use futures::FutureExt;
use paceline::limiter::Limiter;
use paceline::policy::Interval;
use paceline::prelude::*;
use testkit::clock::jump;
use testkit::wakes::Driven;

use super::{bucket, queued, spawned, too_costly, used, wait};
use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn fails_at_once_when_the_queue_ahead_takes_too_long_and_leaves_it() {
    let start = now();
    let limit = used(100);
    let ahead = spawned([(); 4].map(|()| limit.acquire_owned(1)));
    tokio::task::yield_now().await;

    for _ in 0..10 {
        let refused = limit.acquire_within(1, ms(499)).await.unwrap_err();
        assert!(refused.is_too_late() && !refused.is_too_costly());
        assert_eq!(refused.to_string(), "could not pass within 499ms");
        assert_eq!(refused.retry_in(), Some(ms(500)));
    }
    assert_eq!(since(start), 0);
    limit.acquire_within(1, ms(500)).await.unwrap();
    assert_eq!(since(start), 500);
    assert_eq!(ahead.await, [100, 200, 300, 400]);
}

#[tokio::test(start_paused = true)]
async fn a_cost_too_large_differs_from_a_wait_too_long_and_has_no_retry() {
    let limit = bucket(3).shared();
    limit.acquire(3).await.unwrap();
    let refused = limit.acquire_within(4, ms(1)).await.unwrap_err();
    assert!(!refused.is_too_late() && refused.limit().is_none());
    assert_eq!((too_costly(refused), refused.retry_in()), ((4, 3), None));
    assert_eq!(
        refused.to_string(),
        "a cost of 4 can never pass a limit of 3 at once"
    );
    assert_eq!(limit.acquire(4).await.unwrap_err().retry_in(), None);

    // The limit becomes too small for it while it waits.
    let waits = queued(limit.acquire_within(3, ms(350)));
    limit.retune(bucket(2));
    let refused = waits.into_inner().await.unwrap_err();
    assert_eq!((too_costly(refused), refused.retry_in()), ((3, 2), None));
}

#[tokio::test(start_paused = true)]
async fn within_no_time_means_now_or_never() {
    let limit = bucket(1).shared();
    for (cost, passes) in [(1, true), (1, false), (0, true)] {
        let asked = limit.acquire_within(cost, ms(0)).now_or_never();
        assert_eq!(asked.unwrap().is_ok(), passes);
    }
}

#[tokio::test(start_paused = true)]
async fn within_the_longest_time_it_waits() {
    let limit = used(86_400_000);
    limit.acquire_within(1, Duration::MAX).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_time_begins_at_the_first_poll() {
    let limit = used(100);
    let acquire = limit.acquire_within(1, ms(50));
    jump(ms(60)).await;
    assert!(acquire.await.is_ok(), "40 ms are left of the interval");
}

#[tokio::test(start_paused = true)]
async fn a_late_poll_takes_a_permit_that_is_there() {
    let limit = used(100);
    let mut acquire = queued(limit.acquire_within(1, ms(100)));
    jump(ms(300)).await;
    assert!(matches!(acquire.poll(), Poll::Ready(Ok(()))));
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
    let _in_time = queued(limit.acquire_within(1, ms(501)));
    assert!(unsure_at_first || since(start) == 0);
}

/// A look spends nothing, so it does not delay the waiters behind it.
#[tokio::test(start_paused = true)]
async fn a_look_that_passes_does_not_count_in_the_estimate() {
    let limit = used(1);
    let mut looks = limit.clone();
    let mut looking = Driven::new(poll_fn(move |cx| looks.poll_open(50, cx)));
    assert!(looking.poll().is_ready(), "it has to wait");
    let _ahead: Vec<_> = (0..100).map(|_| queued(limit.acquire(1))).collect();
    assert!(
        limit.acquire_within(1, ms(149)).await.is_err(),
        "the look at 50 permits comes first"
    );

    jump(ms(1)).await;
    assert!(looking.poll().is_ready(), "it could pass, and leaves");
    let _in_time = queued(limit.acquire_within(1, ms(100)));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_its_time_a_request_leaves_and_says_how_long_a_retry_takes() {
    let start = now();
    let limit = used(100);
    let in_time = tokio::spawn(limit.acquire_within(1, ms(150)));
    tokio::task::yield_now().await;
    let late = queued(limit.acquire_within(1, ms(200)));
    sleep(50).await;
    limit.pause_for(ms(1_000));
    let _behind = queued(limit.acquire(2));
    assert!(in_time.await.unwrap().unwrap_err().is_too_late());
    assert_eq!(since(start), 150);

    // It is polled 20 ms after its time is over.
    jump(ms(70)).await;
    let refused = late.into_inner().await.unwrap_err();
    let behind_the_other = wait(1_050 - 220 + 200);
    assert_eq!(refused.retry_in(), behind_the_other.retry_in());
    assert!(refused.is_too_late());
    assert_eq!((limit.waiting(), limit.stats().refused), (1, 2));
    assert_eq!(limit.peek(1), behind_the_other, "no second question");
}
