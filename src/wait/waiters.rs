use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::BTreeMap;

use crate::time::Tick;

use super::Priority;
use super::flows::{Flow, Flows};
use super::in_order::InOrder;
use super::priority::Ageing;
use super::waiter::{Position, Ticket, Waiter};

/// The waiters in order of arrival, or those of each [flow](Flows). To join, to be found and to leave takes logarithmic time in their
/// number, on average.
///
/// Overdue heads are kept apart from the queue: others pass before them, and they return to its front when they ask.
///
/// The head is the oldest waiter. With [`serve_newest_first`](Self::serve_newest_first) it is the newest one from the time at
/// which the queue has not been empty for that long, until it is empty.
#[derive(Default)]
pub(crate) struct Waiters {
    in_order: InOrder,
    /// If flows take turns: then they have the waiters.
    flows: Option<Box<Flows>>,
    len: usize,
    /// The costs of all that are queued.
    cost: u64,
    overdue: BTreeMap<Ticket, Waiter>,
    next: u64,
    /// When the last request came, as far as the clock was read. It never goes back.
    arrived: Tick,
    /// If requests have classes.
    ageing: Option<Ageing>,
    /// If requests are ordered by deadline: how long after its arrival that of a request without one is.
    usual: Option<Duration>,
    /// How often a waiter joined, left or moved.
    changes: usize,
    /// How often a waiter left or moved in a way that an estimate of the wait could not foresee.
    reorders: usize,
    /// `None`: never.
    newest_first_after: Option<Duration>,
    /// From when on the newest waiter is the head, if the queue is not empty before, and if that is known.
    newest_first_at: Option<Tick>,
    is_newest_first: bool,
}

impl Waiters {
    /// The newest waiter is the head while the queue has not been empty for this time.
    pub(super) fn serve_newest_first(&mut self, after: Duration) {
        self.newest_first_after = Some(after);
    }

    /// Orders requests by their class, too: newest first no longer applies.
    pub(super) fn serve_by_class(&mut self, ageing: Option<Ageing>) {
        let ageing = ageing.or(self.ageing).unwrap_or(Ageing::DEFAULT);
        self.ageing = Some(ageing);
        self.is_newest_first = false;
        if let Some(flows) = &mut self.flows {
            flows.serve_by_class();
        }
        self.reorder();
    }

    /// Orders requests by their deadline: neither classes nor newest first apply. Where flows take turns, it changes nothing.
    pub(super) fn serve_by_deadline(&mut self, usual: Duration) {
        if !self.has_flows() {
            self.usual = Some(usual);
            self.is_newest_first = false;
            self.reorder();
        }
    }

    /// Serves the waiters of each flow in turns: newest first does not apply. Those that wait already have no key.
    pub(crate) fn serve_in_turns(&mut self) -> &mut Flows {
        self.is_newest_first = false;
        let flows = self.flows.get_or_insert_default();
        if self.ageing.is_some() {
            flows.serve_by_class();
        }
        while let Some((ticket, _)) = self.in_order.end_mut(false) {
            if let Some(waiter) = self.in_order.remove(ticket) {
                flows.insert(ticket, waiter, NonZeroU32::MIN);
            }
        }
        flows
    }

    /// The flows, if they divide permits.
    #[inline]
    pub(crate) fn division(&mut self) -> Option<&mut Flows> {
        let flows = self.flows.as_deref_mut();
        flows.filter(|flows| flows.divides())
    }

    #[inline]
    pub(super) const fn has_flows(&self) -> bool {
        self.flows.is_some()
    }

    /// Counts permits for the flow of a request that has taken them without being queued.
    pub(super) fn charge_flow(&mut self, ticket: Ticket, cost: u32) {
        if let Some(flows) = &mut self.flows {
            flows.remove(ticket, cost);
        }
        self.reorder();
    }

    pub(super) const fn has_classes(&self) -> bool {
        self.ageing.is_some()
    }

