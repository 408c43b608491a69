use core::convert::Infallible;
use core::{fmt, slice};
use std::sync::Arc;

use paceline::config::ConfigError;
use paceline::limiter::{Limits, Reporter, Share};
use paceline::policy::TokenBucket;
use paceline::time::Rate;

use crate::remote::{KeyQueue, LimitConfig};

use super::config::{Redis, escaped, keys, tagged};
use super::limiter::RedisLimiter;
use super::policy::sealed::Scripted;
use super::policy::{MOST, lowest_terms, number};
use super::script_params::{RESERVED, RedisLimit, ScriptParams};

/// How many reserves the script takes.
const MOST_RESERVES: usize = 7;

/// A rate in Redis of which some classes of requests have a reserve, whatever the others ask. Made by [`Redis::reserved`].
///
/// * **A class with a reserve** has a bucket of its own: its share of the rate, and of four fifths of the burst. No other request takes
///   of it. So a class that asks for no more than its share, in bursts within its bucket, never waits.
/// * **All other classes** are one class together, with the share that is left.
/// * **Nothing is lost**: what flows into a full bucket goes on into a pool, which holds a fifth of the burst, at least one permit. A
///   request takes from the bucket of its class and the rest from the pool, first come, first served. So a class that asks alone uses
///   the whole rate, and two that ask for more than there is get their shares.
/// * **Large requests**: what costs more than the bucket of its class depends on the pool, and may wait while others use that up.
/// * **A queue for each class**: within a process the requests of a class wait in order, and for no other class.
///
/// The limit of a class is a [`RedisLimiter`], with all that it can do, except for [`retune`](RedisLimiter::retune), which is an error.
/// Its [`policy`](RedisLimiter::policy) is the bucket of the class, which is also what an [insurance](crate::OutagePolicy::insured)
/// divides among the replicas. A pause of one class holds for all, since they have one name. A refund goes into the bucket of
/// its class and then into the pool, and a charge that finds too little is a debt of its class.
///
/// The state of all classes is one key, `prefix:{name}:reserved:2`, and a decision looks at each class. To change the numbers, make
/// the limit again: what was spent stays spent. Classes are known by their places in the list, so append new ones: a new class
/// begins with an empty bucket.
///
/// The algorithm is a hierarchy of token buckets, of which the inner ones lend what overflows.
///
/// # Cancel safety
///
/// That of a [`RedisLimiter`].
///
/// **Window bound**: that of the token bucket, for all classes together.
#[derive(Clone)]
pub struct RedisReserved {
    /// Each with the name of its class.
    reserves: Arc<[(String, RedisLimiter<TokenBucket>)]>,
    others: RedisLimiter<TokenBucket>,
}

impl RedisReserved {
    pub(super) fn new(
        redis: &Redis,
        name: &str,
        bucket: TokenBucket,
        reserves: &[(&str, Share)],
    ) -> Result<Self, ConfigError> {
        let parts = parts_of(reserves)?;
        let weights = parts[1..].iter().rev().map(|(_, weight)| weight);
        let packed = weights.fold(0, |packed, weight| packed * 128 + u64::from(*weight));
        let limits = (0..).zip(&parts).map(|(class, (who, weight))| {
            let (own, params) = part_of(bucket, (class, who, *weight), packed)?;
            limit_of(redis, name, own, params)
        });
        let mut limits = limits.collect::<Result<Vec<_>, ConfigError>>()?;
        let others = limits.remove(0);
        let names = reserves.iter().map(|(class, _)| (*class).to_owned());
        Ok(Self {
            reserves: names.zip(limits).collect(),
            others,
        })
    }

    /// The limit of this class. A class without a reserve has that of all others.
    ///
    /// ```
    /// use paceline::limiter::Share;
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    /// use paceline_redis::{OutagePolicy, Redis};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redis = Redis::open("redis://localhost", OutagePolicy::closed())?;
    /// let bucket = TokenBucket::new(Rate::per_second(100), 50);
    /// let sms = redis.reserved("sms", bucket, &[("payments", Share::percent(20))])?;
    ///
    /// let own = |class| *sms.at(class).policy();
    /// assert_eq!(own("payments"), TokenBucket::new(Rate::per_second(20), 8));
    /// assert_eq!(own("analytics"), TokenBucket::new(Rate::per_second(80), 32));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn at(&self, class: &str) -> RedisLimiter<TokenBucket> {
        let mut reserves = self.reserves.iter();
        let own = reserves.find(|(name, _)| name == class);
        own.map_or(&self.others, |(_, limit)| limit).clone()
    }
}

impl<K: AsRef<str>> Limits<K> for RedisReserved {
    type Limit = RedisLimiter<TokenBucket>;
    type Error = Infallible;

