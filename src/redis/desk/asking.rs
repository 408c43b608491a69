use core::task::{Poll, Waker};
use core::time::Duration;

use crate::policy::{Decision, Policy};
use crate::redis::error::ServerError;
use crate::redis::waiting::{Manner, State, Ticket, Waiting};
use crate::time::Tick;

use super::Desk;

/// What one who wants an answer at once is told while others stand in line and nothing else is known.
const SOON: Duration = Duration::from_millis(1);

/// Those who come, ask again, fetch what has come, and leave.
impl<P: Policy> Desk<P> {
    /// Asks, and stands in line while there is no answer.
    pub(in crate::redis) fn ask(
        &mut self,
        now: Tick,
        place: &mut Option<Ticket>,
        cost: u32,
        manner: Manner,
        waker: &Waker,
    ) -> Poll<Result<Decision, ServerError>> {
        if let Some(answer) = place.and_then(|ticket| self.fetch(now, ticket, cost)) {
            *place = None;
            return Poll::Ready(answer);
        }
        let Some(ticket) = place.filter(|ticket| self.line.contains_key(ticket)) else {
            return self.join(now, place, cost, manner, waker);
        };
        if let Some(answer) = self.known(now, cost, manner, ticket) {
            self.leave(now, ticket);
            *place = None;
            return Poll::Ready(answer);
        }
        if let Some(waiting) = self.line.get_mut(&ticket) {
            waiting.manner = manner;
            waiting.waker.clone_from(waker);
        }
        Poll::Pending
    }

    /// What can be said without a trip to one in this place: a fault, and to who wants an answer, that it was denied, or that
    /// somebody stands before them.
    pub(in crate::redis) fn known(
        &self,
        now: Tick,
        cost: u32,
        manner: Manner,
        place: Ticket,
    ) -> Option<Result<Decision, ServerError>> {
        if manner == Manner::Stands || self.is_sent(place) {
            return None;
        }
        if let Some(fault) = self.denial.as_ref().and_then(|denial| denial.fault(now)) {
            return Some(Err(fault.clone()));
        }
        if manner != Manner::Tries {
            return None;
        }
        let retry_in = match self.denied(now, cost) {
            Some(retry_in) => retry_in,
            None if self.is_behind_another(place) => self.denied(now, u32::MAX).unwrap_or(SOON),
            None => return None,
        };
        Some(Ok(Decision::Wait { retry_in }))
    }

    /// Whether somebody stands before this place. To look at the last of them is enough: who wants an answer is let in only
    /// where nobody stands. (Whoever turned to stand since is asked for first on the same trip.)
    fn is_behind_another(&self, place: Ticket) -> bool {
        let last = self.line.range(..place).next_back();
        last.is_some_and(|(_, other)| other.stands())
    }

    fn is_sent(&self, place: Ticket) -> bool {
        let waiting = self.line.get(&place);
        waiting.is_some_and(|waiting| !waiting.is_standing())
    }

    /// The same for one who does not stand in line.
    pub(in crate::redis) fn known_outside(
        &self,
        now: Tick,
        cost: u32,
        manner: Manner,
    ) -> Option<Result<Decision, ServerError>> {
        self.known(now, cost, manner, self.next)
    }

    fn join(
        &mut self,
        now: Tick,
        place: &mut Option<Ticket>,
        cost: u32,
        manner: Manner,
        waker: &Waker,
    ) -> Poll<Result<Decision, ServerError>> {
        if self.line.is_empty() && self.spare.take(now, cost) {
            return Poll::Ready(Ok(Decision::Pass));
        }
        if let Some(answer) = self.known_outside(now, cost, manner) {
            return Poll::Ready(answer);
        }
        let ticket = self.next;
        self.next += 1;
        let waiting = Waiting {
            cost,
            manner,
            since: now,
            waker: waker.clone(),
            state: State::Standing,
        };
        self.line.insert(ticket, waiting);
        *place = Some(ticket);
        Poll::Pending
    }

    /// What has come for somebody in line, who leaves it then.
    fn fetch(
        &mut self,
        now: Tick,
        ticket: Ticket,
        cost: u32,
    ) -> Option<Result<Decision, ServerError>> {
        let waiting = self.line.get_mut(&ticket)?;
        if waiting.cost != cost {
            let before = core::mem::replace(&mut waiting.cost, cost);
            if !matches!(waiting.state, State::Sent) {
                let state = core::mem::replace(&mut waiting.state, State::Standing);
                self.leave_over(now, before, &state);
            }
            self.is_changed = true;
            return None;
        }
        match &waiting.state {
            State::Standing | State::Sent => None,
            State::Granted(granted) if !granted.is_fresh(now) => {
                waiting.state = State::Standing;
                self.is_changed = true;
                None
            }
            State::Granted(_) => {
                self.line.remove(&ticket);
                Some(Ok(Decision::Pass))
            }
            State::Answered(_) => match self.line.remove(&ticket)?.state {
                State::Answered(answer) => Some(answer),
                _ => None,
            },
        }
    }

    /// Leaves the line.
    pub(in crate::redis) fn leave(&mut self, now: Tick, ticket: Ticket) {
        let Some(waiting) = self.line.remove(&ticket) else {
            return;
        };
        self.leave_over(now, waiting.cost, &waiting.state);
        self.is_changed = true;
    }

    /// What has come and is not wanted any more is for others.
    pub(super) fn leave_over(&mut self, now: Tick, cost: u32, state: &State) {
        if let State::Granted(granted) = state
            && granted.is_counted
            && granted.is_fresh(now)
        {
            self.leftover.add(cost, granted.at);
        }
    }
}
