use core::task::Waker;

use tokio::runtime::Id;

use crate::time::{Resolution, Tick};

/// The place of a request in the order of the queue: smaller is earlier.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Ticket {
    /// The time of arrival and what its class adds, or the deadline.
    pub(crate) order: Tick,
    /// How many requests came before.
    pub(super) number: u64,
    /// The flow in which it waits, if the queue has flows.
    pub(super) flow: u64,
}

impl Ticket {
    pub(super) const fn new(order: Tick, number: u64, flow: u64) -> Self {
        Self {
            order,
            number,
            flow,
        }
    }
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

    pub(super) const fn ticket(self) -> Option<Ticket> {
        match self {
            Self::None => None,
            Self::Queued(ticket) | Self::Reserved(ticket) => Some(ticket),
        }
    }
}

/// A queued request.
pub(super) struct Waiter {
    pub(super) cost: u32,
    /// It passes at this tick, or leaves; [`Tick::MAX`] for never.
    pub(super) deadline: Tick,
    pub(super) waker: Waker,
    /// The runtime in which it waits, if the timer of the queue may wake it there, and how exactly: `None` for exact waits, except in
    /// a crowd.
    pub(super) home: Option<(Id, Option<Resolution>)>,
    /// When a timer wakes it, its own or that of the queue. Zero if it was woken already; [`Tick::MAX`] for never.
    pub(super) wakes_at: Tick,
    /// Whether it would pass, and waits in another queue.
    pub(super) holds: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Waiter {
        pub(in crate::wait) fn noop(cost: u32) -> Self {
            Self {
                cost,
                deadline: Tick::MAX,
                waker: Waker::noop().clone(),
                home: None,
                wakes_at: Tick::MAX,
                holds: false,
            }
        }
    }
}
