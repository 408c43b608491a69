use std::time::Duration;

use paceline::time::Rate;

/// The parameters that a script takes of a policy.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    /// The number of the policy in the scripts.
    pub(super) policy: u8,
    pub(super) params: Vec<u64>,
    /// The largest cost of a request.
    pub(super) capacity: u32,
    /// The time in microseconds for which a fully spent limit counts.
    pub(super) settles_in: u64,
}

/// Half of the largest exact number in Lua.
const MOST: u128 = 1 << 52;

pub(super) fn bucket(rate: Rate, burst: u32) -> Numbers {
    let (token, permits) = micros_of(rate.period(), rate.permits());
    assert!(token * u128::from(burst) <= MOST);
    Numbers {
        policy: 1,
        params: vec![small(token), small(permits), burst.into()],
        capacity: burst,
        settles_in: small((token * u128::from(burst)).div_ceil(permits)),
    }
}

/// A bucket that allows debt.
pub(super) fn owing(rate: Rate, burst: u32) -> Numbers {
    let (token, _) = micros_of(rate.period(), rate.permits());
    Numbers {
        capacity: u32::try_from(MOST / token).unwrap_or(u32::MAX),
        ..bucket(rate, burst)
    }
}

pub(super) fn interval(every: Duration) -> Numbers {
    let (token, permits) = micros_of(every, 1);
    Numbers {
        policy: 2,
        params: vec![small(token), small(permits)],
        capacity: u32::try_from(MOST / token).unwrap_or(u32::MAX),
        settles_in: small(token.div_ceil(permits)),
    }
}

pub(super) fn log(limit: u32, window: u64) -> Numbers {
    Numbers {
        policy: 4,
        params: vec![limit.into(), window],
        capacity: limit,
        settles_in: window,
    }
}

pub(super) fn fixed(limit: u32, window: u64) -> Numbers {
    Numbers {
        policy: 3,
        ..log(limit, window)
    }
}

pub(super) fn strict(limit: u32, window: u64, buckets: u32) -> Numbers {
    let (bucket, reach) = (window.div_ceil(buckets.into()), u64::from(buckets) + 1);
    Numbers {
        policy: 5,
        params: vec![limit.into(), bucket, reach, 0],
        capacity: limit,
        settles_in: bucket * reach,
    }
}

pub(super) fn smooth(limit: u32, window: u64) -> Numbers {
    Numbers {
        policy: 5,
        params: vec![limit.into(), window, 2, 1],
        capacity: limit,
        settles_in: 2 * window,
    }
}

/// A limit that counts each request as 1.
pub(super) fn per_request(of: Numbers) -> Numbers {
    Numbers {
        policy: of.policy + 128,
        capacity: u32::MAX,
        ..of
    }
}

/// The time of a permit in microseconds, as a fraction in lowest terms.
fn micros_of(period: Duration, permits: u32) -> (u128, u128) {
    let (mut above, mut below) = (period.as_nanos(), u128::from(permits) * 1_000);
    let (whole, parts) = (above, below);
    while below > 0 {
        (above, below) = (below, above % below);
    }
    (whole / above, parts / above)
}

fn small(number: u128) -> u64 {
    u64::try_from(number).unwrap()
}
