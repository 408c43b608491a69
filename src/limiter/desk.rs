use core::task::{Poll, Waker};
use core::time::Duration;

use crate::line::{Asker, Behind, Call, Line, Place, Waiter};
use crate::patience::{Next, Start, Watch};
use crate::policy::{Decision, Policy};
use crate::time::Tick;

use super::credit::Credit;
use super::forecast::{Forecast, retry_in};
use super::limit::{Ask, Limit};
use super::{Mode, Stats};

/// What a [`Shared`](super::Shared) limit locks: the limit, and the line of those who wait for it.
///
/// Only the first in line is answered by the limit. Whoever leaves, or lets the others go sooner, sees to it that the next
/// one is woken: that is [`After`].
#[derive(Debug)]
pub(super) struct Desk<P: Policy> {
    limit: Limit<P>,
    line: Line,
    forecast: Forecast<P::State>,
    watch: Watch,
}

impl<P: Policy> Desk<P> {
    pub(super) fn new(limit: Limit<P>, watcher: Start) -> Self {
        Self {
            limit,
            line: Line::new(),
            forecast: Forecast::new(),
            watch: Watch::new(watcher),
        }
    }

    /// Begins anew, with another limit. Nobody stands in line.
    pub(super) fn renew(&mut self, limit: Limit<P>) -> Limit<P> {
        self.forecast = Forecast::new();
        core::mem::replace(&mut self.limit, limit)
    }

    /// Nobody has any credit from now on.
    #[inline]
    pub(super) fn call_in(&mut self, credit: &Credit) {
        self.limit.call_in(credit);
    }

    /// Nobody stands in line, and whoever asks passes. Nothing is left to do after that, but to give so much credit.
    #[inline]
    pub(super) fn passes_alone(&mut self, ask: Ask, place: Place, cost: u32) -> Option<u32> {
        if !self.line.is_empty() || !matches!(place, Place::Outside) {
            return None;
        }
        let now = self.limit.now();
        let passes = self.limit.ask(ask, now, cost).is_pass();
        passes.then(|| self.limit.lend(now, cost))
    }

    /// Asks as one who stands in line, or joins it, as long as there is something to wait for.
    pub(super) fn ask_in_line(
        &mut self,
        ask: Ask,
        place: &mut Place,
        cost: u32,
        asker: Behind<'_>,
        after: &mut After,
    ) -> Poll<Decision> {
        let now = self.limit.now();
        let is_turn = self.is_turn_of(*place, cost);
        let decision = self
            .limit
            .ask(if is_turn { ask } else { Ask::ToLook }, now, cost);
        match decision {
            Decision::Wait { retry_in } if is_turn => {
                after.look = self.watch.expect_at(now.after(retry_in));
                self.stand(place, cost, Asker::Told(asker.waker), after);
                Poll::Ready(decision)
            }
            Decision::Pass if is_turn => {
                let kept = *place;
                let is_foreseen = ask == Ask::ToPass;
                self.leave(place, is_foreseen.then_some(cost), after);
                if let (Ask::ToLook, Place::InLine(ticket) | Place::Kept(ticket)) = (ask, kept) {
                    *place = Place::Kept(ticket);
                }
                Poll::Ready(decision)
            }
            Decision::Never { .. } => {
                self.limit.stats.refused += 1;
                self.leave(place, None, after);
                Poll::Ready(decision)
            }
            Decision::Pass | Decision::Wait { .. } => {
                self.stand(place, cost, Asker::Behind(asker), after);
                if self.line.is_anybody_behind() {
                    after.start = self.watch.begin(place.ticket());
                }
                Poll::Pending
            }
        }
    }

    /// Asks without joining the line, and so comes after everybody who stands there; one who stands first leaves the line if
    /// it passes.
    pub(super) fn ask_aside(
        &mut self,
        ask: Ask,
        place: &mut Place,
        cost: u32,
        after: &mut After,
    ) -> Decision {
        let now = self.limit.now();
        let is_turn = self.is_turn_of(*place, cost);
        let decision = self
            .limit
            .ask(if is_turn { ask } else { Ask::ToLook }, now, cost);
        let decision = match decision {
            Decision::Pass | Decision::Wait { .. } if !is_turn => Decision::Wait {
                retry_in: self.wait_behind_line(cost).max(Duration::from_nanos(1)),
            },
            _ => decision,
        };
        if ask == Ask::ToPass && decision.is_pass() && cost > 0 {
            self.leave(place, Some(cost), after);
        } else if ask == Ask::ToPass && !decision.is_pass() {
            self.limit.stats.refused += 1;
        }
        decision
    }

    /// Leaves the line without having passed.
    pub(super) fn give_up(&mut self, place: &mut Place, after: &mut After) {
        self.leave(place, None, after);
    }

    /// Somebody gave up because it took too long.
    pub(super) fn refused(&mut self) {
        self.limit.stats.refused += 1;
    }

    pub(super) fn refund(&mut self, cost: u32, after: &mut After) {
        let now = self.limit.now();
        self.limit.refund(now, cost);
        self.forecast.overthrown();
        self.call_first(now, after);
    }

