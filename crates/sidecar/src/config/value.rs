//! Values as text: how each kind is written, and the message for a wrong one.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::header::{self, HeaderName};
use paceline::limiter::Share;
use paceline_tower::ProxyHeader;
use tracing::Level;

use super::{Anonymous, Concurrency, Depth, Mode, Sharing};

/// What a setting holds. It is read from text, wherever that was given, and shown as the same text.
pub(super) trait Value: Sized {
    /// How it is written in a file.
    const FORM: Form = Form::Text;

    /// What stands for it in the help text, with its unit.
    const PLACEHOLDER: &'static str;

    /// The error names the text and what would be right.
    fn read(text: &str) -> Result<Self, String>;

    /// The text from which the same value would be read.
    fn text(&self) -> String;
}

/// A value as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shown {
    pub(super) text: String,
    pub(super) form: Form,
    pub(super) placeholder: &'static str,
}

impl Shown {
    pub(super) fn of<T: Value>(value: &T) -> Self {
        Self {
            text: value.text(),
            form: T::FORM,
            placeholder: T::PLACEHOLDER,
        }
    }

    /// The value as a file has it.
    pub(super) fn in_file(&self) -> String {
        let text = &self.text;
        match self.form {
            Form::Number | Form::Switch => text.clone(),
            Form::NumberOrText if u32::read(text).is_ok() => text.clone(),
            Form::NumberOrText | Form::Text => quoted(text),
            Form::List => {
                let items = text.split(',').filter(|item| !item.is_empty());
                format!("[{}]", items.map(quoted).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// How a value is written in a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// `40`
    Number,
    /// `true`
    Switch,
    /// `"10s"`
    Text,
    /// `40`, or `"off"`
    NumberOrText,
    /// `["10.0.0.0/8"]`
    List,
}

impl Form {
    /// The words for what a file has to have here, such as this example.
    pub(super) fn expected(self, example: &str) -> String {
        match self {
            Self::Number => format!("a whole number such as {example}"),
            Self::Switch => "true or false".to_owned(),
            Self::Text if example == "\"\"" => "a string".to_owned(),
            Self::Text => format!("a string such as {example}"),
            Self::NumberOrText => "a whole number or the string \"off\"".to_owned(),
            Self::List => "a list of strings such as [\"10.0.0.0/8\"]".to_owned(),
        }
    }
}

/// A basic string of TOML.
pub(super) fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|char| match char {
        '"' | '\\' => format!("\\{char}"),
        char if char.is_control() => format!("\\u{:04X}", u32::from(char)),
        char => char.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// A value that is one of a few words.
trait Word: Copy + PartialEq + 'static {
    /// What it is called in an error, with its article.
    const WHAT: &'static str;
    /// What stands for it in the help text.
    const PLACEHOLDER: &'static str;
    const FORM: Form = Form::Text;
    const WORDS: &'static [(&'static str, Self)];
}

impl<T: Word> Value for T {
    const FORM: Form = <T as Word>::FORM;
    const PLACEHOLDER: &'static str = <T as Word>::PLACEHOLDER;

    fn read(text: &str) -> Result<Self, String> {
        let found = T::WORDS.iter().find(|(word, _)| *word == text);
        let value = found.map(|(_, value)| *value);
        value.ok_or_else(|| {
            let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
            let (last, rest) = words.split_last().unwrap_or((&"", &[]));
            let (what, rest) = (T::WHAT, rest.join(", "));
            format!("`{text}` is not {what}: write {rest} or {last}")
        })
    }

    fn text(&self) -> String {
        let found = T::WORDS.iter().find(|(_, value)| value == self);
        found.map_or("", |(word, _)| word).to_owned()
    }
}

impl Word for bool {
    const WHAT: &'static str = "true or false";
    const PLACEHOLDER: &'static str = "true|false";
    const FORM: Form = Form::Switch;
    const WORDS: &'static [(&'static str, Self)] = &[("true", true), ("false", false)];
}

