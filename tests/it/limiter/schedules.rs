//! Random schedules of the real policies: futures are dropped after any number of polls, tasks run in any order, the clock moves
//! at any time. Requests are served exactly as by a plain queue in front of the bare policy, from which cancelled ones are removed.

use std::convert::Infallible;
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use paceline::limiter::{AcquireError, Keyed, Limiter, Shared, Stats};
use paceline::policy::{Decision, Interval, Policy, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Rate, Tick};
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::clock::{Stopwatch, jump};
use testkit::wakes::Driven;

use crate::timed::ms;

const KEYS: usize = 3;

/// What happens, one after the other.
#[derive(Clone, Debug)]
enum Event {
    Comes(Visit),
    IsPolled(Index),
    /// Milliseconds go by, and each woken request is polled, in this order.
    TimePasses(u64, Vec<usize>),
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    key: usize,
    cost: u32,
    how: How,
    /// Cancelled after this number of polls; after none, it is never queued.
    leaves: Option<usize>,
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
    let visit = (0..KEYS, 1..4_u32, how, prop::option::of(0..4_usize));
    let event = prop_oneof![
        4 => visit.prop_map(|(key, cost, how, leaves)| Event::Comes(Visit { key, cost, how, leaves })),
        4 => any::<Index>().prop_map(Event::IsPolled),
        3 => (0..40_u64, prop::collection::vec(0..8_usize, 1..4))
            .prop_map(|(time, order)| Event::TimePasses(time, order)),
    ];
    prop::collection::vec(event, 1..60)
}

/// A limit that lets three keys wait; a shared one takes them all for one.
trait Limit: Clone + Send + 'static {
    fn queue_of(key: usize) -> usize;
    fn ask(&self, visit: Visit) -> Option<BoxFuture<'static, Result<(), AcquireError>>>;
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

    fn ask(&self, visit: Visit) -> Option<BoxFuture<'static, Result<(), AcquireError>>> {
        let cost = visit.cost;
        let limit = self.clone();
        Some(match visit.how {
            How::Acquire => self.acquire(cost).boxed(),
            How::Within(within) => self.acquire_within(cost, ms(within)).boxed(),
            How::Stream => next_item(cost, limit),
        })
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

    fn ask(&self, visit: Visit) -> Option<BoxFuture<'static, Result<(), AcquireError>>> {
        let Visit { key, cost, how, .. } = visit;
        Some(match how {
            How::Acquire => self.acquire(key, cost).boxed(),
            How::Within(within) => self.acquire_within(key, cost, ms(within)).boxed(),
            How::Stream => next_item(cost, self.at(key)),
        })
    }

    fn stats(&self) -> Stats {
        self.stats()
    }

    fn peek(&self, key: usize, cost: u32) -> Decision {
        self.peek(&key, cost)
    }
}

/// A stream is dropped with its `next`, and leaves the queue too.
fn next_item<L>(cost: u32, limit: L) -> BoxFuture<'static, Result<(), AcquireError>>
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

/// A queue for each key, and the policy.
struct Model<P: Policy> {
    policy: P,
    queues: Vec<Queue<P>>,
    passed: u64,
    refused: u64,
    held_back: u64,
}

struct Queue<P: Policy> {
    state: P::State,
    /// The waiters in order: number and cost.
    waits: Vec<(usize, u32)>,
}

impl<P: Policy> Model<P> {
    fn of(policy: P) -> Self {
        let queue = |_| Queue {
            state: policy.fresh(Tick::ZERO),
            waits: Vec::new(),
        };
        Self {
            queues: (0..KEYS).map(queue).collect(),
            policy,
            passed: 0,
            refused: 0,
            held_back: 0,
        }
    }

    /// Whether this request passes now. Otherwise it is queued.
    fn ask(&mut self, queue: usize, n: usize, cost: u32, now: Tick) -> bool {
        let queue = &mut self.queues[queue];
        let place = queue.waits.iter().position(|(other, _)| *other == n);
        let is_first = place.map_or(queue.waits.is_empty(), |place| place == 0);
        if is_first && self.policy.decide(&mut queue.state, now, cost).is_pass() {
            queue.waits.retain(|(other, _)| *other != n);
            self.passed += 1;
            return true;
        }
        if place.is_none() {
            queue.waits.push((n, cost));
            self.held_back += 1;
        }
        false
    }

    fn leaves(&mut self, queue: usize, n: usize) {
        self.queues[queue].waits.retain(|(other, _)| *other != n);
    }

    /// How long one more request would wait.
    fn wait(&self, queue: usize, cost: u32, now: Tick) -> Duration {
        let queue = &self.queues[queue];
        let (mut state, mut at) = (queue.state.clone(), now);
        let behind = queue.waits.iter().map(|(_, cost)| *cost);
        for cost in behind.chain([cost]) {
            if let Decision::Wait { retry_in } = self.policy.peek(&state, at, cost) {
                at = at.after(retry_in);
            }
            assert!(self.policy.decide(&mut state, at, cost).is_pass());
        }
        // Behind others it is never nothing.
        let least = Duration::from_nanos(u64::from(!queue.waits.is_empty()));
        at.since(now).max(least)
    }

    fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.waits.len()).sum()
    }
}

struct Visitor {
    n: usize,
    visit: Visit,
    future: Driven<BoxFuture<'static, Result<(), AcquireError>>>,
    polls: usize,
    joined: Option<Tick>,
}

struct Run<L, P: Policy> {
    limit: L,
    model: Model<P>,
    visitors: Vec<Visitor>,
    come: usize,
    since_start: Stopwatch,
}

impl<L: Limit, P: Policy> Run<L, P> {
    fn now(&self) -> Tick {
        Tick::ZERO.after(self.since_start.elapsed())
    }

    async fn goes_on(&mut self, event: Event) {
        match event {
            Event::Comes(visit) => self.comes(visit),
            Event::IsPolled(index) => {
                if !self.visitors.is_empty() {
                    self.poll(index.index(self.visitors.len()));
                }
            }
            Event::TimePasses(time, order) => self.time_passes(time, &order).await,
        }
        self.agrees();
    }

    fn comes(&mut self, visit: Visit) {
        let Some(future) = self.limit.ask(visit) else {
            return;
        };
        self.come += 1;
        self.visitors.push(Visitor {
            n: self.come,
            visit,
            future: Driven::new(future),
            polls: 0,
            joined: None,
        });
        if visit.leaves == Some(0) {
            self.visitors.pop();
        }
    }

    fn poll(&mut self, n: usize) {
        let now = self.now();
        let expected = self.expected(n, now);
        let visitor = &mut self.visitors[n];
        let answer = visitor.future.poll().map_err(refusal);
        visitor.polls += 1;
        assert_eq!(answer, expected, "{:?} at {now:?}", visitor.visit);
        let is_over = answer.is_ready() || visitor.visit.leaves == Some(visitor.polls);
        if is_over {
            let Visitor { n, visit, .. } = self.visitors.remove(n);
            self.model.leaves(L::queue_of(visit.key), n);
        }
    }

    fn expected(&mut self, n: usize, now: Tick) -> Poll<Result<(), Refusal>> {
        let Visitor {
            n,
            visit,
            ref mut joined,
            ..
        } = self.visitors[n];
        let (queue, cost) = (L::queue_of(visit.key), visit.cost);
        let within = match visit.how {
            How::Within(within) => Some(ms(within)),
            How::Acquire | How::Stream => None,
        };
        if let (Some(within), None) = (within, *joined) {
            let wait = self.model.wait(queue, cost, now);
            if wait > within {
                self.model.refused += 1;
                return too_late(within, wait);
            }
        }
        if self.model.ask(queue, n, cost, now) {
            return Poll::Ready(Ok(()));
        }
        let joined = *joined.get_or_insert(now);
        if let Some(within) = within.filter(|within| joined.after(*within) <= now) {
            self.model.refused += 1;
            self.model.leaves(queue, n);
            return too_late(within, self.model.wait(queue, cost, now));
        }
        Poll::Pending
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
        let now = self.now();
        for queue in &self.model.queues {
            if let Some((n, cost)) = queue.waits.first() {
                let decision = self.model.policy.peek(&queue.state, now, *cost);
                assert!(
                    !decision.is_pass(),
                    "the {n}th could pass and sleeps at {now:?}"
                );
            }
        }
    }

    /// What the limit has counted, and what it would say to one more.
    fn agrees(&self) {
        let stats = self.limit.stats();
        let model = &self.model;
        assert_eq!(
            (stats.passed, stats.refused, stats.held_back, stats.waiting),
            (
                model.passed,
                model.refused,
                model.held_back,
                model.waiting()
            )
        );
        for key in 0..KEYS {
            let expected = match model.wait(L::queue_of(key), 1, self.now()) {
                Duration::ZERO => Decision::Pass,
                retry_in => Decision::Wait { retry_in },
            };
            assert_eq!(self.limit.peek(key, 1), expected, "key {key}");
        }
    }

    /// Every remaining waiter passes.
    async fn ends(&mut self) {
        for visitor in &mut self.visitors {
            visitor.visit.leaves = None;
        }
        while let Some(unpolled) = self.visitors.iter().position(|one| one.polls == 0) {
            self.poll(unpolled);
        }
        // More than all of them together can cost.
        for _ in 0..500 {
            if self.visitors.is_empty() {
                return;
            }
            self.time_passes(40, &[0]).await;
            self.agrees();
        }
        panic!("{} are stuck", self.visitors.len());
    }
}

/// What an error says, and how long a retry would wait.
type Refusal = (String, Option<Duration>);

fn refusal(refused: AcquireError) -> Refusal {
    (refused.to_string(), refused.retry_in())
}

fn too_late(within: Duration, retry_in: Duration) -> Poll<Result<(), Refusal>> {
    let message = format!("could not pass within {within:?}");
    Poll::Ready(Err((message, Some(retry_in))))
}

fn run<L: Limit, P: Policy>(limit: impl FnOnce() -> L, policy: P, events: Vec<Event>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut run = Run {
            limit: limit(),
            model: Model::of(policy),
            visitors: Vec::new(),
            come: 0,
            since_start: Stopwatch::start(),
        };
        for event in events {
            run.goes_on(event).await;
        }
        run.ends().await;
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
