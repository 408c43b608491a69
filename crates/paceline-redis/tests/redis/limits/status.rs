//! What a limit says that it has left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use paceline::limiter::{Limiter, Mode, SwitchExt};
use paceline::policy::{All, Decision, FixedWindow, Interval, Policy, SlidingLog, TokenBucket};
use paceline::time::Rate;

use super::keyed::end_queues;
use super::{MINUTE, redis, wait_of};
use crate::servers::Server;

const HOUR: Duration = Duration::from_secs(3_600);

/// What is left, as the last reply said.
fn remaining(limit: &impl Limiter) -> u32 {
    limit.status().expect("there was a reply").remaining
}

#[tokio::test]
async fn each_reply_says_what_is_left() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let policy = SlidingLog::new(5, MINUTE);
    let limit = redis.limit("a", policy).unwrap();
    assert_eq!(limit.status(), None);

    limit.acquire(1).await.unwrap();
    assert_eq!(remaining(&limit), 4);
    assert_eq!(limit.try_acquire(3).await, Ok(Decision::Pass));
    let status = limit.status().unwrap();
    assert_eq!((status.remaining, status.binding), (1, None));
    assert_eq!(status.quota, policy.quota());
    assert!((MINUTE / 2..=MINUTE).contains(&status.reset_in));

    assert!(!limit.try_acquire(3).await.unwrap().is_pass());
    assert_eq!(remaining(&limit), 1, "of cost 1 one more would pass");
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(1));
    assert_eq!(remaining(&limit), 0);
    limit.refund(2).await.unwrap();
    assert_eq!(remaining(&limit), 2);
    assert_eq!(remaining(&limit.clone()), 2);
}

#[tokio::test]
async fn the_status_of_several_limits_is_that_of_the_one_with_the_least_left() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let policy = All::new((
        TokenBucket::new(Rate::new(1, HOUR), 6),
        SlidingLog::new(5, MINUTE),
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
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(10, MINUTE)).unwrap();
    let limit = limit.with_prefetch(4, MINUTE).unwrap();

    for left in (5..10).rev() {
        assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
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
async fn a_status_is_kept_while_the_key_is_not_in_use() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let users = redis.keyed("users", Interval::every(HOUR)).unwrap();
    users.at("ann").unwrap().acquire(1).await.unwrap();
    assert!(wait_of(users.at("ann").unwrap().try_acquire(1).await) > HOUR / 2);
    let before = users.at("ann").unwrap().status().unwrap();

    end_queues(&users).await;
    let calls = redis.stats().answered;
    let ann = users.at("ann").unwrap();
    assert!(wait_of(ann.try_acquire(1).await) > HOUR / 2);
    assert_eq!(redis.stats().answered, calls, "the denial was cached");
    let after = ann.status().unwrap();
    assert_eq!((after.remaining, after.quota), (0, before.quota));
    assert!((HOUR / 2..=before.reset_in).contains(&after.reset_in));
}

/// The numbers were those of the old tier.
#[tokio::test]
async fn a_new_tier_has_no_status_before_its_first_reply() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let tier = Arc::new(AtomicU32::new(5));
    let tiers = Arc::clone(&tier);
    let policy_of = move |_: &str| SlidingLog::new(tiers.load(Ordering::Relaxed), MINUTE);
    let users = redis.keyed_by("users", policy_of).unwrap();
    let ann = || users.at("ann").unwrap();

    for is_in_use in [true, false] {
        ann().acquire(1).await.unwrap();
        let before = is_in_use.then(&ann);
        end_queues(&users).await;
        tier.fetch_add(5, Ordering::Relaxed);
        assert_eq!(ann().status(), None, "in use: {is_in_use}");
        assert_eq!(
            before.is_some_and(|before| remaining(&before) == 4),
            is_in_use
        );
    }
    ann().acquire(1).await.unwrap();
    assert_eq!(remaining(&ann()), 12);
}

#[tokio::test]
async fn a_pause_leaves_nothing_and_a_limit_that_is_off_has_no_status() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(10, MINUTE)).unwrap();
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
