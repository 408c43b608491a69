//! Reads headers one by one, and writes down what they say.

use core::time::Duration;

use crate::time::Rate;

use super::date::http_date;
use super::fields::{Member, members};
use super::header::{Header, Part, STANDARD, Scope};
use super::ignored::{Expected, Ignored};
use super::told::{Latest, Told};
use super::wait::{self, NANOS_PER_SEC, Number, When, decimal, digits};

/// Everything said so far.
#[derive(Clone, Debug)]
pub(super) struct Findings {
    now: Duration,
    date: Option<Duration>,
    pub(super) retry_after: Latest,
    pub(super) told: Vec<Told>,
    pub(super) rates: Vec<Rate>,
    /// Whether a quota was larger than a rate can be.
    pub(super) was_cut: bool,
    pub(super) ignored: Vec<Ignored>,
}

impl Findings {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            now,
            date: None,
            retry_after: Latest::default(),
            told: Vec::new(),
            rates: Vec::new(),
            was_cut: false,
            ignored: Vec::new(),
        }
    }

    /// What time it was where the answer comes from, as far as that is known.
    pub(super) fn their_now(&self) -> Duration {
        self.date.unwrap_or(self.now)
    }

    pub(super) fn read(&mut self, name: &[u8], value: &[u8]) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let Some(header) = Header::named(&name) else {
            return;
        };
        let understood = match core::str::from_utf8(value) {
            Ok(text) => self.read_text(header, text.trim()),
            Err(_) => Err(Expected::Text),
        };
        if let Err(expected) = understood {
            self.ignore(Ignored::new(&name, value, expected));
        }
    }

    fn read_text(&mut self, header: Header<'_>, text: &str) -> Result<(), Expected> {
        match header {
            Header::Date => self.read_date(text),
            Header::RetryAfter(number) => {
                let now = self.now;
                waits(text, number, now, |when| self.retry_after.hear(when))
            }
            Header::Policies => each(text, |member| self.read_policy(member)),
            Header::States => each(text, |member| self.read_state(member)),
            Header::Usage => self.read_usage(text),
            Header::Of(scope, part) => self.read_part(scope, part, text),
        }
    }

    fn read_date(&mut self, text: &str) -> Result<(), Expected> {
        let date = http_date(text, self.now).ok_or(Expected::Date)?;
        self.date = Some(self.date.map_or(date, |known| known.min(date)));
        Ok(())
    }

    fn read_part(&mut self, scope: Scope<'_>, part: Part, text: &str) -> Result<(), Expected> {
        let now = self.now;
        let told = self.about(scope.family, scope.name, scope.is_of_requests());
        match part {
            Part::Reset(number) => waits(text, number, now, |when| told.reset.hear(when)),
            Part::Remaining => each(text, |member| {
                told.hear_remaining(count_left(member.name()).ok_or(Expected::Count)?);
                Ok(())
            }),
            Part::Limit => self.read_limit(scope, text),
        }
    }

    /// `100`, or with the policies behind it: `100, 10;w=1, 100;w=60`.
    fn read_limit(&mut self, scope: Scope<'_>, text: &str) -> Result<(), Expected> {
        let mut is_first = true;
        each(text, |member| {
            let quota = count(member.name()).ok_or(Expected::Count)?;
            let told = self.about(scope.family, scope.name, scope.is_of_requests());
            if core::mem::take(&mut is_first) {
                told.hear_quota(quota);
            }
            match window_of(&member)?.or(scope.window()) {
                Some(window) => self.hear_policy(scope.family, scope.name, quota, window),
                None => Ok(()),
            }
        })
    }

    /// `"burst";q=100;w=60`, or `100;w=60`.
    fn read_policy(&mut self, member: Member<'_>) -> Result<(), Expected> {
        if let Some(quota) = count(member.item) {
            return match window_of(&member)? {
                Some(window) => self.hear_policy(STANDARD, "", quota, window),
                None => Ok(()),
            };
        }
        let name = member.name();
        let unit = member.params().find(|(key, _)| *key == "qu");
        let is_of_requests = unit.is_none_or(|(_, unit)| unit == "requests");
        let told = self.about(STANDARD, name, is_of_requests);
        told.is_of_requests &= is_of_requests;
        for (_, quota) in member.params().filter(|(key, _)| *key == "q") {
            told.hear_quota(count(quota).ok_or(Expected::Policy)?);
        }
        let quota = told.quota().ok_or(Expected::Policy)?;
        match window_of(&member)? {
            Some(window) => self.hear_policy(STANDARD, name, quota, window),
            None => Ok(()),
        }
    }

    /// `"burst";r=50;t=30`, or `remaining=50`.
    fn read_state(&mut self, member: Member<'_>) -> Result<(), Expected> {
        let now = self.now;
        let in_version_7 = member.item.split_once('=').filter(|_| !member.is_quoted());
        let name = if in_version_7.is_some() {
            ""
        } else {
            member.name()
        };
        let told = self.about(STANDARD, name, true);
        for (key, value) in in_version_7.into_iter().chain(member.params()) {
            match key {
                "r" | "remaining" => told.hear_remaining(count_left(value).ok_or(Expected::Count)?),
                "limit" => told.hear_quota(count(value).ok_or(Expected::Count)?),
                "t" | "reset" => {
                    waits(value, Number::Seconds, now, |when| told.reset.hear(when))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// `32/40`.
    fn read_usage(&mut self, text: &str) -> Result<(), Expected> {
        let (used, quota) = text.split_once('/').ok_or(Expected::Usage)?;
        let used = count(used).ok_or(Expected::Usage)?;
        let quota = count(quota).ok_or(Expected::Usage)?;
        let told = self.about("x-shopify-", "", true);
        told.hear_quota(quota);
        told.hear_remaining(quota.saturating_sub(used));
        Ok(())
    }

    fn hear_policy(
        &mut self,
        family: &'static str,
        name: &str,
        quota: u64,
        window: Duration,
    ) -> Result<(), Expected> {
        let permits = u32::try_from(quota).unwrap_or(u32::MAX);
        let rate = Rate::try_new(permits, window).map_err(|_| Expected::Policy)?;
        let told = self.about(family, name, true);
        told.hear_window(window);
        if told.is_of_requests {
            self.was_cut |= u64::from(permits) < quota;
            self.hear_rate(rate);
        }
        Ok(())
    }

    /// Keeps the slowest, in order of speed.
    fn hear_rate(&mut self, rate: Rate) {
        if !self.rates.iter().any(|known| is_same(*known, rate)) {
            let at = self.rates.partition_point(|known| *known <= rate);
            self.rates.insert(at, rate);
            self.rates.truncate(MOST);
        }
    }

    /// What is said of this limit. When there are too many, the last one stands for all the rest.
    fn about(&mut self, family: &'static str, name: &str, is_of_requests: bool) -> &mut Told {
        let known = self
            .told
            .iter()
            .position(|told| told.family == family && told.name == name);
        let at = known.unwrap_or_else(|| {
            if self.told.len() < MOST {
                self.told.push(Told::new(family, name, is_of_requests));
            }
            self.told.len() - 1
        });
        &mut self.told[at]
    }

    fn ignore(&mut self, ignored: Ignored) {
        if self.ignored.len() < MOST && !self.ignored.contains(&ignored) {
            self.ignored.push(ignored);
        }
    }
}

/// How many different limits, rates and complaints are kept of one response.
const MOST: usize = 16;

/// Whether both are written the same, and not only the same fraction.
pub(super) fn is_same(one: Rate, other: Rate) -> bool {
    (one.permits(), one.period()) == (other.permits(), other.period())
}

/// Reads all members, also after one that cannot be read.
fn each(text: &str, read: impl FnMut(Member<'_>) -> Result<(), Expected>) -> Result<(), Expected> {
    let mut all = members(text).peekable();
    if all.peek().is_none() {
        return Err(Expected::Count);
    }
    all.map(read).fold(Ok(()), Result::and)
}

/// Reads one wait, or some with commas between them: two headers that a proxy has joined. A date has a comma of its own.
fn waits(
    text: &str,
    number: Number,
    now: Duration,
    mut hear: impl FnMut(When),
) -> Result<(), Expected> {
    let mut understood = if text.is_empty() {
        Err(Expected::Wait)
    } else {
        Ok(())
    };
    let mut rest = text;
    while !rest.is_empty() {
        let first = rest.find(',').unwrap_or(rest.len());
        let second = rest[first..].match_indices(',').nth(1);
        let second = second.map_or(rest.len(), |(at, _)| first + at);
        let read = [first, second]
            .into_iter()
            .find_map(|end| Some((end, wait::read(rest[..end].trim(), number, now)?)));
        let end = if let Some((end, when)) = read {
            hear(when);
            end
        } else {
            understood = Err(Expected::Wait);
            first
        };
        rest = rest.get(end + 1..).unwrap_or("");
    }
    understood
}

/// The longest `w`.
fn window_of(member: &Member<'_>) -> Result<Option<Duration>, Expected> {
    let mut longest = None;
    for (_, window) in member.params().filter(|(key, _)| *key == "w") {
        let nanos = decimal(window, NANOS_PER_SEC).ok_or(Expected::Policy)?;
        longest = longest.max(Some(wait::duration(nanos)));
    }
    Ok(longest)
}

/// A number of requests, without its fraction.
fn count(text: &str) -> Option<u64> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    digits(fraction)?;
    let whole = digits(Some(whole).filter(|whole| !whole.is_empty())?)?;
    Some(u64::try_from(whole).unwrap_or(u64::MAX))
}

/// A number of requests that are left; below zero there are none.
fn count_left(text: &str) -> Option<u64> {
    match text.trim().strip_prefix('-') {
        Some(overdrawn) => count(overdrawn).map(|_| 0),
        None => count(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_rounded_down_and_huge_ones_cut() {
        assert_eq!(count("598.9"), Some(598));
        assert_eq!(count(" 7 "), Some(7));
        assert_eq!(count(&"9".repeat(99)), Some(u64::MAX));
        assert_eq!(count_left("-3"), Some(0));
        for text in ["", ".", ".5", "-", "-1", "+1", "1,000", "many", "1e3", "½"] {
            assert_eq!(count(text), None, "{text}");
        }
        assert_eq!(count_left("--1"), None);
    }

    #[test]
    fn waits_may_be_joined() {
        let read = |text| {
            let mut all = Latest::default();
            let understood = waits(text, Number::Seconds, Duration::ZERO, |when| all.hear(when));
            (
                all.from(Duration::ZERO).map(|wait| wait.as_secs()),
                understood,
            )
        };
        let wrong = Err(Expected::Wait);
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
    fn many_limits_are_kept_as_few() {
        let mut findings = Findings::new(Duration::ZERO);
        for number in 1..=1_000 {
            let policy = format!(r#""p{number}";q={number};w=1"#);
            findings.read(b"RateLimit-Policy", policy.as_bytes());
            let state = format!(r#""p{number}";r=0;t={number}"#);
            findings.read(b"RateLimit", state.as_bytes());
            findings.read(b"Retry-After", format!("soon {number}").as_bytes());
        }
        let kept = (
            findings.told.len(),
            findings.rates.len(),
            findings.ignored.len(),
        );
        assert_eq!(kept, (MOST, MOST, MOST));
        assert!(is_same(findings.rates[0], Rate::per_second(1)));
        let longest = findings
            .told
            .iter()
            .filter_map(|told| told.exhausted_for(Duration::ZERO))
            .max();
        assert_eq!(longest, Some(Duration::from_secs(1_000)));
    }
}
