use crate::time::Tick;

use super::{Decision, Policy};

/// No limit: every request passes at once.
///
/// For a limit that is optional in a configuration. **Window bound**: none.
///
/// ```
/// use paceline::policy::{Decision, Policy, Unlimited};
/// use paceline::time::Tick;
///
/// assert_eq!(Unlimited.decide(&mut (), Tick::ZERO, u32::MAX), Decision::Pass);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "no limit has no parameters")]
pub struct Unlimited;

impl Policy for Unlimited {
    type State = ();

    fn fresh(&self, _now: Tick) {}

    fn decide(&self, _state: &mut (), _now: Tick, _cost: u32) -> Decision {
        Decision::Pass
    }

    fn credit(&self, _state: &(), _now: Tick) -> u32 {
        u32::MAX
    }

    fn room(&self, _state: &(), _now: Tick) -> u32 {
        u32::MAX
    }

    fn refund(&self, _state: &mut (), _now: Tick, _cost: u32) {}

    fn charge(&self, _state: &mut (), _now: Tick, _cost: u32) {}

    fn retune(&self, _old: &Self, _state: &mut (), _now: Tick) {}

    fn settled_at(&self, _state: &()) -> Tick {
        Tick::ZERO
    }
}
