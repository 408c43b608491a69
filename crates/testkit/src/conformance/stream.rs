//! Streams: the input that the suite hands to an adapter, and the consumer that drains the adapter.

use std::{
    future::Future,
    marker::{PhantomData, PhantomPinned},
    panic::Location,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use futures_core::{FusedStream, Stream};

use super::{
    Parcel, Rule, Subject,
    manner::Manner,
    run::{Next, Play, Trace},
    scene::{Hint, Scene},
    schedule::Schedule,
};
use crate::{
    clock::{Stopwatch, now},
    marble::Source,
    patience::Patience,
};

/// The input of every rule: the numbers from 0 on, each at its scheduled instant, then the end.
///
/// It is `Unpin`, so that an adapter over it can be taken apart after it was polled; [`Unmovable`] is not.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Input<P = ()> {
    numbers: Arc<Mutex<Numbers>>,
    pin: PhantomData<P>,
}

/// An [`Input`] that is not `Unpin`: see [`check_unmovable`].
pub type Unmovable = Input<PhantomPinned>;

#[derive(Debug)]
struct Numbers {
    source: Source<u32>,
    hint: Hint,
    polls_after_end: usize,
}

impl<P> Input<P> {
    fn new(schedule: &Schedule, hint: Hint) -> Self {
        let items = schedule.items.iter().copied().zip(0..);
        let source = Source::new(items, Some(schedule.end));
        Self {
            numbers: Arc::new(Mutex::new(Numbers {
                source: source.started_at(now()),
                hint,
                polls_after_end: 0,
            })),
            pin: PhantomData,
        }
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap()
    }
}

impl<P> Stream for Input<P> {
    type Item = u32;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        let mut numbers = self.numbers();
        if numbers.source.is_terminated() {
            numbers.polls_after_end += 1;
        }
        Pin::new(&mut numbers.source).poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let numbers = self.numbers();
        let (left, _) = numbers.source.size_hint();
        match numbers.hint {
            Hint::Exact => (left, Some(left)),
            Hint::AtMost => (0, Some(left)),
            Hint::AtLeast => (left, None),
            Hint::Nothing => (0, None),
        }
    }
}

impl<P> FusedStream for Input<P> {
    fn is_terminated(&self) -> bool {
        self.numbers().source.is_terminated()
    }
}

