use crate::time::Tick;

use super::Policy;

/// Of a small burst every permit counts: from it nothing is handed out between two looks at the clock.
const LEAST: u32 = 15;

/// More would save nothing.
const MOST: u32 = 256;

/// The part of a limit that they are at most: so much of it may be missing after a long pause.
const OF_LIMIT: u32 = 32;

/// The [`credit`](Policy::credit) of a policy that lets at most `limit` pass at once, and in which what passes now would pass
/// later too: a few of those that are there.
#[inline]
pub(super) fn credit_of<P: Policy>(policy: &P, state: &P::State, now: Tick, limit: u32) -> u32 {
    let credit = (limit / OF_LIMIT).min(MOST);
    if credit < LEAST || !policy.peek(state, now, credit).is_pass() {
        return 0;
    }
    credit
}
