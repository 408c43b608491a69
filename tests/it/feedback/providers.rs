//! Headers as providers send them, and what they mean.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use paceline::feedback::{Caps, Feedback};
use paceline::time::Rate;

use crate::timed::ms;

/// Tue, 14 Nov 2023 22:13:20 GMT.
const NOW: Duration = Duration::from_secs(1_700_000_000);

/// The name of each case, its headers, and behind `=` what they mean. Of several limits the slowest is the first.
const CASES: &str = r#"
GitHub: plenty left
  x-ratelimit-limit: 5000
  x-ratelimit-remaining: 4999
  x-ratelimit-reset: 1700003600
  x-ratelimit-used: 1
  x-ratelimit-resource: core
  = reset 3600s, remaining 4999, quota 5000
GitHub: the primary limit
  x-ratelimit-limit: 60
  x-ratelimit-remaining: 0
  x-ratelimit-reset: 1700000900
  = pause 900s, reset 900s, remaining 0, quota 60
GitHub: a secondary limit
  retry-after: 60
  x-ratelimit-remaining: 4000
  x-ratelimit-reset: 1700003000
  = pause 60s, reset 3000s, remaining 4000
X
  x-rate-limit-limit: 900
  x-rate-limit-remaining: 0
  x-rate-limit-reset: 1700000421
  = pause 421s, reset 421s, remaining 0, quota 900
Slack
  Retry-After: 30
  = pause 30s
Discord: a bucket, with our clock an hour behind theirs
  Date: Tue, 14 Nov 2023 23:13:20 GMT
  X-RateLimit-Limit: 5
  X-RateLimit-Remaining: 0
  X-RateLimit-Reset: 1700003601.337
  X-RateLimit-Reset-After: 1.337
  X-RateLimit-Bucket: abcd1234
  = pause 1.337s, reset 1.337s, remaining 0, quota 5
Discord: refused, globally
  Retry-After: 65
  X-RateLimit-Global: true
  X-RateLimit-Scope: user
  = pause 65s
Stripe: nothing in numbers
  Stripe-Rate-Limited-Reason: endpoint-rate
  Stripe-Should-Retry: true
  = nothing
Shopify
  X-Shopify-Shop-Api-Call-Limit: 32/40
  Retry-After: 2.0
  = pause 2s, remaining 8, quota 40
Shopify: full
  X-Shopify-Shop-Api-Call-Limit: 41/40
  = remaining 0, quota 40
OpenAI: out of tokens
  x-ratelimit-limit-requests: 60
  x-ratelimit-limit-tokens: 150000
  x-ratelimit-remaining-requests: 59
  x-ratelimit-remaining-tokens: 0
  x-ratelimit-reset-requests: 1s
  x-ratelimit-reset-tokens: 6m0s
  = pause 360s, reset 1s, remaining 59, quota 60
OpenAI: refused
  retry-after-ms: 120
  retry-after: 1
  x-ratelimit-reset-requests: 120ms
  = pause 1s, reset 120ms
Azure
  x-ms-retry-after-ms: 1500
  = pause 1.5s
Groq
  x-ratelimit-limit-requests: 14400
  x-ratelimit-remaining-requests: 0
  x-ratelimit-reset-requests: 2m59.56s
  x-ratelimit-remaining-tokens: 17997
  x-ratelimit-reset-tokens: 7.66s
  = pause 179.56s, reset 179.56s, remaining 0, quota 14400
Anthropic
  anthropic-ratelimit-requests-limit: 50
  anthropic-ratelimit-requests-remaining: 0
  anthropic-ratelimit-requests-reset: 2023-11-14T22:13:32Z
  anthropic-ratelimit-input-tokens-remaining: 900
  anthropic-ratelimit-input-tokens-reset: 2023-11-14T22:14:20Z
  = pause 12s, reset 12s, remaining 0, quota 50
