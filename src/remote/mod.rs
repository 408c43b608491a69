//! What a limit on a server needs, whichever server it is: a queue of requests for each key, a batcher that merges them into few
//! round trips, a circuit breaker, and what passes during an outage. It knows no store and no script.
//!
//! A caller joins the [`KeyQueue`] of its key. The queue is a [`Source`] of the connection's [`Batcher`], whose task takes what
//! many keys have to ask, sends it in one call of the [`Store`], and hands each key its part of the reply.
//!
//! A new backend is one folder with an implementation of [`Store`].

mod batcher;
mod cache;
mod connection;
mod error;
mod events;
mod health;
mod key_cache;
mod key_queue;
mod outage_policy;
mod question;
mod queue;
mod request;
mod window;

use core::fmt;
use core::future::Future;
use core::time::Duration;

pub(crate) use batcher::{Answer, Batcher, Source, Stage, Step};
pub(crate) use connection::{Connection, within};
pub(crate) use error::Failure;
pub use error::{CallError, ServerError};
pub(crate) use events::Event;
pub use health::Stats;
pub(crate) use health::{ServerHealth, ServerRun};
pub(crate) use key_cache::KeyCache;
pub(crate) use key_queue::{GRACE, KeyQueue, LimitConfig};
pub(crate) use outage_policy::Fallback;
pub use outage_policy::OutagePolicy;
pub(crate) use request::{Decided, RequestId, WaitMode};

/// A server that keeps the states of limits for many processes.
///
/// All times of the server are microseconds of its own clock. The future of a call may be dropped: then the server may or may not
/// have run it.
pub(crate) trait Store: fmt::Debug + Send + Sync + Sized + 'static {
    /// An open connection that concurrent calls share.
    type Connection: Send + Sync + 'static;

    /// What a call has to say about a limit: its keys and parameters. Cheap to clone.
    type Limit: fmt::Debug + Clone + Send + Sync + 'static;

    /// What this process remembers of a limit's state between two calls, to detect that the server has lost the state.
    type Memory: fmt::Debug + Clone + Default + Send + Sync + 'static;

    /// What a call for leases says, and its reply.
    type Leases: fmt::Debug + Send + Sync + 'static;
    type LeasesReply: fmt::Debug + Send + 'static;

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

    /// Decides for several keys in one call. The replies have the order of the questions; one of them may fail alone.
    fn decide(
        connection: &Self::Connection,
        health: &ServerHealth,
        asks: &[Ask<Self>],
    ) -> impl Future<Output = Result<Replies<Reply<Self>>, Failure>> + Send;

    /// Grants, renews and releases leases.
    fn lease(
        connection: &Self::Connection,
        leases: &Self::Leases,
    ) -> impl Future<Output = Result<(u64, Self::LeasesReply), Failure>> + Send;
}

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
    /// How many permits to take on top; for [`Task::GiveBack`], how many to return.
    pub(crate) extra: u32,
    /// Permits that were granted and not used. They are returned before the requests are decided.
    pub(crate) returns: Vec<Return>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Task {
    /// Counts the permits that pass.
    Ask,
    /// Counts nothing.
    Peek,
    /// Returns the latest permits.
    GiveBack,
}

/// Permits of one grant that were not used. `counted_at` is the server's time of the grant, and identifies it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Return {
    pub(crate) cost: u32,
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
    /// Which limit the first denied request waits for, from 0; `None` if all passed.
    pub(crate) binding: Option<usize>,
    /// How long the first denied request has to wait.
    pub(crate) retry_in: Duration,
    pub(crate) memory: S::Memory,
    /// How many states the server had lost.
    pub(crate) lost: u64,
}

#[path = "../../tests/remote/mod.rs"]
#[cfg(test)]
mod tests;
