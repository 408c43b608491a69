//! Sinks: the inner sink that the suite hands to an adapter, and the producer that sends into the adapter.

use std::{
    error::Error,
    fmt,
    future::Future,
    marker::{PhantomData, PhantomPinned},
    mem,
    panic::Location,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_sink::Sink;

use super::{
    Parcel, Rule, Subject,
    manner::Manner,
    run::{Next, Play, Run, Trace},
    scene::{Keeps, Room, Scene},
    schedule::{Dice, Schedule},
};
use crate::clock::{Stopwatch, Until};

/// The inner sink of every rule: fast or slow, failing on request. It records the calls on it.
///
/// It is `Unpin`, so that an adapter over it can be taken apart after it was polled; [`Unmovable`] is not.
#[derive(Debug)]
#[must_use = "sinks do nothing unless polled"]
pub struct Inner<T, P = ()> {
    calls: Arc<Mutex<Calls>>,
    takes: PhantomData<(fn(T), P)>,
}

/// An [`Inner`] that is not `Unpin`: see [`check_unmovable`].
pub type Unmovable<T> = Inner<T, PhantomPinned>;

/// The record of the calls on an inner sink, which can be read while the adapter owns the sink.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, written by one call and read by one rule"
)]
struct Calls {
    start: Stopwatch,
    room: Room,
    fails_at: Option<usize>,
    number: usize,
    /// The items it was given, with the time from the start of the run.
    taken: Vec<(Duration, Vec<u32>)>,
    /// The items it was given when it failed.
    spoiled: Vec<u32>,
    noted: Vec<(Rule, String)>,
    is_ready: bool,
    /// When there is room for the next item.
    has_room: Until,
    /// When what it was given is flushed, if somebody asked.
    flushing: Option<Until>,
    is_flushed: bool,
    is_closing: bool,
    /// How often a close was completed.
    closed: usize,
    /// Whether it was pending since the adapter was polled.
    was_pending: bool,
    /// Its error since the adapter was polled.
    raised: Option<InnerError>,
}

impl<T, P> Inner<T, P> {
    fn new(scene: &Scene) -> Self {
        let calls = Calls {
            start: Stopwatch::start(),
            room: scene.room,
            fails_at: scene.fails_at,
            number: 0,
            taken: Vec::new(),
            spoiled: Vec::new(),
            noted: Vec::new(),
            is_ready: false,
            has_room: Until::after(Duration::ZERO),
            flushing: Some(Until::after(Duration::ZERO)),
            is_flushed: true,
            is_closing: false,
            closed: 0,
            was_pending: false,
            raised: None,
        };
        Self {
            calls: Arc::new(Mutex::new(calls)),
            takes: PhantomData,
        }
    }

    /// The first step of every call.
    fn begin(&self) -> Result<MutexGuard<'_, Calls>, InnerError> {
        let mut calls = self.calls.lock().unwrap();
        let error = InnerError { call: calls.number };
        calls.number += 1;
        if calls.fails_at == Some(error.call) {
            calls.raised = Some(error);
            return Err(error);
        }
        Ok(calls)
    }
}

impl Calls {
    /// Ready when all accepted items are flushed.
    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let gap = self.room.gap(2 * self.taken.len());
        let flushing = self.flushing.get_or_insert_with(|| Until::after(gap));
        let flushed = flushing.poll(cx);
        self.was_pending |= flushed.is_pending();
        self.is_flushed |= flushed.is_ready();
        flushed
    }

    fn note_faults(&mut self, items: &[u32]) {
        if !mem::take(&mut self.is_ready) {
            let what = format!("{items:?} sent when it had not said that it is ready");
            self.noted.push((Rule::AsksFirst, what));
        }
        if self.is_closing {
            let what = format!("{items:?} sent when it was being closed");
            self.noted.push((Rule::Closes, what));
        }
    }

    /// How many items it was given, those at which it failed included.
    fn given(&self) -> usize {
        let taken: usize = self.taken.iter().map(|(_, items)| items.len()).sum();
        taken + self.spoiled.len()
    }
}

