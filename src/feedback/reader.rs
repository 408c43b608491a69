//! Reads headers one by one and draws the conclusion. Of two values it keeps the more careful one.

use core::cmp::Reverse;
use core::time::Duration;

use crate::time::Rate;

use super::date::http_date;
use super::header::{Header, Part, STANDARD, counts_requests, window_named};
use super::value::{Member, Unit, count, count_left, members, millis, seconds, wait};
use super::{Caps, Feedback, Ignored};

// What a value must be; the end of a message of `Ignored`.
const TEXT: &str = "text";
const WAIT: &str = "a number of seconds, a duration or a date";
const DATE: &str = "an HTTP date";
const COUNT: &str = "a number of requests";
const POLICY: &str = "a quota of at least 1 in a window of at least 1 ns";
const USAGE: &str = "used/quota, as in 32/40";
const PER_WINDOW: &str = "requests:seconds, as in 20:1";
const INTERVAL: &str = "a number of milliseconds above 0";

/// The most limits, rates and ignored headers that are kept of one response.
const MOST: usize = 16;

/// What the headers of one response have said so far.
pub(super) struct HeaderReader {
    /// The time at the provider, since 1970.
    now: Duration,
    limits: Vec<LimitInfo>,
    /// Whether there were more than [`MOST`] limits.
    has_more_limits: bool,
    /// Its waits and rates are as in the headers; the caps come last.
    feedback: Feedback,
}

/// One of the limits in a response. The limits differ in what their headers' names have before and after the part.
struct LimitInfo {
    family: &'static str,
    name: String,
    /// Whether it counts requests, and not tokens or bytes.
    counts_requests: bool,
    quota: Option<u64>,
    used: Option<u64>,
    remaining: Option<u64>,
    /// The longest window.
    window: Option<Duration>,
    /// The window of `quota`, if a header of its own says it.
    interval: Option<Duration>,
    reset_in: Option<Duration>,
}

