//! What a limit says that it has left.

use std::time::Duration;

use paceline::limiter::{Limiter, Mode, SwitchExt};
use paceline::policy::{All, FixedWindow, Interval, Policy, TokenBucket};
use paceline::time::Rate;

use super::keyed::end_queues;
use super::{MINUTE, a_minute_of, denied, log, passed, redis, wait_of};
use crate::servers::Server;

const HOUR: Duration = Duration::from_secs(3_600);

/// What is left, as the last reply said.
fn remaining(limit: &impl Limiter) -> u32 {
    limit.status().expect("there was a reply").remaining
}

#[tokio::test]
async fn each_reply_says_what_is_left_a_peek_counts_nothing_and_a_refund_gives_back() {
    let (_server, _redis, limit) = a_minute_of(5).await;
    assert_eq!(limit.status(), None);

    passed(limit.peek(5).await);
    limit.acquire(1).await.unwrap();
    assert_eq!(remaining(&limit), 4);
    passed(limit.peek(4).await);
    passed(limit.try_acquire(3).await);
    let status = limit.status().unwrap();
    assert_eq!((status.remaining, status.binding), (1, None));
    assert_eq!(status.quota, log(5).quota());
    assert!((MINUTE / 2..=MINUTE).contains(&status.reset_in));

    denied(limit.try_acquire(3).await);
    assert_eq!(remaining(&limit), 1, "of cost 1 one more would pass");
    assert_eq!(limit.try_acquire_up_to(0).await, Ok(0));
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(1));
    assert_eq!(remaining(&limit), 0);
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(0));
    denied(limit.peek(1).await);
    limit.refund(2).await.unwrap();
    assert_eq!(remaining(&limit), 2);
    assert_eq!(remaining(&limit.clone()), 2);
    passed(limit.try_acquire(2).await);
    denied(limit.try_acquire(1).await);
}

#[tokio::test]
async fn of_several_limits_the_binding_one_is_named_none_is_charged_and_the_least_left_is_the_status()
 {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let policy = All::new((
        TokenBucket::new(Rate::new(1, HOUR), 6),
        log(5),
        FixedWindow::new(9, HOUR),
    ));
    let limit = redis.limit("a", policy).unwrap();

    limit.acquire(2).await.unwrap();
    assert_eq!(limit.binding(), None, "nothing was denied");
    // The bucket has four, and the longest wait.
    assert!(wait_of(limit.try_acquire(5).await) > HOUR / 2);
    assert_eq!(limit.binding(), Some(0));
    for status in [limit.status().unwrap(), limit.fetch_status().await.unwrap()] {
        assert_eq!((status.remaining, status.binding), (3, Some(1)));
        assert_eq!(status.quota, policy.limits().1.quota());
        assert!((MINUTE / 2..=MINUTE).contains(&status.reset_in));
    }
}

#[tokio::test]
async fn permits_taken_ahead_are_left() {
    let (_server, redis, limit) = a_minute_of(10).await;
    let limit = limit.with_prefetch(4, MINUTE).unwrap();

    for left in (5..10).rev() {
        passed(limit.try_acquire(1).await);
        assert_eq!(remaining(&limit), left);
    }
    assert_eq!(redis.stats().answered, 1);
}

#[tokio::test]
async fn a_fetched_status_counts_nothing_and_knows_of_other_processes() {
    let server = Server::start().await;
    let (one, other) = (redis(&server).await, redis(&server).await);
    let policy = TokenBucket::new(Rate::new(1, HOUR), 9);
    let [here, there] = [one, other].map(|redis| redis.limit("a", policy).unwrap());

    let fresh = here.fetch_status().await.unwrap();
    assert_eq!((fresh.remaining, fresh.reset_in), (9, Duration::ZERO));
    assert_eq!(here.status(), None);

    here.acquire(1).await.unwrap();
    there.acquire(4).await.unwrap();
    assert_eq!((remaining(&here), remaining(&there)), (8, 4));
    for _ in 0..2 {
        let fresh = here.fetch_status().await.unwrap();
        assert_eq!((fresh.remaining, fresh.quota), (4, policy.quota()));
        assert!((HOUR * 4..=HOUR * 5).contains(&fresh.reset_in));
    }
    assert_eq!(remaining(&here), 8, "as old as the last round trip");
}

#[tokio::test]
async fn a_denial_and_a_status_are_kept_while_the_key_is_not_in_use() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let users = redis.keyed("users", Interval::every(HOUR)).unwrap();
    let ann = || users.at("ann").unwrap();
    ann().acquire(1).await.unwrap();
    assert!(wait_of(ann().try_acquire(1).await) > HOUR / 2);
    let before = ann().status().unwrap();

    end_queues(&users).await;
    let calls = redis.stats().answered;
    assert!(wait_of(ann().try_acquire(1).await) > HOUR / 2);
    assert_eq!(ann().binding(), Some(0));
    let after = ann().status().unwrap();
    assert_eq!(redis.stats().answered, calls, "the denial was cached");
    assert_eq!((after.remaining, after.quota), (0, before.quota));
    assert!((HOUR / 2..=before.reset_in).contains(&after.reset_in));
}

#[tokio::test]
async fn a_pause_leaves_nothing_and_a_limit_that_is_off_has_no_status() {
    let (_server, redis, limit) = a_minute_of(10).await;
    limit.acquire(1).await.unwrap();
    assert_eq!(remaining(&limit), 9);

    limit.pause_for(HOUR).await.unwrap();
    assert_eq!(limit.waiting(), 0);
    let waits = tokio::spawn({
        let limit = limit.clone();
        async move { limit.acquire(1).await }
    });
    while limit.waiting() < 1 {
        tokio::task::yield_now().await;
    }
    waits.abort();
    let _ = waits.await;
    assert_eq!(limit.waiting(), 0);
    let fetched = limit.fetch_status().await.unwrap();
    for status in [limit.status().unwrap(), fetched] {
        assert_eq!((status.remaining, status.quota.unwrap().permits), (0, 10));
        assert!((HOUR / 2..=HOUR).contains(&status.reset_in));
    }

    limit.resume().await.unwrap();
    assert_eq!(remaining(&limit), 9);
    let switch = redis.switch("a").unwrap();
    redis.set_mode("a", Mode::Off).await.unwrap();
    let switched = limit.clone().switched(&switch);
    assert_eq!(Limiter::status(&switched), None);
}
