use core::time::Duration;

use crate::policy::{Quota, Status};
use crate::time::error::ConfigError;

use super::header::param;

/// Writes what a limit has left as headers of a response: the other side of [`Feedback`](super::Feedback).
///
/// ```
/// use paceline::feedback::{Feedback, LimitHeaders};
/// use paceline::limiter::{Quota, Status};
/// use std::time::Duration;
///
/// let quota = Quota { permits: 100, window: Duration::from_secs(60) };
/// let status = Status::new(Some(quota), 0, Duration::from_millis(11_400));
///
/// let headers: Vec<_> = LimitHeaders::try_new("api").unwrap().headers(&status).collect();
/// assert_eq!(headers[0], ("ratelimit-policy", r#""api";q=100;w=60"#.to_owned()));
/// assert_eq!(headers[1], ("ratelimit", r#""api";r=0;t=12"#.to_owned()));
///
/// let feedback = Feedback::parse(headers, Duration::ZERO);
/// assert_eq!(feedback.pause(), Some(Duration::from_secs(12)));
/// ```
///
/// The headers are the structured fields (RFC 9651) of draft-ietf-httpapi-ratelimit-headers-11. All numbers are such that a client
/// that obeys them never oversteps the limit:
///
/// * **`w`** is in whole seconds and at least 1. Another window is rounded up, with the same `q`: 20 in 250 ms are said to be 20 in 1 s.
///   A quota of 20 in any second keeps 20 in any 250 ms, while 80 in a second might come at once.
/// * **`t`** is [`Status::reset_in`], rounded up to whole seconds. Until then a client can use no more than `r`. A token bucket fills
///   sooner than that, bit by bit.
/// * A limit without a [quota](Status::quota) has no `RateLimit-Policy`, and one that is not limited at all has no headers.
///
/// Several headers of the same name are one list, so the headers of several limits are appended to a response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LimitHeaders {
    name: String,
    /// The names of the limits of an `All`.
    parts: Vec<String>,
    unit: QuotaUnit,
    partition_key: Option<Vec<u8>>,
}

impl LimitHeaders {
    /// The headers of the policy of this name.
    ///
    /// # Errors
    ///
    /// If the name is empty, or has a character outside of printable ASCII (space to `~`).
    pub fn try_new(name: impl Into<String>) -> Result<Self, ConfigError> {
        Ok(Self {
            name: checked(name.into())?,
            parts: Vec::new(),
            unit: QuotaUnit::Requests,
            partition_key: None,
        })
    }

    /// The names of the limits of an [`All`](crate::policy::All), in its order.
    ///
    /// A [`Status`] is about one of them, so each header is about one. Without names of their own they share the name of the policy.
    ///
    /// ```
    /// use paceline::feedback::LimitHeaders;
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::{All, FixedWindow};
    /// use std::time::Duration;
    ///
    /// let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
    /// let limit = All::new((FixedWindow::new(10, second), FixedWindow::new(500, day))).shared();
    /// let headers = LimitHeaders::try_new("api").unwrap().try_with_parts(["second", "day"]).unwrap();
    ///
    /// let policy = headers.headers(&limit.status().unwrap()).next().unwrap();
    /// assert_eq!(policy.1, r#""second";q=10;w=1"#);
    /// ```
    ///
    /// # Errors
    ///
    /// If a name is not valid; see [`try_new`](Self::try_new).
    pub fn try_with_parts<N>(self, names: impl IntoIterator<Item = N>) -> Result<Self, ConfigError>
    where
        N: Into<String>,
    {
        let names = names.into_iter().map(|name| checked(name.into()));
        let parts = names.collect::<Result<_, _>>()?;
        Ok(Self { parts, ..self })
    }

    /// What the quota counts, as parameter `qu`; requests by default, which need no parameter.
    #[must_use]
    pub fn with_unit(self, unit: QuotaUnit) -> Self {
        Self { unit, ..self }
    }

    /// Adds the parameter `pk`, the part of the service that the limit is for. None by default.
    ///
    /// Every caller reads it, so it must not be a secret.
    #[must_use]
    pub fn with_partition_key(self, key: impl Into<Vec<u8>>) -> Self {
        let partition_key = Some(key.into());
        Self {
            partition_key,
            ..self
        }
    }

