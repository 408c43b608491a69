use paceline::limiter::Limits;

use super::*;

/// The limit of such permits, and of those of a key, or why there are none.
fn of(n: u32, lease: Duration, deadline: u64, when_down: OutagePolicy) -> Result<u32, String> {
    let deadline = Duration::from_millis(deadline);
    let redis = client("redis://127.0.0.1:1/", when_down, deadline);
    let one = redis.permits("jobs", n, lease);
    let keyed = redis.keyed_permits("jobs", n, lease);
    let key = keyed.and_then(|keyed| keyed.at("ann"));
    let [one, key] = [one, key].map(|permits| match permits {
        Ok(permits) => Ok(permits.limit()),
        Err(error) => Err(error.to_string()),
    });
    assert_eq!(one, key);
    one
}

#[test]
fn values_outside_the_bounds_are_refused_and_named_and_those_at_the_bounds_are_not() {
    let (open, three) = (OutagePolicy::open(), OutagePolicy::insured(3));
    let (millis, secs) = (Duration::from_millis, Duration::from_secs);
    for (refused, why) in [
        (
            of(0, SHORT, 25, open),
            "there must be at least 1 permit, got 0",
        ),
        (
            of(1, millis(99), 25, open),
            "a lease takes 100ms to 86400s with a deadline of 25ms, got 99ms",
        ),
        (
            of(1, secs(86_401), 25, open),
            "a lease takes 100ms to 86400s with a deadline of 25ms, got 86401s",
        ),
        (
            of(3, millis(119), 30, three),
            "a lease takes 120ms to 86400s with a deadline of 30ms, got 119ms",
        ),
        (
            of(2, SHORT, 25, three),
            "2 permits cannot be divided among 3 replicas: each needs at least 1",
        ),
    ] {
        assert_eq!(refused, Err(why.to_owned()));
    }
    for (n, lease) in [(3, millis(120)), (3, secs(86_400)), (u32::MAX, SHORT)] {
        assert_eq!(of(n, lease, 30, three), Ok(n));
    }
}

#[test]
fn an_empty_name_or_key_is_refused() {
    let redis = process("redis://127.0.0.1:1/");
    assert!(redis.permits("", 3, SHORT).is_err());
    assert!(redis.keyed_permits("", 1, LONG).is_err());
    let jobs = redis.keyed_permits("jobs", 1, LONG).unwrap();
    assert!(jobs.at("").is_err());
    let key: Result<RedisPermits, _> = Limits::at(&jobs, "");
    assert!(key.is_err());
}
