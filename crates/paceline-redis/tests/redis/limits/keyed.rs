use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::{Limits, Share, Switch, Switched};
use paceline::policy::{Decision, Interval, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Clock, Rate};
use paceline_redis::{OutagePolicy, Redis, RedisKeyed, RedisPolicy};

use super::{MINUTE, pause, redis, wait_of};
use crate::failing;
use crate::servers::Server;

/// One permit a minute for each key.
async fn one_a_minute(server: &Server) -> (Redis, RedisKeyed<SlidingLog>) {
    let redis = redis(server).await;
    let keyed = redis.keyed("users", SlidingLog::new(1, MINUTE)).unwrap();
    (redis, keyed)
}

/// Ends the queues of all keys that are not in use.
pub(super) async fn end_queues<P: RedisPolicy>(keyed: &RedisKeyed<P>) {
    // The task that asked for a key may not have put it down yet.
    pause(Duration::from_millis(50)).await;
    keyed.forget_settled();
}

#[tokio::test]
async fn the_lost_state_of_a_key_that_is_not_in_use_is_detected() {
    let server = Server::start().await;
    let (redis, keyed) = one_a_minute(&server).await;

    assert_eq!(
        keyed.at("ann").unwrap().try_acquire(1).await,
        Ok(Decision::Pass)
    );
    end_queues(&keyed).await;
    assert_eq!(keyed.remembered(), 1);
    server.flush_all().await;

    assert!(wait_of(keyed.at("ann").unwrap().try_acquire(1).await) > MINUTE / 2);
    assert_eq!(redis.stats().lost_states, 1);
}

#[tokio::test]
async fn the_denial_of_a_key_that_is_not_in_use_needs_no_call() {
    let server = Server::start().await;
    let (redis, keyed) = one_a_minute(&server).await;

    assert_eq!(
        keyed.at("ann").unwrap().try_acquire(1).await,
        Ok(Decision::Pass)
    );
    assert!(wait_of(keyed.at("ann").unwrap().try_acquire(1).await) > MINUTE / 2);
    end_queues(&keyed).await;
    let answered = redis.stats().answered;

    assert!(wait_of(keyed.at("ann").unwrap().try_acquire(1).await) > MINUTE / 2);
    assert_eq!(keyed.at("ann").unwrap().binding(), Some(0));
    assert_eq!(redis.stats().answered, answered);
}

#[tokio::test]
async fn a_forgotten_key_is_limited_as_before_and_a_lost_state_of_it_is_not_detected() {
    let server = Server::start().await;
    let (redis, keyed) = one_a_minute(&server).await;

    assert_eq!(
        keyed.at("ann").unwrap().try_acquire(1).await,
        Ok(Decision::Pass)
    );
    end_queues(&keyed).await;
    keyed.forget("ann");
    assert_eq!(keyed.remembered(), 0);
    assert!(wait_of(keyed.at("ann").unwrap().try_acquire(1).await) > MINUTE / 2);

    end_queues(&keyed).await;
    keyed.forget("ann");
    server.flush_all().await;
    assert_eq!(
        keyed.at("ann").unwrap().try_acquire(1).await,
        Ok(Decision::Pass)
    );
    assert_eq!(redis.stats().lost_states, 0);
}

#[tokio::test]
async fn keys_that_have_settled_are_forgotten_and_others_are_not() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let keyed = redis.keyed_by("users", |key| match key {
        "short" => SlidingLog::new(1, Duration::from_millis(20)),
        _ => SlidingLog::new(1, MINUTE),
    });
    let keyed = keyed.unwrap();

    for key in ["short", "long"] {
        assert_eq!(
            keyed.at(key).unwrap().try_acquire(1).await,
            Ok(Decision::Pass)
        );
    }
    keyed.at("never asked").unwrap();
    assert_eq!(keyed.remembered(), 3);
    pause(Duration::from_millis(100)).await;
    keyed.forget_settled();
    assert_eq!(keyed.remembered(), 1);
    keyed.forget("long");
    assert_eq!(keyed.remembered(), 0);
}

