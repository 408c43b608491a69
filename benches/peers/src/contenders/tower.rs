//! `tower`'s own limits, around a service that does nothing.

use core::convert::Infallible;
use core::future::{Ready, poll_fn, ready};
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use ::tokio::sync::Semaphore;
use ::tower::Service;
use ::tower::buffer::Buffer;
use ::tower::limit::rate::Rate;
use ::tower::limit::{ConcurrencyLimit, RateLimit};
use ::tower::load_shed::LoadShed;
use ::tower::load_shed::future::ResponseFuture;
use http::Request;

use super::crowd::Contended;
use super::hot::{Hot, Part};
use super::paced::Paced;
use super::served::{HOUR, Hello, anonymous, contended, direct, hot, passed, refused};

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

const BUFFERED: &str = "tower RateLimit in a Buffer";
const LIMITED: &str = "tower ConcurrencyLimit";

/// Requests that the task behind the buffer has not taken yet.
const WAITING: usize = 1_024;

/// `RateLimit` is not `Clone`; in a buffer it is shared.
fn buffered() -> Buffer<Request<()>, <Hello as Service<Request<()>>>::Future> {
    Buffer::new(RateLimit::new(Hello, unbound()), WAITING)
}

const fn unbound() -> Rate {
    Rate::new(u64::MAX, HOUR)
}

type Shed = ResponseFuture<<Hello as Service<Request<()>>>::Future>;

fn shedding() -> Buffer<Request<()>, Shed> {
    let limit = RateLimit::new(Hello, Rate::new(1, HOUR));
    Buffer::new(LoadShed::new(limit), WAITING)
}

pub(super) const SERVED: &[Hot] = &[
    hot(Part::Direct, BUFFERED, |n| {
        Box::pin(async move { passed(n, buffered(), anonymous).await })
    }),
    hot(Part::Direct, "tower RateLimit, of one caller", |n| {
        passed(n, RateLimit::new(Hello, unbound()), anonymous)
    }),
    hot(
        Part::DirectRefused,
        "tower RateLimit and LoadShed in a Buffer",
        |n| Box::pin(async move { refused(n, shedding(), anonymous).await }),
    ),
    hot(Part::UnderWay, LIMITED, |n| {
        passed(n, ConcurrencyLimit::new(Hello, 10), anonymous)
    }),
    hot(
        Part::UnderWayRefused,
        "tower ConcurrencyLimit and LoadShed",
        |n| {
            let taken = Arc::new(Semaphore::new(0));
            let limit = ConcurrencyLimit::with_semaphore(Hello, taken);
            refused(n, LoadShed::new(limit), anonymous)
        },
    ),
];

pub(crate) const AT_ONCE: Contended = contended(BUFFERED, |crowd, _| {
    Box::pin(async move { direct(crowd, buffered()).await })
});
