//! Random schedules of the real policies: futures are dropped after any number of polls, tasks run in any order, the clock moves
//! at any time. Requests are served exactly as the oracle for queues says, with the bare policy behind each queue.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use paceline::limiter::{AcquireError, Keyed, Limiter, Shared, Stats};
use paceline::policy::{Decision, Interval, Policy, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Rate, Tick};
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::clock::{Stopwatch, paused_runtime};
use testkit::queue::{Oracle, Room, Subject, Turn, Visit};

use crate::timed::ms;

const KEYS: usize = 3;

/// What happens, one after the other.
#[derive(Clone, Debug)]
enum Event {
    /// Of a key. Cancelled after this number of polls; after none, it is never queued.
    Comes(usize, How, Visit),
    IsPolled(Index),
    /// Milliseconds go by, and each woken request is polled, in this order.
    TimePasses(u64, Vec<usize>),
}

/// The ways to ask one limit.
#[derive(Clone, Copy, Debug)]
enum How {
    Acquire,
    Within(u64),
    /// The next item of a stream that pays what it costs.
    Stream,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let how = prop_oneof![
        2 => Just(How::Acquire),
        1 => (0..80_u64).prop_map(How::Within),
        1 => Just(How::Stream),
    ];
    let visit = (1..4_u32, prop::option::of(0..4_usize));
    let visit = visit.prop_map(|(cost, leaves)| Visit {
        queue: 0,
        cost,
        leaves,
    });
    let comes = (0..KEYS, how, visit);
    let event = prop_oneof![
        4 => comes.prop_map(|(key, how, visit)| Event::Comes(key, how, visit)),
        4 => any::<Index>().prop_map(Event::IsPolled),
        3 => (0..40_u64, prop::collection::vec(0..8_usize, 1..4))
            .prop_map(|(time, order)| Event::TimePasses(time, order)),
    ];
    prop::collection::vec(event, 1..60)
}

type Asked = BoxFuture<'static, Result<(), AcquireError>>;

/// A limit that lets three keys wait; a shared one takes them all for one.
trait Limit: Clone + Send + 'static {
    fn queue_of(key: usize) -> usize;
    fn ask(&self, key: usize, cost: u32, how: How) -> Asked;
    fn stats(&self) -> Stats;
    fn peek(&self, key: usize, cost: u32) -> Decision;
}

impl<P> Limit for Shared<P>
where
    P: Policy<State: Send> + Send + 'static,
{
    fn queue_of(_: usize) -> usize {
        0
    }

    fn ask(&self, _: usize, cost: u32, how: How) -> Asked {
        match how {
            How::Acquire => self.acquire(cost).boxed(),
            How::Within(within) => self.acquire_within(cost, ms(within)).boxed(),
            How::Stream => next_item(cost, self.clone()),
        }
    }

    fn stats(&self) -> Stats {
        self.stats()
    }

    fn peek(&self, _: usize, cost: u32) -> Decision {
        self.peek(cost)
    }
}

impl<P> Limit for Keyed<usize, P>
where
    P: Policy<State: Send> + Send + Sync + 'static,
{
    fn queue_of(key: usize) -> usize {
        key
    }

    fn ask(&self, key: usize, cost: u32, how: How) -> Asked {
        match how {
            How::Acquire => self.acquire(key, cost).boxed(),
            How::Within(within) => self.acquire_within(key, cost, ms(within)).boxed(),
            How::Stream => next_item(cost, self.at(key)),
        }
    }

    fn stats(&self) -> Stats {
        self.stats()
    }

    fn peek(&self, key: usize, cost: u32) -> Decision {
        self.peek(&key, cost)
    }
}

/// A stream is dropped with its `next`, and leaves the queue too.
fn next_item<L>(cost: u32, limit: L) -> Asked
where
    L: Limiter<Error = Infallible> + Send + 'static,
{
    let mut paced = Box::pin(stream::iter([cost]).pace_by_cost(limit, |cost| *cost));
    async move {
        let item = paced.next().await.expect("one item");
        assert_eq!(item.expect("a cost that can pass"), cost);
        Ok(())
    }
    .boxed()
}

/// A limit, and the bare policy with a state for each queue.
struct Bare<L, P: Policy> {
    limit: L,
    policy: P,
    states: Vec<P::State>,
    /// The time within which a request has to pass.
    within: BTreeMap<usize, Duration>,
    watch: Stopwatch,
}

impl<L: Limit, P: Policy> Bare<L, P> {
    fn now(&self) -> Tick {
        Tick::ZERO.after(self.watch.elapsed())
    }

    /// How long one more request would wait.
    fn wait_behind(&self, queue: usize, cost: u32, others: &[u32]) -> Duration {
        let now = self.now();
        let (mut state, mut at) = (self.states[queue].clone(), now);
        for &cost in others.iter().chain([&cost]) {
            if let Decision::Wait { retry_in } = self.policy.peek(&state, at, cost) {
                at = at.after(retry_in);
            }
            assert!(self.policy.decide(&mut state, at, cost).is_pass());
        }
        // Behind others it is never nothing.
        let least = Duration::from_nanos(u64::from(!others.is_empty()));
        at.since(now).max(least)
    }

