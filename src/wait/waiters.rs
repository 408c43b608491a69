use core::task::Waker;
use std::collections::{BTreeMap, VecDeque};

use tokio::runtime::Id;

use crate::time::{Resolution, Tick};

/// The order of arrival: smaller is earlier.
pub(crate) type Ticket = u64;

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
    /// The runtime in which it waits, if the timer of the queue may wake it there.
    pub(super) home: Option<(Id, Resolution)>,
    /// When a timer wakes it, its own or that of the queue. Zero if it was woken already; [`Tick::MAX`] for never.
    pub(super) wakes_at: Tick,
}

/// The waiters in order of arrival. To join, to be found and to leave takes logarithmic time in their number, on average.
///
/// Overdue heads are kept apart from the queue: others pass before them, and they return to its front when they ask.
#[derive(Default)]
pub(crate) struct Waiters {
    /// A waiter that leaves from the middle leaves a gap. Gaps are removed at the front, and everywhere when they outnumber the
    /// waiters. So joining and leaving allocates nothing. The front is never a gap.
    queued: VecDeque<(Ticket, Option<Waiter>)>,
    len: usize,
    overdue: BTreeMap<Ticket, Waiter>,
    next_ticket: Ticket,
    /// How often a waiter joined, left or moved.
    changes: usize,
    /// How often a waiter left or moved in a way that an estimate of the wait could not foresee.
    reorders: usize,
}

/// A queue of at most this many places keeps its memory and its gaps.
const FEW: usize = 32;

impl Waiters {
    /// Whether none is queued. Overdue heads do not count.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many wait, overdue heads included.
    pub(crate) fn len(&self) -> usize {
        self.len + self.overdue.len()
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
        queued.filter_map(|(_, waiter)| waiter.as_ref().map(|waiter| waiter.cost))
    }

    /// The ticket of the next waiter that joins.
    pub(crate) const fn next_ticket(&self) -> Ticket {
        self.next_ticket
    }

    pub(super) fn head(&self) -> Option<Ticket> {
        self.queued.front().map(|(ticket, _)| *ticket)
    }

    pub(super) fn head_mut(&mut self) -> Option<(Ticket, &mut Waiter)> {
        let (ticket, waiter) = self.queued.front_mut()?;
        waiter.as_mut().map(|waiter| (*ticket, waiter))
    }

    pub(super) const fn has_second(&self) -> bool {
        self.len > 1
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        let index = self.index_of(ticket).ok()?;
        self.queued[index].1.as_mut()
    }

    /// Every waiter, overdue ones included.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        let queued = self.queued.iter_mut();
        let queued = queued.filter_map(|(_, waiter)| waiter.as_mut());
        queued.chain(self.overdue.values_mut())
    }

    pub(super) fn join(&mut self, waiter: Waiter) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.changes = self.changes.wrapping_add(1);
        self.insert(ticket, waiter);
        ticket
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
        match self.index_of(ticket) {
            Ok(index) => self.queued[index].1 = Some(waiter),
            Err(index) => self.queued.insert(index, (ticket, Some(waiter))),
        }
        self.len += 1;
    }

    fn remove_queued(&mut self, ticket: Ticket) -> Option<Waiter> {
        let index = self.index_of(ticket).ok()?;
        let removed = self.queued[index].1.take()?;
        self.len -= 1;
        self.close_gaps();
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
        if self.queued.len() > 2 * self.len + FEW {
            self.queued.retain(|place| place.1.is_some());
        }
        if self.queued.is_empty() && self.queued.capacity() > FEW {
            self.queued = VecDeque::new();
        }
    }
}
