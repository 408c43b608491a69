//! The line of those who wait for a limit or a permit, and what wakes them.

mod alarm;
mod queue;
mod waiter;

use core::fmt;
use core::task::Waker;
use std::collections::BTreeMap;

use queue::Queue;

pub(crate) use alarm::Shelf;
pub(crate) use waiter::{Asker, Behind, Call, Waiter};

/// A place in line. Smaller is earlier.
pub(crate) type Ticket = u64;

/// Where a handle stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Place {
    #[default]
    Outside,
    InLine(Ticket),
    /// Out of the line since its turn had come when it only looked: before all who came later, and in nobody's way.
    Kept(Ticket),
}

impl Place {
    /// Of one who stands in line.
    pub(crate) const fn ticket(self) -> Option<Ticket> {
        match self {
            Self::InLine(ticket) => Some(ticket),
            Self::Outside | Self::Kept(_) => None,
        }
    }
}

/// Those who wait, in order of arrival. Every operation is logarithmic in their number.
///
/// Whoever let their turn go by stands aside: the others pass before them, and they are first again when they ask.
pub(crate) struct Line {
    waiters: Queue<Waiter>,
    aside: BTreeMap<Ticket, Waiter>,
    next: Ticket,
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self {
            waiters: Queue::new(),
            aside: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many wait, also aside.
    pub(crate) fn len(&self) -> usize {
        self.waiters.len() + self.aside.len()
    }

    pub(crate) fn is_anybody_behind(&self) -> bool {
        self.waiters.len() > 1
    }

    /// Whether this one stands there, and first.
    pub(crate) fn is_first(&self, ticket: Ticket) -> bool {
        self.first_ticket() == Some(ticket)
    }

    /// Whether nobody stands before `place`.
    pub(crate) fn is_turn_of(&self, place: Place) -> bool {
        let first = self.first_ticket();
        match place {
            Place::Outside => first.is_none(),
            Place::InLine(ticket) | Place::Kept(ticket) => {
                first.is_none_or(|first| ticket <= first)
            }
        }
    }

    fn first_ticket(&self) -> Option<Ticket> {
        self.waiters.first().map(|(ticket, _)| ticket)
    }

    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.waiters.first().map(|(_, waiter)| waiter)
    }

    pub(crate) fn cost_of(&self, ticket: Ticket) -> Option<u32> {
        self.waiters.get(ticket).map(Waiter::cost)
    }

    /// What those in line ask for, in order.
    pub(crate) fn costs(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiters.iter().map(|(_, waiter)| waiter.cost())
    }

    pub(crate) fn wakers(&self) -> impl Iterator<Item = Waker> + '_ {
        let waiters = self.waiters.iter().map(|(_, waiter)| waiter);
        waiters.chain(self.aside.values()).map(Waiter::waker)
    }

    pub(crate) fn set_first_aside(&mut self) {
        self.aside.extend(self.waiters.pop_first());
    }

    /// Somebody comes back to the place that they kept.
    pub(crate) fn rejoin(&mut self, ticket: Ticket, waiter: Waiter) {
        self.waiters.insert(ticket, waiter);
    }

    /// Whether this one stood aside, and no longer does.
    pub(crate) fn come_back(&mut self, ticket: Ticket) -> bool {
        let Some(waiter) = self.aside.remove(&ticket) else {
            return false;
        };
        self.rejoin(ticket, waiter);
        true
    }

    pub(crate) fn join(&mut self, waiter: Waiter) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.waiters.insert(ticket, waiter);
        ticket
    }

    /// Somebody in line asks again. What that replaced is for the caller to drop, once no lock is held.
    pub(crate) fn ask_again(
        &mut self,
        ticket: Ticket,
        cost: u32,
        asker: Asker<'_>,
    ) -> Option<Waiter> {
        self.waiters.get_mut(ticket)?.ask_again(cost, asker)
    }

    /// What wakes the second in line, unless it is the one with this ticket.
    pub(crate) fn second_unless(&self, ticket: Option<Ticket>) -> Option<Waker> {
        let (second, waiter) = self.waiters.iter().nth(1)?;
        (Some(second) != ticket).then(|| waiter.waker())
    }

    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(ticket);
        waiter.or_else(|| self.aside.remove(&ticket))
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("waiting", &self.len())
            .finish_non_exhaustive()
    }
}
