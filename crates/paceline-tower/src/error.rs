use core::error;
use core::fmt;
use core::time::Duration;

use super::Refusal;

/// Why a request has no response: the inner service failed, or the request was refused and did not reach it.
///
/// The inner error keeps its type. Of two layers without `answering`, the error is an `Error<Error<E>>`: each describes its own layer,
/// so a refusal of the inner one [`is_inner`](Self::is_inner) for the outer one, and is found by [`into_inner`](Self::into_inner).
///
/// ```
/// use paceline::policy::Interval;
/// use paceline::prelude::*;
/// use paceline_tower::EnforceLayer;
/// use std::io;
/// use std::time::Duration;
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let limit = Interval::every(Duration::from_secs(1)).shared();
/// let inner = service_fn(|_: ()| async { Err::<(), _>(io::Error::other("no route")) });
/// let mut service = EnforceLayer::new(limit).layer(inner);
///
/// let error = service.ready().await.unwrap().call(()).await.unwrap_err();
/// assert_eq!(error.into_inner().unwrap().to_string(), "no route");
///
/// let error = service.ready().await.unwrap().call(()).await.unwrap_err();
/// assert!(error.is_too_soon());
/// assert_eq!(error.retry_in(), Some(Duration::from_secs(1)));
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Error<E> {
    kind: Result<E, Refusal>,
}

impl<E> Error<E> {
    pub(super) const fn inner(error: E) -> Self {
        Self { kind: Ok(error) }
    }

    pub(super) const fn refused(refusal: Refusal) -> Self {
        Self { kind: Err(refusal) }
    }

    /// Why the request was refused, if it was.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.kind.as_ref().err()
    }

    /// The error of the inner service.
    ///
    /// # Errors
    ///
    /// Gives back the refusal if the request did not reach the service.
    pub fn into_inner(self) -> Result<E, Refusal> {
        self.kind
    }

    /// Whether the inner service failed.
    pub const fn is_inner(&self) -> bool {
        self.kind.is_ok()
    }

    /// Whether the request was refused, for any reason.
    pub const fn is_refused(&self) -> bool {
        self.kind.is_err()
    }

    /// Whether the request came too soon.
    pub fn is_too_soon(&self) -> bool {
        self.refusal().is_some_and(Refusal::is_too_soon)
    }

    /// Whether the request costs more than can ever pass.
    pub fn is_too_costly(&self) -> bool {
        self.refusal().is_some_and(Refusal::is_too_costly)
    }

    /// Whether the request could not pass in time.
    pub fn is_too_late(&self) -> bool {
        self.refusal().is_some_and(Refusal::is_too_late)
    }

    /// Whether too many requests waited, or were under way.
    pub fn is_no_room(&self) -> bool {
        self.refusal().is_some_and(Refusal::is_no_room)
    }

    /// Whether a load shedder refused the request.
    pub fn is_shed(&self) -> bool {
        self.refusal().is_some_and(Refusal::is_shed)
    }

    /// Whether the key of the request cannot be used, or is missing.
    pub fn is_bad_key(&self) -> bool {
        self.refusal().is_some_and(Refusal::is_bad_key)
    }

    /// Whether the limiter failed.
    pub fn is_limiter_failed(&self) -> bool {
        self.refusal().is_some_and(Refusal::is_limiter_failed)
    }

    /// How long until the request could have passed, if it was refused and that is known.
    pub fn retry_in(&self) -> Option<Duration> {
        self.refusal().and_then(Refusal::retry_in)
    }
}

impl<E> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Ok(_) => f.write_str("the inner service failed"),
            Err(refusal) => refusal.fmt(f),
        }
    }
}

impl<E: error::Error + 'static> error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.kind.as_ref().ok().map(|error| error as _)
    }
}
