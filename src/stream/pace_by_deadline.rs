use core::convert::Infallible;
use core::error::Error;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::collections::VecDeque;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::limiter::{Gate, Limiter};
use crate::time::{OutOfRange, Timer, instant};

use super::input::{PeekableInput, poll_taken, with_held};

pin_project! {
    /// Stream for the [`pace_by_deadline`](super::PaceStreamExt::pace_by_deadline) method: the item with the earliest deadline goes
    /// first, and one that cannot make it is given back as soon as that is known.
    ///
    /// ```
    /// # use {testkit::marble, paceline::{limiter::PolicyExt, policy::Interval, stream::PaceStreamExt}};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let limit = Interval::every(marble::TICK * 2).owned();
    /// # let start = tokio::time::Instant::now();
    /// # let deadline = move |item: &char| start + marble::TICK * item.to_digit(10).unwrap();
    /// // two ticks apart; the digit is the tick by which an item has to leave, and X one that cannot
    /// let input  = "(9611) - - - - |";
    /// let output = "(X1)   - 6 - 9 |";
    /// # marble::check(|s| s.pace_by_deadline(limit, deadline, 10), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/pace_by_deadline.svg")]
    ///
    /// * **Emits** `Ok(item)` when the limiter grants a permit: of the items held the one with the earliest deadline, of equal ones
    ///   the first that came. It is never emitted after its deadline.
    /// * **Waits** on the input while there is room, and on the limiter while it holds items.
    /// * **Ends** when the input has ended and all items held have left.
    /// * **Fails** with [`Late`] for an item that cannot make its deadline: the items that go before it, and the requests of others that
    ///   are queued, leave no permit for it in time, even if each passes as early as it can. The error contains the item. The stream
    ///   goes on after it. Of the limit of a key, one with classes, newest first or by deadline, a limiter around a limit, or one in
    ///   Redis, this is known only when the deadline is over. A refund, a reset, new parameters or a request that gives up could have
    ///   saved an item that was given back early. A pause is noticed when the next permit was due.
    /// * **Holds** at most `held` items, which `size_hint` counts and [`into_parts`](Self::into_parts) returns by deadline. While
    ///   there is no room the input is not polled, and a more urgent item waits there: so `held` has to be more than the items that can
    ///   wait, and an item that can wait needs a deadline too, such as an hour from now.
    /// * **Cancel safety**: dropping `next()` loses nothing; the items stay held. The function is called once an item, and again after
    ///   a panic.
    ///
    /// No order that leaves no permit unused while an item waits meets more deadlines; and if one of them meets all, this does. (An
    /// order that knows what will come, and leaves a permit unused for it, can meet more.)
    ///
    /// Each item costs 1. For other costs ask a limit with [`acquire_by`](crate::limiter::Shared::acquire_by)`(cost, deadline)` in a
    /// future for each item.
    ///
    /// An item that arrives is compared with those held that go after it.
    ///
    /// **Window bound**: that of the limiter's policy, counted in `Ok`s.
    #[must_use = "streams do nothing unless polled"]
    pub struct PaceByDeadline<S: Stream, L: Limiter, F> {
        #[pin]
        input: PeekableInput<S>,
        gate: Gate<L>,
        deadline_of: F,
        max: usize,
        held: VecDeque<(Instant, S::Item)>,
        // When the next permits come, at the earliest.
        permits: VecDeque<Instant>,
        // How many of the items held can make it, as far as is known.
        checked: usize,
        // Armed for the first deadline.
        timer: Timer,
        timed: Option<Instant>,
    }
}

impl<S: Stream, L: Limiter, F> PaceByDeadline<S, L, F> {
    /// The same as [`pace_by_deadline`](super::PaceStreamExt::pace_by_deadline), for a size from a configuration.
    ///
    /// # Errors
    ///
    /// If `held` is zero.
    pub fn try_new(stream: S, limiter: L, deadline_of: F, held: usize) -> Result<Self, OutOfRange> {
        if held == 0 {
            return Err(OutOfRange::new(
                "held",
                "pacing by deadline needs room for at least 1 item, got 0",
            ));
        }
        Ok(Self {
            input: PeekableInput::new(stream),
            gate: Gate::new(limiter),
            deadline_of,
            max: held,
            held: VecDeque::new(),
            permits: VecDeque::new(),
            checked: 0,
            timer: Timer::new(),
            timed: None,
        })
    }

    /// The input, and the items that were waiting for a permit, the earliest deadline first.
    pub fn into_parts(self) -> (S, Vec<S::Item>) {
        let (stream, last) = self.input.into_parts();
        let held = self.held.into_iter().map(|(_, item)| item);
        (stream, held.chain(last).collect())
    }
}

