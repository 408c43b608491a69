use super::*;

fn refused(n: u32, lease: Duration, when_down: OutagePolicy) -> String {
    let redis = process_with("redis://127.0.0.1:1/", when_down, Duration::from_millis(25));
    redis.permits("jobs", n, lease).unwrap_err().to_string()
}

#[test]
fn values_outside_the_bounds_are_refused_and_named() {
    assert_eq!(
        refused(0, SHORT, OutagePolicy::open()),
        "there must be at least 1 permit, got 0"
    );
    assert_eq!(
        refused(1, Duration::from_millis(99), OutagePolicy::open()),
        "a lease takes 100ms to 86400s with a deadline of 25ms, got 99ms"
    );
    assert_eq!(
        refused(1, Duration::from_secs(86_401), OutagePolicy::open()),
        "a lease takes 100ms to 86400s with a deadline of 25ms, got 86401s"
    );
    assert_eq!(
        refused(2, SHORT, OutagePolicy::insured(3)),
        "2 permits cannot be divided among 3 replicas: each needs at least 1"
    );
}

#[test]
fn values_at_the_bounds_are_accepted() {
    let redis = process_with(
        "redis://127.0.0.1:1/",
        OutagePolicy::insured(3),
        Duration::from_millis(30),
    );
    for lease in [Duration::from_millis(120), Duration::from_secs(86_400)] {
        assert!(redis.permits("jobs", 3, lease).is_ok());
    }
    let short = Duration::from_millis(119);
    assert_eq!(
        redis.permits("jobs", 3, short).unwrap_err().to_string(),
        "a lease takes 120ms to 86400s with a deadline of 30ms, got 119ms"
    );
    assert!(redis.permits("", 3, SHORT).is_err());
    assert!(redis.permits("jobs", u32::MAX, SHORT).is_ok());
}
