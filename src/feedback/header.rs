//! Which headers there are.

use core::time::Duration;

use super::wait::Number;

/// What a header is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Header<'a> {
    /// The provider's clock.
    Date,
    /// How long to wait.
    RetryAfter(Number),
    /// The structured field of quotas and windows.
    Policies,
    /// The structured field of what is left.
    States,
    /// Used and quota in one.
    Usage,
    /// One number of one limit.
    Of(Scope<'a>, Part),
}

/// Which of several limits; they are told apart by what is in their headers' names before and after the part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Scope<'a> {
    pub(super) family: &'static str,
    pub(super) name: &'a str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    Limit,
    Remaining,
    Reset(Number),
}

/// The family of the standard's own fields.
pub(super) const STANDARD: &str = "ratelimit-";

const FAMILIES: [&str; 4] = [
    STANDARD,
    "x-ratelimit-",
    "x-rate-limit-",
    "anthropic-ratelimit-",
];

/// The longer of two that begin alike comes first.
const PARTS: [(&str, Part); 4] = [
    ("limit", Part::Limit),
    ("remaining", Part::Remaining),
    ("reset-after", Part::Reset(Number::Seconds)),
    ("reset", Part::Reset(Number::SecondsOrTime)),
];

impl<'a> Header<'a> {
    /// Of a name in lower case.
    pub(super) fn named(name: &'a str) -> Option<Self> {
        Some(match name {
            "date" => Self::Date,
            "retry-after"
            | "x-retry-after"
            | "x-ratelimit-retry-after"
            | "x-rate-limit-retry-after" => Self::RetryAfter(Number::Seconds),
            "retry-after-ms" | "x-ms-retry-after-ms" => Self::RetryAfter(Number::Millis),
            "ratelimit-policy" | "x-ratelimit-policy" => Self::Policies,
            "ratelimit" | "x-ratelimit" => Self::States,
            "x-shopify-shop-api-call-limit" => Self::Usage,
            _ => {
                let (family, rest) = FAMILIES
                    .iter()
                    .find_map(|family| Some((*family, name.strip_prefix(family)?)))?;
                let (part, name) = part(rest)?;
                Self::Of(Scope { family, name }, part)
            }
        })
    }
}

impl Scope<'_> {
    /// Whether its numbers are requests, as far as its name tells.
    pub(super) fn is_of_requests(&self) -> bool {
        matches!(self.name, "" | "request" | "requests") || self.window().is_some()
    }

    /// The window that its name tells; the longest one if months and years differ.
    pub(super) fn window(&self) -> Option<Duration> {
        Some(Duration::from_secs(match self.name {
            "second" => 1,
            "minute" => 60,
            "hour" => 3_600,
            "day" => 86_400,
            "month" => 31 * 86_400,
            "year" => 366 * 86_400,
            _ => return None,
        }))
    }
}

/// The part, and the rest of the name: `remaining-tokens` or `tokens-remaining`.
fn part(name: &str) -> Option<(Part, &str)> {
    let first = PARTS.iter().find_map(|(word, part)| {
        let rest = name.strip_prefix(word)?;
        let rest = if rest.is_empty() {
            rest
        } else {
            rest.strip_prefix('-')?
        };
        Some((*part, rest))
    });
    let last = || {
        PARTS.iter().find_map(|(word, part)| {
            let rest = name.strip_suffix(word)?;
            Some((*part, rest.strip_suffix('-')?))
        })
    };
    first.or_else(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let of = |family, name, part| Some(Header::Of(Scope { family, name }, part));
        let reset = Part::Reset(Number::SecondsOrTime);
        let after = Part::Reset(Number::Seconds);
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
    fn a_name_may_tell_the_window_and_what_is_counted() {
        let scope = |name| Scope {
            family: STANDARD,
            name,
        };
        assert_eq!(scope("minute").window(), Some(Duration::from_secs(60)));
        assert_eq!(scope("tokens").window(), None);
        for (name, expected) in [
            ("", true),
            ("requests", true),
            ("day", true),
            ("tokens", false),
        ] {
            assert_eq!(scope(name).is_of_requests(), expected, "{name}");
        }
    }
}
