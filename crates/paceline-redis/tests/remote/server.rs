//! A server in memory: a task behind a channel, which decides by the library's own policies.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::remote::connection::sleep;
use crate::remote::{
    Ask, Change, Changes, Failure, LeaseCall, Override, Replies, Reply, Return, ServerHealth,
    ServerRun, Store, Task,
};
use paceline::limiter::Mode;
use paceline::policy::{Decision, Interval, Policy, SlidingLog, Status, TokenBucket};
use paceline::time::{Clock, Rate, Tick};

/// A policy that the server can keep.
pub(super) trait Rule:
    Policy<State: Send> + Clone + PartialEq + fmt::Debug + Send + Sync + 'static
{
    /// The largest cost.
    fn capacity(&self) -> u32 {
        match self.decide(&mut self.fresh(Tick::ZERO), Tick::ZERO, u32::MAX) {
            Decision::Never { capacity } => capacity,
            _ => u32::MAX,
        }
    }

    /// The cost after which nothing is left.
    fn all(&self) -> u32 {
        self.capacity()
    }

    /// The part of the limit that each of these replicas may use alone.
    fn share_of(&self, replicas: u32) -> Self;

    fn spent(&self, now: Tick) -> Self::State {
        let mut state = self.fresh(now);
        let spent = self.decide(&mut state, now, self.all());
        assert_eq!(spent, Decision::Pass);
        state
    }

    /// How long it takes until a spent limit is fresh again.
    fn refills_in(&self) -> Duration {
        self.settled_at(&self.spent(Tick::ZERO)).since(Tick::ZERO)
    }
}

impl Rule for SlidingLog {
    fn share_of(&self, replicas: u32) -> Self {
        Self::new(self.limit() / replicas, self.window())
    }
}

impl Rule for TokenBucket {
    fn all(&self) -> u32 {
        self.burst()
    }

    fn share_of(&self, replicas: u32) -> Self {
        let rate = Rate::new(self.rate().permits(), self.rate().period() * replicas);
        Self::new(rate, self.burst() / replicas)
    }
}

impl Rule for Interval {
    fn all(&self) -> u32 {
        1
    }

    fn share_of(&self, replicas: u32) -> Self {
        Self::every(self.interval() * replicas)
    }
}

/// The server, and the store of each process. A clone is the same server.
#[derive(Clone)]
pub(super) struct Server<P: Rule> {
    world: Arc<Mutex<World<P>>>,
    jobs: mpsc::UnboundedSender<Job<P>>,
}

/// What the server has and how it behaves. Tests change the fields at any time.
pub(super) struct World<P: Rule> {
    clock: Clock,
    /// How far the server's clock was stepped, in microseconds.
    pub(super) step: i64,
    started: u64,
    states: HashMap<u32, KeyState<P>>,
    /// Since when it has its states, and whether nobody knows that it had others before. `None` until it decides.
    epoch: Option<(u64, bool)>,
    /// Whether connections can be opened.
    pub(super) is_reachable: bool,
    /// How the server refuses each client that connects.
    pub(super) login_failure: Option<Failure>,
    /// How long that takes.
    pub(super) connects_in: Duration,
    /// How often a client tried to open one.
    pub(super) attempts: u32,
    connections: u64,
    /// Connections with smaller numbers are broken.
    unbroken_from: watch::Sender<u64>,
    /// The time that the server works on each key of a call.
    pub(super) per_key: Duration,
    /// The way of a reply.
    pub(super) reply_in: Duration,
    /// The same for calls with this key.
    pub(super) key_reply_in: HashMap<u32, Duration>,
    busy_until: Tick,
    is_frozen: watch::Sender<bool>,
    /// By how much the client's process is late after the next reply.
    pub(super) late_after_reply: Duration,
    /// Keys for which the server refuses every request.
    pub(super) refused_keys: HashSet<u32>,
    /// How each call fails.
    pub(super) failure: Option<Failure>,
    /// Whether the client library panics in each call, and when it connects.
    pub(super) panics: bool,
    /// The calls that the server has run: the client's task, the number of keys, and how long it waited at the server.
    pub(super) calls: Vec<(tokio::task::Id, usize, Duration)>,
    /// The permits that passed and were not returned: when, by the local clock and the server's, and how many.
    pub(super) counted: Vec<(Tick, u64, u32)>,
    /// The overrides, by the version of their last change, and the first version.
    overrides: BTreeMap<u64, (String, Kept<P>)>,
    first_version: u64,
    /// How many overrides one reply has at most.
    pub(super) most_overrides: usize,
    /// When overrides were read.
    pub(super) reads: Vec<Tick>,
    /// How each read and change of overrides fails.
    pub(super) override_failure: Option<Failure>,
    /// Whether the replies to them are lost.
    pub(super) loses_overrides: bool,
}

