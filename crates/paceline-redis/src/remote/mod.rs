//! What a limit on a server needs, whichever server it is: a queue of requests for each key, a batcher that merges them
//! into few round trips, a circuit breaker, and what passes during an outage. It knows no store and no script.
//!
//! A caller joins the [`KeyQueue`] of its key. The queue is a [`Source`] of the connection's [`Batcher`], whose task
//! collects the questions of many keys, sends them in one call of the [`Store`], and gives each key its part of the reply.
//!
//! A new backend is one folder: an implementation of [`Store`], and what its users see, which is a [`RemoteLimit`] or a
//! [`LeasePool`] with docs.
//!
//! # How it works
//!
//! **Unused permits** go back by the time at which they were counted; taking back the latest would take what others have
//! passed since. The bound comes first: a permit may be lost, and none is given twice.
//!
//! **One batcher** a connection and prefix takes the questions of many queues and sends them in one call: at once if no
//! call is under way, otherwise when the call is full or has gathered for a millisecond. A call for each key had no bound:
//! the herd's own waiting counted against the deadline and looked like an outage. Now the number of keys under way follows
//! the measured time of calls, as congestion control by delay does; the rest waits here, and that wait says nothing of the
//! server. One task a runtime makes the calls itself and lives until the last handle is dropped, so a decision spawns
//! nothing. A denial is remembered until its time. The permits of a request that has left go to the next
//! one if that costs as much, or back: a part of an interval or of a debt is no permit. What is not fetched for 100 ms goes back.
//!
//! **Overrides** (pauses, modes and parameters for all processes) are in a store of their own, with a version for each
//! change. A process reads what has changed once a second, beside a call that it makes anyway, and applies it before it
//! gives out the permits of that call. So a decision costs nothing more, and a process that was idle for an hour does not
//! pass a paused limit. A subscription would need a second connection, which may be the one that hangs. A retune names the
//! parameters that it replaces, or it would overrule the next deploy.
//!
//! **Keys.** Only a key in use has a queue. Any other key leaves two times (when its state was written, and when it
//! settles), the last denial and the room, under a 128-bit fingerprint. These detect a lost state, so a settled key is
//! forgotten without loss.
//!
//! **Failing.** A deadline is around everything, also around waiting for a connection. It starts with the call, and anew
//! with each answer: only silence is a failure, and one for all calls under way. Time without the processor is none. The
//! breaker counts failures; a fault (the server is well and refuses) is none. An outage is over when a call was answered:
//! a connection alone ends nothing. The client library's own retries are not used: they repeat what may have been
//! counted. Where the error says that nothing was done, the call is made again. The reply to a failed call is awaited for
//! up to a second: what it took is returned, unless the outage policy may have passed as much.
//!
//! **An insurance** is the policy's part for one replica, in memory, with everything spent at the instant the outage began.
//! So all replicas together stay inside the limit over that edge. Over the other edge they do since after an outage in
//! which a whole limit may have passed without being written down, all counts as spent.
//!
//! **What was lost counts as spent.** Each request says when the state was last written and when it settles. A state that is
//! older, or gone too early, was lost. After a restart (another `run_id`; always assumed of a cluster) all states from before
//! count as lost. Then, and when a key that never expires (the epoch) is gone, a missing state counts as lost until it would
//! have settled. After an outage without a restart an insured bucket has not filled meanwhile; a window needs nothing if the
//! outage was shorter.
//!
//! **Leases** are a sorted set, scored by when they end on the server's clock. One script drops ended ones, takes back,
//! renews, grants. An expired id is never added again: the answer is that it is lost. A grant without an answer is given
//! back, in up to three attempts. A lease counts from *before* the call that granted or renewed it, by the clock here, and
//! what has ended here stays lost. So a holder knows of the end no later than the server. Leases are renewed after a third,
//! all that are past a sixth on one round trip, and all at once after a failed call or on a new connection. An insurance of
//! leases gives nothing before the outage is a lease old, since others may hold all of them until then. Guards with a lost
//! lease count as held there.

mod batcher;
mod cache;
mod calls;
mod connection;
mod error;
mod health;
mod key_cache;
mod key_queue;
mod lease_pool;
mod lease_queue;
mod lease_table;
mod limit;
mod outage_policy;
mod overrides;
mod question;
mod queue;
mod request;
mod source;
mod window;

use core::fmt;
use core::future::Future;
use core::time::Duration;
use std::sync::Arc;

use paceline::policy::{Policy, Status};
use paceline::time::Tick;

