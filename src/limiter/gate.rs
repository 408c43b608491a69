use core::task::{Context, Poll, ready};

use crate::policy::Decision;
use crate::time::{Precision, Timer};

use super::{Limiter, PassError};

/// The only loop that waits for a limit: ask, sleep, ask.
///
/// It asks whenever it is polled, so that a waiter feels at once what was changed on the limit meanwhile.
///
/// ```
/// use core::future::poll_fn;
/// use paceline::limiter::{Gate, PolicyExt};
/// use paceline::policy::Interval;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let mut gate = Gate::new(Interval::every(Duration::from_millis(100)).owned());
///
/// for _ in 0..3 {
///     poll_fn(|cx| gate.poll_pass(1, cx)).await.unwrap();
/// }
/// assert_eq!(start.elapsed(), Duration::from_millis(200));
/// # }
/// ```
///
/// # Cancel safety
///
/// Nothing is counted before it is ready. A gate that is dropped leaves the line.
#[derive(Debug)]
pub struct Gate<L: Limiter> {
    limiter: L,
    timer: Timer,
    begun: bool,
}

impl<L: Limiter> Gate<L> {
    /// A gate that asks `limiter`. It can be built outside a runtime.
    pub const fn new(limiter: L) -> Self {
        Self {
            limiter,
            timer: Timer::new(),
            begun: false,
        }
    }

    pub(super) fn waiting(limiter: L, precision: Precision) -> Self {
        Self {
            limiter,
            timer: precision.timer(),
            begun: false,
        }
    }

    /// Waits to the microsecond from now on: see [`Timer::precise`]. So does whoever waits through the same limiter.
    #[cfg(feature = "precise")]
    #[must_use]
    pub fn precise(mut self) -> Self {
        self.be_precise();
        self
    }

    #[cfg(feature = "precise")]
    pub(crate) fn be_precise(&mut self) {
        self.timer = Precision::BEST.timer();
        self.limiter.be_precise();
    }

    /// The limiter it asks.
    pub const fn limiter(&self) -> &L {
        &self.limiter
    }

    /// The limiter it asks.
    pub const fn limiter_mut(&mut self) -> &mut L {
        &mut self.limiter
    }

    /// Ready when `cost` permits have passed and are counted.
    ///
    /// # Errors
    ///
    /// At once if so many can never pass, or if the limit cannot be reached. Nothing was counted then.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime, or in one built without `enable_time`.
    #[inline]
    pub fn poll_pass(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PassError<L::Error>>> {
        self.poll_until_pass(L::poll_decide, cost, cx)
    }

    /// [`poll_pass`](Self::poll_pass) for one permit, which no limit refuses for ever.
    ///
    /// # Errors
    ///
    /// If the limit cannot be reached.
    ///
    /// # Panics
    ///
    /// If the limiter breaks the law that cost 1 is never [`Decision::Never`].
    #[inline]
    pub fn poll_one(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), L::Error>> {
        self.poll_pass(1, cx).map(never_refused)
    }

    /// Ready when one permit would pass. Nothing is counted, and it stands in line only while it waits.
    ///
    /// # Errors
    ///
    /// If the limit cannot be reached.
    ///
    /// # Panics
    ///
    /// As [`poll_one`](Self::poll_one) and [`poll_pass`](Self::poll_pass).
    pub fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), L::Error>> {
        self.poll_until_pass(L::poll_open, 1, cx).map(never_refused)
    }

    /// Leaves the line and stops to wait. The next question begins anew.
    pub fn give_up(&mut self) {
        self.limiter.give_up();
        self.timer.disarm();
    }

    /// Starts the limit's clock, once: an adapter calls it at every poll, before it has anything to ask for.
    #[inline]
    pub fn begin(&mut self, cx: &mut Context<'_>) {
        if !self.begun {
            self.begun = true;
            // Cost 0 uses nothing, and whether it was answered changes nothing.
            let _ = self.limiter.poll_try(0, cx);
        }
    }

    #[inline]
    fn poll_until_pass(
        &mut self,
        ask: Ask<L>,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PassError<L::Error>>> {
        match ask(&mut self.limiter, cost, cx) {
            // What is answered most.
            Poll::Ready(Ok(Decision::Pass)) if !self.timer.is_armed() => Poll::Ready(Ok(())),
            answer => self.poll_after(answer, ask, cost, cx),
        }
    }

    /// Goes on from an answer.
    fn poll_after(
        &mut self,
        mut answer: Poll<Result<Decision, L::Error>>,
        ask: Ask<L>,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PassError<L::Error>>> {
        loop {
            match ready!(answer).map_err(PassError::unreachable)? {
                Decision::Wait { retry_in } => self.timer.arm(retry_in),
                Decision::Pass => {
                    self.timer.disarm();
                    return Poll::Ready(Ok(()));
                }
                Decision::Never { capacity } => {
                    self.timer.disarm();
                    return Poll::Ready(Err(PassError::too_costly(cost, capacity)));
                }
            }
            ready!(self.timer.poll_elapsed(cx));
            answer = ask(&mut self.limiter, cost, cx);
        }
    }
}

/// A lent limiter outlives its gate, and must not go on standing in line for it.
impl<L: Limiter> Drop for Gate<L> {
    fn drop(&mut self) {
        self.limiter.give_up();
    }
}

/// What a limiter is asked: to let pass, or only to look.
type Ask<L> = fn(&mut L, u32, &mut Context<'_>) -> Poll<Result<Decision, <L as Limiter>::Error>>;

/// The answer for one permit.
fn never_refused<E>(passed: Result<(), PassError<E>>) -> Result<(), E> {
    passed.map_err(|refused| match refused.into_unreachable() {
        Ok(error) => error,
        Err(never) => panic!("a limiter must let cost 1 pass in the end, but: {never}"),
    })
}