#[tokio::test]
async fn a_key_in_use_is_neither_evicted_nor_forgotten() {
    let server = Server::start().await;
    let (_redis, keyed) = one_a_minute(&server).await;
    let keyed = keyed.with_max_keys(1).unwrap();

    let ann = keyed.at("ann").unwrap();
    assert_eq!(ann.try_acquire(1).await, Ok(Decision::Pass));
    end_queues(&keyed).await;
    keyed.forget("ann");
    assert_eq!(keyed.remembered(), 1);
    assert_eq!(
        keyed.at("bob").unwrap().try_acquire(1).await,
        Ok(Decision::Pass)
    );
    assert!(wait_of(keyed.at("bob").unwrap().try_acquire(1).await) > MINUTE / 2);
    assert_eq!(keyed.remembered(), 1);

    drop(ann);
    end_queues(&keyed).await;
    assert!(wait_of(keyed.at("bob").unwrap().try_acquire(1).await) > MINUTE / 2);
    keyed.forget("ann");
    assert_eq!(keyed.remembered(), 1, "bob took the place of ann");
}

#[tokio::test]
async fn the_keys_asked_for_the_longest_time_ago_are_evicted_first() {
    let server = Server::start().await;
    let (redis, keyed) = one_a_minute(&server).await;
    let keyed = keyed.with_max_keys(16).unwrap();

    for key in 0..40 {
        let answer = keyed.at(&key.to_string()).unwrap().try_acquire(1).await;
        assert_eq!(answer, Ok(Decision::Pass));
        pause(Duration::from_millis(5)).await;
        assert!(keyed.remembered() <= 16, "{}", keyed.remembered());
    }
    assert!(keyed.remembered() >= 14, "{}", keyed.remembered());
    server.flush_all().await;
    for key in 30..40 {
        assert!(wait_of(keyed.at(&key.to_string()).unwrap().try_acquire(1).await) > MINUTE / 2);
    }
    assert_eq!(redis.stats().lost_states, 10);
    assert_eq!(
        keyed.at("0").unwrap().try_acquire(1).await,
        Ok(Decision::Pass)
    );
}

#[test]
fn room_for_no_key_is_refused() {
    let redis = Redis::open("redis://127.0.0.1/", OutagePolicy::closed()).unwrap();
    let keyed = redis.keyed("users", SlidingLog::new(1, MINUTE)).unwrap();
    let error = keyed.with_max_keys(0).unwrap_err().to_string();
    assert!(error.ends_with("at least 1 key, got 0"), "{error}");
}

/// While handles come and go and keys are evicted, no key has two insurances: each would pass the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_never_has_two_insurances() {
    const PER_SECOND: u32 = 50;
    let mut server = Server::start().await;
    let redis = failing::redis(&server.url(), OutagePolicy::insured(1)).await;
    let bucket = TokenBucket::new(Rate::per_second(PER_SECOND), 1);
    let keyed = redis
        .keyed("users", bucket)
        .unwrap()
        .with_max_keys(3)
        .unwrap();
    for key in ["a", "b", "c"] {
        keyed.at(key).unwrap().acquire(1).await.unwrap();
    }
    server.kill();
    keyed.at("a").unwrap().acquire(1).await.unwrap();

    let passed = Arc::new([const { AtomicU32::new(0) }; 3]);
    let mut clock = Clock::new();
    let began = clock.now();
    let until = began.after(Duration::from_secs(1));
    let tasks = (0..8).map(|task| {
        let (keyed, passed) = (keyed.clone(), Arc::clone(&passed));
        let mut clock = clock.clone();
        tokio::spawn(async move {
            for n in task.. {
                if clock.now() >= until {
                    return;
                }
                let key = n % 3;
                let handle = keyed.at(["a", "b", "c"][key]).unwrap();
                let clone = handle.clone();
                drop(handle);
                if clone.try_acquire(1).await.unwrap().is_pass() {
                    passed[key].fetch_add(1, Ordering::Relaxed);
                }
                drop(clone);
                match n % 5 {
                    0 => keyed.forget_settled(),
                    1 => keyed.forget(["a", "b", "c"][key]),
                    _ => drop(keyed.at(&n.to_string()).unwrap()),
                }
            }
        })
    });
    futures::future::join_all(tasks).await;
    // The outage began a little before.
    let millis = clock.now().since(began).as_millis() + 2_000;
    let most = u32::try_from(millis).unwrap() * PER_SECOND / 1_000 + 1;
    for passed in passed.iter() {
        let passed = passed.load(Ordering::Relaxed);
        assert!((1..=most).contains(&passed), "{passed} of {most}");
    }
}

