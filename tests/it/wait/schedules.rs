//! Random schedules against a plain queue and a count of permits.
//!
//! Requests join, are polled at any time, change their cost and their task, are cancelled after any number of polls or are left
//! idle for so long that others pass before them; grants are given back in any order; the limit is resized, paused and resumed;
//! and the clock moves at any time. At each step:
//!
//! * A request passes if its permits are there and no earlier request is queued, and only if each earlier one is idle. Where the
//!   newest is first, it is the later ones that matter.
//! * A request that could pass is woken: when every woken request has been polled, the head cannot pass.
//! * A waiter is woken once for its grant, and once more at the most for each disturbance meanwhile: what can take a permit from a
//!   woken waiter (a resized or paused limit, a lost turn, a reserved position, a changed cost) or wakes every waiter. Calls of a
//!   waker before the next poll are one wake-up, as they are for a task.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::task::Poll;

use paceline::limiter::{Gate, Limiter};
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::clock::{Stopwatch, jump};
use testkit::wakes::Driven;

use super::{
    FairLimit, Grant, KeyedLimit, Kind, PermitLimit, Request, SharedLimit, paused_runtime,
};
use crate::timed::ms;

/// After this long at the least, an idle head may be passed over: half the timeout, if it was late itself.
const IDLE: u128 = 5;

#[derive(Clone, Debug)]
enum Event {
    Joins {
        cost: u32,
        /// Through a handle, which can look and change its cost.
        by_handle: bool,
        /// Cancelled after this number of polls.
        leaves: Option<usize>,
    },
    IsPolled(Index),
    /// Polled by another task.
    Moves(Index),
    /// Asks for another cost from now on.
    ChangesCost(Index, u32),
    /// Looks whether one permit could pass.
    Looks(Index),
    IsGivenBack(Index),
    Tries(u32),
    IsResized(u32),
    IsPaused,
    IsResumed,
    /// Milliseconds go by, and each woken request is polled, in this order.
    TimePasses(u64, Vec<usize>),
    /// Milliseconds go by, and no request is polled.
    TimeIsLost(u64),
}

fn quiet_event() -> impl Strategy<Value = Event> {
    let leaves = prop::option::of(1..4_usize);
    let joins = (1..4_u32, any::<bool>(), leaves);
    prop_oneof![
        5 => joins.prop_map(|(cost, by_handle, leaves)| Event::Joins { cost, by_handle, leaves }),
        4 => any::<Index>().prop_map(Event::IsPolled),
        2 => any::<Index>().prop_map(Event::Moves),
        4 => any::<Index>().prop_map(Event::IsGivenBack),
        1 => (1..4_u32).prop_map(Event::Tries),
        3 => (0..40_u64, prop::collection::vec(0..8_usize, 1..4))
            .prop_map(|(time, order)| Event::TimePasses(time, order)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => quiet_event(),
        1 => (any::<Index>(), 1..4_u32).prop_map(|(index, cost)| Event::ChangesCost(index, cost)),
        2 => any::<Index>().prop_map(Event::Looks),
        // No fewer than one request asks for: it would be refused.
        1 => (3..6_u32).prop_map(Event::IsResized),
        1 => Just(Event::IsPaused),
        2 => Just(Event::IsResumed),
        2 => (0..25_u64).prop_map(Event::TimeIsLost),
    ]
}

/// A request, by itself or through a handle.
enum Ask {
    Request(Request),
    Handle(Gate<Box<dyn Limiter<Error = Infallible> + Send>>),
}

/// Where a request stands in the plain queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Outside,
    Queued(u64),
    Reserved(u64),
}

struct Visitor {
    ask: Driven<Ask>,
    cost: u32,
    place: Place,
    polls: usize,
    leaves: Option<usize>,
    /// Since when it is known to be woken and was not polled.
    idle_since: Option<u128>,
    /// How often it was polled because it was woken, since it was queued.
    wake_ups: usize,
    /// How many disturbances there had been when it was queued.
    disturbances: usize,
}

struct Run<K> {
    limit: K,
    permits: u32,
    cooldown: u128,
    is_paused: bool,
    in_use: u32,
    cooling: Vec<(u128, u32)>,
    visitors: BTreeMap<usize, Visitor>,
    grants: Vec<(Grant, u32)>,
    joined: usize,
    next_ticket: u64,
    /// What may cost a waiter one more wake-up.
    disturbances: usize,
    since_start: Stopwatch,
}

