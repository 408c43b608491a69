//! The names of the headers that are read, and of the parameters that are read and written.

use core::time::Duration;

use super::date::Unit;

/// What a header says. From `Limit` on, it is one part of what a response says about one limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Header {
    /// The clock of the provider.
    Date,
    RetryAfter(Unit),
    /// The structured field of quotas and windows.
    Policies,
    /// The structured field of remaining requests and resets.
    States,
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

/// The names of the parameters of the structured fields, as they are written. Readers know older names too.
pub(super) mod param {
    pub(crate) const QUOTA: &str = "q";
    pub(crate) const UNIT: &str = "qu";
    pub(crate) const WINDOW: &str = "w";
    pub(crate) const REMAINING: &str = "r";
    pub(crate) const RESET: &str = "t";
    pub(crate) const PARTITION_KEY: &str = "pk";
}

/// A limit in a response: the family of its headers, and the rest of their names without the part.
pub(super) type Key<'a> = (&'static str, &'a str);

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
const PARTS: [(&str, Header); 4] = [
    ("limit", Header::Limit),
    ("remaining", Header::Remaining),
    ("reset-after", Header::Reset(Unit::Seconds)),
    ("reset", Header::Reset(Unit::SecondsOrUnixTime)),
];

/// The header of this name, which is in lower case, and the limit that it is about.
pub(super) fn header_named(name: &str) -> Option<(Header, Key<'_>)> {
    use Header::{IntervalMillis, Limit, LimitPerWindow, Remaining, UsedOfQuota, UsedPerWindow};
    let all = |header| (header, (STANDARD, ""));
    let of = |family, name, header| (header, (family, name));
    Some(match name {
        "date" => all(Header::Date),
        "retry-after"
        | "x-retry-after"
        | "x-ratelimit-retry-after"
        | "x-rate-limit-retry-after" => all(Header::RetryAfter(Unit::Seconds)),
        "retry-after-ms" | "x-ms-retry-after-ms" => all(Header::RetryAfter(Unit::Millis)),
        "ratelimit-policy" | "x-ratelimit-policy" => all(Header::Policies),
        "ratelimit" | "x-ratelimit" => all(Header::States),
        "x-shopify-shop-api-call-limit" => of("x-shopify-", "", UsedOfQuota),
        "x-app-rate-limit" => of("x-app-", "", LimitPerWindow),
        "x-app-rate-limit-count" => of("x-app-", "", UsedPerWindow),
        "x-method-rate-limit" => of("x-method-", "", LimitPerWindow),
        "x-method-rate-limit-count" => of("x-method-", "", UsedPerWindow),
        "x-hubspot-ratelimit-daily" => of(HUBSPOT, "day", Limit),
        "x-hubspot-ratelimit-daily-remaining" => of(HUBSPOT, "day", Remaining),
        "x-hubspot-ratelimit-secondly" => of(HUBSPOT, "second", Limit),
        "x-hubspot-ratelimit-secondly-remaining" => of(HUBSPOT, "second", Remaining),
        "x-hubspot-ratelimit-max" => of(HUBSPOT, "", Limit),
        "x-hubspot-ratelimit-remaining" => of(HUBSPOT, "", Remaining),
        "x-hubspot-ratelimit-interval-milliseconds" => of(HUBSPOT, "", IntervalMillis),
        _ => {
            let mut families = FAMILIES.into_iter();
            let (family, rest) =
                families.find_map(|family| Some((family, name.strip_prefix(family)?)))?;
            let (header, name) = part(rest)?;
            of(family, name, header)
        }
    })
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
fn part(name: &str) -> Option<(Header, &str)> {
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
        let of = |family, name, header| Some((header, (family, name)));
        let reset = Header::Reset(Unit::SecondsOrUnixTime);
        let after = Header::Reset(Unit::Seconds);
        for (name, expected) in [
            ("ratelimit-limit", of("ratelimit-", "", Header::Limit)),
            ("ratelimit-reset", of("ratelimit-", "", reset)),
            ("x-ratelimit-reset-after", of("x-ratelimit-", "", after)),
            (
                "x-ratelimit-reset-tokens",
                of("x-ratelimit-", "tokens", reset),
            ),
            (
                "x-rate-limit-remaining",
                of("x-rate-limit-", "", Header::Remaining),
            ),
            (
                "anthropic-ratelimit-input-tokens-limit",
                of("anthropic-ratelimit-", "input-tokens", Header::Limit),
            ),
            ("x-ratelimit-policy", of("ratelimit-", "", Header::Policies)),
            ("x-ratelimit-used", None),
            ("x-ratelimit-bucket", None),
            ("x-ratelimit-limits", None),
            ("x-ratelimit-", None),
            ("x-ratelimit-unlimit", None),
            ("content-length", None),
            ("", None),
        ] {
            assert_eq!(header_named(name), expected, "{name}");
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
