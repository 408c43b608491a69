use core::fmt;
use core::task::{Context, Waker};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::time::{Precision, Tick, Timer};

/// A place in line. Smaller is earlier.
pub(super) type Ticket = u64;

/// Where a handle stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Place {
    #[default]
    Outside,
    InLine(Ticket),
    /// Out of the line since its turn had come when it only looked: before all who came later, and in nobody's way.
    Kept(Ticket),
}

impl Place {
    /// Of one who stands in line.
    pub(super) const fn ticket(self) -> Option<Ticket> {
        match self {
            Self::InLine(ticket) => Some(ticket),
            Self::Outside | Self::Kept(_) => None,
        }
    }
}

/// Who asks: whom to wake, and how precisely.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) waker: &'a Waker,
    pub(super) precision: Precision,
}

/// One who is told how long to wait needs no timer but their own.
impl<'a> From<&'a Waker> for Asker<'a> {
    fn from(waker: &'a Waker) -> Self {
        let precision = Precision::default();
        Self { waker, precision }
    }
}

/// Those who wait, in order of arrival. Every operation is logarithmic in their number.
///
/// Whoever let their turn go by stands aside: the others pass before them, and they are first again when they ask.
pub(super) struct Line {
    waiters: BTreeMap<Ticket, Waiter>,
    aside: BTreeMap<Ticket, Waiter>,
    next: Ticket,
}

impl Line {
    pub(super) const fn new() -> Self {
        Self {
            waiters: BTreeMap::new(),
            aside: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many wait, also aside.
    pub(super) fn len(&self) -> usize {
        self.waiters.len() + self.aside.len()
    }

    pub(super) fn is_anybody_behind(&self) -> bool {
        self.waiters.len() > 1
    }

    /// Whether this one stands there, and first.
    pub(super) fn is_first(&self, ticket: Ticket) -> bool {
        self.first_ticket() == Some(ticket)
    }

    /// Whether nobody stands before `place`.
    pub(super) fn is_turn_of(&self, place: Place) -> bool {
        let first = self.first_ticket();
        match place {
            Place::Outside => first.is_none(),
            Place::InLine(ticket) | Place::Kept(ticket) => {
                first.is_none_or(|first| ticket <= first)
            }
        }
    }

    fn first_ticket(&self) -> Option<Ticket> {
        self.waiters.keys().next().copied()
    }

    pub(super) fn first(&self) -> Option<&Waiter> {
        self.waiters.values().next()
    }

    pub(super) fn cost_of(&self, ticket: Ticket) -> Option<u32> {
        self.waiters.get(&ticket).map(|waiter| waiter.cost)
    }

    /// What those in line ask for, in order.
    pub(super) fn costs(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiters.values().map(|waiter| waiter.cost)
    }

    pub(super) fn wakers(&self) -> impl Iterator<Item = Waker> + '_ {
        let waiters = self.waiters.values().chain(self.aside.values());
        waiters.map(|waiter| waiter.waker.clone())
    }

    pub(super) fn set_first_aside(&mut self) {
        self.aside.extend(self.waiters.pop_first());
    }

    /// Somebody comes back to the place that they kept.
    pub(super) fn rejoin(&mut self, ticket: Ticket, waiter: Waiter) {
        self.waiters.insert(ticket, waiter);
    }

    /// Whether this one stood aside, and no longer does.
    pub(super) fn come_back(&mut self, ticket: Ticket) -> bool {
        let came_back = self.aside.remove_entry(&ticket);
        let has_come_back = came_back.is_some();
        self.waiters.extend(came_back);
        has_come_back
    }

    pub(super) fn join(&mut self, waiter: Waiter) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.waiters.insert(ticket, waiter);
        ticket
    }

