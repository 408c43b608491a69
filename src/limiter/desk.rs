use core::task::{Poll, Waker};
use core::time::Duration;

use crate::line::{Call, Line, Ticket, Waiter};
use crate::policy::{Decision, Policy};
use crate::time::Clock;

use super::forecast::Forecast;

/// What a [`Shared`](super::Shared) limit locks: the policy with its state, and the line of those who wait.
///
/// Only the first in line is answered by the policy. Whoever leaves, or lets the others go sooner, sees to it that the next
/// one is woken: that is [`After`].
#[derive(Debug)]
pub(super) struct Desk<P: Policy> {
    policy: P,
    clock: Clock,
    state: Option<P::State>,
    line: Line,
    forecast: Forecast<P::State>,
}

/// Whether what passes is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    ToPass,
    ToLook,
}

impl<P: Policy> Desk<P> {
    pub(super) const fn new(policy: P) -> Self {
        Self {
            policy,
            clock: Clock::new(),
            state: None,
            line: Line::new(),
            forecast: Forecast::new(),
        }
    }

    /// Asks as one who stands in line, or joins it, as long as there is something to wait for.
    pub(super) fn ask_in_line(
        &mut self,
        ask: Ask,
        place: &mut Option<Ticket>,
        cost: u32,
        waker: &Waker,
        after: &mut After,
    ) -> Poll<Decision> {
        let is_turn = cost == 0 || self.is_turn_of(*place);
        let decision = self.decide(if is_turn { ask } else { Ask::ToLook }, cost);
        let stays = match decision {
            Decision::Pass => !is_turn,
            Decision::Wait { .. } => true,
            Decision::Never { .. } => false,
        };
        if stays {
            self.stand(place, is_turn, cost, waker, after);
        } else {
            let is_foreseen = is_turn && decision.is_pass() && matches!(ask, Ask::ToPass);
            self.leave(place, is_foreseen.then_some(cost), after);
        }
        if is_turn || !stays {
            Poll::Ready(decision)
        } else {
            Poll::Pending
        }
    }

    /// Asks as one who does not stand in line, and so comes after everybody who does.
    pub(super) fn ask_aside(&mut self, ask: Ask, cost: u32) -> Decision {
        if cost == 0 || self.line.is_empty() {
            return self.decide(ask, cost);
        }
        match self.decide(Ask::ToLook, cost) {
            never @ Decision::Never { .. } => never,
            Decision::Pass | Decision::Wait { .. } => Decision::Wait {
                retry_in: self.wait_behind_line(cost).max(Duration::from_nanos(1)),
            },
        }
    }

    /// Leaves the line without having passed.
    pub(super) fn give_up(&mut self, place: &mut Option<Ticket>, after: &mut After) {
        self.leave(place, None, after);
    }

    pub(super) fn refund(&mut self, cost: u32, after: &mut After) {
        let now = self.clock.now();
        if let Some(state) = &mut self.state {
            self.policy.refund(state, now, cost);
            self.forecast.overthrown();
            self.call_first(after);
        }
    }

    pub(super) fn retune(&mut self, policy: P, after: &mut After) {
        let now = self.clock.now();
        let old = core::mem::replace(&mut self.policy, policy);
        if let Some(state) = &mut self.state {
            self.policy.retune(&old, state, now);
            self.forecast.overthrown();
            after.wake_all = self.line.wakers().collect();
        }
    }

    fn decide(&mut self, ask: Ask, cost: u32) -> Decision {
        let now = self.clock.now();
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        match ask {
            Ask::ToPass => self.policy.decide(state, now, cost),
            Ask::ToLook => self.policy.peek(state, now, cost),
        }
    }

    fn is_turn_of(&self, place: Option<Ticket>) -> bool {
        match place {
            Some(ticket) => self.line.is_first(ticket),
            None => self.line.is_empty(),
        }
    }

    fn stand(
        &mut self,
        place: &mut Option<Ticket>,
        is_turn: bool,
        cost: u32,
        waker: &Waker,
        after: &mut After,
    ) {
        let Some(ticket) = *place else {
            let waiter = if is_turn {
                Waiter::told(cost, waker)
            } else {
                Waiter::behind(cost, waker)
            };
            *place = Some(self.line.join(waiter));
            self.forecast.joined(&self.policy, cost);
            return;
        };
        if self.line.cost_of(ticket) != Some(cost) {
            self.forecast.overthrown();
        }
        after.drop = self.line.ask_again(ticket, cost, waker);
    }

    /// Leaves the line, having paid what is said if anything.
    fn leave(&mut self, place: &mut Option<Ticket>, paid: Option<u32>, after: &mut After) {
        let Some(ticket) = place.take() else {
            return;
        };
        let was_first = self.line.is_first(ticket);
        let as_foreseen = was_first && paid == self.line.cost_of(ticket);
        after.drop = self.line.leave(ticket);
        if as_foreseen && !self.line.is_empty() {
            self.forecast.passed();
        } else {
            self.forecast.overthrown();
        }
        if was_first {
            self.call_first(after);
        }
    }

    /// Sees to it that whoever is first now is woken when their turn has come.
    fn call_first(&mut self, after: &mut After) {
        let now = self.clock.now();
        if let (Some(first), Some(state)) = (self.line.first(), &self.state) {
            let wait = match self.policy.peek(state, now, first.cost()) {
                Decision::Wait { retry_in } => retry_in,
                Decision::Pass | Decision::Never { .. } => Duration::ZERO,
            };
            after.call = Some(first.call(now, wait));
        }
    }

    fn wait_behind_line(&mut self, cost: u32) -> Duration {
        let now = self.clock.now();
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        self.forecast
            .wait(&self.policy, state, now, cost, &self.line)
    }
}

/// What is left to do when the lock is released: a waker runs foreign code when it wakes and when it is dropped, and that
/// may ask this very limit.
#[derive(Debug, Default)]
#[must_use = "somebody may have to be woken"]
pub(super) struct After {
    call: Option<Call>,
    wake_all: Vec<Waker>,
    drop: Option<Waiter>,
}

impl After {
    pub(super) fn run(self) {
        drop(self.drop);
        self.call.into_iter().for_each(Call::make);
        self.wake_all.into_iter().for_each(Waker::wake);
    }
}
