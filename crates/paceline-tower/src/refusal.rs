use core::error::Error;
use core::fmt;
use core::time::Duration;

use paceline::limiter::Status;

use super::terms::BadKey;

/// Why a request did not reach the service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refusal {
    kind: RefusalKind,
    retry_in: Option<Duration>,
    status: Option<Status>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RefusalKind {
    /// The caller has used up its limit.
    TooSoon,
    /// The request costs more than can ever pass.
    TooCostly { cost: u32, capacity: u32 },
    /// The request could not pass within the time; `for_room`: no permit was free.
    TooLate { within: Duration, for_room: bool },
    /// Too many requests wait, or are under way.
    NoRoom,
    /// A load shedder does not admit the request.
    Shed,
    /// The limits have none for the key of the request, or it has no key.
    BadKey(BadKey),
    /// The limiter failed, and the layer is closed then; or the limit cannot be asked, and lets nothing pass then.
    LimiterFailed,
}

impl Refusal {
    pub(super) const fn new(kind: RefusalKind) -> Self {
        Self {
            kind,
            retry_in: None,
            status: None,
        }
    }

    pub(super) const fn with_retry_in(mut self, retry_in: Option<Duration>) -> Self {
        self.retry_in = retry_in;
        self
    }

    pub(super) const fn with_status(mut self, status: Option<Status>) -> Self {
        self.status = status;
        self
    }

    pub(super) const fn kind(&self) -> RefusalKind {
        self.kind
    }

    /// Whether the caller exceeded its own limit: the request came too soon, cost too much, or could not pass its rate in time. The
    /// status for HTTP is 429 then. It is 400 for a bad key, and otherwise 503; so it is for a permit that was not free in time.
    #[must_use]
    pub const fn is_quota_exceeded(&self) -> bool {
        matches!(
            self.kind,
            RefusalKind::TooSoon
                | RefusalKind::TooCostly { .. }
                | RefusalKind::TooLate {
                    for_room: false,
                    ..
                }
        )
    }

    /// Whether the request came too soon.
    #[must_use]
    pub const fn is_too_soon(&self) -> bool {
        matches!(self.kind, RefusalKind::TooSoon)
    }

    /// Whether the request costs more than can ever pass.
    #[must_use]
    pub const fn is_too_costly(&self) -> bool {
        matches!(self.kind, RefusalKind::TooCostly { .. })
    }

    /// Whether the request could not pass in time.
    #[must_use]
    pub const fn is_too_late(&self) -> bool {
        matches!(self.kind, RefusalKind::TooLate { .. })
    }

    /// Whether too many requests wait, or are under way.
    #[must_use]
    pub const fn is_no_room(&self) -> bool {
        matches!(self.kind, RefusalKind::NoRoom)
    }

    /// Whether a load shedder refused the request.
    #[must_use]
    pub const fn is_shed(&self) -> bool {
        matches!(self.kind, RefusalKind::Shed)
    }

    /// Whether the key of the request cannot be used: the limits refused it, such as a key too long for limits in Redis, or it is
    /// [missing](super::OnMissingKey::Refuse).
    #[must_use]
    pub const fn is_bad_key(&self) -> bool {
        matches!(self.kind, RefusalKind::BadKey(_))
    }

    /// Whether the limiter failed: it returned an error or panicked, and the layer is [closed](super::OnFailure::Closed); or the
    /// limit [cannot be asked](paceline::limiter::Limiter::is_out_of_reach), and lets nothing pass then. The refusal has neither a wait
    /// nor a status.
    #[must_use]
    pub const fn is_limiter_failed(&self) -> bool {
        matches!(self.kind, RefusalKind::LimiterFailed)
    }

    /// How long until the request could have passed, if that is known.
    #[must_use]
    pub const fn retry_in(&self) -> Option<Duration> {
        self.retry_in
    }

    /// What the limit had left, if that is known.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        self.status
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind(), self.retry_in) {
            (RefusalKind::TooSoon, Some(retry_in)) => {
                write!(f, "rate limit exceeded, retry in {retry_in:?}")
            }
            (RefusalKind::TooSoon, None) => f.write_str("rate limit exceeded"),
            (RefusalKind::TooCostly { cost, capacity }, _) => write!(
                f,
                "a cost of {cost} can never pass a limit of {capacity} at once"
            ),
            (RefusalKind::TooLate { within, .. }, _) => {
                write!(f, "could not pass within {within:?}")
            }
            (RefusalKind::NoRoom, _) => f.write_str("too many requests are under way"),
            (RefusalKind::Shed, _) => f.write_str("the service sheds load"),
            (RefusalKind::BadKey(bad), _) => bad.fmt(f),
            (RefusalKind::LimiterFailed, _) => f.write_str("the limiter failed"),
        }
    }
}

impl Error for Refusal {}
