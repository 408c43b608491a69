//! Futures and streams polled by hand, with a waker that counts.
//!
//! A `Pending` is a promise that the task will be woken. Here a test can check whether a clone of the waker still exists.

use std::{
    fmt,
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_core::Stream;
use pin_project_lite::pin_project;
use tokio::task::unconstrained;

/// A waker, and the count of its wakes.
#[must_use]
pub fn counter() -> (Waker, Wakes) {
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&counter));
    (waker, Wakes { counter })
}

/// The state of a waker from [`counter`].
#[derive(Debug)]
pub struct Wakes {
    counter: Arc<Counter>,
}

impl Wakes {
    /// How often the waker or a clone of it was woken.
    #[must_use]
    pub fn count(&self) -> usize {
        self.counter.count.load(Ordering::SeqCst)
    }

    /// Whether a clone of the waker exists besides the one of the test.
    ///
    /// Keep the waker that [`counter`] returned while you call this: it is not counted.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        Arc::strong_count(&self.counter) > 2
    }

    /// Waits until the count is above `seen`.
    async fn above(&self, seen: usize) {
        poll_fn(|cx| {
            *self.counter.watcher() = Some(cx.waker().clone());
            if self.count() > seen {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }
}

/// Polls as the task of its own that it stands for: without the budget of the test's task, which stands for many.
fn as_a_task<R>(poll: impl FnOnce() -> R) -> R {
    let mut poll = Some(poll);
    let once = poll_fn(|_| {
        poll.take()
            .map_or(Poll::Pending, |poll| Poll::Ready(poll()))
    });
    match pin!(unconstrained(once)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(polled) => polled,
        Poll::Pending => unreachable!("it is polled once"),
    }
}

#[derive(Debug, Default)]
struct Counter {
    count: AtomicUsize,
    /// The waker of the test's task, if the test waits for a wake.
    watcher: Mutex<Option<Waker>>,
}

impl Counter {
    fn watcher(&self) -> MutexGuard<'_, Option<Waker>> {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let watcher = self.watcher().take();
        if let Some(watcher) = watcher {
            watcher.wake();
        }
    }
}

/// A future, stream or sink driven by hand, with a waker that counts.
pub struct Driven<T> {
    inner: Pin<Box<T>>,
    waker: Waker,
    wakes: Wakes,
    /// The count of wakes at the last poll.
    seen: usize,
    /// The tasks it was in before, and how often each had been woken when it was left.
    earlier: Vec<(Wakes, usize)>,
}

impl<T> Driven<T> {
    /// Boxes and pins `inner`. Only the test polls it.
    pub fn new(inner: T) -> Self {
        let (waker, counted) = counter();
        Self {
            inner: Box::pin(inner),
            waker,
            wakes: counted,
            seen: 0,
            earlier: Vec::new(),
        }
    }

    /// Returns what was driven.
    #[must_use]
    pub fn into_inner(self) -> T
    where
        T: Unpin,
    {
        *Pin::into_inner(self.inner)
    }

    /// Returns what was driven, still pinned.
    #[must_use]
    pub fn into_pin(self) -> Pin<Box<T>> {
        self.inner
    }

    /// Polls by a closure: for the methods of a sink, or other poll methods.
    pub fn poll_with<R>(&mut self, poll: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> R) -> R {
        self.seen = self.wakes.count();
        let (inner, waker) = (self.inner.as_mut(), &self.waker);
        as_a_task(|| poll(inner, &mut Context::from_waker(waker)))
    }

    /// Polls the future once.
    pub fn poll(&mut self) -> Poll<T::Output>
    where
        T: Future,
    {
        self.poll_with(T::poll)
    }

    /// Polls the stream once.
    pub fn poll_next(&mut self) -> Poll<Option<T::Item>>
    where
        T: Stream,
    {
        self.poll_with(T::poll_next)
    }

    /// Moves it to another task: from the next poll on, another waker is the one to wake.
    pub fn change_task(&mut self) {
        let (waker, counted) = counter();
        self.waker = waker;
        let left = mem::replace(&mut self.wakes, counted);
        let count = left.count();
        self.earlier.push((left, count));
        self.seen = 0;
    }

    /// Waits until it was woken since its last poll.
    pub async fn woken(&self) {
        self.wakes.above(self.seen).await;
    }

    /// Whether it was woken since its last poll began.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.wakes.count() > self.seen
    }

    /// How often it was woken in all.
    #[must_use]
    pub fn wakes(&self) -> usize {
        let earlier = self.earlier.iter().map(|(wakes, _)| wakes.count());
        self.wakes.count() + earlier.sum::<usize>()
    }

    /// Whether a clone of the current task's waker exists, so that the task can still be woken.
    #[must_use]
    pub fn is_waker_kept(&self) -> bool {
        self.wakes.is_kept()
    }

    /// Whether a task was woken after it had been left.
    pub(crate) fn is_earlier_task_woken(&self) -> bool {
        self.earlier
            .iter()
            .any(|(wakes, count)| wakes.count() > *count)
    }

    /// Borrows what is driven.
    #[must_use]
    pub fn get(&self) -> &T {
        &self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for Driven<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven")
            .field("inner", &self.inner)
            .field("is_woken", &self.is_woken())
            .field("is_waker_kept", &self.is_waker_kept())
            .finish_non_exhaustive()
    }
}

/// Counts how often the future is polled, also in a task of its own.
pub fn count_polls<F: Future>(future: F) -> CountPolls<F> {
    CountPolls {
        future,
        polls: Polls::default(),
    }
}

pin_project! {
    /// Future for the [`count_polls`] function.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct CountPolls<F> {
        #[pin]
        future: F,
        polls: Polls,
    }
}

impl<F> CountPolls<F> {
    /// The count, to be kept when the future goes to its task.
    pub fn polls(&self) -> Polls {
        self.polls.clone()
    }
}

impl<F: Future> Future for CountPolls<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.polls.count.fetch_add(1, Ordering::SeqCst);
        this.future.poll(cx)
    }
}

/// How often a [`CountPolls`] was polled.
#[derive(Clone, Debug, Default)]
pub struct Polls {
    count: Arc<AtomicUsize>,
}

impl Polls {
    /// The polls so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}
