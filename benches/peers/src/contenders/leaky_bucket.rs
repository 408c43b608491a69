//! `leaky-bucket`, fair as it is by default.

use core::time::Duration;
use std::sync::Arc;

use ::leaky_bucket::RateLimiter;

use super::crowd::{Bound, Contended, Ticket};
use super::hot::{Hot, Part, asked};
use super::paced::Paced;

pub(crate) const BUCKET: Paced = Paced {
    name: "leaky-bucket",
    run: |interval, mut tape| {
        Box::pin(async move {
            let mut builder = RateLimiter::builder();
            let bucket = builder.max(1).initial(1).refill(1).interval(interval);
            let bucket = bucket.build();
            loop {
                bucket.acquire_one().await;
                if !tape.goes_on_after_emission() {
                    return tape;
                }
            }
        })
    },
};

/// A limit that never binds.
fn unbound() -> RateLimiter {
    let mut builder = RateLimiter::builder();
    builder.max(MOST).initial(MOST).refill(MOST).build()
}

/// As many as it can hold without overflow.
const MOST: usize = 1 << 40;

pub(super) const HOT: &[Hot] = &[
    Hot {
        part: Part::Waiting,
        name: "leaky-bucket acquire_one",
        run: |n| {
            Box::pin(async move {
                let bucket = unbound();
                for _ in 0..n {
                    bucket.acquire_one().await;
                }
            })
        },
    },
    Hot {
        part: Part::Asking,
        name: "leaky-bucket try_acquire",
        run: |n| {
            let bucket = unbound();
            asked(n, move || bucket.try_acquire(1))
        },
    },
];

pub(crate) const ACQUIRE: Contended = Contended {
    name: "leaky-bucket acquire_one",
    waits: true,
    run: |crowd, bound| {
        crowd.gather(
            Arc::new(bounded(bound)),
            |limit, mut ticket: Ticket| async move {
                while ticket.goes_on() {
                    ticket.wait(limit.acquire_one()).await;
                }
            },
        )
    },
};

fn bounded(bound: Bound) -> RateLimiter {
    let Bound::PerMillisecond(n) = bound else {
        return unbound();
    };
    let n = n as usize;
    let mut builder = RateLimiter::builder();
    builder.interval(Duration::from_millis(1));
    builder.max(n).initial(n).refill(n).build()
}