impl<K: Kind> Run<K> {
    fn new(permits: u32, cooldown: u64) -> Self {
        Self {
            limit: K::new(permits, ms(cooldown)),
            permits,
            cooldown: cooldown.into(),
            is_paused: false,
            in_use: 0,
            cooling: Vec::new(),
            visitors: BTreeMap::new(),
            grants: Vec::new(),
            joined: 0,
            next_ticket: 0,
            disturbances: 0,
            since_start: Stopwatch::start(),
        }
    }

    async fn goes_on(&mut self, event: Event) {
        match event {
            Event::Joins {
                cost,
                by_handle,
                leaves,
            } => self.joins(cost, by_handle, leaves),
            Event::IsPolled(index) => {
                self.poll_at(index);
            }
            Event::Moves(index) => {
                if let Some(n) = self.pick(index) {
                    self.visitor(n).ask.change_task();
                    self.poll(n, false);
                }
            }
            Event::ChangesCost(index, cost) => {
                if let Some(n) = self.pick(index).filter(|n| self.is_handle(*n)) {
                    self.disturbances += 1;
                    self.visitor(n).cost = cost;
                    self.poll(n, false);
                }
            }
            Event::Looks(index) => {
                if let Some(n) = self.pick(index).filter(|n| self.is_handle(*n)) {
                    self.disturbances += 1;
                    self.poll(n, true);
                }
            }
            Event::IsGivenBack(index) if !self.grants.is_empty() => {
                self.give_back(index.index(self.grants.len()));
            }
            Event::Tries(cost) => self.tries(cost),
            Event::IsResized(permits) if !self.is_paused => {
                self.disturbances += 1;
                self.permits = permits;
                self.limit.resize(permits);
            }
            Event::IsGivenBack(_) | Event::IsResized(_) => {}
            Event::IsPaused => {
                self.disturbances += 1;
                self.is_paused = true;
                self.limit.pause();
            }
            Event::IsResumed => self.resume(),
            Event::TimePasses(time, order) => self.time_passes(time, &order).await,
            Event::TimeIsLost(time) => {
                self.disturbances += 1;
                self.note_idle();
                jump(ms(time)).await;
                tokio::task::yield_now().await;
                self.note_idle();
            }
        }
        let is_queued = |visitor: &&Visitor| matches!(visitor.place, Place::Queued(_));
        let queued = self.visitors.values().filter(is_queued).count();
        assert_eq!(self.limit.waiting(), queued);
    }

    fn joins(&mut self, cost: u32, by_handle: bool, leaves: Option<usize>) {
        let handle = self.limit.handle().filter(|_| by_handle);
        let ask = match handle {
            Some(handle) => Ask::Handle(Gate::new(handle)),
            None => Ask::Request(self.limit.acquire(cost)),
        };
        self.joined += 1;
        let visitor = Visitor {
            ask: Driven::new(ask),
            cost,
            place: Place::Outside,
            polls: 0,
            leaves,
            idle_since: None,
            wake_ups: 0,
            disturbances: 0,
        };
        self.visitors.insert(self.joined, visitor);
        self.poll(self.joined, false);
    }

    fn resume(&mut self) {
        self.disturbances += 1;
        self.is_paused = false;
        self.limit.resume(self.permits);
    }

    fn tries(&mut self, cost: u32) {
        let is_queued = |visitor: &Visitor| matches!(visitor.place, Place::Queued(_));
        let waits = self.visitors.values().filter(|visitor| is_queued(visitor));
        let (mut may_pass, mut must_pass) = (self.has_room(cost), waits.clone().count() == 0);
        let mut ahead = waits.filter(|_| !K::NEWEST_FIRST);
        may_pass &= ahead.all(|visitor| self.may_be_passed_over(visitor));
        must_pass |= K::NEWEST_FIRST;
        let grant = self.limit.try_acquire(cost);
        assert!(grant.is_none() || may_pass);
        assert!(grant.is_some() || !(must_pass && self.has_room(cost)));
        if let Some(grant) = grant {
            self.disturbances += usize::from(K::NEWEST_FIRST);
            self.in_use += cost;
            self.grants.push((grant, cost));
        }
    }

    fn poll_at(&mut self, index: Index) {
        if let Some(n) = self.pick(index) {
            self.poll(n, false);
        }
    }

