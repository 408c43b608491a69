use core::mem;
use core::task::Waker;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

/// Who of many has been woken, in that order, and the task to be woken for it.
///
/// For an adapter that waits for many things: each has a place, and a waker of its own, so that only what was woken is
/// looked at.
pub(super) struct Board {
    bells: Arc<Bells>,
}

impl Board {
    pub(super) fn new() -> Self {
        Self {
            bells: Arc::default(),
        }
    }

    /// A waker for this place.
    pub(super) fn waker(&self, index: usize) -> Waker {
        Waker::from(Arc::new(Bell {
            index,
            bells: Arc::clone(&self.bells),
        }))
    }

    /// As if this place had been woken, but for the task.
    pub(super) fn ring(&self, index: usize) {
        self.bells.lock().ring(index);
    }

    /// Wakes this task from now on. How many have been woken.
    pub(super) fn watch(&self, waker: &Waker) -> usize {
        let mut rung = self.bells.lock();
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

    /// The next one that was woken.
    pub(super) fn next(&self) -> Option<usize> {
        self.bells.lock().next()
    }
}

/// A waker may outlive this, and must not keep the task that polled it.
impl Drop for Board {
    fn drop(&mut self) {
        let task = self.bells.lock().task.take();
        drop(task);
    }
}

#[derive(Default)]
struct Bells {
    rung: Mutex<Rung>,
}

impl Bells {
    fn lock(&self) -> MutexGuard<'_, Rung> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    bells: Arc<Bells>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// The task is woken once for all that happens until it polls again.
    fn wake_by_ref(self: &Arc<Self>) {
        let mut rung = self.bells.lock();
        rung.ring(self.index);
        let task = rung.task.take();
        drop(rung);
        if let Some(task) = task {
            task.wake();
        }
    }
}
