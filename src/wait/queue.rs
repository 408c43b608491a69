use core::task::{Context, Poll, Waker};
use core::time::Duration;

use tokio::runtime::Id;
use tokio::time::Instant;

use crate::policy::Decision;
use crate::time::{Resolution, Tick, is_real, this_runtime};

use super::deferred::{DeferredWakes, HeadWake};
use super::flows::{Flow, Flows};
use super::head_timeout::{HOLD, HeadTimeout};
use super::slack::slack;
use super::waiter::{Position, Ticket, Waiter};
use super::waiters::Waiters;
use super::{Intent, Priority, Resource};

/// The waker of a handle that is queued, how exact its timer is, and its class.
pub(crate) struct Caller<'a> {
    waker: &'a Waker,
    /// `None` for exact waits, except in a crowd.
    resolution: Option<Resolution>,
    priority: Priority,
    pub(super) flow: Option<Flow>,
    deadline: Option<Instant>,
}

impl<'a> Caller<'a> {
    pub(crate) const fn new(
        cx: &Context<'a>,
        resolution: Option<Resolution>,
        priority: Priority,
        flow: Option<Flow>,
    ) -> Self {
        Self {
            waker: cx.waker(),
            resolution,
            priority,
            flow,
            deadline: None,
        }
    }

    /// The request passes by then, or leaves.
    pub(crate) const fn by(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }
}

/// What the mutex of a [`WaitQueue`](super::WaitQueue) guards.
///
/// Every change of the head, and of when its permits are due, ends with [`schedule_head`](Self::schedule_head).
pub(super) struct Queue<R> {
    pub(super) resource: R,
    pub(super) waiters: Waiters,
    pub(super) deferred: DeferredWakes,
    pub(super) timeout: HeadTimeout,
    /// The waiter for which the timer of the queue is armed.
    timed: Option<Ticket>,
    generation: u64,
}

/// The answer of the resource to a request.
pub(super) struct Answer {
    pub(super) now: Tick,
    /// Whether no other waiter is ahead. If one is, the request took no permits.
    pub(super) is_turn: bool,
    pub(super) decision: Decision,
}

impl<R: Resource> Queue<R> {
    pub(super) fn new(resource: R) -> Self {
        Self {
            resource,
            waiters: Waiters::default(),
            deferred: DeferredWakes::default(),
            timeout: HeadTimeout::new(),
            timed: None,
            generation: 0,
        }
    }

    /// The flows, if they divide permits. Then each that is taken has to be counted.
    #[inline]
    fn division(&mut self) -> Option<&mut Flows> {
        self.waiters.division().filter(|_| R::MAY_BE_DIVIDED)
    }

    /// The time of an operation.
    #[inline]
    fn now(&mut self) -> Tick {
        let now = self.resource.now(!self.waiters.is_empty());
        if let Some(flows) = self.division() {
            flows.look_at(now);
        }
        now
    }