impl Word for Mode {
    const WHAT: &'static str = "a mode";
    const PLACEHOLDER: &'static str = "MODE";
    const WORDS: &'static [(&'static str, Self)] = &Self::NAMES;
}

impl Word for Sharing {
    const WHAT: &'static str = "a way to share";
    const PLACEHOLDER: &'static str = "RULE";
    const WORDS: &'static [(&'static str, Self)] =
        &[("demand", Self::Demand), ("guaranteed", Self::Guaranteed)];
}

impl Word for Anonymous {
    const WHAT: &'static str = "an answer to requests without a client";
    const PLACEHOLDER: &'static str = "ANSWER";
    const WORDS: &'static [(&'static str, Self)] = &[
        ("refuse", Self::Refuse),
        ("pass", Self::Pass),
        ("share", Self::Share),
    ];
}

/// How a client is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ClientBy {
    Header,
    Ip,
}

impl Word for ClientBy {
    const WHAT: &'static str = "a way to know a client";
    const PLACEHOLDER: &'static str = "BY";
    const WORDS: &'static [(&'static str, Self)] = &[("header", Self::Header), ("ip", Self::Ip)];
}

impl Word for Option<ProxyHeader> {
    const WHAT: &'static str = "a header of proxies";
    const PLACEHOLDER: &'static str = "HEADER";
    const WORDS: &'static [(&'static str, Self)] = &[
        ("forwarded", Some(ProxyHeader::Forwarded)),
        ("x-forwarded-for", Some(ProxyHeader::XForwardedFor)),
        ("x-real-ip", Some(ProxyHeader::XRealIp)),
        ("none", None),
    ];
}

impl Word for Level {
    const WHAT: &'static str = "a level";
    const PLACEHOLDER: &'static str = "LEVEL";
    const WORDS: &'static [(&'static str, Self)] = &[
        ("error", Self::ERROR),
        ("warn", Self::WARN),
        ("info", Self::INFO),
        ("debug", Self::DEBUG),
        ("trace", Self::TRACE),
    ];
}

impl Value for u32 {
    const FORM: Form = Form::Number;
    const PLACEHOLDER: &'static str = "NUMBER";

    fn read(text: &str) -> Result<Self, String> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        number.ok_or_else(|| format!("`{text}` is not a whole number from 0 to {}", Self::MAX))
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// No count has to be larger than a `u32`.
impl Value for usize {
    const FORM: Form = Form::Number;
    const PLACEHOLDER: &'static str = "NUMBER";

    fn read(text: &str) -> Result<Self, String> {
        Self::try_from(u32::read(text)?).map_err(|error| error.to_string())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// A number, or `off`.
impl Value for Option<u32> {
    const FORM: Form = Form::NumberOrText;
    const PLACEHOLDER: &'static str = "NUMBER|off";

    fn read(text: &str) -> Result<Self, String> {
        let number = (text != "off").then(|| u32::read(text)).transpose();
        number.map_err(|error| format!("{error}, or off"))
    }

    fn text(&self) -> String {
        self.map_or_else(|| "off".to_owned(), |number| number.to_string())
    }
}

impl Value for Option<Concurrency> {
    const FORM: Form = Form::NumberOrText;
    const PLACEHOLDER: &'static str = "off|NUMBER|FROM..MAX";

    fn read(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(None);
        }
        let number = |text| u32::read(text).ok();
        let concurrency = match text.split_once("..") {
            None => number(text).map(Concurrency::Fixed),
            Some((initial, max)) => number(initial)
                .zip(number(max))
                .map(|(initial, max)| Concurrency::Adaptive { initial, max }),
        };
        let right = "write off, a number as in 50, or for an adaptive one where it begins and its maximum, as in 20..200";
        let error = || format!("`{text}` is not a concurrency: {right}");
        concurrency.map(Some).ok_or_else(error)
    }

    fn text(&self) -> String {
        match self {
            None => "off".to_owned(),
            Some(Concurrency::Fixed(number)) => number.to_string(),
            Some(Concurrency::Adaptive { initial, max }) => format!("{initial}..{max}"),
        }
    }
}

impl Value for Duration {
    const PLACEHOLDER: &'static str = "DURATION";

