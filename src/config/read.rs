//! Values of any format of `serde`, written by hand: a derive would make the tree of dependencies ten times as large.

use core::fmt;
use std::collections::BTreeMap;

use serde::de::{DeserializeSeed, Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limiter::Mode;
use crate::policy::AnyPolicy;
use crate::time::Rate;

use super::{LimitConfig, LimitsConfig};

/// As a text, such as `100/min`.
impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From a text, such as `100/min`.
impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(RateVisitor)
    }
}

/// As a text, such as `100/min burst 20`.
impl Serialize for AnyPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From a text, such as `100/min burst 20`, or a table, such as `{ rate = "100/min", burst = 20 }`.
impl<'de> Deserialize<'de> for AnyPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return deserializer.deserialize_any(PolicyVisitor);
        }
        deserializer.deserialize_str(PolicyVisitor)
    }
}

/// From a text: `active`, `shadow` or `off`.
impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mode = String::deserialize(deserializer)?;
        mode.parse().map_err(D::Error::custom)
    }
}

/// From the text of a policy, or a table with that of a policy or `policy` itself, and `mode`.
impl<'de> Deserialize<'de> for LimitConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitVisitor)
    }
}

/// From a table with a limit for each name.
impl<'de> Deserialize<'de> for LimitsConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LimitsVisitor)
    }
}

struct RateVisitor;

impl Visitor<'_> for RateVisitor {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate, such as \"100/min\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Rate, E> {
        text.parse().map_err(E::custom)
    }
}

struct PolicyVisitor;

impl<'de> Visitor<'de> for PolicyVisitor {
    type Value = AnyPolicy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy, such as \"100/min burst 20\", or a table of its parameters")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<AnyPolicy, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AnyPolicy, A::Error> {
        Fields::read(map, &FIELDS[..POLICY_FIELDS])?.policy()
    }
}

struct LimitVisitor;

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = LimitConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy, such as \"100/min burst 20\", or a table of a limit")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<LimitConfig, E> {
        PolicyVisitor.visit_str(text).map(LimitConfig::new)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LimitConfig, A::Error> {
        let fields = Fields::read(map, &FIELDS)?;
        let mode = fields.mode;
        Ok(LimitConfig::new(fields.policy()?).with_mode(mode))
    }
}

struct LimitsVisitor;

impl<'de> Visitor<'de> for LimitsVisitor {
    type Value = LimitsConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table with a limit for each name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LimitsConfig, A::Error> {
        let mut limits = LimitsConfig::new();
        while let Some(name) = map.next_key::<String>()? {
            if limits.get(&name).is_some() {
                return Err(A::Error::custom(format!("there are two limits `{name}`")));
            }
            limits = limits.with(name, map.next_value()?);
        }
        Ok(limits)
    }
}

/// The fields of a limit, of which the first ones make a policy.
const FIELDS: [&str; 14] = [
    "rate",
    "limit",
    "window",
    "every",
    "kind",
    "buckets",
    "burst",
    "start",
    "debt",
    "delayed",
    "utc",
    "per_request",
    "policy",
    "mode",
];

const POLICY_FIELDS: usize = 12;

/// A table, as the words that its fields are in the text of a policy. A table so says what a text says.
#[derive(Default)]
struct Fields {
    words: BTreeMap<&'static str, String>,
    mode: Mode,
}

impl Fields {
    fn read<'de, A: MapAccess<'de>>(
        mut map: A,
        known: &'static [&'static str],
    ) -> Result<Self, A::Error> {
        let mut fields = Self::default();
        while let Some(name) = map.next_key_seed(Field(known))? {
            let words = match name {
                "buckets" => format!("{} buckets", number(&mut map)?),
                "burst" | "start" => format!("{name} {}", number(&mut map)?),
                "limit" => number(&mut map)?.to_string(),
                "debt" | "delayed" => flag(&mut map, name)?,
                "per_request" => flag(&mut map, "per request")?,
                "every" => format!("every {}", word(&mut map)?),
                "utc" => format!("utc{}", word(&mut map)?),
                "policy" => map.next_value::<AnyPolicy>()?.to_string(),
                "mode" => {
                    fields.mode = map.next_value()?;
                    String::new()
                }
                _ => word(&mut map)?,
            };
            if fields.words.insert(name, words).is_some() {
                return Err(A::Error::duplicate_field(name));
            }
        }
        fields.words.remove("mode");
        Ok(fields)
    }

    fn policy<E: Error>(mut self) -> Result<AnyPolicy, E> {
        let text = match self.words.remove("policy") {
            Some(policy) if self.words.is_empty() => policy,
            Some(_) => return Err(E::custom("beside `policy` there is only `mode`")),
            None => self.text()?,
        };
        text.parse().map_err(E::custom)
    }

    fn text<E: Error>(mut self) -> Result<String, E> {
        let begin = ["rate", "limit", "window", "every"].map(|name| self.words.remove(name));
        let begin = match begin {
            [Some(rate), None, None, None] => rate,
            [None, Some(limit), Some(window), None] => format!("{limit}/{window}"),
            [None, Some(_), None, None] => return Err(E::missing_field("window")),
            [None, None, None, Some(every)] => every,
            [None, None, None, None] => return Err(E::missing_field("rate")),
            _ => {
                return Err(E::custom(
                    "a policy has either `rate`, or `limit` and `window`, or `every`",
                ));
            }
        };
        let others = FIELDS.iter().filter_map(|name| self.words.remove(name));
        let words = core::iter::once(begin).chain(others);
        let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
        Ok(words.join(" "))
    }
}

fn number<'de, A: MapAccess<'de>>(map: &mut A) -> Result<u32, A::Error> {
    map.next_value().map(|Number(number)| number)
}

/// `words` if it is set.
fn flag<'de, A: MapAccess<'de>>(map: &mut A, words: &str) -> Result<String, A::Error> {
    let words = map.next_value::<bool>()?.then_some(words);
    Ok(words.unwrap_or_default().to_owned())
}

fn word<'de, A: MapAccess<'de>>(map: &mut A) -> Result<String, A::Error> {
    map.next_value().map(|Word(word)| word)
}

/// The name of a known field. It is checked where it is read, so that an error has its line.
struct Field(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Field {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Field {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<&'static str, E> {
        let name = self.0.iter().find(|name| **name == key);
        name.copied().ok_or_else(|| E::unknown_field(key, self.0))
    }
}

/// A text without spaces.
struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        if word.contains(char::is_whitespace) {
            let found = Unexpected::Str(&word);
            return Err(D::Error::invalid_value(found, &"a text without spaces"));
        }
        Ok(Self(word))
    }
}

/// A number, with its range in the error.
struct Number(u32);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u32(NumberVisitor)
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}", u32::MAX)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Number, E> {
        let invalid = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
        u32::try_from(number).map(Number).map_err(invalid)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Number, E> {
        let invalid = |_| E::invalid_value(Unexpected::Signed(number), &self);
        u32::try_from(number).map(Number).map_err(invalid)
    }
}
