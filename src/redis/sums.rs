use core::time::Duration;

use crate::time::Rate;

use super::ConfigError;

/// Lua's numbers are exact up to 2^53. With half of that, sums of two have room.
pub(super) const MOST: u128 = 1 << 52;

/// The longest time in microseconds, 71 years: it can be added to today's.
const LONGEST: u64 = 1 << 51;

/// A token takes the first of these, divided by the second, in microseconds.
pub(super) fn lowest_terms(rate: Rate) -> (u128, u128) {
    let (nanos, permits) = (rate.period().as_nanos(), u128::from(rate.permits()) * 1_000);
    let divisor = greatest_common_divisor(nanos, permits);
    (nanos / divisor, permits / divisor)
}

/// So many tokens have room.
pub(super) fn most_of(token: u128) -> u32 {
    u32::try_from(MOST / token).unwrap_or(u32::MAX)
}

/// It has been looked at before.
pub(super) fn number(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

pub(super) fn micros(what: &str, time: Duration) -> Result<u64, ConfigError> {
    let micros = time.as_nanos().div_ceil(1_000);
    u64::try_from(micros)
        .ok()
        .filter(|micros| *micros <= LONGEST)
        .ok_or_else(|| {
            ConfigError::new(format!(
                "{what} in Redis is at most 2^51 microseconds long, 71 years, got {time:?}"
            ))
        })
}

/// The whole number of permits that each of so many replicas may use.
pub(super) fn divided(what: &str, permits: u32, replicas: u32) -> Result<u32, ConfigError> {
    match permits.checked_div(replicas) {
        Some(share @ 1..) => Ok(share),
        _ => Err(ConfigError::new(format!(
            "{what} of {permits} cannot be divided among {replicas} replicas: each needs at least 1"
        ))),
    }
}
