use core::fmt;
use core::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use core::task::Poll;
use core::time::Duration;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::thread;

use crate::policy::Decision;
use crate::time::{Clock, Tick};

use super::observer::{Event, Observer};
use super::{Answer, Method};

/// Turns the answers to one handle into events: for [`Observed`](super::Observed), and for a limit that carries its observer.
pub(crate) struct HandleEvents<O> {
    observer: O,
    clock: Clock,
    /// Since when its request is queued.
    since: Option<Tick>,
}

impl<O> HandleEvents<O> {
    pub(crate) const fn new(observer: O) -> Self {
        Self {
            observer,
            clock: Clock::new(),
            since: None,
        }
    }

    pub(crate) const fn observer(&self) -> &O {
        &self.observer
    }
}

impl<O: Observer> HandleEvents<O> {
    /// Reports what the limiter answered to this method. `shadowed`: see [`Limiter`](super::Limiter::shadowed).
    pub(crate) fn answered<E>(
        &mut self,
        method: Method,
        cost: u32,
        answer: &Answer<E>,
        shadowed: Option<Decision>,
    ) {
        let decision = match answer {
            _ if cost == 0 => return,
            Poll::Ready(Err(_)) => return,
            Poll::Ready(Ok(decision)) => Some(*decision),
            Poll::Pending => None,
        };
        match (method, decision) {
            // A handle that was queued stays queued for its next request.
            (Method::Try, Some(Decision::Wait { retry_in })) => {
                self.observer.observe(Event::Refused { cost, retry_in });
            }
            // The answer is under way, or the request has not passed yet and has been waiting for it.
            (Method::Try, None) | (Method::Open, Some(Decision::Pass)) => {}
            (_, None | Some(Decision::Wait { .. })) => self.waits(),
            (_, Some(decision)) => self.decided(cost, decision, shadowed),
        }
    }

    /// Its request has left the queue, if it was queued.
    pub(crate) fn gave_up(&mut self) {
        if self.since.is_some() {
            let waited = self.waited();
            self.observer.observe(Event::GaveUp { waited });
        }
    }

    /// Its request is queued.
    pub(crate) fn waits(&mut self) {
        if self.since.is_none() {
            self.since = Some(self.clock.now());
            self.observer.queued();
        }
    }

    /// Reports the last answer to a request, which is not queued any more.
    pub(crate) fn decided(&mut self, cost: u32, decision: Decision, shadowed: Option<Decision>) {
        let waited = self.waited();
        let event = Event::of(cost, decision, shadowed, waited);
        self.observer.observe(event);
    }

    /// How long it was queued, now that it is no more.
    fn waited(&mut self) -> Duration {
        let Some(since) = self.since.take() else {
            return Duration::ZERO;
        };
        self.observer.dequeued();
        self.clock.now().since(since)
    }
}

/// The observer that a limit carries: one for all its handles.
#[derive(Clone)]
pub(crate) struct SharedObserver(Arc<dyn Report>);

// A panic of an observer leaves the limit as it was.
impl UnwindSafe for SharedObserver {}
impl RefUnwindSafe for SharedObserver {}

impl SharedObserver {
    pub(crate) fn new<O>(observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        Self(Arc::new(observer))
    }

    #[cold]
    pub(crate) fn report(&self, event: Event) {
        contained_in_unwind(|| self.0.report(event));
    }

    /// Reports the answer to a request that did not wait.
    #[cold]
    pub(crate) fn report_try(&self, cost: u32, decision: Decision, shadowed: Option<Decision>) {
        if cost > 0 {
            self.report(Event::of(cost, decision, shadowed, Duration::ZERO));
        }
    }
}

impl Observer for SharedObserver {
    fn observe(&mut self, event: Event) {
        self.report(event);
    }

    fn queued(&mut self) {
        self.0.queued();
    }

    fn dequeued(&mut self) {
        contained_in_unwind(|| self.0.dequeued());
    }
}

/// Runs foreign code that a destructor calls. If it panics while the thread unwinds, the panic goes no further: it would end the
/// program.
pub(crate) fn contained_in_unwind(work: impl FnOnce()) {
    if thread::panicking() {
        let _ = catch_unwind(AssertUnwindSafe(work));
    } else {
        work();
    }
}

/// What a handle of a limit keeps to report to the [`Observer`] that the limit carries: for a limiter of your own, in memory or on a
/// server.
///
/// It knows whether the request of its handle is queued, and for how long. Without an observer it reports nothing, and costs one
/// check. A clone is for another handle: it has the same observer, and no request.
///
/// Tell it when a request waits (in [`poll_decide`](super::Limiter::poll_decide)), how a request was decided (in
/// [`poll_try`](super::Limiter::poll_try) a wait is a refusal), and when a request is given up.
///
/// ```
/// use core::task::{Context, Poll};
/// use paceline::limiter::{Event, Limiter, LimiterExt, Reporter};
/// use paceline::policy::Decision;
/// use std::convert::Infallible;
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// /// Passes what costs at most 5.
/// #[derive(Clone)]
/// struct Small(Reporter);
///
/// impl Limiter for Small {
///     type Error = Infallible;
///
///     fn poll_decide(&mut self, cost: u32, _: &mut Context<'_>) -> Poll<Result<Decision, Infallible>> {
///         let decision = match cost {
///             0..=5 => Decision::Pass,
///             _ => Decision::Never { capacity: 5 },
///         };
///         // One that answers with a wait calls `self.0.waits()`, and in `poll_try` this.
///         self.0.decided(cost, decision);
///         Poll::Ready(Ok(decision))
///     }
///
///     fn give_up(&mut self) {
///         self.0.gave_up();
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let (sender, events) = mpsc::channel();
/// let limit = Small(Reporter::new(move |event: Event| sender.send(event).unwrap()));
/// assert!(limit.try_acquire(3).await.is_pass());
/// assert!(matches!(events.try_recv(), Ok(Event::Passed { cost: 3, .. })));
///
/// limit.0.report(Event::paused(Duration::from_secs(2)));
/// assert!(matches!(events.try_recv(), Ok(Event::Paused { .. })));
/// # }
/// ```
#[derive(Default)]
pub struct Reporter(Option<Box<HandleEvents<SharedObserver>>>);

