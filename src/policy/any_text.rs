use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::time::error::ConfigError;
use crate::time::{Rate, in_units, parse_period, parse_rate, shortened, unit_nanos};

use super::{
    AlignedWindow, Alignment, AnyKind, AnyLimit, AnyPolicy, FixedWindow, Interval, OutOfRange,
    Ramp, SlidingCounter, SlidingLog, TokenBucket, Unlimited,
};

/// As it would be parsed, such as `100/min burst 20`. A [`WallClock`](crate::time::WallClock) of its own is left out.
impl fmt::Display for AnyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut limits = self.limits().iter();
        let Some(first) = limits.next() else {
            return f.write_str("unlimited");
        };
        first.fmt(f)?;
        limits.try_for_each(|limit| write!(f, " and {limit}"))
    }
}

impl fmt::Display for AnyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        f.write_str(if self.per_request { " per request" } else { "" })
    }
}

impl fmt::Display for AnyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket(bucket) => {
                write!(f, "{} burst {}", bucket.rate(), bucket.burst())?;
                if !bucket.starts_full() {
                    write!(f, " start {}", bucket.start())?;
                }
                f.write_str(if bucket.may_owe { " debt" } else { "" })
            }
            Self::Interval(interval) => {
                let delayed = if interval.delayed { " delayed" } else { "" };
                write!(f, "every {}{delayed}", in_units(interval.interval()))
            }
            Self::Ramp(ramp) => {
                let within = in_units(ramp.within());
                write!(f, "{} to {} within {within}", ramp.from(), ramp.to())?;
                let restart = ramp.restart_after().map(in_units);
                restart.map_or(Ok(()), |idle| write!(f, " restart {idle}"))
            }
            Self::Log(log) => {
                write_window(f, log.limit(), log.window())?;
                f.write_str(" sliding")
            }
            Self::Counter(counter) => {
                write_window(f, counter.limit(), counter.window())?;
                match counter.buckets {
                    Some(buckets) => write!(f, " sliding {buckets} buckets"),
                    None => f.write_str(" smooth"),
                }
            }
            Self::Window(window) => {
                write_window(f, window.limit(), window.window())?;
                f.write_str(" fixed")
            }
            Self::Aligned(window) => {
                match window.alignment() {
                    Alignment::Week => write!(f, "{}/week", window.limit())?,
                    Alignment::Month => write!(f, "{}/month", window.limit())?,
                    other => write_window(f, window.limit(), other.longest())?,
                }
                f.write_str(" aligned")?;
                write_offset(f, window.utc_offset())?;
                let Some(delay) = window.margin() else {
                    return Ok(());
                };
                let (shortest, longest) = (in_units(*delay.start()), in_units(*delay.end()));
                write!(f, " margin {shortest} to {longest}")
            }
        }
    }
}

/// A number of permits in a window is written as a rate.
fn write_window(f: &mut fmt::Formatter<'_>, limit: u32, window: Duration) -> fmt::Result {
    // A window is never empty.
    Rate::try_new(limit, window).map_or(Ok(()), |rate| write!(f, "{rate}"))
}

fn write_offset(f: &mut fmt::Formatter<'_>, seconds: i32) -> fmt::Result {
    if seconds == 0 {
        return Ok(());
    }
    let sign = if seconds < 0 { '-' } else { '+' };
    let seconds = seconds.unsigned_abs();
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    write!(f, " utc{sign}{hours:02}:{minutes:02}")?;
    if seconds > 0 {
        write!(f, ":{seconds:02}")?;
    }
    Ok(())
}

impl FromStr for AnyPolicy {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut words = Words {
            text,
            rest: text.trim_start(),
            expected: Vec::new(),
        };
        let mut policy = words.limit()?;
        while !words.rest.is_empty() {
            if !words.takes("and") {
                return Err(words.unexpected());
            }
            if policy.limits().len() >= MOST_LIMITS {
                let reason = format!("`and` joins at most {MOST_LIMITS} limits");
                return Err(words.error(reason));
            }
            policy = policy.and(words.limit()?);
        }
        Ok(policy)
    }
}

