//! Values as text: how each kind is written, and the words for one that is wrong.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use http::uri::{Authority, Uri};
use paceline::limiter::Share;
use tracing::Level;

use super::{Anonymous, Concurrency, IpHeader, Mode, Upstream};

/// What a setting holds. It is read from text, wherever that was given, and shown as the same text.
pub(super) trait Value {
    /// Takes the value from text. The error names the text and what would be right.
    fn set(&mut self, text: &str) -> Result<(), String>;

    /// The text from which the same value would be read.
    fn show(&self) -> String;

    /// How the value is written in a file.
    fn form(&self) -> Form;

    /// What stands for it in the help text, with its unit.
    fn placeholder(&self) -> &'static str;
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
    /// The value as a file has it.
    pub(super) fn in_file(self, shown: &str) -> String {
        let is_number = !shown.is_empty() && shown.bytes().all(|byte| byte.is_ascii_digit());
        match self {
            Self::Number | Self::Switch => shown.to_owned(),
            Self::NumberOrText if is_number => shown.to_owned(),
            Self::NumberOrText | Self::Text => quoted(shown),
            Self::List => {
                let items = shown.split(',').filter(|item| !item.is_empty());
                format!("[{}]", items.map(quoted).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The words for what a file has to have here, for a setting with this default.
    pub(super) fn expected(self, default: &str) -> String {
        match self {
            Self::Number => format!("a whole number such as {default}"),
            Self::Switch => "true or false".to_owned(),
            Self::Text if default.is_empty() => "a string".to_owned(),
            Self::Text => format!("a string such as {}", quoted(default)),
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
    fn set(&mut self, text: &str) -> Result<(), String> {
        let found = T::WORDS.iter().find(|(word, _)| *word == text);
        let (_, value) = found.ok_or_else(|| {
            let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
            let (last, rest) = words.split_last().unwrap_or((&"", &[]));
            format!(
                "`{text}` is not {}: write {} or {last}",
                T::WHAT,
                rest.join(", ")
            )
        })?;
        *self = *value;
        Ok(())
    }

    fn show(&self) -> String {
        let found = T::WORDS.iter().find(|(_, value)| value == self);
        found.map_or("", |(word, _)| word).to_owned()
    }

    fn form(&self) -> Form {
        T::FORM
    }

    fn placeholder(&self) -> &'static str {
        T::PLACEHOLDER
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
    const WORDS: &'static [(&'static str, Self)] = &[
        ("enforce", Self::Enforce),
        ("passthrough", Self::Passthrough),
        ("off", Self::Off),
    ];
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

impl Word for Option<IpHeader> {
    const WHAT: &'static str = "a header of proxies";
    const PLACEHOLDER: &'static str = "HEADER";
    const WORDS: &'static [(&'static str, Self)] = &[
        ("forwarded", Some(IpHeader::Forwarded)),
        ("x-forwarded-for", Some(IpHeader::XForwardedFor)),
        ("x-real-ip", Some(IpHeader::XRealIp)),
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
    fn set(&mut self, text: &str) -> Result<(), String> {
        *self = whole(text)?;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn form(&self) -> Form {
        Form::Number
    }

    fn placeholder(&self) -> &'static str {
        "NUMBER"
    }
}

impl Value for usize {
    fn set(&mut self, text: &str) -> Result<(), String> {
        *self = whole(text)? as Self;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn form(&self) -> Form {
        Form::Number
    }

    fn placeholder(&self) -> &'static str {
        "NUMBER"
    }
}

pub(super) fn whole(text: &str) -> Result<u32, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| format!("`{text}` is not a whole number from 0 to {}", u32::MAX))
}

/// How often in a cycle a new client ends it early: a number, or `off`.
impl Value for Option<u32> {
    fn set(&mut self, text: &str) -> Result<(), String> {
        let number = (text != "off").then(|| whole(text)).transpose();
        *self = number.map_err(|error| format!("{error}, or off"))?;
        Ok(())
    }

    fn show(&self) -> String {
        self.map_or_else(|| "off".to_owned(), |number| number.to_string())
    }

    fn form(&self) -> Form {
        Form::NumberOrText
    }

    fn placeholder(&self) -> &'static str {
        "NUMBER|off"
    }
}

impl Value for Option<Concurrency> {
    fn set(&mut self, text: &str) -> Result<(), String> {
        let number = |text| whole(text).ok();
        *self = match (text, text.split_once("..")) {
            ("off", _) => None,
            (_, None) => number(text).map(Concurrency::Fixed),
            (_, Some((initial, max))) => number(initial)
                .zip(number(max))
                .map(|(initial, max)| Concurrency::Adaptive { initial, max }),
        };
        if self.is_none() && text != "off" {
            let right = "write off, a number as in 50, or for an adaptive one where it begins and its maximum, as in 20..200";
            return Err(format!("`{text}` is not a concurrency: {right}"));
        }
        Ok(())
    }

    fn show(&self) -> String {
        match self {
            None => "off".to_owned(),
            Some(Concurrency::Fixed(number)) => number.to_string(),
            Some(Concurrency::Adaptive { initial, max }) => format!("{initial}..{max}"),
        }
    }

