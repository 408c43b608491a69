use core::slice;
use core::time::Duration;

use paceline::policy::states::AnyPolicyState;
use paceline::policy::{
    All, AnyKind, AnyPolicy, FixedWindow, Interval, PerRequest, Policy, Quota, SlidingCounter,
    SlidingLog, TokenBucket,
};
use paceline::time::{Rate, Tick};

use super::script_params::{
    FIXED_WINDOW, INTERVAL, PER_REQUEST, SLIDING_COUNTER, SLIDING_LOG, ScriptParams, TOKEN_BUCKET,
};
use crate::remote::divided;
use paceline::config::ConfigError;

/// A policy that can keep its state in Redis. It has a twin: a Lua script that makes the same decisions.
///
/// The scripts count time in microseconds. Other times are rounded up to the next microsecond, which makes the limit that much
/// stricter. The rates of a [`TokenBucket`] and an [`Interval`] stay exact.
///
/// [`Unlimited`](paceline::policy::Unlimited) is not among them, nor is a policy that starts empty or delayed: a missing key has to
/// mean that nothing was spent. Nor is [`AlignedWindow`](paceline::policy::AlignedWindow), which has no twin. An [`AnyPolicy`] has the
/// keys of the limits that it consists of; where one of them has no twin, it is an error when the limit is made.
///
/// ```compile_fail,E0277
/// use paceline::policy::Unlimited;
/// use paceline_redis::Redis;
///
/// fn limits(redis: &Redis) {
///     // `Unlimited` cannot be kept in Redis
///     let _ = redis.limit("a", Unlimited);
/// }
/// ```
///
/// The trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be kept in Redis",
    label = "expected a policy with a script",
    note = "these can: `TokenBucket`, `Interval`, `SlidingLog`, `SlidingCounter`, `FixedWindow`, `PerRequest` of one of them, `All` \
            of two to six, and `AnyPolicy`",
    note = "a text is made one with `.parse::<AnyPolicy>()`",
    note = "to decide by a policy of your own, keep its limit in memory: `policy.shared()`"
)]
pub trait RedisPolicy:
    Policy<State: Send> + Clone + Send + Sync + sealed::Scripted + 'static
{
}

impl<P: Policy<State: Send> + Clone + Send + Sync + sealed::Scripted + 'static> RedisPolicy for P {}

/// Public in a private module, which seals [`RedisPolicy`].
#[expect(
    unnameable_types,
    reason = "a trait that cannot be named cannot be implemented elsewhere"
)]
pub(super) mod sealed {
    use super::{ConfigError, Policy, ScriptParams, Tick};

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be kept in Redis",
        label = "expected a policy with a script: see `RedisPolicy`"
    )]
    pub trait Scripted: Policy + Sized {
        /// One for each limit, in order.
        fn script_params(&self) -> Result<Vec<ScriptParams>, ConfigError>;

        /// The policy of the same kind as this one that has these parameters: the inverse of [`script_params`](Self::script_params).
        /// Takes one for each limit. `None` if there is none.
        fn with_script_params(&self, params: &mut &[ScriptParams]) -> Option<Self>;

        /// The part of the limit that each of `replicas` processes may use alone.
        fn share_of(&self, replicas: u32) -> Result<Self, ConfigError>;

        /// The state in which everything was spent `now`.
        fn spent(&self, now: Tick) -> Self::State {
            let mut state = self.fresh(now);
            let all = self.room(&state, now);
            let _ = self.decide(&mut state, now, all);
            state
        }
    }
}