impl<T: Parcel, P> Sink<T> for Inner<T, P> {
    type Error = InnerError;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        let mut calls = self.begin()?;
        let ready = calls.has_room.poll(cx);
        calls.was_pending |= ready.is_pending();
        calls.is_ready = ready.is_ready();
        ready.map(Ok)
    }

    fn start_send(self: Pin<&mut Self>, parcel: T) -> Result<(), InnerError> {
        let items = parcel.into_items();
        let mut calls = match self.begin() {
            Ok(calls) => calls,
            Err(error) => {
                self.calls.lock().unwrap().spoiled.extend(items);
                return Err(error);
            }
        };
        calls.note_faults(&items);
        let at = calls.start.elapsed();
        calls.taken.push((at, items));
        calls.flushing = None;
        calls.is_flushed = false;
        let gap = calls.room.gap(2 * calls.taken.len() + 1);
        calls.has_room = Until::after(gap);
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        self.begin()?.poll_flushed(cx).map(Ok)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        let mut calls = self.begin()?;
        calls.is_closing = true;
        ready!(calls.poll_flushed(cx));
        calls.closed += 1;
        Poll::Ready(Ok(()))
    }
}

/// The error of a call on an [`Inner`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct InnerError {
    /// The number of the call that failed.
    pub call: usize,
}

impl fmt::Display for InnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the inner sink was told to fail at call {}", self.call)
    }
}

impl Error for InnerError {}

/// The meaning of an adapter's error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "either the inner sink was asked or the item was refused"
)]
pub enum Failure {
    /// The inner sink failed with this error.
    Inner(InnerError),
    /// The adapter refused this item and returned it.
    Refused(u32),
}

impl Subject {
    /// The sink adapter that `build` makes. `build` is called for every run, at its first instant. `judge` returns the meaning
    /// of an error of the adapter. [`Rule::IntoParts`] is skipped.
    ///
    /// The compiler checks one rule: the adapter is `Send` and `Sync`, as an [`Inner`] is.
    pub fn sink<A, T>(
        build: impl Fn(Inner<T>) -> A + 'static,
        judge: impl Fn(A::Error) -> Failure + 'static,
    ) -> Self
    where
        A: Sink<u32> + Send + Sync + 'static,
        T: Parcel,
    {
        Self::sent(build, Rc::new(judge), None)
    }

    /// The same, of an adapter that can be taken apart into the inner sink and the items held.
    pub fn sink_in_parts<A, T, H>(
        build: impl Fn(Inner<T>) -> A + 'static,
        judge: impl Fn(A::Error) -> Failure + 'static,
        into_parts: impl Fn(A) -> (Inner<T>, H) + 'static,
    ) -> Self
    where
        A: Sink<u32> + Send + Sync + Unpin + 'static,
        T: Parcel,
        H: Parcel,
    {
        let split =
            move |adapter: Pin<Box<A>>| into_parts(*Pin::into_inner(adapter)).1.into_items();
        Self::sent(build, Rc::new(judge), Some(Rc::new(split)))
    }

    fn sent<A, T>(
        build: impl Fn(Inner<T>) -> A + 'static,
        judge: Judge<A>,
        split: Option<Split<A>>,
    ) -> Self
    where
        A: Sink<u32> + 'static,
        T: Parcel,
    {
        Self::new(true, move |scene| {
            let mut sent = Sent::new(&build, Rc::clone(&judge), scene);
            sent.split.clone_from(&split);
            Box::new(sent)
        })
    }
}

type Judge<A> = Rc<dyn Fn(<A as Sink<u32>>::Error) -> Failure>;
type Split<A> = Rc<dyn Fn(Pin<Box<A>>) -> Vec<u32>>;

