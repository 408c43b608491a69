use core::error::Error;
use core::fmt;
use core::time::Duration;

use super::{PassError, TooCostly};

/// Why a request did not pass a [`Line`](super::Line). Nothing was counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LineError<E = core::convert::Infallible> {
    kind: Kind<E>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind<E> {
    Closed,
    Full {
        waiting: usize,
        most: u32,
        retry_in: Option<Duration>,
    },
    TooLate {
        within: Duration,
        retry_in: Option<Duration>,
    },
    TooCostly(TooCostly),
    Limit(E),
}

impl<E> LineError<E> {
    pub(super) const fn closed() -> Self {
        Self { kind: Kind::Closed }
    }

    pub(super) const fn full(waiting: usize, most: u32, retry_in: Option<Duration>) -> Self {
        let kind = Kind::Full {
            waiting,
            most,
            retry_in,
        };
        Self { kind }
    }

    pub(super) const fn too_late(within: Duration, retry_in: Option<Duration>) -> Self {
        let kind = Kind::TooLate { within, retry_in };
        Self { kind }
    }

    pub(super) const fn of_limit(error: E) -> Self {
        let kind = Kind::Limit(error);
        Self { kind }
    }

    /// The cause in the gate of a line.
    pub(super) fn of_gate(error: PassError<Self>) -> Self {
        error.into_unreachable().unwrap_or_else(|never| Self {
            kind: Kind::TooCostly(never),
        })
    }

    /// Whether the line was closed.
    pub const fn is_closed(&self) -> bool {
        matches!(self.kind, Kind::Closed)
    }

    /// Whether too many requests wait already.
    pub const fn is_full(&self) -> bool {
        matches!(self.kind, Kind::Full { .. })
    }

    /// Whether it could not pass in time.
    pub const fn is_too_late(&self) -> bool {
        matches!(self.kind, Kind::TooLate { .. })
    }

    /// How much it would have cost and how much could ever pass, if that is why.
    pub const fn too_costly(&self) -> Option<&TooCostly> {
        match &self.kind {
            Kind::TooCostly(never) => Some(never),
            _ => None,
        }
    }

    /// The error of the limiter, if that is why.
    pub const fn limit(&self) -> Option<&E> {
        match &self.kind {
            Kind::Limit(error) => Some(error),
            _ => None,
        }
    }

    /// How long the same request would have had to wait, if it was refused because the line is full or it would be late, and if that
    /// is known.
    pub const fn retry_in(&self) -> Option<Duration> {
        match self.kind {
            Kind::Full { retry_in, .. } | Kind::TooLate { retry_in, .. } => retry_in,
            _ => None,
        }
    }
}

impl<E> fmt::Display for LineError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Closed => f.write_str("the line is closed"),
            Kind::Full {
                waiting: 1, most, ..
            } => {
                write!(f, "1 request waits already, and at most {most} may")
            }
            Kind::Full { waiting, most, .. } => {
                write!(f, "{waiting} requests wait already, and at most {most} may")
            }
            Kind::TooLate { within, .. } => write!(f, "could not pass within {within:?}"),
            Kind::TooCostly(never) => never.fmt(f),
            Kind::Limit(_) => f.write_str("the limit could not be reached"),
        }
    }
}

impl<E: Error + 'static> Error for LineError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.limit().map(|error| error as _)
    }
}