    fn form(&self) -> Form {
        Form::NumberOrText
    }

    fn placeholder(&self) -> &'static str {
        "off|NUMBER|FROM..MAX"
    }
}

impl Value for Duration {
    fn set(&mut self, text: &str) -> Result<(), String> {
        *self = duration(text)?;
        Ok(())
    }

    fn show(&self) -> String {
        let millis = self.as_millis();
        let unit = UNITS
            .iter()
            .rev()
            .find(|(_, in_millis)| millis != 0 && millis.is_multiple_of(u128::from(*in_millis)));
        let (unit, in_millis) = unit.unwrap_or(&("s", 1_000));
        format!("{}{unit}", millis / u128::from(*in_millis))
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn placeholder(&self) -> &'static str {
        "DURATION"
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
    fn set(&mut self, text: &str) -> Result<(), String> {
        *self = text.parse().map_err(|error| format!("{error}"))?;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn placeholder(&self) -> &'static str {
        "PERCENT"
    }
}

/// A utilization.
impl Value for f64 {
    fn set(&mut self, text: &str) -> Result<(), String> {
        let mut share = Share::NONE;
        share.set(text)?;
        *self = Self::from(share.ten_thousandths()) / 10_000.0;
        Ok(())
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it was made of a share"
    )]
    fn show(&self) -> String {
        Share::of_ten_thousand((self * 10_000.0).round() as u32).to_string()
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn placeholder(&self) -> &'static str {
        "PERCENT"
    }
}

impl Value for SocketAddr {
    fn set(&mut self, text: &str) -> Result<(), String> {
        let right =
            "write an IP address and a port, as in 127.0.0.1:9000, 0.0.0.0:9000 or [::]:9000";
        *self = text
            .parse()
            .map_err(|_| format!("`{text}` is not an address to listen on: {right}"))?;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn placeholder(&self) -> &'static str {
        "IP:PORT"
    }
}

impl Value for Upstream {
    fn set(&mut self, text: &str) -> Result<(), String> {
        let wrong = |why: &str| Err(format!("`{text}` {why}"));
        let Some((scheme, rest)) = text.split_once("://") else {
            return wrong(&format!(
                "has no scheme: write http://{text}, or h2c://{text} for HTTP/2"
            ));
        };
        let is_h2c = match scheme {
            "http" => false,
            "h2c" => true,
            "https" => {
                return wrong(&format!(
                    "asks for TLS, which is not spoken to the upstream: write http://{rest}"
                ));
            }
            _ => return wrong("has an unknown scheme: write http:// or h2c://"),
        };
        let uri: Option<Uri> = format!("http://{rest}").parse().ok();
        let Some(authority) = uri
            .as_ref()
            .and_then(Uri::authority)
            .filter(|it| is_host(it))
        else {
            return wrong(
                "is not an upstream: write a host and a port, as in http://127.0.0.1:8080",
            );
        };
        let path = &rest[authority.as_str().len()..];
        if !path.is_empty() && path != "/" {
            return wrong(&format!(
                "has a path, `{path}`, but requests keep their own: write {scheme}://{authority}"
            ));
        }
        let authority = authority.clone();
        *self = Self { authority, is_h2c };
        Ok(())
    }

    fn show(&self) -> String {
        let scheme = if self.is_h2c { "h2c" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn placeholder(&self) -> &'static str {
        "URL"
    }
}

/// Whether it is a host, maybe with a port from 1 on, and no user.
fn is_host(authority: &Authority) -> bool {
    let text = authority.as_str();
    let host = authority.host();
    let port = authority.port_u16();
    let is_whole = match port {
        Some(port) => text == format!("{host}:{port}"),
        None => text == host,
    };
    is_whole && port != Some(0) && !host.is_empty()
}

impl Value for HeaderName {
    fn set(&mut self, text: &str) -> Result<(), String> {
        let right = "write letters, digits and hyphens, as in x-client-id";
        *self = text
            .parse()
            .map_err(|_| format!("`{text}` is not the name of a header: {right}"))?;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn placeholder(&self) -> &'static str {
        "HEADER"
    }
}

impl Value for Option<PathBuf> {
    fn set(&mut self, text: &str) -> Result<(), String> {
        *self = (!text.is_empty()).then(|| PathBuf::from(text));
        Ok(())
    }

    fn show(&self) -> String {
        self.as_ref()
            .map_or_else(String::new, |path| path.display().to_string())
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn placeholder(&self) -> &'static str {
        "FILE"
    }
}

/// Ranges of addresses, with commas between them. The library checks them.
impl Value for Vec<String> {
    fn set(&mut self, text: &str) -> Result<(), String> {
        let ranges = text.split(',').map(str::trim);
        *self = ranges
            .filter(|range| !range.is_empty())
            .map(str::to_owned)
            .collect();
        Ok(())
    }

    fn show(&self) -> String {
        self.join(",")
    }

    fn form(&self) -> Form {
        Form::List
    }

    fn placeholder(&self) -> &'static str {
        "RANGE,…"
    }
}
