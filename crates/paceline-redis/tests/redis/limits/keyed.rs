use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::{Interval, Policy, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Clock, Rate};
use paceline_redis::{OutagePolicy, Redis, RedisKeyed, RedisPolicy};

use super::{MINUTE, denied, log, passed, pause, redis};
use crate::failing;
use crate::servers::Server;

/// One permit a minute for each key.
async fn one_a_minute() -> (Server, Redis, RedisKeyed<SlidingLog>) {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let users = redis.keyed("users", log(1)).unwrap();
    (server, redis, users)
}

/// Ends the queues of all keys that are not in use.
pub(super) async fn end_queues<P: RedisPolicy>(keyed: &RedisKeyed<P>) {
    // The task that asked for a key may not have put it down yet.
    pause(Duration::from_millis(50)).await;
    keyed.forget_settled();
}

#[tokio::test]
async fn a_forgotten_key_is_limited_as_before_and_only_of_a_known_one_is_a_deletion_detected() {
    let (server, redis, users) = one_a_minute().await;
    let ann = || users.at("ann").unwrap();

    passed(ann().try_acquire(1).await);
    end_queues(&users).await;
    users.forget("ann");
    assert_eq!(users.remembered(), 0);
    denied(ann().try_acquire(1).await);

    end_queues(&users).await;
    users.forget("ann");
    let key = ann().keys()[0].clone();
    server.cli::<()>(&["DEL", &key]).await;
    passed(ann().try_acquire(1).await);
    assert_eq!(redis.stats().lost_states, 0);

    end_queues(&users).await;
    assert_eq!(users.remembered(), 1);
    server.cli::<()>(&["DEL", &key]).await;
    denied(ann().try_acquire(1).await);
    assert_eq!(redis.stats().lost_states, 1);
}

#[tokio::test]
async fn keys_that_have_settled_are_forgotten_and_others_are_not() {
    let server = Server::start().await;
    let users = redis(&server).await.keyed_by("users", |key| match key {
        "short" => SlidingLog::new(1, Duration::from_millis(20)),
        _ => log(1),
    });
    let users = users.unwrap();

    for key in ["short", "long"] {
        passed(users.at(key).unwrap().try_acquire(1).await);
    }
    users.at("never asked").unwrap();
    assert_eq!(users.remembered(), 3);
    pause(Duration::from_millis(100)).await;
    users.forget_settled();
    assert_eq!(users.remembered(), 1);
    users.forget("long");
    assert_eq!(users.remembered(), 0);
}

#[tokio::test]
async fn a_key_in_use_is_neither_evicted_nor_forgotten() {
    let (_server, _redis, users) = one_a_minute().await;
    let users = users.with_max_keys(1).unwrap();
    let bob = || users.at("bob").unwrap();

    let ann = users.at("ann").unwrap();
    passed(ann.try_acquire(1).await);
    end_queues(&users).await;
    users.forget("ann");
    assert_eq!(users.remembered(), 1);
    passed(bob().try_acquire(1).await);
    denied(bob().try_acquire(1).await);
    assert_eq!(users.remembered(), 1);

    drop(ann);
    end_queues(&users).await;
    denied(bob().try_acquire(1).await);
    users.forget("ann");
    assert_eq!(users.remembered(), 1, "bob took the place of ann");
}

#[test]
fn without_a_number_a_hundred_thousand_keys_are_remembered_and_idle_ones_are_evicted() {
    const MANY: usize = 100_000;
    let redis = Redis::open("redis://127.0.0.1/", OutagePolicy::closed()).unwrap();
    let users = redis.keyed("users", log(1)).unwrap();

    let of = |key: usize| users.at(&key.to_string()).unwrap();
    let mut held: Vec<_> = (0..MANY).map(of).collect();
    held.extend([of(MANY), of(MANY + 1)]);
    assert_eq!(users.remembered(), MANY);
    held.truncate(10);
    // Keys are evicted only now and then.
    for key in 0..1_000 {
        drop(of(2 * MANY + key));
    }
    assert!(users.remembered() < 1_100, "{}", users.remembered());
}

#[tokio::test]
async fn the_keys_asked_for_the_longest_time_ago_are_evicted_first() {
    let (server, redis, users) = one_a_minute().await;
    let users = users.with_max_keys(16).unwrap();
    let of = |key: u32| users.at(&key.to_string()).unwrap();

    for key in 0..40 {
        passed(of(key).try_acquire(1).await);
        pause(Duration::from_millis(5)).await;
        assert!(users.remembered() <= 16, "{}", users.remembered());
    }
    assert!(users.remembered() >= 14, "{}", users.remembered());
    let keys: Vec<String> = server.cli(&["KEYS", "*:users:*"]).await;
    let mut delete = redis::cmd("DEL");
    server.command::<()>(delete.arg(keys)).await;
    for key in 30..40 {
        denied(of(key).try_acquire(1).await);
    }
    assert_eq!(redis.stats().lost_states, 10);
    passed(of(0).try_acquire(1).await);
}

