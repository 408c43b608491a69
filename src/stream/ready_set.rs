use core::mem;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

/// Slots with a waker each, and the queue of the slots that were woken: for an adapter that waits for many things and polls
/// only those that are ready.
///
/// A slot that was freed is used again, with its waker and the memory of its value.
pub(super) struct ReadySet<T> {
    slots: Vec<(T, Waker)>,
    free: Vec<usize>,
    ready: Arc<Mutex<ReadyQueue>>,
}

/// The slots that were woken and not polled since, and the task to wake.
#[derive(Default)]
struct ReadyQueue {
    order: VecDeque<usize>,
    /// For each slot, whether it is in `order`.
    is_queued: Vec<bool>,
    task: Option<Waker>,
}

struct SlotWaker {
    index: usize,
    ready: Arc<Mutex<ReadyQueue>>,
}

impl<T> ReadySet<T> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            ready: Arc::default(),
        }
    }

    /// How many slots are in use.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a free slot, or adds one with the value that `make` returns. The slot is ready.
    pub(super) fn open(&mut self, make: impl FnOnce() -> T) -> usize {
        let index = self.free.pop().unwrap_or_else(|| self.add(make()));
        self.mark_ready(index);
        index
    }

    /// The slot is not used any more. Its waker may still mark it ready.
    pub(super) fn close(&mut self, index: usize) {
        self.free.push(index);
    }

    /// The value of a slot, and the waker that marks the slot ready.
    pub(super) fn slot(&mut self, index: usize) -> (&mut T, &Waker) {
        let (value, waker) = &mut self.slots[index];
        (value, waker)
    }

    /// The values of all slots, free ones too.
    pub(super) fn into_values(mut self) -> impl Iterator<Item = T> {
        mem::take(&mut self.slots)
            .into_iter()
            .map(|(value, _)| value)
    }

    /// Puts a slot into the queue without waking the task.
    pub(super) fn mark_ready(&self, index: usize) {
        lock(&self.ready).push(index);
    }

    /// Polls the slots that are ready now, until one of them is done. A slot that wakes itself at each poll does not keep the
    /// thread. From now on a slot that is woken wakes this task.
    pub(super) fn poll_ready<R>(
        &mut self,
        cx: &Context<'_>,
        mut poll: impl FnMut(&mut Self, usize) -> Poll<R>,
    ) -> Poll<R> {
        for _ in 0..self.register(cx.waker()) {
            let Some(index) = lock(&self.ready).pop() else {
                break;
            };
            if let Poll::Ready(result) = poll(self, index) {
                return Poll::Ready(result);
            }
        }
        Poll::Pending
    }

    /// Returns how many slots are ready.
    fn register(&self, waker: &Waker) -> usize {
        let mut ready = lock(&self.ready);
        let old = match &ready.task {
            Some(task) if task.will_wake(waker) => None,
            _ => ready.task.replace(waker.clone()),
        };
        let count = ready.order.len();
        drop(ready);
        drop(old);
        count
    }

    fn add(&mut self, value: T) -> usize {
        let index = self.slots.len();
        let waker = Waker::from(Arc::new(SlotWaker {
            index,
            ready: Arc::clone(&self.ready),
        }));
        self.slots.push((value, waker));
        index
    }
}

/// A slot's waker may outlive the set. It must not keep the waker of the task alive.
impl<T> Drop for ReadySet<T> {
    fn drop(&mut self) {
        let task = lock(&self.ready).task.take();
        drop(task);
    }
}

impl ReadyQueue {
    /// Adds a slot, unless it is queued already.
    fn push(&mut self, index: usize) {
        if index >= self.is_queued.len() {
            self.is_queued.resize(index + 1, false);
        }
        if !mem::replace(&mut self.is_queued[index], true) {
            self.order.push_back(index);
        }
    }

    fn pop(&mut self) -> Option<usize> {
        let index = self.order.pop_front()?;
        self.is_queued[index] = false;
        Some(index)
    }
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Marks the slot ready, and wakes the task once until it polls again.
    fn wake_by_ref(self: &Arc<Self>) {
        let mut ready = lock(&self.ready);
        ready.push(self.index);
        let task = ready.task.take();
        drop(ready);
        if let Some(task) = task {
            task.wake();
        }
    }
}

fn lock(ready: &Mutex<ReadyQueue>) -> MutexGuard<'_, ReadyQueue> {
    ready.lock().unwrap_or_else(PoisonError::into_inner)
}
