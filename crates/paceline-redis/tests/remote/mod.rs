//! Limits on a server in memory, in virtual time: the logic of `src/remote/`, without Redis.

mod any_of;
mod batching;
mod cancelled;
mod clock_steps;
mod faults;
mod herd;
mod late;
mod lease_queue;
mod order;
mod outages;
mod overrides;
mod prefetch;
mod runtimes;
mod schedule;
mod server;
mod task;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::join_all;
use paceline::limiter::{Limiter, Mode, Reporter, Switch};
use paceline::policy::{Decision, Interval, SlidingLog, TokenBucket};
use paceline::time::{Rate, Tick};
use testkit::clock::{self, Stopwatch};
use tokio::task::{JoinHandle, JoinSet};

use super::connection::sleep;
use super::request::{Asked, Undecided};
use super::{
    Batcher, CallError, Change, Connection, Decided, Failure, KeyQueue, LimitConfig, OutagePolicy,
    RemoteLimit, ServerError, ServerStats, Task, WaitMode, within,
};
use server::{Rule, Server};

const MINUTE: Duration = Duration::from_secs(60);

/// The default.
const DEADLINE: Duration = Duration::from_millis(25);

/// The way of a reply that is lost.
const NEVER: Duration = Duration::from_secs(1_000_000);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// One process of a fleet: a connection, and its batcher.
#[derive(Clone, Debug)]
struct Process<P: Rule> {
    batcher: Arc<Batcher<Server<P>>>,
    outage_policy: OutagePolicy,
}

impl<P: Rule> Process<P> {
    /// It does not connect yet.
    fn of(server: &Server<P>, outage_policy: OutagePolicy) -> Self {
        Self::with(server, outage_policy, DEADLINE)
    }

    fn with(server: &Server<P>, outage_policy: OutagePolicy, deadline: Duration) -> Self {
        let connection = Arc::new(Connection::new(server.clone(), deadline));
        Self {
            batcher: Arc::new(Batcher::new(connection, "app".into())),
            outage_policy,
        }
    }

    /// Waits until there is a connection.
    async fn connect(&self) {
        while self.batcher.connection.connected_within().await.is_err() {
            sleep(ms(1)).await;
        }
    }

    fn limit(&self, key: u32, policy: P) -> Limit<P> {
        self.limit_with(key, policy, None)
    }

    fn limit_with(&self, key: u32, policy: P, prefetch: Option<(u32, Duration)>) -> Limit<P> {
        let share_of = |replicas| Ok::<_, ()>(policy.share_of(replicas));
        let config = LimitConfig {
            capacity: policy.capacity(),
            counts_requests: false,
            fallback: self.outage_policy.fallback(share_of).unwrap(),
            spent: P::spent,
            prefetch,
            outage_policy: self.outage_policy,
            retune,
            policy: policy.clone(),
        };
        let batcher = Arc::clone(&self.batcher);
        let queue = KeyQueue::new(batcher, Arc::new(config), (key, policy));
        Limit::new(Arc::new(queue), Reporter::NONE)
    }

    /// The switch of this process that has the mode of that name.
    fn switch(&self, name: &str) -> Switch {
        self.batcher.switch(name)
    }

    fn stats(&self) -> ServerStats {
        self.batcher.connection.stats()
    }

    fn is_up(&self) -> bool {
        self.batcher.connection.is_up()
    }

    #[track_caller]
    fn assert_calm(&self) {
        let stats = self.stats();
        let failed = (stats.timeouts, stats.outages, stats.faults);
        let alone = (stats.passed_alone, stats.skipped, stats.lost_states);
        assert_eq!((failed, alone), ((0, 0, 0), (0, 0, 0)), "{stats:?}");
    }
}

fn retune<P: Rule>(
    made_with: &mut LimitConfig<P, Server<P>>,
    (_, old): &mut (u32, P),
    policy: &P,
) -> Option<()> {
    let share_of = |replicas| Ok::<_, ()>(policy.share_of(replicas));
    made_with.fallback = made_with.outage_policy.fallback(share_of).ok()?;
    made_with.capacity = policy.capacity();
    (made_with.policy, *old) = (policy.clone(), policy.clone());
    Some(())
}

type Limit<P> = RemoteLimit<P, Server<P>>;

impl<P: Rule> Limit<P> {
    /// Joins the queue as a waiter, and is not woken.
    fn join(&self, cost: u32) -> Self {
        let mut handle = self.clone();
        let mut cx = Context::from_waker(Waker::noop());
        let asked = handle.poll_ask(cost, WaitMode::Wait, &mut cx);
        assert!(asked.is_pending());
        handle
    }

    async fn acquire(&self, cost: u32) -> Result<(), ServerError> {
        let acquired = self.clone().wait(cost).await;
        acquired.map_err(|error| error.into_limit().unwrap())
    }

    async fn try_acquire(&self, cost: u32) -> Decided {
        self.clone().again(cost, WaitMode::Try).await
    }

    /// Asks with the position in the queue that this handle has.
    async fn again(&mut self, cost: u32, mode: WaitMode) -> Decided {
        poll_fn(|cx| self.poll_ask(cost, mode, cx)).await
    }

    /// What the queue answers to a request that does not wait.
    async fn ask(&self, cost: u32) -> Asked {
        let mut position = None;
        let asked = poll_fn(|cx| {
            let (position, mode) = (&mut position, WaitMode::Try);
            self.queue.poll_ask(position, cost, mode, cx, &mut None)
        });
        let answer = asked.await;
        self.queue.leave(&mut position);
        answer
    }

