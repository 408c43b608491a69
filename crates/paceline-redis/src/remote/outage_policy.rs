use core::fmt;

use paceline::config::ConfigError;
use paceline::time::OutOfRange;

/// What passes a limit while Redis is slow or gone.
///
/// The right choice depends on what the limit protects: see [the guide](crate#when-redis-is-slow-or-gone).
#[doc(alias("fail open", "fail closed", "fallback", "circuit breaker"))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutagePolicy {
    /// An insurance is stated as its number of replicas.
    fallback: Fallback<u32>,
    pub(super) passes_faults: bool,
}

impl OutagePolicy {
    /// Everything passes: for limits that protect a service of your own, where a refusal costs more than a surplus.
    #[must_use]
    pub const fn open() -> Self {
        Self {
            fallback: Fallback::Open,
            passes_faults: false,
        }
    }

    /// As [`open`](Self::open), and everything passes when Redis refuses calls too: a wrong password, a missing permission, a key of
    /// another type, an error in a script.
    ///
    /// The other policies return such a fault as an error, because it lasts until an operator mends it. With this one it leaves a limit
    /// that limits nothing, and no request shows it. Such requests count as [`passed_alone`](crate::RedisStats::passed_alone), calls
    /// that were refused as [`faults`](crate::RedisStats::faults), and an event says why once a second: alert on it, as
    /// [the guide](crate#when-redis-is-slow-or-gone) says. [`Lease`](crate::Lease)s return the fault all the same.
    #[doc(alias("fail open"))]
    #[must_use]
    pub const fn always_open() -> Self {
        Self {
            passes_faults: true,
            ..Self::open()
        }
    }

    /// Nothing passes until Redis is back: for quotas where a surplus costs more than a standstill. A layer of `tower` answers 503
    /// then, because no caller has exceeded its quota.
    #[must_use]
    pub const fn closed() -> Self {
        Self {
            fallback: Fallback::Closed,
            passes_faults: false,
        }
    }

    /// A limit in memory takes over: the share of this limit that each of `replicas` processes may use alone.
    ///
    /// It starts with everything spent, because that may be so in Redis when the outage begins: a bucket fills from nothing, and
    /// a window lets nothing pass until a whole one is over. The limit in Redis starts the same way after a long outage. All
    /// replicas together never pass more than the limit if there are no more than `replicas` of them. (If only some of them
    /// cannot reach Redis, these pass their shares on top of what the others pass through Redis.)
    ///
    /// # Panics
    ///
    /// If `replicas` is zero; see [`try_insured`](Self::try_insured).
    #[must_use]
    #[track_caller]
    pub const fn insured(replicas: u32) -> Self {
        match Self::try_insured(replicas) {
            Ok(insured) => insured,
            Err(_) => panic!("an insurance needs at least 1 replica, got 0"),
        }
    }

    /// [`insured`](Self::insured), for a number from a configuration.
    ///
    /// # Errors
    ///
    /// If `replicas` is zero.
    pub const fn try_insured(replicas: u32) -> Result<Self, OutOfRange> {
        if replicas == 0 {
            let message = "an insurance needs at least 1 replica, got 0";
            return Err(OutOfRange::new("replicas", message));
        }
        Ok(Self {
            fallback: Fallback::Insured(replicas),
            passes_faults: false,
        })
    }

    pub(crate) const fn is_insured(self) -> bool {
        matches!(self.fallback, Fallback::Insured(_))
    }

    /// The fallback of one limit; `share_of` divides the limit by the number of replicas.
    pub(crate) fn fallback<T, E>(
        self,
        share_of: impl FnOnce(u32) -> Result<T, E>,
    ) -> Result<Fallback<T>, E> {
        Ok(match self.fallback {
            Fallback::Open => Fallback::Open,
            Fallback::Closed => Fallback::Closed,
            Fallback::Insured(replicas) => Fallback::Insured(share_of(replicas)?),
        })
    }
}

/// What takes over during an outage. `T` describes the insurance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fallback<T> {
    Open,
    Closed,
    Insured(T),
}

/// The whole number of permits that each replica may use.
pub(crate) fn divided(
    what: impl fmt::Display,
    permits: u32,
    replicas: u32,
) -> Result<u32, ConfigError> {
    match permits.checked_div(replicas) {
        Some(share @ 1..) => Ok(share),
        _ => Err(ConfigError::new(format!(
            "{what} cannot be divided among {replicas} replicas: each needs at least 1"
        ))),
    }
}
