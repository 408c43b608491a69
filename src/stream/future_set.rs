use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::concurrency::Permit;

use super::ready_set::ReadySet;

/// Futures that run at once, each with the permit that it holds until it is done or dropped.
///
/// Only futures that were woken are polled. A slot keeps the box of its future, so that a new future needs no allocation once
/// as many have run at once.
pub(super) struct FutureSet<F> {
    slots: ReadySet<FutureSlot<F>>,
}

struct FutureSlot<F> {
    future: Pin<Box<Option<F>>>,
    permit: Option<Permit>,
}

impl<F: Future> FutureSet<F> {
    pub(super) fn new() -> Self {
        Self {
            slots: ReadySet::new(),
        }
    }

    /// Adds a future, and returns its number. The next [`poll_done`](Self::poll_done) polls it.
    pub(super) fn push(&mut self, future: F, permit: Permit) -> usize {
        let index = self.slots.open(|| FutureSlot {
            future: Box::pin(None),
            permit: None,
        });
        let (slot, _) = self.slots.slot(index);
        slot.future.set(Some(future));
        slot.permit = Some(permit);
        index
    }

    /// Whether the future of this number runs.
    pub(super) fn has(&mut self, index: usize) -> bool {
        self.slots.slot(index).0.future.is_some()
    }

    /// The number and the output of the next future that is done. Its permit is released already.
    pub(super) fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<(usize, F::Output)> {
        let slots = &mut self.slots;
        slots.poll_ready(cx, |slots, index| {
            let polled = PollGuard { slots, index }.poll();
            polled.map(|output| (index, output))
        })
    }
}

impl<F> FutureSet<F> {
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}

/// Frees the slot of a future that is done, or whose poll panics.
struct PollGuard<'a, F> {
    slots: &'a mut ReadySet<FutureSlot<F>>,
    index: usize,
}

impl<F: Future> PollGuard<'_, F> {
    fn poll(self) -> Poll<F::Output> {
        let (slot, waker) = self.slots.slot(self.index);
        // A slot that was woken after its future was done is free: its future is `None`.
        let polled = match slot.future.as_mut().as_pin_mut() {
            Some(future) => future.poll(&mut Context::from_waker(waker)),
            None => Poll::Pending,
        };
        if polled.is_pending() {
            mem::forget(self);
        }
        polled
    }
}

/// Drops the future before the permit: what the future holds at the other side is released before the next one starts.
impl<F> Drop for PollGuard<'_, F> {
    fn drop(&mut self) {
        let (slot, _) = self.slots.slot(self.index);
        slot.future.set(None);
        slot.permit = None;
        self.slots.close(self.index);
    }
}