    /// Whether a request may pass before older ones: newest first does not apply then.
    const fn is_reordered(&self) -> bool {
        self.has_classes() || self.has_flows() || self.is_by_deadline()
    }

    /// Whether requests are ordered by deadline.
    pub(crate) const fn is_by_deadline(&self) -> bool {
        self.usual.is_some()
    }

    /// Whether the time has to be [noted](Self::note_queued) at which this waiter, the only one, has joined.
    pub(super) fn has_to_note_queued(&self) -> bool {
        self.newest_first_after.is_some() && !self.has_second()
    }

    /// Notes since when the queue is not empty.
    pub(super) fn note_queued(&mut self, now: Tick) {
        if self.newest_first_at.is_none() {
            self.newest_first_at = self.newest_first_after.map(|after| now.after(after));
        }
    }

    /// Returns whether the newest waiter is the head from now on, and was not before.
    pub(super) fn note_time(&mut self, now: Tick) -> bool {
        let is_early = self.newest_first_at.is_none_or(|at| now < at);
        if is_early || self.is_newest_first || self.is_empty() || self.is_reordered() {
            return false;
        }
        self.is_newest_first = true;
        self.reorder();
        true
    }

    /// From when on a new request may pass before those that are queued ahead of it; [`Tick::MAX`] for never.
    pub(crate) fn newest_first_at(&self) -> Tick {
        if self.is_by_deadline() {
            return Tick::MAX;
        }
        if self.is_reordered() {
            return Tick::ZERO;
        }
        self.newest_first_at.unwrap_or(Tick::MAX)
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

    /// The queued waiters from this ticket on, in order, what they cost, and their deadlines; none if flows take turns.
    pub(crate) fn costs_from(&self, ticket: Ticket) -> impl Iterator<Item = (Ticket, u32, Tick)> {
        self.in_order.costs_from(ticket)
    }

    /// The ticket of the next waiter that joins.
    pub(crate) fn next_ticket(&self) -> Ticket {
        let order = Ageing::DEFAULT.order(self.arrived, Priority::Normal);
        Ticket::new(order, self.next, 0)
    }

    /// If requests are ordered by deadline: the order of one that joins `now`, and is ordered `by` then if it has one.
    #[inline]
    pub(crate) fn order_by_deadline(&self, now: Tick, by: Option<Tick>) -> Option<Tick> {
        let usual = self.arrived.max(now).after(self.usual?);
        // Those that came before there were deadlines are first.
        Some(Ageing::DEFAULT.order(by.unwrap_or(usual), Priority::Normal))
    }

    #[inline]
    pub(super) fn head(&self) -> Option<Ticket> {
        match &self.flows {
            None => self.in_order.end(self.is_newest_first),
            Some(flows) => flows.head(),
        }
    }

    #[inline]
    pub(super) fn head_mut(&mut self) -> Option<(Ticket, &mut Waiter)> {
        match &mut self.flows {
            None => self.in_order.end_mut(self.is_newest_first),
            Some(flows) => {
                let head = flows.head()?;
                flows.get_mut(head).map(|waiter| (head, waiter))
            }
        }
    }

    /// Whether no waiter is ahead of this position.
    #[inline]
    pub(crate) fn is_first(&self, position: Position) -> bool {
        let Some(head) = self.head() else {
            return true;
        };
        let Some(ticket) = position.ticket() else {
            return self.is_newest_first;
        };
        let is_earlier = (ticket > head) == self.is_newest_first;
        ticket.number == head.number || (is_earlier && ticket.flow == head.flow)
    }

    pub(super) const fn has_second(&self) -> bool {
        self.len > 1
    }

    #[inline]
    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        match &mut self.flows {
            None => self.in_order.get_mut(ticket),
            Some(flows) => flows.get_mut(ticket),
        }
    }