/// `poll_ready`, `poll_flush` or `poll_close`.
type PollOf<A> = fn(Pin<&mut A>, &mut Context<'_>) -> Poll<Result<(), <A as Sink<u32>>::Error>>;

/// A sink adapter, and its producer.
struct Sent<A: Sink<u32>> {
    adapter: Pin<Box<A>>,
    judge: Judge<A>,
    split: Option<Split<A>>,
    calls: Arc<Mutex<Calls>>,
    start: Stopwatch,
    scene: Scene,
    dice: Dice,
    step: Step,
    /// How many items the adapter was given.
    count: u32,
}

/// What the producer does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    /// Waits until the next item is there, or the end.
    Arrive,
    /// Polls until the sink is ready. The number says how often it was ready already.
    Ready(usize),
    Send,
    /// Polls for readiness as if to send one more item, and then sends none.
    AskInVain,
    Flush,
    Close,
}

impl<A: Sink<u32>> Sent<A> {
    fn new<T, P>(build: impl FnOnce(Inner<T, P>) -> A, judge: Judge<A>, scene: &Scene) -> Self {
        let inner = Inner::new(scene);
        let calls = Arc::clone(&inner.calls);
        Self {
            adapter: Box::pin(build(inner)),
            judge,
            split: None,
            calls,
            start: Stopwatch::start(),
            scene: scene.clone(),
            dice: Dice::new(scene.seed),
            step: Step::Arrive,
            count: 0,
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap()
    }

    fn arrive(&mut self) -> Next {
        let Schedule { items, end } = &self.scene.schedule;
        let next = items.get(self.count as usize);
        self.step = match next {
            Some(_) => Step::Ready(0),
            None => Step::Close,
        };
        Next::At(*next.unwrap_or(end))
    }

    /// Sends the next item, which is its own number.
    fn send(&mut self, trace: &mut Trace) -> Next {
        let item = self.count;
        let sent = self.adapter.as_mut().start_send(item);
        let is_well = self.hear("start_send", sent, trace);
        let calls = self.calls();
        let is_kept = !is_well && calls.raised.is_some() && !calls.spoiled.contains(&item);
        drop(calls);
        if is_kept {
            // The producer still has the item: a send that failed has not accepted it.
            self.step = Step::Ready(0);
            return Next::Now;
        }
        self.count += 1;
        match self.scene.manner {
            Manner::Hopeful | Manner::Restless(_) => {
                self.step = Step::AskInVain;
                Next::Elsewhere
            }
            _ => {
                self.flush_or_not();
                Next::Now
            }
        }
    }

    fn ask_in_vain(&mut self, cx: &mut Context<'_>, trace: &mut Trace) -> Next {
        if let Poll::Ready(result) = self.adapter.as_mut().poll_ready(cx) {
            self.hear("a poll", result, trace);
        }
        self.flush_or_not();
        Next::Elsewhere
    }

    /// Some producers flush after no item, as `feed` does, some after each, as `send` does, and some now and then.
    fn flush_or_not(&mut self) {
        let flushes = match self.scene.seed % 3 {
            0 => false,
            1 => true,
            _ => self.dice.below(2) == 0,
        };
        self.step = if flushes { Step::Flush } else { Step::Arrive };
    }

    /// The poll was ready, and there was no error.
    fn go_on(&mut self, trace: &mut Trace) -> Next {
        match self.step {
            Step::Ready(heard) if heard + 1 < self.scene.asks => {
                self.step = Step::Ready(heard + 1);
                Next::Now
            }
            Step::Flush => {
                let (held, is_flushed) = (self.held(trace), self.calls().is_flushed);
                if held > 0 || !is_flushed {
                    let what = format!("flushed: {is_flushed}, with {held} items held");
                    trace.note(Rule::Flushes, what);
                }
                self.step = Step::Arrive;
                Next::Now
            }
            Step::Close => {
                let (held, closed) = (self.held(trace), self.calls().closed);
                if held > 0 || closed != 1 {
                    let what = format!("closed {closed} times, with {held} items held");
                    trace.note(Rule::Closes, what);
                }
                Next::Never
            }
            _ => {
                self.step = Step::Send;
                Next::AfterABreak
            }
        }
    }

    /// Records an answer. Returns whether it was no error.
    fn hear(&self, what: &str, answer: Result<(), A::Error>, trace: &mut Trace) -> bool {
        let raised = self.calls().raised;
        trace.has_failed |= raised.is_some();
        let is_well = answer.is_ok();
        let passed_on = match answer.map_err(|error| (self.judge)(error)) {
            Ok(()) => None,
            Err(Failure::Inner(error)) => Some(error),
            Err(Failure::Refused(item)) => {
                trace.refused.push(item);
                None
            }
        };
        if raised != passed_on {
            let what = format!(
                "{:?}: {what} passed on {passed_on:?} when the inner sink said {raised:?}",
                self.step
            );
            trace.note(Rule::InnerErrors, what);
        }
        is_well
    }

    fn note_a_wait_for_nothing(&self, trace: &mut Trace) {
        let is_asked = matches!(self.step, Step::Ready(_));
        if !is_asked && !self.calls().was_pending && self.held(trace) == 0 {
            let (step, at) = (self.step, self.start.elapsed());
            let what = format!("{step:?} was pending at {at:?}, for nothing");
            trace.note(Rule::Prompt, what);
        }
    }

    /// How many items are neither at the inner sink nor refused. Of a lossy adapter this is not known.
    fn held(&self, trace: &Trace) -> usize {
        if self.scene.keeps == Keeps::Some {
            return 0;
        }
        let gone = self.calls().given() + trace.refused.len();
        (self.count as usize).saturating_sub(gone)
    }
}

impl<A: Sink<u32>> Play for Sent<A> {
    fn turn(&mut self, cx: &mut Context<'_>, trace: &mut Trace) -> Next {
        let mut calls = self.calls();
        calls.was_pending = false;
        calls.raised = None;
        drop(calls);
        let poll: PollOf<A> = match self.step {
            Step::Arrive => return self.arrive(),
            Step::Send => return self.send(trace),
            Step::AskInVain => return self.ask_in_vain(cx, trace),
            Step::Ready(_) => A::poll_ready,
            Step::Flush => A::poll_flush,
            Step::Close => A::poll_close,
        };
        match poll(self.adapter.as_mut(), cx) {
            Poll::Pending => {
                self.hear("a pending poll", Ok(()), trace);
                self.note_a_wait_for_nothing(trace);
                Next::WhenWoken
            }
            Poll::Ready(answer) => {
                let is_well = self.hear("a poll", answer, trace);
                if is_well {
                    self.go_on(trace)
                } else {
                    Next::Now
                }
            }
        }
    }

