//! An oracle for wait queues: it polls the requests of a limit by hand, and knows from a plain list which of them pass.
//!
//! A [`Subject`] is a limit with its requests, and says how much room there is. A test tells the [`Oracle`] what happens: requests
//! join, are polled at any time and by any task, are cancelled or left idle, and time passes. At each step:
//!
//! * A request passes if there is room for it and no earlier request is queued, and only if each earlier one is idle. Where the
//!   newest is first, it is the later ones that matter.
//! * A request that could pass is woken: when every woken request has been polled, the head cannot pass.
//! * A waiter is woken once for its grant, and once more at the most for each [disturbance](Oracle::disturb) meanwhile. Calls of a
//!   waker before the next poll are one wake-up, as they are for a task.
//! * In the end every request passes.

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::task::yield_now;

use crate::{
    clock::{Stopwatch, jump},
    wakes::Driven,
};

/// After this long at the least, an idle head may be passed over: half the timeout, if it was late itself.
const IDLE: Duration = Duration::from_millis(5);

/// A limit with wait queues, and how much room it has.
pub trait Subject {
    /// A request of the limit.
    type Request;
    /// The answer to a request that does not pass.
    type Refusal: fmt::Debug;

    /// Whether the newest request is first.
    const NEWEST_FIRST: bool = false;

    /// Whether a waiter may find when it is woken that others were faster, and waits again.
    const ASKS_AGAIN: bool = false;

    /// Polls a request. `cost` is what it asks for now.
    fn poll(
        &mut self,
        request: Pin<&mut Self::Request>,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Self::Refusal>>;

    /// Polls a request that only looks whether one could pass. Not needed where [`Oracle::look`] is not called.
    fn look(&mut self, request: Pin<&mut Self::Request>, cx: &mut Context<'_>) -> Poll<()> {
        let _ = (request, cx);
        unreachable!("of a subject without looks")
    }

    /// Whether a request that is alone in this queue would pass now.
    fn room(&mut self, queue: usize, cost: u32) -> Room;

    /// The same when every woken request has been polled.
    fn room_at_rest(&mut self, queue: usize, cost: u32) -> Room {
        self.room(queue, cost)
    }

    /// Whether the requests of a queue pass in their order.
    fn is_ordered(&self) -> bool {
        true
    }

    /// A request of a cost above zero has passed.
    fn pass(&mut self, queue: usize, cost: u32);

    /// Checks that a request may wait.
    fn wait(&mut self, turn: &Turn) {
        let _ = turn;
    }

    /// Checks a refusal.
    fn refuse(&mut self, turn: &Turn, refusal: Self::Refusal) {
        panic!("refused: {refusal:?}, {turn:?}");
    }
}

/// Whether a request that is alone would pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "all that there can be")]
pub enum Room {
    /// It passes.
    Yes,
    /// It has to wait.
    No,
    /// It may pass, and it may have to wait.
    Maybe,
}

impl Room {
    /// [`Yes`](Self::Yes) or [`No`](Self::No).
    #[must_use]
    pub const fn exact(passes: bool) -> Self {
        if passes { Self::Yes } else { Self::No }
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "tests make it")]
pub struct Visit {
    /// The queue that it joins.
    pub queue: usize,
    /// What it asks for.
    pub cost: u32,
    /// Cancelled after this number of polls.
    pub leaves: Option<usize>,
}

/// One poll of a request, and the state before it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Turn {
    /// The number of the request.
    pub n: usize,
    /// Its queue.
    pub queue: usize,
    /// What it asked for.
    pub cost: u32,
    /// When it was queued, since the start of the oracle.
    pub joined: Option<Duration>,
    /// The costs of the other requests that are queued, in their order.
    pub others: Vec<u32>,
    /// Whether any of these may be passed over.
    pub is_any_idle: bool,
}