Cloudflare, as version 8 and later of the draft
  RateLimit-Policy: "default";q=1200;w=300
  RateLimit: "default";r=0;t=41
  Retry-After: 7
  = pause 41s, reset 41s, remaining 0, quota 1200, limits 1200/5min
the draft: several policies and units
  RateLimit-Policy: "burst";q=100;w=60,"daily";q=1000;w=86400
  RateLimit-Policy: "size";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:
  RateLimit: "burst";r=50;t=30, "daily";r=40;t=7000, "size";r=0;t=4
  = pause 4s, reset 7000s, remaining 40, quota 1000, limits 1000/day 100/min
the draft: nothing left, and no reset told
  RateLimit-Policy: "p";q=10;w=20
  RateLimit: "p";r=0
  = pause 20s, remaining 0, quota 10, limits 10/20s
version 7 of the draft
  RateLimit-Policy: 100;w=60;burst=1000, 5000;w=3600
  RateLimit: limit=100, remaining=0, reset=5
  = pause 5s, reset 5s, remaining 0, quota 100, limits 5000/h 100/min
version 2 of the draft
  RateLimit-Limit: 100, 100;w=60, 5000;w=3600
  RateLimit-Remaining: 3
  RateLimit-Reset: 50
  = reset 50s, remaining 3, quota 100, limits 5000/h 100/min
Docker Hub
  ratelimit-limit: 100;w=21600
  ratelimit-remaining: 76;w=21600
  = remaining 76, quota 100, limits 100/6h
GitLab: a unix time in RateLimit-Reset
  RateLimit-Limit: 600
  RateLimit-Remaining: 0
  RateLimit-Reset: 1700000060
  RateLimit-ResetTime: Tue, 14 Nov 2023 22:14:20 GMT
  RateLimit-Name: throttle_authenticated_web
  = pause 60s, reset 60s, remaining 0, quota 600
Kong
  X-RateLimit-Limit-Minute: 20
  X-RateLimit-Remaining-Minute: 4
  X-RateLimit-Limit-Hour: 500
  X-RateLimit-Remaining-Hour: 480
  RateLimit-Limit: 20
  RateLimit-Remaining: 4
  RateLimit-Reset: 47
  = reset 47s, remaining 4, quota 20, limits 500/h 20/min
Reddit: fractions of requests
  x-ratelimit-used: 2
  x-ratelimit-remaining: 0.8
  x-ratelimit-reset: 351
  = pause 351s, reset 351s, remaining 0
Jira: a time without seconds
  X-RateLimit-Limit: 350
  X-RateLimit-Remaining: 0
  X-RateLimit-Reset: 2023-11-14T22:20Z
  X-RateLimit-NearLimit: true
  = pause 400s, reset 400s, remaining 0, quota 350
a time with an offset without a colon
  X-RateLimit-Remaining: 0
  X-RateLimit-Reset: 2023-11-14T22:20:00+0000
  = pause 400s, reset 400s, remaining 0
a date with an offset
  Retry-After: Tue, 14 Nov 2023 23:13:25 +0100
  = pause 5s
WHOOP
  X-RateLimit-Limit: 100, 100;window=60, 10000;window=86400
  X-RateLimit-Remaining: 98
  X-RateLimit-Reset: 3
  = reset 3s, remaining 98, quota 100, limits 10000/day 100/min
Riot
  X-App-Rate-Limit: 20:1,100:120
  X-App-Rate-Limit-Count: 1:1,17:120
  X-Method-Rate-Limit: 2000:60
  X-Method-Rate-Limit-Count: 17:60
  = remaining 19, quota 20, limits 100/2min 20/s 2000/min
Riot: the longer window is used up, and the counts come first
  X-App-Rate-Limit-Count: 3:1,100:120
  X-App-Rate-Limit: 20:1,100:120
  = pause 120s, remaining 0, quota 100, limits 100/2min 20/s
