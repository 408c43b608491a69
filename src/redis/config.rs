use core::fmt::Write as _;
use core::time::Duration;
use std::sync::Arc;

use crate::time::OutOfRange;

use super::error::ConfigError;
use super::policy::{RedisPolicy, ScriptParams};

/// What passes a limit while Redis is slow or gone.
///
/// The right choice depends on what the limit protects: see [the guide](crate::redis#when-redis-is-slow-or-gone).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutagePolicy {
    /// An insurance is stated as its number of replicas.
    fallback: Fallback<u32>,
}

impl OutagePolicy {
    /// Everything passes: for limits that protect a service of your own, where a refusal costs more than a surplus.
    #[must_use]
    pub const fn open() -> Self {
        Self {
            fallback: Fallback::Open,
        }
    }

    /// Nothing passes until Redis is back: for quotas where a surplus costs more than a standstill.
    #[must_use]
    pub const fn closed() -> Self {
        Self {
            fallback: Fallback::Closed,
        }
    }

    /// A limit in memory takes over: the share of this limit that each of `replicas` processes may use alone.
    ///
    /// It starts with everything spent, because that may be so in Redis when the outage begins: a bucket fills from nothing, and
    /// a window lets nothing pass until a whole one is over. The limit in Redis starts the same way after a long outage. All
    /// replicas together never pass more than the limit if there are no more than `replicas` of them. (If only some of them
    /// cannot reach Redis, these pass their shares on top of what the others pass through Redis.)
    ///
    /// # Panics
    ///
    /// If `replicas` is zero; see [`try_insured`](Self::try_insured).
    #[must_use]
    #[track_caller]
    pub const fn insured(replicas: u32) -> Self {
        OutOfRange::or_panic(Self::try_insured(replicas))
    }

    /// [`insured`](Self::insured), for a number from a configuration.
    ///
    /// # Errors
    ///
    /// If `replicas` is zero.
    pub const fn try_insured(replicas: u32) -> Result<Self, OutOfRange> {
        if replicas == 0 {
            let message = "an insurance needs at least 1 replica, got 0";
            return Err(OutOfRange::new("replicas", message));
        }
        Ok(Self {
            fallback: Fallback::Insured(replicas),
        })
    }

    /// The fallback of one limit; `share_of` divides the limit by the number of replicas.
    pub(super) fn fallback<T>(
        self,
        share_of: impl FnOnce(u32) -> Result<T, ConfigError>,
    ) -> Result<Fallback<T>, ConfigError> {
        Ok(match self.fallback {
            Fallback::Open => Fallback::Open,
            Fallback::Closed => Fallback::Closed,
            Fallback::Insured(replicas) => Fallback::Insured(share_of(replicas)?),
        })
    }
}

/// What takes over during an outage. `T` describes the insurance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fallback<T> {
    Open,
    Closed,
    Insured(T),
}

/// The fixed settings of a limit, the same for all its keys.
#[derive(Clone, Debug)]
pub(super) struct LimitConfig<P> {
    pub(super) policy: P,
    /// One for each limit of an `All`.
    pub(super) params: Vec<ScriptParams>,
    pub(super) fallback: Fallback<P>,
    /// How many permits are taken ahead, and for how long they can be used.
    pub(super) prefetch: Option<(u32, Duration)>,
}

impl<P: RedisPolicy> LimitConfig<P> {
    pub(super) fn new(policy: P, outage_policy: OutagePolicy) -> Result<Self, ConfigError> {
        Ok(Self {
            params: policy.script_params()?,
            fallback: outage_policy.fallback(|replicas| policy.share_of(replicas))?,
            policy,
            prefetch: None,
        })
    }

    /// The largest cost that can pass.
    pub(super) fn capacity(&self) -> u32 {
        self.params
            .iter()
            .map(ScriptParams::capacity)
            .min()
            .unwrap_or(u32::MAX)
    }

    /// The keys of a limit. [`tagged`] makes its `name`.
    pub(super) fn keys(&self, name: &str) -> Arc<[String]> {
        let key = |(number, params): (usize, &ScriptParams)| match self.params.len() {
            1 => format!("{name}:{}", params.key_suffix()),
            _ => format!("{name}:{number}:{}", params.key_suffix()),
        };
        self.params.iter().enumerate().map(key).collect()
    }
}

/// The longest name or prefix in bytes, before escaping.
const LONGEST_NAME: usize = 200;

/// `prefix:{name}`, the start of all keys of a name. The braces put them into one slot of a cluster.
///
/// [`escaped`] makes the prefix; it may consist of several, joined by `:`.
pub(super) fn tagged(prefix: &str, name: &str) -> Result<String, ConfigError> {
    let name = escaped("a name", name)?;
    Ok(format!("{prefix}:{{{name}}}"))
}

/// Keeps letters, digits and `-._~@/`, and writes every other byte as `%` and two digits: different names have different keys.
pub(super) fn escaped(what: &str, text: &str) -> Result<String, ConfigError> {
    if text.is_empty() || text.len() > LONGEST_NAME {
        let bytes = text.len();
        return Err(ConfigError::new(format!(
            "{what} of a limit in Redis has 1 to {LONGEST_NAME} bytes, got {bytes}"
        )));
    }
    let mut key = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'@' | b'/' => {
                key.push(char::from(byte));
            }
            _ => {
                // Writing to a `String` does not fail.
                let _ = write!(key, "%{byte:02X}");
            }
        }
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_with_a_meaning_in_keys_are_escaped() {
        assert_eq!(tagged("app", "bob").unwrap(), "app:{bob}");
        assert_eq!(escaped("a prefix", "a:b").unwrap(), "a%3Ab");
        assert_eq!(tagged("a:b", "{x}%").unwrap(), "a:b:{%7Bx%7D%25}");
        assert_eq!(tagged("app", "é\n").unwrap(), "app:{%C3%A9%0A}");
    }

    #[test]
    fn an_empty_or_too_long_name_is_refused_with_its_length() {
        for (name, bytes) in [(String::new(), "got 0"), ("x".repeat(201), "got 201")] {
            let error = tagged("app", &name).unwrap_err().to_string();
            assert!(
                error.ends_with(bytes) && error.contains("1 to 200 bytes"),
                "{error}"
            );
        }
        assert!(tagged("app", &"x".repeat(200)).is_ok());
    }
}