/// The answers so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "tests compare it")]
pub struct Counts {
    /// Requests of a cost above zero that passed.
    pub passed: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that were queued.
    pub held_back: u64,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Outside,
    Queued(u64),
    /// It is not queued, and keeps its position.
    Reserved(u64),
}

struct Visitor<R> {
    request: Driven<R>,
    visit: Visit,
    place: Place,
    joined: Option<Duration>,
    polls: usize,
    /// Since when it is known to be woken and was not polled.
    idle_since: Option<Duration>,
    /// How often it was polled because it was woken, since it was queued.
    wake_ups: usize,
    /// How many disturbances there had been when it was queued.
    disturbances: usize,
}

impl<R> Visitor<R> {
    const fn is_queued(&self) -> bool {
        matches!(self.place, Place::Queued(_))
    }

    const fn ticket(&self) -> Option<u64> {
        match self.place {
            Place::Outside => None,
            Place::Queued(ticket) | Place::Reserved(ticket) => Some(ticket),
        }
    }
}

/// The requests of a limit, in a plain list.
pub struct Oracle<S: Subject> {
    /// The limit.
    pub subject: S,
    /// What the limit has answered.
    pub counts: Counts,
    visitors: BTreeMap<usize, Visitor<S::Request>>,
    come: usize,
    next_ticket: u64,
    disturbances: usize,
    watch: Stopwatch,
}

impl<S: Subject> Oracle<S> {
    /// Without requests.
    pub fn new(subject: S) -> Self {
        Self {
            subject,
            counts: Counts::default(),
            visitors: BTreeMap::new(),
            come: 0,
            next_ticket: 0,
            disturbances: 0,
            watch: Stopwatch::start(),
        }
    }

