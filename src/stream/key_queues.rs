use core::convert::Infallible;
use core::hash::Hash;
use core::task::{Context, Poll, ready};
use std::collections::{HashMap, VecDeque};

use tokio::runtime::Id;

use crate::limiter::{AcquireError, Gate, Limiter, TooCostly};
use crate::time::this_runtime;

use super::ready_set::ReadySet;

/// Items that wait for the limit of their key, in a queue for each key.
///
/// A key has a queue while items of it wait. Only queues that were woken are polled.
pub(super) struct KeyQueues<T, K, L: Limiter> {
    queues: ReadySet<KeyQueue<T, K, L>>,
    index_of: HashMap<K, usize>,
    /// The runtime of the last poll. It has the timers of the queues.
    runtime: Option<Id>,
    /// How many items wait.
    pub(super) len: usize,
    /// How many items were ever pushed.
    pushed: u64,
}

struct KeyQueue<T, K, L: Limiter> {
    /// `None` in a free slot.
    key: Option<(K, Gate<L>)>,
    /// Each item with its number in order of arrival, and its cost. A free slot keeps the memory.
    items: VecDeque<(u64, u32, T)>,
}

impl<T, K, L> KeyQueues<T, K, L>
where
    K: Hash + Eq + Clone,
    L: Limiter<Error = Infallible>,
{
    pub(super) fn new() -> Self {
        Self {
            queues: ReadySet::new(),
            index_of: HashMap::new(),
            runtime: None,
            len: 0,
            pushed: 0,
        }
    }

    /// The number of the queue of `key`, into which an item has to be [pushed](Self::push) next.
    pub(super) fn queue_of<E>(
        &mut self,
        key: K,
        limit_of: impl FnOnce(K) -> Result<L, E>,
    ) -> Result<usize, E> {
        match self.index_of.get(&key) {
            Some(index) => Ok(*index),
            None => limit_of(key.clone()).map(|limit| self.open(key, limit)),
        }
    }

    /// Adds an item behind those that this queue holds.
    pub(super) fn push(&mut self, queue: usize, cost: u32, item: T) {
        let number = self.pushed;
        self.pushed += 1;
        self.len += 1;
        let (queue, _) = self.queues.slot(queue);
        queue.items.push_back((number, cost, item));
    }

    /// The next item whose key grants its cost, or can never grant it.
    pub(super) fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<(T, Result<(), TooCostly>)> {
        self.move_to_this_runtime();
        self.queues.poll_ready(cx, |queues, index| {
            let (queue, waker) = queues.slot(index);
            // The slot may have been freed after it was woken.
            let Some((key, gate)) = &mut queue.key else {
                return Poll::Pending;
            };
            let Some((_, cost, _)) = queue.items.front() else {
                return Poll::Pending;
            };
            let passed = ready!(gate.poll_pass(*cost, &mut Context::from_waker(waker)));
            let Some((_, _, item)) = queue.items.pop_front() else {
                return Poll::Pending;
            };
            self.len -= 1;
            if queue.items.is_empty() {
                self.index_of.remove(key);
                queue.key = None;
                queues.close(index);
            } else {
                queues.mark_ready(index);
            }
            Poll::Ready((item, passed.map_err(AcquireError::into_too_costly)))
        })
    }

    /// The items that wait, in order of arrival.
    pub(super) fn into_items(self) -> Vec<T> {
        let queues = self.queues.into_values();
        let mut items: Vec<_> = queues.flat_map(|queue| queue.items).collect();
        items.sort_unstable_by_key(|(number, _, _)| *number);
        items.into_iter().map(|(_, _, item)| item).collect()
    }

    /// In another runtime every queue has to be polled once: its timer in the runtime before does not wake it any more.
    fn move_to_this_runtime(&mut self) {
        let here = this_runtime();
        if self.runtime != here {
            self.runtime = here;
            for index in self.index_of.values() {
                self.queues.mark_ready(*index);
            }
        }
    }

    fn open(&mut self, key: K, limit: L) -> usize {
        let index = self.queues.open(|| KeyQueue {
            key: None,
            items: VecDeque::new(),
        });
        self.queues.slot(index).0.key = Some((key.clone(), Gate::new(limit)));
        self.index_of.insert(key, index);
        index
    }
}
