//! Parameters that Redis cannot represent are refused at construction, with the offending value. No server is needed.

use std::fmt::Debug;
use std::time::Duration;

use paceline::policy::{All, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisPolicy};

const MINUTE: Duration = Duration::from_secs(60);

/// The longest time.
const LONGEST: Duration = Duration::from_micros(1 << 51);

/// The largest product.
const MOST: u64 = 1 << 52;

fn redis(when_down: OutagePolicy) -> Redis {
    Redis::open("redis://127.0.0.1/", when_down).unwrap()
}

fn why<P: RedisPolicy + Debug>(when_down: OutagePolicy, policy: P) -> String {
    redis(when_down)
        .limit("name", policy)
        .unwrap_err()
        .to_string()
}

#[track_caller]
fn says<P: RedisPolicy + Debug>(policy: P, words: &[&str]) {
    let why = why(OutagePolicy::closed(), policy);
    assert!(words.iter().all(|word| why.contains(word)), "{why}");
}

#[track_caller]
fn fits<P: RedisPolicy>(policy: P) {
    redis(OutagePolicy::closed()).limit("name", policy).unwrap();
}

#[test]
fn a_policy_that_starts_empty_or_delayed_is_refused() {
    let bucket = TokenBucket::new(Rate::per_second(1), 2);
    let interval = Interval::every(MINUTE);
    says(bucket.with_empty_start(), &["token bucket", "starts full"]);
    says(
        interval.with_delayed_start(),
        &["interval", "first pass at once"],
    );
    says(
        All::new((bucket, interval.with_delayed_start())),
        &["first pass at once"],
    );
    fits(All::new((bucket, interval)));
}

#[test]
fn a_zero_or_too_long_interval_is_refused() {
    let longest = Duration::from_micros(MOST);
    says(
        Interval::every(Duration::ZERO),
        &["interval of 0", "no limit"],
    );
    says(
        Interval::every(Duration::MAX),
        &[&format!("{:?}", Duration::MAX), "2^52"],
    );
    says(
        Interval::every(longest + Duration::from_micros(1)),
        &["4503599627.370497s", "2^52"],
    );
    says(
        Interval::every(longest + Duration::from_nanos(1)),
        &["4503599627.370496001s", "2^52"],
    );
    fits(Interval::every(longest));
    fits(Interval::every(Duration::from_nanos(1)));
}

#[test]
fn a_bucket_that_is_too_large_is_refused() {
    let rate = Rate::new(1, Duration::from_micros(MOST / 4));
    says(
        TokenBucket::new(rate, 5),
        &[
            &rate.to_string(),
            "burst of 5",
            &(MOST / 4).to_string(),
            "2^52",
        ],
    );
    fits(TokenBucket::new(rate, 4));
    fits(TokenBucket::new(
        Rate::new(u32::MAX, Duration::from_nanos(1)),
        u32::MAX,
    ));
    let slowest = Rate::new(u32::MAX - 1, Duration::MAX);
    says(
        TokenBucket::new(slowest, u32::MAX),
        &[&slowest.to_string(), "burst of 4294967295"],
    );
}

#[test]
fn a_window_that_is_too_long_is_refused() {
    let longer = LONGEST + Duration::from_nanos(1);
    let named = [&*format!("{longer:?}"), "2^51 microseconds"];
    says(SlidingLog::new(1, longer), &named);
    says(SlidingCounter::strict(1, longer, 5), &named);
    says(SlidingCounter::smooth(1, longer), &named);
    says(FixedWindow::new(1, longer), &named);
    says(
        FixedWindow::new(1, Duration::MAX),
        &[&format!("{:?}", Duration::MAX)],
    );
    fits(SlidingLog::new(1, LONGEST));
    fits(SlidingCounter::strict(1, LONGEST, 1));
    fits(SlidingCounter::smooth(2, LONGEST));
    fits(FixedWindow::new(u32::MAX, LONGEST));
}

