//! Random schedules against the oracle for queues and a count of permits.
//!
//! Requests join, are polled at any time, change their cost and their task, are cancelled after any number of polls or are left
//! idle for so long that others pass before them; grants are given back in any order; the limit is resized, paused and resumed;
//! and the clock moves at any time.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use paceline::limiter::{AcquireError, Gate, Limiter};
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::clock::{Stopwatch, paused_runtime};
use testkit::queue::{Oracle, Room, Subject, Visit};

use crate::kinds::{
    DEADLINES, FairLimit, Grant, KeyedLimit, Kind, NEWEST, PermitLimit, Request, SharedLimit, TURNS,
};
use crate::timed::ms;

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
    /// Whether it was woken or not.
    IsCancelled(Index),
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
        1 => any::<Index>().prop_map(Event::IsCancelled),
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

/// A limit of a kind, and a count of its permits.
struct Counted<K> {
    limit: K,
    permits: u32,
    cooldown: Duration,
    is_paused: bool,
    in_use: u32,
    cooling: Vec<(Duration, u32)>,
    /// What the last request got, if it was not asked for through a handle.
    granted: Option<Grant>,
    grants: Vec<(Grant, u32)>,
    watch: Stopwatch,
}

impl<K: Kind> Counted<K> {
    fn has_room(&self, cost: u32) -> bool {
        let now = self.watch.elapsed();
        let cooling = self.cooling.iter().filter(|(until, _)| now < *until);
        let used = self.in_use + cooling.map(|(_, cost)| cost).sum::<u32>();
        !self.is_paused && used + cost <= self.permits
    }

    fn give_back(&mut self, index: usize) {
        let (grant, cost) = self.grants.swap_remove(index);
        drop(grant);
        self.in_use -= cost;
        let until = self.watch.elapsed() + self.cooldown;
        self.cooling.push((until, cost));
    }
}

impl<K: Kind> Subject for Counted<K> {
    type Request = Ask;
    type Refusal = AcquireError<Infallible>;

    const NEWEST_FIRST: bool = K::NEWEST_FIRST;

    fn poll(
        &mut self,
        request: Pin<&mut Ask>,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Self::Refusal>> {
        match request.get_mut() {
            Ask::Request(request) => {
                let grant = ready!(request.as_mut().poll(cx));
                self.granted = Some(grant);
                Poll::Ready(Ok(()))
            }
            Ask::Handle(gate) => gate.poll_pass(cost, cx),
        }
    }

    fn look(&mut self, request: Pin<&mut Ask>, cx: &mut Context<'_>) -> Poll<()> {
        match request.get_mut() {
            Ask::Request(_) => unreachable!("only handles look"),
            Ask::Handle(gate) => gate.poll_open(cx).map(|Ok(())| ()),
        }
    }

    fn room(&mut self, _: usize, cost: u32) -> Room {
        Room::exact(self.has_room(cost))
    }

    fn pass(&mut self, _: usize, cost: u32) {
        let grant = self.granted.take();
        let grant = grant.unwrap_or_else(|| self.limit.grant_of_handle(cost));
        self.in_use += cost;
        self.grants.push((grant, cost));
    }
}

async fn goes_on<K: Kind>(oracle: &mut Oracle<Counted<K>>, event: Event) {
    let any = |oracle: &Oracle<_>, index: Index| oracle.pick(index.index(usize::MAX));
    let handle = |oracle: &Oracle<Counted<K>>, index| {
        let is_handle = |n: &usize| matches!(oracle.request(*n), Ask::Handle(_));
        any(oracle, index).filter(is_handle)
    };
    match event {
        Event::Joins {
            cost,
            by_handle,
            leaves,
        } => {
            let limit = &oracle.subject.limit;
            let ask = match limit.handle().filter(|_| by_handle) {
                Some(handle) => Ask::Handle(Gate::new(handle)),
                None => Ask::Request(limit.acquire(cost)),
            };
            let visit = Visit {
                queue: 0,
                cost,
                leaves,
            };
            let n = oracle.join(visit, ask);
            oracle.poll(n);
        }
        Event::IsPolled(index) => {
            if let Some(n) = any(oracle, index) {
                oracle.poll(n);
            }
        }
        Event::IsCancelled(index) => {
            if let Some(n) = any(oracle, index) {
                oracle.leave(n);
            }
        }
        Event::Moves(index) => {
            if let Some(n) = any(oracle, index) {
                oracle.change_task(n);
                oracle.poll(n);
            }
        }
        Event::ChangesCost(index, cost) => {
            if let Some(n) = handle(oracle, index) {
                oracle.change_cost(n, cost);
                oracle.poll(n);
            }
        }
        Event::Looks(index) => {
            if let Some(n) = handle(oracle, index) {
                oracle.look(n);
            }
        }
        Event::IsGivenBack(index) if !oracle.subject.grants.is_empty() => {
            let index = index.index(oracle.subject.grants.len());
            oracle.subject.give_back(index);
        }
        Event::Tries(cost) => {
            let grant = oracle.subject.limit.try_acquire(cost);
            let has_passed = grant.is_some();
            oracle.subject.granted = grant;
            oracle.tried(0, cost, has_passed);
        }
        Event::IsResized(permits) if !oracle.subject.is_paused => {
            oracle.disturb();
            oracle.subject.permits = permits;
            oracle.subject.limit.resize(permits);
        }
        Event::IsGivenBack(_) | Event::IsResized(_) => {}
        Event::IsPaused => {
            oracle.disturb();
            oracle.subject.is_paused = true;
            oracle.subject.limit.pause();
        }
        Event::IsResumed => resume(oracle),
        Event::TimePasses(time, order) => oracle.let_time_pass(ms(time), &order).await,
        Event::TimeIsLost(time) => oracle.lose_time(ms(time)).await,
    }
    assert_eq!(oracle.subject.limit.waiting(), oracle.waiting());
}

fn resume<K: Kind>(oracle: &mut Oracle<Counted<K>>) {
    oracle.disturb();
    oracle.subject.is_paused = false;
    oracle.subject.limit.resume(oracle.subject.permits);
}

fn oracle<K: Kind>(permits: u32, cooldown: u64) -> Oracle<Counted<K>> {
    Oracle::new(Counted {
        limit: K::new(permits, ms(cooldown)),
        permits,
        cooldown: ms(cooldown),
        is_paused: false,
        in_use: 0,
        cooling: Vec::new(),
        granted: None,
        grants: Vec::new(),
        watch: Stopwatch::start(),
    })
}

fn run<K: Kind>((permits, cooldown, events): &Schedule) {
    paused_runtime().block_on(async {
        let mut oracle = oracle::<K>(*permits, *cooldown);
        for event in events {
            goes_on(&mut oracle, event.clone()).await;
        }
        resume(&mut oracle);
        let give_back_all = |oracle: &mut Oracle<Counted<K>>| {
            while !oracle.subject.grants.is_empty() {
                oracle.subject.give_back(0);
            }
        };
        oracle.end(ms(100), give_back_all).await;
        assert_eq!(oracle.subject.limit.waiting(), 0);
    });
}

/// The third is woken when the first two are idle for too long, and finds that they take the room.
#[test]
fn a_request_behind_idle_ones_is_woken_once_more() {
    let joins = || Event::Joins {
        cost: 2,
        by_handle: false,
        leaves: None,
    };
    paused_runtime().block_on(async {
        let mut oracle = oracle::<SharedLimit>(5, 0);
        for event in [
            Event::IsPaused,
            joins(),
            joins(),
            Event::IsResumed,
            Event::TimeIsLost(5),
            joins(),
            Event::TimePasses(5, vec![5, 6]),
        ] {
            goes_on(&mut oracle, event).await;
        }
        assert_eq!(oracle.waiting(), 1);
        oracle.subject.give_back(0);
        goes_on(&mut oracle, Event::TimePasses(0, vec![0])).await;
        assert_eq!(oracle.waiting(), 0);
    });
}

fn cooldown() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..60_u64]
}

