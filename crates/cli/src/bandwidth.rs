//! The policy of bytes that are copied.

use std::time::Duration;

use paceline::policy::{AnyKind, AnyPolicy, Policy, TokenBucket};
use paceline::time::{Rate, Tick};

use crate::Failure;
use crate::args::Limit;
use crate::parts::CHUNK_OF_BYTES;

/// What a rate alone makes up for after a delay: a quarter of a second.
const MADE_UP_FOR: Duration = Duration::from_millis(250);

/// The policy of bytes that are copied. A rate alone is spread evenly over its time: it is a bandwidth.
pub(crate) fn policy(limit: &Limit, starts_full: bool) -> Result<AnyPolicy, Failure> {
    let policy = crate::policy::policy(limit, true)?;
    if policy.limits().iter().any(|limit| limit.per_request) {
        let message = "`per request` is for lines: leave it out, or leave --bytes out";
        return Err(Failure::Argument(message.to_owned()));
    }
    let mut words = limit.policy.iter().flat_map(|text| text.split_whitespace());
    let is_rate = matches!(policy.limits(), [only] if matches!(only.kind, AnyKind::Log(_)))
        && !words.any(|word| word.eq_ignore_ascii_case("sliding"));
    let Some(quota) = policy.quota().filter(|_| is_rate) else {
        return Ok(policy);
    };
    let burst = u128::from(quota.permits) * MADE_UP_FOR.as_nanos() / quota.window.as_nanos();
    let burst = u32::try_from(burst).unwrap_or(u32::MAX).max(1);
    let bucket = Rate::try_new(quota.permits, quota.window)
        .and_then(|rate| TokenBucket::try_new(rate, burst));
    let bucket = bucket.map_err(|error| Failure::Argument(error.to_string()))?;
    let bucket = if starts_full {
        bucket
    } else {
        bucket.with_empty_start()
    };
    Ok(bucket.into())
}

/// How many bytes take a permit together: a small part of what passes at once after a rest, so that a late slice has not missed any.
pub(crate) fn slice(policy: &AnyPolicy) -> usize {
    const AFTER_A_REST: Tick = Tick::from_nanos(u64::MAX / 4);
    let at_once = policy.room(&policy.fresh(Tick::ZERO), AFTER_A_REST);
    (at_once as usize / 16).clamp(1, CHUNK_OF_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str, burst: Option<&str>) -> Limit {
        Limit {
            policy: vec![text.to_owned()],
            burst: burst.map(str::to_owned),
        }
    }

    #[test]
    fn a_rate_alone_is_spread_and_any_other_policy_stays() {
        for (text, expected) in [
            ("1M/s", "1048576/s burst 262144 start 0"),
            ("3/h", "3/h burst 1 start 0"),
            ("1M / s", "1048576/s burst 262144 start 0"),
            ("1M/s Sliding", "1048576/s sliding"),
            ("1K/s and 1M/h", "1024/s sliding and 1048576/h sliding"),
            ("unlimited", "unlimited"),
        ] {
            let policy = policy(&limit(text, None), false).unwrap();
            assert_eq!(policy.to_string(), expected);
        }
        let burst = policy(&limit("1K/s", Some("2K")), false).unwrap();
        assert_eq!(burst.to_string(), "1024/s burst 2048");
    }

    #[test]
    fn a_slice_is_a_small_part_of_what_passes_at_once() {
        for (text, expected) in [
            ("1M/s", 16_384),
            ("10/s", 1),
            ("1M/s burst 32K", 2_048),
            ("1M/s burst 32K start 0", 2_048),
            ("1K/h aligned", 64),
            ("every 1ms", 1),
            ("2G/s", CHUNK_OF_BYTES),
            ("unlimited", CHUNK_OF_BYTES),
        ] {
            assert_eq!(
                slice(&policy(&limit(text, None), false).unwrap()),
                expected,
                "{text}"
            );
        }
    }
}