    /// The time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.watch.elapsed()
    }

    /// A request comes, and is not polled yet. Returns its number.
    pub fn join(&mut self, visit: Visit, request: S::Request) -> usize {
        self.come += 1;
        let visitor = Visitor {
            request: Driven::new(request),
            visit,
            place: Place::Outside,
            joined: None,
            polls: 0,
            idle_since: None,
            wake_ups: 0,
            disturbances: 0,
        };
        self.visitors.insert(self.come, visitor);
        self.come
    }

    /// A request is cancelled. It is dropped with what this returns.
    pub fn leave(&mut self, n: usize) -> Option<Driven<S::Request>> {
        let visitor = self.visitors.remove(&n);
        visitor.map(|visitor| visitor.request)
    }

    /// Something can take the room from a woken waiter, or wakes all waiters: the limit was changed or paused, or a request has
    /// changed its cost or has a reserved position.
    pub fn disturb(&mut self) {
        self.disturbances += 1;
    }

    /// Changes the cost of a request from its next poll on.
    pub fn change_cost(&mut self, n: usize, cost: u32) {
        self.disturb();
        self.visitor(n).visit.cost = cost;
    }

    /// Moves a request to another task.
    pub fn change_task(&mut self, n: usize) {
        self.visitor(n).request.change_task();
    }

    /// The number of any request.
    #[must_use]
    pub fn pick(&self, index: usize) -> Option<usize> {
        let index = index.checked_rem(self.visitors.len())?;
        self.visitors.keys().nth(index).copied()
    }

    /// A request.
    #[must_use]
    pub fn request(&self, n: usize) -> &S::Request {
        self.visitors[&n].request.get()
    }

    /// A request as its queue knows it.
    #[must_use]
    pub fn visit(&self, n: usize) -> Visit {
        self.visitors[&n].visit
    }

    /// The same to be polled past the oracle, before it [passes by](Self::passed_by).
    pub fn driven(&mut self, n: usize) -> &mut Driven<S::Request> {
        &mut self.visitor(n).request
    }

    /// How many requests there are, queued or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.visitors.len()
    }

    /// Whether there is no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.visitors.is_empty()
    }

    /// The numbers of the requests that are queued.
    pub fn waiters(&self) -> impl Iterator<Item = usize> {
        let queued = self.visitors.iter().filter(|(_, one)| one.is_queued());
        queued.map(|(n, _)| *n)
    }

    /// How many requests are queued.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters().count()
    }

    /// Whether a request was woken since it was polled.
    #[must_use]
    pub fn is_woken(&self, n: usize) -> bool {
        self.visitors[&n].request.is_woken()
    }

    /// The costs of the requests in this queue, in their order.
    #[must_use]
    pub fn queued(&self, queue: usize) -> Vec<u32> {
        self.queued_but(queue, 0)
            .into_iter()
            .map(|(_, cost)| cost)
            .collect()
    }

    /// The numbers and costs of the other requests in this queue, in their order.
    fn queued_but(&self, queue: usize, n: usize) -> Vec<(usize, u32)> {
        let queued = self
            .visitors
            .iter()
            .filter_map(|(&other, one)| match one.place {
                Place::Queued(ticket) if one.visit.queue == queue && other != n => {
                    Some((ticket, other, one.visit.cost))
                }
                _ => None,
            });
        let mut queued: Vec<_> = queued.collect();
        queued.sort_unstable();
        if S::NEWEST_FIRST {
            queued.reverse();
        }
        queued.into_iter().map(|(_, n, cost)| (n, cost)).collect()
    }

    /// The first request of this queue, and its cost.
    #[must_use]
    pub fn head(&self, queue: usize) -> Option<(usize, u32)> {
        self.queued_but(queue, 0).first().copied()
    }

    /// Checks whether a request may pass now that is not queued, or has to.
    pub fn answered(&mut self, queue: usize, cost: u32, passes: bool) {
        self.check_answer(queue, None, cost, passes);
    }

    /// The same, and counts it.
    pub fn tried(&mut self, queue: usize, cost: u32, has_passed: bool) {
        self.check_answer(queue, None, cost, has_passed);
        self.note_tried(queue, cost, has_passed);
    }

    /// The same for a request that passes in any case, and leaves. `is_charged` says whether the limit let it pass.
    pub fn passed_by(&mut self, n: usize, is_charged: bool) {
        let Visit { queue, cost, .. } = self.visit(n);
        self.check_answer(queue, self.visitors[&n].ticket(), cost, is_charged);
        self.note_tried(queue, cost, is_charged);
    }

    fn check_answer(&mut self, queue: usize, ticket: Option<u64>, cost: u32, passes: bool) {
        let (may_pass, must_pass) = self.may_and_must_pass(queue, ticket, cost);
        assert!(
            (may_pass || !passes) && (passes || !must_pass),
            "a request of {cost} in queue {queue} passes: {passes}"
        );
    }

    fn note_tried(&mut self, queue: usize, cost: u32, has_passed: bool) {
        if has_passed {
            self.disturbances += usize::from(S::NEWEST_FIRST);
            self.note_passed(queue, cost);
        } else {
            self.counts.refused += 1;
        }
    }

    /// The turn of one more request.
    #[must_use]
    pub fn turn_of(&self, queue: usize, cost: u32) -> Turn {
        self.turn(0, None, queue, cost)
    }

    fn turn(&self, n: usize, joined: Option<Duration>, queue: usize, cost: u32) -> Turn {
        let others = self.queued_but(queue, n);
        let is_any_idle = others.iter().any(|(n, _)| self.may_be_passed_over(*n));
        let others = others.into_iter().map(|(_, cost)| cost).collect();
        Turn {
            n,
            queue,
            cost,
            joined,
            others,
            is_any_idle,
        }
    }

    /// Polls a request.
    pub fn poll(&mut self, n: usize) {
        self.poll_with(n, false);
    }

    /// Polls a request that only looks whether a cost of 1 could pass, and keeps its position if so.
    pub fn look(&mut self, n: usize) {
        self.disturb();
        self.poll_with(n, true);
    }

    fn poll_with(&mut self, n: usize, looks: bool) {
        let (place, joined) = (self.visitors[&n].place, self.visitors[&n].joined);
        let Visit {
            queue,
            cost,
            leaves,
        } = self.visitors[&n].visit;
        let cost = if looks { 1 } else { cost };
        let ticket = self.visitors[&n].ticket();
        let (may_pass, must_pass) = self.may_and_must_pass(queue, ticket, cost);
        let turn = self.turn(n, joined, queue, cost);
        let context = format!("at {:?}, {place:?}, looks: {looks}, {turn:?}", self.now());

        let was_idle = self.may_be_passed_over(n);
        self.note_poll(n, &context);
        let (subject, visitor) = (&mut self.subject, self.visitors.get_mut(&n));
        let visitor = visitor.expect("it is there");
        let answer = visitor.request.poll_with(|request, cx| {
            if looks {
                subject.look(request, cx).map(Ok)
            } else {
                subject.poll(request, cost, cx)
            }
        });
        let is_kept = visitor.request.is_waker_kept() || visitor.request.is_woken();
        let is_over = leaves == Some(visitor.polls);
        // Others that were woken meanwhile find its position taken, a newer request, or one that was passed over for them.
        let disturbs = was_idle || matches!(place, Place::Reserved(_)) || S::NEWEST_FIRST;
        self.disturbances += usize::from(disturbs);
        match answer {
            Poll::Pending => {
                assert!(!must_pass, "{context}: waits");
                assert!(is_kept, "{context}: nobody will wake it");
                self.subject.wait(&turn);
                self.enqueue(n);
                if is_over {
                    self.leave(n);
                }
            }
            Poll::Ready(Ok(())) => {
                assert!(may_pass, "{context}: passes");
                if looks {
                    self.reserve(n);
                } else {
                    self.leave(n);
                    self.note_passed(queue, cost);
                }
            }
            Poll::Ready(Err(refusal)) => {
                assert!(!must_pass, "{context}: refused, {refusal:?}");
                self.leave(n);
                self.counts.refused += 1;
                self.subject.refuse(&turn, refusal);
            }
        }
    }

    fn may_and_must_pass(&mut self, queue: usize, ticket: Option<u64>, cost: u32) -> (bool, bool) {
        let room = self.subject.room(queue, cost);
        let ticket = ticket.unwrap_or(self.next_ticket);
        let is_ordered = self.subject.is_ordered();
        let ahead = self.visitors.iter().filter(|(_, one)| match one.place {
            Place::Queued(other) if !is_ordered => other != ticket,
            Place::Queued(other) if S::NEWEST_FIRST => other > ticket,
            Place::Queued(other) => other < ticket,
            _ => false,
        });
        let ahead = ahead.filter(|(_, one)| one.visit.queue == queue && cost > 0);
        let ahead: Vec<usize> = ahead.map(|(n, _)| *n).collect();
        let may_be_head = !is_ordered || ahead.iter().all(|n| self.may_be_passed_over(*n));
        (
            room != Room::No && may_be_head,
            room == Room::Yes && ahead.is_empty(),
        )
    }

    fn note_passed(&mut self, queue: usize, cost: u32) {
        if cost > 0 {
            self.counts.passed += 1;
            self.subject.pass(queue, cost);
        }
    }

    /// Counts a poll and, if it comes of a wake-up, the wake-up.
    fn note_poll(&mut self, n: usize, context: &str) {
        let disturbances = self.disturbances;
        let visitor = self.visitor(n);
        visitor.polls += 1;
        visitor.idle_since = None;
        if visitor.place != Place::Outside && visitor.request.is_woken() {
            visitor.wake_ups += 1;
            let (wake_ups, most) = (visitor.wake_ups, 1 + disturbances - visitor.disturbances);
            let detail = || format!("{wake_ups} wake-ups, {most} at the most");
            assert!(wake_ups <= most || S::ASKS_AGAIN, "{context}: {}", detail());
        }
    }

    fn enqueue(&mut self, n: usize) {
        let (now, disturbances, ticket) = (self.now(), self.disturbances, self.next_ticket);
        let visitor = self.visitor(n);
        visitor.joined.get_or_insert(now);
        match visitor.place {
            Place::Queued(_) => {}
            Place::Reserved(ticket) => visitor.place = Place::Queued(ticket),
            Place::Outside => {
                visitor.place = Place::Queued(ticket);
                visitor.disturbances = disturbances;
                visitor.wake_ups = 0;
                self.next_ticket += 1;
                self.counts.held_back += 1;
            }
        }
    }

    fn reserve(&mut self, n: usize) {
        let visitor = self.visitor(n);
        if let Place::Queued(ticket) = visitor.place {
            visitor.place = Place::Reserved(ticket);
        }
    }

    /// The numbers of the requests that are not queued.
    #[must_use]
    pub fn outside(&self) -> Vec<usize> {
        let outside = self.visitors.iter().filter(|(_, one)| !one.is_queued());
        outside.map(|(n, _)| *n).collect()
    }

    /// The numbers of the requests that were woken.
    #[must_use]
    pub fn woken(&self) -> Vec<usize> {
        let numbers = self.visitors.keys().copied();
        numbers.filter(|n| self.is_woken(*n)).collect()
    }

    /// Polls the woken requests in this order, until none is left.
    fn poll_woken(&mut self, order: &[usize]) {
        for index in order.iter().cycle() {
            let woken = self.woken();
            let Some(place) = index.checked_rem(woken.len()) else {
                break;
            };
            self.poll(woken[place]);
        }
        self.check_heads();
    }

    /// Time goes by, and each woken request is polled, in this order.
    pub async fn let_time_pass(&mut self, time: Duration, order: &[usize]) {
        jump(time).await;
        yield_now().await;
        self.poll_woken(order);
    }

    /// Time goes by, and no request is polled.
    pub async fn lose_time(&mut self, time: Duration) {
        self.disturb();
        self.note_idle();
        jump(time).await;
        for _ in 0..4 {
            yield_now().await;
        }
        self.note_idle();
    }

    /// Checks that no head that could pass sleeps.
    ///
    /// # Panics
    ///
    /// If one does.
    pub fn check_heads(&mut self) {
        let queues: Vec<usize> = self.visitors.values().map(|one| one.visit.queue).collect();
        for queue in queues {
            let Some((n, cost)) = self.head(queue) else {
                continue;
            };
            let sleeps = !self.is_woken(n);
            let could_pass = self.subject.room_at_rest(queue, cost) == Room::Yes;
            let now = self.now();
            assert!(
                !(sleeps && could_pass),
                "{n} could pass and sleeps at {now:?}"
            );
        }
    }

    /// Every request that has not left passes: `step` gives back what was granted, and then this much time goes by.
    ///
    /// # Panics
    ///
    /// If one does not pass in 2,000 rounds.
    pub async fn end(&mut self, time: Duration, mut step: impl FnMut(&mut Self)) {
        for visitor in self.visitors.values_mut() {
            visitor.visit.leaves = None;
        }
        for _ in 0..2_000 {
            step(self);
            for n in self.outside() {
                self.poll(n);
            }
            if self.is_empty() {
                return;
            }
            self.let_time_pass(time, &[0]).await;
        }
        panic!("{} waiters sleep for ever", self.len());
    }

    fn may_be_passed_over(&self, n: usize) -> bool {
        let idle_since = self.visitors[&n].idle_since;
        idle_since.is_some_and(|since| since + IDLE <= self.now())
    }

    fn note_idle(&mut self) {
        let now = self.now();
        let visitors = self.visitors.values_mut();
        for visitor in visitors.filter(|one| one.request.is_woken()) {
            visitor.idle_since.get_or_insert(now);
        }
    }

    fn visitor(&mut self, n: usize) -> &mut Visitor<S::Request> {
        self.visitors.get_mut(&n).expect("it is there")
    }
}

impl<S: Subject> fmt::Debug for Oracle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oracle")
            .field("counts", &self.counts)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