impl sealed::Scripted for TokenBucket {
    fn script_params(&self) -> Result<Vec<ScriptParams>, ConfigError> {
        if self.start() < self.burst() {
            return Err(ConfigError::new(
                "a token bucket in Redis starts full: a key that is gone must mean that nothing was spent",
            ));
        }
        let (rate, burst) = (self.rate(), self.burst());
        let (token, permits) = lowest_terms(rate);
        let room = token * u128::from(burst);
        if room > MOST {
            return Err(ConfigError::new(format!(
                "a rate of {rate} with a burst of {burst} is too large for Redis: {token} times the burst must not pass 2^52"
            )));
        }
        let fills_in = number(room.div_ceil(permits));
        Ok(vec![ScriptParams {
            policy: TOKEN_BUCKET,
            numbers: [number(token), number(permits), burst.into(), 0],
            capacity: if self.may_owe() {
                most_of(token)
            } else {
                burst
            },
            settles_in: fills_in,
            refills_in: fills_in,
            quota: self.quota(),
        }])
    }

    fn with_script_params(&self, params: &mut &[ScriptParams]) -> Option<Self> {
        let may_owe = params.first()?.may_owe();
        let [token, permits, burst, _] = ScriptParams::take(params, TOKEN_BUCKET)?;
        let (permits, period) = rate_of(token, permits)?;
        let rate = Rate::try_new(permits, period).ok()?;
        let bucket = Self::try_new(rate, burst.try_into().ok()?).ok()?;
        Some(if may_owe { bucket.with_debt() } else { bucket })
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        let burst = divided(
            format_args!("a burst of {}", self.burst()),
            self.burst(),
            replicas,
        )?;
        let rate = self.rate();
        let period = rate.period().checked_mul(replicas).ok_or_else(|| {
            ConfigError::new(format!(
                "a rate of {rate} cannot be divided among {replicas} replicas"
            ))
        })?;
        let share = Self::new(Rate::new(rate.permits(), period), burst);
        Ok(if self.may_owe() {
            share.with_debt()
        } else {
            share
        })
    }
}

impl sealed::Scripted for Interval {
    fn script_params(&self) -> Result<Vec<ScriptParams>, ConfigError> {
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
        Ok(vec![ScriptParams {
            policy: INTERVAL,
            numbers: [number(token), number(permits), 0, 0],
            capacity: most_of(token),
            settles_in: passes_in,
            refills_in: passes_in,
            quota: self.quota(),
        }])
    }

    fn with_script_params(&self, params: &mut &[ScriptParams]) -> Option<Self> {
        let [token, permits, ..] = ScriptParams::take(params, INTERVAL)?;
        let (permits, period) = rate_of(token, permits)?;
        (permits == 1).then(|| Self::every(period))
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        match replicas {
            1 => Ok(*self),
            _ => Err(ConfigError::new(format!(
                "an interval cannot be divided among {replicas} replicas: two may let something pass at the same time; \
                 use a token bucket, a log or another outage policy"
            ))),
        }
    }
}

/// A log has an entry of 16 bytes for each instant at which permits passed. To write more of them at once would block the server for
/// too long. A cost takes one entry, however large it is.
const MOST_LOG_ENTRIES: u32 = 100_000;

impl sealed::Scripted for SlidingLog {
    fn script_params(&self) -> Result<Vec<ScriptParams>, ConfigError> {
        if self.limit() > MOST_LOG_ENTRIES {
            return Err(ConfigError::new(format!(
                "a log in Redis keeps each permit, {MOST_LOG_ENTRIES} at most, got {}: a counter keeps sums",
                self.limit()
            )));
        }
        window_params(SLIDING_LOG, self.limit(), self.window(), self.quota())
    }

    fn with_script_params(&self, params: &mut &[ScriptParams]) -> Option<Self> {
        let [limit, window, ..] = ScriptParams::take(params, SLIDING_LOG)?;
        Self::try_new(limit.try_into().ok()?, Duration::from_micros(window)).ok()
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        limit_share(self.limit(), replicas).map(|limit| Self::new(limit, self.window()))
    }
}

/// The script reads and writes all buckets for each decision, so more would make decisions slow.
const MOST_COUNTER_BUCKETS: u32 = 1_000;