pub(crate) use batcher::Batcher;
pub(crate) use connection::{Connection, within};
pub(crate) use error::Failure;
pub use error::{CallError, ServerError};
pub use health::ServerStats;
pub(crate) use health::{ServerHealth, ServerRun};
pub(crate) use key_cache::KeyCache;
pub(crate) use key_queue::KeyQueue;
pub use lease_pool::Lease;
pub(crate) use lease_pool::{LeaseAnswer, LeasePool, LeaseRequest};
pub(crate) use lease_queue::ClassConfig;
pub(crate) use lease_table::LeaseId;
pub(crate) use limit::RemoteLimit;
pub use outage_policy::OutagePolicy;
pub(crate) use outage_policy::{Fallback, divided};
pub(crate) use overrides::{Change, Changes, Override};
pub(crate) use request::{Decided, WaitMode, without_fault};

/// How much longer than the batcher a caller waits for an answer. The batcher keeps the deadline itself, unless its runtime is blocked
/// and the caller is in another one.
pub(crate) const GRACE: Duration = Duration::from_millis(5);

/// A timer that is later than this was delayed by this process: it did not run meanwhile, and could not have read an answer.
const LATE: Duration = Duration::from_millis(2);

/// The pause after the server refused a call. It would refuse the next one too.
pub(crate) const AFTER_FAULT: Duration = Duration::from_secs(1);

/// The pause after a failure while the breaker is still closed.
pub(crate) const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// The pause while nothing passes because the server is down.
pub(crate) const WHILE_DOWN: Duration = Duration::from_millis(100);

/// The retry time for a request that waits behind others of this process, if nothing else is known.
const SOON: Duration = Duration::from_millis(1);

/// A server that keeps the states of limits for many processes.
///
/// All times of the server are microseconds of its own clock. The future of a call may be dropped: then the server may or may not
/// have run it.
pub(crate) trait Store: fmt::Debug + Clone + Send + Sync + 'static {
    /// An open connection that concurrent calls share.
    type Connection: Send + Sync + 'static;

    /// The keys and parameters of a limit, as a call sends them. Cheap to clone.
    type Limit: fmt::Debug + Clone + Send + Sync + 'static;

    /// The parameters of a limit, as processes exchange them.
    type Params: fmt::Debug + Clone + PartialEq + Send + Sync + 'static;

    /// What this process remembers of a limit's state between two calls, to detect that the server has lost the state.
    type Memory: fmt::Debug + Clone + Default + Send + Sync + 'static;

    /// Opens a new connection. The caller sets the time limit.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Failure>> + Send;

    /// The server's clock.
    fn server_time(
        connection: &Self::Connection,
    ) -> impl Future<Output = Result<u64, Failure>> + Send;

    /// Identifies the server process. `None` if the server does not say.
    fn server_run(connection: &Self::Connection) -> impl Future<Output = Option<ServerRun>> + Send;

    /// From when on a memory is of no use, by the server's clock: the state has settled.
    fn settles_at(memory: &Self::Memory) -> u64;

    /// The most keys that one call can carry.
    fn keys_per_call(&self) -> usize;

    /// The parameters with which a limit is asked.
    fn params(limit: &Self::Limit) -> &Self::Params;

    /// The status at `server_time` of a limit whose part `scarcest` has only `remaining` permits.
    fn status(
        limit: &Self::Limit,
        scarcest: usize,
        remaining: u32,
        memory: &Self::Memory,
        server_time: u64,
    ) -> Status;

    /// The name of the override that holds for a limit.
    fn override_name(limit: &Self::Limit) -> String;

    /// Makes the change, if there is one, and returns the overrides of the namespace that have changed since that version.
    ///
    /// Versions are times of the server, and rise with each change. Since a version that the server does not know, or with which
    /// deletions may have been missed, it returns all. If that is too much for one reply, the next read goes on (the `bool`).
    fn overrides(
        connection: &Self::Connection,
        namespace: &str,
        since: (u64, bool),
        change: Option<(&str, &Change<Self::Params>)>,
    ) -> impl Future<Output = Result<Changes<Self::Params>, Failure>> + Send;

    /// Decides for several keys in one call. The replies have the order of the questions; one of them may fail alone.
    ///
    /// The store keeps up to date which epoch the namespace has.
    fn decide(
        connection: &Self::Connection,
        namespace: &str,
        epoch: &mut u64,
        health: &ServerHealth,
        asks: &[Ask<Self>],
    ) -> impl Future<Output = Result<Replies<Reply<Self>>, Failure>> + Send;

    /// Grants, renews and releases leases. Returns the server's time, and a list: the time again; in how many microseconds the
    /// first lease ends that is not renewed, or 0; the place of the queue among those that wait, from 1, or 0; how many leases
    /// each class has; and for each renewed and each wanted lease 1 if it stands.
    fn lease(
        connection: &Self::Connection,
        call: &LeaseCall,
    ) -> impl Future<Output = Result<(u64, Vec<u64>), Failure>> + Send;
}

/// What a limit on a server decides by.
pub(crate) trait RemotePolicy: Policy<State: Send> + Clone + Send + Sync + 'static {}

impl<P: Policy<State: Send> + Clone + Send + Sync + 'static> RemotePolicy for P {}

/// The server's time, and a reply for each question.
pub(crate) type Replies<T> = (u64, Vec<Result<T, Failure>>);