/// The words of a text that are still to be read.
struct Words<'a> {
    text: &'a str,
    /// It begins with a word.
    rest: &'a str,
    /// What the next word was compared with.
    expected: Vec<&'static str>,
}

/// Each is asked for every request.
const MOST_LIMITS: usize = 32;

const A_RATE: &str = "a rate such as 100/min";

type Parsed<T> = Result<T, ConfigError>;

impl<'a> Words<'a> {
    fn limit(&mut self) -> Parsed<AnyPolicy> {
        let policy = if self.takes("every") {
            self.interval()?.into()
        } else if self.takes("unlimited") {
            Unlimited.into()
        } else {
            self.rated()?
        };
        let policy = self.with_margin(policy)?;
        if !self.is_next("per") {
            self.expected.push("per request");
            return Ok(policy);
        }
        self.advance(self.next());
        self.needs("request")?;
        Ok(policy.per_request())
    }

    /// The longest delay, or the shortest and the longest.
    fn with_margin(&mut self, policy: AnyPolicy) -> Parsed<AnyPolicy> {
        if !self.takes("margin") {
            return Ok(policy);
        }
        let (mut shortest, mut longest) = (Duration::ZERO, self.time()?);
        if self.takes("to") {
            (shortest, longest) = (longest, self.time()?);
        }
        let policy = policy.try_with_margin(shortest..=longest);
        policy.map_err(|error| self.error(error))
    }

    fn interval(&mut self) -> Parsed<Interval> {
        let interval = Interval::every(self.time()?);
        if self.takes("delayed") {
            return Ok(interval.with_delayed_start());
        }
        Ok(interval)
    }

    /// What follows the first rate and `to`.
    fn ramp(&mut self, from: Rate) -> Parsed<Ramp> {
        let text = self.rate_text();
        let to = self.rate(text)?;
        self.advance(text);
        self.needs("within")?;
        let within = self.time()?;
        let ramp = Ramp::try_new(from, to, within).map_err(|error| self.error(error))?;
        if self.takes("restart") {
            let ramp = ramp.try_with_restart_after(self.time()?);
            return ramp.map_err(|error| self.error(error));
        }
        Ok(ramp)
    }

    /// Such as `250ms`, and goes on behind it.
    fn time(&mut self) -> Parsed<Duration> {
        if self.rest.is_empty() {
            self.expected.push("a time such as 250ms");
            return Err(self.unexpected());
        }
        let period = self.period(self.next());
        let time = parse_period(period).map_err(|reason| self.error(reason))?;
        self.advance(period);
        Ok(time)
    }

    /// What begins with a number of permits in a time.
    fn rated(&mut self) -> Parsed<AnyPolicy> {
        if !self.is_number() {
            self.expected.push(A_RATE);
            return Err(self.unexpected());
        }
        let text = self.rate_text();
        if let Some((permits, alignment)) = in_calendar(text) {
            // The permits of a rate and of such a window are in one range.
            let permits = self.rate(&format!("{permits}/day"))?.permits();
            self.advance(text);
            self.needs("aligned")?;
            return Ok(self.aligned(permits, alignment)?.into());
        }
        let rate = self.rate(text)?;
        self.advance(text);
        if self.takes("burst") {
            return Ok(self.bucket(rate)?.into());
        }
        if self.takes("sliding") {
            return self.sliding(rate);
        }
        if self.takes("smooth") {
            return Ok(SlidingCounter::smooth_from_rate(rate).into());
        }
        if self.takes("fixed") {
            return Ok(FixedWindow::from_rate(rate).into());
        }
        if self.takes("aligned") {
            let alignment = Alignment::Every(rate.period());
            return Ok(self.aligned(rate.permits(), alignment)?.into());
        }
        if self.takes("to") {
            return Ok(self.ramp(rate)?.into());
        }
        Ok(SlidingLog::from_rate(rate).into())
    }

    fn rate(&self, text: &str) -> Parsed<Rate> {
        parse_rate(text).map_err(|reason| match parse_period(text) {
            // A time alone.
            Ok(_) => self.error(format!("{reason}, or `every {}`", shortened(text))),
            Err(_) => self.error(reason),
        })
    }

