//! `tower`'s `RateLimit`, around a service that does nothing.

use core::convert::Infallible;
use core::future::{Ready, poll_fn, ready};
use core::task::{Context, Poll};
use core::time::Duration;

use ::tower::Service;
use ::tower::limit::RateLimit;
use ::tower::limit::rate::Rate;

use super::hot::{Hot, Part};
use super::paced::Paced;

pub(crate) const RATE_LIMIT: Paced = Paced {
    name: "tower RateLimit",
    run: |interval, mut tape| {
        Box::pin(async move {
            let mut limit = RateLimit::new(Nothing, Rate::new(1, interval));
            loop {
                let Ok(()) = poll_fn(|cx| limit.poll_ready(cx)).await;
                let Ok(()) = limit.call(()).await;
                if !tape.goes_on_after_emission() {
                    return tape;
                }
            }
        })
    },
};

/// A service that is always ready and does nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nothing;

impl Service<()> for Nothing {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(()))
    }
}

pub(super) const HOT: &[Hot] = &[Hot {
    part: Part::Waiting,
    name: "tower RateLimit",
    run: |n| {
        Box::pin(async move {
            let rate = Rate::new(u64::MAX, Duration::from_secs(3600));
            let mut limit = RateLimit::new(Nothing, rate);
            for _ in 0..n {
                let Ok(()) = poll_fn(|cx| limit.poll_ready(cx)).await;
                let Ok(()) = limit.call(()).await;
            }
        })
    },
}];
