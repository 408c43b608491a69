use core::fmt;
use std::error::Error;
use std::sync::Arc;

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
        write!(f, "the server refused: {}", self.why)
    }
}

impl Error for ServerError {}

/// Why a call that only the server can answer has no answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CallError {
    /// `None` if the call was not made because the circuit breaker is open.
    failure: Option<Failure>,
}

impl CallError {
    pub(crate) const CIRCUIT_OPEN: Self = Self { failure: None };

    pub(crate) const fn failed(failure: Failure) -> Self {
        Self {
            failure: Some(failure),
        }
    }

    pub(crate) const fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Whether the call was not made at all, because the server is known to be down.
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
            Some(failure) => failure.fmt(f),
            None => f.write_str("the server is down"),
        }
    }
}

impl Error for CallError {}

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