    fn at(&self, class: K) -> Result<RedisLimiter<TokenBucket>, Infallible> {
        Ok(Self::at(self, class.as_ref()))
    }
}

impl fmt::Debug for RedisReserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisReserved")
            .field("keys", &self.others.keys())
            .finish_non_exhaustive()
    }
}

/// What errors call a class, and its weight in percent: first of all others.
fn parts_of(reserves: &[(&str, Share)]) -> Result<Vec<(String, u32)>, ConfigError> {
    if reserves.is_empty() || reserves.len() > MOST_RESERVES {
        let count = reserves.len();
        return Err(ConfigError::new(format!(
            "a rate in Redis has 1 to {MOST_RESERVES} reserves, got {count}"
        )));
    }
    let (mut parts, mut left) = (vec![("all others".to_owned(), 0)], 100_u32);
    for (number, (class, share)) in reserves.iter().enumerate() {
        escaped("a class", class)?;
        if reserves[..number].iter().any(|(other, _)| other == class) {
            return Err(ConfigError::new(format!(
                "a class has one reserve, got two for `{class}`"
            )));
        }
        let weight = share.ten_thousandths() / 100;
        if weight * 100 < share.ten_thousandths() {
            return Err(ConfigError::new(format!(
                "a reserve in Redis is a whole number of percent, got {share} for `{class}`"
            )));
        }
        left = left.checked_sub(weight).ok_or_else(|| {
            ConfigError::new(format!(
                "all reserves together are at most 100%, got {share} for `{class}` where {left}% are left"
            ))
        })?;
        parts.push((format!("`{class}`"), weight));
    }
    parts[0].1 = left;
    Ok(parts)
}

/// The bucket of a class, and what the script takes of it: the number of the class, and the weights of all with a reserve.
fn part_of(
    bucket: TokenBucket,
    (class, who, weight): (u64, &str, u32),
    packed: u64,
) -> Result<(TokenBucket, ScriptParams), ConfigError> {
    if bucket.may_owe() {
        return Err(ConfigError::new(
            "a token bucket with reserves passes no request as a debt: make it without `with_debt`",
        ));
    }
    // It starts full, and fits into the numbers.
    let whole = bucket.script_params()?.remove(0);
    let (rate, burst) = (bucket.rate(), bucket.burst());
    let (token, permits) = lowest_terms(rate);
    if 100 * token * u128::from(burst) > MOST {
        return Err(ConfigError::new(format!(
            "a rate of {rate} with a burst of {burst} is too large for reserves in Redis: 100 times {token} times the burst must not \
             pass 2^52"
        )));
    }
    let pool = (burst / 5).max(1);
    // In hundredths of a permit.
    let depth = u64::from(burst - pool) * u64::from(weight);
    let capacity = (depth + 100 * u64::from(pool)) / 100;
    let own = u32::try_from(depth / 100).unwrap_or(burst);
    let too_large = || ConfigError::new(format!("a rate of {rate} is too large for reserves"));
    let share = || {
        let permits = u64::from(rate.permits()) * u64::from(weight);
        let by = (1..=100)
            .rev()
            .find(|by| 100 % by == 0 && permits % u64::from(*by) == 0)?;
        let permits = u32::try_from(permits / u64::from(by)).ok()?;
        Rate::try_new(permits, rate.period().checked_mul(100 / by)?).ok()
    };
    if own == 0 {
        return Err(ConfigError::new(format!(
            "each part of a burst holds at least 1 permit, got less for {who}: {weight}% of {}, which the pool leaves of {burst}",
            burst - pool
        )));
    }
    let own = TokenBucket::new(share().ok_or_else(too_large)?, own);
    let params = ScriptParams {
        policy: RESERVED,
        numbers: [
            number(token),
            number(permits),
            u64::from(burst) * 8 + class,
            packed,
        ],
        capacity: u32::try_from(capacity).unwrap_or(burst),
        ..whole
    };
    Ok((own, params))
}

fn limit_of(
    redis: &Redis,
    name: &str,
    own: TokenBucket,
    params: ScriptParams,
) -> Result<RedisLimiter<TokenBucket>, ConfigError> {
    let outage_policy = redis.outage_policy;
    let config = LimitConfig {
        capacity: params.capacity,
        counts_requests: false,
        fallback: outage_policy.fallback(|replicas| own.share_of(replicas))?,
        spent: TokenBucket::spent,
        policy: own,
        prefetch: None,
        outage_policy,
        // The bucket of one class does not say what the others have.
        retune: |_, _, _| None,
    };
    let keys = keys(slice::from_ref(&params), &tagged(&redis.prefix, name)?);
    let params = [params].into();
    let limit = RedisLimit { keys, params };
    let queue = KeyQueue::new(Arc::clone(&redis.batcher), Arc::new(config), limit);
    Ok(RedisLimiter::new(Arc::new(queue), Reporter::NONE))
}
