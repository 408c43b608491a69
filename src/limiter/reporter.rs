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
pub(crate) struct Reporter<O> {
    observer: O,
    clock: Clock,
    /// Since when its request is queued.
    since: Option<Tick>,
}

impl<O> Reporter<O> {
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

impl<O: Observer> Reporter<O> {
    /// Reports what the limiter answered to this method. `shadowed`: see [`Limiter`](super::Limiter::shadowed).
    pub(crate) fn answered<E>(
        &mut self,
        method: Method,
        cost: u32,
        answer: &Poll<Result<Decision, E>>,
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

/// What a handle keeps if it is observed: nothing otherwise, so that a limit without an observer pays for one check.
#[derive(Default)]
pub(crate) struct Watch(Option<Box<Reporter<SharedObserver>>>);

impl Watch {
    pub(crate) const NONE: Self = Self(None);

    #[inline]
    pub(crate) fn of(observer: Option<&SharedObserver>) -> Self {
        observer.map_or(Self::NONE, Self::new)
    }

    #[cold]
    fn new(observer: &SharedObserver) -> Self {
        Self(Some(Box::new(Reporter::new(observer.clone()))))
    }

    /// That of another handle with the same observer.
    #[inline]
    pub(crate) fn of_clone(&self) -> Self {
        Self::of(self.observer())
    }

    #[inline]
    pub(crate) fn observer(&self) -> Option<&SharedObserver> {
        self.0.as_deref().map(Reporter::observer)
    }

    /// Reports an answer: see [`Reporter::answered`].
    #[inline]
    pub(crate) fn answered(
        &mut self,
        method: Method,
        cost: u32,
        answer: &Answer,
        shadowed: Option<Decision>,
    ) {
        if self.0.is_some() {
            self.report(|reporter| reporter.answered(method, cost, answer, shadowed));
        }
    }

    /// Its request has left the queue with this decision.
    pub(crate) fn decided(&mut self, cost: u32, decision: Decision) {
        self.report(|reporter| reporter.decided(cost, decision, None));
    }

    /// Its request has left the queue, since its permits would come too late.
    pub(crate) fn too_late(&mut self, cost: u32, retry_in: Option<Duration>) {
        let retry_in = retry_in.unwrap_or_default();
        self.decided(cost, Decision::Wait { retry_in });
    }

    /// See [`Reporter::gave_up`].
    #[inline]
    pub(crate) fn gave_up(&mut self) {
        if self.0.is_some() {
            self.report(Reporter::gave_up);
        }
    }

    /// Out of line: most limits have no observer.
    #[cold]
    #[inline(never)]
    fn report(&mut self, report: impl FnOnce(&mut Reporter<SharedObserver>)) {
        if let Some(reporter) = &mut self.0 {
            report(reporter);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").finish_non_exhaustive()
    }
}

/// The observer that a limit for each key carries.
pub(crate) enum KeyedObserver<K> {
    /// It does not get the key.
    Same(SharedObserver),
    /// Makes one that knows the key.
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

#[cfg(feature = "redis")]
impl<K> Clone for KeyedObserver<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Same(observer) => Self::Same(observer.clone()),
            Self::ByKey(observer_of) => Self::ByKey(AssertUnwindSafe(Arc::clone(observer_of))),
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
