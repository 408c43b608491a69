//! Reads headers one by one. Of two values it keeps the more careful one.

use core::fmt;
use core::time::Duration;

use crate::time::Rate;

use super::date::{Unit, http_date, wait};
use super::header::{Header, Key, STANDARD, counts_requests, header_named, param, window_named};
use super::value::{Member, count, count_left, members, millis, seconds};

// What a value must be; the end of a message of `Ignored`.
const TEXT: &str = "text";
const WAIT: &str = "a number of seconds, a duration or a date";
const DATE: &str = "an HTTP date";
const COUNT: &str = "a number of requests";
const POLICY: &str = "a quota of at least 1 in a window of at least 1 ns";
const USAGE: &str = "used/quota, as in 32/40";
const PER_WINDOW: &str = "requests:seconds, as in 20:1";
const INTERVAL: &str = "a number of milliseconds above 0";

/// Whether a value was understood. The error says what it must be.
type Understood = Result<(), &'static str>;

/// The most limits, rates and ignored headers that are kept of one response.
const MOST: usize = 16;

/// What the headers of one response have said so far.
#[derive(Default)]
pub(super) struct HeaderReader {
    /// The time at the provider, since 1970.
    now: Duration,
    /// Of more than [`MOST`] limits the last one stands for the rest.
    limits: Vec<LimitInfo>,
    pub(super) retry_after: Option<Duration>,
    /// The slowest first.
    pub(super) rates: Vec<Rate>,
    /// Whether a quota was larger than a rate can be.
    pub(super) was_cut: bool,
    pub(super) ignored: Vec<Ignored>,
}

/// One of the limits in a response.
#[derive(Default)]
pub(super) struct LimitInfo {
    family: &'static str,
    name: String,
    /// Whether it counts requests, and not tokens or bytes.
    pub(super) counts_requests: bool,
    pub(super) quota: Option<u64>,
    used: Option<u64>,
    remaining: Option<u64>,
    /// The longest window.
    pub(super) window: Option<Duration>,
    /// The window of `quota`, if a header of its own says it.
    interval: Option<Duration>,
    pub(super) reset_in: Option<Duration>,
}