#[test]
fn a_log_with_too_many_permits_or_a_counter_with_too_many_buckets_is_refused() {
    says(SlidingLog::new(100_001, MINUTE), &["100000", "got 100001"]);
    says(SlidingLog::new(u32::MAX, MINUTE), &["got 4294967295"]);
    says(
        SlidingCounter::strict(1, MINUTE, 1_001),
        &["1000 buckets", "got 1001"],
    );
    fits(SlidingLog::new(100_000, MINUTE));
    fits(SlidingCounter::strict(1, MINUTE, 1_000));
}

#[test]
fn a_counter_that_is_too_large_is_refused() {
    says(
        SlidingCounter::smooth(3, LONGEST),
        &["limit of 3", &format!("{LONGEST:?}"), "2^52"],
    );
    says(
        SlidingCounter::strict(9, LONGEST, 4),
        &["limit of 9", &format!("{LONGEST:?}"), "2^52"],
    );
    fits(SlidingCounter::strict(8, LONGEST, 4));
}

#[test]
fn an_insurance_with_less_than_one_permit_a_replica_is_refused() {
    let five = OutagePolicy::insured(5);
    for why in [
        why(five, SlidingLog::new(4, MINUTE)),
        why(five, SlidingCounter::strict(4, MINUTE, 2)),
        why(five, SlidingCounter::smooth(4, MINUTE)),
        why(five, FixedWindow::new(4, MINUTE)),
        why(
            five,
            All::new((FixedWindow::new(9, MINUTE), SlidingLog::new(4, MINUTE))),
        ),
    ] {
        assert!(
            why.contains("limit of 4") && why.contains("5 replicas"),
            "{why}"
        );
    }
    let burst = why(five, TokenBucket::new(Rate::per_second(9), 4));
    assert!(
        burst.contains("burst of 4") && burst.contains("5 replicas"),
        "{burst}"
    );
    let interval = why(OutagePolicy::insured(2), Interval::every(MINUTE));
    assert!(
        interval.contains("interval") && interval.contains("2 replicas"),
        "{interval}"
    );

    let period = Duration::from_micros(1 << 20) * u32::MAX;
    let slow = TokenBucket::new(Rate::new(u32::MAX, period), u32::MAX);
    let rate = why(OutagePolicy::insured(u32::MAX), slow);
    assert!(
        rate.contains("rate of") && rate.contains("4294967295 replicas"),
        "{rate}"
    );

    redis(five)
        .limit("name", SlidingLog::new(5, MINUTE))
        .unwrap();
    redis(OutagePolicy::insured(1))
        .limit("name", Interval::every(MINUTE))
        .unwrap();
}

#[test]
fn an_empty_or_too_long_name_is_refused() {
    let redis = redis(OutagePolicy::closed());
    let policy = FixedWindow::new(1, MINUTE);
    let long = "x".repeat(201);
    for (name, length) in [("", "got 0"), (&*long, "got 201")] {
        let why = redis.limit(name, policy).unwrap_err().to_string();
        assert!(
            why.contains("1 to 200 bytes") && why.contains(length),
            "{why}"
        );
        let keyed = redis.keyed("name", policy).unwrap();
        let why = keyed.at(name).unwrap_err().to_string();
        assert!(
            why.contains("1 to 200 bytes") && why.contains(length),
            "{why}"
        );
        assert!(redis.clone().with_prefix(name).is_err());
    }
    redis.limit(&long[1..], policy).unwrap();
}

/// Their states have different formats.
#[test]
fn each_policy_has_its_own_key() {
    let redis = redis(OutagePolicy::closed());
    let all = All::new((
        Interval::every(MINUTE),
        TokenBucket::new(Rate::per_second(1), 1),
        SlidingLog::new(1, MINUTE),
    ));
    let keys = redis.limit("name", all).unwrap().keys().to_vec();
    let expected = ["0:interval:2", "1:token_bucket:2", "2:sliding_log:2"]
        .map(|end| format!("paceline:{{name}}:{end}"));
    assert_eq!(keys, expected);
}
