use core::fmt;
use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use crate::concurrency::Permit;

/// Futures under way, each with the permit that it holds until it is done or dropped.
///
/// Each has a waker of its own, so that only those that were woken are polled. Places are used again, with their memory:
/// a new future costs no allocation once as many have been under way at once.
pub(super) struct Flights<F> {
    places: Vec<Place<F>>,
    free: Vec<usize>,
    board: Arc<Board>,
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
            board: Arc::default(),
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
        self.board.lock().ring(index);
    }

    /// The output of the next one that is done. Its permit is back by then.
    pub(super) fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        // As many as have been woken by now: one that wakes itself does not keep the thread. From now on, whoever is woken
        // wakes this task.
        for _ in 0..self.board.watch(cx.waker()) {
            let Some(index) = self.board.lock().next() else {
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
        let bell = Bell {
            index,
            board: Arc::clone(&self.board),
        };
        self.places.push(Place {
            future: Box::pin(None),
            permit: None,
            waker: Waker::from(Arc::new(bell)),
        });
        index
    }
}

/// A waker may outlive this, and must not keep the task that polled it.
impl<F> Drop for Flights<F> {
    fn drop(&mut self) {
        let task = self.board.lock().task.take();
        drop(task);
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

/// Who has been woken, in that order, and the task to be woken for it.
#[derive(Default)]
struct Board {
    rung: Mutex<Rung>,
}

impl Board {
    fn lock(&self) -> RungGuard<'_> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes this task from now on. How many have been woken.
    fn watch(&self, waker: &Waker) -> usize {
        let mut rung = self.lock();
        let is_same = rung.task.as_ref().is_some_and(|task| task.will_wake(waker));
        let old = if is_same {
            None
        } else {
            rung.task.replace(waker.clone())
        };
        let count = rung.order.len();
        drop(rung);
        drop(old);
        count
    }
}

type RungGuard<'a> = MutexGuard<'a, Rung>;

#[derive(Default)]
struct Rung {
    order: VecDeque<usize>,
    /// For each place, whether it is in there.
    is_in: Vec<bool>,
    task: Option<Waker>,
}

impl Rung {
    /// Puts it in, once.
    fn ring(&mut self, index: usize) {
        if index >= self.is_in.len() {
            self.is_in.resize(index + 1, false);
        }
        if !mem::replace(&mut self.is_in[index], true) {
            self.order.push_back(index);
        }
    }

    fn next(&mut self) -> Option<usize> {
        let index = self.order.pop_front()?;
        self.is_in[index] = false;
        Some(index)
    }
}

/// The waker of a place.
struct Bell {
    index: usize,
    board: Arc<Board>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// The task is woken once for all that happens until it polls again.
    fn wake_by_ref(self: &Arc<Self>) {
        let mut rung = self.board.lock();
        rung.ring(self.index);
        let task = rung.task.take();
        drop(rung);
        if let Some(task) = task {
            task.wake();
        }
    }
}
