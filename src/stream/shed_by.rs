use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::concurrency::Admit;

use super::input::{PeekableInput, poll_taken};

pin_project! {
    /// Stream for the [`shed_by`](super::PaceStreamExt::shed_by) method: an item that a load shedder refuses is dropped and counted.
    ///
    /// ```
    /// # use {testkit::marble, paceline::{shed::{Class, WorkerUtilization}, stream::PaceStreamExt}};
    /// # use Class::{Critical, Sheddable};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let shedder = WorkerUtilization::new(|| 1.0).try_with_period(marble::TICK).unwrap();
    /// # let shedder = shedder.try_with_delay(marble::TICK * 2).unwrap().try_with_ramp(marble::TICK).unwrap();
    /// // overloaded from the start: after three ticks only critical items pass, which are capitals
    /// let input  = "a b c D (eF) g H |";
    /// let output = "a b c D F    - H |";
    /// # let class = |item: &char| if item.is_uppercase() { Critical } else { Sheddable(0) };
    /// # marble::check(|s| s.shed_by(shedder, class), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/shed_by.svg")]
    ///
    /// * **Emits** an item in the instant in which it arrives, if the shedder admits its class then. Other items are dropped, and
    ///   [`shed_count`](Self::shed_count) counts them.
    /// * **Waits** on the input only (and on the answer of a shedder that is not in memory; each poll asks the closure again
    ///   meanwhile).
    /// * **Ends** with the input.
    /// * **Holds** nothing while the shedder answers at once. Else it holds one item while the answer is under way, which the upper
    ///   bound of `size_hint` counts and [`into_parts`](Self::into_parts) returns.
    /// * **Cancel safety**: dropping `next()` loses no item, apart from those that are counted.
    ///
    /// # Shedders with a guard to hold
    ///
    /// A stream cannot know when the work on an item has ended. So the guard has to be `Copy`, which means that it holds nothing: `()`,
    /// as that of [`WorkerUtilization`](crate::shed::WorkerUtilization). That of a [`FleetUsage`](crate::shed::FleetUsage) is held
    /// while the work is under way, by hand:
    ///
    /// ```
    /// use futures::{StreamExt, stream};
    /// use paceline::shed::{Class, FleetUsage};
    ///
    /// # async fn handle(_: u32) { tokio::task::yield_now().await }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let usage = FleetUsage::new(2, 0);
    /// let jobs = stream::iter(0..5);
    /// jobs.for_each_concurrent(None, |job| {
    ///     let under_way = usage.admit(Class::Sheddable(0));
    ///     async move {
    ///         match under_way {
    ///             Some(_under_way) => handle(job).await,
    ///             None => println!("{job} is shed"),
    ///         }
    ///     }
    /// })
    /// .await;
    /// assert_eq!(usage.in_use().sheddable, 0);
    /// # }
    /// ```
    #[must_use = "streams do nothing unless polled"]
    pub struct ShedBy<S: Stream, A, F> {
        #[pin]
        input: PeekableInput<S>,
        shedder: A,
        class: F,
        dropped: u64,
    }
}

impl<S: Stream, A, F> ShedBy<S, A, F> {
    pub(super) const fn new(stream: S, shedder: A, class: F) -> Self {
        Self {
            input: PeekableInput::new(stream),
            shedder,
            class,
            dropped: 0,
        }
    }

    /// How many items were dropped.
    pub const fn shed_count(&self) -> u64 {
        self.dropped
    }

    /// The input, and the item that was waiting for its answer, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        self.input.into_parts()
    }
}

impl<S, C, A, F> Stream for ShedBy<S, A, F>
where
    S: Stream,
    A: Admit<C, Guard: Copy, Error = Infallible>,
    F: FnMut(&S::Item) -> C,
{
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut this = self.project();
        let mut taken = 0;
        loop {
            let Some(item) = ready!(this.input.as_mut().poll_peek(cx)) else {
                return Poll::Ready(None);
            };
            let class = (this.class)(item);
            let Ok(admitted) = ready!(this.shedder.poll_try_admit(class, cx));
            let item = this.input.as_mut().take();
            if admitted.is_some() {
                return Poll::Ready(item);
            }
            *this.dropped = this.dropped.saturating_add(1);
            ready!(poll_taken(&mut taken, cx));
        }
    }

    /// No item is certain to leave.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.input.size_hint().1)
    }
}

impl<S: Stream, A, F> FusedStream for ShedBy<S, A, F>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.input.is_terminated()
    }
}

impl<S, A, F> fmt::Debug for ShedBy<S, A, F>
where
    S: Stream + fmt::Debug,
    A: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShedBy")
            .field("input", &self.input)
            .field("shedder", &self.shedder)
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}