    pub(super) fn retune(&mut self, policy: P, after: &mut After) {
        let now = self.limit.now();
        self.limit.retune(now, policy);
        self.forecast.overthrown();
        self.call_first(now, after);
        after.wake_all = self.line.wakers().collect();
    }

    pub(super) fn pause_for(&mut self, duration: Duration) {
        let now = self.limit.now();
        self.limit.pause_until(now.after(duration));
        self.forecast.overthrown();
    }

    pub(super) fn resume(&mut self, after: &mut After) {
        let now = self.limit.now();
        self.limit.resume();
        self.forecast.overthrown();
        self.call_first(now, after);
    }

    pub(super) fn set_mode(&mut self, mode: Mode, after: &mut After) {
        self.limit.set_mode(mode);
        self.forecast.overthrown();
        after.wake_all = self.line.wakers().collect();
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            waiting: self.line.len(),
            ..self.limit.stats
        }
    }

    pub(super) fn lose_patience(&mut self, task: &Waker, after: &mut After) -> Next {
        if !self.line.is_anybody_behind() {
            let _ = self.watch.end();
            return Next::End;
        }
        let now = self.limit.now();
        if self.watch.is_impatient(now) {
            self.line.set_first_aside();
            self.forecast.overthrown();
            self.call_first(now, after);
        }
        self.watch.look_again(now, task)
    }

    /// The limit, when all that has passed is counted; `None` if that cannot be done now.
    pub(super) fn limit(&mut self) -> Option<&Limit<P>> {
        self.limit.settle().then_some(&self.limit)
    }

    pub(super) fn is_watched(&mut self) {
        self.watch.has_begun();
    }

    pub(super) fn is_not_watched(&mut self, after: &mut After) {
        let starter = self.watch.end();
        after.wake_all = self.line.second_unless(starter).into_iter().collect();
    }

    fn is_turn_of(&self, place: Place, cost: u32) -> bool {
        cost == 0 || self.limit.passes_everybody() || self.line.is_turn_of(place)
    }

    fn stand(&mut self, place: &mut Place, cost: u32, asker: Asker<'_>, after: &mut After) {
        let ticket = match *place {
            Place::InLine(ticket) => ticket,
            Place::Outside => {
                *place = Place::InLine(self.line.join(Waiter::new(cost, asker)));
                self.forecast.joined(self.limit.policy(), cost);
                self.limit.stats.held_back += 1;
                return;
            }
            Place::Kept(ticket) => {
                *place = Place::InLine(ticket);
                self.line.rejoin(ticket, Waiter::new(cost, asker));
                self.forecast.overthrown();
                return;
            }
        };
        if self.line.come_back(ticket) {
            self.forecast.overthrown();
        }
        if self.line.cost_of(ticket) != Some(cost) {
            self.forecast.overthrown();
        }
        after.drop = self.line.ask_again(ticket, cost, asker);
    }

    /// Leaves the line, having paid what is said if anything.
    fn leave(&mut self, place: &mut Place, paid: Option<u32>, after: &mut After) {
        let ticket = match core::mem::take(place) {
            Place::Outside => return,
            Place::Kept(_) => return self.forecast.overthrown(),
            Place::InLine(ticket) => ticket,
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
            let now = self.limit.now();
            self.call_first(now, after);
        }
    }

    /// Sees to it that whoever is first now is woken when their turn has come.
    fn call_first(&mut self, now: Tick, after: &mut After) {
        if let Some(first) = self.line.first() {
            // Who leaves because a policy panicked must not ask it again: a second panic ends the program.
            let wait = if std::thread::panicking() {
                Duration::ZERO
            } else {
                retry_in(self.limit.look(now, first.cost()))
            };
            after.call = Some(first.call(now, wait));
            after.look = self.watch.expect_at(now.after(wait));
        }
        if self.line.is_anybody_behind() {
            after.start = self.watch.begin(None);
        }
    }

    fn wait_behind_line(&mut self, cost: u32) -> Duration {
        let now = self.limit.now();
        let (policy, state, from) = self.limit.outlook(now);
        let open_at = self.forecast.open_at(policy, state, from, cost, &self.line);
        open_at.since(now)
    }
}

/// What is left to do when the lock is released: a waker runs foreign code when it wakes and when it is dropped, and that
/// may ask this very limit.
#[derive(Default)]
#[must_use = "somebody may have to be woken"]
pub(super) struct After {
    call: Option<Call>,
    look: Option<Waker>,
    start: Option<Start>,
    wake_all: Vec<Waker>,
    drop: Option<Waiter>,
}

impl After {
    /// In place: most of the time there is nothing to do, and nothing worth to be moved.
    #[inline]
    pub(super) fn run(&mut self) {
        drop(self.drop.take());
        self.look.take().into_iter().for_each(Waker::wake);
        self.start.take().into_iter().for_each(|start| start());
        self.call.take().into_iter().for_each(Call::make);
        self.wake_all.drain(..).for_each(Waker::wake);
    }
}
