use core::time::Duration;

use crate::policy::{All, FixedWindow, Interval, Policy, SlidingCounter, SlidingLog, TokenBucket};
use crate::time::{Rate, Tick};

use super::ConfigError;
use super::link::Arg;
use super::sums::{MOST, divided, lowest_terms, micros, most_of, number};

/// A policy that can be kept in Redis: it has a twin among the scripts there, which decides alike.
///
/// Times there are microseconds: what is not a whole number of them is rounded up to the next, so that the limit is that much
/// stricter; the rate of a [`TokenBucket`] and an [`Interval`] stay exact.
///
/// Not [`Unlimited`](crate::policy::Unlimited), and nothing that starts empty or delayed: a key that is gone must mean that
/// nothing was spent.
///
/// It cannot be implemented elsewhere.
pub trait RedisPolicy:
    Policy<State: Send> + Clone + Send + Sync + sealed::Twinned + 'static
{
}

impl<P: Policy<State: Send> + Clone + Send + Sync + sealed::Twinned + 'static> RedisPolicy for P {}

/// Public in private: what is told to the scripts is nobody else's business.
#[expect(
    unnameable_types,
    reason = "what cannot be named cannot be implemented elsewhere"
)]
pub(super) mod sealed {
    use super::{ConfigError, Policy, Tick, Twin};

    pub trait Twinned: Policy + Sized {
        /// One for each limit, in order.
        fn twins(&self) -> Result<Vec<Twin>, ConfigError>;

        /// The part of it that each of so many replicas may use alone.
        fn share_of(&self, replicas: u32) -> Result<Self, ConfigError>;

        /// Of which everything was spent `now`.
        fn spent(&self, now: Tick) -> Self::State;
    }
}

/// What a script is told of a limit.
#[expect(unnameable_types, reason = "as above")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Twin {
    policy: &'static str,
    numbers: Vec<u64>,
    capacity: u32,
    settles_in: u64,
    regains_in: u64,
}

impl Twin {
    /// Also the end of its key: another policy never finds the state of this one.
    pub(super) const fn policy(&self) -> &'static str {
        self.policy
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Arg> + '_ {
        self.numbers.iter().map(|number| Arg::from(*number))
    }

    /// The largest cost that can pass.
    pub(super) const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// After how many microseconds nothing is left of what was spent, if it was no more than the limit.
    pub(super) const fn settles_in(&self) -> u64 {
        self.settles_in
    }

    /// After how many microseconds all of the limit may pass again that was spent: a window, or until a bucket is full.
    pub(super) const fn regains_in(&self) -> u64 {
        self.regains_in
    }

    /// Whether more may be spent than there is.
    pub(super) fn may_owe(&self) -> bool {
        match *self.numbers {
            [_, _, burst] if self.policy == BUCKET => burst < self.capacity.into(),
            _ => self.policy == INTERVAL,
        }
    }
}

const BUCKET: &str = "token_bucket";

const INTERVAL: &str = "interval";

impl sealed::Twinned for TokenBucket {
    fn twins(&self) -> Result<Vec<Twin>, ConfigError> {
        if self.starts_empty() {
            return Err(ConfigError::new(
                "a token bucket in Redis starts full: a key that is gone must mean that nothing was spent",
            ));
        }
        bucket(self.rate(), self.burst(), self.may_owe()).map(|twin| vec![twin])
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        let burst = divided("a burst", self.burst(), replicas)?;
        let period = self.rate().period().checked_mul(replicas).ok_or_else(|| {
            ConfigError::new(format!(
                "a rate of {} cannot be divided among {replicas} replicas",
                self.rate()
            ))
        })?;
        let share = Self::new(Rate::new(self.rate().permits(), period), burst);
        Ok(if self.may_owe() {
            share.with_debt()
        } else {
            share
        })
    }

    fn spent(&self, now: Tick) -> Self::State {
        spend_all(self, now, self.burst())
    }
}

