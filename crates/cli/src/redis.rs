//! Limits in Redis.

use std::borrow::Cow;
use std::str;
use std::sync::Arc;
use std::time::Duration;

use paceline::limiter::DynLimiter;
use paceline::policy::{
    All, AnyPolicy, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket,
};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisPolicy};

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
    let text = policy.to_string();
    let limits: Vec<&str> = text.split(" and ").collect();
    let make = Make {
        redis: &redis,
        name,
        by_key,
    };
    let limit_of = match limits[..] {
        [one] => with_limit(one, make),
        [one, two] => with_limit(
            one,
            Second {
                text: two,
                visit: make,
            },
        ),
        _ => Err(format!(
            "`{text}` has {} limits: with --redis there are one or two",
            limits.len()
        )),
    }?;
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

/// What is done with a policy whose type is known.
trait Visit {
    fn visit<P: RedisPolicy>(self, policy: P) -> Result<LimitOf, String>;
}

struct Make<'a> {
    redis: &'a Redis,
    name: &'a str,
    by_key: bool,
}

impl Visit for Make<'_> {
    fn visit<P: RedisPolicy>(self, policy: P) -> Result<LimitOf, String> {
        if self.by_key {
            let keyed = self.redis.keyed(self.name, policy);
            let keyed = keyed
                .map_err(|error| error.to_string())?
                .with_long_keys_hashed();
            return Ok(Arc::new(move |key| {
                let limit = keyed.at(&name_of(key));
                limit
                    .map(DynLimiter::new)
                    .map_err(|error| error.to_string())
            }));
        }
        let limit = self.redis.limit(self.name, policy);
        let limit = DynLimiter::new(limit.map_err(|error| error.to_string())?);
        Ok(Arc::new(move |_| Ok(limit.clone())))
    }
}

/// Joins a policy with that of the text.
struct Second<'a, V> {
    text: &'a str,
    visit: V,
}

impl<V: Visit> Visit for Second<'_, V> {
    fn visit<P: RedisPolicy>(self, first: P) -> Result<LimitOf, String> {
        let visit = self.visit;
        with_limit(self.text, Joined { first, visit })
    }
}

struct Joined<P, V> {
    first: P,
    visit: V,
}

impl<A: RedisPolicy, V: Visit> Visit for Joined<A, V> {
    fn visit<P: RedisPolicy>(self, second: P) -> Result<LimitOf, String> {
        self.visit.visit(All::new((self.first, second)))
    }
}

/// Visits the policy of a text as an [`AnyPolicy`] writes it.
fn with_limit(text: &str, visit: impl Visit) -> Result<LimitOf, String> {
    let none = || {
        Err(format!(
            "`{text}` cannot be kept in Redis: that takes rates that are `sliding`, `smooth` or `fixed`, a `burst` that starts full, and \
             `every`"
        ))
    };
    let words: Vec<&str> = text.split(' ').collect();
    let rate = |word: &str| word.parse::<Rate>().map_err(|error| error.to_string());
    let count = |word: &str| word.parse::<u32>().map_err(|error| error.to_string());
    match words[..] {
        ["every", time] => {
            let interval = rate(&format!("1/{time}"))?.period();
            visit.visit(Interval::every(interval))
        }
        [word, "sliding"] => visit.visit(SlidingLog::from_rate(rate(word)?)),
        [word, "sliding", buckets, "buckets"] => {
            let counter = SlidingCounter::strict_from_rate(rate(word)?, count(buckets)?);
            visit.visit(counter)
        }
        [word, "smooth"] => visit.visit(SlidingCounter::smooth_from_rate(rate(word)?)),
        [word, "fixed"] => visit.visit(FixedWindow::from_rate(rate(word)?)),
        [word, "burst", burst] => visit.visit(TokenBucket::new(rate(word)?, count(burst)?)),
        [word, "burst", burst, "debt"] => {
            let bucket = TokenBucket::new(rate(word)?, count(burst)?);
            visit.visit(bucket.with_debt())
        }
        _ => none(),
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