    /// The rate that comes next, in one word or with blanks: `10/min`, `10 / min`, `5/250 ms`.
    fn rate_text(&self) -> &'a str {
        let mut text = self.next();
        if !text.contains('/') && self.after(text).starts_with('/') {
            text = self.with_next(text);
        }
        if text.ends_with('/') {
            text = self.with_next(text);
        }
        if text.contains('/') {
            text = self.period(text);
        }
        text
    }

    /// `text`, and the unit that follows its number after a blank.
    fn period(&self, text: &'a str) -> &'a str {
        let has_number = text.ends_with(|last: char| last.is_ascii_digit());
        if has_number && unit_nanos(first_word(self.after(text))).is_some() {
            return self.with_next(text);
        }
        text
    }

    /// What follows `text`, with which the rest begins.
    fn after(&self, text: &str) -> &'a str {
        self.rest[text.len()..].trim_start()
    }

    /// `text`, with which the rest begins, and the word after it.
    fn with_next(&self, text: &str) -> &'a str {
        let after = self.after(text);
        let end = self.rest.len() - after.len() + first_word(after).len();
        self.rest[..end].trim_end()
    }

    fn bucket(&mut self, rate: Rate) -> Parsed<TokenBucket> {
        let mut bucket = self.made_of("burst", |burst| TokenBucket::try_new(rate, burst))?;
        if self.takes("start") {
            bucket = self.made_of("start", |tokens| bucket.try_with_start(tokens))?;
        }
        if self.takes("debt") {
            bucket = bucket.with_debt();
        }
        Ok(bucket)
    }

    fn sliding(&mut self, rate: Rate) -> Parsed<AnyPolicy> {
        if !self.is_number() {
            self.expected.push("a number of buckets");
            return Ok(SlidingLog::from_rate(rate).into());
        }
        let (limit, window) = (rate.permits(), rate.period());
        let counter = |buckets| SlidingCounter::try_strict(limit, window, buckets);
        let counter = self.made_of("number of buckets", counter)?;
        if !self.takes("bucket") {
            self.expected.clear();
            self.needs("buckets")?;
        }
        Ok(counter.into())
    }

    fn aligned(&mut self, limit: u32, alignment: Alignment) -> Parsed<AlignedWindow> {
        let window = AlignedWindow::try_new(limit, alignment);
        let window = window.map_err(|error| self.error(error))?;
        let split = self.next().split_at_checked(3);
        let Some((_, offset)) = split.filter(|(utc, _)| utc.eq_ignore_ascii_case("utc")) else {
            self.expected.push("utc+hh:mm");
            return Ok(window);
        };
        let seconds = seconds_of(offset).ok_or_else(|| {
            self.error(format!(
                "write an offset as utc+02:00 or utc-8, got `utc{}`",
                shortened(offset)
            ))
        })?;
        let window = window.try_with_utc_offset(seconds);
        let window = window.map_err(|error| self.error(error))?;
        self.advance(self.next());
        Ok(window)
    }

    /// What is made of the number that comes next.
    fn made_of<T>(
        &mut self,
        name: &str,
        made: impl FnOnce(u32) -> Result<T, OutOfRange>,
    ) -> Parsed<T> {
        let (word, most) = (self.next(), u32::MAX);
        let number = word.parse().ok().filter(|_| !word.starts_with('+'));
        let number = number.ok_or_else(|| {
            let got = match word {
                "" => "nothing".to_owned(),
                word => format!("`{}`", shortened(word)),
            };
            self.error(format!(
                "the {name} must be a whole number up to {most}, got {got}"
            ))
        })?;
        let made = made(number).map_err(|error| self.error(error))?;
        self.advance(word);
        Ok(made)
    }

    /// The next word, or nothing at the end.
    fn next(&self) -> &'a str {
        first_word(self.rest)
    }

    fn is_next(&self, word: &str) -> bool {
        self.next().eq_ignore_ascii_case(word)
    }

    /// Whether the next word is a number, or a rate.
    fn is_number(&self) -> bool {
        self.next().starts_with(|c: char| c.is_ascii_digit())
    }

    /// Goes on after `text`, with which the rest begins.
    fn advance(&mut self, text: &str) {
        self.rest = self.after(text);
        self.expected.clear();
    }

    fn takes(&mut self, word: &'static str) -> bool {
        let is_next = self.is_next(word);
        if is_next {
            self.advance(self.next());
        } else {
            self.expected.push(word);
        }
        is_next
    }

    fn needs(&mut self, word: &'static str) -> Parsed<()> {
        if self.takes(word) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn unexpected(&self) -> ConfigError {
        let expected = one_of(&self.expected);
        let word = self.next();
        if word.is_empty() {
            return self.error(format!("it ends where {expected} should follow"));
        }
        let column = self.text[..self.position()].chars().count() + 1;
        let mut reason = format!(
            "`{}` at column {column} should be {expected}",
            shortened(word)
        );
        if let Some(nearest) = nearest(word, &self.expected) {
            reason.push_str("; did you mean `");
            reason.push_str(nearest);
            reason.push_str("`?");
        }
        self.error(reason)
    }

    fn error(&self, reason: impl fmt::Display) -> ConfigError {
        let message = format!("`{}` is not a policy: {reason}", shortened(self.text));
        ConfigError::new(message).at(self.position())
    }

    const fn position(&self) -> usize {
        self.text.len() - self.rest.len()
    }
}

