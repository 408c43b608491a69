use core::mem;
use std::sync::Arc;

use paceline::time::Tick;

use super::error::CallError;
use super::{Ask, LeaseCall, Reply, Store};

/// A queue of requests that the batcher sends: of one key, or of a lease pool.
///
/// Its [`Stage`] is under its own lock.
pub(crate) trait Source<S: Store>: Send + Sync {
    /// The next step now. Called when the source was pushed, and when its sleep is over. An extra call does no harm.
    fn next(self: Arc<Self>, now: Tick) -> Step<S>;

    /// Takes the answer to the question with the id `call`, which was `sent` at that time. If there is more to do, the source
    /// pushes itself.
    fn complete(self: Arc<Self>, call: u64, sent: Tick, answer: Result<Answer<S>, CallError>);

    /// Takes the reply to a question that has failed before.
    ///
    /// Provided: does nothing.
    fn answered_late(self: Arc<Self>, reply: &Reply<S>) {
        let _ = reply;
    }

    /// The batcher's task was dropped with its runtime. Callers have to ask again.
    fn task_dropped(self: Arc<Self>);
}

pub(super) type AnySource<S> = Arc<dyn Source<S>>;

/// The answer to what a source asked.
#[derive(Debug)]
pub(crate) enum Answer<S: Store> {
    Decided(Reply<S>),
    Leases(Vec<u64>),
}

#[derive(Debug)]
pub(crate) enum Step<S: Store> {
    /// The id of a question, and the question.
    Ask(u64, Ask<S>),
    /// A question about leases. It is a call of its own.
    Lease(LeaseCall),
    /// Nothing to ask before `until`, or before a new connection if `or_connected`.
    Sleep {
        until: Tick,
        or_connected: bool,
    },
    Idle,
}

/// Where a source is in the schedule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// Not in the schedule. Its call may be under way.
    Idle,
    /// In the queue of sources that the batcher asks for their next step.
    Ready,
    Sleeping(Tick),
}

impl Stage {
    /// The stage before, with which the source has to be pushed. `None` if the source is ready already.
    #[must_use]
    pub(crate) fn make_ready(&mut self) -> Option<Self> {
        let before = mem::replace(self, Self::Ready);
        (before != Self::Ready).then_some(before)
    }
}

/// The address identifies a source while the schedule holds it.
pub(super) fn address<S: Store>(source: &AnySource<S>) -> usize {
    Arc::as_ptr(source).cast::<()>() as usize
}
