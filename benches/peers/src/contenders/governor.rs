//! `governor`, with the clock it comes with.

use core::num::NonZeroU32;
use core::time::Duration;
use std::sync::Arc;

use ::governor::clock::Clock;
use ::governor::middleware::NoOpMiddleware;
use ::governor::state::StreamRateLimitExt;
use ::governor::state::keyed::ShrinkableKeyedStateStore;
use ::governor::{Quota, RateLimiter};
use futures::StreamExt;

use super::crowd::{Bound, Contended, Ticket};
use super::hot::{Hot, Part, asked, items};
use super::keyed::{Ask, Keyed, KeyedLimit};
use super::paced::{Paced, drain, source};

pub(crate) const STREAM: Paced = Paced {
    name: "governor stream",
    run: |interval, tape| {
        Box::pin(async move {
            let quota = Quota::with_period(interval).expect("an interval is not zero");
            let limiter = RateLimiter::direct(quota.allow_burst(NonZeroU32::MIN));
            drain(source().ratelimit_stream(&limiter), tape).await
        })
    },
};

pub(crate) const KEYED_DASHMAP: Keyed = Keyed {
    name: "governor, DashMap",
    new: |limit| Box::new(RateLimiter::dashmap(quota(limit))),
};

pub(crate) const KEYED_HASHMAP: Keyed = Keyed {
    name: "governor, HashMap",
    new: |limit| Box::new(RateLimiter::hashmap(quota(limit))),
};

fn quota(limit: KeyedLimit) -> Quota {
    let burst = NonZeroU32::new(limit.burst).expect("a burst of at least 1");
    Quota::with_period(limit.per_token)
        .expect("a token takes longer than nothing")
        .allow_burst(burst)
}

impl<S, C> Ask for RateLimiter<u64, S, C, NoOpMiddleware<C::Instant>>
where
    S: ShrinkableKeyedStateStore<u64> + Send + Sync,
    C: Clock + Send + Sync,
    C::Instant: Send + Sync,
{
    fn ask(&self, key: u64, cost: u32) -> bool {
        let cost = NonZeroU32::new(cost).expect("a cost of at least 1");
        if cost.get() == 1 {
            self.check_key(&key).is_ok()
        } else {
            self.check_key_n(&key, cost).is_ok_and(|fits| fits.is_ok())
        }
    }

    fn keys(&self) -> usize {
        self.len()
    }

    fn tidy(&self) {
        self.retain_recent();
        self.shrink_to_fit();
    }

    fn needs_tidying(&self) -> bool {
        true
    }
}

/// A limit that never binds.
fn unbound() -> Quota {
    bounded(Bound::None)
}

fn bounded(bound: Bound) -> Quota {
    match bound {
        Bound::None => Quota::with_period(Duration::from_millis(1))
            .map(|quota| quota.allow_burst(NonZeroU32::MAX))
            .expect("a millisecond is not zero"),
        Bound::PerMillisecond(n) => Quota::with_period(Duration::from_millis(1) / n)
            .zip(NonZeroU32::new(n))
            .map(|(quota, n)| quota.allow_burst(n))
            .expect("a millisecond holds some"),
    }
}

pub(super) const HOT: &[Hot] = &[
    Hot {
        part: Part::Stream,
        name: "governor stream",
        run: |n| {
            Box::pin(async move {
                let limiter = RateLimiter::direct(unbound());
                let mut stream = items(n).ratelimit_stream(&limiter);
                while stream.next().await.is_some() {}
            })
        },
    },
    Hot {
        part: Part::Waiting,
        name: "governor until_ready",
        run: |n| {
            Box::pin(async move {
                let limiter = RateLimiter::direct(unbound());
                for _ in 0..n {
                    limiter.until_ready().await;
                }
            })
        },
    },
    Hot {
        part: Part::Waiting,
        name: "governor until_key_ready, one key, DashMap",
        run: |n| {
            Box::pin(async move {
                let limiter = RateLimiter::dashmap(unbound());
                for _ in 0..n {
                    limiter.until_key_ready(&1_u64).await;
                }
            })
        },
    },
    Hot {
        part: Part::Asking,
        name: "governor check",
        run: |n| {
            let limiter = RateLimiter::direct(unbound());
            asked(n, move || limiter.check().is_ok())
        },
    },
    Hot {
        part: Part::Asking,
        name: "governor check_key, one key, DashMap",
        run: |n| {
            let limiter = RateLimiter::dashmap(unbound());
            asked(n, move || limiter.check_key(&1_u64).is_ok())
        },
    },
];

pub(crate) const UNTIL_READY: Contended = Contended {
    name: "governor until_ready",
    waits: true,
    run: |crowd, bound| {
        let limit = Arc::new(RateLimiter::direct(bounded(bound)));
        crowd.gather(limit, |limit, mut ticket: Ticket| async move {
            while ticket.goes_on() {
                ticket.wait(limit.until_ready()).await;
            }
        })
    },
};

pub(crate) const CHECK: Contended = Contended {
    name: "governor check",
    waits: false,
    run: |crowd, bound| {
        let limit = Arc::new(RateLimiter::direct(bounded(bound)));
        crowd.gather(limit, |limit, mut ticket: Ticket| async move {
            while ticket.goes_on() {
                assert!(limit.check().is_ok());
                ticket.granted();
            }
        })
    },
};

/// Every task asks for a key of its own.
pub(crate) const CHECK_KEY: Contended = Contended {
    name: "governor check_key, DashMap",
    waits: false,
    run: |crowd, bound| {
        let limit = Arc::new(RateLimiter::dashmap(bounded(bound)));
        crowd.gather(limit, |limit, mut ticket: Ticket| async move {
            let key = ticket.number();
            while ticket.goes_on() {
                assert!(limit.check_key(&key).is_ok());
                ticket.granted();
            }
        })
    },
};