    async fn passes(&self, cost: u32) -> bool {
        self.try_acquire(cost).await.unwrap().is_pass()
    }

    /// What is left by the newest reply.
    fn left(&self) -> Option<u32> {
        self.queue
            .with_queue(|queue| queue.known.scarcest.map(|_| queue.known.remaining))
    }

    /// How many permits are left, by a call that takes them.
    async fn take_all(&self) -> Result<u32, CallError> {
        let reply = self.queue.call(Task::Ask, vec![], u32::MAX, vec![]).await?;
        Ok(reply.extra)
    }
}

impl<P: Rule> Limiter for Limit<P> {
    type Error = ServerError;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Decided> {
        self.poll_ask(cost, WaitMode::WaitFailFast, cx)
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Decided> {
        self.poll_ask(cost, WaitMode::Try, cx)
    }

    fn give_up(&mut self) {
        Self::give_up(self);
    }
}

/// A connected process.
async fn process<P: Rule>(server: &Server<P>, outage_policy: OutagePolicy) -> Process<P> {
    let process = Process::of(server, outage_policy);
    process.connect().await;
    process
}

/// A server, a connected process, and a limit of it.
async fn one<P: Rule>(when_down: OutagePolicy, policy: P) -> (Server<P>, Process<P>, Limit<P>) {
    let server = Server::start();
    let process = process(&server, when_down).await;
    let limit = process.limit(0, policy);
    (server, process, limit)
}

/// The same, closed while the server is down.
async fn closed<P: Rule>(policy: P) -> (Server<P>, Process<P>, Limit<P>) {
    one(OutagePolicy::closed(), policy).await
}

/// The same, with replies that take so many milliseconds from now on.
async fn distant<P: Rule>(reply_in: u64, policy: P) -> (Server<P>, Process<P>, Limit<P>) {
    let (server, process, limit) = closed(policy).await;
    server.world().reply_in = ms(reply_in);
    (server, process, limit)
}

/// Two connected processes with the same limit, closed while the server is down.
async fn two<P: Rule>(policy: P) -> (Server<P>, [Process<P>; 2], [Limit<P>; 2]) {
    let (server, process, limit) = closed(policy.clone()).await;
    let other = Process::of(&server, OutagePolicy::closed());
    other.connect().await;
    let of_other = other.limit(0, policy);
    (server, [process, other], [limit, of_other])
}

/// Tries until the process notices that the server is gone.
async fn notice<P: Rule>(process: &Process<P>, limit: &Limit<P>) {
    while !process.batcher.connection.is_down() {
        let _ = limit.try_acquire(1).await;
        sleep(ms(1)).await;
    }
}

/// Waits in a task of its own, and returns for how long.
fn acquiring<P: Rule>(limit: &Limit<P>, cost: u32) -> JoinHandle<Duration> {
    let limit = limit.clone();
    let watch = Stopwatch::start();
    tokio::spawn(async move {
        limit.acquire(cost).await.unwrap();
        watch.elapsed()
    })
}

/// When each of these requests has passed, one after another, from now on.
async fn passed_at<P: Rule>(limit: &Limit<P>, costs: &[u32]) -> Vec<Duration> {
    let watch = Stopwatch::start();
    let mut passed = Vec::new();
    for cost in costs {
        limit.acquire(*cost).await.unwrap();
        passed.push(watch.elapsed());
    }
    passed
}

/// When permits pass until this time, of a caller that waits for one after another.
async fn passing_until<P: Rule>(
    limit: &Limit<P>,
    watch: Stopwatch,
    until: Duration,
) -> Vec<(Duration, u32)> {
    let left = || until.saturating_sub(watch.elapsed());
    let mut passed = Vec::new();
    while let Some(acquired) = within(left(), limit.acquire(1)).await {
        acquired.unwrap();
        passed.push((watch.elapsed(), 1));
    }
    passed
}

/// The most permits that were used within a time, of all uses.
fn most_within(time: Duration, mut uses: Vec<(Duration, u32)>) -> u32 {
    uses.sort();
    let from = uses.iter().enumerate().map(|(first, (from, _))| {
        let inside = uses[first..].iter();
        let inside = inside.take_while(|(at, _)| at.saturating_sub(*from) < time);
        inside.map(|(_, cost)| cost).sum()
    });
    from.max().unwrap_or(0)
}

/// How many permits the server has counted.
fn counted<P: Rule>(server: &Server<P>) -> u32 {
    let world = server.world();
    world.counted.iter().map(|(.., cost)| cost).sum()
}

/// How many calls with questions the server has run.
fn calls<P: Rule>(server: &Server<P>) -> usize {
    server.world().calls.len()
}

fn at(millis: u64) -> Tick {
    Tick::ZERO.after(ms(millis))
}

/// A limit that no test reaches.
fn plenty() -> SlidingLog {
    SlidingLog::new(100_000, MINUTE)
}

/// One permit in so many milliseconds, and four at once.
fn four_every(millis: u64) -> TokenBucket {
    TokenBucket::new(Rate::new(1, ms(millis)), 4)
}

const fn outage(retry_in: Duration) -> Asked {
    Err(Undecided::Outage { retry_in })
}

/// Lets all tasks run until each waits for a time or another.
async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}

#[track_caller]
fn wait_of(answer: Decided) -> Duration {
    match answer {
        Ok(Decision::Wait { retry_in }) => retry_in,
        other => panic!("not a wait: {other:?}"),
    }
}
