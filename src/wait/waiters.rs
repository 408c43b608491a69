use core::iter;
use core::task::Waker;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use tokio::runtime::Id;

use crate::time::{Resolution, Tick};

use super::Priority;
use super::priority::Ageing;

/// The place of a request in the order of the queue: smaller is earlier.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Ticket {
    /// The time of arrival and what its class adds.
    order: Tick,
    /// How many requests came before.
    number: u64,
}

/// Where a handle stands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Position {
    /// Not queued.
    #[default]
    None,
    /// In the queue, or an overdue head.
    Queued(Ticket),
    /// Out of the queue after a peek that passed. It is ahead of every waiter that joined later, and blocks none.
    Reserved(Ticket),
}

impl Position {
    pub(crate) const fn is_none(self) -> bool {
        matches!(self, Self::None)
    }
}

/// A queued request.
pub(super) struct Waiter {
    pub(super) cost: u32,
    pub(super) waker: Waker,
    /// The runtime in which it waits, if the timer of the queue may wake it there, and how exactly: `None` for exact waits, except in
    /// a crowd.
    pub(super) home: Option<(Id, Option<Resolution>)>,
    /// When a timer wakes it, its own or that of the queue. Zero if it was woken already; [`Tick::MAX`] for never.
    pub(super) wakes_at: Tick,
    /// Whether it would pass, and waits in another queue.
    pub(super) holds: bool,
}

/// The waiters in order of arrival. To join, to be found and to leave takes logarithmic time in their number, on average.
///
/// A request that joins before others, because of its class, is kept in a tree beside the queue: to insert it in the middle would
/// move the others.
///
/// Overdue heads are kept apart from the queue: others pass before them, and they return to its front when they ask.
///
/// The head is the oldest waiter. With [`serve_newest_first`](Self::serve_newest_first) it is the newest one from the time at
/// which the queue has not been empty for that long, until it is empty.
pub(crate) struct Waiters {
    /// A waiter that leaves from the middle leaves a gap. Gaps are removed at both ends, and everywhere when they outnumber the
    /// waiters. So joining and leaving allocates nothing. Neither the front nor the back is a gap.
    queued: VecDeque<(Ticket, Option<Waiter>)>,
    /// Those that have joined before others.
    early: BTreeMap<Ticket, Waiter>,
    len: usize,
    /// The costs of all that are queued.
    cost: u64,
    overdue: BTreeMap<Ticket, Waiter>,
    next: u64,
    /// When the last request came, as far as the clock was read. It never goes back.
    arrived: Tick,
    /// If requests have classes.
    ageing: Option<Ageing>,
    /// How often a waiter joined, left or moved.
    changes: usize,
    /// How often a waiter left or moved in a way that an estimate of the wait could not foresee.
    reorders: usize,
    /// [`Duration::MAX`]: never.
    newest_first_after: Duration,
    /// From when on the newest waiter is the head, if the queue is not empty before; [`Tick::MAX`] if that is not known.
    newest_first_at: Tick,
    is_newest_first: bool,
}

/// A queue of at most this many places keeps its memory and its gaps.
const FEW: usize = 32;

impl Waiters {
    /// The newest waiter is the head while the queue has not been empty for this time.
    pub(super) fn serve_newest_first(&mut self, after: Duration) {
        self.newest_first_after = after;
    }

    /// Orders requests by their class, too: newest first no longer applies.
    pub(super) fn serve_by_class(&mut self, ageing: Option<Ageing>) {
        let ageing = ageing.or(self.ageing).unwrap_or(Ageing::DEFAULT);
        self.ageing = Some(ageing);
        self.is_newest_first = false;
        self.reorder();
    }

    pub(super) const fn has_classes(&self) -> bool {
        self.ageing.is_some()
    }

    /// Whether the time has to be [noted](Self::note_queued) at which this waiter, the only one, has joined.
    pub(super) fn has_to_note_queued(&self) -> bool {
        self.newest_first_after < Duration::MAX && !self.has_second()
    }

    /// Notes since when the queue is not empty.
    pub(super) fn note_queued(&mut self, now: Tick) {
        if self.newest_first_at == Tick::MAX {
            self.newest_first_at = now.after(self.newest_first_after);
        }
    }