    /// Somebody in line asks again. What that replaced is for the caller to drop, once no lock is held.
    ///
    /// One who is told how long to wait needs no alarm any more, and one that has rung must not be taken for one that is set.
    /// One who moved to another task, maybe in another runtime, needs another.
    pub(super) fn ask_again(
        &mut self,
        ticket: Ticket,
        is_told: bool,
        cost: u32,
        asker: Asker<'_>,
    ) -> Option<Waiter> {
        let waiter = self.waiters.get_mut(&ticket)?;
        waiter.cost = cost;
        let has_alarm = waiter.alarm.is_some();
        let has_moved = !waiter.waker.will_wake(asker.waker);
        let is_spent = is_told && has_alarm;
        if !(has_moved || is_spent) {
            return None;
        }
        let renewed = if is_told || !has_alarm {
            Waiter::told(cost, asker.waker)
        } else {
            Waiter::behind(cost, asker)
        };
        Some(core::mem::replace(waiter, renewed))
    }

    /// What wakes the second in line, unless it is the one with this ticket.
    pub(super) fn second_unless(&self, ticket: Option<Ticket>) -> Option<Waker> {
        let (second, waiter) = self.waiters.iter().nth(1)?;
        (Some(*second) != ticket).then(|| waiter.waker.clone())
    }

    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(&ticket);
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

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct Waiter {
    cost: u32,
    waker: Waker,
    /// Saves one wake-up in two. Whoever is told how long to wait sleeps on a timer of their own and needs none.
    alarm: Option<Arc<Mutex<Alarm>>>,
}

impl Waiter {
    /// One who is told how long to wait.
    pub(super) fn told(cost: u32, waker: &Waker) -> Self {
        Self {
            cost,
            waker: waker.clone(),
            alarm: None,
        }
    }

    /// One who has others before them. The alarm is of the runtime in which they wait, not of those others'.
    pub(super) fn behind(cost: u32, asker: Asker<'_>) -> Self {
        Self {
            alarm: Some(Arc::new(Mutex::new(Alarm::new(asker.precision)))),
            ..Self::told(cost, asker.waker)
        }
    }

    pub(super) const fn cost(&self) -> u32 {
        self.cost
    }

    /// What wakes them `wait` after `now`.
    pub(super) fn call(&self, now: Tick, wait: Duration) -> Call {
        Call {
            now,
            wait,
            waker: self.waker.clone(),
            alarm: self.alarm.clone(),
        }
    }
}

/// Somebody is to be woken when their turn has come.
#[derive(Debug)]
pub(super) struct Call {
    now: Tick,
    wait: Duration,
    waker: Waker,
    alarm: Option<Arc<Mutex<Alarm>>>,
}

impl Call {
    /// Sets the alarm, or wakes them now if there is none or nothing to wait for. Not to be called under a lock of the
    /// limit: setting it may wake, and waking runs foreign code.
    pub(super) fn make(self) {
        // A timer of a runtime that is ending panics, and a second panic ends the program.
        if self.wait.is_zero() || std::thread::panicking() || !self.set_alarm() {
            self.waker.wake();
        }
    }

    fn set_alarm(&self) -> bool {
        // If somebody sets the same alarm just now, it is not clear who knows more: they are woken, and ask.
        let alarm = self.alarm.as_ref().map(|alarm| alarm.try_lock());
        let Some(Ok(mut alarm)) = alarm else {
            return false;
        };
        // A timer moves to whoever sets it, and the runtime of those who wait may have ended: then they are woken as well.
        alarm.timer.is_of_this_runtime() && alarm.set(self.now, self.wait, &self.waker)
    }
}

/// What wakes somebody in line when their turn has come, although their task has not run since they became the first.
#[derive(Debug)]
struct Alarm {
    timer: Timer,
    due: Tick,
}

impl Alarm {
    /// Of the runtime in which this is called: that of the one who waits.
    fn new(precision: Precision) -> Self {
        Self {
            timer: precision.timer().settled_here(),
            due: Tick::ZERO,
        }
    }

    /// Sets it, unless it is set to an earlier instant already: calls may come in another order than they were meant, and
    /// to be woken early costs less than to be woken late. False if it cannot be set.
    fn set(&mut self, now: Tick, wait: Duration, waker: &Waker) -> bool {
        let due = now.after(wait);
        let is_set_earlier = now < self.due && self.due <= due;
        if is_set_earlier {
            return true;
        }
        self.due = due;
        self.timer.arm(wait);
        let elapsed = self.timer.poll_elapsed(&mut Context::from_waker(waker));
        elapsed.is_pending()
    }
}
