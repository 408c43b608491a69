//! `stream_throttle`, on tokio's timers.

use core::time::Duration;

use ::stream_throttle::{ThrottlePool, ThrottleRate, ThrottledStream};

use super::hot::{Hot, Part, drained, items};
use super::paced::{Paced, drain, source};

pub(crate) const THROTTLE: Paced = Paced {
    name: "stream_throttle",
    run: |interval, tape| {
        let pool = ThrottlePool::new(ThrottleRate::new(1, interval));
        Box::pin(drain(source().throttle(pool), tape))
    },
};

pub(super) const HOT: &[Hot] = &[Hot {
    part: Part::Stream,
    name: "stream_throttle, 1,000 slots of 1 ns",
    run: |n| {
        let pool = ThrottlePool::new(ThrottleRate::new(1_000, Duration::from_nanos(1)));
        drained(items(n).throttle(pool))
    },
}];
