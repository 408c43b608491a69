//! What Redis cannot represent is refused at construction, with the offending value. No server is needed.

use std::time::Duration;

use paceline::config::ConfigError;
use paceline::limiter::Mode;
use paceline::policy::{All, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisLimiter, RedisPolicy};

use crate::limits::{MINUTE, log};

/// The longest window.
const LONGEST: Duration = Duration::from_micros(1 << 51);

/// The largest product.
const MOST: u64 = 1 << 52;

const NANO: Duration = Duration::from_nanos(1);

fn redis(when_down: OutagePolicy) -> Redis {
    Redis::open("redis://127.0.0.1/", when_down).unwrap()
}

fn of<P: RedisPolicy>(policy: P) -> Result<RedisLimiter<P>, ConfigError> {
    redis(OutagePolicy::closed()).limit("name", policy)
}

fn insured<P: RedisPolicy>(replicas: u32, policy: P) -> Result<RedisLimiter<P>, ConfigError> {
    redis(OutagePolicy::insured(replicas)).limit("name", policy)
}

/// It is refused, with these words.
#[track_caller]
fn says<T>(made: Result<T, ConfigError>, words: &str) {
    let why = made.err().expect("it is refused").to_string();
    assert!(why.contains(words), "{why}");
}

#[test]
fn a_policy_that_starts_empty_or_delayed_is_refused() {
    let bucket = TokenBucket::new(Rate::per_second(1), 2);
    let interval = Interval::every(MINUTE);
    let delayed = interval.with_delayed_start();
    let empty = bucket.with_empty_start();
    says(of(empty), "a token bucket in Redis starts full");
    let first = "an interval in Redis lets the first pass at once";
    says(of(delayed), first);
    says(of(All::new((bucket, delayed))), first);
    of(All::new((bucket, interval))).unwrap();
}

#[test]
fn an_interval_that_is_zero_or_too_long_is_refused() {
    let every = |time| of(Interval::every(time));
    let longest = Duration::from_micros(MOST);
    says(every(Duration::ZERO), "an interval of 0 is no limit");
    for (time, named) in [
        (Duration::MAX, format!("{:?}", Duration::MAX)),
        (longest + 1_000 * NANO, "4503599627.370497s".into()),
        (longest + NANO, "4503599627.370496001s".into()),
    ] {
        says(every(time), &format!("an interval of {named} is too long"));
        says(every(time), "must not pass 2^52");
    }
    every(longest).unwrap();
    every(NANO).unwrap();
}

#[test]
fn a_bucket_that_is_too_large_is_refused() {
    let rate = Rate::new(1, Duration::from_micros(MOST / 4));
    let slowest = Rate::new(u32::MAX - 1, Duration::MAX);
    let fastest = Rate::new(u32::MAX, NANO);
    for (rate, burst) in [(rate, 5), (slowest, u32::MAX)] {
        let named = format!("a rate of {rate} with a burst of {burst} is too large");
        says(of(TokenBucket::new(rate, burst)), &named);
    }
    let product = format!("{} times the burst must not pass 2^52", MOST / 4);
    says(of(TokenBucket::new(rate, 5)), &product);
    of(TokenBucket::new(rate, 4)).unwrap();
    of(TokenBucket::new(fastest, u32::MAX)).unwrap();
}

#[test]
fn a_window_that_is_too_long_is_refused() {
    for longer in [LONGEST + NANO, Duration::MAX] {
        let named = format!("at most 2^51 microseconds long, 71 years, got {longer:?}");
        says(of(SlidingLog::new(1, longer)), &named);
        says(of(SlidingCounter::strict(1, longer, 5)), &named);
        says(of(SlidingCounter::smooth(1, longer)), &named);
        says(of(FixedWindow::new(1, longer)), &named);
    }
    of(SlidingLog::new(1, LONGEST)).unwrap();
    of(SlidingCounter::strict(1, LONGEST, 1)).unwrap();
    of(SlidingCounter::smooth(2, LONGEST)).unwrap();
    of(FixedWindow::new(u32::MAX, LONGEST)).unwrap();
}