impl HeaderReader {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            now,
            limits: Vec::new(),
            has_more_limits: false,
            feedback: Feedback::default(),
        }
    }

    pub(super) fn read(&mut self, name: &[u8], value: &[u8]) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let Some(header) = Header::named(&name) else {
            return;
        };
        let understood = match core::str::from_utf8(value) {
            Ok(text) => self.read_text(header, text.trim()),
            Err(_) => Err(TEXT),
        };
        if let Err(expected) = understood {
            let ignored = Ignored::new(&name, value, expected);
            let known = &mut self.feedback.ignored;
            if known.len() < MOST && !known.contains(&ignored) {
                known.push(ignored);
            }
        }
    }

    pub(super) fn into_feedback(mut self, caps: Caps) -> Feedback {
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
        if self.has_more_limits {
            // The order of the headers must not matter, but it decides which limits share the last place.
            let mut all = LimitInfo::new("", "", false);
            for limit in &self.limits {
                all.merge(limit);
            }
            self.limits = vec![all];
        }
        let limits = &self.limits;
        let exhausted = || limits.iter().filter(|limit| limit.remaining() == Some(0));
        let until_reset = exhausted().filter_map(|limit| limit.reset_in).max();
        let window = exhausted().filter_map(|limit| limit.window).max();
        let first = limits
            .iter()
            .filter(|limit| limit.counts_requests)
            .min_by_key(|limit| {
                (
                    limit.remaining().unwrap_or(u64::MAX),
                    Reverse(limit.reset_in),
                )
            });

        let mut feedback = self.feedback;
        feedback.pause = feedback.retry_after.max(until_reset).or(window);
        feedback.reset_in = first.and_then(|limit| limit.reset_in);
        feedback.remaining = first.and_then(LimitInfo::remaining);
        feedback.quota = first.and_then(|limit| limit.quota);
        caps.apply(&mut feedback);
        feedback
    }

    fn read_text(&mut self, header: Header<'_>, text: &str) -> Result<(), &'static str> {
        let now = self.now;
        match header {
            Header::Date => http_date(text, now).map(drop).ok_or(DATE),
            Header::RetryAfter(unit) => {
                merge_waits(&mut self.feedback.retry_after, text, unit, now)
            }
            Header::Policies => each(text, |member| self.read_policy(member)),
            Header::States => each(text, |member| self.read_state(member)),
            Header::Of { family, name, part } => self.read_part(family, name, part, text),
        }
    }

    fn read_part(
        &mut self,
        family: &'static str,
        name: &str,
        part: Part,
        text: &str,
    ) -> Result<(), &'static str> {
        match part {
            Part::Limit => self.read_quotas(family, name, text),
            Part::LimitPerWindow => each(text, |member| {
                let (quota, name, window) = per_window(member.item)?;
                merge_min(&mut self.limit(family, name, true).quota, quota);
                self.add_policy(family, name, quota, window)
            }),
            Part::UsedPerWindow => each(text, |member| {
                let (used, name, window) = per_window(member.item)?;
                let limit = self.limit(family, name, true);
                merge_max(&mut limit.used, used);
                merge_max(&mut limit.window, window);
                Ok(())
            }),
            Part::UsedOfQuota => {
                let (used, quota) = text.split_once('/').ok_or(USAGE)?;
                let used = count(used).ok_or(USAGE)?;
                let quota = count(quota).ok_or(USAGE)?;
                let limit = self.limit(family, name, true);
                merge_min(&mut limit.quota, quota);
                merge_min(&mut limit.remaining, quota.saturating_sub(used));
                Ok(())
            }
            Part::Remaining => {
                let limit = self.limit(family, name, counts_requests(name));
                each(text, |member| {
                    merge_min(
                        &mut limit.remaining,
                        count_left(member.name()).ok_or(COUNT)?,
                    );
                    Ok(())
                })
            }
            Part::Reset(unit) => {
                let now = self.now;
                let limit = self.limit(family, name, counts_requests(name));
                merge_waits(&mut limit.reset_in, text, unit, now)
            }
            Part::IntervalMillis => {
                let interval = millis(text).filter(|interval| !interval.is_zero());
                let interval = interval.ok_or(INTERVAL)?;
                let limit = self.limit(family, name, counts_requests(name));
                merge_max(&mut limit.window, interval);
                merge_max(&mut limit.interval, interval);
                Ok(())
            }
        }
    }

    /// `100`, or followed by the policies: `100, 10;w=1, 100;window=60`.
    fn read_quotas(
        &mut self,
        family: &'static str,
        name: &str,
        text: &str,
    ) -> Result<(), &'static str> {
        let mut is_first = true;
        each(text, |member| {
            let quota = count(member.name()).ok_or(COUNT)?;
            if core::mem::take(&mut is_first) {
                let limit = self.limit(family, name, counts_requests(name));
                merge_min(&mut limit.quota, quota);
            }
            match window_of(&member)?.or(window_named(name)) {
                Some(window) => self.add_policy(family, name, quota, window),
                None if member.params().next().is_some() => Err(POLICY),
                None => Ok(()),
            }
        })
    }

    /// `"burst";q=100;w=60`, or `100;w=60`.
    fn read_policy(&mut self, member: Member<'_>) -> Result<(), &'static str> {
        if let Some(quota) = count(member.item) {
            return match window_of(&member)? {
                Some(window) => self.add_policy(STANDARD, "", quota, window),
                None => Ok(()),
            };
        }
        let name = member.name();
        let unit = member.params().find(|(key, _)| *key == "qu");
        let counts_requests = unit.is_none_or(|(_, unit)| unit == "requests");
        let limit = self.limit(STANDARD, name, counts_requests);
        limit.counts_requests &= counts_requests;
        for (_, quota) in member.params().filter(|(key, _)| *key == "q") {
            merge_min(&mut limit.quota, count(quota).ok_or(POLICY)?);
        }
        let quota = limit.quota.ok_or(POLICY)?;
        match window_of(&member)? {
            Some(window) => self.add_policy(STANDARD, name, quota, window),
            None => Ok(()),
        }
    }

    /// `"burst";r=50;t=30`, or as in version 7 of the draft: `limit=100, remaining=50, reset=30`.
    fn read_state(&mut self, member: Member<'_>) -> Result<(), &'static str> {
        let now = self.now;
        let in_version_7 = member.item.split_once('=').filter(|_| !member.is_quoted());
        let name = match in_version_7 {
            Some(_) => "",
            None => member.name(),
        };
        let limit = self.limit(STANDARD, name, true);
        for (key, value) in in_version_7.into_iter().chain(member.params()) {
            match key {
                "r" | "remaining" => {
                    merge_min(&mut limit.remaining, count_left(value).ok_or(COUNT)?);
                }
                "limit" => merge_min(&mut limit.quota, count(value).ok_or(COUNT)?),
                "t" | "reset" => merge_waits(&mut limit.reset_in, value, Unit::Seconds, now)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn add_policy(
        &mut self,
        family: &'static str,
        name: &str,
        quota: u64,
        window: Duration,
    ) -> Result<(), &'static str> {
        let rate = rate_of(quota, window)?;
        let limit = self.limit(family, name, true);
        merge_max(&mut limit.window, window);
        if limit.counts_requests {
            self.add_rate(rate, quota);
        }
        Ok(())
    }

    /// Keeps the slowest rates, in order of speed.
    fn add_rate(&mut self, rate: Rate, quota: u64) {
        self.feedback.was_capped |= u64::from(rate.permits()) < quota;
        let rates = &mut self.feedback.limits;
        if !rates.iter().any(|known| is_same(*known, rate)) {
            let at = rates.partition_point(|known| *known <= rate);
            rates.insert(at, rate);
            rates.truncate(MOST);
        }
    }

    /// The limit of this name. If there are too many limits, the last one stands for the rest.
    fn limit(&mut self, family: &'static str, name: &str, counts_requests: bool) -> &mut LimitInfo {
        let known = self
            .limits
            .iter()
            .position(|limit| limit.family == family && limit.name == name);
        let at = known.unwrap_or_else(|| {
            if self.limits.len() < MOST {
                self.limits
                    .push(LimitInfo::new(family, name, counts_requests));
            } else {
                self.has_more_limits = true;
            }
            self.limits.len() - 1
        });
        &mut self.limits[at]
    }
}

impl LimitInfo {
    fn new(family: &'static str, name: &str, counts_requests: bool) -> Self {
        Self {
            family,
            name: name.to_owned(),
            counts_requests,
            quota: None,
            used: None,
            remaining: None,
            window: None,
            interval: None,
            reset_in: None,
        }
    }

    fn remaining(&self) -> Option<u64> {
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
fn merge_waits(
    known: &mut Option<Duration>,
    text: &str,
    unit: Unit,
    now: Duration,
) -> Result<(), &'static str> {
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

/// Reads all members, also those after one that is not understood.
fn each(
    text: &str,
    read: impl FnMut(Member<'_>) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    let mut all = members(text).peekable();
    if all.peek().is_none() {
        return Err(COUNT);
    }
    all.map(read).fold(Ok(()), Result::and)
}

/// The longest window among the parameters.
fn window_of(member: &Member<'_>) -> Result<Option<Duration>, &'static str> {
    let mut longest = None;
    for (key, window) in member.params() {
        if matches!(key, "w" | "window") {
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
    fn of_many_limits_16_are_kept_and_the_longest_pause() {
        let mut reader = HeaderReader::new(Duration::ZERO);
        for number in 1..=1_000 {
            let policy = format!(r#""p{number}";q={number};w=1"#);
            reader.read(b"RateLimit-Policy", policy.as_bytes());
            let state = format!(r#""p{number}";r=0;t={number}"#);
            reader.read(b"RateLimit", state.as_bytes());
            reader.read(b"Retry-After", format!("soon {number}").as_bytes());
        }
        assert_eq!(reader.limits.len(), MOST);
        let feedback = reader.into_feedback(Caps::new());
        assert_eq!(
            (feedback.limits.len(), feedback.ignored.len()),
            (MOST, MOST)
        );
        assert!(is_same(feedback.limits[0], Rate::per_second(1)));
        assert_eq!(feedback.pause, Some(Duration::from_secs(1_000)));
    }

    #[test]
    fn with_too_many_limits_the_order_of_the_headers_does_not_matter() {
        let full = r#""full";r=0;t=1"#.to_owned();
        let free = (0..MOST).map(|number| format!(r#""p{number}";r=5;t={}"#, 100 + number));
        let headers: Vec<String> = [full].into_iter().chain(free).collect();
        let pause = |headers: &mut dyn Iterator<Item = &String>| {
            let mut reader = HeaderReader::new(Duration::ZERO);
            for header in headers {
                reader.read(b"RateLimit", header.as_bytes());
            }
            reader.into_feedback(Caps::new()).pause
        };
        let forth = pause(&mut headers.iter());
        assert_eq!(forth, pause(&mut headers.iter().rev()));
        assert_eq!(forth, Some(Duration::from_secs(115)), "the longest of all");
    }
}
