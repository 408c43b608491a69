//! Permits that requests take without the lock of a queue.
//!
//! They are offered under the lock, only when no waiter is queued, and every operation with the lock reclaims them first, except
//! for a request that finds a new offer when it has the lock, and takes of it. So a pause, new parameters or a new waiter finds
//! every permit that was taken, and a permit that comes back later goes through the lock.

use core::sync::atomic::Ordering;

#[cfg(not(loom))]
use core::sync::atomic::AtomicU64;
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;

use super::Intent;

/// One number: the lower half is how many permits are left, then a bit whether there is an offer, then how many requests have
/// taken of it. So a reclaim sees exactly what was taken before, and nothing is taken after.
#[derive(Default)]
pub(crate) struct Offer(AtomicU64);

const BEGUN: u64 = 1 << 32;
const REQUEST: u64 = 1 << 33;

impl Offer {
    /// Takes `cost` permits, or only checks whether it could. Cost 0 has to ask.
    #[inline]
    pub(crate) fn take(&self, intent: Intent, cost: u32) -> bool {
        let cost = u64::from(cost);
        let has = |offer: u64| cost > 0 && offer % BEGUN >= cost;
        match intent {
            Intent::Peek => has(self.0.load(Ordering::Acquire)),
            Intent::Acquire => self.change(|offer| {
                // Without room for the count, it has to ask.
                let taken = offer.checked_add(REQUEST - cost);
                taken.filter(|_| has(offer))
            }),
        }
    }

    /// Gives permits back, if they were taken of this offer or are among those that it counts on.
    #[inline]
    pub(crate) fn give_back(&self, count: u32) -> bool {
        self.change(|offer| (offer & BEGUN > 0).then(|| offer + u64::from(count)))
    }

    #[inline]
    fn change(&self, change: impl FnMut(u64) -> Option<u64>) -> bool {
        let changed = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, change);
        changed.is_ok()
    }

    /// An earlier offer has ended.
    #[inline]
    pub(crate) fn begin(&self, permits: u32) {
        self.0.store(BEGUN | u64::from(permits), Ordering::Release);
    }

    /// Returns how many permits are left, and how many requests have taken of them.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each part is a number of its own"
    )]
    #[inline]
    pub(crate) fn end(&self) -> (u32, u32) {
        let offer = self.0.swap(0, Ordering::AcqRel);
        (offer as u32, (offer >> 33) as u32)
    }
}

// A package of its own runs them: see `crates/models/`.
#[cfg(all(test, loom))]
mod tests {
    use loom::model::Builder;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::*;

    #[test]
    fn what_is_taken_is_not_there_any_more() {
        loom::model(|| {
            let offer = Offer::default();
            let (take, has) = (
                |cost| offer.take(Intent::Acquire, cost),
                |cost| offer.take(Intent::Peek, cost),
            );
            assert!(!take(1) && !offer.give_back(1));

            offer.begin(10);
            assert!(take(4));
            assert!(!has(7) && !take(7));
            assert!(has(6) && take(6));
            assert!(!has(1) && !take(1));
            assert!(!has(0) && !take(0), "has to ask");
            assert!(offer.give_back(3) && take(2));

            assert_eq!(offer.end(), (1, 3));
            assert_eq!(offer.end(), (0, 0));
            assert!(!take(1) && !offer.give_back(1));
        });
    }

    #[test]
    fn all_of_the_largest_offer_can_be_taken() {
        loom::model(|| {
            let offer = Offer::default();
            offer.begin(u32::MAX);
            let take = |cost| offer.take(Intent::Acquire, cost);
            assert!(take(1) && take(u32::MAX - 1) && !take(1));
            assert!(offer.give_back(u32::MAX) && take(u32::MAX));
            assert_eq!(offer.end(), (0, 3));
        });
    }

    #[test]
    fn who_finds_no_room_for_the_count_has_to_ask() {
        loom::model(|| {
            let offer = Offer::default();
            offer.0.store(u64::MAX, Ordering::Release);
            assert!(!offer.take(Intent::Acquire, 1));
            assert_eq!(offer.end(), (u32::MAX, u32::MAX >> 1));
        });
    }

    /// A limit of a fixed number of permits, as the wait queue uses the offer.
    struct Limit {
        offer: Offer,
        state: Mutex<State>,
    }

    struct State {
        left: u32,
        passed: u32,
        offered: Option<u32>,
    }

    impl Limit {
        fn of(left: u32) -> Arc<Self> {
            Arc::new(Self {
                offer: Offer::default(),
                state: Mutex::new(State {
                    left,
                    passed: 0,
                    offered: None,
                }),
            })
        }

        fn asks(&self, cost: u32) -> u32 {
            if self.offer.take(Intent::Acquire, cost) {
                return 1;
            }
            let mut state = self.state.lock().unwrap();
            // The request that had the lock before may have made a new offer.
            if self.offer.take(Intent::Acquire, cost) {
                return 1;
            }
            self.reclaim(&mut state);
            let Some(left) = state.left.checked_sub(cost) else {
                return 0;
            };
            state.left = left;
            state.passed += 1;
            let offered = left.min(2);
            state.offered = Some(offered);
            self.offer.begin(offered);
            1
        }

        fn gives_back(&self, count: u32) {
            if !self.offer.give_back(count) {
                let mut state = self.state.lock().unwrap();
                self.reclaim(&mut state);
                state.left += count;
            }
        }

        fn reclaim(&self, state: &mut State) {
            if let Some(offered) = state.offered.take() {
                let (left, requests) = self.offer.end();
                state.left = state.left + left - offered;
                state.passed += requests;
            }
        }

        /// How many permits are left, and how many requests have passed.
        fn counts(&self) -> (u32, u32) {
            let mut state = self.state.lock().unwrap();
            self.reclaim(&mut state);
            (state.left, state.passed)
        }
    }

    fn in_every_order(check: fn()) {
        let mut model = Builder::new();
        model.preemption_bound = Some(3);
        model.check(check);
    }

    #[test]
    fn in_every_order_no_more_pass_than_may_and_all_are_counted() {
        in_every_order(|| {
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

    #[test]
    fn in_every_order_what_is_given_back_is_there_again() {
        in_every_order(|| {
            let limit = Limit::of(2);
            assert_eq!(limit.asks(1), 1, "and offers the other");
            let other = {
                let limit = Arc::clone(&limit);
                thread::spawn(move || {
                    let passed = limit.asks(1);
                    limit.gives_back(passed);
                    passed + limit.asks(1)
                })
            };
            limit.gives_back(1);
            let (left, _) = limit.counts();
            assert!((1..=2).contains(&left), "{left}");
            assert_eq!(other.join().unwrap(), 2, "there is always one for it");
            assert_eq!(limit.counts(), (1, 3));
        });
    }
}