/// The parts of a text such as `500/month`, of the units that are no fixed time.
fn in_calendar(word: &str) -> Option<(&str, Alignment)> {
    let (permits, unit) = word.split_once('/')?;
    let is = |name: &str| unit.trim().eq_ignore_ascii_case(name);
    let alignment = is("week").then_some(Alignment::Week);
    let alignment = alignment.or_else(|| is("month").then_some(Alignment::Month));
    Some((permits, alignment?))
}

/// The seconds of an offset such as `+02:00` or `-8`.
fn seconds_of(offset: &str) -> Option<i32> {
    let (sign, parts) = match offset.split_at_checked(1)? {
        ("+", parts) => (1, parts),
        ("-", parts) => (-1, parts),
        _ => return None,
    };
    let mut units = [3_600, 60, 1].into_iter();
    let mut seconds = 0;
    for part in parts.split(':') {
        let unit = units.next()?;
        let is_number = matches!(part.len(), 1 | 2) && part.bytes().all(|c| c.is_ascii_digit());
        let number: i32 = part.parse().ok().filter(|_| is_number)?;
        if unit < 3_600 && number >= 60 {
            return None;
        }
        seconds += number * unit;
    }
    Some(sign * seconds)
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// Whether it describes what is expected. Others are the word itself.
fn is_description(name: &str) -> bool {
    name.starts_with("a ")
}

/// `a`, `b` or `c`.
fn one_of(names: &[&str]) -> String {
    let mut list = String::new();
    for (index, name) in names.iter().enumerate() {
        list.push_str(match index {
            0 => "",
            _ if index + 1 == names.len() => " or ",
            _ => ", ",
        });
        // A description is not quoted.
        let quote = if is_description(name) { "" } else { "`" };
        list.extend([quote, name, quote]);
    }
    list
}

/// The name that `word` may be a misspelling of.
fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let far = |name: &str| distance(word, name.split(' ').next().unwrap_or(name));
    // A long word is no misspelling, and would take long to compare.
    let words = names
        .iter()
        .copied()
        .filter(|name| !is_description(name) && word.len() <= 32);
    let nearest = words.min_by_key(|name| far(name))?;
    (far(nearest) <= 1 + word.len() / 4).then_some(nearest)
}

/// How many letters are to be changed, left out or put in, or swapped with their neighbour, to make `one` of `other`.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let changed = usize::from(one[i - 1] != other[j - 1]);
            let mut least = (rows[i - 1][j - 1] + changed)
                .min(rows[i - 1][j] + 1)
                .min(row[j - 1] + 1);
            let is_swapped =
                i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
            if is_swapped {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}