impl sealed::Scripted for SlidingCounter {
    fn script_params(&self) -> Result<Vec<ScriptParams>, ConfigError> {
        let window = micros(self.window())?;
        let (bucket, reach) = match self.buckets() {
            None => (window, 2),
            Some(buckets) if buckets > MOST_COUNTER_BUCKETS => {
                return Err(ConfigError::new(format!(
                    "a counter in Redis has at most {MOST_COUNTER_BUCKETS} buckets, got {buckets}"
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
        Ok(vec![ScriptParams {
            policy: SLIDING_COUNTER,
            numbers: [
                self.limit().into(),
                bucket,
                reach,
                u64::from(self.buckets().is_none()),
            ],
            capacity: self.limit(),
            settles_in: bucket * reach,
            refills_in: bucket * (reach - 1),
            quota: self.quota(),
        }])
    }

    fn with_script_params(&self, params: &mut &[ScriptParams]) -> Option<Self> {
        let [limit, bucket, reach, is_smooth] = ScriptParams::take(params, SLIDING_COUNTER)?;
        let limit = limit.try_into().ok()?;
        if is_smooth == 1 {
            return Self::try_smooth(limit, Duration::from_micros(bucket)).ok();
        }
        let buckets = reach.checked_sub(1)?;
        let window = Duration::from_micros(bucket.checked_mul(buckets)?);
        Self::try_strict(limit, window, buckets.try_into().ok()?).ok()
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        let limit = limit_share(self.limit(), replicas)?;
        Ok(match self.buckets() {
            Some(buckets) => Self::strict(limit, self.window(), buckets),
            None => Self::smooth(limit, self.window()),
        })
    }
}

impl sealed::Scripted for FixedWindow {
    fn script_params(&self) -> Result<Vec<ScriptParams>, ConfigError> {
        window_params(FIXED_WINDOW, self.limit(), self.window(), self.quota())
    }

    fn with_script_params(&self, params: &mut &[ScriptParams]) -> Option<Self> {
        let [limit, window, ..] = ScriptParams::take(params, FIXED_WINDOW)?;
        Self::try_new(limit.try_into().ok()?, Duration::from_micros(window)).ok()
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        limit_share(self.limit(), replicas).map(|limit| Self::new(limit, self.window()))
    }
}

impl<P: sealed::Scripted> sealed::Scripted for PerRequest<P> {
    fn script_params(&self) -> Result<Vec<ScriptParams>, ConfigError> {
        let params = self.get_ref().script_params()?;
        Ok(per_request_if(true, params))
    }

    fn with_script_params(&self, params: &mut &[ScriptParams]) -> Option<Self> {
        let inner = self.get_ref().script_params().ok()?;
        let own = params.split_off(..inner.len())?.iter().zip(inner);
        let own = own.map(|(own, inner)| {
            if inner.counts_requests() {
                return Some(own.clone());
            }
            of_costs(own)
        });
        let own = own.collect::<Option<Vec<_>>>()?;
        let policy = self.get_ref().with_script_params(&mut &own[..])?;
        Some(Self::new(policy))
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        self.get_ref().share_of(replicas).map(Self::new)
    }

    fn spent(&self, now: Tick) -> Self::State {
        self.get_ref().spent(now)
    }
}

/// The parameters of a policy, or of the same one that counts each request as 1.
fn per_request_if(counts_requests: bool, mut params: Vec<ScriptParams>) -> Vec<ScriptParams> {
    for params in params.iter_mut().filter(|_| counts_requests) {
        params.policy |= PER_REQUEST;
        params.capacity = u32::MAX;
    }
    params
}

/// The parameters of the policy that counts costs, but for the capacity.
fn of_costs(params: &ScriptParams) -> Option<ScriptParams> {
    let policy = params.policy.checked_sub(PER_REQUEST)?;
    Some(ScriptParams {
        policy,
        ..params.clone()
    })
}

/// A script reads and writes a key for each of them.
const MOST_LIMITS: usize = 32;

impl sealed::Scripted for AnyPolicy {
    fn script_params(&self) -> Result<Vec<ScriptParams>, ConfigError> {
        let limits = self.limits().len();
        if limits == 0 || limits > MOST_LIMITS {
            return Err(ConfigError::new(format!(
                "a policy in Redis has 1 to {MOST_LIMITS} limits, got {limits} in `{self}`"
            )));
        }
        let params = self.limits().iter().map(|limit| {
            let params = match &limit.kind {
                AnyKind::Bucket(bucket) => bucket.script_params(),
                AnyKind::Interval(interval) => interval.script_params(),
                AnyKind::Log(log) => log.script_params(),
                AnyKind::Counter(counter) => counter.script_params(),
                AnyKind::Window(window) => window.script_params(),
                _ => Err(no_twin(self)),
            };
            params.map(|params| per_request_if(limit.per_request, params))
        });
        Ok(params.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn with_script_params(&self, params: &mut &[ScriptParams]) -> Option<Self> {
        let policies = self.limits().iter().map(|limit| {
            let (own, rest) = params.split_first()?;
            *params = rest;
            let costs = limit.per_request.then(|| of_costs(own));
            let own = &mut slice::from_ref(match &costs {
                Some(costs) => costs.as_ref()?,
                None => own,
            });
            let policy: Self = match &limit.kind {
                AnyKind::Bucket(bucket) => bucket.with_script_params(own)?.into(),
                AnyKind::Interval(interval) => interval.with_script_params(own)?.into(),
                AnyKind::Log(log) => log.with_script_params(own)?.into(),
                AnyKind::Counter(counter) => counter.with_script_params(own)?.into(),
                AnyKind::Window(window) => window.with_script_params(own)?.into(),
                _ => return None,
            };
            Some(if limit.per_request {
                policy.per_request()
            } else {
                policy
            })
        });
        let policies = policies.collect::<Option<Vec<_>>>()?;
        policies.into_iter().reduce(Self::and)
    }

    fn share_of(&self, replicas: u32) -> Result<Self, ConfigError> {
        let shares = self.limits().iter().map(|limit| {
            let share: Self = match &limit.kind {
                AnyKind::Bucket(bucket) => bucket.share_of(replicas)?.into(),
                AnyKind::Interval(interval) => interval.share_of(replicas)?.into(),
                AnyKind::Log(log) => log.share_of(replicas)?.into(),
                AnyKind::Counter(counter) => counter.share_of(replicas)?.into(),
                AnyKind::Window(window) => window.share_of(replicas)?.into(),
                _ => return Err(no_twin(self)),
            };
            Ok(if limit.per_request {
                share.per_request()
            } else {
                share
            })
        });
        let shares = shares.collect::<Result<Vec<_>, _>>()?;
        Ok(shares
            .into_iter()
            .reduce(Self::and)
            .unwrap_or_else(|| self.clone()))
    }

    fn spent(&self, now: Tick) -> AnyPolicyState {
        self.spent(now)
    }
}

fn no_twin(policy: &AnyPolicy) -> ConfigError {
    let mut kinds = policy.limits().iter().map(|limit| &limit.kind);
    let is_ramp = kinds.any(|kind| matches!(kind, AnyKind::Ramp(_)));
    let word = if is_ramp { "within" } else { "aligned" };
    ConfigError::new(format!(
        "`{policy}` cannot be kept in Redis: `{word}` is for limits in memory, and a rate that is `fixed`, `sliding` or `smooth`, \
         a `burst` and `every` can be kept"
    ))
}

macro_rules! all_of {
    ($($policy:ident $limit:tt),+) => {
        impl<$($policy: sealed::Scripted),+> sealed::Scripted for All<($($policy,)+)> {
            fn script_params(&self) -> Result<Vec<ScriptParams>, ConfigError> {
                let params = [$(self.limits().$limit.script_params()?),+];
                Ok(params.into_iter().flatten().collect())
            }

            fn with_script_params(&self, params: &mut &[ScriptParams]) -> Option<Self> {
                Some(Self::new(($(self.limits().$limit.with_script_params(params)?,)+)))
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

fn window_params(
    policy: u8,
    limit: u32,
    window: Duration,
    quota: Option<Quota>,
) -> Result<Vec<ScriptParams>, ConfigError> {
    let window = micros(window)?;
    Ok(vec![ScriptParams {
        policy,
        numbers: [limit.into(), window, 0, 0],
        capacity: limit,
        settles_in: window,
        refills_in: window,
        quota,
    }])
}

/// Lua numbers are exact up to 2^53. With half of that, the sum of two is exact too.
pub(super) const MOST: u128 = 1 << 52;

/// The longest time in microseconds, 71 years. It can be added to the present date.
pub(super) const LONGEST: u64 = 1 << 51;

/// A token takes the first of these divided by the second, in microseconds.
pub(super) fn lowest_terms(rate: Rate) -> (u128, u128) {
    let (nanos, permits) = (rate.period().as_nanos(), u128::from(rate.permits()) * 1_000);
    // Euclid's algorithm.
    let (mut divisor, mut rest) = (nanos, permits);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (nanos / divisor, permits / divisor)
}

/// The permits and the period of the rate whose [`lowest_terms`] these are, in its own lowest terms.
fn rate_of(token: u64, permits: u64) -> Option<(u32, Duration)> {
    let by = (1..=1_000).find(|by| permits.checked_mul(*by).is_some_and(|it| it % 1_000 == 0))?;
    let (permits, nanos) = (permits.checked_mul(by)? / 1_000, token.checked_mul(by)?);
    Some((permits.try_into().ok()?, Duration::from_nanos(nanos)))
}

/// How many tokens fit below the largest number.
fn most_of(token: u128) -> u32 {
    u32::try_from(MOST / token).unwrap_or(u32::MAX)
}

/// Never saturates: the callers have checked the bound.
pub(super) fn number(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

fn limit_share(limit: u32, replicas: u32) -> Result<u32, ConfigError> {
    divided(format_args!("a limit of {limit}"), limit, replicas)
}

fn micros(window: Duration) -> Result<u64, ConfigError> {
    match u64::try_from(window.as_nanos().div_ceil(1_000)) {
        Ok(micros) if micros <= LONGEST => Ok(micros),
        _ => Err(ConfigError::new(format!(
            "a window in Redis is at most 2^51 microseconds long, 71 years, got {window:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::sealed::Scripted;
    use super::*;

    fn bucket_of(rate: Rate, burst: u32) -> ScriptParams {
        TokenBucket::new(rate, burst)
            .script_params()
            .unwrap()
            .remove(0)
    }

    #[test]
    fn a_rate_is_passed_in_lowest_terms_of_microseconds() {
        let day = Duration::from_secs(86_400);
        for (rate, terms) in [
            (Rate::per_second(3), [1_000_000, 3]),
            (Rate::per_minute(7), [60_000_000, 7]),
            (Rate::per_minute(60), [1_000_000, 1]),
            (Rate::new(999_983, day), [86_400_000_000, 999_983]),
            (Rate::new(3, Duration::from_nanos(7)), [7, 3_000]),
            (Rate::new(5, Duration::from_nanos(2_500)), [1, 2]),
        ] {
            assert_eq!(
                bucket_of(rate, 4).numbers,
                [terms[0], terms[1], 4, 0],
                "{rate}"
            );
        }
        let interval = Interval::every(Duration::from_nanos(1_500));
        assert_eq!(interval.script_params().unwrap()[0].numbers, [3, 2, 0, 0]);
    }

    /// Whether the inverse has the same parameters.
    fn is_inverse(policy: &(impl Scripted + core::fmt::Debug)) {
        let params = policy.script_params().unwrap();
        let mut rest = &params[..];
        let inverse = policy.with_script_params(&mut rest);
        let found = inverse.map(|it| it.script_params().unwrap());
        assert_eq!((found, rest.len()), (Some(params), 0), "{policy:?}");
    }

    #[test]
    fn a_policy_is_found_by_its_parameters() {
        let nanos = Duration::from_nanos;
        let rates = [
            Rate::per_second(3),
            Rate::per_minute(u32::MAX),
            Rate::new(3, nanos(7)),
            Rate::new(999_983, Duration::from_secs(86_400)),
            Rate::new(5, nanos(2_500)),
        ];
        for rate in rates {
            is_inverse(&TokenBucket::new(rate, 4));
            is_inverse(&TokenBucket::new(rate, 9).with_debt());
        }
        for every in [1, 1_000, 1_001, 1_500, 333_333_333, 3_600_000_000_000] {
            is_inverse(&Interval::every(nanos(every)));
            is_inverse(&SlidingLog::new(7, nanos(every)));
            is_inverse(&FixedWindow::new(u32::MAX, nanos(every)));
            is_inverse(&SlidingCounter::smooth(7, nanos(every)));
            is_inverse(&SlidingCounter::strict(7, nanos(every), 13));
        }
        let log = SlidingLog::new(7, nanos(9));
        let bucket = TokenBucket::new(rates[0], 3);
        is_inverse(&All::new((log, All::new((bucket, log)), bucket)));
        is_inverse(&PerRequest::new(bucket.with_debt()));
        for text in [
            "7/s",
            "3/s burst 4 debt per request and every 7ms and 5/min fixed per request",
            "5/s sliding 7 buckets and 9/min smooth",
        ] {
            let any: AnyPolicy = text.parse().unwrap();
            is_inverse(&any);
            is_inverse(&All::new((any.clone(), bucket, PerRequest::new(any))));
        }
        is_inverse(&All::new((
            PerRequest::new(All::new((bucket, log))),
            bucket,
        )));

        let params = log.script_params().unwrap();
        let fixed = FixedWindow::new(7, nanos(9));
        assert!(fixed.with_script_params(&mut &params[..]).is_none());
        let every = Interval::every(nanos(9));
        assert!(every.with_script_params(&mut &[][..]).is_none());
        let requests = PerRequest::new(log);
        assert!(requests.with_script_params(&mut &params[..]).is_none());
        let any: AnyPolicy = "7/s and 5/min fixed".parse().unwrap();
        assert!(any.with_script_params(&mut &params[..]).is_none());
        let params = requests.script_params().unwrap();
        assert!(log.with_script_params(&mut &params[..]).is_none());
    }

    #[test]
    fn settling_times_are_rounded_up_to_a_microsecond() {
        assert_eq!(bucket_of(Rate::per_second(3), 2).settles_in, 666_667);
        let third = Interval::from_rate(Rate::per_second(3));
        assert_eq!(third.script_params().unwrap()[0].settles_in, 333_334);
        let log = SlidingLog::new(1, Duration::from_nanos(1_001));
        assert_eq!(log.script_params().unwrap()[0].settles_in, 2);
        let strict = SlidingCounter::strict(1, Duration::from_micros(10), 3);
        assert_eq!(strict.script_params().unwrap()[0].numbers, [1, 4, 4, 0]);
        assert_eq!(strict.script_params().unwrap()[0].settles_in, 16);
    }

    #[test]
    fn the_capacity_of_a_policy_with_debt_is_what_fits_into_the_numbers() {
        let rate = Rate::new(1, Duration::from_micros(1 << 22));
        assert_eq!(bucket_of(rate, 9).capacity, 9);
        let owing = TokenBucket::new(rate, 9).with_debt();
        assert_eq!(owing.script_params().unwrap()[0].capacity, 1 << 30);
        let often = Interval::every(Duration::from_nanos(1));
        assert_eq!(often.script_params().unwrap()[0].capacity, u32::MAX);
    }
}
