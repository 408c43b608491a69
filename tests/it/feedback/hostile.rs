//! For any bytes: no panic, no value beyond the caps, and no pause shorter than the headers say.

use std::time::Duration;

use paceline::feedback::{Caps, Feedback};
use paceline::time::Rate;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::providers::cases;

/// Beside those of a provider.
const NAMES: [&str; 4] = [
    "Date",
    "Retry-After",
    "X-RateLimit-Retry-After",
    "X-RateLimit-Remaining-",
];

/// Pieces of values. Put together at random, they are almost valid.
const PIECES: [&str; 34] = [
    "0",
    "1",
    "60",
    "1700000000",
    "99999999999999999999",
    "-",
    "+",
    ".",
    "\"",
    "\\",
    ";",
    ",",
    "=",
    "/",
    " ",
    ":",
    "q=",
    "w=",
    "r=0",
    "t=",
    "qu=",
    "a",
    "6m",
    "ms",
    "s",
    "Sun, ",
    "06-Nov-94",
    "29 Feb 2023",
    " 08:49:37 GMT",
    "2024-02-29T23:59:60Z",
    "2024-02-29T23:59+0100",
    "window=",
    "20:1,",
    "1:120",
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    let pieces = vec(select(&PIECES[..]), 0..12).prop_map(|pieces| pieces.concat().into_bytes());
    prop_oneof![4 => pieces, 1 => vec(any::<u8>(), 0..40)]
}

fn headers() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let of_provider = select(cases()).prop_flat_map(|case| {
        let names = case.headers.iter().map(|(name, _)| *name);
        let name = select(names.chain(NAMES).collect::<Vec<_>>());
        let name = name.prop_map(|name| name.as_bytes().to_vec());
        let name = prop_oneof![9 => name, 1 => vec(any::<u8>(), 0..30)];
        vec((name, value()), 0..12)
    });
    // Also of two providers at once.
    vec(of_provider, 1..3).prop_map(|headers| headers.concat())
}

fn instant() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0_u64..5_000_000_000, 0_u32..1_000_000_000)
            .prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
        Just(Duration::ZERO),
        Just(Duration::MAX),
    ]
}

/// A wait in nanoseconds, and a header that says it exactly.
fn wait() -> impl Strategy<Value = (u64, &'static str, String)> {
    (0_u64..3_000_000_000_000, 0_usize..5).prop_map(|(nanos, kind)| {
        let (secs, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let (name, value) = match kind {
            0 => ("Retry-After", format!("{secs}.{rest:09}")),
            1 => (
                "Retry-After",
                format!("{}m{}.{rest:09}s", secs / 60, secs % 60),
            ),
            2 => (
                "Retry-After-Ms",
                format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000),
            ),
            3 => ("RateLimit", format!(r#""p{secs}";r=0;t={secs}.{rest:09}"#)),
            _ => ("Retry-After", format!("0, {nanos}ns, 0")),
        };
        (nanos, name, value)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn no_value_is_beyond_the_caps_and_the_order_of_headers_does_not_matter(headers in headers(), now in instant()) {
        let feedback = Feedback::parse_capped(headers.clone(), now, Caps::new());
        let back = Feedback::parse(headers.into_iter().rev(), now);
        prop_assert_eq!(feedback.pause(), back.pause());
        prop_assert_eq!(feedback.limits().is_empty(), back.limits().is_empty());
        let longest = Duration::from_secs(31 * 86_400);
        for wait in [feedback.pause(), feedback.retry_after(), feedback.reset_in()] {
            prop_assert!(wait.is_none_or(|wait| wait <= longest));
        }
        for rate in feedback.limits() {
            prop_assert!((Rate::per_day(1)..=Rate::per_second(1_000_000)).contains(rate));
        }
        prop_assert!(feedback.limits().is_sorted());
        prop_assert!(feedback.pause() >= feedback.retry_after());
        if feedback.remaining() == Some(0) {
            prop_assert!(feedback.pause() >= feedback.reset_in());
        }
    }

    #[test]
    fn no_header_that_is_added_makes_the_pause_shorter(
        waits in vec(wait(), 1..4),
        noise in headers(),
        now in instant(),
    ) {
        let longest = waits.iter().map(|(nanos, ..)| *nanos).max().map(Duration::from_nanos);
        let said = waits.into_iter().map(|(_, name, value)| (name.into(), value.into_bytes()));

        let alone = Feedback::parse(said.clone(), now);
        prop_assert_eq!(alone.pause(), longest.map(|longest| longest.max(Duration::from_nanos(0))));
        prop_assert_eq!(alone.ignored(), []);

        let mut all: Vec<(Vec<u8>, Vec<u8>)> = noise;
        all.extend(said.map(|(name, value): (String, Vec<u8>)| (name.into_bytes(), value)));
        prop_assert!(Feedback::parse(all, now).pause() >= longest);
    }

    #[test]
    fn a_reset_is_never_early_and_one_in_the_past_is_no_wait(
        now in 0_u64..4_000_000_000,
        ahead in -5_000_i64..31 * 86_400,
    ) {
        let at = now.saturating_add_signed(ahead);
        let headers = [("X-RateLimit-Remaining", "0".to_owned()), ("X-RateLimit-Reset", at.to_string())];
        let feedback = Feedback::parse(headers, Duration::from_secs(now));
        let expected = at.saturating_sub(now);
        // A time before 2001 looks like a wait from now, which is longer.
        prop_assert!(feedback.pause() >= Some(Duration::from_secs(expected)));
        if at >= 1_000_000_000 {
            prop_assert_eq!(feedback.pause(), Some(Duration::from_secs(expected)));
        }
    }
}