/// The end of a pause, a mode, and the replaced and the new parameters.
type Kept<P> = (u64, Mode, Option<[P; 2]>);

/// What the server stores under a key.
#[derive(Clone)]
struct KeyState<P: Rule> {
    state: P::State,
    /// The state before the first of the grants.
    before: P::State,
    /// The permits that passed: when and at which cost.
    grants: Vec<(u64, u32)>,
    written_at: u64,
}

/// What a process remembers of a key's state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp {
    written_at: u64,
    settles_at: u64,
}

struct Job<P: Rule> {
    connection: u64,
    keys: Vec<u32>,
    sent: Tick,
    run: Work<P>,
}

type Work<P> = Box<dyn FnOnce(&mut World<P>) -> Delivery + Send>;

/// Hands the reply to the client.
type Delivery = Box<dyn FnOnce() + Send>;

impl<P: Rule> Server<P> {
    /// Starts the server's task in this runtime.
    pub(super) fn start() -> Self {
        let (jobs, received) = mpsc::unbounded_channel();
        let world = World {
            clock: Clock::new(),
            step: 0,
            started: 0,
            states: HashMap::new(),
            epoch: None,
            is_reachable: true,
            login_failure: None,
            connects_in: Duration::ZERO,
            attempts: 0,
            connections: 0,
            unbroken_from: watch::Sender::new(0),
            per_key: Duration::ZERO,
            reply_in: Duration::ZERO,
            key_reply_in: HashMap::new(),
            busy_until: Tick::ZERO,
            is_frozen: watch::Sender::new(false),
            late_after_reply: Duration::ZERO,
            refused_keys: HashSet::new(),
            failure: None,
            panics: false,
            calls: Vec::new(),
            counted: Vec::new(),
            overrides: BTreeMap::new(),
            first_version: 0,
            most_overrides: 1_000,
            reads: Vec::new(),
            override_failure: None,
            loses_overrides: false,
        };
        let server = Self {
            world: Arc::new(Mutex::new(world)),
            jobs,
        };
        let mut world = server.world();
        world.now();
        // A server that has run for an hour.
        world.started = world.time() - 3_600_000_000;
        drop(world);
        tokio::spawn(serve(Arc::clone(&server.world), received));
        server
    }

    /// The server's state and behaviour, locked.
    pub(super) fn world(&self) -> MutexGuard<'_, World<P>> {
        self.world.lock().unwrap()
    }

    /// Calls are received and not run.
    pub(super) fn freeze(&self) {
        self.world().is_frozen.send_replace(true);
    }

    /// The calls that were received meanwhile are run.
    pub(super) fn thaw(&self) {
        self.world().is_frozen.send_replace(false);
    }

    /// Breaks the open connections. New ones can be made.
    pub(super) fn cut(&self) {
        let world = self.world();
        world.unbroken_from.send_replace(world.connections);
    }

    pub(super) fn kill(&self) {
        self.world().is_reachable = false;
        self.cut();
    }

    /// Forgets all states and overrides.
    pub(super) fn flush(&self) {
        let mut world = self.world();
        world.states.clear();
        world.epoch = None;
        world.overrides.clear();
    }

    /// Starts a new run without the states of the old one.
    pub(super) fn restart(&self) {
        self.cut();
        self.flush();
        let mut world = self.world();
        world.is_reachable = true;
        world.started = world.time();
    }
}

