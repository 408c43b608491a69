use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use paceline::policy::{Decision, Policy, TokenBucket};
use paceline::time::Tick;

use super::credit::LARGE;

/// A bucket that may panic, once, and lets no request pass that costs more than so much.
#[derive(Clone, Debug)]
pub(super) struct Odd {
    panics: Arc<AtomicBool>,
    dearest: u32,
}

impl Odd {
    pub(super) fn up_to(dearest: u32) -> Self {
        Self {
            panics: Arc::default(),
            dearest,
        }
    }

    pub(super) fn panics_next(&self) {
        self.panics.store(true, Ordering::Relaxed);
    }
}

impl Policy for Odd {
    type State = <TokenBucket as Policy>::State;

    fn fresh(&self, now: Tick) -> Self::State {
        LARGE.fresh(now)
    }

    fn decide(&self, state: &mut Self::State, now: Tick, cost: u32) -> Decision {
        assert!(!self.panics.swap(false, Ordering::Relaxed), "once");
        if cost > self.dearest {
            return Decision::Never {
                capacity: self.dearest,
            };
        }
        LARGE.decide(state, now, cost)
    }

    fn credit(&self, state: &Self::State, now: Tick) -> u32 {
        LARGE.credit(state, now)
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: u32) {
        LARGE.refund(state, now, cost);
    }

    fn retune(&self, _old: &Self, state: &mut Self::State, now: Tick) {
        LARGE.retune(&LARGE, state, now);
    }

    fn settled_at(&self, state: &Self::State) -> Tick {
        LARGE.settled_at(state)
    }
}
