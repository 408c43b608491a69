//! `async-speed-limit`, which counts bytes: here one byte is one emission.

use async_speed_limit::Limiter;

use super::hot::{Hot, Part};
use super::paced::Paced;

pub(crate) const LIMITER: Paced = Paced {
    name: "async-speed-limit",
    run: |interval, mut tape| {
        Box::pin(async move {
            let mut builder = <Limiter>::builder(1.0 / interval.as_secs_f64());
            let limiter = builder.refill(interval).build();
            loop {
                limiter.consume(1).await;
                if !tape.goes_on_after_emission() {
                    return tape;
                }
            }
        })
    },
};

pub(super) const HOT: &[Hot] = &[Hot {
    part: Part::Waiting,
    name: "async-speed-limit consume",
    run: |n| {
        Box::pin(async move {
            let limiter = <Limiter>::new(1e18);
            for _ in 0..n {
                limiter.consume(1).await;
            }
        })
    },
}];