    /// The names, in lower case, and the values of the headers.
    pub fn headers(&self, status: &Status) -> impl Iterator<Item = (&'static str, String)> + use<> {
        // Room for the usual value: to let it grow takes longer than to write it.
        let [mut policy, mut state] = [(); 2].map(|()| String::with_capacity(64));
        self.write_policy(&mut policy, status);
        self.write_state(&mut state, status);
        let headers = [("ratelimit-policy", policy), ("ratelimit", state)].into_iter();
        headers.filter(|(_, value)| !value.is_empty())
    }

    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds from now; for old clients. None without a quota.
    pub fn legacy_headers(status: &Status) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let remaining = status.remaining;
        let reset = whole_seconds(status.reset_in).min(LONGEST_LEGACY_RESET);
        status.quota.into_iter().flat_map(move |quota| {
            [
                ("x-ratelimit-limit", quota.permits.to_string()),
                ("x-ratelimit-remaining", remaining.to_string()),
                ("x-ratelimit-reset", reset.to_string()),
            ]
        })
    }

    /// The name of the limit that a status is about, by its [`binding`](Status::binding).
    #[must_use]
    pub fn name(&self, binding: Option<usize>) -> &str {
        let part = binding.and_then(|part| self.parts.get(part));
        part.unwrap_or(&self.name)
    }

    /// Appends the value of `RateLimit-Policy` to `item`, or nothing, as [`headers`](Self::headers) has it. So one buffer serves for all
    /// responses.
    pub fn write_policy(&self, item: &mut String, status: &Status) {
        let Some(Quota { permits, window }) = status.quota else {
            return;
        };
        add_quoted(item, self.name(status.binding));
        add_number(item, param::QUOTA, permits.into());
        if self.unit != QuotaUnit::Requests {
            add(item, param::UNIT, "");
            add_quoted(item, self.unit.name());
        }
        add_number(item, param::WINDOW, whole_seconds(window).max(1));
        self.add_partition_key(item);
    }

    /// Appends the value of `RateLimit` to `item`, or nothing, as [`headers`](Self::headers) has it.
    pub fn write_state(&self, item: &mut String, status: &Status) {
        if status.quota.is_none() && status.remaining == u32::MAX {
            return;
        }
        add_quoted(item, self.name(status.binding));
        add_number(item, param::REMAINING, status.remaining.into());
        add_number(item, param::RESET, whole_seconds(status.reset_in));
        self.add_partition_key(item);
    }

    fn add_partition_key(&self, item: &mut String) {
        if let Some(key) = &self.partition_key {
            add(item, param::PARTITION_KEY, &format!(":{}:", base64(key)));
        }
    }
}

/// What a quota counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum QuotaUnit {
    /// Requests.
    #[default]
    Requests,
    /// Bytes of content.
    ContentBytes,
    /// Requests at the same time.
    ConcurrentRequests,
}

impl QuotaUnit {
    /// The name of the unit, as in parameter `qu`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::ContentBytes => "content-bytes",
            Self::ConcurrentRequests => "concurrent-requests",
        }
    }
}

/// The largest integer of a structured field.
const LARGEST: u64 = 999_999_999_999_999;

/// From 10⁹ on a client would take the reset for a time since 1970.
const LONGEST_LEGACY_RESET: u64 = 999_999_999;

/// The duration, rounded up, and as a number that every header can have.
fn whole_seconds(duration: Duration) -> u64 {
    let begun = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(begun).min(LARGEST)
}

fn checked(name: String) -> Result<String, ConfigError> {
    let is_printable = name.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if name.is_empty() || !is_printable {
        let name = name.escape_debug();
        return Err(ConfigError::new(format!(
            "the name of a policy needs at least 1 character, all of printable ASCII, got `{name}`"
        )));
    }
    Ok(name)
}

/// A string of a structured field. The text has no control characters.
fn add_quoted(item: &mut String, text: &str) {
    item.push('"');
    if text.bytes().any(|byte| matches!(byte, b'"' | b'\\')) {
        item.push_str(&text.replace('\\', r"\\").replace('"', r#"\""#));
    } else {
        item.push_str(text);
    }
    item.push('"');
}

fn add(item: &mut String, param: &str, value: &str) {
    for part in [";", param, "=", value] {
        item.push_str(part);
    }
}

/// By hand: each response has several numbers, and to format them took most of the time of its headers.
fn add_number(item: &mut String, param: &str, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    while number > 0 || start == digits.len() {
        start -= 1;
        digits[start] += (number % 10) as u8;
        number /= 10;
    }
    add(item, param, "");
    item.push_str(core::str::from_utf8(&digits[start..]).unwrap_or_default());
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at > chunk.len() { '=' } else { digit.into() });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_stay_in_the_range_of_a_field() {
        for (duration, expected) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_secs(12), 12),
            (Duration::new(12, 1), 13),
            (Duration::MAX, LARGEST),
        ] {
            assert_eq!(whole_seconds(duration), expected, "{duration:?}");
        }
    }

    #[test]
    fn numbers_are_written_as_they_are_printed() {
        for number in [0, 7, 10, 99, 100, u64::from(u32::MAX), LARGEST, u64::MAX] {
            let mut item = String::new();
            add_number(&mut item, "q", number);
            assert_eq!(item, format!(";q={number}"));
        }
    }

    #[test]
    fn bytes_are_written_as_in_rfc_4648() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
