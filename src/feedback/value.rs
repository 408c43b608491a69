//! The syntax of header values: numbers, and lists of items with parameters.

use core::time::Duration;

use crate::time::saturating_duration;

/// A decimal number of seconds.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    decimal(text, 1_000_000_000)
}

/// A decimal number of milliseconds.
pub(super) fn millis(text: &str) -> Option<Duration> {
    decimal(text, 1_000_000)
}

/// A decimal number of units, each of `unit` nanoseconds. It is rounded up to nanoseconds, and saturates.
pub(super) fn decimal(text: &str, unit: u128) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // This cannot overflow: 60 bits times the 47 bits of a day.
    let fraction = (fraction_digits(fraction)? * unit).div_ceil(FRACTIONS);
    let nanos = digits(whole)?.saturating_mul(unit).saturating_add(fraction);
    Some(saturating_duration(nanos))
}

/// A whole number, or the largest possible one.
fn digits(text: &str) -> Option<u128> {
    text.bytes().try_fold(0_u128, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u128::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// The first [`FRACTION_DIGITS`] digits after the point, rounded up. They suffice for a day in nanoseconds.
fn fraction_digits(text: &str) -> Option<u128> {
    digits(text)?;
    let (first, rest) = text.split_at(text.len().min(FRACTION_DIGITS));
    let first = (first.len()..FRACTION_DIGITS).fold(digits(first)?, |number, _| number * 10);
    Some(first + u128::from(rest.bytes().any(|byte| byte != b'0')))
}

const FRACTION_DIGITS: usize = 18;
const FRACTIONS: u128 = 1_000_000_000_000_000_000;

/// A number of requests, without its fraction.
pub(super) fn count(text: &str) -> Option<u64> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    digits(fraction)?;
    let whole = digits(Some(whole).filter(|whole| !whole.is_empty())?)?;
    Some(u64::try_from(whole).unwrap_or(u64::MAX))
}

/// A number of remaining requests. A negative number is 0.
pub(super) fn count_left(text: &str) -> Option<u64> {
    match text.trim().strip_prefix('-') {
        Some(overdrawn) => count(overdrawn).map(|_| 0),
        None => count(text),
    }
}

/// One member of a list of a structured field (RFC 9651): `"burst";q=100;w=60`, `100;w=60` or `limit=100`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Member<'a> {
    /// The text before the parameters.
    pub(super) item: &'a str,
    params: &'a str,
}

impl<'a> Member<'a> {
    /// The item, without its quotes if it has any.
    pub(super) fn name(&self) -> &'a str {
        unquoted(self.item)
    }

    /// Whether the item is a string.
    pub(super) fn is_quoted(&self) -> bool {
        self.item.starts_with('"')
    }

    /// The parameters, in order.
    pub(super) fn params(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        split(self.params, ';').filter_map(|param| {
            let (key, value) = param.split_once('=')?;
            Some((key.trim(), unquoted(value.trim())))
        })
    }
}

/// The members of a list, without the empty ones. A list that breaks the syntax is read as far as possible.
pub(super) fn members(text: &str) -> impl Iterator<Item = Member<'_>> {
    split(text, ',')
        .map(|member| {
            let (item, params) = cut(member, ';');
            Member {
                item: item.trim(),
                params,
            }
        })
        .filter(|member| !member.item.is_empty())
}

/// The texts between the marks outside of quotes.
fn split(text: &str, mark: char) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    core::iter::from_fn(move || {
        let (piece, after) = cut(rest?, mark);
        rest = (!after.is_empty()).then_some(after);
        Some(piece)
    })
}

/// The texts before and after the first mark outside of quotes.
fn cut(text: &str, mark: char) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if c == mark && !quoted => return (&text[..at], &text[at + mark.len_utf8()..]),
            _ => {}
        }
    }
    (text, "")
}

/// The text without the quotes around it, if it has both.
fn unquoted(text: &str) -> &str {
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_rounded_down_and_saturates() {
        assert_eq!(count("598.9"), Some(598));
        assert_eq!(count(" 7 "), Some(7));
        assert_eq!(count(&"9".repeat(99)), Some(u64::MAX));
        assert_eq!(count_left("-3"), Some(0));
        for text in ["", ".", ".5", "-", "-1", "+1", "1,000", "many", "1e3", "½"] {
            assert_eq!(count(text), None, "{text}");
        }
        assert_eq!(count_left("--1"), None);
    }

    fn read(text: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
        members(text)
            .map(|member| (member.name(), member.params().collect()))
            .collect()
    }

    #[test]
    fn members_have_names_and_parameters() {
        assert_eq!(
            read(r#""burst";q=100;w=60, "daily" ; q=1000 ; w=86400;pk=:dHMxMjM=:"#),
            [
                ("burst", vec![("q", "100"), ("w", "60")]),
                (
                    "daily",
                    vec![("q", "1000"), ("w", "86400"), ("pk", ":dHMxMjM=:")]
                ),
            ]
        );
        assert_eq!(
            read("100, 10;w=1,1000;w=3600;burst"),
            [
                ("100", vec![]),
                ("10", vec![("w", "1")]),
                ("1000", vec![("w", "3600")]),
            ]
        );
        assert_eq!(
            read("limit=100, reset=50"),
            [("limit=100", vec![]), ("reset=50", vec![])]
        );
    }

    #[test]
    fn separators_in_quotes_are_text() {
        assert_eq!(
            read(r#""a,b;c\",";q=1;qu="x;,y", "d";q=2"#),
            [
                (r#"a,b;c\","#, vec![("q", "1"), ("qu", "x;,y")]),
                ("d", vec![("q", "2")]),
            ]
        );
    }

    #[test]
    fn a_list_that_breaks_the_syntax_is_read_as_far_as_possible() {
        assert_eq!(read(" ,, ;q=1,\t,"), []);
        assert_eq!(read(r#""open;q=1, "#), [(r#""open;q=1,"#, vec![])]);
        assert_eq!(read("ß;ü=é;=;;"), [("ß", vec![("ü", "é"), ("", "")])]);
        assert_eq!(read(r#"""#), [(r#"""#, vec![])]);
    }
}