impl sealed::Twinned for Interval {
    fn twins(&self) -> Result<Vec<Twin>, ConfigError> {
        if self.is_delayed() {
            return Err(ConfigError::new(
                "an interval in Redis lets the first pass at once: a key that is gone must mean that nothing was spent",
            ));
        }
        let every = self.interval();
        let rate = Rate::try_new(1, every)
            .map_err(|_| ConfigError::new("an interval of 0 is no limit, and needs no Redis"))?;
        let (token, permits) = lowest_terms(rate);
        if token > MOST {
            return Err(ConfigError::new(format!(
                "an interval of {every:?} is too long for Redis: {token} must not pass 2^52"
            )));
        }
        let passes_in = number(token.div_ceil(permits));
        Ok(vec![Twin {
            policy: INTERVAL,
            numbers: vec![number(token), number(permits)],
            capacity: most_of(token),
            settles_in: passes_in,
            regains_in: passes_in,
        }])
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        match replicas {
            1 => Ok(*self),
            _ => Err(ConfigError::new(format!(
                "an interval cannot be divided among {replicas} replicas: two may let something pass at the same time"
            ))),
        }
    }

    fn spent(&self, now: Tick) -> Self::State {
        spend_all(self, now, 1)
    }
}

/// So many can be taken at once, and more would keep the server from all else for too long.
const MOST_ENTRIES: u32 = 100_000;

impl sealed::Twinned for SlidingLog {
    fn twins(&self) -> Result<Vec<Twin>, ConfigError> {
        if self.limit() > MOST_ENTRIES {
            return Err(ConfigError::new(format!(
                "a log in Redis keeps each permit, {MOST_ENTRIES} at most, got {}: a counter keeps sums",
                self.limit()
            )));
        }
        of_a_window("sliding_log", self.limit(), self.window())
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        divided("a limit", self.limit(), replicas).map(|limit| Self::new(limit, self.window()))
    }

    fn spent(&self, now: Tick) -> Self::State {
        spend_all(self, now, self.limit())
    }
}

/// More would make each decision slow: the script reads them all.
const MOST_BUCKETS: u32 = 1_000;

impl sealed::Twinned for SlidingCounter {
    fn twins(&self) -> Result<Vec<Twin>, ConfigError> {
        let window = micros("a window", self.window())?;
        let (bucket, reach) = match self.buckets() {
            None => (window, 2),
            Some(buckets) if buckets > MOST_BUCKETS => {
                return Err(ConfigError::new(format!(
                    "a counter in Redis has at most {MOST_BUCKETS} buckets, got {buckets}"
                )));
            }
            Some(buckets) => (window.div_ceil(buckets.into()), u64::from(buckets) + 1),
        };
        if u128::from(self.limit()) * u128::from(bucket) > MOST {
            return Err(ConfigError::new(format!(
                "a limit of {} in {:?} is too large for Redis: their product, in microseconds, must not pass 2^52",
                self.limit(),
                self.window(),
            )));
        }
        Ok(vec![Twin {
            policy: "sliding_counter",
            numbers: vec![
                self.limit().into(),
                bucket,
                reach,
                u64::from(self.buckets().is_none()),
            ],
            capacity: self.limit(),
            settles_in: bucket * reach,
            regains_in: bucket * (reach - 1),
        }])
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        let limit = divided("a limit", self.limit(), replicas)?;
        Ok(match self.buckets() {
            Some(buckets) => Self::strict(limit, self.window(), buckets),
            None => Self::smooth(limit, self.window()),
        })
    }

    fn spent(&self, now: Tick) -> Self::State {
        spend_all(self, now, self.limit())
    }
}

impl sealed::Twinned for FixedWindow {
    fn twins(&self) -> Result<Vec<Twin>, ConfigError> {
        of_a_window("fixed_window", self.limit(), self.window())
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        divided("a limit", self.limit(), replicas).map(|limit| Self::new(limit, self.window()))
    }

    fn spent(&self, now: Tick) -> Self::State {
        spend_all(self, now, self.limit())
    }
}

macro_rules! all_of {
    ($($policy:ident $limit:tt),+) => {
        impl<$($policy: sealed::Twinned),+> sealed::Twinned for All<($($policy,)+)> {
            fn twins(&self) -> Result<Vec<Twin>, ConfigError> {
                let twins = [$(self.limits().$limit.twins()?),+];
                Ok(twins.into_iter().flatten().collect())
            }

            fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
                Ok(Self::new(($(self.limits().$limit.share_of(replicas)?,)+)))
            }

            fn spent(&self, now: Tick) -> Self::State {
                ($(self.limits().$limit.spent(now),)+)
            }
        }
    };
}