impl Subject {
    /// The stream adapter that `build` makes. `build` is called for every run, at its first instant.
    /// [`Rule::IntoParts`] is skipped.
    pub fn stream<A>(build: impl Fn(Input) -> A + 'static) -> Self
    where
        A: FusedStream<Item: Parcel> + 'static,
    {
        Self::drained(build, None)
    }

    /// The same, of an adapter that can be taken apart into the input and the items held.
    pub fn stream_in_parts<A, H>(
        build: impl Fn(Input) -> A + 'static,
        into_parts: impl Fn(A) -> (Input, H) + 'static,
    ) -> Self
    where
        A: FusedStream<Item: Parcel> + Unpin + 'static,
        H: Parcel,
    {
        let split = move |adapter: Pin<Box<A>>| {
            let (input, held) = into_parts(*Pin::into_inner(adapter));
            let left = input.numbers().source.take_rest();
            held.into_items().into_iter().chain(left).collect()
        };
        Self::drained(build, Some(Rc::new(split)))
    }

    fn drained<A>(build: impl Fn(Input) -> A + 'static, split: Option<Split<A>>) -> Self
    where
        A: FusedStream<Item: Parcel> + 'static,
    {
        Self::new(false, move |scene| {
            let input = Input::new(&scene.schedule, scene.hint);
            let numbers = Arc::clone(&input.numbers);
            Box::new(Drained {
                adapter: Box::pin(build(input)),
                split: split.clone(),
                numbers,
                start: Stopwatch::start(),
                scene: scene.clone(),
                said: Vec::new(),
            })
        })
    }
}

type Split<A> = Rc<dyn Fn(Pin<Box<A>>) -> Vec<u32>>;

/// A stream adapter, and its consumer.
struct Drained<A> {
    adapter: Pin<Box<A>>,
    split: Option<Split<A>>,
    numbers: Arc<Mutex<Numbers>>,
    start: Stopwatch,
    scene: Scene,
    said: Vec<Said>,
}

/// What the adapter said of itself before a poll.
struct Said {
    /// How many emissions there had been.
    emitted: usize,
    hint: (usize, Option<usize>),
    is_terminated: bool,
}

impl<A: FusedStream<Item: Parcel>> Play for Drained<A> {
    fn turn(&mut self, cx: &mut Context<'_>, trace: &mut Trace) -> Next {
        self.said.push(Said {
            emitted: trace.given.len(),
            hint: self.adapter.size_hint(),
            is_terminated: self.adapter.is_terminated(),
        });
        match self.adapter.as_mut().poll_next(cx) {
            Poll::Pending => Next::WhenWoken,
            Poll::Ready(Some(item)) => {
                let items = item.into_items();
                trace.given.push((self.start.elapsed(), items));
                Next::AfterABreak
            }
            Poll::Ready(None) => {
                self.note_the_end(trace);
                self.note_what_it_said(trace);
                self.poll_again(cx, trace);
                Next::Never
            }
        }
    }

    fn record(&self, trace: &mut Trace) {
        trace.due = (0..).take(self.scene.schedule.items.len()).collect();
    }

    fn split(self: Box<Self>) -> Option<Vec<u32>> {
        let Self { adapter, split, .. } = *self;
        Some(split?(adapter))
    }
}

impl<A: FusedStream> Drained<A> {
    /// The end comes with the last emission or with the input's end. An empty input gives no emission.
    fn note_the_end(&self, trace: &mut Trace) {
        let (at, schedule) = (self.start.elapsed(), &self.scene.schedule);
        let last = trace.given.last().map(|(at, _)| *at);
        let due = last.unwrap_or_default().max(schedule.end);
        if at != due && matches!(self.scene.manner, Manner::Eager) {
            let what = format!("ended at {at:?} instead of {due:?}");
            trace.note(Rule::EndsOnTime, what);
        }
        if schedule.items.is_empty() && last.is_some() {
            let what = "an empty input gave an item".to_owned();
            trace.note(Rule::EndsOnTime, what);
        }
    }

    /// `is_terminated` and `size_hint` were right before every poll, however precise the hint of the input is.
    fn note_what_it_said(&self, trace: &mut Trace) {
        for said in &self.said {
            let left = trace.given.len() - said.emitted;
            if said.is_terminated && left > 0 {
                let what = format!("true with {left} still to come");
                trace.note(Rule::Terminated, what);
            }
            let (lower, upper) = said.hint;
            if left < lower || upper.is_some_and(|upper| left > upper) {
                let what = format!("{:?} with {left} still to come", said.hint);
                trace.note(Rule::SizeHint, what);
            }
        }
        if !self.adapter.is_terminated() {
            let what = "false after the end".to_owned();
            trace.note(Rule::Terminated, what);
        }
    }

    fn poll_again(&mut self, cx: &mut Context<'_>, trace: &mut Trace) {
        for _ in 0..2 {
            let _ = self.adapter.as_mut().poll_next(cx);
        }
        let polls = self.numbers.lock().unwrap().polls_after_end;
        if polls > 0 {
            let what = format!("polled {polls} times after its end");
            trace.note(Rule::InputAfterEnd, what);
        }
    }
}

/// Checks that an adapter works over an input that is not `Unpin`, down to its end.
///
/// # Panics
///
/// When it hangs or spins. (That it compiles is most of the test.)
#[track_caller]
pub fn check_unmovable<A: Stream>(build: impl FnOnce(Unmovable) -> A) -> impl Future<Output = ()> {
    let caller = Location::caller();
    let schedule = Schedule {
        items: vec![Duration::ZERO; 4],
        end: Duration::from_millis(10),
    };
    async move {
        let mut adapter = Box::pin(build(Input::new(&schedule, Hint::Exact)));
        let mut patience = Patience::default();
        loop {
            match patience.next(adapter.as_mut()).await {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(stuck) => panic!("over an unmovable input, at {caller}, it {stuck}"),
            }
        }
    }
}