impl Reporter {
    /// It has no observer.
    pub const NONE: Self = Self(None);

    /// Reports to `observer`.
    #[must_use]
    pub fn new<O>(observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        Self::of(Some(&SharedObserver::new(observer)))
    }

    #[inline]
    pub(crate) fn of(observer: Option<&SharedObserver>) -> Self {
        observer.map_or(Self::NONE, Self::of_shared)
    }

    #[cold]
    fn of_shared(observer: &SharedObserver) -> Self {
        Self(Some(Box::new(HandleEvents::new(observer.clone()))))
    }

    #[inline]
    pub(crate) fn observer(&self) -> Option<&SharedObserver> {
        self.0.as_deref().map(HandleEvents::observer)
    }

    /// Reports a change of the limit: a pause, other parameters.
    pub fn report(&self, event: Event) {
        if let Some(observer) = self.observer() {
            observer.report(event);
        }
    }

    /// The request of the handle waits, if it did not before.
    #[inline]
    pub fn waits(&mut self) {
        if self.0.is_some() {
            self.with(HandleEvents::waits);
        }
    }

    /// The request of the handle was decided, and waits no more: a [`Decision::Wait`] is a refusal. For a request of cost 0 there is
    /// nothing to report.
    #[inline]
    pub fn decided(&mut self, cost: u32, decision: Decision) {
        if self.0.is_some() && cost > 0 {
            self.with(|events| events.decided(cost, decision, None));
        }
    }

    /// The request of the handle was given up, if it has waited.
    #[inline]
    pub fn gave_up(&mut self) {
        if self.0.is_some() {
            self.with(HandleEvents::gave_up);
        }
    }

    /// Reports an answer: see [`HandleEvents::answered`].
    #[inline]
    pub(crate) fn answered(
        &mut self,
        method: Method,
        cost: u32,
        answer: &Answer,
        shadowed: Option<Decision>,
    ) {
        if self.0.is_some() {
            self.with(|events| events.answered(method, cost, answer, shadowed));
        }
    }

    /// Its request has left the queue, since its permits would come too late.
    pub(crate) fn too_late(&mut self, cost: u32, retry_in: Option<Duration>) {
        let retry_in = retry_in.unwrap_or_default();
        self.decided(cost, Decision::Wait { retry_in });
    }

    /// Out of line: most limits have no observer.
    #[cold]
    #[inline(never)]
    fn with(&mut self, report: impl FnOnce(&mut HandleEvents<SharedObserver>)) {
        if let Some(events) = &mut self.0 {
            report(events);
        }
    }
}

/// For another handle.
impl Clone for Reporter {
    #[inline]
    fn clone(&self) -> Self {
        Self::of(self.observer())
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reporter").finish_non_exhaustive()
    }
}

/// The observer that a limit for each key carries.
pub(crate) enum KeyedObserver<K> {
    /// It does not get the key.
    Same(SharedObserver),
    /// Makes an observer that knows the key.
    ByKey(AssertUnwindSafe<Arc<dyn Fn(K) -> SharedObserver + Send + Sync>>),
}

impl<K> KeyedObserver<K> {
    pub(crate) fn same<O>(observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        Self::Same(SharedObserver::new(observer))
    }

    pub(crate) fn by_key(observer: impl Fn(&K, Event) + Send + Sync + 'static) -> Self
    where
        K: Send + Sync + 'static,
    {
        let observer = Arc::new(observer);
        Self::ByKey(AssertUnwindSafe(Arc::new(move |key| {
            let observer = Arc::clone(&observer);
            SharedObserver::new(move |event: Event| observer(&key, event))
        })))
    }

    pub(crate) fn of(&self, key: impl FnOnce() -> K) -> SharedObserver {
        match self {
            Self::Same(observer) => observer.clone(),
            Self::ByKey(observer_of) => observer_of(key()),
        }
    }
}

/// An [`Observer`] that many handles use at once.
trait Report: Send + Sync {
    fn report(&self, event: Event);

    fn queued(&self);

    fn dequeued(&self);
}

impl<O> Report for O
where
    O: Send + Sync,
    for<'a> &'a O: Observer,
{
    fn report(&self, event: Event) {
        Observer::observe(&mut &*self, event);
    }

    fn queued(&self) {
        Observer::queued(&mut &*self);
    }

    fn dequeued(&self) {
        Observer::dequeued(&mut &*self);
    }
}
