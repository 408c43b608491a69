use std::sync::Arc;

use crate::policy::Policy;
use crate::time::Tick;

use super::limit::Stats;
use super::shared::LimitHandle;

/// What is known of one key.
pub(super) enum Entry<P: Policy> {
    /// No handle waits, so a state is enough.
    Idle(P::State),
    /// A handle waits, or the key is paused, or has parameters of its own.
    Active(Arc<LimitHandle<P>>),
}

impl<P: Policy> Entry<P> {
    /// Keeps nothing but the state, if nothing else is needed. Returns the limit, and adds up what it has counted.
    pub(super) fn make_idle(
        &mut self,
        now: Tick,
        counted: &mut Stats,
    ) -> Option<Arc<LimitHandle<P>>> {
        let Self::Active(limit) = self else {
            return None;
        };
        // The only handle is this one. No other can be made meanwhile: that takes the lock of the shard.
        if Arc::strong_count(limit) > 1 {
            return None;
        }
        let state = limit.with(|limit, _| limit.if_ordinary(now))?;
        counted.add(stats_of(limit));
        match core::mem::replace(self, Self::Idle(state)) {
            Self::Active(limit) => Some(limit),
            Self::Idle(_) => None,
        }
    }
}

pub(super) fn stats_of<P: Policy>(limit: &LimitHandle<P>) -> Stats {
    limit.with(|limit, waiters| Stats {
        waiting: waiters.len(),
        ..limit.stats
    })
}