    fn poll(&mut self, n: usize, looks: bool) {
        let visitor = &self.visitors[&n];
        let cost = if looks { 1 } else { visitor.cost };
        let ticket = match visitor.place {
            Place::Outside => self.next_ticket,
            Place::Queued(ticket) | Place::Reserved(ticket) => ticket,
        };
        let ahead = self.visitors.values().filter(|other| match other.place {
            Place::Queued(other) if K::NEWEST_FIRST => other > ticket,
            Place::Queued(other) => other < ticket,
            _ => false,
        });
        let is_head = ahead.clone().count() == 0;
        let may_be_head = ahead.clone().all(|other| self.may_be_passed_over(other));
        let has_room = self.has_room(cost);
        let is_reserved = matches!(visitor.place, Place::Reserved(_));

        let context = format!("{n}: {cost} at {:?}, looks: {looks}", visitor.place);
        let disturbances = self.disturbances;
        let visitor = self.visitor(n);
        visitor.polls += 1;
        visitor.idle_since = None;
        if visitor.place != Place::Outside && visitor.ask.is_woken() {
            visitor.wake_ups += 1;
            let most = 1 + disturbances - visitor.disturbances;
            let wake_ups = visitor.wake_ups;
            assert!(
                wake_ups <= most,
                "{context}: {wake_ups} wake-ups, {most} at the most"
            );
        }
        let answer = visitor.ask.poll_with(|ask, cx| match ask.get_mut() {
            Ask::Request(request) => request.as_mut().poll(cx).map(Some),
            Ask::Handle(gate) if looks => gate.poll_open(cx).map(|Ok(())| None),
            Ask::Handle(gate) => gate.poll_pass(cost, cx).map(|passed| {
                passed.expect("not too large");
                None
            }),
        });
        let is_over = answer.is_pending() && visitor.leaves == Some(visitor.polls);
        assert!(
            answer.is_pending() || (has_room && may_be_head),
            "{context}: passes"
        );
        assert!(
            answer.is_ready() || !(has_room && is_head),
            "{context}: waits"
        );
        // Others that were woken meanwhile find its position taken, or a newer request.
        self.disturbances += usize::from(is_reserved || K::NEWEST_FIRST);
        match answer {
            Poll::Pending if is_over => drop(self.visitors.remove(&n)),
            Poll::Pending => self.is_queued(n, ticket),
            Poll::Ready(_) if looks => self.has_looked(n),
            Poll::Ready(grant) => {
                let grant = grant.unwrap_or_else(|| self.limit.grant_of_handle(cost));
                self.visitors.remove(&n);
                self.in_use += cost;
                self.grants.push((grant, cost));
            }
        }
    }

    fn is_queued(&mut self, n: usize, ticket: u64) {
        let disturbances = self.disturbances;
        let visitor = self.visitor(n);
        if visitor.place == Place::Outside {
            visitor.disturbances = disturbances;
            visitor.wake_ups = 0;
            self.next_ticket += 1;
        }
        self.visitor(n).place = Place::Queued(ticket);
    }

    fn has_looked(&mut self, n: usize) {
        let visitor = self.visitor(n);
        if let Place::Queued(ticket) = visitor.place {
            visitor.place = Place::Reserved(ticket);
        }
    }

    fn give_back(&mut self, index: usize) {
        let (grant, cost) = self.grants.swap_remove(index);
        drop(grant);
        self.in_use -= cost;
        self.cooling.push((self.now() + self.cooldown, cost));
    }

    async fn time_passes(&mut self, time: u64, order: &[usize]) {
        jump(ms(time)).await;
        tokio::task::yield_now().await;
        for index in order.iter().cycle() {
            let woken = self
                .visitors
                .iter()
                .filter(|(_, visitor)| visitor.ask.is_woken());
            let woken: Vec<_> = woken.map(|(n, _)| *n).collect();
            if woken.is_empty() {
                break;
            }
            self.poll(woken[index % woken.len()], false);
        }
        let queued = self
            .visitors
            .iter()
            .filter_map(|(n, visitor)| match visitor.place {
                Place::Queued(ticket) => Some((ticket, n, visitor.cost)),
                _ => None,
            });
        let head = if K::NEWEST_FIRST {
            queued.max()
        } else {
            queued.min()
        };
        if let Some((_, n, cost)) = head {
            assert!(
                !self.has_room(cost),
                "{n} could pass and sleeps at {}",
                self.now()
            );
        }
    }

