use core::convert::Infallible;
use core::error::Error;
use core::fmt;
use core::time::Duration;

/// Something that costs more than its limit could ever let pass at once. What was refused is in it.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct TooCostly<T = ()> {
    item: T,
    cost: u32,
    capacity: u32,
    /// How often the request reaches the limit.
    times: u32,
}

impl TooCostly {
    /// A request of this cost can never pass, since at most `capacity` can pass at once.
    #[must_use]
    pub const fn new(cost: u32, capacity: u32) -> Self {
        Self {
            item: (),
            cost,
            capacity,
            times: 1,
        }
    }

    /// The same, of a request that reaches the limit so often: the cost is the sum.
    pub(super) const fn reached(self, times: u32) -> Self {
        Self { times, ..self }
    }

    /// The same, about `item`.
    pub(crate) fn with_item<T>(self, item: T) -> TooCostly<T> {
        TooCostly {
            item,
            cost: self.cost,
            capacity: self.capacity,
            times: self.times,
        }
    }
}

impl<T> TooCostly<T> {
    /// What was refused.
    pub fn into_item(self) -> T {
        self.item
    }

    /// What it would have cost, in all: a request for a [`Combined`](super::Combined) may reach a limit more than once.
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
        )?;
        if self.times > 1 {
            write!(f, ": the request reaches this limit {} times", self.times)?;
        }
        Ok(())
    }
}

impl<T> Error for TooCostly<T> {}

/// Why a request did not pass. Nothing was counted.
///
/// `E` is the error of the limiter itself: [`Infallible`] in memory, [`LineError`] for a [`Line`](super::Line), `ServerError` in Redis.
/// [`limit`](Self::limit) returns it, and the message is that of this error then.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AcquireError<E = Infallible> {
    kind: Kind<E>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind<E> {
    TooCostly(TooCostly),
    TooLate {
        /// `None`: its deadline was over when it came.
        within: Option<Duration>,
        retry_in: Option<Duration>,
    },
    Limit(E),
}

impl<E> AcquireError<E> {
    /// It could not pass `within` this time. `retry_in`: how long the same request would have to wait, if that is known.
    #[must_use]
    pub const fn too_late(within: Duration, retry_in: Option<Duration>) -> Self {
        Self::late(Some(within), retry_in)
    }

    pub(super) const fn late(within: Option<Duration>, retry_in: Option<Duration>) -> Self {
        Self {
            kind: Kind::TooLate { within, retry_in },
        }
    }

    /// The error of the limiter itself.
    #[must_use]
    pub const fn of_limit(error: E) -> Self {
        Self {
            kind: Kind::Limit(error),
        }
    }

    /// Whether it could never pass, because it costs too much.
    #[must_use]
    pub const fn is_too_costly(&self) -> bool {
        matches!(self.kind, Kind::TooCostly(_))
    }

    /// The cost of the request, and the largest cost that could pass, if that is why.
    #[must_use]
    pub const fn too_costly(&self) -> Option<TooCostly> {
        match self.kind {
            Kind::TooCostly(never) => Some(never),
            _ => None,
        }
    }

    /// Whether it could not pass in time.
    #[must_use]
    pub const fn is_too_late(&self) -> bool {
        matches!(self.kind, Kind::TooLate { .. })
    }