/// While handles come and go and keys are evicted, no key has two insurances: each would pass the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_never_has_two_insurances() {
    const PER_SECOND: u32 = 50;
    let mut server = Server::start().await;
    let redis = failing::redis(&server.url(), OutagePolicy::insured(1)).await;
    let bucket = TokenBucket::new(Rate::per_second(PER_SECOND), 1);
    let keyed = redis.keyed("users", bucket).unwrap();
    let keyed = keyed.with_max_keys(3).unwrap();
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
    let (server, _redis, refusing) = one_a_minute().await;
    let long = |end: &str| "x".repeat(200) + end;
    let error = refusing.at(&long("a")).unwrap_err().to_string();
    let why = "has 1 to 200 bytes, got 201; `with_long_keys_hashed` takes longer ones";
    assert!(error.ends_with(why), "{error}");

    let hashing = refusing.with_long_keys_hashed();
    let is_kept_as = |key: &str, name: &str| {
        let expected = format!("paceline:users:{{{name}}}:sliding_log:2");
        assert_eq!(hashing.at(key).unwrap().keys(), [expected]);
    };
    let hash = "b49a11283986aa193012688c8077d34e38747d1d";
    is_kept_as(&long("a"), &format!("sha1={hash}"));
    is_kept_as(&format!("sha1={hash}"), &format!("sha1%3D{hash}"));
    is_kept_as(&long(""), &long(""));
    assert!(hashing.at("").is_err());

    let elsewhere = redis(&server).await.keyed("users", log(1)).unwrap();
    let elsewhere = elsewhere.with_long_keys_hashed();
    for key in [long("a"), long("b")] {
        passed(hashing.at(&key).unwrap().try_acquire(1).await);
        denied(elsewhere.at(&key).unwrap().try_acquire(1).await);
    }
}

#[tokio::test]
async fn a_new_tier_holds_from_the_next_handle_and_has_no_status_and_what_was_spent_stays_spent() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    for is_in_use in [true, false] {
        let tier = Arc::new(AtomicU32::new(2));
        let tiers = Arc::clone(&tier);
        let users = redis.keyed_by(&format!("users {is_in_use}"), move |_| {
            log(tiers.load(Ordering::Relaxed))
        });
        let users = users.unwrap();
        let ann = || users.at("ann").unwrap();

        let before = ann();
        before.acquire(2).await.unwrap();
        denied(before.try_acquire(1).await);
        let before = is_in_use.then_some(before);
        end_queues(&users).await;

        tier.store(5, Ordering::Relaxed);
        // The numbers were those of the old tier.
        assert_eq!(ann().status(), None);
        passed(ann().try_acquire(2).await);
        assert_eq!(ann().status().map(|status| status.remaining), Some(1));
        passed(ann().try_acquire(1).await);
        denied(ann().try_acquire(1).await);
        assert_eq!(users.remembered(), 1);
        if let Some(before) = &before {
            assert_eq!(before.policy().limit(), 2);
            let status = before.status().unwrap();
            assert_eq!(status.quota, log(2).quota());
            denied(before.try_acquire(1).await);
        }
        end_queues(&users).await;

        tier.store(2, Ordering::Relaxed);
        denied(ann().try_acquire(1).await);
        assert!(ann().acquire(3).await.unwrap_err().is_too_costly());
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
    let users = redis(&server).await.keyed_by("users", |key| match key {
        "delayed" => Interval::every(MINUTE).with_delayed_start(),
        _ => Interval::every(MINUTE),
    });
    let users = users.unwrap();

    passed(users.at("ann").unwrap().try_acquire(1).await);
    let error = users.at("delayed").unwrap_err().to_string();
    assert!(error.contains("lets the first pass at once"), "{error}");
    assert_eq!(users.remembered(), 1);
}

#[tokio::test]
async fn a_stream_pays_by_key_and_cost_and_what_cannot_pass_is_an_error_with_its_reason() {
    let server = Server::start().await;
    let users = redis(&server).await.keyed("users", log(5)).unwrap();
    let calls = [("ann", 5), ("bob", 3), ("", 1), ("bob", 6), ("bob", 2)];

    let paced = stream::iter(calls).pace_by_key_and_cost(users, |call| call.0, |call| call.1, 10);
    let left: Vec<_> = paced.collect().await;
    let (passed, refused): (Vec<_>, Vec<_>) = left.into_iter().partition(Result::is_ok);
    let mut passed: Vec<_> = passed.into_iter().map(Result::unwrap).collect();
    passed.sort_unstable();
    assert_eq!(passed, [("ann", 5), ("bob", 2), ("bob", 3)]);
    let refused: Vec<_> = refused.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(refused.len(), 2);
    let no_limit = refused[0].no_limit().unwrap().to_string();
    assert!(no_limit.ends_with("got 0"), "{no_limit}");
    let never = refused[1].too_costly().unwrap();
    assert_eq!((never.cost(), never.capacity()), (6, 5));
}
