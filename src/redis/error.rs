use core::fmt;
use core::time::Duration;
use std::error::Error;
use std::sync::Arc;

/// Parameters, a key or a number of replicas that cannot be used in Redis. The message says which value, and what the bounds are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError {
    why: Arc<str>,
}

impl ConfigError {
    pub(super) fn new(why: impl Into<Arc<str>>) -> Self {
        Self { why: why.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Error for ConfigError {}

/// The server works and refuses this call, as it would refuse it again: the password is wrong, the key holds another type, the
/// keys of one call are in different slots of a cluster, a permission is missing.
///
/// The cause is a fault in how Redis is used. It never counts as an outage. Nothing was counted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerError {
    why: Arc<str>,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis refused: {}", self.why)
    }
}

impl Error for ServerError {}

/// Why an acquisition failed. Nothing was counted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcquireError {
    kind: AcquireKind,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum AcquireKind {
    TooCostly { cost: u32, capacity: u32 },
    TooLate { within: Duration },
    Server(ServerError),
    Config(ConfigError),
}

impl AcquireError {
    pub(super) const fn too_costly(cost: u32, capacity: u32) -> Self {
        Self {
            kind: AcquireKind::TooCostly { cost, capacity },
        }
    }

    pub(super) const fn too_late(within: Duration) -> Self {
        Self {
            kind: AcquireKind::TooLate { within },
        }
    }

    /// Whether the cost is more than can ever pass.
    #[must_use]
    pub const fn is_too_costly(&self) -> bool {
        matches!(self.kind, AcquireKind::TooCostly { .. })
    }

    /// Whether the permits could not pass in time.
    #[must_use]
    pub const fn is_too_late(&self) -> bool {
        matches!(self.kind, AcquireKind::TooLate { .. })
    }

    /// The server's error, if the server refused the call.
    #[must_use]
    pub const fn server_error(&self) -> Option<&ServerError> {
        match &self.kind {
            AcquireKind::Server(error) => Some(error),
            _ => None,
        }
    }

    /// What is wrong with the key, if it cannot be used.
    #[must_use]
    pub const fn unfit(&self) -> Option<&ConfigError> {
        match &self.kind {
            AcquireKind::Config(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ConfigError> for AcquireError {
    fn from(error: ConfigError) -> Self {
        Self {
            kind: AcquireKind::Config(error),
        }
    }
}

impl From<ServerError> for AcquireError {
    fn from(error: ServerError) -> Self {
        Self {
            kind: AcquireKind::Server(error),
        }
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            AcquireKind::TooCostly { cost, capacity } => write!(
                f,
                "a cost of {cost} can never pass a limit of {capacity} at once"
            ),
            AcquireKind::TooLate { within } => write!(f, "could not pass within {within:?}"),
            AcquireKind::Server(error) => error.fmt(f),
            AcquireKind::Config(error) => error.fmt(f),
        }
    }
}

impl Error for AcquireError {}

/// Why a call that only Redis can answer has no answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CallError {
    /// `None` if the call was not made because the circuit breaker is open.
    failure: Option<Failure>,
}

impl CallError {
    pub(super) const CIRCUIT_OPEN: Self = Self { failure: None };

    pub(super) const fn failed(failure: Failure) -> Self {
        Self {
            failure: Some(failure),
        }
    }

    /// The script's reply has an unexpected shape.
    pub(super) fn malformed(reply: &[i64]) -> Self {
        Self::failed(Failure::Fault(format!("an answer of {reply:?}").into()))
    }

    pub(super) const fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Whether the call was not made at all, because Redis is known to be down.
    #[must_use]
    pub const fn is_skipped(&self) -> bool {
        self.failure.is_none()
    }

    /// Whether there was no answer within the deadline. The server may have run the call.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self.failure, Some(Failure::Timeout))
    }

    /// The server's error, if the server refused the call.
    #[must_use]
    pub fn server_error(&self) -> Option<ServerError> {
        match &self.failure {
            Some(Failure::Fault(why)) => Some(ServerError {
                why: Arc::clone(why),
            }),
            _ => None,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            Some(failure) => write!(f, "Redis: {failure}"),
            None => f.write_str("Redis is down"),
        }
    }
}

impl Error for CallError {}

/// Why a call, or an attempt to connect, failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Failure {
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
    pub(super) const fn is_fault(&self) -> bool {
        matches!(self, Self::Fault(_))
    }

    /// The same failure, which happened at this place.
    pub(super) fn at(self, place: &str) -> Self {
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
