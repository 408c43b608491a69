//! What the reader reads in the headers of the writer is what was meant.

use std::time::Duration;

use paceline::feedback::{Caps, Feedback, LimitHeaders, QuotaUnit};
use paceline::limiter::{Quota, Status};
use paceline::time::Rate;
use proptest::prelude::*;

fn api() -> LimitHeaders {
    LimitHeaders::try_new("api").unwrap()
}

fn status(permits: u32, window: Duration, remaining: u32, reset_in: Duration) -> Status {
    Status::new(Some(Quota { permits, window }), remaining, reset_in)
}

fn minute(remaining: u32, reset_in: Duration) -> Status {
    status(100, Duration::from_secs(60), remaining, reset_in)
}

fn written(headers: &LimitHeaders, status: &Status) -> [String; 2] {
    let pairs: Vec<_> = headers.headers(status).collect();
    assert_eq!(pairs[0].0, "ratelimit-policy");
    assert_eq!(pairs[1].0, "ratelimit");
    [pairs[0].1.clone(), pairs[1].1.clone()]
}

#[test]
fn the_headers_are_those_of_the_draft() {
    let status = minute(0, Duration::from_secs(12));
    assert_eq!(
        written(&api(), &status),
        [r#""api";q=100;w=60"#, r#""api";r=0;t=12"#]
    );
    let all = api()
        .with_unit(QuotaUnit::ContentBytes)
        .with_partition_key("eu-west");
    assert_eq!(
        written(&all, &status),
        [
            r#""api";q=100;qu="content-bytes";w=60;pk=:ZXUtd2VzdA==:"#,
            r#""api";r=0;t=12;pk=:ZXUtd2VzdA==:"#
        ]
    );
}

#[test]
fn a_window_and_a_wait_are_whole_seconds_and_never_too_short() {
    for (window, reset_in, expected) in [
        (1, 0, [r#""api";q=20;w=1"#, r#""api";r=7;t=0"#]),
        (250, 1, [r#""api";q=20;w=1"#, r#""api";r=7;t=1"#]),
        (1_000, 1_000, [r#""api";q=20;w=1"#, r#""api";r=7;t=1"#]),
        (1_001, 1_001, [r#""api";q=20;w=2"#, r#""api";r=7;t=2"#]),
    ] {
        let [window, reset_in] = [window, reset_in].map(Duration::from_millis);
        assert_eq!(written(&api(), &status(20, window, 7, reset_in)), expected);
    }
    let longest = status(1, Duration::MAX, 0, Duration::MAX);
    assert_eq!(
        written(&api(), &longest),
        [
            r#""api";q=1;w=999999999999999"#,
            r#""api";r=0;t=999999999999999"#
        ]
    );
}

#[test]
fn without_a_quota_there_is_no_policy_and_without_a_limit_there_is_nothing() {
    let headers = |remaining| {
        let status = Status::new(None, remaining, Duration::ZERO);
        assert_eq!(LimitHeaders::legacy_headers(&status).count(), 0);
        api().headers(&status).collect::<Vec<_>>()
    };
    assert_eq!(headers(3), [("ratelimit", r#""api";r=3;t=0"#.to_owned())]);
    assert_eq!(headers(u32::MAX), []);
}

#[test]
fn each_limit_of_several_has_its_name() {
    let headers = api().try_with_parts(["second", "day"]).unwrap();
    for (binding, name) in [
        (Some(0), "second"),
        (Some(1), "day"),
        (Some(2), "api"),
        (None, "api"),
    ] {
        let mut status = minute(1, Duration::ZERO);
        status.binding = binding;
        assert_eq!(headers.name(binding), name);
        let [policy, _] = written(&headers, &status);
        assert_eq!(policy, format!(r#""{name}";q=100;w=60"#));
    }
}

#[test]
fn a_name_is_printable_ascii_and_the_error_names_another() {
    for name in ["", "tab\t", "line\n", "für alle", "\u{7f}"] {
        let error = LimitHeaders::try_new(name).unwrap_err().to_string();
        let end = format!("got `{}`", name.escape_debug());
        assert!(error.ends_with(&end), "{error}");
        assert!(api().try_with_parts(["day", name]).is_err());
    }
    let odd = LimitHeaders::try_new(r#" a,b;c="\" "#).unwrap();
    let [policy, state] = written(&odd, &minute(0, Duration::from_secs(5)));
    assert_eq!(policy, r#"" a,b;c=\"\\\" ";q=100;w=60"#);
    let read = Feedback::parse([("RateLimit", state)], Duration::ZERO);
    assert_eq!(read.pause(), Some(Duration::from_secs(5)));
}

#[test]
fn a_legacy_reset_is_seconds_from_now_and_never_looks_like_a_date() {
    for (reset_in, expected) in [(Duration::from_millis(1), 1), (Duration::MAX, 999_999_999)] {
        let headers: Vec<_> = LimitHeaders::legacy_headers(&minute(0, reset_in)).collect();
        assert_eq!(headers[2], ("x-ratelimit-reset", expected.to_string()));
        let caps = Caps::new().with_longest_pause(Duration::MAX);
        let now_unix = Duration::from_secs(1_700_000_000);
        let read = Feedback::parse_capped(headers, now_unix, caps);
        assert_eq!(read.pause(), Some(Duration::from_secs(expected)));
        assert_eq!((read.quota(), read.remaining()), (Some(100), Some(0)));
    }
}

#[test]
fn a_limit_of_requests_is_read_as_a_rate_by_both_names_of_its_unit() {
    for (unit, is_rate) in [
        ("request", true),
        ("requests", true),
        ("content-bytes", false),
    ] {
        let policy = format!(r#""api";q=100;qu="{unit}";w=60"#);
        let read = Feedback::parse([("RateLimit-Policy", policy)], Duration::ZERO);
        assert_eq!(read.limit().is_some(), is_rate, "{unit}");
    }
}

fn duration() -> impl Strategy<Value = Duration> {
    let nanos = prop_oneof![
        0..2_000_000_000_u64,
        0..100_000_000_000_000_u64,
        (0..100_000_u64).prop_map(|secs| secs * 1_000_000_000)
    ];
    nanos.prop_map(Duration::from_nanos)
}

fn limits() -> impl Strategy<Value = Vec<(String, Status)>> {
    let quota = (1..=u32::MAX, duration());
    let quota = quota.prop_map(|(permits, window)| Quota { permits, window });
    let status = (quota, prop_oneof![Just(0_u32), 0..1_000_u32], duration())
        .prop_map(|(quota, remaining, reset)| Status::new(Some(quota), remaining, reset));
    prop::collection::vec(("[ -~]{1,12}", status), 1..5)
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_meant(limits in limits(), key in any::<Vec<u8>>(), legacy: bool) {
        let mut headers = Vec::new();
        for (at, (name, status)) in limits.iter().enumerate() {
            // The names differ, as those of layers do.
            let writer = LimitHeaders::try_new(format!("{name}{at}")).unwrap();
            let writer = if at == 0 { writer.with_partition_key(key.clone()) } else { writer };
            headers.extend(writer.headers(status));
            if legacy && at == 0 {
                headers.extend(LimitHeaders::legacy_headers(status));
            }
        }
        let widest = Caps::new()
            .with_longest_pause(Duration::MAX)
            .with_slowest(Rate::new(1, Duration::MAX))
            .with_fastest(Rate::new(u32::MAX, Duration::from_nanos(1)));
        let read = Feedback::parse_capped(headers, Duration::ZERO, widest);
        prop_assert_eq!(read.ignored(), []);

        let exhausted = limits.iter().filter(|(_, status)| status.remaining == 0);
        let pause = exhausted.map(|(_, status)| status.reset_in).max();
        match (pause, read.pause()) {
            (Some(meant), Some(read)) => {
                prop_assert!(meant <= read && read < meant + Duration::from_secs(1));
            }
            (meant, read) => prop_assert_eq!(meant, read),
        }
        let remaining = limits.iter().map(|(_, status)| u64::from(status.remaining)).min();
        prop_assert_eq!(read.remaining(), remaining);
        for (_, status) in &limits {
            let quota = status.quota.unwrap();
            let is_kept = |rate: &&Rate| rate.permits() == quota.permits && {
                let window = quota.window.max(Duration::from_nanos(1));
                window <= rate.period() && rate.period() < window + Duration::from_secs(1)
            };
            prop_assert!(read.limits().iter().any(|rate| is_kept(&rate)), "{quota:?}");
        }
    }
}
