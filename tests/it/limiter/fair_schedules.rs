//! Random schedules of clients that share one capacity, and a judge that knows no division.
//!
//! Requests come by every way, are polled in any order, are cancelled after any number of polls; permits are given back; the
//! parameters change; there are pauses; the clock moves at any time. At each step:
//!
//! * In no cycle more passes than the capacity, what was given back taken off, and each client uses at most its size.
//! * Nothing is lost: what the limit says of each client, of the cycle and in its counts is what the judge has seen.
//! * A waiter passes only when all that came before it for the same client have passed or left.
//! * When every woken request was polled, no head waits for permits that are in the size of its client.
//!
//! In the end every request passes.

use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use paceline::fair::{Division, FairShare, Newcomers};
use paceline::limiter::{AcquireError, Fair};
use paceline::prelude::*;
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since, sleep};

const CYCLE: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
enum Event {
    Comes(Visit),
    Tries(usize, u32),
    IsPolled(Index),
    IsGivenBack(usize, u32),
    Retunes(u32),
    Pauses(u64),
    Resumes,
    /// Milliseconds go by, and each woken request is polled, in this order.
    TimePasses(u64, Vec<usize>),
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    client: usize,
    cost: u32,
    how: How,
    /// Cancelled after this number of polls.
    leaves: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Acquire,
    Within(u64),
    Stream,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let how = prop_oneof![
        3 => Just(How::Acquire),
        1 => (0..300_u64).prop_map(How::Within),
        1 => Just(How::Stream),
    ];
    let client = 0..5_usize;
    let visit = (client.clone(), 1..5_u32, how, prop::option::of(1..6_usize));
    let event = prop_oneof![
        10 => visit.prop_map(|(client, cost, how, leaves)| Event::Comes(Visit { client, cost, how, leaves })),
        3 => (client.clone(), 0..5_u32).prop_map(|(client, cost)| Event::Tries(client, cost)),
        4 => any::<Index>().prop_map(Event::IsPolled),
        5 => (client, 1..7_u32).prop_map(|(client, cost)| Event::IsGivenBack(client, cost)),
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
            .with_reservation(reservation)
            .with_newcomers(newcomers)
            .with_division(division)
            .with_carry(carries)
            .with_pacing(paces)
            .with_smoothing(smoothing)
            .forgetting_after(idle_cycles)
    })
}

struct Visitor {
    n: usize,
    visit: Visit,
    future: Driven<BoxFuture<'static, Result<(), AcquireError>>>,
    polls: usize,
}

struct Run {
    clients: Fair<usize>,
    visitors: Vec<Visitor>,
    come: usize,
    /// The waiters of each client in order: number and cost.
    waits: BTreeMap<usize, Vec<(usize, u32)>>,
    /// What each client has used in the cycle of this number.
    used: BTreeMap<usize, u32>,
    cycle: u64,
    passed: u64,
    refused: u64,
    held_back: u64,
}

impl Run {
    fn new(share: FairShare) -> Self {
        Self {
            clients: Fair::new(share),
            visitors: Vec::new(),
            come: 0,
            waits: BTreeMap::new(),
            used: BTreeMap::new(),
            cycle: 0,
            passed: 0,
            refused: 0,
            held_back: 0,
        }
    }

    async fn goes_on(&mut self, event: Event) {
        match event {
            Event::Comes(visit) => self.comes(visit),
            Event::Tries(client, cost) => self.tries(client, cost),
            Event::IsPolled(index) => {
                if !self.visitors.is_empty() {
                    self.poll(index.index(self.visitors.len()));
                }
            }
            Event::IsGivenBack(client, cost) => {
                self.notes_the_cycle();
                self.clients.refund(&client, cost);
                if let Some(used) = self.used.get_mut(&client) {
                    *used = used.saturating_sub(cost);
                }
            }
            Event::Retunes(capacity) => {
                let share = self.clients.share();
                let other = FairShare::new(capacity, CYCLE)
                    .with_reservation(share.reservation())
                    .with_newcomers(share.newcomers())
                    .with_division(share.division())
                    .with_pacing(share.paces());
                self.clients.retune(other);
            }
            Event::Pauses(time) => self.clients.pause_for(ms(time)),
            Event::Resumes => self.clients.resume(),
            Event::TimePasses(time, order) => self.time_passes(time, &order).await,
        }
        self.agrees();
    }

    fn comes(&mut self, visit: Visit) {
        let clients = &self.clients;
        let Visit {
            client, cost, how, ..
        } = visit;
        let future = match how {
            How::Acquire => {
                let acquire = clients.acquire(client, cost);
                acquire.boxed()
            }
            How::Within(within) => clients.acquire_within(client, cost, ms(within)).boxed(),
            How::Stream => {
                let mut paced = stream::iter([cost]).pace_by_cost(clients.at(client), |cost| *cost);
                let passed = async move {
                    let item = paced.next().await.expect("one item");
                    assert_eq!(item.expect("a cost that can pass"), cost);
                    Ok(())
                };
                passed.boxed()
            }
        };
        self.come += 1;
        self.visitors.push(Visitor {
            n: self.come,
            visit,
            future: Driven::new(future),
            polls: 0,
        });
    }

    fn tries(&mut self, client: usize, cost: u32) {
        let waits = self
            .waits
            .get(&client)
            .is_some_and(|waits| !waits.is_empty());
        let decision = self.clients.try_acquire(&client, cost);
        if cost == 0 {
            assert!(decision.is_pass());
        } else if decision.is_pass() {
            assert!(!waits, "it has overtaken a waiter");
            self.passes(client, cost);
        } else {
            assert!(decision.retry_in().is_none_or(|wait| !wait.is_zero()));
            self.refused += 1;
        }
    }

