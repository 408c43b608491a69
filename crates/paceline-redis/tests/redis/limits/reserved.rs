//! Reserves of classes in one rate, through the public API.

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::{Limits, Share};
use paceline::policy::{Decision, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Clock, Rate};
use paceline_redis::{OutagePolicy, Redis, RedisReserved};

use super::{MINUTE, denied, passed, redis};
use crate::failing;
use crate::servers::Server;

/// A bucket of which payments have a quarter. With a burst of 10, payments have 2 of them, all others 6, and the pool 2.
fn reserved(redis: &Redis, bucket: TokenBucket) -> RedisReserved {
    let payments = ("payments", Share::percent(25));
    redis.reserved("sms", bucket, &[payments]).unwrap()
}

/// Nothing flows in during a test.
fn hourly(burst: u32) -> TokenBucket {
    TokenBucket::new(Rate::per_hour(1), burst)
}

async fn left(sms: &RedisReserved, class: &str) -> u32 {
    sms.at(class).fetch_status().await.unwrap().remaining
}

#[tokio::test]
async fn a_class_passes_within_its_reserve_while_all_others_wait() {
    let server = Server::start().await;
    let fleet = [redis(&server).await, redis(&server).await];
    let [here, there] = fleet.each_ref().map(|redis| reserved(redis, hourly(10)));
    assert_eq!(here.at("payments").keys(), ["paceline:{sms}:reserved:2"]);

    assert_eq!(here.at("analytics").try_acquire_up_to(100).await, Ok(8));
    let waits = tokio::spawn(here.at("analytics").acquire(1));
    denied(here.at("reports").try_acquire(1).await);
    here.at("payments").acquire(1).await.unwrap();
    there.acquire("payments", 1).await.unwrap();
    denied(there.at("payments").try_acquire(1).await);
    assert!(!waits.is_finished());
    assert_eq!(server.cli::<u64>(&["DBSIZE"]).await, 2, "and the epoch");
    for redis in fleet {
        let stats = redis.stats();
        assert_eq!((stats.faults, stats.lost_states), (0, 0));
    }
}

#[tokio::test]
async fn a_class_alone_takes_its_bucket_and_the_pool_and_no_more() {
    let server = Server::start().await;
    let sms = reserved(&redis(&server).await, hourly(10));
    let never = sms.at("payments").try_acquire(5).await;
    assert_eq!(never, Ok(Decision::Never { capacity: 4 }));
    passed(sms.at("payments").try_acquire(4).await);
    denied(sms.at("payments").try_acquire(1).await);
    assert_eq!(left(&sms, "analytics").await, 6, "the pool is empty");
    assert!(sms.at("payments").status().unwrap().reset_in > MINUTE);
}

#[tokio::test]
async fn streams_of_all_classes_share_the_rate() {
    let server = Server::start().await;
    let bucket = TokenBucket::new(Rate::per_second(100), 10);
    let sms = reserved(&redis(&server).await, bucket);
    let calls = (0..40).map(|number| {
        if number % 2 == 0 {
            "payments"
        } else {
            "reports"
        }
    });
    let mut clock = Clock::new();
    let start = clock.now();
    let paced = stream::iter(calls).pace_by_key(sms, |class| *class, 40);
    assert_eq!(paced.count().await, 40);
    // The burst passes at once.
    assert!(clock.now().since(start) >= Duration::from_millis(300));
}

#[tokio::test]
async fn what_is_given_back_and_charged_is_that_of_its_class() {
    let server = Server::start().await;
    let sms = reserved(&redis(&server).await, hourly(10));
    let reserved = sms.at("payments").reserve(4).await.unwrap();
    reserved.settle(1).await.unwrap();
    assert_eq!(
        [left(&sms, "payments").await, left(&sms, "a").await],
        [3, 7]
    );
    sms.at("payments").refund(9).await.unwrap();
    assert_eq!(
        [left(&sms, "payments").await, left(&sms, "a").await],
        [4, 8]
    );
    sms.at("payments").charge(9).await.unwrap();
    assert_eq!(
        [left(&sms, "payments").await, left(&sms, "a").await],
        [0, 6]
    );
    sms.at("payments").refund(6).await.unwrap();
    assert_eq!(left(&sms, "payments").await, 1, "five were owed");
}

