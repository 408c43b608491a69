use core::fmt;
use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use crate::concurrency::Permit;

use super::board::Board;

/// Futures under way, each with the permit that it holds until it is done or dropped.
///
/// Each has a waker of its own, so that only those that were woken are polled. Places are used again, with their memory:
/// a new future costs no allocation once as many have been under way at once.
pub(super) struct Flights<F> {
    places: Vec<Place<F>>,
    free: Vec<usize>,
    board: Board,
}

/// Where a future lives.
struct Place<F> {
    future: Pin<Box<Option<F>>>,
    permit: Option<Permit>,
    waker: Waker,
}

impl<F: Future> Flights<F> {
    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            board: Board::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// It is polled first by the next [`poll_done`](Self::poll_done).
    pub(super) fn push(&mut self, future: F, permit: Permit) {
        let index = self.free.pop().unwrap_or_else(|| self.build_place());
        let place = &mut self.places[index];
        place.future.set(Some(future));
        place.permit = Some(permit);
        self.board.ring(index);
    }

    /// The output of the next one that is done. Its permit is back by then.
    pub(super) fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        // As many as have been woken by now: one that wakes itself does not keep the thread. From now on, whoever is woken
        // wakes this task.
        for _ in 0..self.board.watch(cx.waker()) {
            let Some(index) = self.board.next() else {
                return Poll::Pending;
            };
            let landing = Landing {
                place: &mut self.places[index],
                free: &mut self.free,
                index,
            };
            if let Some(Poll::Ready(output)) = landing.poll() {
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    }

    fn build_place(&mut self) -> usize {
        let index = self.places.len();
        self.places.push(Place {
            future: Box::pin(None),
            permit: None,
            waker: self.board.waker(index),
        });
        index
    }
}

impl<F> fmt::Debug for Flights<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights")
            .field("under_way", &(self.places.len() - self.free.len()))
            .finish_non_exhaustive()
    }
}

/// A future that is polled: it leaves its place if it is done, and also if it panics.
struct Landing<'a, F> {
    place: &'a mut Place<F>,
    free: &'a mut Vec<usize>,
    index: usize,
}

impl<F: Future> Landing<'_, F> {
    /// None if there is nobody: the place was woken for one who has left it.
    fn poll(self) -> Option<Poll<F::Output>> {
        let Some(future) = self.place.future.as_mut().as_pin_mut() else {
            mem::forget(self);
            return None;
        };
        let polled = future.poll(&mut Context::from_waker(&self.place.waker));
        if polled.is_pending() {
            mem::forget(self);
        }
        Some(polled)
    }
}

/// First the future goes, then the permit: what it holds at the other side is over before the next one begins.
impl<F> Drop for Landing<'_, F> {
    fn drop(&mut self) {
        self.place.future.set(None);
        self.place.permit = None;
        self.free.push(self.index);
    }
}