/// The number of permits, their cool-down, and what happens.
type Schedule = (u32, u64, Vec<Event>);

fn schedule(event: impl Strategy<Value = Event>) -> impl Strategy<Value = Schedule> {
    (3..6_u32, cooldown(), prop::collection::vec(event, 1..60))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_shared_limit_is_a_plain_queue(schedule in schedule(event())) {
        run::<SharedLimit>(&schedule);
    }

    #[test]
    fn one_key_alone_among_keys_that_take_turns_is_a_plain_queue(schedule in schedule(event())) {
        run::<SharedLimit<TURNS>>(&schedule);
    }

    #[test]
    fn a_shared_limit_by_deadline_without_deadlines_is_a_plain_queue(schedule in schedule(event())) {
        run::<SharedLimit<DEADLINES>>(&schedule);
    }

    #[test]
    fn one_key_is_a_plain_queue(schedule in schedule(event())) {
        run::<KeyedLimit>(&schedule);
    }

    #[test]
    fn one_client_of_a_fair_share_is_a_plain_queue((permits, _, events) in schedule(event())) {
        run::<FairLimit>(&(permits, 0, events));
    }

    #[test]
    fn permits_are_a_plain_queue(schedule in schedule(event())) {
        run::<PermitLimit>(&schedule);
    }

    #[test]
    fn one_key_alone_among_keys_that_divide_permits_is_a_plain_queue(schedule in schedule(event())) {
        run::<PermitLimit<TURNS>>(&schedule);
    }

    #[test]
    fn a_shared_limit_that_serves_the_newest_first_is_a_plain_stack(schedule in schedule(event())) {
        run::<SharedLimit<NEWEST>>(&schedule);
    }

    #[test]
    fn permits_that_serve_the_newest_first_are_a_plain_stack(schedule in schedule(event())) {
        run::<PermitLimit<NEWEST>>(&schedule);
    }

    /// While nothing disturbs, each waiter is woken at most once.
    #[test]
    fn undisturbed_there_is_one_wake_up_a_grant(schedule in schedule(quiet_event())) {
        run::<SharedLimit>(&schedule);
        run::<SharedLimit<TURNS>>(&schedule);
        run::<SharedLimit<DEADLINES>>(&schedule);
        run::<KeyedLimit>(&schedule);
        run::<PermitLimit>(&schedule);
        run::<PermitLimit<TURNS>>(&schedule);
        let (permits, _, events) = schedule;
        run::<FairLimit>(&(permits, 0, events));
    }
}