    /// Returns whether the newest waiter is the head from now on, and was not before.
    pub(super) fn note_time(&mut self, now: Tick) -> bool {
        let is_early = now < self.newest_first_at;
        if is_early || self.is_newest_first || self.is_empty() || self.has_classes() {
            return false;
        }
        self.is_newest_first = true;
        self.reorder();
        true
    }

    /// From when on a new request may pass before those that are queued; [`Tick::MAX`] for never.
    pub(crate) const fn newest_first_at(&self) -> Tick {
        if self.has_classes() {
            return Tick::ZERO;
        }
        self.newest_first_at
    }

    pub(super) const fn is_newest_first(&self) -> bool {
        self.is_newest_first
    }

    /// Whether none is queued. Overdue heads do not count.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many wait, overdue heads included.
    pub(crate) fn len(&self) -> usize {
        self.len + self.overdue.len()
    }

    /// What the queued waiters want together. Overdue heads do not count.
    pub(crate) const fn cost(&self) -> u64 {
        self.cost
    }

    pub(crate) const fn changes(&self) -> usize {
        self.changes
    }

    pub(crate) const fn reorders(&self) -> usize {
        self.reorders
    }

    /// The costs of the queued waiters from this ticket on, in order.
    pub(crate) fn costs_from(&self, ticket: Ticket) -> impl Iterator<Item = u32> + '_ {
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
        .map(|(_, waiter)| waiter.cost)
    }

    /// The ticket of the next waiter that joins.
    pub(crate) fn next_ticket(&self) -> Ticket {
        Ticket {
            order: Ageing::DEFAULT.order(self.arrived, Priority::Normal),
            number: self.next,
        }
    }

    #[inline]
    pub(super) fn head(&self) -> Option<Ticket> {
        let queued = if self.is_newest_first {
            self.queued.back()
        } else {
            self.queued.front()
        };
        let queued = queued.map(|place| place.0);
        if self.early.is_empty() {
            return queued;
        }
        self.head_beside_early(queued)
    }

    #[inline(never)]
    fn head_beside_early(&self, queued: Option<Ticket>) -> Option<Ticket> {
        let mut early = self.early.keys();
        if self.is_newest_first {
            queued.max(early.next_back().copied())
        } else {
            queued.into_iter().chain(early.next().copied()).min()
        }
    }

    pub(super) fn head_mut(&mut self) -> Option<(Ticket, &mut Waiter)> {
        if !self.early.is_empty() {
            let ticket = self.head()?;
            return self.get_mut(ticket).map(|waiter| (ticket, waiter));
        }
        let (ticket, waiter) = if self.is_newest_first {
            self.queued.back_mut()?
        } else {
            self.queued.front_mut()?
        };
        waiter.as_mut().map(|waiter| (*ticket, waiter))
    }

    /// Whether no waiter is ahead of this position.
    pub(super) fn is_first(&self, position: Position) -> bool {
        match (position, self.head()) {
            (_, None) => true,
            (Position::None, Some(_)) => self.is_newest_first,
            (Position::Queued(ticket) | Position::Reserved(ticket), Some(head)) => {
                ticket == head || (ticket > head) == self.is_newest_first
            }
        }
    }

    pub(super) const fn has_second(&self) -> bool {
        self.len > 1
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        match self.index_of(ticket) {
            Ok(index) => self.queued[index].1.as_mut(),
            Err(_) => self.early.get_mut(&ticket),
        }
    }

    /// Every waiter, overdue ones included.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        let queued = self.queued.iter_mut();
        let queued = queued.filter_map(|(_, waiter)| waiter.as_mut());
        let early = self.early.values_mut();
        queued.chain(early).chain(self.overdue.values_mut())
    }

    /// A ticket for a request that comes now.
    pub(super) fn ticket(&mut self, now: Tick, priority: Priority) -> Ticket {
        self.arrived = self.arrived.max(now);
        let ageing = self.ageing.unwrap_or(Ageing::DEFAULT);
        let ticket = Ticket {
            order: ageing.order(self.arrived, priority),
            number: self.next,
        };
        self.next += 1;
        ticket
    }

    pub(super) fn join(&mut self, ticket: Ticket, waiter: Waiter) {
        self.changes = self.changes.wrapping_add(1);
        self.insert(ticket, waiter);
    }

    /// A handle comes back to its position.
    pub(super) fn rejoin(&mut self, ticket: Ticket, waiter: Waiter) {
        self.reorder();
        self.insert(ticket, waiter);
    }

    /// An overdue head comes back, if this is one.
    pub(super) fn requeue(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.overdue.remove(&ticket) {
            self.rejoin(ticket, waiter);
        }
    }

    /// A queued waiter asks for another cost from now on.
    pub(super) fn change_cost(&mut self, ticket: Ticket, cost: u32) {
        let waiter = self.get_mut(ticket);
        if let Some(old) = waiter.map(|waiter| core::mem::replace(&mut waiter.cost, cost)) {
            self.cost = self.cost + u64::from(cost) - u64::from(old);
            self.reorder();
        }
    }

    pub(super) fn pass_over_head(&mut self) {
        if let Some(ticket) = self.head() {
            let waiter = self.remove_queued(ticket);
            self.overdue.extend(waiter.map(|waiter| (ticket, waiter)));
            self.reorder();
        }
    }

    /// `as_foreseen`: the waiter was the head and has passed, which an estimate expects.
    pub(super) fn remove(&mut self, ticket: Ticket, as_foreseen: bool) -> Option<Waiter> {
        let removed = self.remove_queued(ticket);
        if as_foreseen && removed.is_some() {
            self.changes = self.changes.wrapping_add(1);
        } else {
            self.reorder();
        }
        removed.or_else(|| self.overdue.remove(&ticket))
    }

    /// Estimates of a wait that were made before this are no longer valid.
    pub(super) fn reorder(&mut self) {
        self.changes = self.changes.wrapping_add(1);
        self.reorders = self.reorders.wrapping_add(1);
    }

    fn insert(&mut self, ticket: Ticket, waiter: Waiter) {
        self.cost += u64::from(waiter.cost);
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

    fn remove_queued(&mut self, ticket: Ticket) -> Option<Waiter> {
        let removed = match self.index_of(ticket) {
            Ok(index) => self.queued[index].1.take(),
            Err(_) => self.early.remove(&ticket),
        }?;
        self.len -= 1;
        self.cost -= u64::from(removed.cost);
        self.close_gaps();
        if self.is_empty() {
            self.newest_first_at = Tick::MAX;
            if core::mem::take(&mut self.is_newest_first) {
                self.reorder();
            }
        }
        Some(removed)
    }

    fn index_of(&self, ticket: Ticket) -> Result<usize, usize> {
        // Most requests come from the front or join at the end.
        match (self.queued.front(), self.queued.back()) {
            (Some((first, _)), _) if *first == ticket => Ok(0),
            (_, Some((last, _))) if *last < ticket => Err(self.queued.len()),
            _ => self.queued.binary_search_by_key(&ticket, |place| place.0),
        }
    }

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

impl Default for Waiters {
    fn default() -> Self {
        Self {
            queued: VecDeque::new(),
            early: BTreeMap::new(),
            len: 0,
            cost: 0,
            overdue: BTreeMap::new(),
            next: 0,
            arrived: Tick::ZERO,
            ageing: None,
            changes: 0,
            reorders: 0,
            newest_first_after: Duration::MAX,
            newest_first_at: Tick::MAX,
            is_newest_first: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::ops::Range;

    use super::*;

    fn join(waiters: &mut Waiters) -> Ticket {
        let ticket = waiters.ticket(Tick::ZERO, Priority::Normal);
        let waiter = Waiter {
            cost: 1,
            waker: Waker::noop().clone(),
            home: None,
            wakes_at: Tick::MAX,
            holds: false,
        };
        waiters.join(ticket, waiter);
        ticket
    }

    /// The places that are kept for these waiters, gaps included.
    fn places(cancelled: Range<usize>) -> usize {
        let mut waiters = Waiters::default();
        let tickets: Vec<Ticket> = (0..100).map(|_| join(&mut waiters)).collect();
        for ticket in &tickets[cancelled] {
            waiters.remove(*ticket, false);
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
            let mut waiters = Waiters::default();
            let tickets: Vec<Ticket> = (0..len).map(|_| join(&mut waiters)).collect();
            for ticket in tickets {
                waiters.remove(ticket, true);
            }
            assert_eq!(waiters.queued.capacity() > 0, is_kept, "{len}");
        }
    }
}
