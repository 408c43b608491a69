use core::iter;
use std::collections::{BTreeMap, VecDeque};

use crate::time::Tick;

use super::waiter::{Ticket, Waiter};

/// Waiters in the order of their tickets. To join, to be found and to leave takes logarithmic time in their number, on average.
///
/// A request that joins before others, because of its class or its deadline, is kept in a tree beside the queue: to insert it in the
/// middle would move the others.
#[derive(Default)]
pub(super) struct InOrder {
    /// A waiter that leaves from the middle leaves a gap. Gaps are removed at both ends, and everywhere when they outnumber the
    /// waiters. So joining and leaving allocates nothing. Neither the front nor the back is a gap.
    queued: VecDeque<(Ticket, Option<Waiter>)>,
    /// Those that have joined before others.
    early: BTreeMap<Ticket, Waiter>,
    len: usize,
}

/// A queue of at most this many places keeps its memory and its gaps.
const FEW: usize = 32;

impl InOrder {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first ticket, or the last one.
    #[inline]
    pub(super) fn end(&self, is_last: bool) -> Option<Ticket> {
        let queued = if is_last {
            self.queued.back()
        } else {
            self.queued.front()
        };
        let queued = queued.map(|place| place.0);
        if self.early.is_empty() {
            return queued;
        }
        self.end_beside_early(queued, is_last)
    }

    #[inline(never)]
    fn end_beside_early(&self, queued: Option<Ticket>, is_last: bool) -> Option<Ticket> {
        let mut early = self.early.keys();
        if is_last {
            queued.max(early.next_back().copied())
        } else {
            queued.into_iter().chain(early.next().copied()).min()
        }
    }

    #[inline]
    pub(super) fn end_mut(&mut self, is_last: bool) -> Option<(Ticket, &mut Waiter)> {
        if !self.early.is_empty() {
            let ticket = self.end(is_last)?;
            return self.get_mut(ticket).map(|waiter| (ticket, waiter));
        }
        let (ticket, waiter) = if is_last {
            self.queued.back_mut()?
        } else {
            self.queued.front_mut()?
        };
        waiter.as_mut().map(|waiter| (*ticket, waiter))
    }

    /// The tickets from this one on, in order, what they cost, and their deadlines.
    pub(super) fn costs_from(&self, ticket: Ticket) -> impl Iterator<Item = (Ticket, u32, Tick)> {
        let first = self.index_of(ticket).unwrap_or_else(|next| next);
        let queued = self.queued.iter().skip(first);
        let mut queued = queued
            .filter_map(|(ticket, waiter)| Some((ticket, waiter.as_ref()?)))
            .peekable();
        let mut early = self.early.range(ticket..).peekable();
        iter::from_fn(move || {
            let next_early = early.next_if(|(ticket, _)| {
                let next = queued.peek();
                next.is_none_or(|(next, _)| ticket < next)
            });
            next_early.or_else(|| queued.next())
        })
        .map(|(ticket, waiter)| (*ticket, waiter.cost, waiter.deadline))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        match self.index_of(ticket) {
            Ok(index) => self.queued[index].1.as_mut(),
            Err(_) => self.early.get_mut(&ticket),
        }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        let queued = self.queued.iter_mut();
        let queued = queued.filter_map(|(_, waiter)| waiter.as_mut());
        queued.chain(self.early.values_mut())
    }

    #[inline]
    pub(super) fn insert(&mut self, ticket: Ticket, waiter: Waiter) {
        match self.index_of(ticket) {
            Ok(index) => self.queued[index].1 = Some(waiter),
            Err(index) if index == self.queued.len() => {
                self.queued.push_back((ticket, Some(waiter)));
            }
            Err(_) => {
                self.early.insert(ticket, waiter);
            }
        }
        self.len += 1;
    }

    #[inline]
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let removed = match self.index_of(ticket) {
            Ok(index) => self.queued[index].1.take(),
            Err(_) => self.early.remove(&ticket),
        }?;
        self.len -= 1;
        self.close_gaps();
        Some(removed)
    }

    #[inline]
    fn index_of(&self, ticket: Ticket) -> Result<usize, usize> {
        // Most requests come from the front or join at the end.
        match (self.queued.front(), self.queued.back()) {
            (Some((first, _)), _) if *first == ticket => Ok(0),
            (_, Some((last, _))) if *last < ticket => Err(self.queued.len()),
            _ => self.queued.binary_search_by_key(&ticket, |place| place.0),
        }
    }

    #[inline]
    fn close_gaps(&mut self) {
        while self.queued.front().is_some_and(|place| place.1.is_none()) {
            self.queued.pop_front();
        }
        while self.queued.back().is_some_and(|place| place.1.is_none()) {
            self.queued.pop_back();
        }
        if self.queued.len() > 2 * (self.len - self.early.len()) + FEW {
            self.queued.retain(|place| place.1.is_some());
        }
        if self.queued.is_empty() && self.queued.capacity() > FEW {
            self.queued = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use core::ops::Range;

    use super::*;

    /// A queue of so many waiters, and their tickets.
    fn queue(len: u64) -> (InOrder, Vec<Ticket>) {
        let mut waiters = InOrder::default();
        let tickets = (0..len).map(|number| Ticket::new(Tick::ZERO, number, 0));
        let tickets: Vec<_> = tickets.collect();
        for ticket in &tickets {
            waiters.insert(*ticket, Waiter::noop(1));
        }
        (waiters, tickets)
    }

    /// The places that are kept for these waiters, gaps included.
    fn places(cancelled: Range<usize>) -> usize {
        let (mut waiters, tickets) = queue(100);
        for ticket in &tickets[cancelled] {
            waiters.remove(*ticket);
        }
        waiters.queued.len()
    }

    #[test]
    fn waiters_that_leave_from_the_middle_keep_few_places_and_at_the_ends_none() {
        assert_eq!(places(1..1), 100);
        assert_eq!(places(0..40), 60);
        assert_eq!(places(60..100), 60);
        // Two a waiter and a few more.
        assert_eq!(places(1..67), 100);
        assert_eq!(places(1..68), 33);
        assert_eq!(places(1..99), 33);
    }

    #[test]
    fn a_queue_that_was_long_gives_its_memory_back_and_a_short_one_keeps_it() {
        for (len, is_kept) in [(FEW / 2, true), (4 * FEW, false)] {
            let (mut waiters, tickets) = queue(len as u64);
            for ticket in tickets {
                waiters.remove(ticket);
            }
            assert_eq!(waiters.queued.capacity() > 0, is_kept, "{len}");
        }
    }
}
