use core::fmt::Write as _;
use std::sync::Arc;

use crate::remote::{Batcher, LimitConfig, OutagePolicy};

use super::connector::Connector;
use super::policy::RedisPolicy;
use super::script_params::{Params, RedisLimit, ScriptParams};
use paceline::config::ConfigError;

/// A Redis or Valkey server, a master that Sentinel names, or a cluster, in which limits are kept. Clones share one connection.
///
/// It connects when it is first used, and reconnects whenever the connection is lost. No call waits for that longer than the
/// deadline.
///
/// ```
/// use futures::StreamExt;
/// use paceline::policy::TokenBucket;
/// use paceline::prelude::*;
/// use paceline_redis::{OutagePolicy, Redis};
/// use paceline::time::Rate;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::insured(3))?;
/// # // A busy machine may be late.
/// # let redis = redis.with_deadline(std::time::Duration::from_secs(2))?;
/// let limit = redis.limit("sms", TokenBucket::new(Rate::per_second(30), 5))?;
///
/// let mut messages = futures::stream::iter(["one", "two"]).pace(limit);
/// while let Some(message) = messages.next().await {
///     println!("{message}");
/// }
/// # assert!(redis.is_up());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Redis {
    pub(super) batcher: Arc<Batcher<Connector>>,
    /// Escaped.
    pub(super) prefix: Arc<str>,
    pub(super) outage_policy: OutagePolicy,
}

impl Redis {
    /// With a prefix for the keys of a keyed limit.
    pub(super) fn named(&self, name: &str) -> Result<Self, ConfigError> {
        let prefix = format!("{}:{}", self.prefix, escaped("a name", name)?).into();
        Ok(Self {
            prefix,
            ..self.clone()
        })
    }
}

/// What all keys of a limit have in common.
pub(super) type Config<P> = (Arc<LimitConfig<P, Connector>>, Params);

pub(super) fn config<P: RedisPolicy>(
    policy: P,
    outage_policy: OutagePolicy,
) -> Result<Config<P>, ConfigError> {
    let params: Params = policy.script_params()?.into();
    let capacities = params.iter().map(|params| params.capacity);
    let config = LimitConfig {
        capacity: capacities.min().unwrap_or(u32::MAX),
        counts_requests: params.iter().any(ScriptParams::counts_requests),
        fallback: outage_policy.fallback(|replicas| policy.share_of(replicas))?,
        spent: P::spent,
        policy,
        prefetch: None,
        outage_policy,
        retune,
    };
    Ok((Arc::new(config), params))
}

/// The same limit with other parameters.
fn retune<P: RedisPolicy>(
    made_with: &mut LimitConfig<P, Connector>,
    limit: &mut RedisLimit,
    params: &Params,
) -> Option<()> {
    let mut rest = &params[..];
    let policy = made_with.policy.with_script_params(&mut rest);
    let policy = policy.filter(|_| rest.is_empty())?;
    let (config, fitting) = config(policy, made_with.outage_policy).ok()?;
    limit.params = Some(fitting).filter(|fitting| fitting == params)?;
    *made_with = LimitConfig {
        prefetch: made_with.prefetch,
        ..LimitConfig::clone(&config)
    };
    Some(())
}

/// The keys of a limit. [`tagged`] makes its `name`.
pub(super) fn keys(params: &[ScriptParams], name: &str) -> Arc<[String]> {
    let key = |(number, limit): (usize, &ScriptParams)| match params.len() {
        1 => format!("{name}:{}", limit.key_suffix()),
        _ => format!("{name}:{number}:{}", limit.key_suffix()),
    };
    params.iter().enumerate().map(key).collect()
}

/// The longest name or prefix in bytes, before escaping.
pub(super) const LONGEST_NAME: usize = 200;

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