impl<P: Rule> fmt::Debug for Server<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// The server's task: runs the calls one after another.
async fn serve<P: Rule>(world: Arc<Mutex<World<P>>>, mut jobs: mpsc::UnboundedReceiver<Job<P>>) {
    let world = || world.lock().unwrap();
    let mut is_frozen = world().is_frozen.subscribe();
    while let Some(job) = jobs.recv().await {
        let (now, done_at) = {
            let mut world = world();
            let keys = u32::try_from(job.keys.len()).unwrap();
            let work = world.per_key * keys;
            // Timers have a grid of a millisecond. The server's work has not.
            world.busy_until = world.busy_until.max(job.sent).after(work);
            (world.now(), world.busy_until)
        };
        wait(done_at.since(now)).await;
        let _ = is_frozen.wait_for(|is_frozen| !is_frozen).await;
        let mut world = world();
        if *world.unbroken_from.borrow() > job.connection {
            continue;
        }
        let delivery = (job.run)(&mut world);
        let of_keys = job
            .keys
            .iter()
            .filter_map(|key| world.key_reply_in.get(key));
        let time = of_keys.max().copied().unwrap_or(world.reply_in);
        let late = std::mem::take(&mut world.late_after_reply);
        drop(world);
        tokio::spawn(async move {
            wait(time).await;
            delivery();
            if !late.is_zero() {
                // The reply has come, and the client's tasks run only after this time.
                testkit::clock::jump(late).await;
            }
        });
    }
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

/// In microseconds.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

fn tick(time: u64) -> Tick {
    Tick::from_nanos(time * 1_000)
}

impl<P: Rule> World<P> {
    pub(super) fn now(&mut self) -> Tick {
        self.clock.now()
    }

    /// The server's clock.
    fn time(&mut self) -> u64 {
        // Some day in 1970, so that the clock can be set back.
        let time = 10_000_000_000_000 + micros(self.now().since(Tick::ZERO));
        time.saturating_add_signed(self.step)
    }

    /// The epoch, which a client asks for that knows this one, or 0.
    fn epoch_for(&mut self, known: u64) -> u64 {
        let now = self.time();
        let (epoch, is_first) = self.epoch.get_or_insert((now, true));
        *is_first &= known == 0 || known == *epoch;
        *epoch
    }

    /// The longest that one of the last hundred calls waited at the server.
    pub(super) fn longest_call(&self) -> Duration {
        let last = self.calls.iter().rev().take(100);
        last.map(|(.., waited)| *waited).max().unwrap()
    }

    fn decide(
        &mut self,
        health: &ServerHealth,
        ask: &Ask<Server<P>>,
    ) -> Result<Reply<Server<P>>, Failure> {
        let (key, policy) = &ask.limit;
        if self.refused_keys.contains(key) {
            return Err(Failure::Fault("this key is refused".into()));
        }
        let now = self.time();
        let (mut kept, lost) = self.found(now, health, ask);
        let mut reply = Reply {
            counted_at: now,
            passed: 0,
            extra: 0,
            spent: 0,
            binding: None,
            retry_in: Duration::ZERO,
            remaining: 0,
            scarcest: 0,
            memory: Stamp::default(),
            lost: u64::from(lost),
        };
        for back in &ask.returns {
            kept.give_back(policy, *back);
            self.not_counted(*back);
        }
        let costs = ask.asked.iter();
        for cost in costs.flat_map(|(cost, count)| std::iter::repeat_n(*cost, *count as usize)) {
            match kept.take(policy, now, cost) {
                Decision::Pass => {
                    reply.passed += 1;
                    self.count(now, cost);
                }
                Decision::Wait { retry_in } => {
                    (reply.binding, reply.retry_in) = (Some(0), retry_in);
                    break;
                }
                Decision::Never { capacity } => panic!("a cost of {cost} of {capacity}"),
            }
        }
        if ask.task == Task::GiveBack {
            policy.refund(&mut kept.state, tick(now), ask.extra);
        } else if reply.binding.is_none() {
            while reply.extra < ask.extra && kept.take(policy, now, 1).is_pass() {
                reply.extra += 1;
                self.count(now, 1);
            }
        }
        reply.spent = ask.spent(reply.passed, reply.extra);
        reply.remaining = policy.room(&kept.state, tick(now));
        if ask.task != Task::Peek {
            if lost || reply.passed + reply.extra > 0 || !ask.returns.is_empty() {
                kept.written_at = now;
            }
            let settled_at = policy.settled_at(&kept.state).as_nanos();
            reply.memory = Stamp {
                written_at: kept.written_at,
                settles_at: settled_at.div_ceil(1_000),
            };
            self.states.insert(*key, kept);
        }
        Ok(reply)
    }

    fn change(&mut self, name: &str, change: &Change<P>) {
        let now = self.time();
        let last = self.overrides.last_key_value();
        let version = last.map_or(now, |(last, _)| now.max(last + 1));
        if self.overrides.is_empty() {
            self.first_version = version;
        }
        let known = self.overrides.iter().find(|(_, (of, _))| of == name);
        let known = known.map(|(version, _)| *version);
        let known = known.and_then(|version| self.overrides.remove(&version));
        let (_, mut kept) = known.unwrap_or_default();
        match change {
            Change::Pause(time) => kept.0 = kept.0.max(now + micros(*time)),
            Change::Resume => kept.0 = 0,
            Change::Mode(mode) => kept.1 = *mode,
            Change::Params(params) => kept.2.clone_from(params),
        }
        self.overrides.insert(version, (name.to_owned(), kept));
    }

    fn changes_since(&mut self, (since, _): (u64, bool)) -> Changes<P> {
        let (now, time) = (self.now(), self.time());
        self.reads.push(now);
        let mut version = self.overrides.last_key_value().map_or(0, |(last, _)| *last);
        let is_known = version > 0 && (self.first_version..=version).contains(&since);
        let from = if is_known { since + 1 } else { 0 };
        let most = self.most_overrides;
        let has_more = self.overrides.range(from..).count() > most;
        if let (true, Some((last, _))) = (has_more, self.overrides.range(from..).nth(most - 1)) {
            version = *last;
        }
        let changed = self
            .overrides
            .range(from..)
            .take(most)
            .map(|(_, (name, kept))| {
                let (paused_until, mode, params) = kept.clone();
                let left = paused_until.checked_sub(time).map(Duration::from_micros);
                let new = Override {
                    mode,
                    params,
                    ..Override::NONE
                };
                (name.as_str().into(), left, new)
            });
        Changes {
            since,
            time,
            version,
            is_all: !is_known,
            has_more,
            changed: changed.collect(),
        }
    }

    fn count(&mut self, counted_at: u64, cost: u32) {
        let now = self.now();
        self.counted.push((now, counted_at, cost));
    }

    fn not_counted(&mut self, back: Return) {
        let mut cost = back.cost;
        // At the same instant there may be others. One of its cost is as good as another.
        let found = (self.counted.iter_mut()).filter(|counted| counted.1 == back.counted_at);
        let mut of_grant: Vec<_> = found.map(|(.., counted)| counted).collect();
        of_grant.sort_by_key(|counted| **counted != cost);
        for counted in of_grant {
            let returned = cost.min(*counted);
            *counted -= returned;
            cost -= returned;
        }
    }

    /// The state of the key, and whether it was lost and counts as spent.
    fn found(
        &mut self,
        now: u64,
        health: &ServerHealth,
        ask: &Ask<Server<P>>,
    ) -> (KeyState<P>, bool) {
        let (key, policy) = &ask.limit;
        let known = ask
            .memory
            .given(health, policy.refills_in(), ask.is_insured);
        let lost_at = self
            .epoch
            .map_or(0, |(epoch, is_first)| if is_first { 0 } else { epoch });
        let kept = match ask.task {
            Task::Peek => self.states.get(key).cloned(),
            _ => self.states.remove(key),
        };
        let made = |state: P::State| KeyState {
            before: state.clone(),
            state,
            grants: Vec::new(),
            written_at: now,
        };
        match kept {
            None if now < known.settles_at.max(lost_at + micros(policy.refills_in())) => {
                (made(policy.spent(tick(now))), true)
            }
            None => (made(policy.fresh(tick(now))), false),
            Some(kept)
                if kept.written_at < known.written_at
                    || kept.written_at > now + micros(policy.refills_in()) =>
            {
                (made(policy.spent(tick(now))), true)
            }
            Some(mut kept) => {
                if policy.is_settled(&kept.state, tick(now)) {
                    kept.grants.clear();
                    kept.before = kept.state.clone();
                }
                (kept, false)
            }
        }
    }
}

impl<P: Rule> KeyState<P> {
    fn take(&mut self, policy: &P, now: u64, cost: u32) -> Decision {
        let decision = policy.decide(&mut self.state, tick(now), cost);
        if decision.is_pass() {
            self.grants.push((now, cost));
        }
        decision
    }

    /// Removes the grant from the history, and repeats the rest of the history: as if it had never passed.
    fn give_back(&mut self, policy: &P, back: Return) {
        let mut cost = back.cost;
        for (counted_at, granted) in &mut self.grants {
            if *counted_at == back.counted_at {
                let returned = cost.min(*granted);
                *granted -= returned;
                cost -= returned;
            }
        }
        self.grants.retain(|(_, cost)| *cost > 0);
        self.state = self.before.clone();
        for (counted_at, cost) in &self.grants {
            let _ = policy.decide(&mut self.state, tick(*counted_at), *cost);
        }
    }
}

impl Stamp {
    /// Raised, so that the server treats state as lost that may be out of date.
    fn given(mut self, health: &ServerHealth, refills_in: Duration, is_insured: bool) -> Self {
        let (restart, outage) = (&health.restart, &health.last_outage);
        if restart.end > 0 {
            self.written_at = self.written_at.max(restart.start);
            self.settles_at = self.settles_at.max(restart.end + micros(refills_in));
        }
        if is_insured && outage.end.saturating_sub(outage.start) >= micros(refills_in) {
            self.written_at = self.written_at.max(outage.end);
            self.settles_at = self.settles_at.max(outage.end + micros(refills_in));
        }
        self
    }
}

/// An open connection, and its number.
pub(super) struct Opened<P: Rule> {
    number: u64,
    server: Server<P>,
}

impl<P: Rule> Opened<P> {
    /// Sends a job over the connection, and waits for the reply.
    async fn ask<T: Send + 'static>(
        &self,
        keys: Vec<u32>,
        work: impl FnOnce(&mut World<P>) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (reply, answer) = oneshot::channel();
        let run = |world: &mut World<P>| {
            let done = work(world);
            Box::new(move || drop(reply.send(done))) as Delivery
        };
        let (sent, mut unbroken_from) = {
            let mut world = self.server.world();
            (world.now(), world.unbroken_from.subscribe())
        };
        let broken = || Failure::Unreachable("the connection broke".into());
        if *unbroken_from.borrow() > self.number {
            return Err(broken());
        }
        let job = Job {
            connection: self.number,
            keys,
            sent,
            run: Box::new(run),
        };
        self.server.jobs.send(job).map_err(|_| broken())?;
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| broken()),
            _ = unbroken_from.wait_for(|first| *first > self.number) => Err(broken()),
        }
    }
}

