//! The same schedules for clients with a guaranteed share. At each step:
//!
//! * No window that ends now holds more than the rate gives in it, what all buckets and the pool hold, and what was given back.
//! * What the limit counts is what was seen.
//! * When every woken request was polled, no head waits whose cost is in the bucket of its client.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use paceline::fair::GuaranteedShare;
use paceline::limiter::{AcquireError, Fair};
use paceline::prelude::*;
use proptest::prelude::*;
use testkit::clock::paused_runtime;
use testkit::queue::{Oracle, Room, Subject, Turn};

use super::fair::{CYCLE, Event, ask, events};
use crate::timed::{ms, now, since};

/// The largest capacity of the schedules.
const MOST: u32 = 8;

struct Clients {
    limit: Fair<usize, GuaranteedShare>,
    start: tokio::time::Instant,
    /// When a request passed, and its cost. What is given back is below zero.
    passed: Vec<(u64, i64)>,
    /// How many clients were remembered when that was looked at last.
    remembered: usize,
}

impl Clients {
    fn note(&mut self, permits: i64) {
        self.passed.push((since(self.start), permits));
        let now = since(self.start);
        let share = GuaranteedShare::new(MOST, CYCLE);
        // Up to five clients, of which each holds at least 1.
        let buckets = (MOST * self.limit.share().depth()).div_ceil(10_000).max(5);
        let held = i64::from(buckets) + i64::try_from(share.pool()).unwrap() + 1;
        let (mut sum, mut back) = (0, 0);
        for (at, permits) in self.passed.iter().rev() {
            (sum, back) = (sum + (*permits).max(0), back - (*permits).min(0));
            let given = i64::try_from((now - at) * u64::from(MOST)).unwrap() / 100;
            assert!(sum <= given + held + back, "{sum} since {at} at {now}");
        }
    }
}

impl Subject for Clients {
    type Request = BoxFuture<'static, Result<(), AcquireError>>;
    type Refusal = AcquireError;

    const ASKS_AGAIN: bool = true;

    fn poll(
        &mut self,
        request: Pin<&mut Self::Request>,
        _: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), AcquireError>> {
        let answer = request.get_mut().as_mut().poll(cx);
        self.remembered = self.limit.len();
        answer
    }

    fn room(&mut self, _: usize, cost: u32) -> Room {
        if cost == 0 { Room::Yes } else { Room::Maybe }
    }

    fn room_at_rest(&mut self, client: usize, cost: u32) -> Room {
        // A look that forgets a client wakes those who wait.
        let remembered = std::mem::replace(&mut self.remembered, self.limit.len());
        if remembered > self.remembered || self.limit.paused_for().is_some() {
            return Room::Maybe;
        }
        let (share, status) = (self.limit.share(), self.limit.status(&client).unwrap());
        let part = f64::from(share.capacity()) / f64::from(u32::try_from(self.remembered).unwrap());
        let depth = (part * f64::from(share.depth()) / 10_000.0).max(1.0);
        let level = depth - part * status.reset_in.as_secs_f64() / CYCLE.as_secs_f64();
        if level > f64::from(cost) {
            return Room::Yes;
        }
        Room::Maybe
    }

    fn pass(&mut self, _: usize, cost: u32) {
        self.note(cost.into());
    }

    fn refuse(&mut self, turn: &Turn, refusal: AcquireError) {
        assert!(refusal.is_too_late(), "{turn:?}: {refusal}");
    }
}

async fn goes_on(oracle: &mut Oracle<Clients>, event: Event) {
    let limit = oracle.subject.limit.clone();
    match event {
        Event::Comes(visit, how) => {
            oracle.join(visit, ask(&limit, visit, how));
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
            limit.at(client).refund(cost);
            oracle.subject.note(-i64::from(cost));
        }
        Event::IsCharged(client, cost) => limit.at(client).charge(cost),
        Event::Retunes(capacity) => {
            let depth = limit.share().depth();
            let share = GuaranteedShare::new(capacity, CYCLE);
            limit.retune(share.try_with_depth(depth).unwrap());
        }
        Event::Pauses(time) => limit.pause_for(ms(time)),
        Event::Resumes => limit.resume(),
        Event::TimePasses(time, order) => oracle.let_time_pass(ms(time), &order).await,
    }
    agrees(oracle);
}

fn agrees(oracle: &mut Oracle<Clients>) {
    oracle.subject.remembered = oracle.subject.limit.len();
    let (limit, counts) = (&oracle.subject.limit, oracle.counts);
    let stats = limit.stats();
    let waiting = oracle.waiting();
    let seen = (counts.passed, counts.refused, counts.held_back, waiting);
    let told = (stats.passed, stats.refused, stats.held_back, stats.waiting);
    assert_eq!(told, seen);
    for share in limit.shares() {
        let client = share.key.expect("there is room for all");
        let waiting: u32 = oracle.queued(client).iter().sum();
        assert_eq!(share.waiting, u64::from(waiting), "{share:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_client_with_a_guaranteed_share_is_a_plain_queue_and_all_keep_the_bound(
        capacity in 4..=MOST, depth in 5_000..20_001_u32, idle in 1..4_u32, events in events(),
    ) {
        paused_runtime().block_on(async {
            let share = GuaranteedShare::new(capacity, CYCLE).try_with_depth(depth).unwrap();
            let mut oracle = Oracle::new(Clients {
                limit: Fair::new(share.try_forgetting_after(idle).unwrap()),
                start: now(),
                passed: Vec::new(),
                remembered: 0,
            });
            for event in events {
                goes_on(&mut oracle, event).await;
            }
            oracle.subject.limit.resume();
            oracle.end(CYCLE, agrees).await;
        });
    }
}
