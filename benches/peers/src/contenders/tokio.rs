//! What tokio and its stream crate have.

use core::time::Duration;
use std::sync::Arc;

use ::tokio::sync::Semaphore;
use ::tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tokio_stream::StreamExt;

use super::crowd::{Bound, Contended, Ticket};
use super::hot::{Hot, Part, asked, drained, items};
use super::paced::{Paced, Running, Tape, drain, source};

pub(crate) const THROTTLE: Paced = Paced {
    name: "tokio-stream throttle",
    run: |interval, tape| Box::pin(drain(source().throttle(interval), tape)),
};

/// The default: catches up.
pub(crate) const INTERVAL_BURST: Paced = Paced {
    name: "tokio Interval, Burst",
    run: |every, tape| ticks(every, MissedTickBehavior::Burst, tape),
};

pub(crate) const INTERVAL_DELAY: Paced = Paced {
    name: "tokio Interval, Delay",
    run: |every, tape| ticks(every, MissedTickBehavior::Delay, tape),
};

fn ticks(every: Duration, behaviour: MissedTickBehavior, mut tape: Tape) -> Running {
    Box::pin(async move {
        let mut interval: Interval = interval(every);
        interval.set_missed_tick_behavior(behaviour);
        loop {
            interval.tick().await;
            if !tape.goes_on_after_emission() {
                return tape;
            }
        }
    })
}

pub(super) const HOT: &[Hot] = &[
    Hot {
        part: Part::Stream,
        name: "tokio-stream throttle, zero",
        run: |n| drained(items(n).throttle(Duration::ZERO)),
    },
    Hot {
        part: Part::Waiting,
        name: "tokio Semaphore::acquire",
        run: |n| {
            Box::pin(async move {
                let semaphore = Semaphore::new(10);
                for _ in 0..n {
                    drop(semaphore.acquire().await);
                }
            })
        },
    },
    Hot {
        part: Part::Asking,
        name: "tokio Semaphore::try_acquire",
        run: |n| {
            let semaphore = Semaphore::new(10);
            asked(n, move || semaphore.try_acquire().is_ok())
        },
    },
    Hot {
        part: Part::Clocks,
        name: "std Instant::now",
        run: |n| {
            let start = std::time::Instant::now();
            asked(n, move || std::time::Instant::now() >= start)
        },
    },
    Hot {
        part: Part::Clocks,
        name: "tokio Instant::now",
        run: |n| {
            let start = Instant::now();
            asked(n, move || Instant::now() >= start)
        },
    },
];

/// With a bound, a task adds permits at each tick, and they are not given back.
pub(crate) const SEMAPHORE: Contended = Contended {
    name: "tokio Semaphore, refilled by a task",
    waits: true,
    run: |crowd, bound| {
        let Bound::PerMillisecond(n) = bound else {
            let semaphore = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
            return crowd.gather(semaphore, take);
        };
        let semaphore = Arc::new(Semaphore::new(n as usize));
        let refilled = Arc::downgrade(&semaphore);
        ::tokio::spawn(async move {
            let mut interval = interval(Duration::from_millis(1));
            interval.tick().await;
            while let Some(semaphore) = refilled.upgrade() {
                interval.tick().await;
                let room = (n as usize).saturating_sub(semaphore.available_permits());
                semaphore.add_permits(room);
            }
        });
        crowd.gather(semaphore, take)
    },
};

async fn take(semaphore: Arc<Semaphore>, mut ticket: Ticket) {
    while ticket.goes_on() {
        let permit = ticket.wait(semaphore.acquire()).await;
        permit.expect("it is never closed").forget();
    }
}
