use std::time::Duration;

use paceline::limiter::Keyed;
use paceline::policy::{Decision, Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;

use super::{bucket, queued, spawned, wait};
use crate::timed::{ms, sleep};

fn buckets(burst: u32) -> Keyed<u32, TokenBucket> {
    bucket(burst).keyed()
}

#[tokio::test(start_paused = true)]
async fn keys_share_nothing() {
    let limits = buckets(2);

    assert_eq!(limits.try_acquire(&1, 2), Decision::Pass);
    assert_eq!(limits.try_acquire(&1, 1), wait(100));
    assert_eq!(limits.try_acquire(&2, 2), Decision::Pass);
    assert_eq!(limits.try_acquire(&1, 3), Decision::Never { capacity: 2 });
    assert_eq!(limits.peek(&3, 2), Decision::Pass);
    assert_eq!(limits.len(), 2, "a look is not remembered");
}

#[tokio::test(start_paused = true)]
async fn a_key_may_have_parameters_of_its_own() {
    let limits = Keyed::by(|key: &u32| Interval::every(ms(100) * *key));
    for key in [1, 2, 3] {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
        assert_eq!(limits.try_acquire(&key, 1), wait(100 * u64::from(key)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_has_settled_is_forgotten_when_others_come() {
    // With a number of keys there is one shard, so that the counts are exact.
    let limits = buckets(1).with_max_keys(1_000);
    for key in 0..64 {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
    }
    jump(ms(50)).await;
    for key in 64..100 {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
    }
    assert_eq!(limits.len(), 100);
    jump(ms(50)).await;
    // They sweep as they come. So many sweep every place, however often the table grows meanwhile.
    for key in 100..500 {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
    }
    assert_eq!(limits.len(), 436);
    for key in 64..100 {
        assert_eq!(
            limits.try_acquire(&key, 1),
            wait(50),
            "keys that bind are remembered"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_settled_key_goes_with_its_last_waiter() {
    let limits = buckets(1);
    limits.acquire(1, 1).await.unwrap();
    let waits = queued(limits.acquire(1, 1));
    jump(ms(500)).await;
    drop(waits);
    assert_eq!(limits.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_new_parameters_concern_one_key_and_reach_its_waiters() {
    let limits = Interval::every(ms(60_000)).keyed::<u32>();
    limits.acquire(1, 1).await.unwrap();
    let passed = spawned([limits.acquire(1, 1)]);
    sleep(10).await;
    limits.with(&1, |limit| limit.retune(Interval::every(ms(100))));
    limits.with(&1, |limit| limit.pause_for(ms(500)));
    assert_eq!(limits.try_acquire(&2, 1), Decision::Pass);
    assert_eq!(passed.await, [510]);

    limits.with(&3, |limit| limit.pause_for(Duration::MAX));
    assert!(!limits.try_acquire(&3, 1).is_pass());
    limits.with(&3, |limit| limit.resume());
    assert_eq!(limits.try_acquire(&3, 1), Decision::Pass);

    jump(ms(1_000_000)).await;
    assert_eq!(limits.try_acquire(&1, 1), Decision::Pass);
    assert_eq!(
        limits.try_acquire(&1, 1),
        wait(100),
        "it keeps its own parameters"
    );
}

/// A known limitation: to remember what has settled would be to remember every key.
#[tokio::test(start_paused = true)]
async fn slower_parameters_do_not_count_permits_of_a_key_that_had_settled() {
    let limits = Interval::every(ms(10)).keyed();
    for key in [1, 2] {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
    }
    sleep(10).await;
    limits.with(&1, |limit| limit.resume());
    assert_eq!(limits.len(), 1, "it had settled");

    for (key, decision) in [(1, Decision::Pass), (2, wait(90))] {
        limits.with(&key, |limit| limit.retune(Interval::every(ms(100))));
        assert_eq!(limits.try_acquire(&key, 1), decision);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_may_be_asked_for_in_a_borrowed_form() {
    let limits = bucket(2).keyed::<String>();
    assert!(limits.try_acquire("ann", 2).is_pass());
    assert_eq!(limits.peek("ann", 1), wait(100));
    limits.with("ann", |limit| limit.refund(1));
    assert!(limits.try_acquire("ann", 1).is_pass());
    limits.forget("ann");
    let owned = "ann".to_owned();
    assert_eq!(limits.try_acquire(&owned, 1), wait(100), "the same key");
}

#[tokio::test(start_paused = true)]
async fn a_refund_concerns_one_key_and_wakes_its_head() {
    let limits = buckets(2);
    for key in [1, 2] {
        assert!(limits.try_acquire(&key, 2).is_pass());
    }
    let [mut first, second] = [1, 2].map(|key| queued(limits.acquire(key, 1)));
    limits.with(&1, |limit| limit.refund(1));
    assert!(first.is_woken() && !second.is_woken());
    assert!(first.poll().is_ready());

    limits.with(&3, |limit| limit.refund(1));
    assert_eq!(
        limits.len(),
        2,
        "a key that has spent nothing is not remembered"
    );
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_key_has_spent_what_it_spent_under_the_common_parameters() {
    let limits = Interval::every(ms(100)).keyed::<u32>();
    limits.with(&1, |limit| limit.retune(Interval::every(ms(1_000))));
    limits.with(&1, |limit| limit.pause_for(ms(5_000)));
    let passed = spawned([limits.acquire(1, 1)]);
    sleep(10).await;

    limits.forget(&1);
    assert_eq!(passed.await, [10], "no pause any more");
    assert_eq!(limits.try_acquire(&1, 1), wait(100));
    jump(ms(100)).await;
    limits.forget(&1);
    assert_eq!(limits.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reset_key_begins_anew_and_its_waiters_feel_it_at_once() {
    let limits = Interval::every(ms(60_000)).keyed::<u32>();
    assert!(limits.try_acquire(&1, 1).is_pass());
    limits.with(&1, |limit| limit.reset());
    assert!(limits.try_acquire(&1, 1).is_pass(), "without waiters");

    let passed = spawned([(); 2].map(|()| limits.acquire(1, 1)));
    sleep(10).await;
    limits.with(&1, |limit| limit.reset());
    assert_eq!(passed.await, [10, 60_010]);

    limits.with(&2, |limit| limit.reset());
    assert_eq!(limits.len(), 1, "an unknown key stays unknown");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_retuned_keys_go_when_they_are_forgotten_or_have_the_common_parameters() {
    let common = Interval::every(ms(100));
    let limits = common.keyed::<u32>().with_max_keys(100);
    for key in 0..10_000 {
        limits.with(&key, |limit| limit.retune(Interval::every(ms(1_000))));
        assert!(limits.try_acquire(&key, 1).is_pass());
    }
    jump(ms(3_600_000)).await;
    assert_eq!(
        limits.len(),
        10_000,
        "parameters of their own are remembered"
    );
    for key in 0..10_000 {
        if key % 2 == 0 {
            limits.forget(&key);
        } else {
            limits.with(&key, |limit| limit.retune(common));
        }
    }
    assert_eq!(limits.len(), 0);
    assert!(limits.try_acquire(&1, 1).is_pass());
    assert_eq!(limits.try_acquire(&1, 1), wait(100));
}

#[tokio::test(start_paused = true)]
async fn a_key_with_the_common_rate_in_another_unit_answers_as_before() {
    let limits = TokenBucket::new(Rate::per_second(1), 2).keyed::<u32>();
    sleep(10_000).await;
    assert!(limits.try_acquire(&1, 2).is_pass());
    let in_minutes = TokenBucket::new(Rate::per_minute(60), 2);
    limits.with(&1, |limit| limit.retune(in_minutes));
    assert_eq!(limits.try_acquire(&1, 1), wait(1_000));
}

#[tokio::test(start_paused = true)]
async fn a_retuned_key_that_binds_goes_when_it_has_settled() {
    let common = Interval::every(ms(100));
    let limits = common.keyed::<u32>();
    limits.with(&1, |limit| limit.retune(Interval::every(ms(1_000))));
    assert!(limits.try_acquire(&1, 1).is_pass());
    limits.with(&1, |limit| limit.retune(common));
    assert_eq!(limits.len(), 1);
    jump(ms(1_000)).await;
    limits.forget_settled();
    assert_eq!(limits.len(), 0);
}
