//! Sinks polled by hand, and sinks and limiters as another library could write them.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures::Sink;
use paceline::limiter::{Limiter, Shared};
use paceline::policy::{Decision, Interval};
use paceline::prelude::*;
use testkit::probe::{self, Broken, SinkHandle};
use testkit::wakes::Driven;

use crate::timed::ms;

/// The steps of a sink, each one poll.
pub(crate) trait Steps<Item> {
    type Error;
    fn ready(&mut self) -> Poll<Result<(), Self::Error>>;
    fn start(&mut self, item: Item) -> Result<(), Self::Error>;
    fn flush(&mut self) -> Poll<Result<(), Self::Error>>;
    fn close(&mut self) -> Poll<Result<(), Self::Error>>;
}

impl<S: Sink<Item>, Item> Steps<Item> for Driven<S> {
    type Error = S::Error;

    fn ready(&mut self) -> Poll<Result<(), S::Error>> {
        self.poll_with(S::poll_ready)
    }

    fn start(&mut self, item: Item) -> Result<(), S::Error> {
        self.poll_with(|sink, _| sink.start_send(item))
    }

    fn flush(&mut self) -> Poll<Result<(), S::Error>> {
        self.poll_with(S::poll_flush)
    }

    fn close(&mut self) -> Poll<Result<(), S::Error>> {
        self.poll_with(S::poll_close)
    }
}

/// An adapter over an inner sink that accepts everything, with a limit of an item each 100 ms.
pub(crate) fn over_all<T, S>(
    adapter: impl FnOnce(probe::Sink<T>, Shared<Interval>) -> S,
) -> (SinkHandle<T>, Shared<Interval>, Driven<S>) {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let limit = Interval::every(ms(100)).shared();
    let sink = Driven::new(adapter(sink, limit.clone()));
    (handle, limit, sink)
}

/// The items that the sink has accepted, with the milliseconds since its first call.
pub(crate) fn taken_ms<T>(handle: &SinkHandle<T>) -> Vec<(u128, T)> {
    let taken = handle.taken_at().into_iter();
    taken.map(|(at, item)| (at.as_millis(), item)).collect()
}

/// A limiter without a queue. It answers as the test decides, and cannot peek without counting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(pub(crate) Rc<RefCell<Option<Decision>>>);

impl Told {
    pub(crate) fn set(&self, answer: Option<Decision>) {
        *self.0.borrow_mut() = answer;
    }
}

impl Limiter for Told {
    type Error = Infallible;

    fn poll_decide(
        &mut self,
        cost: u32,
        _: &mut Context<'_>,
    ) -> Poll<Result<Decision, Infallible>> {
        if cost == 0 {
            return Poll::Ready(Ok(Decision::Pass));
        }
        match *self.0.borrow() {
            Some(decision) => Poll::Ready(Ok(decision)),
            None => Poll::Pending,
        }
    }

    fn give_up(&mut self) {}
}

/// What a sink does at the next call.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Does {
    #[default]
    TakesAll,
    TakesNone,
    FailsToSend,
    FailsToFlush,
}

/// An inner sink that changes its mind.
#[derive(Clone, Default)]
pub(crate) struct Fickle(pub(crate) Rc<Cell<Does>>);

impl Fickle {
    fn unless(&self, does: Does) -> Result<(), Broken> {
        if self.0.get() == does {
            Err(Broken)
        } else {
            Ok(())
        }
    }
}

impl<T> Sink<T> for Fickle {
    type Error = Broken;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        match self.0.get() {
            Does::TakesNone => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    fn start_send(self: Pin<&mut Self>, _: T) -> Result<(), Broken> {
        self.unless(Does::FailsToSend)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(self.unless(Does::FailsToFlush))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }
}