#[tokio::test]
async fn a_long_key_is_refused_or_hashed_by_choice() {
    let server = Server::start().await;
    let (_, refusing) = one_a_minute(&server).await;
    let long = |end: &str| "x".repeat(200) + end;
    let error = refusing.at(&long("a")).unwrap_err().to_string();
    assert!(
        error.ends_with("has 1 to 200 bytes, got 201; `with_long_keys_hashed` takes longer ones"),
        "{error}"
    );

    let hashing = refusing.with_long_keys_hashed();
    let keys = |key: &str| hashing.at(key).unwrap().keys()[0].clone();
    assert_eq!(
        keys(&long("a")),
        "paceline:users:{sha1=b49a11283986aa193012688c8077d34e38747d1d}:sliding_log:2"
    );
    assert_eq!(
        keys("sha1=b49a11283986aa193012688c8077d34e38747d1d"),
        "paceline:users:{sha1%3Db49a11283986aa193012688c8077d34e38747d1d}:sliding_log:2"
    );
    assert_eq!(
        keys(&long("")),
        format!("paceline:users:{{{}}}:sliding_log:2", long(""))
    );
    assert!(hashing.at("").is_err());

    let (_, elsewhere) = one_a_minute(&server).await;
    let elsewhere = elsewhere.with_long_keys_hashed();
    for key in [long("a"), long("b")] {
        assert_eq!(
            hashing.at(&key).unwrap().try_acquire(1).await,
            Ok(Decision::Pass)
        );
        assert!(wait_of(elsewhere.at(&key).unwrap().try_acquire(1).await) > MINUTE / 2);
    }
}

#[tokio::test]
async fn a_new_tier_holds_from_the_next_handle_and_what_was_spent_stays_spent() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    for is_in_use in [true, false] {
        let has_paid = Arc::new(AtomicBool::new(false));
        let tiers = Arc::clone(&has_paid);
        let policy_of = move |_: &str| {
            let has_paid = tiers.load(Ordering::Relaxed);
            SlidingLog::new(if has_paid { 5 } else { 2 }, MINUTE)
        };
        let users = redis.keyed_by(&format!("users {is_in_use}"), policy_of);
        let users = users.unwrap();

        let before = users.at("ann").unwrap();
        before.acquire(2).await.unwrap();
        assert!(wait_of(before.try_acquire(1).await) > MINUTE / 2);
        let before = is_in_use.then_some(before);
        end_queues(&users).await;

        has_paid.store(true, Ordering::Relaxed);
        assert_eq!(
            users.at("ann").unwrap().try_acquire(3).await,
            Ok(Decision::Pass)
        );
        assert!(wait_of(users.at("ann").unwrap().try_acquire(1).await) > MINUTE / 2);
        assert_eq!(users.remembered(), 1);
        if let Some(before) = &before {
            assert_eq!(before.policy().limit(), 2);
            assert!(wait_of(before.try_acquire(1).await) > MINUTE / 2);
        }
        end_queues(&users).await;

        has_paid.store(false, Ordering::Relaxed);
        assert!(wait_of(users.at("ann").unwrap().try_acquire(1).await) > MINUTE / 2);
        assert!(
            users
                .at("ann")
                .unwrap()
                .acquire(3)
                .await
                .unwrap_err()
                .is_too_costly()
        );
    }
    assert_eq!(redis.stats().lost_states, 0);
}

/// The insurance of the new tier begins with everything spent, and the old handle has none any more.
#[tokio::test]
async fn a_new_tier_during_an_outage_passes_no_more_than_its_insurance() {
    let mut server = Server::start().await;
    let redis = failing::redis(&server.url(), OutagePolicy::insured(1)).await;
    let has_paid = Arc::new(AtomicBool::new(false));
    let tiers = Arc::clone(&has_paid);
    let users = redis.keyed_by("users", move |_| {
        if tiers.load(Ordering::Relaxed) {
            TokenBucket::new(Rate::per_minute(1), 9)
        } else {
            TokenBucket::new(Rate::per_second(100), 9)
        }
    });
    let users = users.unwrap();
    let before = users.at("ann").unwrap();
    before.acquire(1).await.unwrap();
    server.kill();
    before.acquire(1).await.unwrap();

    has_paid.store(true, Ordering::Relaxed);
    let after = users.at("ann").unwrap();
    pause(Duration::from_millis(100)).await;
    assert!(!before.try_acquire(1).await.unwrap().is_pass());
    assert!(!after.try_acquire(1).await.unwrap().is_pass());
}