/// What a call asks for one key.
#[derive(Clone, Debug)]
pub(crate) struct Ask<S: Store> {
    pub(crate) task: Task,
    pub(crate) limit: S::Limit,
    pub(crate) memory: S::Memory,
    /// Whether permits may have passed during the last outage that the server does not know of.
    pub(crate) is_insured: bool,
    /// Requests in order: a cost, and how many requests of that cost follow each other.
    pub(crate) asked: Vec<(u32, u32)>,
    /// How many permits to take on top; for [`Task::GiveBack`] and [`Task::Charge`], how many to return or to charge.
    pub(crate) extra: u32,
    /// Permits that were granted and not used. They are returned before the requests are decided.
    pub(crate) returns: Vec<Return>,
}

impl<S: Store> Ask<S> {
    /// How many permits the server counts if that many requests pass and that many permits are taken on top.
    pub(crate) fn spent(&self, passed: u32, extra: u32) -> u32 {
        if self.task != Task::Ask {
            return 0;
        }
        let (mut left, mut spent) = (passed, extra);
        for (cost, count) in &self.asked {
            let passed = left.min(*count);
            left -= passed;
            spent = spent.saturating_add(cost.saturating_mul(passed));
        }
        spent
    }
}

/// What a call asks for leases.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseCall {
    /// Those of the classes, and one for the marks of waiting queues if requests can wait.
    pub(crate) keys: Arc<[String]>,
    /// Names the queue: its mark, and the first part of the ids of its leases.
    pub(crate) queue: String,
    pub(crate) lease: Duration,
    /// For each class the numbers of its leases and of all leases below which one more is granted.
    pub(crate) most: Vec<[u64; 2]>,
    /// How many requests wait. `None` if the marks are left alone.
    pub(crate) waiting: Option<usize>,
    pub(crate) mark_stands: Duration,
    pub(crate) releases: Vec<LeaseId>,
    pub(crate) renewals: Vec<LeaseId>,
    pub(crate) wanted: Vec<LeaseId>,
    /// How many of the wanted leases are for requests that wait. They come first.
    pub(crate) wanted_by_waiters: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Task {
    /// Counts the permits that pass.
    Ask,
    /// Counts nothing.
    Peek,
    /// Returns the latest permits.
    GiveBack,
    /// Counts permits that were used already, whether or not the limit has them.
    Charge,
}

/// Permits of one grant that were not used. `counted_at` is the server's time of the grant, and identifies it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Return {
    pub(crate) cost: u32,
    /// How many requests they were, for limits that count requests. 0 if a request has cost less than it asked for.
    pub(crate) requests: u32,
    pub(crate) counted_at: u64,
}

/// What the server decided for one key.
#[derive(Clone, Debug)]
pub(crate) struct Reply<S: Store> {
    /// The server's time, at which the permits were counted.
    pub(crate) counted_at: u64,
    /// How many requests passed, from the first on.
    pub(crate) passed: u32,
    /// How many permits were taken on top.
    pub(crate) extra: u32,
    /// How many permits were counted in all.
    pub(crate) spent: u32,
    /// Which limit the first denied request waits for, from 0; `None` if all passed.
    pub(crate) binding: Option<usize>,
    /// How long the first denied request has to wait.
    pub(crate) retry_in: Duration,
    /// How many requests of cost 1 would pass next.
    pub(crate) remaining: u32,
    /// Which limit has the least left, from 0.
    pub(crate) scarcest: usize,
    pub(crate) memory: S::Memory,
    /// How many states the server had lost.
    pub(crate) lost: u64,
}

impl<S: Store> Reply<S> {
    /// The permits that were taken on top. They count as one request.
    fn taken_on_top(&self) -> Return {
        Return {
            cost: self.extra,
            requests: 1,
            counted_at: self.counted_at,
        }
    }
}

/// The fixed settings of a limit, the same for all its keys.
#[derive(Clone, Debug)]
pub(crate) struct LimitConfig<P: RemotePolicy, S: Store> {
    pub(crate) policy: P,
    /// The largest cost that can pass.
    pub(crate) capacity: u32,
    /// Whether a part of the limit counts requests. Then a permit serves the request that asked for it and no other.
    pub(crate) counts_requests: bool,
    pub(crate) fallback: Fallback<P>,
    /// The state of an insurance in which everything is spent.
    pub(crate) spent: fn(&P, Tick) -> P::State,
    /// How many permits are taken ahead, and for how long they can be used.
    pub(crate) prefetch: Option<(u32, Duration)>,
    pub(crate) outage_policy: OutagePolicy,
    /// Takes other parameters. `None` if they do not fit: another version of this library may have written them.
    pub(crate) retune: fn(&mut Self, &mut S::Limit, &S::Params) -> Option<()>,
}

#[path = "../../tests/remote/mod.rs"]
#[cfg(test)]
mod tests;