impl<P: Rule> Store for Server<P> {
    type Connection = Opened<P>;
    type Limit = (u32, P);
    type Params = P;
    type Memory = Stamp;

    async fn connect(&self) -> Result<Opened<P>, Failure> {
        let connects_in = {
            let mut world = self.world();
            world.attempts += 1;
            world.connects_in
        };
        wait(connects_in).await;
        let mut world = self.world();
        if world.panics {
            drop(world);
            panic!("the client library panics on connecting");
        }
        if !world.is_reachable {
            return Err(Failure::Unreachable("connection refused".into()));
        }
        if let Some(failure) = &world.login_failure {
            return Err(failure.clone());
        }
        let number = world.connections;
        world.connections += 1;
        drop(world);
        Ok(Opened {
            number,
            server: self.clone(),
        })
    }

    async fn server_time(connection: &Opened<P>) -> Result<u64, Failure> {
        connection.ask(Vec::new(), World::time).await
    }

    async fn server_run(connection: &Opened<P>) -> Option<ServerRun> {
        let run = |world: &mut World<P>| ServerRun {
            id: world.started.to_string().into(),
            uptime: (world.time().saturating_sub(world.started)) / 1_000_000,
            evicts: None,
        };
        connection.ask(Vec::new(), run).await.ok()
    }