#[tokio::test]
async fn a_policy_that_cannot_be_used_is_an_error_for_its_keys_only() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let users = redis.keyed_by("users", |key| match key {
        "delayed" => Interval::every(MINUTE).with_delayed_start(),
        _ => Interval::every(MINUTE),
    });
    let users = users.unwrap();

    assert_eq!(
        users.at("ann").unwrap().try_acquire(1).await,
        Ok(Decision::Pass)
    );
    let error = users.at("delayed").unwrap_err().to_string();
    assert!(error.contains("lets the first pass at once"), "{error}");
    assert_eq!(users.remembered(), 1);
}

#[tokio::test]
async fn permits_of_a_key_are_acquired_as_those_of_one_limit() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let keyed = redis.keyed("users", SlidingLog::new(2, MINUTE)).unwrap();

    keyed.at("ann").unwrap().acquire(1).await.unwrap();
    keyed
        .at("ann")
        .unwrap()
        .acquire_within(1, MINUTE)
        .await
        .unwrap();
    let late = keyed
        .at("ann")
        .unwrap()
        .acquire_within(1, Duration::from_millis(20));
    assert!(late.await.unwrap_err().is_too_late());
    keyed.at("bob").unwrap().acquire(2).await.unwrap();
    assert!(
        keyed
            .at("bob")
            .unwrap()
            .acquire(3)
            .await
            .unwrap_err()
            .is_too_costly()
    );
}

#[tokio::test]
async fn a_stream_is_paced_by_key_and_an_unusable_key_is_an_error_with_its_item() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let window = Duration::from_millis(100);
    let users = redis.keyed("users", SlidingLog::new(1, window)).unwrap();
    let calls = [("ann", 1), ("", 2), ("ann", 3), ("bob", 4)];

    let began = server.time_us().await;
    let paced = stream::iter(calls).try_pace_by_key(users, |(user, _)| *user, 10);
    let left: Vec<_> = paced.collect().await;
    let took = server.time_us().await - began;

    let refused = left.iter().find_map(|call| call.as_ref().err()).unwrap();
    assert!(refused.error().to_string().ends_with("got 0"));
    assert_eq!(refused.clone().into_item(), ("", 2));
    let passed = left.into_iter().filter_map(Result::ok);
    let mut passed: Vec<_> = passed.map(|(_, call)| call).collect();
    assert!(took >= 100_000, "{took} µs");
    passed.sort_unstable();
    assert_eq!(passed, [1, 3, 4]);
}

#[tokio::test]
async fn a_stream_pays_by_key_and_cost_and_what_can_never_pass_is_returned() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let users = redis.keyed("users", SlidingLog::new(5, MINUTE)).unwrap();
    let calls = [("ann", 5), ("bob", 3), ("", 1), ("bob", 6), ("bob", 2)];

    let paced = stream::iter(calls).pace_by_key_and_cost(users, |call| call.0, |call| call.1, 10);
    let left: Vec<_> = paced.collect().await;
    let (passed, refused): (Vec<_>, Vec<_>) = left.into_iter().partition(Result::is_ok);
    let mut passed: Vec<_> = passed.into_iter().map(Result::unwrap).collect();
    passed.sort_unstable();
    assert_eq!(passed, [("ann", 5), ("bob", 2), ("bob", 3)]);
    let refused: Vec<_> = refused.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(refused.len(), 2);
    assert!(
        refused[0]
            .no_limit()
            .unwrap()
            .to_string()
            .ends_with("got 0")
    );
    let never = refused[1].too_costly().unwrap();
    assert_eq!((never.cost(), never.capacity()), (6, 5));
}

#[tokio::test]
async fn keys_in_redis_are_limited_for_a_share_and_an_unusable_key_is_an_error_only_there() {
    let server = Server::start().await;
    let (_redis, users) = one_a_minute(&server).await;
    let switch = Switch::new().with_share(Share::percent(30));
    let users = Switched::new(users, switch.clone());
    for (user, second) in [("bob", false), ("ann", true)] {
        let limit = users.at(user).unwrap();
        assert!(limit.try_acquire(1).await.is_pass());
        assert_eq!(limit.try_acquire(1).await.is_pass(), second, "{user}");
    }
    assert_eq!(switch.stats().held_back, 1);

    switch.set_share(Share::NONE);
    let unusable = users.at("").unwrap();
    assert!(unusable.try_acquire(1).await.is_pass());
    assert_eq!(switch.stats().unreachable, 1);
    switch.set_share(Share::FULL);
    assert!(users.at("").is_err());
}
