//! Values of any format of `serde`, written by hand: a derive would make the tree of dependencies ten times as large.

use core::fmt;

use serde::de::{Error, MapAccess, Visitor};
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

/// From a text, such as `100/min burst 20`.
impl<'de> Deserialize<'de> for AnyPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
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

/// From the text of a policy, or a table of `policy` and `mode`.
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

impl Visitor<'_> for PolicyVisitor {
    type Value = AnyPolicy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy, such as \"100/min burst 20\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<AnyPolicy, E> {
        text.parse().map_err(E::custom)
    }
}

struct LimitVisitor;

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = LimitConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy, such as \"100/min burst 20\", or a table of a `policy` and a `mode`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<LimitConfig, E> {
        PolicyVisitor.visit_str(text).map(LimitConfig::new)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LimitConfig, A::Error> {
        let (mut policy, mut mode) = (None, None);
        while let Some(name) = map.next_key::<String>()? {
            let is_new = match &*name {
                "policy" => policy.replace(map.next_value()?).is_none(),
                "mode" => mode.replace(map.next_value()?).is_none(),
                _ => return Err(A::Error::unknown_field(&name, &["policy", "mode"])),
            };
            if !is_new {
                return Err(A::Error::custom(format!("there are two fields `{name}`")));
            }
        }
        let policy: AnyPolicy = policy.ok_or_else(|| A::Error::missing_field("policy"))?;
        Ok(LimitConfig::new(policy).with_mode(mode.unwrap_or_default()))
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