    fn read(text: &str) -> Result<Self, String> {
        duration(text)
    }

    fn text(&self) -> String {
        let millis = self.as_millis();
        let is_whole = |in_millis: u64| millis != 0 && millis.is_multiple_of(in_millis.into());
        let unit = UNITS.iter().rev().find(|(_, unit)| is_whole(*unit));
        let (unit, in_millis) = unit.unwrap_or(&("s", 1_000));
        format!("{}{unit}", millis / u128::from(*in_millis))
    }
}

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// A duration with its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    with_unit(text).ok_or_else(|| {
        let right = "write a whole number and its unit, ms, s, m or h, as in 500ms, 10s or 2m";
        format!("`{text}` is not a duration: {right}")
    })
}

fn with_unit(text: &str) -> Option<Duration> {
    let unit = text.find(|char: char| !char.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let (_, in_millis) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    let millis = number.parse::<u64>().ok()?.checked_mul(*in_millis)?;
    Some(Duration::from_millis(millis))
}

impl Value for Share {
    const PLACEHOLDER: &'static str = "PERCENT";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error| format!("{error}"))
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for Depth {
    const PLACEHOLDER: &'static str = "PERCENT";

    fn read(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').map(str::trim_end);
        let percent = percent.and_then(|number| u32::read(number).ok());
        let right = "write a whole percentage of a cycle, as in 50% or 200%";
        percent
            .and_then(|percent| percent.checked_mul(100))
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a depth: {right}"))
    }

    fn text(&self) -> String {
        format!("{}%", self.0 / 100)
    }
}

/// A utilization.
impl Value for f64 {
    const PLACEHOLDER: &'static str = "PERCENT";

    fn read(text: &str) -> Result<Self, String> {
        let share = Share::read(text)?;
        Ok(Self::from(share.ten_thousandths()) / 10_000.0)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it was made of a share"
    )]
    fn text(&self) -> String {
        Share::of_ten_thousand((self * 10_000.0).round() as u32).to_string()
    }
}

impl Value for SocketAddr {
    const PLACEHOLDER: &'static str = "IP:PORT";

    fn read(text: &str) -> Result<Self, String> {
        let right =
            "write an IP address and a port, as in 127.0.0.1:9000, 0.0.0.0:9000 or [::]:9000";
        let error = |_| format!("`{text}` is not an address to listen on: {right}");
        text.parse().map_err(error)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// They cannot name a client.
const OF_THE_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::VIA,
];

impl Value for HeaderName {
    const PLACEHOLDER: &'static str = "HEADER";

    fn read(text: &str) -> Result<Self, String> {
        let right = "write letters, digits and hyphens, as in x-client-id";
        let error = |_| format!("`{text}` is not the name of a header: {right}");
        let name: Self = text.parse().map_err(error)?;
        if OF_THE_CONNECTION.contains(&name) {
            let right = "name one that is only about the client, as in x-client-id";
            return Err(format!(
                "`{text}` is about the connection or the message: {right}"
            ));
        }
        Ok(name)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// A file, or the empty text.
impl Value for Option<PathBuf> {
    const PLACEHOLDER: &'static str = "FILE";

    fn read(text: &str) -> Result<Self, String> {
        Ok((!text.is_empty()).then(|| PathBuf::from(text)))
    }

    fn text(&self) -> String {
        let shown = self.as_ref().map(|path| path.display().to_string());
        shown.unwrap_or_default()
    }
}

/// Ranges of addresses, with commas between them. The library checks them.
impl Value for Vec<String> {
    const FORM: Form = Form::List;
    const PLACEHOLDER: &'static str = "RANGE,…";

    fn read(text: &str) -> Result<Self, String> {
        let ranges = text.split(',').map(str::trim);
        let ranges = ranges.filter(|range| !range.is_empty());
        Ok(ranges.map(str::to_owned).collect())
    }

    fn text(&self) -> String {
        self.join(",")
    }
}