impl<S, L, F> PaceByDeadline<S, L, F>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
    F: FnMut(&S::Item) -> Instant,
{
    /// Takes the items that have arrived, while there is room.
    fn collect(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let mut this = self.project();
        let mut taken = 0;
        while this.held.len() < *this.max {
            let Poll::Ready(Some(item)) = this.input.as_mut().poll_peek(cx) else {
                break;
            };
            let deadline = (this.deadline_of)(item);
            let Some(item) = this.input.as_mut().take() else {
                break;
            };
            let place = this.held.partition_point(|(other, _)| *other <= deadline);
            this.held.insert(place, (deadline, item));
            *this.checked = place.min(*this.checked);
            if poll_taken(&mut taken, cx).is_pending() {
                break;
            }
        }
    }

    /// Gives back the first item that cannot make its deadline.
    fn late(self: Pin<&mut Self>) -> Option<Late<S::Item>> {
        let this = self.project();
        let (first, _) = this.held.front()?;
        let now = instant();
        let next = this.gate.limiter().foresee(1);
        let next = next.first().map_or(now, |next| now.max(*next));
        if *first < next {
            *this.checked = this.checked.saturating_sub(1);
            return take_late(this.held, 0);
        }
        let foreseen = this.permits.front();
        if foreseen.is_some_and(|permit| next < *permit || now.max(*permit) + SAME <= next) {
            this.permits.clear();
            *this.checked = 0;
        }
        let unchecked = this.held.len() - *this.checked;
        if unchecked > 0 && this.permits.len() < this.held.len() {
            *this.permits = this.gate.limiter().foresee(2 * this.held.len()).into();
        }
        let unchecked = this.held.iter().zip(this.permits.iter());
        let mut unchecked = unchecked.skip(*this.checked);
        if let Some(late) = unchecked.position(|((deadline, _), permit)| deadline < permit) {
            *this.checked += late;
            return take_late(this.held, *this.checked);
        }
        *this.checked = this.held.len();
        None
    }
}

fn take_late<T>(held: &mut VecDeque<(Instant, T)>, place: usize) -> Option<Late<T>> {
    let (deadline, item) = held.remove(place)?;
    Some(Late { item, deadline })
}

/// Permits that come later than foreseen by less than this are foreseen still: each is a little late.
const SAME: Duration = Duration::from_millis(1);

impl<S, L, F> Stream for PaceByDeadline<S, L, F>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
    F: FnMut(&S::Item) -> Instant,
{
    type Item = Result<S::Item, Late<S::Item>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.as_mut().project().gate.begin(cx);
        self.as_mut().collect(cx);
        loop {
            if let Some(late) = self.as_mut().late() {
                return Poll::Ready(Some(Err(late)));
            }
            let this = self.as_mut().project();
            let Some((deadline, _)) = this.held.front() else {
                this.gate.give_up();
                let is_over = this.input.is_terminated();
                return if is_over {
                    Poll::Ready(None)
                } else {
                    Poll::Pending
                };
            };
            if let Poll::Ready(Ok(())) = this.gate.poll_one(cx) {
                this.permits.pop_front();
                *this.checked = this.checked.saturating_sub(1);
                let first = this.held.pop_front();
                return Poll::Ready(first.map(|(_, item)| Ok(item)));
            }
            if *this.timed != Some(*deadline) {
                *this.timed = Some(*deadline);
                let left = deadline.saturating_duration_since(instant());
                this.timer.arm(left.saturating_add(Duration::from_nanos(1)));
            }
            ready!(this.timer.poll_elapsed(cx));
            *this.timed = None;
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        with_held(self.input.size_hint(), self.held.len())
    }
}

impl<S: Stream, L: Limiter, F> FusedStream for PaceByDeadline<S, L, F>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.input.is_terminated() && self.held.is_empty()
    }
}

/// Does not print the items held: they may be secret, and they may be large.
impl<S, L, F> fmt::Debug for PaceByDeadline<S, L, F>
where
    S: Stream + fmt::Debug,
    L: Limiter + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceByDeadline")
            .field("input", &self.input)
            .field("gate", &self.gate)
            .field("max", &self.max)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

/// The item cannot make its deadline. It is given back, not lost.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Late<T> {
    item: T,
    deadline: Instant,
}

impl<T> Late<T> {
    /// The item that was refused.
    pub fn into_item(self) -> T {
        self.item
    }

    /// The deadline of the item, which may be still to come.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// Does not ask `T: Debug`, and does not print the item: it may be secret, and it may be large.
impl<T> fmt::Debug for Late<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Late<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the item cannot pass before its deadline")
    }
}

impl<T> Error for Late<T> {}
