//! Permits that the policy approves ahead of time, so that they pass without a clock reading and without a lock.
//!
//! A reading of the clock costs more than the decision itself. Where the policy allows it ([`Policy::credit`]), one
//! decision approves some permits in advance; what was taken of them is counted at the next reading.
//!
//! To count late is stricter: the bucket never holds more than it would have held. Windows that begin with their first
//! request are excluded, since a later count would move their borders. If the clock goes back, prefetched permits count as
//! of the reading that approved them. It is a thirty-second of the burst; at most 256, since more saves nothing; at least
//! 15, since of a small burst every permit counts. On tokio's paused clock nothing is prefetched, so tests see exact
//! instants. After a request that costs as much as a whole prefetch there is none.
//!
//! In a `Shared` limit one atomic has the permits that are left and the number of requests that took some. It is offered
//! under the lock, only when no waiter is queued, and every operation with the lock reclaims it first, except for a request
//! that finds a new offer when it has the lock, and takes of it. So a pause, new parameters or a new waiter finds every
//! permit that has passed. The clock is read after the reclaim, or a permit would be counted earlier than it passed. An
//! idle key has no prefetch: that would be memory for each key.

use core::sync::atomic::Ordering;

#[cfg(not(loom))]
use core::sync::atomic::AtomicU64;
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;

use crate::policy::Policy;
use crate::time::{Tick, is_real};
use crate::wait::Intent;

/// Approved permits of one owner, and those taken that are not counted yet.
#[derive(Clone, Debug)]
pub(super) struct Prefetch {
    left: u32,
    taken: u32,
    /// When they were approved.
    from: Tick,
}

impl Prefetch {
    pub(super) const fn new() -> Self {
        Self {
            left: 0,
            taken: 0,
            from: Tick::ZERO,
        }
    }

    /// Approves what the policy allows after a request of this cost has passed. Returns how many permits that is.
    ///
    /// None on a paused clock, where tests assert exact instants and would see that some are counted late.
    #[inline]
    pub(super) fn reserve<P: Policy>(
        &mut self,
        policy: &P,
        state: &P::State,
        now: Tick,
        cost: u32,
    ) -> u32 {
        let credit = policy.credit(state, now);
        // Less than another such request needs is of no use, and whether the clock is real takes two more readings.
        let is_useful = credit > cost && policy.peek(state, now, credit).is_pass() && is_real();
        self.left = if is_useful { credit } else { 0 };
        self.from = now;
        self.left
    }

    /// Whether `cost` permits are left. Cost 0 has to ask.
    #[inline]
    pub(super) const fn has(&self, cost: u32) -> bool {
        cost > 0 && cost <= self.left
    }

    #[inline]
    pub(super) const fn take(&mut self, cost: u32) -> bool {
        let is_left = self.has(cost);
        if is_left {
            self.left -= cost;
            self.taken += cost;
        }
        is_left
    }

    /// Counts the permits that were taken. `now` was read after that.
    #[inline]
    pub(super) fn commit<P: Policy>(&mut self, policy: &P, state: &mut P::State, now: Tick) {
        if self.taken > 0 {
            // In another runtime the clock may have gone back.
            let passed = policy.decide(state, now.max(self.from), self.taken);
            debug_assert!(
                passed.is_pass(),
                "prefetched permits pass whenever they are counted"
            );
            // If the policy panics, they are still to be counted.
            self.taken = 0;
        }
    }

    pub(super) const fn is_committed(&self) -> bool {
        self.taken == 0
    }
}

/// Approved permits that every thread may take without the lock of the limit. They are offered and reclaimed under it.
///
/// One number: the lower half is how many permits are left, the upper half how many requests have taken some. So a reclaim
/// sees exactly what was taken before, and nothing is taken after.
pub(super) struct SharedPrefetch(AtomicU64);

const REQUEST: u64 = 1 << 32;

impl Default for SharedPrefetch {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl SharedPrefetch {
    #[inline]
    pub(super) fn take(&self, intent: Intent, cost: u32) -> bool {
        let cost = u64::from(cost);
        let has = |offer: u64| cost > 0 && offer % REQUEST >= cost;
        match intent {
            Intent::Peek => has(self.0.load(Ordering::Acquire)),
            Intent::Acquire => {
                let take = |offer| has(offer).then(|| offer + REQUEST - cost);
                let taken = self
                    .0
                    .fetch_update(Ordering::AcqRel, Ordering::Relaxed, take);
                taken.is_ok()
            }
        }
    }

    /// Offers what `prefetch` has left. An earlier offer has been reclaimed.
    #[inline]
    pub(super) fn offer(&self, prefetch: &Prefetch) {
        if prefetch.left > 0 {
            self.0.store(prefetch.left.into(), Ordering::Release);
        }
    }

