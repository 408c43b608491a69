use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::{Arc, Mutex};

use crate::line::Ticket;
use crate::time::{Precision, Timer};

use super::desk::{Answer, Desk, lock, locked, work};
use super::{Permit, TooMany};

/// Future of [`Permits::acquire`](super::Permits::acquire).
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquirePermit {
    waiting: Waiting,
}

impl AcquirePermit {
    pub(super) fn new(desk: Arc<Mutex<Desk>>, precision: Precision) -> Self {
        Self {
            waiting: Waiting::new(desk, 1, precision),
        }
    }
}

impl Future for AcquirePermit {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let permit = ready!(self.waiting.poll(cx));
        Poll::Ready(permit.expect("one is never too many: a limit of zero judges nobody"))
    }
}

/// Future of [`Permits::acquire_many`](super::Permits::acquire_many).
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquirePermits {
    waiting: Waiting,
}

impl AcquirePermits {
    pub(super) fn new(desk: Arc<Mutex<Desk>>, count: u32, precision: Precision) -> Self {
        Self {
            waiting: Waiting::new(desk, count, precision),
        }
    }
}

impl Future for AcquirePermits {
    type Output = Result<Permit, TooMany>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.waiting.poll(cx)
    }
}

/// One who waits: ask, sleep, ask, and leave the line when dropped.
#[derive(Debug)]
struct Waiting {
    /// Gone, handed on to the permit, when it is done.
    desk: Option<Arc<Mutex<Desk>>>,
    count: u32,
    place: Option<Ticket>,
    /// Armed while this is the first in line and knows how long a permit has to cool down.
    timer: Timer,
}

impl Waiting {
    fn new(desk: Arc<Mutex<Desk>>, count: u32, precision: Precision) -> Self {
        Self {
            desk: Some(desk),
            count,
            place: None,
            timer: precision.timer(),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, TooMany>> {
        let answer = ready!(self.poll_answer(cx));
        let desk = self.desk.take();
        Poll::Ready(answer.map(|()| Permit::new(desk.expect("it was just asked"), self.count)))
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TooMany>> {
        loop {
            match self.ask(cx) {
                Answer::Taken => return Poll::Ready(Ok(())),
                Answer::Refused(never) => return Poll::Ready(Err(never)),
                Answer::Wait(cooling) => self.timer.arm(cooling),
                Answer::Stand => return Poll::Pending,
            }
            ready!(self.timer.poll_elapsed(cx));
        }
    }

    fn ask(&mut self, cx: &Context<'_>) -> Answer {
        let desk = self.desk.as_deref().expect("polled after it was ready");
        let (place, count) = (&mut self.place, self.count);
        let mut desk = lock(desk);
        if place.is_none() && desk.takes_alone(count) {
            return Answer::Taken;
        }
        work(desk, |desk, after| {
            desk.ask_in_line(place, count, cx.waker(), after)
        })
    }
}

/// Leaves the line.
impl Drop for Waiting {
    fn drop(&mut self) {
        let place = &mut self.place;
        if let Some(desk) = self.desk.as_deref().filter(|_| place.is_some()) {
            locked(desk, |desk, after| desk.leave(place, after));
        }
    }
}