    /// Whether it is too late for a request that does not pass now.
    fn is_too_late(&self, turn: &Turn) -> bool {
        let within = self.within.get(&turn.n);
        within.is_some_and(|within| match turn.joined {
            Some(joined) => joined + *within <= self.watch.elapsed(),
            None => self.wait_behind(turn.queue, turn.cost, &turn.others) > *within,
        })
    }
}

impl<L: Limit, P: Policy> Subject for Bare<L, P> {
    type Request = Asked;
    type Refusal = AcquireError;

    fn poll(
        &mut self,
        request: Pin<&mut Asked>,
        _: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), AcquireError>> {
        request.get_mut().as_mut().poll(cx)
    }

    fn room(&mut self, queue: usize, cost: u32) -> Room {
        let decision = self.policy.peek(&self.states[queue], self.now(), cost);
        Room::exact(decision.is_pass())
    }

    fn pass(&mut self, queue: usize, cost: u32) {
        let now = self.now();
        let decision = self.policy.decide(&mut self.states[queue], now, cost);
        assert!(decision.is_pass(), "{cost} at {now:?}");
    }

    fn wait(&mut self, turn: &Turn) {
        assert!(!self.is_too_late(turn), "{turn:?}: waits");
    }

    fn refuse(&mut self, turn: &Turn, refusal: AcquireError) {
        assert!(self.is_too_late(turn), "{turn:?}: {refusal}");
        let within = self.within[&turn.n];
        let message = format!("could not pass within {within:?}");
        let wait = self.wait_behind(turn.queue, turn.cost, &turn.others);
        assert_eq!(
            (refusal.to_string(), refusal.retry_in()),
            (message, Some(wait))
        );
    }
}

async fn goes_on<L: Limit, P: Policy>(oracle: &mut Oracle<Bare<L, P>>, event: Event) {
    match event {
        Event::Comes(key, how, visit) => {
            let queue = L::queue_of(key);
            let request = oracle.subject.limit.ask(key, visit.cost, how);
            let n = oracle.join(Visit { queue, ..visit }, request);
            if let How::Within(within) = how {
                oracle.subject.within.insert(n, ms(within));
            }
            if visit.leaves == Some(0) {
                oracle.leave(n);
            }
        }
        Event::IsPolled(index) => {
            if let Some(n) = oracle.pick(index.index(usize::MAX)) {
                oracle.poll(n);
            }
        }
        Event::TimePasses(time, order) => oracle.let_time_pass(ms(time), &order).await,
    }
    agrees(oracle);
}

/// What the limit has counted, and what it would say to one more.
fn agrees<L: Limit, P: Policy>(oracle: &mut Oracle<Bare<L, P>>) {
    // A request is woken by its deadline too.
    oracle.disturb();
    let (subject, counts) = (&oracle.subject, oracle.counts);
    let stats = subject.limit.stats();
    assert_eq!(
        (stats.passed, stats.refused, stats.held_back, stats.waiting),
        (
            counts.passed,
            counts.refused,
            counts.held_back,
            oracle.waiting()
        )
    );
    for key in 0..KEYS {
        let queue = L::queue_of(key);
        let expected = match subject.wait_behind(queue, 1, &oracle.queued(queue)) {
            Duration::ZERO => Decision::Pass,
            retry_in => Decision::Wait { retry_in },
        };
        assert_eq!(subject.limit.peek(key, 1), expected, "key {key}");
    }
}

fn run<L: Limit, P: Policy>(limit: impl FnOnce() -> L, policy: P, events: Vec<Event>) {
    paused_runtime().block_on(async {
        let mut oracle = Oracle::new(Bare {
            limit: limit(),
            states: vec![policy.fresh(Tick::ZERO); KEYS],
            policy,
            within: BTreeMap::new(),
            watch: Stopwatch::start(),
        });
        for event in events {
            goes_on(&mut oracle, event).await;
        }
        oracle.end(ms(40), agrees).await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_shared_interval_is_a_plain_queue(events in events(), every in 0..30_u64) {
        let policy = Interval::every(ms(every));
        run(|| policy.shared(), policy, events);
    }

    #[test]
    fn a_shared_bucket_is_a_plain_queue(events in events(), permits in 1..4_u32, burst in 3..6_u32) {
        let policy = TokenBucket::new(Rate::new(permits, ms(40)), burst);
        run(|| policy.shared(), policy, events);
    }

    #[test]
    fn a_shared_log_is_a_plain_queue(events in events(), limit in 3..6_u32) {
        let policy = SlidingLog::new(limit, ms(70));
        run(|| policy.shared(), policy, events);
    }

    #[test]
    fn each_key_of_a_bucket_is_a_plain_queue(events in events(), permits in 1..4_u32, burst in 3..6_u32) {
        let policy = TokenBucket::new(Rate::new(permits, ms(40)), burst);
        run(|| policy.keyed(), policy, events);
    }
}