    fn settles_at(memory: &Stamp) -> u64 {
        memory.settles_at
    }

    fn keys_per_call(&self) -> usize {
        64
    }

    fn params((_, policy): &(u32, P)) -> &P {
        policy
    }

    fn status(_: &(u32, P), _: usize, remaining: u32, memory: &Stamp, now: u64) -> Status {
        let reset_in = Duration::from_micros(memory.settles_at.saturating_sub(now));
        Status::new(None, remaining, reset_in)
    }

    fn override_name((key, _): &(u32, P)) -> String {
        key.to_string()
    }

    async fn overrides(
        connection: &Opened<P>,
        _namespace: &str,
        since: (u64, bool),
        change: Option<(&str, &Change<P>)>,
    ) -> Result<Changes<P>, Failure> {
        let change = change.map(|(name, change)| (name.to_owned(), change.clone()));
        // A change takes as much time as a key.
        let takes = change.iter().map(|_| u32::MAX).collect();
        let exchange = move |world: &mut World<P>| {
            if let Some(failure) = &world.override_failure {
                return Err(failure.clone());
            }
            if let Some((name, change)) = change {
                world.change(&name, &change);
            }
            Ok((world.changes_since(since), world.loses_overrides))
        };
        let (changes, is_lost) = connection.ask(takes, exchange).await??;
        if is_lost {
            std::future::pending::<()>().await;
        }
        Ok(changes)
    }