#[test]
fn a_log_with_too_many_permits_and_a_counter_that_is_too_large_are_refused() {
    for permits in [100_001, u32::MAX] {
        says(of(log(permits)), &format!("100000 at most, got {permits}"));
    }
    of(log(100_000)).unwrap();

    let strict = |limit, window, buckets| of(SlidingCounter::strict(limit, window, buckets));
    says(strict(1, MINUTE, 1_001), "1000 buckets, got 1001");
    strict(1, MINUTE, 1_000).unwrap();
    for (counter, limit) in [
        (of(SlidingCounter::smooth(3, LONGEST)), 3),
        (strict(9, LONGEST, 4), 9),
    ] {
        let product = "their product, in microseconds, must not pass 2^52";
        let named = format!("a limit of {limit} in {LONGEST:?} is too large for Redis: {product}");
        says(counter, &named);
    }
    strict(8, LONGEST, 4).unwrap();
}

#[test]
fn an_insurance_with_less_than_one_permit_a_replica_is_refused() {
    let four = "a limit of 4 cannot be divided among 5 replicas: each needs at least 1";
    let both = All::new((FixedWindow::new(9, MINUTE), log(4)));
    says(insured(5, log(4)), four);
    says(insured(5, SlidingCounter::strict(4, MINUTE, 2)), four);
    says(insured(5, SlidingCounter::smooth(4, MINUTE)), four);
    says(insured(5, FixedWindow::new(4, MINUTE)), four);
    says(insured(5, both), four);
    let bucket = TokenBucket::new(Rate::per_second(9), 4);
    says(insured(5, bucket), &four.replace("limit", "burst"));
    let interval = "an interval cannot be divided among 2 replicas";
    says(insured(2, Interval::every(MINUTE)), interval);

    let period = Duration::from_micros(1 << 20) * u32::MAX;
    let slow = TokenBucket::new(Rate::new(u32::MAX, period), u32::MAX);
    let rate = format!(
        "a rate of {} cannot be divided among 4294967295",
        slow.rate()
    );
    says(insured(u32::MAX, slow), &rate);

    insured(5, log(5)).unwrap();
    insured(1, Interval::every(MINUTE)).unwrap();
}

#[test]
#[should_panic(expected = "an insurance needs at least 1 replica, got 0")]
fn an_insurance_for_no_replicas_is_refused() {
    let _ = OutagePolicy::insured(0);
}

#[test]
fn a_deadline_a_prefetch_or_a_table_of_nothing_is_refused() {
    let redis = redis(OutagePolicy::closed());
    let short = redis.clone().with_deadline(Duration::from_micros(999));
    says(short, "a deadline is at least 1 ms, got 999µs");
    let table = redis.keyed("users", log(1)).unwrap().with_max_keys(0);
    says(table, "at least 1 key, got 0");

    let limit = redis.limit("a", log(10)).unwrap();
    let ahead = |permits, lasts| limit.clone().with_prefetch(permits, lasts);
    for permits in [0, 11] {
        let why = format!("a prefetch takes 1 to 10 permits here, got {permits}");
        says(ahead(permits, MINUTE), &why);
    }
    let why = "a prefetch has to last longer than 0";
    says(ahead(1, Duration::ZERO), why);
}

#[tokio::test]
async fn an_empty_or_too_long_name_is_refused() {
    let redis = redis(OutagePolicy::closed());
    let keyed = redis.keyed("name", log(1)).unwrap();
    let longest = "x".repeat(200);
    for name in [String::new(), longest.clone() + "x"] {
        let why = format!("of a limit in Redis has 1 to 200 bytes, got {}", name.len());
        says(redis.limit(&name, log(1)), &format!("a name {why}"));
        says(redis.keyed(&name, log(1)), &format!("a name {why}"));
        says(keyed.at(&name), &format!("a key {why}"));
        says(redis.clone().with_prefix(&name), &why);
        says(redis.switch(&name), &why);
        let error = redis.set_mode(&name, Mode::Off).await.unwrap_err();
        let error = error.unfit().unwrap().to_string();
        assert!(error.contains(&why), "{error}");
    }
    let redis = redis.with_prefix(&longest).unwrap();
    redis.limit(&longest, log(1)).unwrap();
    let keyed = redis.keyed(&longest, log(1)).unwrap();
    keyed.at(&longest).unwrap();
}

