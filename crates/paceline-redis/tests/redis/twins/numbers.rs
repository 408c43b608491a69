use std::time::Duration;

use super::subject::Subject;

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

impl Subject {
    pub(super) fn numbers(&self) -> Numbers {
        match *self {
            Self::Bucket(rate, burst) => {
                let (token, permits) = micros_of(rate.period(), rate.permits());
                assert!(token * u128::from(burst) <= MOST);
                Numbers {
                    policy: 1,
                    params: vec![small(token), small(permits), burst.into()],
                    capacity: burst,
                    settles_in: small((token * u128::from(burst)).div_ceil(permits)),
                }
            }
            Self::Owing(rate, burst) => {
                let bucket = Self::Bucket(rate, burst).numbers();
                Numbers {
                    capacity: most_owed(bucket.params[0]),
                    ..bucket
                }
            }
            Self::Interval(every) => {
                let (token, permits) = micros_of(every, 1);
                Numbers {
                    policy: 2,
                    params: vec![small(token), small(permits)],
                    capacity: most_owed(small(token)),
                    settles_in: small(token.div_ceil(permits)),
                }
            }
            Self::Fixed(limit, window) => Numbers {
                policy: 3,
                params: vec![limit.into(), window],
                capacity: limit,
                settles_in: window,
            },
            Self::Log(limit, window) => Numbers {
                policy: 4,
                ..Self::Fixed(limit, window).numbers()
            },
            Self::Strict(limit, bucket, buckets) => {
                let reach = u64::from(buckets) + 1;
                Numbers {
                    policy: 5,
                    params: vec![limit.into(), bucket, reach, 0],
                    capacity: limit,
                    settles_in: bucket * reach,
                }
            }
            Self::Smooth(limit, window) => Numbers {
                policy: 5,
                params: vec![limit.into(), window, 2, 1],
                capacity: limit,
                settles_in: 2 * window,
            },
            Self::PerRequest(ref of) => {
                let of = of.numbers();
                Numbers {
                    policy: of.policy + 128,
                    capacity: u32::MAX,
                    ..of
                }
            }
        }
    }
}

/// The largest cost of a debt, with tokens of that size.
fn most_owed(token: u64) -> u32 {
    u32::try_from(MOST / u128::from(token)).unwrap_or(u32::MAX)
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