    /// How long the same request would have to wait if it came again, as known when it was refused. `None` if it was not too late, or
    /// the limiter cannot say: one around another, and permits, which come back when they do.
    ///
    /// It takes the queued requests into account; in a queue of more than 64 it may not know all of them, and say less. In Redis
    /// it is the last wait that the server has told for this limit; before that, and while the server does not answer, it is the time in
    /// which the request did not pass. So "wait 50 ms, else 429 with `Retry-After`" needs no second question:
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
        match self.kind {
            Kind::TooLate { retry_in, .. } => retry_in,
            _ => None,
        }
    }

    /// The error of the limiter, if that is why.
    #[must_use]
    pub const fn limit(&self) -> Option<&E> {
        match &self.kind {
            Kind::Limit(error) => Some(error),
            _ => None,
        }
    }

    /// The error of the limiter.
    ///
    /// # Errors
    ///
    /// The same error, if that is not why.
    pub fn into_limit(self) -> Result<E, AcquireError> {
        let kind = match self.kind {
            Kind::Limit(error) => return Ok(error),
            Kind::TooCostly(never) => Kind::TooCostly(never),
            Kind::TooLate { within, retry_in } => Kind::TooLate { within, retry_in },
        };
        Err(AcquireError { kind })
    }
}

impl AcquireError {
    /// The only error of a request without a deadline, in memory.
    pub(crate) fn into_too_costly(self) -> TooCostly {
        match self.kind {
            Kind::TooCostly(never) => never,
            Kind::TooLate { .. } => unreachable!("a request without a deadline is never too late"),
            Kind::Limit(error) => match error {},
        }
    }
}

impl<E> AcquireError<LineError<E>> {
    /// Whether the [`Line`](super::Line) is closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(&self.kind, Kind::Limit(error) if error.is_closed())
    }

    /// Whether too many requests wait in the [`Line`](super::Line).
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(&self.kind, Kind::Limit(error) if error.is_full())
    }
}

impl<E> From<TooCostly> for AcquireError<E> {
    fn from(never: TooCostly) -> Self {
        Self {
            kind: Kind::TooCostly(never),
        }
    }
}

impl<E: fmt::Display> fmt::Display for AcquireError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::TooCostly(never) => never.fmt(f),
            Kind::TooLate {
                within: Some(within),
                ..
            } => write!(f, "could not pass within {within:?}"),
            Kind::TooLate { .. } => f.write_str("could not pass: its deadline was over"),
            Kind::Limit(error) => error.fmt(f),
        }
    }
}

impl<E: Error> Error for AcquireError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.limit().and_then(E::source)
    }
}

/// Why a [`Line`](super::Line) refused a request. Nothing was counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LineError<E = Infallible> {
    kind: LineKind<E>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LineKind<E> {
    Closed,
    Full {
        waiting: usize,
        most: u32,
        retry_in: Option<Duration>,
    },
    Limit(E),
}

impl<E> LineError<E> {
    pub(crate) const fn closed() -> Self {
        Self {
            kind: LineKind::Closed,
        }
    }

    pub(super) const fn full(waiting: usize, most: u32, retry_in: Option<Duration>) -> Self {
        let kind = LineKind::Full {
            waiting,
            most,
            retry_in,
        };
        Self { kind }
    }

    pub(crate) const fn of_limit(error: E) -> Self {
        Self {
            kind: LineKind::Limit(error),
        }
    }

    /// Whether the line is closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.kind, LineKind::Closed)
    }

    /// Whether too many requests wait already.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self.kind, LineKind::Full { .. })
    }

    /// The error of the limiter behind the line, if that is why.
    #[must_use]
    pub const fn limit(&self) -> Option<&E> {
        match &self.kind {
            LineKind::Limit(error) => Some(error),
            _ => None,
        }
    }

    /// How long the request would have had to wait, if the line was full and the limiter said how long.
    #[must_use]
    pub const fn retry_in(&self) -> Option<Duration> {
        match self.kind {
            LineKind::Full { retry_in, .. } => retry_in,
            _ => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for LineError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            LineKind::Closed => f.write_str("the line is closed"),
            LineKind::Full {
                waiting: 1, most, ..
            } => write!(f, "1 request waits already, and at most {most} may"),
            LineKind::Full { waiting, most, .. } => {
                write!(f, "{waiting} requests wait already, and at most {most} may")
            }
            LineKind::Limit(error) => error.fmt(f),
        }
    }
}

impl<E: Error> Error for LineError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.limit().and_then(E::source)
    }
}

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