    fn record(&self, trace: &mut Trace) {
        let calls = self.calls();
        trace.given.clone_from(&calls.taken);
        trace.noted.extend_from_slice(&calls.noted);
        let is_gone = |item: &u32| trace.refused.contains(item) || calls.spoiled.contains(item);
        trace.due = (0..self.count).filter(|item| !is_gone(item)).collect();
    }

    fn split(self: Box<Self>) -> Option<Vec<u32>> {
        let Self { adapter, split, .. } = *self;
        Some(split?(adapter))
    }
}

/// Checks that an adapter works over an inner sink that is not `Unpin`: it is sent nine items and closed.
///
/// # Panics
///
/// When it hangs or spins, or does not close the inner sink. (That it compiles is most of the test.)
#[track_caller]
pub fn check_unmovable<A, T>(
    build: impl FnOnce(Unmovable<T>) -> A,
    judge: impl Fn(A::Error) -> Failure + 'static,
) -> impl Future<Output = ()>
where
    A: Sink<u32> + 'static,
    T: Parcel,
{
    let caller = Location::caller();
    async move {
        let mut scene = Scene::new(1, Schedule::burst());
        scene.room = Room::Slow(0, Duration::from_millis(10));
        let sent = Sent::new(build, Rc::new(judge), &scene);
        let calls = Arc::clone(&sent.calls);
        let stuck = Run::start(Box::new(sent), &scene).finish().await.err();
        let closed = calls.lock().unwrap().closed;
        assert!(
            stuck.is_none() && closed == 1,
            "over an unmovable inner sink, at {caller}: {stuck:?}, closed {closed} times"
        );
    }
}
