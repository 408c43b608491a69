//! The names of the headers that are read.

use core::time::Duration;

use super::value::Unit;

/// What a header is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Header<'a> {
    /// The clock of the provider.
    Date,
    RetryAfter(Unit),
    /// The structured field of quotas and windows.
    Policies,
    /// The structured field of remaining requests and resets.
    States,
    /// One part of one limit. The limit is named by the rest of the header's name.
    Of {
        family: &'static str,
        name: &'a str,
        part: Part,
    },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    Limit,
    Remaining,
    Reset(Unit),
    /// The window of the limit, in milliseconds.
    IntervalMillis,
    /// `32/40`.
    UsedOfQuota,
    /// `20:1,100:120`, quotas with their windows in seconds.
    LimitPerWindow,
    /// `3:1,17:120`, used requests in windows.
    UsedPerWindow,
}

/// The family of the standard's own fields.
pub(super) const STANDARD: &str = "ratelimit-";

const HUBSPOT: &str = "x-hubspot-ratelimit-";

const FAMILIES: [&str; 4] = [
    STANDARD,
    "x-ratelimit-",
    "x-rate-limit-",
    "anthropic-ratelimit-",
];

/// A word that begins with another one comes first.
const PARTS: [(&str, Part); 4] = [
    ("limit", Part::Limit),
    ("remaining", Part::Remaining),
    ("reset-after", Part::Reset(Unit::Seconds)),
    ("reset", Part::Reset(Unit::SecondsOrUnixTime)),
];

impl<'a> Header<'a> {
    /// `name` is in lower case.
    pub(super) fn named(name: &'a str) -> Option<Self> {
        let of = |family, name, part| Self::Of { family, name, part };
        Some(match name {
            "date" => Self::Date,
            "retry-after"
            | "x-retry-after"
            | "x-ratelimit-retry-after"
            | "x-rate-limit-retry-after" => Self::RetryAfter(Unit::Seconds),
            "retry-after-ms" | "x-ms-retry-after-ms" => Self::RetryAfter(Unit::Millis),
            "ratelimit-policy" | "x-ratelimit-policy" => Self::Policies,
            "ratelimit" | "x-ratelimit" => Self::States,
            "x-shopify-shop-api-call-limit" => of("x-shopify-", "", Part::UsedOfQuota),
            "x-app-rate-limit" => of("x-app-", "", Part::LimitPerWindow),
            "x-app-rate-limit-count" => of("x-app-", "", Part::UsedPerWindow),
            "x-method-rate-limit" => of("x-method-", "", Part::LimitPerWindow),
            "x-method-rate-limit-count" => of("x-method-", "", Part::UsedPerWindow),
            "x-hubspot-ratelimit-daily" => of(HUBSPOT, "day", Part::Limit),
            "x-hubspot-ratelimit-daily-remaining" => of(HUBSPOT, "day", Part::Remaining),
            "x-hubspot-ratelimit-secondly" => of(HUBSPOT, "second", Part::Limit),
            "x-hubspot-ratelimit-secondly-remaining" => of(HUBSPOT, "second", Part::Remaining),
            "x-hubspot-ratelimit-max" => of(HUBSPOT, "", Part::Limit),
            "x-hubspot-ratelimit-remaining" => of(HUBSPOT, "", Part::Remaining),
            "x-hubspot-ratelimit-interval-milliseconds" => of(HUBSPOT, "", Part::IntervalMillis),
            _ => {
                let (family, rest) = FAMILIES
                    .iter()
                    .find_map(|family| Some((*family, name.strip_prefix(family)?)))?;
                let (part, name) = part(rest)?;
                of(family, name, part)
            }
        })
    }
}

/// Whether a limit of this name counts requests, and not tokens or bytes.
pub(super) fn counts_requests(name: &str) -> bool {
    matches!(name, "" | "request" | "requests") || window_named(name).is_some()
}

/// The window of a limit of this name, if the name is a unit of time. A month and a year are the longest possible.
pub(super) fn window_named(name: &str) -> Option<Duration> {
    Some(Duration::from_secs(match name {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        "month" => 31 * 86_400,
        "year" => 366 * 86_400,
        _ => return None,
    }))
}

/// The part and the rest of the name, of `remaining-tokens` or `tokens-remaining`.
fn part(name: &str) -> Option<(Part, &str)> {
    PARTS.iter().find_map(|(word, part)| {
        let after = name.strip_prefix(word);
        let after = after.and_then(|rest| match rest {
            "" => Some(rest),
            _ => rest.strip_prefix('-'),
        });
        let before = || name.strip_suffix(word)?.strip_suffix('-');
        Some((*part, after.or_else(before)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_into_family_name_and_part() {
        let of = |family, name, part| Some(Header::Of { family, name, part });
        let reset = Part::Reset(Unit::SecondsOrUnixTime);
        let after = Part::Reset(Unit::Seconds);
        for (name, expected) in [
            ("ratelimit-limit", of("ratelimit-", "", Part::Limit)),
            ("ratelimit-reset", of("ratelimit-", "", reset)),
            ("x-ratelimit-reset-after", of("x-ratelimit-", "", after)),
            (
                "x-ratelimit-reset-tokens",
                of("x-ratelimit-", "tokens", reset),
            ),
            (
                "x-rate-limit-remaining",
                of("x-rate-limit-", "", Part::Remaining),
            ),
            (
                "anthropic-ratelimit-input-tokens-limit",
                of("anthropic-ratelimit-", "input-tokens", Part::Limit),
            ),
            ("x-ratelimit-policy", Some(Header::Policies)),
            ("x-ratelimit-used", None),
            ("x-ratelimit-bucket", None),
            ("x-ratelimit-limits", None),
            ("x-ratelimit-", None),
            ("x-ratelimit-unlimit", None),
            ("content-length", None),
            ("", None),
        ] {
            assert_eq!(Header::named(name), expected, "{name}");
        }
    }

    #[test]
    fn a_name_may_say_the_window_and_the_unit() {
        assert_eq!(window_named("minute"), Some(Duration::from_secs(60)));
        assert_eq!(window_named("tokens"), None);
        for (name, expected) in [
            ("", true),
            ("requests", true),
            ("day", true),
            ("tokens", false),
        ] {
            assert_eq!(counts_requests(name), expected, "{name}");
        }
    }
}
