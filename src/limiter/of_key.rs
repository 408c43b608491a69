use std::sync::Arc;

use crate::line::Place;
use crate::policy::Policy;
use crate::time::Tick;

use super::desk::After;
use super::limit::Limit;
use super::{Mode, Shared, Stats};

/// What a [`Keyed`](super::Keyed) limit asks of the limit of one of its keys.
impl<P: Policy> Shared<P> {
    /// Whether it was let look, and comes before those who joined later.
    pub(super) const fn keeps_a_place(&self) -> bool {
        matches!(self.place, Place::Kept(_))
    }

    /// The state and what was counted, if this is the only handle of a limit that is not paused.
    pub(super) fn if_sole_and_not_paused(&self, now: Tick) -> Option<(P::State, Stats)> {
        let is_sole = Arc::strong_count(&self.booth) == 1;
        self.locked(|desk, _| {
            let counted = desk.stats();
            let limit = desk.limit()?;
            let state = limit.state().filter(|_| is_sole && !limit.is_paused(now));
            state.map(|state| (state.clone(), counted))
        })
    }

    /// The limit of another key, in the memory of one for which nobody waits and that nobody else has.
    pub(super) fn renewed(self, limit: Limit<P>) -> Self {
        drop(self.locked(|desk, _| desk.renew(limit)));
        self
    }

    /// From when on a fresh one would answer alike, if nobody asks before.
    pub(super) fn settled_at(&self) -> Tick {
        self.locked(|desk, _| desk.limit().map_or(Tick::MAX, Limit::settled_at))
    }

    /// [`set_mode`](Self::set_mode), under the lock of all the keys: whom to wake is for the caller, when that is released.
    pub(super) fn set_mode_later(&self, mode: Mode) -> After {
        self.booth
            .work_later(|desk, after| desk.set_mode(mode, after))
    }
}
