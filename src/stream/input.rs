use core::pin::Pin;
use core::task::{Context, Poll};

use futures_core::{Stream, TryStream};
use pin_project_lite::pin_project;

/// How many items an adapter that collects takes from its input before it lets other tasks run.
const AT_ONCE: u32 = 128;

pin_project! {
    /// The input of an adapter: never polled after its end.
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

    fn poll_unless_ended<T>(
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

impl<S: TryStream> Input<S> {
    /// `poll_next`, for those who have to know that the item is a `Result`.
    pub(super) fn poll_try_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<S::Ok, S::Error>>> {
        self.poll_unless_ended(|stream| stream.try_poll_next(cx))
    }
}

impl<S: Stream> Input<S> {
    /// What is still to come when `held` items wait that each leave on their own.
    pub(super) fn size_hint_with(&self, held: usize) -> (usize, Option<usize>) {
        let (lower, upper) = self.size_hint();
        (
            lower.saturating_add(held),
            upper.and_then(|upper| upper.checked_add(held)),
        )
    }

    /// How many groups of at most `max` are still to come when `held` items wait in one.
    pub(super) fn size_hint_in_groups(&self, held: usize, max: u64) -> (usize, Option<usize>) {
        let (lower, upper) = self.size_hint();
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        (
            lower.saturating_add(held).div_ceil(max),
            upper.and_then(|upper| upper.checked_add(usize::from(held > 0))),
        )
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

/// Counts the items taken in one poll, so that an input which is never pending does not keep the thread for itself.
pub(super) struct Turn {
    left: u32,
}

impl Turn {
    pub(super) const fn new() -> Self {
        Self { left: AT_ONCE }
    }

    /// One more was taken. Pending, with the task awake, when it is time for others to run.
    pub(super) fn poll_go_on(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}
