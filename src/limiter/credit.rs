use core::sync::atomic::{AtomicU64, Ordering};

use crate::policy::Policy;
use crate::time::{Tick, is_real};

/// What has passed on credit: without a look at the clock, and to be counted at the next one.
#[derive(Debug)]
pub(super) struct Tab {
    /// When the credit was given.
    from: Tick,
    spent: u32,
}

impl Tab {
    pub(super) const fn new() -> Self {
        Self {
            from: Tick::ZERO,
            spent: 0,
        }
    }

    /// So many permits may pass from `now` on, once a request of this cost did: what the policy gives, if that would pass all at
    /// once, as it is counted. None on a paused clock, which shows all that is counted late.
    #[inline]
    pub(super) fn open<P: Policy>(
        &mut self,
        policy: &P,
        state: &P::State,
        now: Tick,
        cost: u32,
    ) -> u32 {
        let credit = policy.credit(state, now);
        // It would be of no use to another request like this one, and to see that the clock is real takes two more looks.
        if credit <= cost || !policy.peek(state, now, credit).is_pass() || !is_real() {
            return 0;
        }
        self.from = now;
        credit
    }

    /// So many of them have passed.
    #[inline]
    pub(super) const fn put(&mut self, cost: u32) {
        self.spent += cost;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.spent == 0
    }

    /// Counts them. `now` was read after the last of them passed.
    #[inline]
    pub(super) fn settle<P: Policy>(&mut self, policy: &P, state: &mut P::State, now: Tick) {
        if self.spent > 0 {
            // In another runtime the clock may have gone back.
            let passed = policy.decide(state, now.max(self.from), self.spent);
            debug_assert!(
                passed.is_pass(),
                "credit is what passes whenever it is counted"
            );
            // Should the policy panic, they are still to be counted.
            self.spent = 0;
        }
    }
}

/// Credit that lies open for everybody: taken without a lock, given and called in under the lock of the limit.
///
/// One number: below the permits that are left, above how many requests have taken some. So whoever calls it in knows exactly
/// who came before, and nobody comes after.
#[derive(Debug)]
pub(super) struct Credit<N = AtomicU64>(pub(super) N);

/// What was taken of a credit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Taken {
    pub(super) permits: u32,
    pub(super) requests: u32,
}

const REQUEST: u64 = 1 << 32;

impl Credit {
    pub(super) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl<N: Number> Credit<N> {
    /// Whether `cost` permits were left. Cost 0 takes nothing, and has to ask.
    #[inline]
    pub(super) fn take(&self, cost: u32) -> bool {
        let cost = u64::from(cost);
        self.0.change(|credit| {
            let is_left = cost > 0 && credit % REQUEST >= cost;
            is_left.then(|| credit + REQUEST - cost)
        })
    }

    /// Whether [`take`](Self::take) would do.
    #[inline]
    pub(super) fn is_left(&self, cost: u32) -> bool {
        cost > 0 && lower(self.0.now()) >= cost
    }

    /// So many lie open from now on; those that did before have been called in.
    pub(super) fn give(&self, permits: u32) {
        self.0.set(permits.into());
    }

    /// Nobody takes of it any more. `given` is how much there was.
    pub(super) fn call_in(&self, given: u32) -> Taken {
        let credit = self.0.clear();
        Taken {
            permits: given - lower(credit),
            requests: lower(credit >> 32),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the other half is not meant"
)]
const fn lower(number: u64) -> u32 {
    number as u32
}

/// A number that threads share. `models/credit.rs` has an implementation that tries every order.
pub(super) trait Number {
    fn now(&self) -> u64;
    /// Changes it as `change` says, if that says anything.
    fn change(&self, change: impl Fn(u64) -> Option<u64>) -> bool;
    fn set(&self, number: u64);
    /// Makes it zero, and says what it was.
    fn clear(&self) -> u64;
}

macro_rules! number {
    ($atomic:ty) => {
        impl Number for $atomic {
            #[inline]
            fn now(&self) -> u64 {
                self.load(Ordering::Acquire)
            }

            #[inline]
            fn change(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
                let changed = self.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change);
                changed.is_ok()
            }

            #[inline]
            fn set(&self, number: u64) {
                self.store(number, Ordering::Release);
            }

            #[inline]
            fn clear(&self) -> u64 {
                self.swap(0, Ordering::AcqRel)
            }
        }
    };
}

number!(AtomicU64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_not_there_any_more() {
        let credit = Credit::none();
        assert!(!credit.take(1));

        credit.give(10);
        assert!(credit.take(4));
        assert!(!credit.is_left(7) && !credit.take(7));
        assert!(credit.is_left(6) && credit.take(6));
        assert!(!credit.is_left(1) && !credit.take(1));
        assert!(!credit.is_left(0) && !credit.take(0), "has to ask");

        let all = Taken {
            permits: 10,
            requests: 2,
        };
        assert_eq!(credit.call_in(10), all);
        assert_eq!(credit.call_in(0), Taken::default());
    }

    #[test]
    fn all_of_the_largest_credit_can_be_taken() {
        let credit = Credit::none();
        credit.give(u32::MAX);
        assert!(credit.take(1) && credit.take(u32::MAX - 1) && !credit.take(1));
        assert_eq!(credit.call_in(u32::MAX).permits, u32::MAX);
    }
}