#[tokio::test]
async fn a_pause_holds_for_all_classes_and_a_retune_is_refused() {
    let server = Server::start().await;
    let sms = reserved(&redis(&server).await, hourly(10));
    sms.at("reports").pause_for(MINUTE).await.unwrap();
    denied(sms.at("payments").try_acquire(1).await);
    sms.at("payments").resume().await.unwrap();
    passed(sms.at("reports").try_acquire(1).await);

    let refused = sms.at("payments").retune(hourly(5)).await.unwrap_err();
    let why = "stays of its kinds, reserved:2, when it is retuned: got token_bucket:2";
    assert!(refused.to_string().contains(why), "{refused}");
}

#[tokio::test]
async fn made_again_with_other_numbers_it_goes_on() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let sms = reserved(&redis, hourly(10));
    passed(sms.at("payments").try_acquire(3).await);
    let sms = reserved(&redis, hourly(20));
    assert_eq!(
        [left(&sms, "payments").await, left(&sms, "a").await],
        [1, 7]
    );
    assert_eq!(redis.stats().lost_states, 0);
}

#[tokio::test]
async fn in_an_outage_a_replica_has_its_part_of_each_class() {
    let mut server = Server::start().await;
    let redis = failing::redis(&server.url(), OutagePolicy::insured(2)).await;
    let bucket = TokenBucket::new(Rate::per_second(1_000), 40);
    let sms = reserved(&redis, bucket);
    sms.at("payments").acquire(1).await.unwrap();
    server.kill();
    failing::notice(&redis, &sms.at("payments")).await;
    // A half of the bucket of 8, which begins empty and fills with a half of 250 a second. There is no pool.
    sms.at("payments").acquire(4).await.unwrap();
    assert!(!sms.at("payments").try_acquire(5).await.unwrap().is_pass());
}

#[test]
fn reserves_that_cannot_be_kept_are_refused() {
    let refused = |when_down, bucket, reserves: &[(&str, u32)]| {
        let redis = Redis::open("redis://127.0.0.1/", when_down).unwrap();
        let share = |(class, parts): &(_, _)| (*class, Share::of_ten_thousand(*parts));
        let reserves: Vec<_> = reserves.iter().map(share).collect();
        redis
            .reserved("sms", bucket, &reserves)
            .unwrap_err()
            .to_string()
    };
    let closed = OutagePolicy::closed();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let eight = names.map(|class| (class, 100));
    let bucket = hourly(1_000);
    for (bucket, reserves, why) in [
        (
            bucket,
            &[][..],
            "a rate in Redis has 1 to 7 reserves, got 0",
        ),
        (
            bucket,
            &eight[..],
            "a rate in Redis has 1 to 7 reserves, got 8",
        ),
        (
            bucket,
            &[("a", 100), ("", 200)],
            "a class of a limit in Redis has 1 to 200 bytes, got 0",
        ),
        (
            bucket,
            &[("a", 100), ("a", 200)],
            "a class has one reserve, got two for `a`",
        ),
        (
            bucket,
            &[("a", 25)],
            "a reserve in Redis is a whole number of percent, got 0.25% for `a`",
        ),
        (
            bucket,
            &[("a", 6_000), ("b", 5_000)],
            "all reserves together are at most 100%, got 50% for `b` where 40% are left",
        ),
        (
            bucket,
            &[("a", 10_000)],
            "each part of a burst holds at least 1 permit, got less for all others: 0% of 800, which the pool leaves of 1000",
        ),
        (
            hourly(5),
            &[("a", 2_000)],
            "each part of a burst holds at least 1 permit, got less for `a`: 20% of 4, which the pool leaves of 5",
        ),
        (
            bucket.with_debt(),
            &[("a", 2_000)],
            "a token bucket with reserves passes no request as a debt: make it without `with_debt`",
        ),
    ] {
        assert_eq!(refused(closed, bucket, reserves), why);
    }
    let empty = bucket.with_empty_start();
    assert!(refused(closed, empty, &[("a", 2_000)]).contains("starts full"));
    let large = TokenBucket::new(Rate::per_day(7), 600);
    assert!(refused(closed, large, &[("a", 2_000)]).contains("too large for reserves"));
    let insured = refused(OutagePolicy::insured(9), hourly(10), &[("a", 5_000)]);
    assert!(
        insured.contains("a burst of 4 cannot be divided among 9 replicas"),
        "{insured}"
    );
}
