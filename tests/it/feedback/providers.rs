//! Headers as providers send them, and what they mean.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use paceline::feedback::{Caps, Feedback};
use paceline::time::Rate;

use crate::timed::ms;

/// Tue, 14 Nov 2023 22:13:20 GMT.
const NOW: Duration = Duration::from_secs(1_700_000_000);

struct Case {
    provider: &'static str,
    headers: &'static [(&'static str, &'static str)],
    pause: Option<u64>,
    reset_in: Option<u64>,
    remaining: Option<u64>,
    quota: Option<u64>,
    limit: Option<Rate>,
}

/// No headers. Times are in milliseconds.
const NOTHING: Case = Case {
    provider: "",
    headers: &[],
    pause: None,
    reset_in: None,
    remaining: None,
    quota: None,
    limit: None,
};

const CASES: &[Case] = &[
    Case {
        provider: "GitHub: plenty left",
        headers: &[
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "4999"),
            ("x-ratelimit-reset", "1700003600"),
            ("x-ratelimit-used", "1"),
            ("x-ratelimit-resource", "core"),
        ],
        reset_in: Some(3_600_000),
        remaining: Some(4_999),
        quota: Some(5_000),
        ..NOTHING
    },
    Case {
        provider: "GitHub: the primary limit",
        headers: &[
            ("x-ratelimit-limit", "60"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1700000900"),
        ],
        pause: Some(900_000),
        reset_in: Some(900_000),
        remaining: Some(0),
        quota: Some(60),
        ..NOTHING
    },
    Case {
        provider: "GitHub: a secondary limit",
        headers: &[
            ("retry-after", "60"),
            ("x-ratelimit-remaining", "4000"),
            ("x-ratelimit-reset", "1700003000"),
        ],
        pause: Some(60_000),
        reset_in: Some(3_000_000),
        remaining: Some(4_000),
        ..NOTHING
    },
    Case {
        provider: "X",
        headers: &[
            ("x-rate-limit-limit", "900"),
            ("x-rate-limit-remaining", "0"),
            ("x-rate-limit-reset", "1700000421"),
        ],
        pause: Some(421_000),
        reset_in: Some(421_000),
        remaining: Some(0),
        quota: Some(900),
        ..NOTHING
    },
    Case {
        provider: "Slack",
        headers: &[("Retry-After", "30")],
        pause: Some(30_000),
        ..NOTHING
    },
    Case {
        provider: "Discord: a bucket, with our clock an hour behind theirs",
        headers: &[
            ("Date", "Tue, 14 Nov 2023 23:13:20 GMT"),
            ("X-RateLimit-Limit", "5"),
            ("X-RateLimit-Remaining", "0"),
            ("X-RateLimit-Reset", "1700003601.337"),
            ("X-RateLimit-Reset-After", "1.337"),
            ("X-RateLimit-Bucket", "abcd1234"),
        ],
        pause: Some(1_337),
        reset_in: Some(1_337),
        remaining: Some(0),
        quota: Some(5),
        ..NOTHING
    },
    Case {
        provider: "Discord: refused, globally",
        headers: &[
            ("Retry-After", "65"),
            ("X-RateLimit-Global", "true"),
            ("X-RateLimit-Scope", "user"),
        ],
        pause: Some(65_000),
        ..NOTHING
    },
    Case {
        provider: "Stripe: nothing in numbers",
        headers: &[
            ("Stripe-Rate-Limited-Reason", "endpoint-rate"),
            ("Stripe-Should-Retry", "true"),
        ],
        ..NOTHING
    },
    Case {
        provider: "Shopify",
        headers: &[
            ("X-Shopify-Shop-Api-Call-Limit", "32/40"),
            ("Retry-After", "2.0"),
        ],
        pause: Some(2_000),
        remaining: Some(8),
        quota: Some(40),
        ..NOTHING
    },
    Case {
        provider: "Shopify: full",
        headers: &[("X-Shopify-Shop-Api-Call-Limit", "41/40")],
        remaining: Some(0),
        quota: Some(40),
        ..NOTHING
    },
    Case {
        provider: "OpenAI: out of tokens",
        headers: &[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ],
        pause: Some(360_000),
        reset_in: Some(1_000),
        remaining: Some(59),
        quota: Some(60),
        ..NOTHING
    },
    Case {
        provider: "OpenAI: refused",
        headers: &[
            ("retry-after-ms", "120"),
            ("retry-after", "1"),
            ("x-ratelimit-reset-requests", "120ms"),
        ],
        pause: Some(1_000),
        reset_in: Some(120),
        ..NOTHING
    },
    Case {
        provider: "Azure",
        headers: &[("x-ms-retry-after-ms", "1500")],
        pause: Some(1_500),
        ..NOTHING
    },
    Case {
        provider: "Groq",
        headers: &[
            ("x-ratelimit-limit-requests", "14400"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "2m59.56s"),
            ("x-ratelimit-remaining-tokens", "17997"),
            ("x-ratelimit-reset-tokens", "7.66s"),
        ],
        pause: Some(179_560),
        reset_in: Some(179_560),
        remaining: Some(0),
        quota: Some(14_400),
        ..NOTHING
    },
    Case {
        provider: "Anthropic",
        headers: &[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2023-11-14T22:13:32Z"),
            ("anthropic-ratelimit-input-tokens-remaining", "900"),
            (
                "anthropic-ratelimit-input-tokens-reset",
                "2023-11-14T22:14:20Z",
            ),
        ],
        pause: Some(12_000),
        reset_in: Some(12_000),
        remaining: Some(0),
        quota: Some(50),
        ..NOTHING
    },
    Case {
        provider: "Cloudflare, as version 8 and later of the draft",
        headers: &[
            ("RateLimit-Policy", r#""default";q=1200;w=300"#),
            ("RateLimit", r#""default";r=0;t=41"#),
            ("Retry-After", "7"),
        ],
        pause: Some(41_000),
        reset_in: Some(41_000),
        remaining: Some(0),
        quota: Some(1_200),
        limit: Some(Rate::new(1_200, Duration::from_secs(300))),
    },
    Case {
        provider: "the draft: several policies and units",
        headers: &[
            (
                "RateLimit-Policy",
                r#""burst";q=100;w=60,"daily";q=1000;w=86400"#,
            ),
            (
                "RateLimit-Policy",
                r#""size";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:"#,
            ),
            (
                "RateLimit",
                r#""burst";r=50;t=30, "daily";r=40;t=7000, "size";r=0;t=4"#,
            ),
        ],
        pause: Some(4_000),
        reset_in: Some(7_000_000),
        remaining: Some(40),
        quota: Some(1_000),
        limit: Some(Rate::per_day(1_000)),
    },
    Case {
        provider: "the draft: nothing left, and no reset told",
        headers: &[
            ("RateLimit-Policy", r#""p";q=10;w=20"#),
            ("RateLimit", r#""p";r=0"#),
        ],
        pause: Some(20_000),
        remaining: Some(0),
        quota: Some(10),
        limit: Some(Rate::new(10, Duration::from_secs(20))),
        ..NOTHING
    },
    Case {
        provider: "version 7 of the draft",
        headers: &[
            ("RateLimit-Policy", "100;w=60;burst=1000, 5000;w=3600"),
            ("RateLimit", "limit=100, remaining=0, reset=5"),
        ],
        pause: Some(5_000),
        reset_in: Some(5_000),
        remaining: Some(0),
        quota: Some(100),
        limit: Some(Rate::per_hour(5_000)),
    },
    Case {
        provider: "version 2 of the draft",
        headers: &[
            ("RateLimit-Limit", "100, 100;w=60, 5000;w=3600"),
            ("RateLimit-Remaining", "3"),
            ("RateLimit-Reset", "50"),
        ],
        reset_in: Some(50_000),
        remaining: Some(3),
        quota: Some(100),
        limit: Some(Rate::per_hour(5_000)),
        ..NOTHING
    },
    Case {
        provider: "Docker Hub",
        headers: &[
            ("ratelimit-limit", "100;w=21600"),
            ("ratelimit-remaining", "76;w=21600"),
        ],
        remaining: Some(76),
        quota: Some(100),
        limit: Some(Rate::new(100, Duration::from_secs(21_600))),
        ..NOTHING
    },
    Case {
        provider: "GitLab: a unix time in RateLimit-Reset",
        headers: &[
            ("RateLimit-Limit", "600"),
            ("RateLimit-Remaining", "0"),
            ("RateLimit-Reset", "1700000060"),
            ("RateLimit-ResetTime", "Tue, 14 Nov 2023 22:14:20 GMT"),
            ("RateLimit-Name", "throttle_authenticated_web"),
        ],
        pause: Some(60_000),
        reset_in: Some(60_000),
        remaining: Some(0),
        quota: Some(600),
        ..NOTHING
    },
    Case {
        provider: "Kong",
        headers: &[
            ("X-RateLimit-Limit-Minute", "20"),
            ("X-RateLimit-Remaining-Minute", "4"),
            ("X-RateLimit-Limit-Hour", "500"),
            ("X-RateLimit-Remaining-Hour", "480"),
            ("RateLimit-Limit", "20"),
            ("RateLimit-Remaining", "4"),
            ("RateLimit-Reset", "47"),
        ],
        reset_in: Some(47_000),
        remaining: Some(4),
        quota: Some(20),
        limit: Some(Rate::per_hour(500)),
        ..NOTHING
    },
    Case {
        provider: "Reddit: fractions of requests",
        headers: &[
            ("x-ratelimit-used", "2"),
            ("x-ratelimit-remaining", "0.8"),
            ("x-ratelimit-reset", "351"),
        ],
        pause: Some(351_000),
        reset_in: Some(351_000),
        remaining: Some(0),
        ..NOTHING
    },
    Case {
        provider: "Jira: a time without seconds",
        headers: &[
            ("X-RateLimit-Limit", "350"),
            ("X-RateLimit-Remaining", "0"),
            ("X-RateLimit-Reset", "2023-11-14T22:20Z"),
            ("X-RateLimit-NearLimit", "true"),
        ],
        pause: Some(400_000),
        reset_in: Some(400_000),
        remaining: Some(0),
        quota: Some(350),
        ..NOTHING
    },
    Case {
        provider: "a time with an offset without a colon",
        headers: &[
            ("X-RateLimit-Remaining", "0"),
            ("X-RateLimit-Reset", "2023-11-14T22:20:00+0000"),
        ],
        pause: Some(400_000),
        reset_in: Some(400_000),
        remaining: Some(0),
        ..NOTHING
    },
    Case {
        provider: "a date with an offset",
        headers: &[("Retry-After", "Tue, 14 Nov 2023 23:13:25 +0100")],
        pause: Some(5_000),
        ..NOTHING
    },
    Case {
        provider: "WHOOP",
        headers: &[
            (
                "X-RateLimit-Limit",
                "100, 100;window=60, 10000;window=86400",
            ),
            ("X-RateLimit-Remaining", "98"),
            ("X-RateLimit-Reset", "3"),
        ],
        reset_in: Some(3_000),
        remaining: Some(98),
        quota: Some(100),
        limit: Some(Rate::per_day(10_000)),
        ..NOTHING
    },
    Case {
        provider: "Riot",
        headers: &[
            ("X-App-Rate-Limit", "20:1,100:120"),
            ("X-App-Rate-Limit-Count", "1:1,17:120"),
            ("X-Method-Rate-Limit", "2000:60"),
            ("X-Method-Rate-Limit-Count", "17:60"),
        ],
        remaining: Some(19),
        quota: Some(20),
        limit: Some(Rate::new(100, Duration::from_secs(120))),
        ..NOTHING
    },
    Case {
        provider: "Riot: the longer window is used up, and the counts come first",
        headers: &[
            ("X-App-Rate-Limit-Count", "3:1,100:120"),
            ("X-App-Rate-Limit", "20:1,100:120"),
        ],
        pause: Some(120_000),
        remaining: Some(0),
        quota: Some(100),
        limit: Some(Rate::new(100, Duration::from_secs(120))),
        ..NOTHING
    },
    Case {
        provider: "HubSpot",
        headers: &[
            ("X-HubSpot-RateLimit-Daily", "250000"),
            ("X-HubSpot-RateLimit-Daily-Remaining", "249998"),
            ("X-HubSpot-RateLimit-Interval-Milliseconds", "10000"),
            ("X-HubSpot-RateLimit-Max", "100"),
            ("X-HubSpot-RateLimit-Remaining", "99"),
            ("X-HubSpot-RateLimit-Secondly", "19"),
            ("X-HubSpot-RateLimit-Secondly-Remaining", "18"),
        ],
        remaining: Some(18),
        quota: Some(19),
        limit: Some(Rate::per_day(250_000)),
        ..NOTHING
    },
    Case {
        provider: "HubSpot: the ten seconds are used up",
        headers: &[
            ("X-HubSpot-RateLimit-Max", "100"),
            ("X-HubSpot-RateLimit-Remaining", "0"),
            ("X-HubSpot-RateLimit-Interval-Milliseconds", "10000"),
        ],
        pause: Some(10_000),
        remaining: Some(0),
        quota: Some(100),
        limit: Some(Rate::new(100, Duration::from_secs(10))),
        ..NOTHING
    },
    Case {
        provider: "a reset in 20 hours",
        headers: &[
            ("X-RateLimit-Remaining", "0"),
            ("X-RateLimit-Reset", "1700072000"),
        ],
        pause: Some(72_000_000),
        reset_in: Some(72_000_000),
        remaining: Some(0),
        ..NOTHING
    },
    Case {
        provider: "milliseconds since 1970",
        headers: &[
            ("X-RateLimit-Remaining", "0"),
            ("X-RateLimit-Reset", "1700000001250"),
        ],
        pause: Some(1_250),
        reset_in: Some(1_250),
        remaining: Some(0),
        ..NOTHING
    },
    Case {
        provider: "overdrawn",
        headers: &[("X-RateLimit-Remaining", "-3"), ("X-RateLimit-Reset", "9")],
        pause: Some(9_000),
        reset_in: Some(9_000),
        remaining: Some(0),
        ..NOTHING
    },
    Case {
        provider: "a date",
        headers: &[("Retry-After", "Tuesday, 14-Nov-23 22:13:25 GMT")],
        pause: Some(5_000),
        ..NOTHING
    },
    Case {
        provider: "a date that is over",
        headers: &[("Retry-After", "Tue Nov 14 22:13:19 2023")],
        pause: Some(0),
        ..NOTHING
    },
    Case {
        provider: "headers that a proxy has joined",
        headers: &[("Retry-After", "5, Tue, 14 Nov 2023 22:13:41 GMT, 20")],
        pause: Some(21_000),
        ..NOTHING
    },
];

#[test]
fn the_headers_of_providers_are_understood() {
    for case in CASES {
        let feedback = Feedback::parse(case.headers.iter().copied(), NOW);
        let expected = (
            case.pause.map(ms),
            case.reset_in.map(ms),
            case.remaining,
            case.quota,
            case.limit.map(|rate| rate.to_string()),
        );
        let found = (
            feedback.pause(),
            feedback.reset_in(),
            feedback.remaining(),
            feedback.quota(),
            feedback.limit().map(|rate| rate.to_string()),
        );
        assert_eq!(found, expected, "{}", case.provider);
        assert_eq!(feedback.ignored(), [], "{}", case.provider);
        assert!(!feedback.was_capped(), "{}", case.provider);
    }
}

#[test]
fn a_header_map_and_pairs_of_bytes_give_the_same_feedback() {
    for case in CASES {
        let pairs = case
            .headers
            .iter()
            .map(|(name, value)| (name.to_uppercase(), value.as_bytes()));
        let mut map = HeaderMap::new();
        for (name, value) in case.headers {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_static(value),
            );
        }
        let from_map = Feedback::parse(&map, NOW);
        assert_eq!(from_map, Feedback::parse(pairs, NOW), "{}", case.provider);
    }
}

#[test]
fn all_limits_of_whoop_riot_and_hubspot_are_listed() {
    let limits = |provider: &str| {
        let case = CASES.iter().find(|case| case.provider == provider);
        let headers = case.unwrap().headers.iter().copied();
        Feedback::parse(headers, NOW).limits().to_vec()
    };
    let seconds = |permits, secs| Rate::new(permits, Duration::from_secs(secs));
    assert_eq!(limits("WHOOP"), [seconds(10_000, 86_400), seconds(100, 60)]);
    let riot = [seconds(100, 120), seconds(20, 1), seconds(2_000, 60)];
    assert_eq!(limits("Riot"), riot);
    let hubspot = [seconds(250_000, 86_400), seconds(100, 10), seconds(19, 1)];
    assert_eq!(limits("HubSpot"), hubspot);
}

#[test]
fn only_a_value_beyond_the_caps_is_cut() {
    let headers = [("RateLimit", r#""a";r=0;t=3600"#)];
    assert!(!Feedback::parse(headers, NOW).was_capped());

    let caps = Caps::new().with_longest_pause(ms(3_599_999));
    let cut = Feedback::parse_capped(headers, NOW, caps);
    assert!(cut.was_capped());
    assert_eq!(cut.pause(), Some(ms(3_599_999)));

    let fast = Feedback::parse([("RateLimit-Policy", r#""a";q=9999999999;w=1"#)], NOW);
    assert!(fast.was_capped());
    assert_eq!(fast.limit(), Some(Rate::per_second(1_000_000)));
    let slow = Feedback::parse([("RateLimit-Policy", "1;w=99999999999999999999")], NOW);
    assert!(slow.was_capped());
    assert_eq!(slow.limit(), Some(Rate::per_day(1)));
}

#[test]
fn a_pause_of_more_than_an_hour_is_kept_and_reported() {
    let parse = |secs: u64| Feedback::parse([("Retry-After", secs.to_string())], NOW);
    let month = 31 * 86_400;
    for (secs, pause, is_long, was_capped) in [
        (3_600, 3_600, false, false),
        (3_601, 3_601, true, false),
        (20 * 3_600, 20 * 3_600, true, false),
        (month, month, true, false),
        (month + 1, month, true, true),
        (999_999_999, month, true, true),
    ] {
        let feedback = parse(secs);
        assert_eq!(feedback.pause(), Some(Duration::from_secs(pause)), "{secs}");
        let said = (feedback.pause_is_long(), feedback.was_capped());
        assert_eq!(said, (is_long, was_capped), "{secs}");
    }
    assert!(!Feedback::default().pause_is_long());
}

#[test]
fn an_ignored_header_says_why() {
    let headers: [(&str, &[u8]); 11] = [
        ("Retry-After", b"\xff\xfe"),
        ("Retry-After-Ms", b""),
        ("X-RateLimit-Remaining", b"a few"),
        ("RateLimit-Policy", br#""a";q=0;w=1"#),
        ("RateLimit-Policy", br#""b";w=1"#),
        ("X-Shopify-Shop-Api-Call-Limit", b"40"),
        ("Date", b"today\n"),
        ("X-App-Rate-Limit", b"20, 100:0"),
        ("X-App-Rate-Limit-Count", b"many:1"),
        ("X-HubSpot-RateLimit-Interval-Milliseconds", b"0"),
        ("X-RateLimit-Limit", b"100, 100;per=60"),
    ];
    let feedback = Feedback::parse(headers, NOW);
    let said: Vec<String> = feedback.ignored().iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "`retry-after` was ignored: it must be text, got `\u{fffd}\u{fffd}`",
            "`retry-after-ms` was ignored: it must be a number of seconds, a duration or a date, got ``",
            "`x-ratelimit-remaining` was ignored: it must be a number of requests, got `a few`",
            r#"`ratelimit-policy` was ignored: it must be a quota of at least 1 in a window of at least 1 ns, got `\"a\";q=0;w=1`"#,
            r#"`ratelimit-policy` was ignored: it must be a quota of at least 1 in a window of at least 1 ns, got `\"b\";w=1`"#,
            "`x-shopify-shop-api-call-limit` was ignored: it must be used/quota, as in 32/40, got `40`",
            r"`date` was ignored: it must be an HTTP date, got `today\n`",
            "`x-app-rate-limit` was ignored: it must be requests:seconds, as in 20:1, got `20, 100:0`",
            "`x-app-rate-limit-count` was ignored: it must be requests:seconds, as in 20:1, got `many:1`",
            "`x-hubspot-ratelimit-interval-milliseconds` was ignored: it must be a number of milliseconds above 0, got `0`",
            "`x-ratelimit-limit` was ignored: it must be a quota of at least 1 in a window of at least 1 ns, got `100, 100;per=60`",
        ]
    );
    assert_eq!((feedback.pause(), feedback.limit()), (None, None));
}
