//! Sinks polled by hand, and limiters as another library could write them.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures::Sink;
use paceline::limiter::Limiter;
use paceline::policy::Decision;
use testkit::probe;
use testkit::wakes::Driven;

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

/// The items that the sink has accepted, with the milliseconds since its first call.
pub(crate) fn taken_ms<T>(handle: &probe::SinkHandle<T>) -> Vec<(u128, T)> {
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