#[test]
fn different_names_and_keys_and_policies_of_one_name_never_share_a_key() {
    let redis = redis(OutagePolicy::closed());
    let under = |prefix| redis.clone().with_prefix(prefix).unwrap();
    let bob_of = |prefix, name| {
        let users = under(prefix).keyed(name, log(1)).unwrap();
        users.at("bob").unwrap()
    };
    for (limit, key) in [
        (redis.limit("bob", log(1)).unwrap(), "paceline:{bob}"),
        (
            under("paceline:users").limit("bob", log(1)).unwrap(),
            "paceline%3Ausers:{bob}",
        ),
        (bob_of("paceline", "users"), "paceline:users:{bob}"),
        (bob_of("a:b", "c"), "a%3Ab:c:{bob}"),
        (bob_of("a", "b:c"), "a:b%3Ac:{bob}"),
    ] {
        assert_eq!(limit.keys(), [format!("{key}:sliding_log:2")]);
    }
    let users = redis.keyed("users", log(1)).unwrap();
    for (user, key) in [
        ("bob ", "bob%20"),
        ("{bob}", "%7Bbob%7D"),
        ("bob:sliding_log:2", "bob%3Asliding_log%3A2"),
        ("böb", "b%C3%B6b"),
        ("%20", "%2520"),
        ("a/b", "a/b"),
    ] {
        let key = format!("paceline:users:{{{key}}}:sliding_log:2");
        assert_eq!(users.at(user).unwrap().keys(), [key]);
    }

    // Their states have different formats.
    let bucket = TokenBucket::new(Rate::per_second(1), 1);
    let all = of(All::new((Interval::every(MINUTE), bucket, log(1))));
    let keys = ["0:interval:2", "1:token_bucket:2", "2:sliding_log:2"];
    let keys = keys.map(|end| format!("paceline:{{name}}:{end}"));
    assert_eq!(all.unwrap().keys(), keys);
}

#[test]
fn a_malformed_address_is_said_once_with_an_example_and_what_may_be_meant() {
    let closed = OutagePolicy::closed;
    for (url, why) in [
        ("", ""),
        ("http://example.org", ""),
        ("hello world", ""),
        ("localhost:6379", ": did you mean redis://localhost:6379?"),
        ("10.0.0.7", ": did you mean redis://10.0.0.7?"),
        ("redis.shop/3", ": did you mean redis://redis.shop/3?"),
        ("redis://", ": missing hostname"),
        ("redis://example.org/three", ": invalid database number"),
    ] {
        let error = Redis::open(url, closed()).unwrap_err().to_string();
        let what = "is no URL of a Redis server, such as redis://host:6379/0";
        assert_eq!(error, format!("{url:?} {what}{why}"));
    }
    let error = Redis::open(":hunter2@localhost", closed()).unwrap_err();
    let error = error.to_string();
    let meant = "did you mean redis://…@localhost?";
    assert!(error.ends_with(meant), "{error}");
    assert!(!error.contains("hunter2"), "{error}");

    // The name of a master is no URL.
    let sentinels = Redis::open_sentinel(&["one:26379"], "mymaster", closed());
    says(sentinels, ": did you mean redis://one:26379?");
    let cluster = Redis::open_cluster(&["redis://one", "two:7000"], closed());
    says(cluster, ": did you mean redis://two:7000?");
}

#[test]
fn a_malformed_address_is_named_without_its_password() {
    let closed = OutagePolicy::closed;
    for url in [
        "http://example.org",
        "http://bob:hunter2@example.org",
        "redis://bob:hunter2@",
    ] {
        let Err(error) = Redis::open(url, closed()) else {
            continue;
        };
        let error = error.to_string();
        assert!(error.contains("is no URL of a Redis server"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    says(
        Redis::open("http://example.org", closed()),
        "\"http://example.org\" is no URL of a Redis server",
    );
    let redis = Redis::open("redis://bob:hunter2@127.0.0.1/", closed()).unwrap();
    let limit = redis.limit("a", log(5)).unwrap();
    assert!(!format!("{redis:?} {limit:?}").contains("hunter2"));

    let cluster = Redis::open_cluster(&[], closed());
    says(cluster, "[] are no URLs of a Redis cluster");
    for (sentinels, master) in [
        (&[][..], "mymaster"),
        (&["http://example.org"], "mymaster"),
        (&["redis://example.org"], ""),
        (&["redis://bob:hunter2@"], "http://bob:hunter2@mymaster"),
    ] {
        let refused = Redis::open_sentinel(sentinels, master, closed());
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("no URLs of sentinels"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
