//! Every await point: who waits is dropped after any number of polls, permits are held and given back in any order, the limit
//! and the clock change at any time. It is a count and a plain queue, in which nobody who left ever stood.

use std::collections::VecDeque;

use futures::FutureExt;
use futures::future::BoxFuture;
use paceline::concurrency::{Permit, Permits};
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::clock::{Stopwatch, jump};
use testkit::wakes::Driven;

use crate::timed::ms;

#[derive(Clone, Debug)]
enum Event {
    Comes(Visit),
    IsPolled(Index),
    IsGivenBack(Index),
    /// Whoever is woken is polled, in this order.
    TimePasses(u64, Vec<usize>),
    IsResized(u32),
    Tries(u32),
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    cost: u32,
    /// With `acquire`, and so for one.
    is_single: bool,
    /// Dropped right after so many polls.
    leaves: Option<usize>,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let visit = (1..4_u32, any::<bool>(), prop::option::of(0..4_usize));
    let visit = visit.prop_map(|(cost, is_single, leaves)| Visit {
        cost: if is_single { 1 } else { cost },
        is_single,
        leaves,
    });
    let event = prop_oneof![
        5 => visit.prop_map(Event::Comes),
        4 => any::<Index>().prop_map(Event::IsPolled),
        3 => any::<Index>().prop_map(Event::IsGivenBack),
        3 => (0..40_u64, prop::collection::vec(0..8_usize, 1..4))
            .prop_map(|(time, order)| Event::TimePasses(time, order)),
        // No smaller than the dearest: who asks for more than there is, is refused.
        1 => (3..6_u32).prop_map(Event::IsResized),
        1 => (1..4_u32).prop_map(Event::Tries),
    ];
    prop::collection::vec(event, 1..60)
}

struct Model {
    limit: u32,
    cooldown: u128,
    in_use: u32,
    /// Given back, and until when they cool down.
    cooling: Vec<(u32, u128)>,
    waits: VecDeque<(usize, u32)>,
}

impl Model {
    fn has_room(&self, cost: u32, now: u128) -> bool {
        let cooling = self.cooling.iter().filter(|(_, until)| now < *until);
        self.in_use + cooling.map(|(cost, _)| cost).sum::<u32>() + cost <= self.limit
    }

    fn ask(&mut self, n: usize, cost: u32, now: u128) -> bool {
        let place = self.waits.iter().position(|(other, _)| *other == n);
        let is_first = place.map_or(self.waits.is_empty(), |place| place == 0);
        if is_first && self.has_room(cost, now) {
            self.leaves(n);
            self.in_use += cost;
            return true;
        }
        if place.is_none() {
            self.waits.push_back((n, cost));
        }
        false
    }

    fn leaves(&mut self, n: usize) {
        self.waits.retain(|(other, _)| *other != n);
    }

    fn is_given_back(&mut self, cost: u32, now: u128) {
        self.in_use -= cost;
        self.cooling.push((cost, now + self.cooldown));
    }
}

struct Visitor {
    n: usize,
    visit: Visit,
    future: Driven<BoxFuture<'static, Permit>>,
    polls: usize,
}

struct Run {
    permits: Permits,
    model: Model,
    visitors: Vec<Visitor>,
    held: Vec<(Permit, u32)>,
    come: usize,
    since_start: Stopwatch,
}

impl Run {
    async fn goes_on(&mut self, event: Event) {
        let now = self.since_start.elapsed_ms();
        match event {
            Event::Comes(visit) if visit.leaves == Some(0) => drop(self.future(visit)),
            Event::Comes(visit) => {
                self.come += 1;
                self.visitors.push(Visitor {
                    n: self.come,
                    visit,
                    future: Driven::new(self.future(visit)),
                    polls: 0,
                });
            }
            Event::IsPolled(index) if !self.visitors.is_empty() => {
                self.poll(index.index(self.visitors.len()));
            }
            Event::IsGivenBack(index) if !self.held.is_empty() => {
                self.give_back(index.index(self.held.len()));
            }
            Event::TimePasses(time, order) => self.time_passes(time, &order).await,
            Event::IsResized(limit) => {
                self.permits.resize(limit);
                self.model.limit = limit;
            }
            Event::Tries(cost) => {
                let passes = self.model.waits.is_empty() && self.model.has_room(cost, now);
                let permit = self.permits.try_acquire_many(cost);
                assert_eq!(permit.is_some(), passes, "{cost} at {now}");
                self.model.in_use += if passes { cost } else { 0 };
                self.held.extend(permit.map(|permit| (permit, cost)));
            }
            Event::IsPolled(_) | Event::IsGivenBack(_) => {}
        }
        assert_eq!(self.permits.in_use(), self.model.in_use);
    }

    fn future(&self, visit: Visit) -> BoxFuture<'static, Permit> {
        if visit.is_single {
            return self.permits.acquire().boxed();
        }
        let permit = self.permits.acquire_many(visit.cost);
        permit
            .map(|permit| permit.expect("no more than there are"))
            .boxed()
    }

    fn poll(&mut self, index: usize) {
        let now = self.since_start.elapsed_ms();
        let visitor = &mut self.visitors[index];
        let (n, visit) = (visitor.n, visitor.visit);
        let passes = self.model.ask(n, visit.cost, now);
        let answer = visitor.future.poll();
        visitor.polls += 1;
        assert_eq!(answer.is_ready(), passes, "{visit:?} at {now}");
        if passes || visit.leaves == Some(visitor.polls) {
            self.visitors.remove(index);
            self.model.leaves(n);
        }
        if let std::task::Poll::Ready(permit) = answer {
            self.held.push((permit, visit.cost));
        }
    }

    fn give_back(&mut self, index: usize) {
        let (permit, cost) = self.held.swap_remove(index);
        drop(permit);
        self.model
            .is_given_back(cost, self.since_start.elapsed_ms());
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
        let now = self.since_start.elapsed_ms();
        if let Some((n, cost)) = self.model.waits.front() {
            assert!(
                !self.model.has_room(*cost, now),
                "the {n}th could pass and sleeps at {now}"
            );
        }
    }

    /// Everything is given back, and whoever still waits gets through.
    async fn ends(mut self) {
        for visitor in &mut self.visitors {
            visitor.visit.leaves = None;
        }
        while let Some(unpolled) = self.visitors.iter().position(|one| one.polls == 0) {
            self.poll(unpolled);
        }
        for _ in 0..200 {
            while !self.held.is_empty() {
                self.give_back(0);
            }
            self.time_passes(100, &[0]).await;
        }
        assert_eq!(self.visitors.len(), 0, "somebody is stuck");
        assert_eq!(self.permits.in_use(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn permits_are_a_count_and_a_plain_queue(
        limit in 3..6_u32,
        cooldown in prop_oneof![Just(0), 1..60_u64],
        events in events(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut run = Run {
                permits: Permits::new(limit).with_cooldown(ms(cooldown)),
                model: Model {
                    limit,
                    cooldown: cooldown.into(),
                    in_use: 0,
                    cooling: Vec::new(),
                    waits: VecDeque::new(),
                },
                visitors: Vec::new(),
                held: Vec::new(),
                come: 0,
                since_start: Stopwatch::start(),
            };
            for event in events {
                run.goes_on(event).await;
            }
            run.ends().await;
        });
    }
}
