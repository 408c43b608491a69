//! Policies that are chosen at run time.

use std::time::Duration;

use paceline::config::{LimitConfig, LimitsConfig};
use paceline::policy::{All, AnyPolicy, FixedWindow, PerRequest, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis};

use super::{MINUTE, a_minute_of, client, denied, log, passed, redis};
use crate::failing::notice;
use crate::servers::Server;

fn any(text: &str) -> AnyPolicy {
    text.parse().unwrap()
}

#[tokio::test]
async fn thirty_two_limits_are_one_decision() {
    let (_server, redis, _) = a_minute_of(1).await;
    let texts: Vec<_> = (1..=32).map(|n| format!("{}/min", n + 1)).collect();
    let limit = redis.limit("many", any(&texts.join(" and "))).unwrap();
    assert_eq!(limit.try_acquire_up_to(100).await, Ok(2));
    denied(limit.try_acquire(1).await);
    assert_eq!(limit.binding(), Some(0));
}

#[tokio::test]
async fn a_policy_of_a_text_is_the_same_limit_as_one_of_a_type() {
    let (_server, redis, typed) = a_minute_of(5).await;
    let of_text = redis.limit("a", any("5/min")).unwrap();
    assert_eq!(of_text.keys(), typed.keys());
    passed(typed.try_acquire(3).await);
    passed(of_text.try_acquire(2).await);
    denied(typed.try_acquire(1).await);
    denied(of_text.try_acquire(1).await);

    let minutes = |n: u64| Duration::from_secs(60 * n);
    let bucket = TokenBucket::new(Rate::per_minute(3), 4).with_debt();
    let fixed = PerRequest::new(FixedWindow::new(9, minutes(2)));
    let all = All::new((log(5), bucket, fixed));
    let typed = redis.limit("b", all).unwrap();
    let text = "5/min and 3/min burst 4 debt and 9/2min fixed per request";
    let of_text = redis.limit("b", any(text)).unwrap();
    assert_eq!(of_text.keys(), typed.keys());
    passed(of_text.try_acquire(5).await);
    denied(typed.try_acquire(1).await);
    let status = of_text.status().unwrap();
    assert_eq!(status.remaining, 0);
    assert_eq!(typed.binding(), Some(0));
}

#[tokio::test]
async fn limits_of_a_configuration_are_in_redis_under_their_names() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let config = LimitsConfig::new()
        .with("api", LimitConfig::new(any("7/min burst 3")))
        .with("mail", LimitConfig::new(any("2/min and 9/day")));
    for (name, most) in [("api", 3), ("mail", 2)] {
        let policy = config.get(name).unwrap().policy();
        let limit = redis.limit(name, policy.clone()).unwrap();
        assert_eq!(limit.try_acquire_up_to(100).await, Ok(most));
        let tiers = redis.keyed_by("users", |user| match user {
            "ann" => any("7/min and 9/day"),
            _ => any("1/min"),
        });
        let tiers = tiers.unwrap().with_total(any("20/h fixed")).unwrap();
        let at = async |user: &str| tiers.at(user).unwrap().try_acquire_up_to(100).await;
        if name == "api" {
            assert_eq!((at("ann").await, at("bob").await), (Ok(7), Ok(1)));
        }
    }
}

#[tokio::test]
async fn a_retune_changes_numbers_in_all_processes_and_no_kind() {
    let server = Server::start().await;
    let [one, other] = [redis(&server).await, redis(&server).await];
    let made = any("3/min and 5/h fixed per request");
    let [one, other] = [one, other].map(|redis| redis.limit("a", made.clone()).unwrap());
    assert_eq!(other.try_acquire_up_to(100).await, Ok(3));

    one.retune(any("4/min and 5/h fixed per request"))
        .await
        .unwrap();
    crate::servers::until("it has heard", async || {
        other.try_acquire(1).await.unwrap().is_pass()
    })
    .await;
    denied(other.try_acquire(1).await);

    for text in [
        "4/min",
        "4/min and 5/h fixed",
        "4/min burst 4 and 5/h fixed per request",
    ] {
        let error = one.retune(any(text)).await.unwrap_err();
        let why = error.unfit().expect("nothing was asked").to_string();
        let kinds = "of its kinds, sliding_log:2 and requests:fixed_window:2, when";
        assert!(why.contains(kinds), "{why}");
    }
}

#[test]
fn what_has_no_twin_is_refused_with_what_has_one() {
    let redis = Redis::open("redis://127.0.0.1/", OutagePolicy::closed()).unwrap();
    for (text, why) in [
        (
            "unlimited",
            "a policy in Redis has 1 to 32 limits, got 0 in `unlimited`",
        ),
        (
            "5/s and 9/day aligned",
            "`5/s sliding and 9/day aligned` cannot be kept in Redis: `aligned` is for limits in memory",
        ),
        (
            "1/s to 10/s within 1min",
            "`1/s to 10/s within 1min` cannot be kept in Redis: `within` is for limits in memory",
        ),
        ("5/s burst 3 start 0", "a token bucket in Redis starts full"),
        ("every 5s delayed", "lets the first pass at once"),
        ("200000/s", "100000 at most, got 200000"),
    ] {
        let error = redis.limit("a", any(text)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // No text has as many.
    let many = any(&["1/s"; 32].join(" and ")).and(any("1/s"));
    let error = redis.limit("a", many).unwrap_err().to_string();
    assert!(error.contains("1 to 32 limits, got 33 in `1/s"), "{error}");
    let insured = redis.when_down(OutagePolicy::insured(3));
    let error = insured.limit("a", any("9/s and 2/day")).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("a limit of 2 cannot be divided among 3"),
        "{error}"
    );
}

/// Also the larger of its limits, of which the smaller one would hide it.
#[tokio::test]
async fn an_insurance_has_the_share_of_each_limit_and_begins_with_all_of_it_spent() {
    let mut server = Server::start().await;
    let insured = OutagePolicy::insured(2);
    let redis = client(&server.url(), insured, Duration::from_millis(500));
    redis.connect().await.unwrap();
    let limit = redis.limit("a", any("20/100ms and 400/min")).unwrap();
    passed(limit.try_acquire(1).await);
    server.kill();
    notice(&redis, &limit).await;
    super::pause(Duration::from_millis(300)).await;
    let wait = super::wait_of(limit.try_acquire(1).await);
    assert!(wait > MINUTE / 2, "{wait:?}");
    let status = limit.status().unwrap();
    assert_eq!(status.remaining, 0);
}