    /// Every waiter, overdue ones included.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        let of_flows = self.flows.iter_mut().flat_map(|flows| flows.iter_mut());
        let queued = self.in_order.iter_mut().chain(of_flows);
        queued.chain(self.overdue.values_mut())
    }

    /// A ticket for a request that comes now.
    pub(super) fn ticket(&mut self, now: Tick, priority: Priority, flow: Option<Flow>) -> Ticket {
        self.arrived = self.arrived.max(now);
        let ageing = self.ageing.unwrap_or(Ageing::DEFAULT);
        let flow = flow.unwrap_or(Flow::OF_NO_KEY).in_class(priority);
        let order = self.order_by_deadline(now, None);
        let order = order.unwrap_or_else(|| ageing.order(self.arrived, priority));
        let ticket = Ticket::new(order, self.next, flow);
        self.next += 1;
        ticket
    }

    #[inline]
    pub(super) fn join(&mut self, ticket: Ticket, waiter: Waiter, flow: Option<Flow>) {
        self.changes = self.changes.wrapping_add(1);
        self.insert(ticket, waiter, flow);
    }

    /// A handle comes back to its position.
    pub(super) fn rejoin(&mut self, ticket: Ticket, waiter: Waiter, flow: Option<Flow>) {
        self.reorder();
        self.insert(ticket, waiter, flow);
    }

    /// An overdue head comes back, if this is one.
    pub(super) fn requeue(&mut self, ticket: Ticket, flow: Option<Flow>) {
        if let Some(waiter) = self.overdue.remove(&ticket) {
            self.rejoin(ticket, waiter, flow);
        }
    }

    /// A queued waiter asks for another cost from now on.
    pub(super) fn change_cost(&mut self, ticket: Ticket, cost: u32) {
        let old = match &mut self.flows {
            None => {
                let waiter = self.in_order.get_mut(ticket);
                waiter.map(|waiter| core::mem::replace(&mut waiter.cost, cost))
            }
            Some(flows) => flows.change_cost(ticket, cost),
        };
        if let Some(old) = old {
            self.cost = self.cost + u64::from(cost) - u64::from(old);
            self.reorder();
        }
    }

    pub(super) fn pass_over_head(&mut self) {
        if let Some(ticket) = self.head() {
            let waiter = self.remove_queued(ticket, None);
            self.overdue.extend(waiter.map(|waiter| (ticket, waiter)));
            self.reorder();
        }
    }

    /// `paid`: the waiter leaves since it has passed, and took this number of permits. If it was the head, and took what it has waited for,
    /// an estimate has foreseen it.
    #[inline]
    pub(super) fn remove(
        &mut self,
        ticket: Ticket,
        was_head: bool,
        paid: Option<u32>,
    ) -> Option<Waiter> {
        let removed = self.remove_queued(ticket, paid);
        let cost = removed.as_ref().map(|waiter| waiter.cost);
        if was_head && cost.is_some() && cost == paid {
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

    #[inline]
    fn insert(&mut self, ticket: Ticket, waiter: Waiter, flow: Option<Flow>) {
        self.cost += u64::from(waiter.cost);
        self.len += 1;
        match &mut self.flows {
            None => self.in_order.insert(ticket, waiter),
            Some(flows) => {
                let flow = flow.unwrap_or(Flow::OF_NO_KEY);
                flows.insert(ticket, waiter, flow.weight);
            }
        }
    }

    /// `paid`: see [`remove`](Self::remove).
    #[inline]
    fn remove_queued(&mut self, ticket: Ticket, paid: Option<u32>) -> Option<Waiter> {
        let removed = match &mut self.flows {
            None => self.in_order.remove(ticket),
            Some(flows) => flows.remove(ticket, paid.unwrap_or(0)),
        }?;
        self.len -= 1;
        self.cost -= u64::from(removed.cost);
        if self.is_empty() {
            self.newest_first_at = None;
            if core::mem::take(&mut self.is_newest_first) {
                self.reorder();
            }
        }
        Some(removed)
    }
}
