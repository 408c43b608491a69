use core::fmt;
use core::time::Duration;
use std::error::Error;
use std::sync::Arc;

use crate::remote::{CallError, ServerError};

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

/// Why an acquisition failed, and nothing was counted; or why a change of a limit does not hold in all processes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcquireError {
    kind: AcquireKind,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum AcquireKind {
    TooCostly {
        cost: u32,
        capacity: u32,
    },
    TooLate {
        within: Duration,
        retry_in: Duration,
    },
    Server(ServerError),
    Config(ConfigError),
    Call(CallError),
}

impl AcquireError {
    pub(super) const fn too_costly(cost: u32, capacity: u32) -> Self {
        Self {
            kind: AcquireKind::TooCostly { cost, capacity },
        }
    }

    pub(super) const fn too_late(within: Duration, retry_in: Duration) -> Self {
        Self {
            kind: AcquireKind::TooLate { within, retry_in },
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

    /// After how long it could pass, as far as is known, if it could not pass in time: what a response 429 says in `Retry-After`.
    ///
    /// It is the wait that Redis gave for the next permits. Before Redis gave one, or while it does not answer, it is the time
    /// in which they did not pass. `None` for every other cause: to ask again does not help.
    #[must_use]
    pub const fn retry_in(&self) -> Option<Duration> {
        match self.kind {
            AcquireKind::TooLate { retry_in, .. } => Some(retry_in),
            _ => None,
        }
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

    /// Why there is no answer, if a change was made in this process and other processes may not know of it.
    #[must_use]
    pub const fn call_error(&self) -> Option<&CallError> {
        match &self.kind {
            AcquireKind::Call(error) => Some(error),
            _ => None,
        }
    }
}

impl From<CallError> for AcquireError {
    fn from(error: CallError) -> Self {
        Self {
            kind: AcquireKind::Call(error),
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
            AcquireKind::TooLate { within, .. } => write!(f, "could not pass within {within:?}"),
            AcquireKind::Server(error) => error.fmt(f),
            AcquireKind::Config(error) => error.fmt(f),
            AcquireKind::Call(error) => error.fmt(f),
        }
    }
}

impl Error for AcquireError {}
