//! Limits in Redis.

use std::borrow::Cow;
use std::str;
use std::sync::Arc;
use std::time::Duration;

use paceline::limiter::DynLimiter;
use paceline::policy::AnyPolicy;
use paceline_redis::{OutagePolicy, Redis};

use crate::stdio::say;

/// The limit of a key, or the fault in the key.
pub(crate) type LimitOf = Arc<dyn Fn(&[u8]) -> Result<DynLimiter, String>>;

/// A command may wait longer for an answer than a service. A permit may be used that much later than Redis counted it.
const DEADLINE: Duration = Duration::from_millis(250);

/// The limits of this name. Has to be called in a runtime.
pub(crate) fn limits(
    url: &str,
    name: &str,
    outage: OutagePolicy,
    policy: &AnyPolicy,
    by_key: bool,
) -> Result<LimitOf, String> {
    let redis = Redis::open(url, outage).map_err(|error| error.to_string())?;
    let redis = redis
        .with_deadline(DEADLINE)
        .map_err(|error| error.to_string())?;
    let limit_of: LimitOf = if by_key {
        let keyed = redis.keyed(name, policy.clone());
        let keyed = keyed.map_err(|error| error.to_string())?;
        let keyed = keyed.with_long_keys_hashed();
        Arc::new(move |key| {
            let limit = keyed.at(&name_of(key));
            limit
                .map(DynLimiter::new)
                .map_err(|error| error.to_string())
        })
    } else {
        let limit = redis.limit(name, policy.clone());
        let limit = DynLimiter::new(limit.map_err(|error| error.to_string())?);
        Arc::new(move |_| Ok(limit.clone()))
    };
    tokio::spawn(report(redis));
    Ok(limit_of)
}

/// Says when Redis does not answer, and when it does again.
fn report(redis: Redis) -> impl Future<Output = ()> {
    const EVERY: Duration = Duration::from_millis(500);
    async move {
        let mut ticks = tokio::time::interval(EVERY);
        let (mut was_up, mut faults) = (true, 0);
        loop {
            ticks.tick().await;
            let (is_up, stats) = (redis.is_up(), redis.stats());
            let why = redis.last_failure().unwrap_or_default();
            if was_up && !is_up && stats.outages > 0 {
                say(format_args!("paceline: Redis does not answer: {why}"));
                was_up = false;
            } else if !was_up && is_up {
                say(format_args!("paceline: Redis answers again"));
                was_up = true;
            }
            if faults == 0 && stats.faults > 0 {
                say(format_args!(
                    "paceline: Redis refuses calls, and nothing passes: {why}"
                ));
            }
            faults = stats.faults;
        }
    }
}

/// A key as text. Bytes that are no text are escaped, so that two keys stay two.
fn name_of(key: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(key) {
        Ok(text) => text.into(),
        Err(_) => key.escape_ascii().to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_no_text_stay_different() {
        assert_eq!(name_of("né".as_bytes()), "né");
        assert_eq!(name_of(b"a\xff"), "a\\xff");
        assert_ne!(name_of(b"a\xff"), name_of(b"a\xfe"));
    }
}
