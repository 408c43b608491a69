use core::convert::Infallible;
use core::error::Error;
use core::fmt;
use core::time::Duration;

use crate::policy::Decision;

/// Something that costs more than its limit could ever let pass at once. What was refused is in it.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct TooCostly<T = ()> {
    item: T,
    cost: u32,
    capacity: u32,
}

impl TooCostly {
    pub(crate) const fn new(cost: u32, capacity: u32) -> Self {
        Self {
            item: (),
            cost,
            capacity,
        }
    }

    /// The same, about `item`.
    pub(crate) fn with_item<T>(self, item: T) -> TooCostly<T> {
        TooCostly {
            item,
            cost: self.cost,
            capacity: self.capacity,
        }
    }
}

impl<T> TooCostly<T> {
    /// What was refused.
    pub fn into_item(self) -> T {
        self.item
    }

    /// What it would have cost.
    pub const fn cost(&self) -> u32 {
        self.cost
    }

    /// The largest cost that could pass.
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }
}

/// Does not ask `T: Debug`, and does not print the item: it may be secret, and it may be large.
impl<T> fmt::Debug for TooCostly<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TooCostly")
            .field("cost", &self.cost)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for TooCostly<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a cost of {} can never pass a limit of {} at once",
            self.cost, self.capacity
        )
    }
}

impl<T> Error for TooCostly<T> {}

/// Why a [`Gate`](super::Gate) stays shut: for ever, or because the limit cannot be reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PassError<E> {
    /// The error of the limiter, or the cost that can never pass.
    unreachable: Result<E, TooCostly>,
}

impl<E> PassError<E> {
    pub(crate) const fn too_costly(cost: u32, capacity: u32) -> Self {
        Self {
            unreachable: Err(TooCostly::new(cost, capacity)),
        }
    }

    pub(crate) const fn unreachable(error: E) -> Self {
        Self {
            unreachable: Ok(error),
        }
    }

    /// Whether it can never pass, because it costs too much.
    pub const fn is_too_costly(&self) -> bool {
        self.unreachable.is_err()
    }

    /// Whether the limit could not be reached.
    pub const fn is_unreachable(&self) -> bool {
        self.unreachable.is_ok()
    }

    /// Why the limit could not be reached.
    ///
    /// # Errors
    ///
    /// Gives back the other cause if that is not what happened.
    pub fn into_unreachable(self) -> Result<E, TooCostly> {
        self.unreachable
    }
}

impl PassError<Infallible> {
    /// The only cause there is when the limit is in memory.
    #[must_use]
    pub fn into_too_costly(self) -> TooCostly {
        match self.unreachable {
            Err(never) => never,
            Ok(error) => match error {},
        }
    }
}

impl<E> fmt::Display for PassError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.unreachable {
            Err(never) => never.fmt(f),
            Ok(_) => f.write_str("the limit could not be reached"),
        }
    }
}

impl<E: Error + 'static> Error for PassError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.unreachable.as_ref().ok().map(|error| error as _)
    }
}

/// Why [`Shared::acquire_within`](super::Shared::acquire_within) failed. Nothing was counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AcquireError {
    /// The time that was too short,
    within: Option<Duration>,
    /// and how long a retry would have to wait;
    retry_in: Option<Duration>,
    /// or the cost that can never pass.
    too_costly: Option<TooCostly>,
}

impl AcquireError {
    /// With what the limit would say to a retry, if that is known.
    pub(crate) fn too_late(within: Duration, retry: Option<Decision>) -> Self {
        let retry_in = match retry {
            Some(Decision::Pass) => Some(Duration::ZERO),
            Some(Decision::Wait { retry_in }) => Some(retry_in),
            Some(Decision::Never { .. }) | None => None,
        };
        Self {
            within: Some(within),
            retry_in,
            too_costly: None,
        }
    }

    /// Whether it could never pass, because it costs too much.
    #[must_use]
    pub const fn is_too_costly(&self) -> bool {
        self.too_costly.is_some()
    }

    /// How much it would have cost and how much could ever pass, if that is why.
    #[must_use]
    pub const fn too_costly(&self) -> Option<TooCostly> {
        self.too_costly
    }

    /// Whether it could not pass in time.
    #[must_use]
    pub const fn is_too_late(&self) -> bool {
        self.within.is_some()
    }

    /// How long the same request would have to wait if it came again, as known when it was refused. `None` if it can
    /// never pass, or the limiter cannot say: one around another, and permits, which come back when they do.
    ///
    /// It takes the queued requests into account; in a queue of more than 64 it may not know all of them, and say less. So
    /// "wait 50 ms, else 429 with `Retry-After`" needs no second question:
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    /// limit.acquire(1).await.unwrap();
    ///
    /// let late = limit.acquire_within(1, Duration::from_millis(50)).await.unwrap_err();
    /// assert_eq!(late.retry_in(), Some(Duration::from_millis(100)));
    /// # }
    /// ```
    #[doc(alias("retry-after", "429"))]
    #[must_use]
    pub const fn retry_in(&self) -> Option<Duration> {
        self.retry_in
    }
}

impl From<TooCostly> for AcquireError {
    fn from(never: TooCostly) -> Self {
        Self {
            within: None,
            retry_in: None,
            too_costly: Some(never),
        }
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = self.within.unwrap_or_default();
        match &self.too_costly {
            Some(never) => never.fmt(f),
            None => write!(f, "could not pass within {within:?}"),
        }
    }
}

impl Error for AcquireError {}

/// An item came sooner than its limit allows. It is given back, not lost.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Exceeded<T> {
    item: T,
    retry_in: Option<Duration>,
}

impl<T> Exceeded<T> {
    pub(crate) const fn new(item: T, retry_in: Option<Duration>) -> Self {
        Self { item, retry_in }
    }

    /// The item that was refused.
    pub fn into_item(self) -> T {
        self.item
    }

    /// How long until it could have passed, if no other request takes its place; `None` if it never could.
    pub const fn retry_in(&self) -> Option<Duration> {
        self.retry_in
    }
}

/// Does not ask `T: Debug`, and does not print the item: it may be secret, and it may be large.
impl<T> fmt::Debug for Exceeded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exceeded")
            .field("retry_in", &self.retry_in)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Exceeded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_in {
            Some(delay) => write!(f, "rate limit exceeded, retry in {delay:?}"),
            None => f.write_str("rate limit exceeded, and always will be"),
        }
    }
}

impl<T> Error for Exceeded<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_request_repeats_what_the_limit_says_to_a_retry() {
        let second = Duration::from_secs(1);
        let late = |retry| AcquireError::too_late(second, retry);
        let wait = Decision::Wait { retry_in: second };
        assert_eq!(late(Some(wait)).retry_in(), Some(second));
        assert_eq!(late(Some(Decision::Pass)).retry_in(), Some(Duration::ZERO));
        let never = late(Some(Decision::Never { capacity: 1 }));
        assert_eq!(never.retry_in(), None);
        assert_eq!(late(None).retry_in(), None);
        assert!(never.is_too_late());
    }
}
