//! A largest number of keys, and requests for new keys while all of them are in use.

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::{Keyed, Shared, WhenFull};
use paceline::policy::{Decision, Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;

use super::{bucket, queued, spawned, wait};
use crate::timed::{ms, now, since, sleep};

fn buckets(burst: u32) -> Keyed<u32, TokenBucket> {
    bucket(burst).keyed()
}

/// One key at most, which is in use for the time of an interval.
fn used(millis: u64) -> Keyed<u32, Interval> {
    let limits = Interval::every(ms(millis)).keyed().with_max_keys(1);
    assert!(limits.try_acquire(&0, 1).is_pass());
    limits
}

#[test]
#[should_panic(expected = "a keyed limit needs room for at least 1 key, got 0")]
fn room_for_no_key_is_refused() {
    let _ = buckets(1).with_max_keys(0);
}

#[tokio::test(start_paused = true)]
async fn when_there_is_no_room_a_new_key_waits_until_the_first_settles() {
    let start = now();
    let limits = buckets(2).with_max_keys(2);
    assert_eq!(limits.try_acquire(&1, 2), Decision::Pass);
    sleep(10).await;
    assert_eq!(limits.try_acquire(&2, 1), Decision::Pass);

    assert_eq!(limits.peek(&3, 1), wait(100), "that of 2, which spent less");
    assert_eq!(limits.peek(&3, 3), Decision::Never { capacity: 2 });
    limits.acquire(3, 1).await.unwrap();
    assert_eq!(since(start), 110);
    assert_eq!(limits.len(), 2);
    let stats = limits.stats();
    assert_eq!((stats.passed, stats.refused), (3, 0), "it has only waited");
    assert_eq!(
        limits.try_acquire(&1, 2),
        wait(90),
        "pressure never resets a key that binds"
    );
    assert_eq!(
        limits.try_acquire(&2, 2),
        wait(90),
        "forgotten, and now there is no room for it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rush_of_new_keys_resets_no_key_and_is_bounded() {
    let limits = buckets(1).with_max_keys(1_000);
    for key in 0..1_000 {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
    }
    for round in 0..10 {
        for key in 1_000..3_000 {
            assert!(!limits.try_acquire(&key, 1).is_pass(), "round {round}");
        }
        assert_eq!(limits.len(), 1_000);
        assert_eq!(limits.try_acquire(&7, 1), wait(100 - 10 * round));
        jump(ms(10)).await;
    }
    assert_eq!(
        limits.try_acquire(&1_000, 1),
        Decision::Pass,
        "they have settled"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_map_lets_new_keys_in_as_fast_as_the_old_ones_settle_and_each_gets_room() {
    let limits = Interval::every(ms(1_000)).keyed::<u32>().with_max_keys(100);
    for key in 0..100 {
        assert!(limits.try_acquire(&key, 1).is_pass());
    }
    jump(ms(1_000)).await;
    for key in 100..200 {
        assert!(limits.try_acquire(&key, 1).is_pass(), "{key}");
    }
    let start = now();
    let paced = stream::iter(1_000..1_300).pace_by_key(limits, |key| *key, 300);
    assert_eq!(paced.count().await, 300);
    assert!(start.elapsed() < ms(60_000), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn acquire_within_fails_at_once_or_waits_for_room_in_time() {
    let start = now();
    let limits = used(100);
    for key in [0, 1] {
        let refused = limits.acquire_within(key, 1, ms(99)).await.unwrap_err();
        assert!(refused.is_too_late());
        assert_eq!(refused.retry_in(), Some(ms(100)));
    }
    assert_eq!((since(start), limits.stats().refused), (0, 2));
    limits.acquire_within(1, 1, ms(100)).await.unwrap();
    assert_eq!(since(start), 100);

    for key in [1, 2] {
        limits.with(&1, |limit| limit.pause_for(ms(1_000)));
        let mut waits = queued(limits.acquire_within(key, 1, ms(1_500)));
        limits.with(&1, |limit| limit.pause_for(ms(60_000)));
        jump(ms(1_500)).await;
        let std::task::Poll::Ready(Err(refused)) = waits.poll() else {
            panic!("its time is over");
        };
        assert!(refused.is_too_late());
        assert_eq!(refused.retry_in(), Some(ms(58_500)));
        limits.with(&1, |limit| limit.resume());
    }
    assert_eq!((limits.stats().refused, limits.stats().waiting), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_room_asks_again_after_a_second_at_the_latest() {
    let limits = Interval::every(ms(10)).keyed::<u32>().with_max_keys(1);
    limits.with(&1, |limit| limit.pause_for(Duration::MAX));
    let passed = spawned([limits.acquire(2, 1)]);
    sleep(100).await;
    limits.with(&1, |limit| limit.resume());
    assert_eq!(limits.len(), 0);
    assert_eq!(passed.await, [1_000]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_request_for_room_holds_up_no_other() {
    let limits = used(100);
    let mut idle = queued(limits.acquire(1, 1));
    assert_eq!(limits.stats().waiting, 0, "it is in no queue");

    jump(ms(100)).await;
    assert!(idle.is_woken());
    limits.acquire(2, 1).await.unwrap();
    assert!(idle.poll().is_pending(), "the room is taken");
    jump(ms(100)).await;
    assert!(idle.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn when_full_may_pass_without_remembering_the_key() {
    let limits = buckets(1).with_max_keys(1).with_when_full(WhenFull::Pass);
    assert!(limits.try_acquire(&1, 1).is_pass());
    for _ in 0..3 {
        assert!(limits.try_acquire(&2, 1).is_pass());
        assert!(limits.peek(&2, 1).is_pass());
        limits.acquire(3, 1).await.unwrap();
    }
    assert_eq!(limits.try_acquire(&2, 2), Decision::Never { capacity: 1 });
    assert_eq!(
        limits.try_acquire(&1, 1),
        wait(100),
        "a remembered key is limited"
    );
    assert_eq!(limits.len(), 1);
    assert_eq!((limits.stats().passed, limits.stats().held_back), (7, 6));

    jump(ms(100)).await;
    assert!(limits.try_acquire(&2, 1).is_pass());
    assert_eq!(
        limits.try_acquire(&2, 1),
        wait(100),
        "there is room for it now"
    );
}

#[tokio::test(start_paused = true)]
async fn when_full_new_keys_may_share_one_limit_with_one_queue() {
    let shared = WhenFull::Share(Interval::every(ms(100)));
    let limits = Interval::every(ms(60_000)).keyed().with_max_keys(1);
    let limits = limits.with_when_full(shared);
    assert!(limits.try_acquire(&0, 1).is_pass());
    let passed = spawned([1, 2, 1, 3].map(|key| limits.acquire(key, 1)));
    sleep(10).await;
    assert_eq!(limits.stats().waiting, 3);
    assert_eq!(
        limits.try_acquire(&9, 1),
        wait(390),
        "behind the waiters of other keys"
    );
    assert_eq!(passed.await, [0, 100, 200, 300]);
    assert_eq!(limits.len(), 1);
    assert_eq!((limits.stats().passed, limits.stats().refused), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn options_can_be_given_in_any_order() {
    let pass = || WhenFull::<TokenBucket>::Pass;
    for limits in [
        buckets(1).with_max_keys(1).with_when_full(pass()),
        buckets(1).with_when_full(pass()).with_max_keys(1),
    ] {
        for key in 0..3 {
            assert!(limits.try_acquire(&key, 1).is_pass());
        }
        assert_eq!(limits.len(), 1);
    }
}

#[test]
fn a_map_of_keys_prints_no_key() {
    let limits = Interval::every(ms(100)).keyed::<String>();
    assert!(limits.try_acquire("secret", 1).is_pass());
    let text = format!("{limits:?} {:?}", limits.at("secret".to_owned()));
    assert!(!text.contains("secret"), "{text}");
}

/// A bucket of 2 for each key, one key at most, and that one is in use.
fn full(when_full: WhenFull<TokenBucket>) -> Keyed<u32, TokenBucket> {
    let limits = buckets(2).with_max_keys(1).with_when_full(when_full);
    assert!(limits.try_acquire(&1, 2).is_pass());
    limits
}

#[tokio::test(start_paused = true)]
async fn without_room_a_lent_limit_passes_nothing_and_its_key_is_not_remembered() {
    let share = TokenBucket::new(Rate::new(1, ms(100)), 1);
    for when_full in [WhenFull::Wait, WhenFull::Pass, WhenFull::Share(share)] {
        let limits = full(when_full);
        for key in 2..5 {
            for _ in 0..3 {
                let asked = limits.with(&key, |limit| {
                    limit.charge(1);
                    (limit.try_acquire(1), limit.status().unwrap().remaining)
                });
                assert!(matches!(asked, (Decision::Wait { .. }, 0)), "{asked:?}");
            }
        }
        assert_eq!(limits.len(), 1, "{when_full:?}");
        assert_eq!(limits.stats().passed, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn without_room_a_key_is_remembered_for_a_pause_for_parameters_and_for_what_remains() {
    let slow = TokenBucket::new(Rate::new(1, ms(1_000)), 2);
    let limits = full(WhenFull::Wait);
    limits.with(&2, |limit| limit.pause_for(ms(500)));
    limits.with(&3, |limit| limit.retune(slow));
    limits.with(&4, |limit| limit.set_remaining(1, ms(500)));
    assert_eq!(limits.len(), 4);
    let asked = |key| [2, 1, 1].map(|cost| limits.try_acquire(&key, cost));
    assert_eq!(asked(2), [wait(500); 3]);
    assert_eq!(asked(3), [Decision::Pass, wait(1_000), wait(1_000)]);
    assert_eq!(asked(4), [wait(500), Decision::Pass, wait(500)]);

    // A change that is taken back leaves nothing.
    limits.with(&5, |limit| {
        limit.pause_for(ms(500));
        limit.resume();
        let usual = limit.policy();
        limit.retune(slow);
        limit.retune(usual);
    });
    assert_eq!(limits.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_lent_without_room_has_one_limit_if_there_is_room_meanwhile() {
    let slow = TokenBucket::new(Rate::new(1, ms(1_000)), 2);
    let changes: [fn(&Shared<TokenBucket>, TokenBucket); 4] = [
        |_, _| (),
        |limit, _| limit.pause_for(ms(50)),
        |limit, slow| limit.retune(slow),
        |limit, _| limit.set_remaining(2, ms(50)),
    ];
    for change in changes {
        let limits = full(WhenFull::Wait);
        let mut requests = limits.with(&2, |limit| {
            limits.with(&1, |first| first.reset());
            limits.forget_settled();
            assert!(limit.try_acquire(2).retry_in().is_some());
            let requests = [(); 2].map(|()| queued(limits.acquire(2, 2)));
            change(limit, slow);
            requests
        });
        jump(ms(200)).await;
        let passed = requests.iter_mut().map(|request| request.poll().is_ready());
        assert_eq!(passed.collect::<Vec<_>>(), [true, false]);
        assert!(!limits.try_acquire(&2, 1).is_pass());
        assert_eq!(limits.len(), 1);
    }
}

/// The time in which nothing passes can end while the closure works.
#[tokio::test(start_paused = true)]
async fn what_passes_in_a_closure_that_is_late_is_spent() {
    let limits = used(60_000);
    let asked = limits.with(&2, |limit| {
        limits.with(&0, |first| first.reset());
        limits.forget_settled();
        let _ = queued(jump(ms(1_001)));
        (limit.try_acquire(1), limits.try_acquire(&2, 1))
    });
    assert_eq!(asked.0, Decision::Pass);
    assert!(!asked.1.is_pass());
    assert!(!limits.try_acquire(&2, 1).is_pass());
}

#[tokio::test(start_paused = true)]
async fn without_room_a_request_that_leaves_the_closure_waits_until_there_may_be_some() {
    let start = now();
    let limits = full(WhenFull::Wait);
    limits
        .with(&2, |limit| limit.acquire_owned(2))
        .await
        .unwrap();
    assert_eq!(since(start), 200, "when the first key has settled");
}

#[tokio::test(start_paused = true)]
async fn a_retune_through_a_clone_that_has_left_the_closure_survives() {
    let limits = buckets(2);
    let clone = limits.with(&1, Shared::clone);
    let slow = TokenBucket::new(Rate::new(1, ms(1_000)), 2);
    clone.retune(slow);
    drop(clone);
    jump(ms(60_000)).await;
    limits.forget_settled();
    assert_eq!(limits.with(&1, |limit| limit.policy()), slow);
    limits.forget(&1);
    assert!(limits.is_empty());

    // While the clone lives, it is a handle of the key's limit.
    let clone = limits.with(&2, Shared::clone);
    assert!(clone.try_acquire(2).is_pass());
    jump(ms(60_000)).await;
    limits.forget_settled();
    assert!(limits.try_acquire(&2, 2).is_pass());
    assert!(!clone.try_acquire(1).is_pass());
}

#[tokio::test(start_paused = true)]
async fn the_closure_may_use_the_limits_and_lend_other_keys() {
    let limits = buckets(2);
    let sum = limits.with(&1, |one| {
        limits.with(&2, |two| {
            assert!(limits.try_acquire(&1, 1).is_pass());
            one.status().unwrap().remaining + two.status().unwrap().remaining
        })
    });
    assert_eq!(sum, 3);
}