HubSpot
  X-HubSpot-RateLimit-Daily: 250000
  X-HubSpot-RateLimit-Daily-Remaining: 249998
  X-HubSpot-RateLimit-Interval-Milliseconds: 10000
  X-HubSpot-RateLimit-Max: 100
  X-HubSpot-RateLimit-Remaining: 99
  X-HubSpot-RateLimit-Secondly: 19
  X-HubSpot-RateLimit-Secondly-Remaining: 18
  = remaining 18, quota 19, limits 250000/day 100/10s 19/s
HubSpot: the ten seconds are used up
  X-HubSpot-RateLimit-Max: 100
  X-HubSpot-RateLimit-Remaining: 0
  X-HubSpot-RateLimit-Interval-Milliseconds: 10000
  = pause 10s, remaining 0, quota 100, limits 100/10s
a reset in 20 hours
  X-RateLimit-Remaining: 0
  X-RateLimit-Reset: 1700072000
  = pause 72000s, reset 72000s, remaining 0
milliseconds since 1970
  X-RateLimit-Remaining: 0
  X-RateLimit-Reset: 1700000001250
  = pause 1.25s, reset 1.25s, remaining 0
overdrawn
  X-RateLimit-Remaining: -3
  X-RateLimit-Reset: 9
  = pause 9s, reset 9s, remaining 0
a date
  Retry-After: Tuesday, 14-Nov-23 22:13:25 GMT
  = pause 5s
a date that is over
  Retry-After: Tue Nov 14 22:13:19 2023
  = pause 0ns
headers that a proxy has joined
  Retry-After: 5, Tue, 14 Nov 2023 22:13:41 GMT, 20
  = pause 21s
"#;

#[derive(Clone, Debug, Default)]
pub(super) struct Case {
    name: &'static str,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    meaning: &'static str,
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in CASES.trim().lines() {
        let Some(told) = line.strip_prefix("  ") else {
            let name = line;
            cases.push(Case {
                name,
                ..Case::default()
            });
            continue;
        };
        let case = cases.last_mut().unwrap();
        match told.strip_prefix("= ") {
            Some(meaning) => case.meaning = meaning,
            None => case.headers.push(told.split_once(": ").unwrap()),
        }
    }
    cases
}

/// As in [`CASES`].
fn meaning(feedback: &Feedback) -> String {
    let limits = feedback.limits().iter().map(ToString::to_string);
    let limits = limits.collect::<Vec<_>>().join(" ");
    let parts = [
        feedback.pause().map(|pause| format!("pause {pause:?}")),
        feedback
            .reset_in()
            .map(|reset_in| format!("reset {reset_in:?}")),
        feedback
            .remaining()
            .map(|remaining| format!("remaining {remaining}")),
        feedback.quota().map(|quota| format!("quota {quota}")),
        feedback.limit().map(|_| format!("limits {limits}")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "nothing".to_owned();
    }
    parts.join(", ")
}

#[test]
fn the_headers_of_providers_are_understood() {
    for Case {
        name,
        headers,
        meaning: expected,
    } in cases()
    {
        let feedback = Feedback::parse(headers, NOW);
        assert_eq!(meaning(&feedback), expected, "{name}");
        assert_eq!(
            feedback.limit(),
            feedback.limits().first().copied(),
            "{name}"
        );
        assert_eq!(feedback.ignored(), [], "{name}");
        assert!(!feedback.was_capped(), "{name}");
    }
}

#[test]
fn a_header_map_and_pairs_of_bytes_give_the_same_feedback() {
    for Case { name, headers, .. } in cases() {
        let pairs = headers
            .iter()
            .map(|(name, value)| (name.to_uppercase(), value.as_bytes()));
        let mut map = HeaderMap::new();
        for (name, value) in &headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_static(value));
        }
        let from_map = Feedback::parse(&map, NOW);
        assert_eq!(from_map, Feedback::parse(pairs, NOW), "{name}");
    }
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