    /// Everything is given back, and every request that has not left passes.
    async fn ends(mut self) {
        self.resume();
        for visitor in self.visitors.values_mut() {
            visitor.leaves = None;
        }
        for _ in 0..200 {
            while !self.grants.is_empty() {
                self.give_back(0);
            }
            let waits = |visitor: &Visitor| matches!(visitor.place, Place::Queued(_));
            let others = self.visitors.iter().filter(|(_, visitor)| !waits(visitor));
            let others: Vec<_> = others.map(|(n, _)| *n).collect();
            for n in others {
                self.poll(n, false);
            }
            self.time_passes(100, &[0]).await;
        }
        assert_eq!(self.visitors.len(), 0, "waiters that sleep for ever");
        assert_eq!(self.limit.waiting(), 0);
    }

    fn now(&self) -> u128 {
        self.since_start.elapsed_ms()
    }

    fn has_room(&self, cost: u32) -> bool {
        let now = self.now();
        let cooling = self.cooling.iter().filter(|(until, _)| now < *until);
        let used = self.in_use + cooling.map(|(_, cost)| cost).sum::<u32>();
        !self.is_paused && used + cost <= self.permits
    }

    fn may_be_passed_over(&self, visitor: &Visitor) -> bool {
        visitor
            .idle_since
            .is_some_and(|since| since + IDLE <= self.now())
    }

    fn note_idle(&mut self) {
        let now = self.now();
        let woken = self
            .visitors
            .values_mut()
            .filter(|visitor| visitor.ask.is_woken());
        for visitor in woken {
            visitor.idle_since.get_or_insert(now);
        }
    }

    fn pick(&self, index: Index) -> Option<usize> {
        let count = self.visitors.len();
        let index = (count > 0).then(|| index.index(count))?;
        self.visitors.keys().nth(index).copied()
    }

    fn is_handle(&self, n: usize) -> bool {
        matches!(self.visitors[&n].ask.get(), Ask::Handle(_))
    }

    fn visitor(&mut self, n: usize) -> &mut Visitor {
        self.visitors.get_mut(&n).expect("it is there")
    }
}

fn run<K: Kind>(permits: u32, cooldown: u64, events: &[Event]) {
    paused_runtime().block_on(async {
        let mut run = Run::<K>::new(permits, cooldown);
        for event in events {
            run.goes_on(event.clone()).await;
        }
        run.ends().await;
    });
}

fn cooldown() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..60_u64]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_shared_limit_is_a_plain_queue(
        permits in 3..6_u32, cooldown in cooldown(), events in prop::collection::vec(event(), 1..60),
    ) {
        run::<SharedLimit>(permits, cooldown, &events);
    }

    #[test]
    fn one_key_is_a_plain_queue(
        permits in 3..6_u32, cooldown in cooldown(), events in prop::collection::vec(event(), 1..60),
    ) {
        run::<KeyedLimit>(permits, cooldown, &events);
    }

    #[test]
    fn one_client_of_a_fair_share_is_a_plain_queue(
        permits in 3..6_u32, events in prop::collection::vec(event(), 1..60),
    ) {
        run::<FairLimit>(permits, 0, &events);
    }

    #[test]
    fn permits_are_a_plain_queue(
        permits in 3..6_u32, cooldown in cooldown(), events in prop::collection::vec(event(), 1..60),
    ) {
        run::<PermitLimit>(permits, cooldown, &events);
    }

    #[test]
    fn a_shared_limit_that_serves_the_newest_first_is_a_plain_stack(
        permits in 3..6_u32, cooldown in cooldown(), events in prop::collection::vec(event(), 1..60),
    ) {
        run::<SharedLimit<true>>(permits, cooldown, &events);
    }

    #[test]
    fn permits_that_serve_the_newest_first_are_a_plain_stack(
        permits in 3..6_u32, cooldown in cooldown(), events in prop::collection::vec(event(), 1..60),
    ) {
        run::<PermitLimit<true>>(permits, cooldown, &events);
    }

    /// While nothing disturbs, each waiter is woken at most once.
    #[test]
    fn undisturbed_there_is_one_wake_up_a_grant(
        permits in 3..6_u32, cooldown in cooldown(), events in prop::collection::vec(quiet_event(), 1..60),
    ) {
        run::<SharedLimit>(permits, cooldown, &events);
        run::<KeyedLimit>(permits, cooldown, &events);
        run::<PermitLimit>(permits, cooldown, &events);
        run::<FairLimit>(permits, 0, &events);
    }
}
