//! Parameters and costs, made from bytes.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use paceline::policy::{Interval, Policy, SlidingLog, TokenBucket};
use paceline::time::Rate;

use crate::laws::policies::Bounded;

/// A policy with parameters that matter in a trace of a few seconds.
pub(crate) trait Tunable:
    Policy<State: Send> + Bounded + Copy + PartialEq + Send + Sync + 'static
{
    fn any(bytes: &mut Unstructured<'_>) -> Result<Self>;
}

impl Tunable for Interval {
    fn any(bytes: &mut Unstructured<'_>) -> Result<Self> {
        let (interval, delayed) = (duration(bytes)?, bytes.ratio(1, 4)?);
        // It is unspecified whether a peek that passes starts the clock. That shows after a retune of a delay of zero.
        let delayed = delayed && !interval.is_zero();
        let every = Self::every(interval);
        Ok(if delayed {
            every.with_delayed_start()
        } else {
            every
        })
    }
}

impl Tunable for TokenBucket {
    fn any(bytes: &mut Unstructured<'_>) -> Result<Self> {
        let permits = bytes.int_in_range(1..=9)?;
        let period = duration(bytes)?.max(Duration::from_nanos(1));
        let bucket = Self::new(Rate::new(permits, period), bytes.int_in_range(1..=5)?);
        Ok(match bytes.int_in_range(0..=5)? {
            0 => bucket.with_empty_start(),
            1 => bucket.with_debt(),
            _ => bucket,
        })
    }
}

impl Tunable for SlidingLog {
    fn any(bytes: &mut Unstructured<'_>) -> Result<Self> {
        let limit = bytes.int_in_range(1..=5)?;
        Ok(Self::new(
            limit,
            duration(bytes)?.max(Duration::from_nanos(1)),
        ))
    }
}

/// Mostly whole milliseconds.
pub(crate) fn duration(bytes: &mut Unstructured<'_>) -> Result<Duration> {
    let millis = bytes.arbitrary::<u8>()?;
    Ok(match bytes.arbitrary::<u8>()? {
        0..200 => Duration::from_millis(millis.into()),
        200..250 => Duration::from_micros(u64::from(millis) * 333),
        250..254 => Duration::from_secs(u64::from(millis) * 60),
        _ => Duration::from_nanos(millis.into()),
    })
}

pub(crate) fn cost(bytes: &mut Unstructured<'_>) -> Result<u32> {
    Ok(match bytes.arbitrary::<u8>()? {
        0..160 => 1,
        cost @ 160..254 => u32::from(cost) % 7,
        254 => 100,
        _ => u32::MAX,
    })
}
