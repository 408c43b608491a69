use core::cell::Cell;
use core::task::{Context, Poll, ready};

use tokio::task::coop::poll_proceed;

use crate::policy::Decision;
use crate::time::Timer;

use super::{AcquireError, Answer, Limiter};

/// The only loop that waits for a limit: ask, sleep, ask.
///
/// It asks whenever it is polled, so that a waiter feels at once what was changed on the limit meanwhile. A timer that has elapsed
/// is done with before it asks, so that hardly anything is left between the clock reading that counts and the caller.
///
/// It takes part in tokio's cooperative scheduling: a task whose requests all pass at once yields after about 2,000 of them.
/// Nothing is counted while it yields.
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
/// Nothing is counted before it is ready. A gate that is dropped leaves the queue.
#[derive(Debug)]
pub struct Gate<L: Limiter> {
    limiter: L,
    /// Made when it first has to wait.
    timer: Option<Timer>,
    begun: bool,
}

impl<L: Limiter> Gate<L> {
    /// A gate that asks `limiter`, and waits as exactly as that one's [`resolution`](Limiter::resolution) says. It can be
    /// built outside a runtime.
    pub const fn new(limiter: L) -> Self {
        Self {
            limiter,
            timer: None,
            begun: false,
        }
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
    /// At once if that many can never pass, or if the limit cannot be reached. Nothing was counted then.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime, or in one built without `enable_time`.
    #[expect(
        clippy::inline_always,
        reason = "a quarter of what an element of a stream costs that need not wait"
    )]
    #[inline(always)]
    pub fn poll_pass(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), AcquireError<L::Error>>> {
        ready!(poll_turn(cx));
        let is_asleep = self.is_asleep(cx);
        match self.limiter.poll_decide(cost, cx) {
            // The most frequent answer.
            Poll::Ready(Ok(Decision::Pass)) if !is_asleep => Poll::Ready(Ok(())),
            answer => self.poll_wait(answer, is_asleep, L::poll_decide, cost, cx),
        }
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

    /// Ready when one permit would pass. Nothing is counted, and it is queued only while it waits.
    ///
    /// # Errors
    ///
    /// If the limit cannot be reached.
    ///
    /// # Panics
    ///
    /// As [`poll_one`](Self::poll_one) and [`poll_pass`](Self::poll_pass).
    pub fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), L::Error>> {
        ready!(poll_turn(cx));
        let is_asleep = self.is_asleep(cx);
        let answer = self.limiter.poll_open(1, cx);
        self.poll_wait(answer, is_asleep, L::poll_open, 1, cx)
            .map(never_refused)
    }

    /// The answer to one permit now.
    #[inline]
    pub(crate) fn poll_try(&mut self, cx: &mut Context<'_>) -> Answer<L::Error> {
        ready!(poll_turn(cx));
        self.limiter.poll_try(1, cx)
    }

    /// Leaves the queue and stops waiting. The next request begins anew.
    pub fn give_up(&mut self) {
        self.limiter.give_up();
        self.disarm();
    }

    /// Starts the limit's clock, once: an adapter calls it at every poll, before it has anything to ask for.
    #[inline]
    pub fn begin(&mut self, cx: &mut Context<'_>) {
        if !self.begun {
            self.start(cx);
        }
    }

    #[cold]
    #[inline(never)]
    fn start(&mut self, cx: &mut Context<'_>) {
        self.begun = true;
        // Cost 0 uses nothing, and whether it was answered changes nothing.
        let _ = self.limiter.poll_try(0, cx);
    }

    /// Whether the timer has still to elapse. One that has elapsed has nothing to do any more after the limiter has passed.
    #[inline]
    fn is_asleep(&mut self, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.as_mut();
        timer.is_some_and(|timer| timer.poll_elapsed(cx).is_pending())
    }

    /// Goes on from an answer. Out of line: most requests pass at once.
    #[cold]
    #[inline(never)]
    fn poll_wait(
        &mut self,
        mut answer: Answer<L::Error>,
        is_asleep: bool,
        ask: Ask<L>,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), AcquireError<L::Error>>> {
        loop {
            let retry_in = match ready!(answer).map_err(AcquireError::of_limit)? {
                Decision::Wait { retry_in } => retry_in,
                Decision::Pass => {
                    self.disarm();
                    return Poll::Ready(Ok(()));
                }
                Decision::Never { capacity } => {
                    self.disarm();
                    return Poll::Ready(Err(self.limiter.too_costly(cost, capacity).into()));
                }
            };
            let limiter = &self.limiter;
            let timer = self
                .timer
                .get_or_insert_with(|| Timer::new().with_resolution(limiter.resolution()));
            let is_same_wait = !timer.rearm(retry_in);
            if is_same_wait && is_asleep {
                return Poll::Pending;
            }
            ready!(timer.poll_elapsed(cx));
            answer = ask(&mut self.limiter, cost, cx);
        }
    }

    fn disarm(&mut self) {
        self.timer.iter_mut().for_each(Timer::disarm);
    }
}

/// One request in so many takes a step of its task's budget: a step costs as much as a pass.
const REQUESTS_PER_STEP: u8 = 16;

thread_local! {
    /// The requests since the last step.
    static REQUESTS: Cell<u8> = const { Cell::new(0) };
}

/// Ready unless other tasks of the thread should have their turn first.
#[inline]
pub(crate) fn poll_turn(cx: &mut Context<'_>) -> Poll<()> {
    let requests = REQUESTS.get() + 1;
    if requests == REQUESTS_PER_STEP {
        return poll_step(cx);
    }
    REQUESTS.set(requests);
    Poll::Ready(())
}

/// Without a budget every further request of the task is pending, too, or a set of futures would go on with the others.
#[inline(never)]
fn poll_step(cx: &mut Context<'_>) -> Poll<()> {
    ready!(poll_proceed(cx)).made_progress();
    REQUESTS.set(0);
    Poll::Ready(())
}

/// A lent limiter outlives its gate, and must not stay queued for it.
impl<L: Limiter> Drop for Gate<L> {
    fn drop(&mut self) {
        self.limiter.give_up();
    }
}

/// The question to a limiter: to pass now, or whether a request would pass.
type Ask<L> = fn(&mut L, u32, &mut Context<'_>) -> Answer<<L as Limiter>::Error>;

/// The answer for one permit.
fn never_refused<E>(passed: Result<(), AcquireError<E>>) -> Result<(), E> {
    passed.map_err(|refused| match refused.into_limit() {
        Ok(error) => error,
        Err(never) => panic!("a limiter must let cost 1 pass in the end, but: {never}"),
    })
}
