use core::hash::Hash;
use core::task::{Context, Poll};
use std::collections::{HashMap, VecDeque};

use tokio::runtime::Id;

use crate::limiter::{Gate, Keyed, KeyedAt, Limiter};
use crate::policy::Policy;
use crate::time::this_runtime;

use super::ready_set::ReadySet;

/// Items that wait for the limit of their key, in a queue for each key.
///
/// A key has a queue while items of it wait. Only queues that were woken are polled.
pub(super) struct KeyQueues<T, K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    limits: Keyed<K, P>,
    queues: ReadySet<KeyQueue<T, K, KeyedAt<K, P>>>,
    index_of: HashMap<K, usize>,
    /// The runtime of the last poll. It has the timers of the queues.
    runtime: Option<Id>,
    /// How many items wait.
    len: usize,
    /// How many items were ever pushed.
    pushed: u64,
}

struct KeyQueue<T, K, L: Limiter> {
    /// `None` in a free slot.
    key: Option<(K, Gate<L>)>,
    /// Each item with its number in order of arrival. A free slot keeps the memory.
    items: VecDeque<(u64, T)>,
}

impl<T, K, P> KeyQueues<T, K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    pub(super) fn new(limits: Keyed<K, P>) -> Self {
        Self {
            limits,
            queues: ReadySet::new(),
            index_of: HashMap::new(),
            runtime: None,
            len: 0,
            pushed: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds an item. The next [`poll_pass`](Self::poll_pass) polls its queue if the queue is new.
    pub(super) fn push(&mut self, key: K, item: T) {
        let number = self.pushed;
        self.pushed += 1;
        self.len += 1;
        let index = self.index_of.get(&key).copied();
        let index = index.unwrap_or_else(|| self.open(key));
        self.queues.slot(index).0.items.push_back((number, item));
    }

    /// The next item whose key gets a permit.
    pub(super) fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.move_to_this_runtime();
        for _ in 0..self.queues.register(cx.waker()) {
            let Some(index) = self.queues.next() else {
                break;
            };
            let (queue, waker) = self.queues.slot(index);
            // The slot may have been freed after it was woken.
            let Some((_, gate)) = &mut queue.key else {
                continue;
            };
            if gate.poll_one(&mut Context::from_waker(waker)).is_pending() {
                continue;
            }
            if let Some((_, item)) = queue.items.pop_front() {
                self.len -= 1;
                if queue.items.is_empty() {
                    self.close(index);
                } else {
                    self.queues.mark_ready(index);
                }
                return Poll::Ready(item);
            }
        }
        Poll::Pending
    }

    /// The items that wait, in order of arrival.
    pub(super) fn into_items(self) -> Vec<T> {
        let queues = self.queues.into_values();
        let mut items: Vec<_> = queues.flat_map(|queue| queue.items).collect();
        items.sort_unstable_by_key(|(number, _)| *number);
        items.into_iter().map(|(_, item)| item).collect()
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

    fn open(&mut self, key: K) -> usize {
        let index = self.queues.open(|| KeyQueue {
            key: None,
            items: VecDeque::new(),
        });
        let gate = Gate::new(self.limits.at(key.clone()));
        self.queues.slot(index).0.key = Some((key.clone(), gate));
        self.index_of.insert(key, index);
        index
    }

    fn close(&mut self, index: usize) {
        if let Some((key, _)) = self.queues.slot(index).0.key.take() {
            self.index_of.remove(&key);
            self.queues.close(index);
        }
    }
}
