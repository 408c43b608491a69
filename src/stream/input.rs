use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use pin_project_lite::pin_project;

/// How many items one poll takes from the input before other tasks of the thread run.
const ITEMS_PER_POLL: u32 = 128;

pin_project! {
    /// The input of an adapter. It is not polled after its end.
    #[derive(Debug)]
    pub(super) struct Input<S> {
        #[pin]
        stream: S,
        ended: bool,
    }
}

impl<S> Input<S> {
    pub(super) const fn new(stream: S) -> Self {
        Self {
            stream,
            ended: false,
        }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }

    pub(super) const fn is_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn poll_unless_ended<T>(
        self: Pin<&mut Self>,
        poll: impl FnOnce(Pin<&mut S>) -> Poll<Option<T>>,
    ) -> Poll<Option<T>> {
        let this = self.project();
        if *this.ended {
            return Poll::Ready(None);
        }
        let next = poll(this.stream);
        *this.ended = matches!(next, Poll::Ready(None));
        next
    }
}

impl<S: Stream> Stream for Input<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.poll_unless_ended(|stream| stream.poll_next(cx))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.ended {
            return (0, Some(0));
        }
        self.stream.size_hint()
    }
}

pin_project! {
    /// An input and the one item that was taken from it and has not left the adapter.
    pub(super) struct PeekableInput<S: Stream> {
        #[pin]
        input: Input<S>,
        held: Option<S::Item>,
    }
}

impl<S: Stream> PeekableInput<S> {
    pub(super) const fn new(stream: S) -> Self {
        Self {
            input: Input::new(stream),
            held: None,
        }
    }

    /// The item held, or the next item of the input, which is held from now on. `None` after the last item.
    pub(super) fn poll_peek(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<&mut S::Item>> {
        let this = self.project();
        if this.held.is_none() {
            *this.held = ready!(this.input.poll_next(cx));
        }
        Poll::Ready(this.held.as_mut())
    }

    /// Takes the item held out of the adapter.
    pub(super) fn take(self: Pin<&mut Self>) -> Option<S::Item> {
        self.project().held.take()
    }

    pub(super) const fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Whether the input has ended and nothing is held.
    pub(super) const fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.held.is_none()
    }

    /// How many items are still to come, with the one held.
    pub(super) fn size_hint(&self) -> (usize, Option<usize>) {
        with_held(self.input.size_hint(), usize::from(self.is_holding()))
    }

    pub(super) fn into_parts(self) -> (S, Option<S::Item>) {
        (self.input.into_inner(), self.held)
    }
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S: Stream + fmt::Debug> fmt::Debug for PeekableInput<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeekableInput")
            .field("input", &self.input)
            .field("held", &usize::from(self.is_holding()))
            .finish()
    }
}

/// The `size_hint` of an adapter that holds `held` items, each of which leaves on its own.
pub(super) fn with_held(
    (lower, upper): (usize, Option<usize>),
    held: usize,
) -> (usize, Option<usize>) {
    (
        lower.saturating_add(held),
        upper.and_then(|upper| upper.checked_add(held)),
    )
}

/// The `size_hint` of an adapter that makes groups of at most `max` items, and holds `held` items of one group.
pub(super) fn in_groups(
    (lower, upper): (usize, Option<usize>),
    held: usize,
    max: usize,
) -> (usize, Option<usize>) {
    (
        lower.saturating_add(held).div_ceil(max),
        upper.and_then(|upper| upper.checked_add(usize::from(held > 0))),
    )
}

/// Counts an item that this poll takes. Pending once a poll has taken many: the task is woken already, and is to return so that
/// others run. So an input that is never pending does not keep the thread to itself.
pub(super) fn poll_taken(taken: &mut u32, cx: &Context<'_>) -> Poll<()> {
    *taken += 1;
    if *taken >= ITEMS_PER_POLL {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}
