use core::fmt;
use std::error::Error;
use std::sync::Arc;

use paceline::config::ConfigError;

/// The server works and refuses this call, as it would refuse it again: the password is wrong, the key holds another type, the
/// keys of one call are in different slots of a cluster, a permission is missing.
///
/// The cause is a fault in how Redis is used. It never counts as an outage. Nothing was counted. With
/// [`OutagePolicy::always_open`](crate::OutagePolicy::always_open) requests pass all the same.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerError {
    why: Arc<str>,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server refused: {}", self.why)
    }
}

impl Error for ServerError {}

/// Why a call that only the server can answer has no answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CallError {
    cause: Cause,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Cause {
    CircuitOpen,
    Failed(Failure),
    Unfit(ConfigError),
}

impl CallError {
    pub(crate) const CIRCUIT_OPEN: Self = Self {
        cause: Cause::CircuitOpen,
    };

    pub(crate) const fn failed(failure: Failure) -> Self {
        Self {
            cause: Cause::Failed(failure),
        }
    }

    pub(crate) const fn failure(&self) -> Option<&Failure> {
        match &self.cause {
            Cause::Failed(failure) => Some(failure),
            Cause::CircuitOpen | Cause::Unfit(_) => None,
        }
    }

    /// Whether the call was not made at all, because the server is known to be down.
    #[must_use]
    pub const fn is_skipped(&self) -> bool {
        matches!(self.cause, Cause::CircuitOpen)
    }

    /// What is wrong with the parameters, if they cannot be used on the server. There was no call.
    #[must_use]
    pub const fn unfit(&self) -> Option<&ConfigError> {
        match &self.cause {
            Cause::Unfit(error) => Some(error),
            Cause::CircuitOpen | Cause::Failed(_) => None,
        }
    }

    /// Whether there was no answer within the deadline. The server may have run the call.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self.failure(), Some(Failure::Timeout))
    }

    /// The server's error, if the server refused the call.
    #[must_use]
    pub fn server_error(&self) -> Option<ServerError> {
        match self.failure() {
            Some(Failure::Fault(why)) => Some(ServerError {
                why: Arc::clone(why),
            }),
            _ => None,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Failed(failure) => failure.fmt(f),
            Cause::CircuitOpen => f.write_str("the server is down"),
            Cause::Unfit(error) => error.fmt(f),
        }
    }
}

impl Error for CallError {}

impl From<ConfigError> for CallError {
    fn from(error: ConfigError) -> Self {
        Self {
            cause: Cause::Unfit(error),
        }
    }
}

/// Why a call, or an attempt to connect, failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    /// No answer in time. The server may have run the call.
    Timeout,
    /// There is no connection, or it broke. The server may have run the call.
    Unreachable(Arc<str>),
    /// The server is loading, is a replica now, is out of memory, or has lost its cluster. It did not run the call.
    Unavailable(Arc<str>),
    /// The server refuses this call, and would refuse it again: wrong type, keys in two slots, no permission.
    Fault(Arc<str>),
}

impl Failure {
    pub(crate) const fn is_fault(&self) -> bool {
        matches!(self, Self::Fault(_))
    }

    /// The same failure, which happened at this place.
    pub(crate) fn at(self, place: &str) -> Self {
        let with_place = |why: Arc<str>| format!("{place}: {why}").into();
        match self {
            Self::Timeout => Self::Timeout,
            Self::Unreachable(why) => Self::Unreachable(with_place(why)),
            Self::Unavailable(why) => Self::Unavailable(with_place(why)),
            Self::Fault(why) => Self::Fault(with_place(why)),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("no answer in time"),
            Self::Unreachable(why) => write!(f, "cannot be reached: {why}"),
            Self::Unavailable(why) => write!(f, "cannot serve now: {why}"),
            Self::Fault(why) => write!(f, "refused: {why}"),
        }
    }
}

/// An event for operators: a `tracing` event and a change of metrics, with the features of these names. The target is `paceline`,
/// as for limits. The docs of `limiter::Metrics` list the metrics.
///
/// Emitted after the lock is released, because a subscriber may ask for the state.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "tracing"),
    expect(dead_code, reason = "metrics only count")
)]
pub(crate) enum Event {
    /// Calls failed, and none is made until the server is back.
    Down(Failure),
    /// There is a new connection.
    Up,
    /// It is to a server that deletes keys by this policy when its memory is full, and with them states.
    Evicts(Arc<str>),
    /// The server refuses calls. Emitted at most once a second.
    Fault(Failure),
    /// This many leases ended before their release.
    LeasesLost(u64),
    /// The server lost this many states. Their limits count as spent.
    StatesLost(u64),
}

impl Event {
    #[cfg_attr(
        not(any(feature = "tracing", feature = "metrics")),
        expect(clippy::unused_self, reason = "there is nothing to emit to")
    )]
    pub(crate) fn emit(&self) {
        #[cfg(feature = "tracing")]
        match self {
            Self::Down(cause) => {
                tracing::warn!(target: "paceline", %cause, "the server of limits is down");
            }
            Self::Up => tracing::info!(target: "paceline", "the server of limits is up"),
            Self::Evicts(policy) => {
                tracing::warn!(
                    target: "paceline", %policy,
                    "the server of limits evicts keys; with maxmemory-policy noeviction it loses no states"
                );
            }
            Self::Fault(cause) => {
                tracing::warn!(target: "paceline", %cause, "the server refuses calls of limits");
            }
            Self::LeasesLost(count) => tracing::warn!(target: "paceline", count, "leases are lost"),
            Self::StatesLost(count) => {
                tracing::warn!(target: "paceline", count, "the server has lost states of limits");
            }
        }
        #[cfg(feature = "metrics")]
        match self {
            Self::Down(_) => {
                metrics::gauge!("paceline_remote_up").set(0);
                metrics::counter!("paceline_remote_outages_total").increment(1);
            }
            Self::Up => metrics::gauge!("paceline_remote_up").set(1),
            Self::Evicts(_) => {}
            Self::Fault(_) => metrics::counter!("paceline_remote_faults_total").increment(1),
            Self::LeasesLost(count) => {
                metrics::counter!("paceline_remote_lost_leases_total").increment(*count);
            }
            Self::StatesLost(count) => {
                metrics::counter!("paceline_remote_lost_states_total").increment(*count);
            }
        }
    }
}