impl HeaderReader {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            now,
            ..Self::default()
        }
    }

    pub(super) fn read(&mut self, name: &[u8], value: &[u8]) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let Some((header, key)) = header_named(&name) else {
            return;
        };
        let understood = match core::str::from_utf8(value) {
            Ok(text) => self.read_text(header, key, text.trim()),
            Err(_) => Err(TEXT),
        };
        if let Err(expected) = understood {
            let ignored = Ignored::new(&name, value, expected);
            let known = &mut self.ignored;
            if known.len() < MOST && !known.contains(&ignored) {
                known.push(ignored);
            }
        }
    }

    /// All limits of the response, after the last header.
    pub(super) fn limits(&mut self) -> &[LimitInfo] {
        // A quota and its interval come in two headers, in any order.
        let quotas: Vec<_> = self
            .limits
            .iter()
            .filter_map(|limit| limit.quota.zip(limit.interval))
            .collect();
        for (quota, interval) in quotas {
            if let Ok(rate) = rate_of(quota, interval) {
                self.add_rate(rate, quota);
            }
        }
        if self.limits.len() > MOST {
            // The order of the headers must not matter, but it decides which limits share the last place.
            let mut all = LimitInfo::default();
            for limit in &self.limits {
                all.merge(limit);
            }
            self.limits = vec![all];
        }
        &self.limits
    }

    fn read_text(&mut self, header: Header, key: Key<'_>, text: &str) -> Understood {
        let now = self.now;
        match header {
            Header::Date => http_date(text, now).map(drop).ok_or(DATE),
            Header::RetryAfter(unit) => merge_waits(&mut self.retry_after, text, unit, now),
            Header::Policies => each(text, |member| self.read_policy(member)),
            Header::States => each(text, |member| self.read_state(member)),
            Header::Limit => self.read_quotas(key, text),
            Header::Remaining => {
                let limit = self.limit(key, counts_requests(key.1));
                each(text, |member| {
                    let remaining = count_left(member.name()).ok_or(COUNT)?;
                    merge_min(&mut limit.remaining, remaining);
                    Ok(())
                })
            }
            Header::Reset(unit) => {
                let limit = self.limit(key, counts_requests(key.1));
                merge_waits(&mut limit.reset_in, text, unit, now)
            }
            Header::IntervalMillis => {
                let interval = millis(text).filter(|interval| !interval.is_zero());
                let interval = interval.ok_or(INTERVAL)?;
                let limit = self.limit(key, true);
                merge_max(&mut limit.window, interval);
                merge_max(&mut limit.interval, interval);
                Ok(())
            }
            Header::UsedOfQuota => {
                let (used, quota) = text.split_once('/').ok_or(USAGE)?;
                let used = count(used).ok_or(USAGE)?;
                let quota = count(quota).ok_or(USAGE)?;
                let limit = self.limit(key, true);
                merge_min(&mut limit.quota, quota);
                merge_min(&mut limit.remaining, quota.saturating_sub(used));
                Ok(())
            }
            Header::LimitPerWindow => each(text, |member| {
                let (quota, name, window) = per_window(member.item)?;
                let key = (key.0, name);
                merge_min(&mut self.limit(key, true).quota, quota);
                self.add_policy(key, quota, Some(window))
            }),
            Header::UsedPerWindow => each(text, |member| {
                let (used, name, window) = per_window(member.item)?;
                let limit = self.limit((key.0, name), true);
                merge_max(&mut limit.used, used);
                merge_max(&mut limit.window, window);
                Ok(())
            }),
        }
    }

    /// `100`, or followed by the policies: `100, 10;w=1, 100;window=60`.
    fn read_quotas(&mut self, key: Key<'_>, text: &str) -> Understood {
        let mut is_first = true;
        each(text, |member| {
            let quota = count(member.name()).ok_or(COUNT)?;
            if core::mem::take(&mut is_first) {
                let limit = self.limit(key, counts_requests(key.1));
                merge_min(&mut limit.quota, quota);
            }
            match window_of(&member)?.or(window_named(key.1)) {
                None if member.params().next().is_some() => Err(POLICY),
                window => self.add_policy(key, quota, window),
            }
        })
    }

    /// `"burst";q=100;w=60`, or `100;w=60`.
    fn read_policy(&mut self, member: Member<'_>) -> Understood {
        if let Some(quota) = count(member.item) {
            return self.add_policy((STANDARD, ""), quota, window_of(&member)?);
        }
        let key = (STANDARD, member.name());
        let unit = member.params().find(|(key, _)| *key == param::UNIT);
        let counts_requests = unit.is_none_or(|(_, unit)| matches!(unit, "request" | "requests"));
        let limit = self.limit(key, counts_requests);
        limit.counts_requests &= counts_requests;
        for (_, quota) in member.params().filter(|(key, _)| *key == param::QUOTA) {
            merge_min(&mut limit.quota, count(quota).ok_or(POLICY)?);
        }
        let quota = limit.quota.ok_or(POLICY)?;
        self.add_policy(key, quota, window_of(&member)?)
    }

    /// `"burst";r=50;t=30`, or as in version 7 of the draft: `limit=100, remaining=50, reset=30`.
    fn read_state(&mut self, member: Member<'_>) -> Understood {
        let now = self.now;
        let in_version_7 = member.item.split_once('=').filter(|_| !member.is_quoted());
        let name = in_version_7.map_or(member.name(), |_| "");
        let limit = self.limit((STANDARD, name), true);
        for (key, value) in in_version_7.into_iter().chain(member.params()) {
            match key {
                param::REMAINING | "remaining" => {
                    merge_min(&mut limit.remaining, count_left(value).ok_or(COUNT)?);
                }
                "limit" => merge_min(&mut limit.quota, count(value).ok_or(COUNT)?),
                param::RESET | "reset" => {
                    merge_waits(&mut limit.reset_in, value, Unit::Seconds, now)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A quota without a window is not a rate.
    fn add_policy(&mut self, key: Key<'_>, quota: u64, window: Option<Duration>) -> Understood {
        let Some(window) = window else {
            return Ok(());
        };
        let rate = rate_of(quota, window)?;
        let limit = self.limit(key, true);
        merge_max(&mut limit.window, window);
        if limit.counts_requests {
            self.add_rate(rate, quota);
        }
        Ok(())
    }

    /// Keeps the slowest rates, in order of speed.
    fn add_rate(&mut self, rate: Rate, quota: u64) {
        self.was_cut |= u64::from(rate.permits()) < quota;
        let rates = &mut self.rates;
        if !rates.iter().any(|known| is_same(*known, rate)) {
            let at = rates.partition_point(|known| *known <= rate);
            rates.insert(at, rate);
            rates.truncate(MOST);
        }
    }

    /// The limit of this name.
    fn limit(&mut self, key: Key<'_>, counts_requests: bool) -> &mut LimitInfo {
        let (family, name) = key;
        let limits = &mut self.limits;
        let known = limits
            .iter()
            .position(|limit| limit.family == family && limit.name == name);
        let at = known.unwrap_or_else(|| {
            if limits.len() <= MOST {
                limits.push(LimitInfo {
                    family,
                    name: name.to_owned(),
                    counts_requests,
                    ..LimitInfo::default()
                });
            }
            limits.len() - 1
        });
        &mut limits[at]
    }
}

impl LimitInfo {
    pub(super) fn remaining(&self) -> Option<u64> {
        let unused = self.quota.zip(self.used);
        let unused = unused.map(|(quota, used)| quota.saturating_sub(used));
        let known = [self.remaining, unused];
        known.into_iter().flatten().min()
    }

    /// Makes the limit as strict as both.
    fn merge(&mut self, other: &Self) {
        self.counts_requests |= other.counts_requests;
        merge_min(&mut self.quota, other.quota);
        merge_max(&mut self.used, other.used);
        merge_min(&mut self.remaining, other.remaining());
        merge_max(&mut self.window, other.window);
        merge_max(&mut self.reset_in, other.reset_in);
    }
}

/// A header that was not understood, with the reason.
///
/// ```
/// use paceline::feedback::Feedback;
/// use std::time::Duration;
///
/// let feedback = Feedback::parse([("Retry-After", "-5")], Duration::ZERO);
/// assert_eq!(
///     feedback.ignored()[0].to_string(),
///     "`retry-after` was ignored: it must be a number of seconds, a duration or a date, got `-5`"
/// );
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ignored {
    header: String,
    found: String,
    expected: &'static str,
}

impl Ignored {
    pub(super) fn new(header: &str, found: &[u8], expected: &'static str) -> Self {
        // A hostile header may be long.
        const MOST_CHARS: usize = 64;
        let found = String::from_utf8_lossy(found);
        Self {
            header: header.chars().take(MOST_CHARS).collect(),
            found: found.chars().take(MOST_CHARS).collect(),
            expected,
        }
    }

    /// The name of the header, in lower case.
    #[must_use]
    pub fn header(&self) -> &str {
        &self.header
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (header, expected) = (&self.header, self.expected);
        let found = self.found.escape_debug();
        write!(
            f,
            "`{header}` was ignored: it must be {expected}, got `{found}`"
        )
    }
}

/// Keeps the smaller value.
fn merge_min(known: &mut Option<u64>, new: impl Into<Option<u64>>) {
    *known = [*known, new.into()].into_iter().flatten().min();
}

/// Keeps the larger value.
fn merge_max<T: Ord + Copy>(known: &mut Option<T>, new: impl Into<Option<T>>) {
    *known = (*known).max(new.into());
}

/// Keeps the longest of the waits in `text`. A proxy that joins two headers puts a comma between their values; a date has a
/// comma of its own.
fn merge_waits(known: &mut Option<Duration>, text: &str, unit: Unit, now: Duration) -> Understood {
    let mut understood = if text.is_empty() { Err(WAIT) } else { Ok(()) };
    let mut rest = text;
    while !rest.is_empty() {
        let first = rest.find(',').unwrap_or(rest.len());
        let second = rest[first..].match_indices(',').nth(1);
        let second = second.map_or(rest.len(), |(at, _)| first + at);
        let read = [first, second]
            .into_iter()
            .find_map(|end| Some((end, wait(rest[..end].trim(), unit, now)?)));
        let end = if let Some((end, wait)) = read {
            merge_max(known, wait);
            end
        } else {
            understood = Err(WAIT);
            first
        };
        rest = rest.get(end + 1..).unwrap_or("");
    }
    understood
}

/// Reads all members, also after an unknown member.
fn each(text: &str, read: impl FnMut(Member<'_>) -> Understood) -> Understood {
    let understood = members(text).map(read).reduce(Result::and);
    understood.unwrap_or(Err(COUNT))
}

/// The longest window among the parameters.
fn window_of(member: &Member<'_>) -> Result<Option<Duration>, &'static str> {
    let mut longest = None;
    for (key, window) in member.params() {
        if matches!(key, param::WINDOW | "window") {
            merge_max(&mut longest, seconds(window).ok_or(POLICY)?);
        }
    }
    Ok(longest)
}

/// `20:1`, a count and a window in seconds. Also returns the text of the window.
fn per_window(item: &str) -> Result<(u64, &str, Duration), &'static str> {
    let (number, text) = item.split_once(':').ok_or(PER_WINDOW)?;
    let text = text.trim();
    let window = seconds(text).filter(|window| !window.is_zero());
    let number = count(number).ok_or(PER_WINDOW)?;
    Ok((number, text, window.ok_or(PER_WINDOW)?))
}

/// A quota above the largest rate is cut.
fn rate_of(quota: u64, window: Duration) -> Result<Rate, &'static str> {
    let permits = u32::try_from(quota).unwrap_or(u32::MAX);
    Rate::try_new(permits, window).map_err(|_| POLICY)
}

/// Whether both are written the same, and not only the same fraction.
pub(super) fn is_same(one: Rate, other: Rate) -> bool {
    (one.permits(), one.period()) == (other.permits(), other.period())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_waits_are_read_one_by_one() {
        let read = |text| {
            let mut longest = None;
            let understood = merge_waits(&mut longest, text, Unit::Seconds, Duration::ZERO);
            (longest.map(|wait| wait.as_secs()), understood)
        };
        let wrong = Err(WAIT);
        assert_eq!(read("2"), (Some(2), Ok(())));
        assert_eq!(read("2, 30,5s"), (Some(30), Ok(())));
        assert_eq!(
            read("Sun, 06 Nov 1994 08:49:37 GMT"),
            (Some(784_111_777), Ok(()))
        );
        assert_eq!(
            read("7, Sun, 06 Nov 1994 08:49:37 GMT, Sun Nov 6 08:49:38 1994,1"),
            (Some(784_111_778), Ok(()))
        );
        assert_eq!(read("2, soon, 3"), (Some(3), wrong));
        assert_eq!(read(""), (None, wrong));
        assert_eq!(read(",,"), (None, wrong));
    }

    #[test]
    fn a_header_that_is_ignored_twice_is_reported_once() {
        let mut reader = HeaderReader::new(Duration::ZERO);
        for value in ["soon", "later", "soon"] {
            reader.read(b"Retry-After", value.as_bytes());
        }
        assert_eq!(reader.ignored.len(), 2);
    }

    #[test]
    fn two_limits_merge_into_one_that_is_as_strict_as_both() {
        let secs = |secs| Some(Duration::from_secs(secs));
        let one = LimitInfo {
            counts_requests: true,
            quota: Some(9),
            used: Some(6),
            window: secs(1),
            reset_in: secs(4),
            ..LimitInfo::default()
        };
        let other = LimitInfo {
            quota: Some(5),
            used: Some(3),
            window: secs(2),
            reset_in: secs(3),
            ..LimitInfo::default()
        };
        for pair in [[&one, &other], [&other, &one]] {
            let mut all = LimitInfo::default();
            for limit in pair {
                all.merge(limit);
            }
            assert!(all.counts_requests);
            assert_eq!((all.quota, all.used), (Some(5), Some(6)));
            assert_eq!((all.window, all.reset_in), (secs(2), secs(4)));
            assert_eq!(all.remaining(), Some(0));
        }
    }

    #[test]
    fn of_many_limits_16_are_kept_and_the_longest_pause() {
        let mut reader = HeaderReader::new(Duration::ZERO);
        for number in 1..=1_000 {
            let policy = format!(r#""p{number}";q={number};w=1"#);
            reader.read(b"RateLimit-Policy", policy.as_bytes());
            let state = format!(r#""p{number}";r=0;t={number}"#);
            reader.read(b"RateLimit", state.as_bytes());
            reader.read(b"Retry-After", format!("soon {number}").as_bytes());
        }
        assert_eq!((reader.rates.len(), reader.ignored.len()), (MOST, MOST));
        assert!(is_same(reader.rates[0], Rate::per_second(1)));
        assert_eq!(reader.limits.len(), MOST + 1);
        let [all] = reader.limits() else {
            panic!("not one limit that is as strict as all");
        };
        let longest = Some(Duration::from_secs(1_000));
        assert_eq!((all.remaining(), all.reset_in), (Some(0), longest));
    }

    #[test]
    fn with_too_many_limits_the_order_of_the_headers_does_not_matter() {
        let full = r#""full";r=0;t=1"#.to_owned();
        let free = (0..MOST).map(|number| format!(r#""p{number}";r=5;t={}"#, 100 + number));
        let headers: Vec<String> = [full].into_iter().chain(free).collect();
        let limit = |headers: &mut dyn Iterator<Item = &String>| {
            let mut reader = HeaderReader::new(Duration::ZERO);
            for header in headers {
                reader.read(b"RateLimit", header.as_bytes());
            }
            let [all] = reader.limits() else {
                panic!("not one limit that is as strict as all");
            };
            (all.remaining(), all.reset_in)
        };
        let forth = limit(&mut headers.iter());
        assert_eq!(forth, limit(&mut headers.iter().rev()));
        assert_eq!(forth, (Some(0), Some(Duration::from_secs(115))));
    }
}
