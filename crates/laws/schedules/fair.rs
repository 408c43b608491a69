//! Random schedules of clients that share one capacity, against the oracle for queues, which knows no division.
//!
//! Requests come by every way, are polled in any order, are cancelled after any number of polls; permits are given back and charged; the
//! parameters change; there are pauses; the clock moves at any time. At each step:
//!
//! * In no cycle more passes than the capacity, what was given back taken off, and each client uses at most its size.
//! * Nothing is lost: what the limit says of each client, of the cycle and in its counts is what was seen.
//! * When every woken request was polled, no head waits for permits that are in the size of its client.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use paceline::fair::{Division, FairShare, Newcomers, Rule};
use paceline::limiter::{AcquireError, Fair};
use paceline::prelude::*;
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::clock::paused_runtime;
use testkit::queue::{Oracle, Room, Subject, Turn, Visit};

use crate::timed::{ms, now, since, sleep};

pub(super) const CYCLE: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub(super) enum Event {
    Comes(Visit, How),
    Tries(usize, u32),
    IsPolled(Index),
    IsGivenBack(usize, u32),
    /// As many of these permits as the cycle has left.
    IsCharged(usize, u32),
    Retunes(u32),
    Pauses(u64),
    Resumes,
    /// Milliseconds go by, and each woken request is polled, in this order.
    TimePasses(u64, Vec<usize>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Acquire,
    Within(u64),
    Stream,
}

pub(super) fn events() -> impl Strategy<Value = Vec<Event>> {
    let how = prop_oneof![
        3 => Just(How::Acquire),
        1 => (0..300_u64).prop_map(How::Within),
        1 => Just(How::Stream),
    ];
    let client = 0..5_usize;
    let visit = (client.clone(), 1..5_u32, how, prop::option::of(1..6_usize));
    let event = prop_oneof![
        10 => visit.prop_map(|(queue, cost, how, leaves)| Event::Comes(Visit { queue, cost, leaves }, how)),
        3 => (client.clone(), 0..5_u32).prop_map(|(client, cost)| Event::Tries(client, cost)),
        4 => any::<Index>().prop_map(Event::IsPolled),
        5 => (client.clone(), 1..7_u32).prop_map(|(client, cost)| Event::IsGivenBack(client, cost)),
        2 => (client, 0..7_u32).prop_map(|(client, cost)| Event::IsCharged(client, cost)),
        1 => (4..9_u32).prop_map(Event::Retunes),
        1 => (0..60_u64).prop_map(Event::Pauses),
        1 => Just(Event::Resumes),
        6 => (0..60_u64, prop::collection::vec(0..8_usize, 1..4))
            .prop_map(|(time, order)| Event::TimePasses(time, order)),
    ];
    prop::collection::vec(event, 1..120)
}

fn share() -> impl Strategy<Value = FairShare> {
    let newcomers = prop_oneof![
        Just(Newcomers::Join),
        (0..3_u32).prop_map(|at_most| Newcomers::EndCycle { at_most }),
    ];
    let division = prop_oneof![Just(Division::Proportional), Just(Division::MaxMin)];
    let options = (any::<bool>(), any::<bool>(), 1..4_u32, 1..4_u32);
    let parameters = (4..9_u32, 0..10_001_u32, newcomers, division, options);
    parameters.prop_map(|(capacity, reservation, newcomers, division, options)| {
        let (carries, paces, smoothing, idle_cycles) = options;
        FairShare::new(capacity, CYCLE)
            .try_with_reservation(reservation)
            .unwrap()
            .with_newcomers(newcomers)
            .with_division(division)
            .with_carry(carries)
            .with_pacing(paces)
            .try_with_smoothing(smoothing)
            .unwrap()
            .try_forgetting_after(idle_cycles)
            .unwrap()
    })
}

/// The clients of a fair share, and what each has used.
struct Clients {
    limit: Fair<usize>,
    /// What each client has used in the cycle of this number.
    used: BTreeMap<usize, u32>,
    cycle: u64,
}

impl Clients {
    fn note_the_cycle(&mut self) {
        let number = self.limit.cycle().number;
        if number != self.cycle {
            self.cycle = number;
            self.used.clear();
        }
    }
}

impl Subject for Clients {
    type Request = BoxFuture<'static, Result<(), AcquireError>>;
    type Refusal = AcquireError;

    fn poll(
        &mut self,
        request: Pin<&mut Self::Request>,
        _: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), AcquireError>> {
        request.get_mut().as_mut().poll(cx)
    }

    fn room(&mut self, _: usize, cost: u32) -> Room {
        if cost == 0 { Room::Yes } else { Room::Maybe }
    }

    fn room_at_rest(&mut self, client: usize, cost: u32) -> Room {
        if self.limit.share().paces() || self.limit.paused_for().is_some() {
            return Room::Maybe;
        }
        let cycle = self.limit.cycle();
        let shares = self.limit.shares();
        let share = shares.iter().find(|share| share.key == Some(client));
        share.map_or(Room::Maybe, |share| {
            Room::exact(share.used + cost <= share.size && cycle.spent + cost <= cycle.capacity)
        })
    }

    fn pass(&mut self, client: usize, cost: u32) {
        self.note_the_cycle();
        *self.used.entry(client).or_default() += cost;
        let spent: u32 = self.used.values().sum();
        let capacity = self.limit.share().capacity();
        assert!(spent <= capacity, "{spent} of {capacity} pass in a cycle");
    }

    /// A request that came too late was queued if its time ended only later.
    fn refuse(&mut self, turn: &Turn, refusal: AcquireError) {
        assert!(refusal.is_too_late(), "{turn:?}: {refusal}");
    }
}

async fn goes_on(oracle: &mut Oracle<Clients>, event: Event) {
    // Wakes are counted in the tests of the wait queue.
    oracle.disturb();
    let limit = oracle.subject.limit.clone();
    match event {
        Event::Comes(visit, how) => {
            let request = ask(&limit, visit, how);
            oracle.join(visit, request);
        }
        Event::Tries(client, cost) => {
            let decision = limit.try_acquire(&client, cost);
            let waits = decision.retry_in();
            assert!(waits.is_none_or(|wait| !wait.is_zero()));
            oracle.tried(client, cost, decision.is_pass());
        }
        Event::IsPolled(index) => {
            if let Some(n) = oracle.pick(index.index(usize::MAX)) {
                oracle.poll(n);
            }
        }
        Event::IsGivenBack(client, cost) => {
            oracle.subject.note_the_cycle();
            limit.at(client).refund(cost);
            if let Some(used) = oracle.subject.used.get_mut(&client) {
                *used = used.saturating_sub(cost);
            }
        }
        Event::IsCharged(client, cost) => {
            oracle.subject.note_the_cycle();
            let cycle = limit.cycle();
            let cost = cost.min(cycle.capacity.saturating_sub(cycle.spent));
            limit.at(client).charge(cost);
            *oracle.subject.used.entry(client).or_default() += cost;
        }
        Event::Retunes(capacity) => {
            let share = limit.share();
            let other = FairShare::new(capacity, CYCLE)
                .try_with_reservation(share.reservation())
                .unwrap()
                .with_newcomers(share.newcomers())
                .with_division(share.division())
                .with_pacing(share.paces());
            limit.retune(other);
        }
        Event::Pauses(time) => limit.pause_for(ms(time)),
        Event::Resumes => limit.resume(),
        Event::TimePasses(time, order) => oracle.let_time_pass(ms(time), &order).await,
    }
    agrees(oracle);
}

pub(super) fn ask<R: Rule>(
    limit: &Fair<usize, R>,
    visit: Visit,
    how: How,
) -> BoxFuture<'static, Result<(), AcquireError>> {
    let (client, cost) = (visit.queue, visit.cost);
    match how {
        How::Acquire => limit.acquire(client, cost).boxed(),
        How::Within(within) => limit.acquire_within(client, cost, ms(within)).boxed(),
        How::Stream => {
            let mut paced = stream::iter([cost]).pace_by_cost(limit.at(client), |cost| *cost);
            let passed = async move {
                let item = paced.next().await.expect("one item");
                assert_eq!(item.expect("a cost that can pass"), cost);
                Ok(())
            };
            passed.boxed()
        }
    }
}