    /// Ends the offer, adds the permits that were taken to `prefetch`, and returns how many requests took them.
    #[inline]
    pub(super) fn reclaim(&self, prefetch: &mut Prefetch) -> u32 {
        if prefetch.left == 0 {
            return 0;
        }
        let offer = self.0.swap(0, Ordering::AcqRel);
        prefetch.taken += prefetch.left - halves(offer).0;
        prefetch.left = 0;
        halves(offer).1
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "each half is a number of its own"
)]
const fn halves(offer: u64) -> (u32, u32) {
    (offer as u32, (offer >> 32) as u32)
}

// A package of its own runs them: see `crates/models/`.
#[cfg(all(test, loom))]
mod tests {
    use loom::model::Builder;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::*;

    fn approved(permits: u32) -> Prefetch {
        Prefetch {
            left: permits,
            ..Prefetch::new()
        }
    }

    #[test]
    fn what_is_taken_is_not_there_any_more() {
        loom::model(|| {
            let shared = SharedPrefetch::default();
            let (take, has) = (
                |cost| shared.take(Intent::Acquire, cost),
                |cost| shared.take(Intent::Peek, cost),
            );
            assert!(!take(1));

            let mut prefetch = approved(10);
            shared.offer(&prefetch);
            assert!(take(4));
            assert!(!has(7) && !take(7));
            assert!(has(6) && take(6));
            assert!(!has(1) && !take(1));
            assert!(!has(0) && !take(0), "has to ask");

            assert_eq!(shared.reclaim(&mut prefetch), 2);
            assert_eq!((prefetch.left, prefetch.taken), (0, 10));
            assert_eq!(shared.reclaim(&mut prefetch), 0);
        });
    }

    #[test]
    fn all_of_the_largest_offer_can_be_taken() {
        loom::model(|| {
            let shared = SharedPrefetch::default();
            let mut prefetch = approved(u32::MAX);
            shared.offer(&prefetch);
            let take = |cost| shared.take(Intent::Acquire, cost);
            assert!(take(1) && take(u32::MAX - 1) && !take(1));
            shared.reclaim(&mut prefetch);
            assert_eq!(prefetch.taken, u32::MAX);
        });
    }

    /// A limit of a fixed number of permits, as the wait queue uses the offer.
    struct Limit {
        shared: SharedPrefetch,
        state: Mutex<State>,
    }

    struct State {
        left: u32,
        passed: u32,
        prefetch: Prefetch,
    }

    impl Limit {
        fn of(left: u32) -> Arc<Self> {
            Arc::new(Self {
                shared: SharedPrefetch::default(),
                state: Mutex::new(State {
                    left,
                    passed: 0,
                    prefetch: Prefetch::new(),
                }),
            })
        }

        fn asks(&self, cost: u32) -> u32 {
            if self.shared.take(Intent::Acquire, cost) {
                return 1;
            }
            let mut state = self.state.lock().unwrap();
            // The request that had the lock before may have made a new offer.
            if self.shared.take(Intent::Acquire, cost) {
                return 1;
            }
            self.commit(&mut state);
            let Some(left) = state.left.checked_sub(cost) else {
                return 0;
            };
            state.left = left;
            state.passed += 1;
            state.prefetch.left = left.min(2);
            self.shared.offer(&state.prefetch);
            1
        }

        fn commit(&self, state: &mut State) {
            state.passed += self.shared.reclaim(&mut state.prefetch);
            state.left -= core::mem::take(&mut state.prefetch.taken);
        }

        /// How many permits are left, and how many requests have passed.
        fn counts(&self) -> (u32, u32) {
            let mut state = self.state.lock().unwrap();
            self.commit(&mut state);
            (state.left, state.passed)
        }
    }

    #[test]
    fn in_every_order_no_more_pass_than_may_and_all_are_counted() {
        let mut model = Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let limit = Limit::of(5);
            assert_eq!(limit.asks(1), 1, "and offers some");
            let others = [2, 1].map(|cost| {
                let limit = Arc::clone(&limit);
                thread::spawn(move || cost * (limit.asks(cost) + limit.asks(cost)))
            });
            let counted = limit.counts().1;
            let spent: u32 = others.map(|other| other.join().unwrap()).into_iter().sum();

            let (left, passed) = limit.counts();
            assert_eq!(1 + spent + left, 5, "what is spent is counted");
            assert!(left == 0 || spent >= 3, "no request is refused for nothing");
            assert!(counted <= passed && passed <= 5);
        });
    }
}
