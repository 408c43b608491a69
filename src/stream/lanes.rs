use core::hash::Hash;
use core::task::{Context, Poll, Waker};
use std::collections::{HashMap, VecDeque};

use tokio::runtime::Id;

use crate::limiter::{Gate, Keyed, KeyedAt};
use crate::policy::Policy;
use crate::time::this_runtime;

use super::board::Board;

/// Items that wait, in a lane for each key.
///
/// Each lane has a waker of its own, so that only those that were woken are looked at. Places are used again, with their
/// wakers; a lane is there while something waits in it.
pub(super) struct Lanes<T, K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    limits: Keyed<K, P>,
    places: Vec<Place<T, K, P>>,
    place_of: HashMap<K, usize>,
    free: Vec<usize>,
    board: Board,
    /// Where it was polled last: a lane that waits has its timer there.
    runtime: Option<Id>,
    #[cfg(feature = "precise")]
    are_precise: bool,
    /// How many items wait.
    len: usize,
    /// How many ever came.
    count: u64,
}

struct Place<T, K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    lane: Option<Lane<T, K, P>>,
    waker: Waker,
    /// The memory of a lane that was here.
    spare: VecDeque<(u64, T)>,
}

struct Lane<T, K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    key: K,
    gate: Gate<KeyedAt<K, P>>,
    /// With their numbers in order of arrival.
    items: VecDeque<(u64, T)>,
}

impl<T, K, P> Lanes<T, K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    pub(super) fn new(limits: Keyed<K, P>) -> Self {
        Self {
            limits,
            places: Vec::new(),
            place_of: HashMap::new(),
            free: Vec::new(),
            board: Board::new(),
            runtime: None,
            #[cfg(feature = "precise")]
            are_precise: false,
            len: 0,
            count: 0,
        }
    }

    /// To be called before anything waits.
    #[cfg(feature = "precise")]
    pub(super) fn be_precise(&mut self) {
        self.are_precise = true;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// An item has come. If it is the first of its key, the key is looked at by the next [`poll_pass`](Self::poll_pass).
    pub(super) fn push(&mut self, key: K, item: T) {
        let number = self.count;
        self.count += 1;
        self.len += 1;
        let waiting = self.place_of.get(&key).copied();
        let index = waiting.unwrap_or_else(|| self.open(key));
        if let Some(lane) = &mut self.places[index].lane {
            lane.items.push_back((number, item));
        }
    }

    /// The next item whose key lets it pass.
    pub(super) fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.move_here();
        for _ in 0..self.board.watch(cx.waker()) {
            let Some(index) = self.board.next() else {
                break;
            };
            let Place { lane, waker, .. } = &mut self.places[index];
            // A lane may have been closed since it was woken, and the place be another key's.
            let Some(open) = lane else { continue };
            if open
                .gate
                .poll_one(&mut Context::from_waker(waker))
                .is_pending()
            {
                continue;
            }
            if let Some((_, item)) = open.items.pop_front() {
                self.len -= 1;
                if open.items.is_empty() {
                    self.close(index);
                } else {
                    self.board.ring(index);
                }
                return Poll::Ready(item);
            }
        }
        Poll::Pending
    }

    /// In another runtime, all that wait have to be looked at once: nobody wakes them where they were.
    fn move_here(&mut self) {
        let here = this_runtime();
        if self.runtime != here {
            self.runtime = here;
            self.place_of
                .values()
                .for_each(|index| self.board.ring(*index));
        }
    }

    /// In order of arrival.
    pub(super) fn into_items(self) -> Vec<T> {
        let lanes = self.places.into_iter().filter_map(|place| place.lane);
        let mut items: Vec<_> = lanes.flat_map(|lane| lane.items).collect();
        items.sort_unstable_by_key(|(number, _)| *number);
        items.into_iter().map(|(_, item)| item).collect()
    }

    fn open(&mut self, key: K) -> usize {
        let index = self.free.pop().unwrap_or_else(|| self.build_place());
        let gate = self.gate(key.clone());
        let place = &mut self.places[index];
        place.lane = Some(Lane {
            key: key.clone(),
            gate,
            items: core::mem::take(&mut place.spare),
        });
        self.place_of.insert(key, index);
        self.board.ring(index);
        index
    }

    fn gate(&self, key: K) -> Gate<KeyedAt<K, P>> {
        let gate = Gate::new(self.limits.at(key));
        #[cfg(feature = "precise")]
        if self.are_precise {
            return gate.precise();
        }
        gate
    }

    fn close(&mut self, index: usize) {
        if let Some(lane) = self.places[index].lane.take() {
            self.place_of.remove(&lane.key);
            self.places[index].spare = lane.items;
            self.free.push(index);
        }
    }

    fn build_place(&mut self) -> usize {
        let index = self.places.len();
        self.places.push(Place {
            lane: None,
            waker: self.board.waker(index),
            spare: VecDeque::new(),
        });
        index
    }
}