    async fn decide(
        connection: &Opened<P>,
        _namespace: &str,
        epoch: &mut u64,
        health: &ServerHealth,
        asks: &[Ask<Self>],
    ) -> Result<Replies<Reply<Self>>, Failure> {
        let panics = connection.server.world().panics;
        assert!(!panics, "the client library panics in a call");
        let keys = asks.iter().map(|ask| ask.limit.0).collect();
        let (health, asks) = (health.clone(), asks.to_vec());
        let (task, sent) = (tokio::task::id(), connection.server.world().now());
        let known = *epoch;
        let decide = move |world: &mut World<P>| {
            if let Some(failure) = &world.failure {
                return Err(failure.clone());
            }
            let waited = world.now().since(sent);
            world.calls.push((task, asks.len(), waited));
            let epoch = world.epoch_for(known);
            let replies = asks.iter().map(|ask| world.decide(&health, ask)).collect();
            Ok((epoch, (world.time(), replies)))
        };
        let (read, replies) = connection.ask(keys, decide).await??;
        *epoch = read;
        Ok(replies)
    }

    /// Takes as much time as a key.
    /// Leases are not kept here: all are granted.
    async fn lease(connection: &Opened<P>, call: &LeaseCall) -> Result<(u64, Vec<u64>), Failure> {
        let (classes, held) = (call.most.len(), call.renewals.len() + call.wanted.len());
        let lease = move |world: &mut World<P>| {
            let time = world.time();
            let counts = [vec![time, 0, 0], vec![0; classes], vec![1; held]];
            (time, counts.concat())
        };
        connection.ask(vec![0], lease).await
    }
}
