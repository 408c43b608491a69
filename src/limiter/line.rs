use core::fmt;
use core::task::{Context, Waker};
use core::time::Duration;
use std::collections::BTreeMap;

use crate::time::Timer;

/// A place in line. Smaller is earlier.
pub(super) type Ticket = u64;

/// Those who wait, in order of arrival. Every operation is logarithmic in their number.
pub(super) struct Line {
    waiters: BTreeMap<Ticket, Waiter>,
    next: Ticket,
}

impl Line {
    pub(super) const fn new() -> Self {
        Self {
            waiters: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_first(&self, ticket: Ticket) -> bool {
        self.waiters
            .first_key_value()
            .is_some_and(|(first, _)| *first == ticket)
    }

    pub(super) fn first(&mut self) -> Option<&mut Waiter> {
        self.waiters.values_mut().next()
    }

    pub(super) fn cost_of(&self, ticket: Ticket) -> Option<u32> {
        self.waiters.get(&ticket).map(|waiter| waiter.cost)
    }

    /// What those in line ask for, in order.
    pub(super) fn costs(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiters.values().map(|waiter| waiter.cost)
    }

    pub(super) fn wakers(&self) -> impl Iterator<Item = Waker> + '_ {
        self.waiters.values().map(|waiter| waiter.waker.clone())
    }

    pub(super) fn join(&mut self, waiter: Waiter) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.waiters.insert(ticket, waiter);
        ticket
    }

    /// Somebody in line asks again. What that replaced is for the caller to drop, once no lock is held.
    pub(super) fn ask_again(&mut self, ticket: Ticket, cost: u32, waker: &Waker) -> Option<Waiter> {
        let waiter = self.waiters.get_mut(&ticket)?;
        waiter.cost = cost;
        if waiter.waker.will_wake(waker) {
            return None;
        }
        // Another task holds it now, maybe in another runtime.
        let timer = waiter.timer.is_some().then(Timer::of_this_runtime);
        let moved = Waiter {
            cost,
            waker: waker.clone(),
            timer,
        };
        Some(core::mem::replace(waiter, moved))
    }

    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waiter> {
        self.waiters.remove(&ticket)
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("waiting", &self.waiters.len())
            .finish_non_exhaustive()
    }
}

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct Waiter {
    cost: u32,
    waker: Waker,
    /// Wakes them when their turn has come, although their task has not run since they became the first: that saves one
    /// wake-up in two. Whoever is told how long to wait sleeps on a timer of their own and needs none here.
    timer: Option<Timer>,
}

impl Waiter {
    /// One who is told how long to wait.
    pub(super) fn told(cost: u32, waker: &Waker) -> Self {
        Self {
            cost,
            waker: waker.clone(),
            timer: None,
        }
    }

    /// One who has others before them. The timer is of the runtime in which they wait, not of those others'.
    pub(super) fn behind(cost: u32, waker: &Waker) -> Self {
        Self {
            timer: Some(Timer::of_this_runtime()),
            ..Self::told(cost, waker)
        }
    }

    pub(super) const fn cost(&self) -> u32 {
        self.cost
    }

    /// Sees to it that they are woken after `wait`; gives back their waker if that is to be done at once.
    pub(super) fn wake_after(&mut self, wait: Duration) -> Option<Waker> {
        let Some(timer) = self.timer.as_mut().filter(|_| !wait.is_zero()) else {
            return Some(self.waker.clone());
        };
        timer.arm(wait);
        let elapsed = timer.poll_elapsed(&mut Context::from_waker(&self.waker));
        elapsed.is_ready().then(|| self.waker.clone())
    }
}