all_of!(A 0, B 1);
all_of!(A 0, B 1, C 2);
all_of!(A 0, B 1, C 2, D 3);
all_of!(A 0, B 1, C 2, D 3, E 4);
all_of!(A 0, B 1, C 2, D 3, E 4, F 5);

/// What is told of a limit of so many in a window.
fn of_a_window(
    policy: &'static str,
    limit: u32,
    window: Duration,
) -> Result<Vec<Twin>, ConfigError> {
    let window = micros("a window", window)?;
    Ok(vec![Twin {
        policy,
        numbers: vec![limit.into(), window],
        capacity: limit,
        settles_in: window,
        regains_in: window,
    }])
}

fn bucket(rate: Rate, burst: u32, may_owe: bool) -> Result<Twin, ConfigError> {
    let (token, permits) = lowest_terms(rate);
    let room = token * u128::from(burst);
    if room > MOST {
        return Err(ConfigError::new(format!(
            "a rate of {rate} with a burst of {burst} is too large for Redis: {token} times the burst must not pass 2^52"
        )));
    }
    let fills_in = number(room.div_ceil(permits));
    Ok(Twin {
        policy: BUCKET,
        numbers: vec![number(token), number(permits), burst.into()],
        capacity: if may_owe { most_of(token) } else { burst },
        settles_in: fills_in,
        regains_in: fills_in,
    })
}

fn spend_all<P: Policy>(policy: &P, now: Tick, all: u32) -> P::State {
    let mut state = policy.fresh(now);
    let _ = policy.decide(&mut state, now, all);
    state
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::sealed::Twinned;
    use super::*;

    fn bucket_of(rate: Rate, burst: u32) -> Twin {
        TokenBucket::new(rate, burst).twins().unwrap().remove(0)
    }

    #[test]
    fn a_rate_is_told_in_lowest_terms_of_microseconds() {
        let day = Duration::from_secs(86_400);
        for (rate, told) in [
            (Rate::per_second(3), [1_000_000, 3]),
            (Rate::per_minute(7), [60_000_000, 7]),
            (Rate::per_minute(60), [1_000_000, 1]),
            (Rate::new(999_983, day), [86_400_000_000, 999_983]),
            (Rate::new(3, Duration::from_nanos(7)), [7, 3_000]),
            (Rate::new(5, Duration::from_nanos(2_500)), [1, 2]),
        ] {
            assert_eq!(bucket_of(rate, 4).numbers, [told[0], told[1], 4], "{rate}");
        }
        let interval = Interval::every(Duration::from_nanos(1_500));
        assert_eq!(interval.twins().unwrap()[0].numbers, [3, 2]);
    }

    #[test]
    fn what_settles_later_than_a_microsecond_is_rounded_up() {
        assert_eq!(bucket_of(Rate::per_second(3), 2).settles_in, 666_667);
        let third = Interval::from_rate(Rate::per_second(3));
        assert_eq!(third.twins().unwrap()[0].settles_in, 333_334);
        let log = SlidingLog::new(1, Duration::from_nanos(1_001));
        assert_eq!(log.twins().unwrap()[0].settles_in, 2);
        let strict = SlidingCounter::strict(1, Duration::from_micros(10), 3);
        assert_eq!(strict.twins().unwrap()[0].numbers, [1, 4, 4, 0]);
        assert_eq!(strict.twins().unwrap()[0].settles_in, 16);
    }

    #[test]
    fn what_may_owe_passes_as_much_as_has_room() {
        let rate = Rate::new(1, Duration::from_micros(1 << 22));
        assert_eq!(bucket_of(rate, 9).capacity, 9);
        let owing = TokenBucket::new(rate, 9).with_debt();
        assert_eq!(owing.twins().unwrap()[0].capacity, 1 << 30);
        let often = Interval::every(Duration::from_nanos(1));
        assert_eq!(often.twins().unwrap()[0].capacity, u32::MAX);
    }
}
