use std::sync::{Arc, Mutex};

use paceline::policy::{Decision, Policy};
use paceline::time::Tick;

/// Lets everything pass, ten of it on credit, and notes when what was counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted {
    counted: Arc<Mutex<Vec<(Tick, u32)>>>,
}

impl Noted {
    pub(super) fn counted(&self) -> Vec<(Tick, u32)> {
        self.counted.lock().unwrap().clone()
    }
}

impl Policy for Noted {
    type State = ();

    fn fresh(&self, _now: Tick) {}

    fn decide(&self, (): &mut (), now: Tick, cost: u32) -> Decision {
        self.counted.lock().unwrap().push((now, cost));
        Decision::Pass
    }

    fn peek(&self, (): &(), _now: Tick, _cost: u32) -> Decision {
        Decision::Pass
    }

    fn credit(&self, (): &(), _now: Tick) -> u32 {
        10
    }

    fn refund(&self, (): &mut (), _now: Tick, _cost: u32) {}

    fn retune(&self, _old: &Self, (): &mut (), _now: Tick) {}

    fn settled_at(&self, (): &()) -> Tick {
        Tick::MAX
    }
}