    fn poll(&mut self, n: usize) {
        let visitor = &mut self.visitors[n];
        let Visit {
            client,
            cost,
            leaves,
            ..
        } = visitor.visit;
        let number = visitor.n;
        let answer = visitor.future.poll();
        visitor.polls += 1;
        let has_left = leaves == Some(visitor.polls);
        let waits = self.waits.entry(client).or_default();
        let place = waits.iter().position(|(waiter, _)| *waiter == number);
        match &answer {
            Poll::Pending if place.is_none() => {
                waits.push((number, cost));
                self.held_back += 1;
            }
            Poll::Pending => {}
            Poll::Ready(passed) => {
                let is_first = place.map_or(waits.is_empty(), |place| place == 0);
                if let Some(place) = place {
                    waits.remove(place);
                }
                if passed.is_ok() {
                    assert!(is_first, "it has overtaken a waiter");
                    self.passes(client, cost);
                } else {
                    // One that came too late was queued if its time ended only later.
                    self.refused += 1;
                }
            }
        }
        if answer.is_ready() || has_left {
            self.visitors.remove(n);
            let waits = self.waits.entry(client).or_default();
            waits.retain(|(waiter, _)| *waiter != number);
        }
    }

    fn passes(&mut self, client: usize, cost: u32) {
        self.notes_the_cycle();
        self.passed += 1;
        *self.used.entry(client).or_default() += cost;
        let spent: u32 = self.used.values().sum();
        let capacity = self.clients.share().capacity();
        assert!(spent <= capacity, "{spent} of {capacity} pass in a cycle");
    }

    fn notes_the_cycle(&mut self) {
        let number = self.clients.cycle().number;
        if number != self.cycle {
            self.cycle = number;
            self.used.clear();
        }
    }

    async fn time_passes(&mut self, time: u64, order: &[usize]) {
        jump(ms(time)).await;
        tokio::task::yield_now().await;
        for index in order.iter().cycle() {
            let woken = (0..self.visitors.len()).filter(|&n| self.visitors[n].future.is_woken());
            let woken: Vec<_> = woken.collect();
            if woken.is_empty() {
                break;
            }
            self.poll(woken[index % woken.len()]);
        }
        self.forgets_nobody();
    }

    fn forgets_nobody(&mut self) {
        if self.clients.share().paces() || self.clients.paused_for().is_some() {
            return;
        }
        let cycle = self.clients.cycle();
        for share in self.clients.shares() {
            let waits = share.key.and_then(|client| self.waits.get(&client));
            let Some((n, cost)) = waits.and_then(|waits| waits.first()) else {
                continue;
            };
            let has_to_wait = share.used + cost > share.size || cycle.spent + cost > cycle.capacity;
            assert!(has_to_wait, "the {n}th could pass and sleeps: {share:?}");
        }
    }

    /// What the limit says is what was seen.
    fn agrees(&mut self) {
        self.notes_the_cycle();
        let waiting: usize = self.waits.values().map(Vec::len).sum();
        let stats = self.clients.stats();
        assert_eq!(
            (stats.passed, stats.refused, stats.held_back, stats.waiting),
            (self.passed, self.refused, self.held_back, waiting)
        );
        assert_eq!(self.clients.cycle().spent, self.used.values().sum::<u32>());
        for share in self.clients.shares() {
            let client = share.key.expect("there is room for all");
            let waits = self.waits.get(&client).into_iter().flatten();
            let waiting: u32 = waits.map(|(_, cost)| *cost).sum();
            assert_eq!(share.waiting, u64::from(waiting), "{share:?}");
            let used = self.used.get(&client).copied();
            assert_eq!(share.used, used.unwrap_or_default(), "{share:?}");
            assert!(share.used <= share.size, "{share:?}");
        }
    }

    async fn ends(&mut self) {
        self.clients.resume();
        for visitor in &mut self.visitors {
            visitor.visit.leaves = None;
        }
        while let Some(unpolled) = self.visitors.iter().position(|one| one.polls == 0) {
            self.poll(unpolled);
        }
        for _ in 0..2_000 {
            if self.visitors.is_empty() {
                return;
            }
            self.time_passes(100, &[0]).await;
            self.agrees();
        }
        panic!("{} are stuck", self.visitors.len());
    }
}

fn on_a_paused_clock<F: Future>(run: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(run)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_client_of_a_fair_share_is_a_plain_queue_and_no_cycle_exceeds_the_capacity(
        share in share(), events in events(),
    ) {
        on_a_paused_clock(async {
            let mut run = Run::new(share);
            for event in events {
                run.goes_on(event).await;
            }
            run.ends().await;
        });
    }

    /// Tasks that nobody polls by hand: each waits on its own timer, or on that of the queue.
    #[test]
    fn who_waits_passes_at_the_instant_at_which_a_cycle_begins_or_a_request_comes(
        capacity in 1..8_u32,
        reservation in 0..10_001_u32,
        requests in prop::collection::vec((0..400_u64, 0..4_usize, 1..4_u32), 1..40),
    ) {
        on_a_paused_clock(async {
            let share = FairShare::new(capacity, CYCLE).with_reservation(reservation);
            let clients: Fair<usize> = Fair::new(share);
            let start = now();
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