    /// Asks the resource. A request behind others takes no permits. A queued request takes its permits in [`pass`](Self::pass).
    #[expect(
        clippy::inline_always,
        reason = "a fifth of what a request costs that need not wait"
    )]
    #[inline(always)]
    pub(super) fn decide(&mut self, position: Position, cost: u32, intent: Intent) -> Answer {
        let now = self.now();
        let is_turn = self.waiters.is_empty() || self.is_turn_of(position, cost, now);
        let is_queued = matches!(position, Position::Queued(_));
        let may_take = is_turn && !is_queued;
        let intent = if may_take { intent } else { Intent::Peek };
        let decision = self.resource.decide(intent, now, cost);
        Answer {
            now,
            is_turn,
            decision,
        }
    }

    /// The common case: the request has passed and no waiter is queued, so there is nothing else to do.
    #[inline]
    pub(super) fn passes_alone(
        &mut self,
        position: Position,
        cost: u32,
        answer: &Answer,
        prefetched: &R::Front,
    ) -> bool {
        let passes = answer.decision.is_pass() && position.is_none() && self.waiters.is_empty();
        // Where flows divide permits, each that is taken has to be counted.
        let passes = passes && self.division().is_none();
        if passes {
            self.resource.prefetch(prefetched, answer.now, cost);
        }
        passes
    }

    /// Refuses the request for ever.
    pub(super) fn refuse(&mut self, position: &mut Position, now: Tick) {
        self.resource.on_refused();
        self.leave(position, now);
    }

    /// Queues the request. The head receives how long to sleep, if that is known. One that has just overtaken others is woken by
    /// the timer of the queue instead: most often a newer one overtakes it before, and the timer is then that one's.
    pub(super) fn wait(
        &mut self,
        position: &mut Position,
        cost: u32,
        caller: &Caller<'_>,
        answer: &Answer,
    ) -> Poll<Decision> {
        let wait = answer.decision.retry_in().filter(|_| answer.is_turn);
        let due = wait.map(|wait| answer.now.after(wait));
        let joins = position.is_none();
        let overtakes = joins && self.waiters.is_newest_first();
        let divided_head = self.division().and_then(|flows| flows.head());
        let is_known = !overtakes && wait.is_some_and(|wait| wait < Duration::MAX);
        self.enqueue(position, cost, caller, due.filter(|_| is_known), answer.now);
        if self.waiters.has_to_note_queued() {
            // The time of the answer is not known if the resource read no clock.
            self.waiters.note_queued(self.resource.now(true));
        }
        // Where flows take turns, it may also have ceased to be the head, or become it when it asks for less. Where they divide permits,
        // another may.
        let may_move = self.waiters.has_flows() || (joins && !answer.is_turn);
        let is_another = divided_head.is_some() && self.waiters.head() != divided_head;
        if overtakes
            || is_another
            || (may_move && self.waiters.is_first(*position) != answer.is_turn)
        {
            self.schedule_head(answer.now);
        } else if let (Some(due), Position::Queued(ticket)) = (due, *position) {
            let task = self.timeout.expect(ticket, due, answer.now);
            self.deferred.wake(task);
        }
        self.watch_head();
        if self.waiters.has_second() && (!self.timeout.is_running() || this_runtime().is_none()) {
            // No waiter is in a runtime, or that runtime may not run: threads look themselves, whenever they ask.
            self.pass_over_late_head(answer.now);
        }
        if is_known {
            Poll::Ready(answer.decision)
        } else {
            Poll::Pending
        }
    }

    /// Queues the request as the head, which would pass and waits in another queue. Where the newest is first it blocks no other: the
    /// orders of two queues differ then, and two requests would wait for each other.
    pub(super) fn hold(
        &mut self,
        position: &mut Position,
        cost: u32,
        caller: &Caller<'_>,
        now: Tick,
    ) {
        if cost == 0 {
            return;
        }
        if self.waiters.is_newest_first() {
            self.step_aside(position);
            return;
        }
        // It was woken, and has to wake up for the other queue only.
        self.enqueue(position, cost, caller, Some(Tick::ZERO), now);
        if let Position::Queued(ticket) = *position {
            if let Some(waiter) = self.waiters.get_mut(ticket) {
                waiter.holds = true;
            }
            let task = self.timeout.expect(ticket, now.after(HOLD), now);
            self.deferred.wake(task);
        }
        if self.waiters.has_flows() && !self.waiters.is_first(*position) {
            // The first request of its flow costs more than before.
            self.schedule_head(now);
        }
        self.watch_head();
    }

    /// Takes the request out of the queue, and keeps its ticket.
    pub(super) fn step_aside(&mut self, position: &mut Position) {
        if let Position::Queued(ticket) = *position {
            let now = self.now();
            if self.remove(*position, None) {
                self.schedule_head(now);
            }
            *position = Position::Reserved(ticket);
        }
    }

    pub(super) fn cancel(&mut self, position: &mut Position) {
        let now = self.now();
        self.leave(position, now);
    }

    #[inline]
    pub(super) fn update<T>(&mut self, change: impl FnOnce(&mut R, &mut Waiters, Tick) -> T) -> T {
        let now = self.now();
        let done = change(&mut self.resource, &mut self.waiters, now);
        if !self.waiters.is_empty() {
            self.waiters.reorder();
            self.schedule_head(now);
        }
        done
    }

    /// Chooses another order. If the newest was first, another waiter is the head from now on.
    pub(super) fn serve_by(&mut self, order: impl FnOnce(&mut Waiters)) {
        let was_newest_first = self.waiters.is_newest_first();
        order(&mut self.waiters);
        if was_newest_first {
            self.update(|_, _, _| ());
        }
    }

    pub(super) fn wake_all(&mut self) {
        self.waiters.reorder();
        let waiters = self.waiters.iter_mut();
        self.deferred.wake(waiters.map(|waiter| {
            waiter.wakes_at = Tick::ZERO;
            waiter.waker.clone()
        }));
    }

    /// Called by the task of the timeout: passes over the head at the end of the timeout. Returns how long the task has to sleep;
    /// `None` if it has to end.
    pub(super) fn on_head_timeout(&mut self, task: &Waker) -> Option<Duration> {
        if !self.waiters.has_second() {
            self.timeout.end();
            return None;
        }
        let now = self.resource.now(true);
        self.pass_over_late_head(now);
        Some(self.timeout.sleep(now, task))
    }

    fn pass_over_late_head(&mut self, now: Tick) {
        if self.timeout.left(now).is_zero() {
            self.wake_timed_head();
            self.waiters.pass_over_head();
            self.schedule_head(now);
        }
    }

    /// The task of the timeout was dropped before it ended. Every waiter is woken, and one of them starts another task.
    pub(super) fn on_task_lost(&mut self) {
        let was_starting = self.timeout.end();
        // If the task could not be started at all, waiters that are woken would try in a loop. The next request starts it.
        if !was_starting {
            let waiters = self.waiters.iter_mut();
            let wakers = waiters.map(|waiter| waiter.waker.clone());
            self.deferred.wake(wakers);
        }
    }

    /// Wakes the head for which the timer of the queue was armed. That timer may not have fired, since its runtime may not
    /// run, and it is armed for another head next.
    fn wake_timed_head(&mut self) {
        let timed = self.timed.take();
        let timed = timed.and_then(|ticket| self.waiters.get_mut(ticket));
        self.deferred.wake(timed.map(|waiter| waiter.waker.clone()));
    }

    fn is_turn_of(&mut self, position: Position, cost: u32, now: Tick) -> bool {
        if self.waiters.note_time(now) {
            self.schedule_head(now);
        }
        cost == 0 || self.waiters.is_first(position)
    }

    /// The request passes and leaves the queue. After a peek the handle keeps its position.
    ///
    /// A queued request takes its permits last, at a new reading of the clock. The next element may follow one interval after
    /// that reading, so time spent between it and the return to the caller would shorten the interval that the caller sees.
    pub(super) fn pass(
        &mut self,
        position: &mut Position,
        flow: Option<Flow>,
        cost: u32,
        intent: Intent,
        now: Tick,
    ) -> Decision {
        let (reserved, is_counted) = match *position {
            Position::Queued(ticket) => (Position::Reserved(ticket), false),
            position => (position, true),
        };
        let paid = (intent == Intent::Acquire).then_some(cost);
        let overtakes = position.is_none() && self.waiters.is_newest_first();
        let mut head_has_changed = self.remove(*position, paid);
        if let Some(flows) = self.division() {
            let head = flows.head();
            flows.take(flow.unwrap_or(Flow::OF_NO_KEY), paid.unwrap_or(0));
            head_has_changed |= flows.head() != head;
        }
        if overtakes || (head_has_changed && is_counted) {
            // The permits of the head are due later, or it is another one.
            self.schedule_head(now);
        }
        let mut decision = Decision::Pass;
        if !is_counted {
            // A request that passes now also passes later.
            let now = self.resource.now(true).max(now);
            decision = self.resource.decide(intent, now, cost);
            if head_has_changed {
                self.schedule_head(now);
            }
        }
        *position = match intent {
            Intent::Acquire => Position::None,
            Intent::Peek => reserved,
        };
        decision
    }

    /// Queues the request, or updates it if it is queued. A head that sleeps on a timer of its own has `sleeps_until`.
    fn enqueue(
        &mut self,
        position: &mut Position,
        cost: u32,
        caller: &Caller<'_>,
        sleeps_until: Option<Tick>,
        now: Tick,
    ) {
        if let Position::Queued(ticket) = *position {
            self.disarm(ticket);
            self.waiters.requeue(ticket, caller.flow);
            if let Some(waiter) = self.waiters.get_mut(ticket) {
                let has_moved = !waiter.waker.will_wake(caller.waker);
                if has_moved {
                    let waker = caller.waker.clone();
                    let replaced = core::mem::replace(&mut waiter.waker, waker);
                    self.deferred.drop_later(replaced);
                }
                waiter.wakes_at = sleeps_until.unwrap_or(Tick::MAX);
                waiter.holds = false;
                if sleeps_until.is_none() && (has_moved || waiter.home.is_none()) {
                    waiter.home = home(caller);
                } else if has_moved {
                    waiter.home = None;
                }
                if waiter.cost != cost {
                    self.waiters.change_cost(ticket, cost);
                }
            }
            return;
        }
        let mut waiter = Waiter {
            cost,
            deadline: Tick::MAX,
            waker: caller.waker.clone(),
            home: sleeps_until.map_or_else(|| home(caller), |_| None),
            wakes_at: sleeps_until.unwrap_or(Tick::MAX),
            holds: false,
        };
        let ticket = if let Position::Reserved(ticket) = *position {
            self.waiters.rejoin(ticket, waiter, caller.flow);
            ticket
        } else {
            self.resource.on_queued();
            let mut ticket = self.ticket(now, caller.priority, caller.flow);
            if let Some(deadline) = caller.deadline {
                let (deadline, by) = self.resource.deadline(deadline, cost);
                waiter.deadline = deadline;
                let order = self.waiters.order_by_deadline(now, Some(by));
                ticket.order = order.unwrap_or(ticket.order);
            }
            self.waiters.join(ticket, waiter, caller.flow);
            ticket
        };
        *position = Position::Queued(ticket);
    }

    /// A ticket for a request that comes `now`, as far as the time of its answer is known.
    pub(super) fn ticket(&mut self, now: Tick, priority: Priority, flow: Option<Flow>) -> Ticket {
        let has_classes = self.waiters.has_classes();
        let now = if has_classes {
            self.resource.now(true)
        } else {
            now
        };
        self.waiters.ticket(now, priority, flow)
    }

    fn leave(&mut self, position: &mut Position, now: Tick) {
        if self.remove(*position, None) {
            self.schedule_head(now);
        }
        *position = Position::None;
    }

    /// Takes the request out of the queue, after it has taken `paid` permits. Returns whether the head has changed and has to
    /// be scheduled.
    ///
    /// The caller clears the position after that. If the policy panics before, the handle comes here again when it is dropped,
    /// without a waiter to remove, and the head is scheduled then.
    fn remove(&mut self, position: Position, paid: Option<u32>) -> bool {
        let ticket = match position {
            Position::None => return false,
            Position::Reserved(ticket) => {
                let head = self.waiters.head();
                self.waiters.charge_flow(ticket, paid.unwrap_or(0));
                return self.waiters.has_flows() && self.waiters.head() != head;
            }
            Position::Queued(ticket) => ticket,
        };
        let head = self.waiters.head();
        let was_head = head == Some(ticket);
        self.disarm(ticket);
        let Some(waiter) = self.waiters.remove(ticket, was_head, paid) else {
            return true;
        };
        self.deferred.drop_later(waiter.waker);
        // What a flow has saved may now pay for its next request.
        was_head || (self.waiters.has_flows() && self.waiters.head() != head)
    }

    /// Makes sure that the head is woken when its permits are due, and passed over if it does not ask then.
    fn schedule_head(&mut self, now: Tick) {
        self.waiters.note_time(now);
        let may_hold = !self.waiters.is_newest_first();
        let waiting = self.waiters.len();
        let Some((ticket, head)) = self.waiters.head_mut() else {
            self.deferred.wake(self.timeout.dismiss());
            return;
        };
        // A handle that is dropped because a policy panicked must not ask it again: a second panic aborts the program.
        let wait = if std::thread::panicking() {
            Duration::ZERO
        } else {
            self.resource
                .decide(Intent::Peek, now, head.cost)
                .retry_in()
                .unwrap_or_default()
        };
        let due = now.after(wait);
        let slack = match head.home {
            Some((_, None)) if !wait.is_zero() && HAS_EXACT_TIMERS => {
                slack(waiting, due, self.resource.saves_until())
            }
            _ => Duration::ZERO,
        };
        // Tests see exact instants on a paused clock.
        let (wait, due) = if !slack.is_zero() && is_real() {
            (wait + slack, due.after(slack))
        } else {
            (wait, due)
        };
        let expected = if head.holds && may_hold {
            now.after(HOLD)
        } else {
            due
        };
        let task = self.timeout.expect(ticket, expected, now);
        self.deferred.wake(task);
        if due < head.wakes_at {
            let is_timed = !wait.is_zero() && head.home.is_some();
            head.wakes_at = if is_timed { due } else { Tick::ZERO };
            self.generation += 1;
            let wake = HeadWake {
                wait: if is_timed { wait } else { Duration::ZERO },
                waker: head.waker.clone(),
                home: head
                    .home
                    .map(|(home, resolution)| (home, resolution.unwrap_or_default())),
                generation: self.generation,
            };
            self.deferred.wake_head(wake);
            let timed = core::mem::replace(&mut self.timed, is_timed.then_some(ticket));
            if timed.is_some() && !is_timed {
                self.deferred.disarm(self.generation);
            }
            self.forget_timer_of(timed.filter(|timed| *timed != ticket));
        }
        self.watch_head();
    }

    /// The waiter asks or leaves, and no longer needs the timer of the queue.
    fn disarm(&mut self, ticket: Ticket) {
        if self.timed.take_if(|timed| *timed == ticket).is_some() {
            self.generation += 1;
            self.deferred.disarm(self.generation);
        }
    }

    /// The timer of the queue is armed for another waiter from now on.
    fn forget_timer_of(&mut self, ticket: Option<Ticket>) {
        let waiter = ticket.and_then(|ticket| self.waiters.get_mut(ticket));
        if let Some(waiter) = waiter {
            waiter.wakes_at = Tick::MAX;
        }
    }

    fn watch_head(&mut self) {
        if self.waiters.has_second() && self.timeout.begin() {
            self.deferred.start_task();
        }
    }
}

/// On tokio's timers several waiters pass at one wake-up anyway: they have a grid of one millisecond.
const HAS_EXACT_TIMERS: bool = cfg!(all(feature = "precise", target_os = "linux"));

fn home(caller: &Caller<'_>) -> Option<(Id, Option<Resolution>)> {
    this_runtime().map(|runtime| (runtime, caller.resolution))
}