/// What the limit says is what was seen.
fn agrees(oracle: &mut Oracle<Clients>) {
    oracle.disturb();
    oracle.subject.note_the_cycle();
    let (clients, counts) = (&oracle.subject, oracle.counts);
    let stats = clients.limit.stats();
    assert_eq!(
        (stats.passed, stats.refused, stats.held_back, stats.waiting),
        (
            counts.passed,
            counts.refused,
            counts.held_back,
            oracle.waiting()
        )
    );
    assert_eq!(
        clients.limit.cycle().spent,
        clients.used.values().sum::<u32>()
    );
    for share in clients.limit.shares() {
        let client = share.key.expect("there is room for all");
        let waiting: u32 = oracle.queued(client).iter().sum();
        assert_eq!(share.waiting, u64::from(waiting), "{share:?}");
        let used = clients.used.get(&client).copied();
        assert_eq!(share.used, used.unwrap_or_default(), "{share:?}");
        assert!(share.used <= share.size, "{share:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_client_of_a_fair_share_is_a_plain_queue_and_no_cycle_exceeds_the_capacity(
        share in share(), events in events(),
    ) {
        paused_runtime().block_on(async {
            let mut oracle = Oracle::new(Clients {
                limit: Fair::new(share),
                used: BTreeMap::new(),
                cycle: 0,
            });
            for event in events {
                goes_on(&mut oracle, event).await;
            }
            oracle.subject.limit.resume();
            oracle.end(CYCLE, agrees).await;
        });
    }

    /// Tasks that nobody polls by hand: each waits on its own timer, or on that of the queue.
    #[test]
    fn who_waits_passes_at_the_instant_at_which_a_cycle_begins_or_a_request_comes(
        capacity in 1..8_u32,
        reservation in 0..10_001_u32,
        requests in prop::collection::vec((0..400_u64, 0..4_usize, 1..4_u32), 1..40),
        charges in prop::collection::vec((0..400_u64, 0..4_usize, 1..20_u32), 0..4),
    ) {
        paused_runtime().block_on(async {
            let share = FairShare::new(capacity, CYCLE).try_with_reservation(reservation).unwrap();
            let clients: Fair<usize> = Fair::new(share);
            let start = now();
            for (at, client, cost) in charges {
                let client = clients.at(client);
                tokio::spawn(async move {
                    sleep(at).await;
                    client.charge(cost);
                });
            }
            let tasks = requests.iter().map(|&(at, client, cost)| {
                let clients = clients.clone();
                tokio::spawn(async move {
                    sleep(at).await;
                    clients.acquire(client, cost.min(capacity)).await.unwrap();
                    (since(start), clients.cycle().began_ago)
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                let (at, began_ago) = task.await.unwrap();
                let has_come = requests.iter().any(|request| request.0 == at);
                assert!(began_ago.is_zero() || has_come, "at {at}, {began_ago:?} after the beginning");
            }
            assert_eq!(clients.stats().waiting, 0);
        });
    }
}
