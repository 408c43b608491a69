//! One message, in its row and on the wire.

use std::borrow::Cow;

use paceline::time::Tick;
use serde::{Deserialize, Serialize};

use crate::{provider::Name, segments::segments};

/// The longest id, in bytes.
const LONGEST_ID: usize = 255;

/// A message that can be sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) provider: Name,
    pub(crate) to: String,
    pub(crate) text: String,
    /// The segments that are paid for.
    pub(crate) segments: u32,
    /// When its row was read.
    pub(crate) read_at: Tick,
}

/// The form in which a provider gets it.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Wire<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) to: Cow<'a, str>,
    pub(crate) text: Cow<'a, str>,
}

impl Message {
    /// Checks the columns of a row. The error is the reason why it is not a message.
    pub(crate) fn check(columns: [&str; 4], read_at: Tick) -> Result<Self, String> {
        let [id, provider, to, text] = columns;
        if id.is_empty() {
            return Err("the id is empty".into());
        }
        if id.len() > LONGEST_ID {
            return Err(format!(
                "the id takes {} bytes, at most {LONGEST_ID} are allowed",
                id.len()
            ));
        }
        let Some(provider) = Name::parse(provider) else {
            let known = Name::ALL.map(Name::as_str).join(", ");
            let provider = shortened(provider);
            return Err(format!("unknown provider {provider}, known are {known}"));
        };
        check_number(to)?;
        if text.trim().is_empty() {
            return Err("the text is empty".into());
        }
        let (segments, most) = (segments(text), provider.quota().max_segments);
        if segments > most {
            return Err(format!(
                "the text takes {segments} segments, {provider} takes at most {most}"
            ));
        }
        Ok(Self {
            id: id.into(),
            provider,
            to: to.into(),
            text: text.into(),
            segments,
            read_at,
        })
    }

    pub(crate) fn wire(&self) -> Wire<'_> {
        Wire {
            id: Cow::Borrowed(&self.id),
            to: Cow::Borrowed(&self.to),
            text: Cow::Borrowed(&self.text),
        }
    }

    pub(crate) fn columns(&self) -> [&str; 4] {
        [&self.id, self.provider.as_str(), &self.to, &self.text]
    }
}

/// A text in quotes, as error messages show it: cut where it is long.
pub(crate) fn shortened(text: &str) -> String {
    let shown: String = text.chars().take(80).collect();
    let cut = if shown.len() < text.len() { "…" } else { "" };
    format!("{shown:?}{cut}")
}

/// E.164: a plus, then at most 15 digits, the first of them not a zero. No number has fewer than seven.
pub(crate) fn check_number(to: &str) -> Result<(), String> {
    if to.is_empty() {
        return Err("the number is empty".into());
    }
    let digits = to.strip_prefix('+').unwrap_or_default();
    let well_formed = (7..=15).contains(&digits.len())
        && digits.bytes().all(|digit| digit.is_ascii_digit())
        && !digits.starts_with('0');
    if well_formed {
        Ok(())
    } else {
        Err(format!(
            "the number {} is not + and 7 to 15 digits",
            shortened(to)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{Message, Name, Tick};

    fn check(columns: [&str; 4]) -> Result<Message, String> {
        Message::check(columns, Tick::ZERO)
    }

    #[test]
    fn a_good_row_is_a_message_and_back() {
        let columns = ["1", "bulk", "+4915112345678", "Grüße"];
        let message = check(columns).unwrap();

        assert_eq!((message.provider, message.segments), (Name::Bulk, 1));
        assert_eq!(message.columns(), columns);
    }

    #[test]
    fn a_bad_row_has_its_reason() {
        let long = "x".repeat(153 * 4 + 1);
        for (columns, reason) in [
            (["", "solo", "+4915112345678", "hi"], "the id is empty"),
            (
                ["1", "telco", "+4915112345678", "hi"],
                "unknown provider \"telco\", known are solo, bulk, segments",
            ),
            (["1", "solo", "", "hi"], "the number is empty"),
            (
                ["1", "solo", "015112345678", "hi"],
                "the number \"015112345678\" is not + and 7 to 15 digits",
            ),
            (["1", "solo", "+4915112345678", " "], "the text is empty"),
            (
                ["1", "segments", "+4915112345678", &long],
                "the text takes 5 segments, segments takes at most 4",
            ),
        ] {
            assert_eq!(check(columns), Err(reason.into()));
        }
    }

    #[test]
    fn numbers_are_e164() {
        let is_good = |to| check(["1", "solo", to, "hi"]).is_ok();

        for good in ["+1234567", "+123456789012345"] {
            assert!(is_good(good), "{good}");
        }
        for bad in [
            "+123456",
            "+1234567890123456",
            "+0234567",
            "+12 34567",
            "+１２３４５６７",
            "1234567",
            "+",
        ] {
            assert!(!is_good(bad), "{bad}");
        }
    }
}
