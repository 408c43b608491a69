use core::fmt;
use core::time::Duration;
use std::error::Error;
use std::sync::Arc;

use super::link::{Failure, NoAnswer};

/// Something that cannot be kept in Redis: parameters, a key, a number of replicas. It says which, and what could be.
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

/// The server is well and refuses this call, as it would again: the password is wrong, the key holds something else, the keys of
/// one call lie in different slots of a cluster, a permission is missing.
///
/// It is a fault in how it is used, and never taken for an outage. Nothing was counted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerError {
    why: Arc<str>,
}

impl ServerError {
    pub(super) const fn new(why: Arc<str>) -> Self {
        Self { why }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis refused: {}", self.why)
    }
}

impl Error for ServerError {}

/// Why something did not pass. Nothing was counted.
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

    /// Whether it could never pass, because it costs too much.
    #[must_use]
    pub const fn is_too_costly(&self) -> bool {
        matches!(self.kind, AcquireKind::TooCostly { .. })
    }

    /// Whether it could not pass in time.
    #[must_use]
    pub const fn is_too_late(&self) -> bool {
        matches!(self.kind, AcquireKind::TooLate { .. })
    }

    /// What the server said, if it refused to answer.
    #[must_use]
    pub const fn server_error(&self) -> Option<&ServerError> {
        match &self.kind {
            AcquireKind::Server(error) => Some(error),
            AcquireKind::TooCostly { .. }
            | AcquireKind::TooLate { .. }
            | AcquireKind::Config(_) => None,
        }
    }

    /// What is wrong with the key, if that is why.
    #[must_use]
    pub const fn unfit(&self) -> Option<&ConfigError> {
        match &self.kind {
            AcquireKind::Config(unfit) => Some(unfit),
            AcquireKind::TooCostly { .. }
            | AcquireKind::TooLate { .. }
            | AcquireKind::Server(_) => None,
        }
    }
}

impl From<ConfigError> for AcquireError {
    fn from(unfit: ConfigError) -> Self {
        Self {
            kind: AcquireKind::Config(unfit),
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
            AcquireKind::Config(unfit) => unfit.fmt(f),
        }
    }
}

impl Error for AcquireError {}

/// Why there was no answer to something that only Redis can answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CallError {
    kind: NoAnswer,
}

impl CallError {
    pub(super) const fn new(kind: NoAnswer) -> Self {
        Self { kind }
    }

    /// Whether the call was not made at all, since Redis is known to be down.
    #[must_use]
    pub const fn is_skipped(&self) -> bool {
        matches!(self.kind, NoAnswer::Skipped)
    }

    /// Whether there was no answer within the deadline. It may have been carried out.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self.kind, NoAnswer::Failed(Failure::Timeout))
    }

    /// What the server said, if it refused.
    #[must_use]
    pub fn server_error(&self) -> Option<ServerError> {
        match &self.kind {
            NoAnswer::Failed(Failure::Fault(why)) => Some(ServerError::new(Arc::clone(why))),
            _ => None,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            NoAnswer::Failed(failure) => write!(f, "Redis: {failure}"),
            NoAnswer::Skipped => f.write_str("Redis is down"),
        }
    }
}

impl Error for CallError {}
