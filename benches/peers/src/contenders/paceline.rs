//! The library itself.

use core::time::Duration;

use ::paceline::limiter;
use ::paceline::policy::{Interval, Policy, TokenBucket};
use ::paceline::prelude::*;
use ::paceline::time::{Rate, Resolution};

use super::crowd::{Bound, Contended, Crowd, Gathering, Ticket};
use super::keyed::{Ask, Keyed};
use super::paced::{Paced, drain, source};

pub(crate) const MIN_INTERVAL: Paced = Paced {
    name: "paceline min_interval",
    run: |interval, tape| Box::pin(drain(source().min_interval(interval), tape)),
};

/// The same, counted from when the consumer asks again.
pub(crate) const FROM_NEXT_POLL: Paced = Paced {
    name: "paceline min_interval, from_next_poll",
    run: |interval, tape| {
        let paced = source().min_interval(interval);
        Box::pin(drain(paced.with_count_from_next_poll(), tape))
    },
};

/// The same through a limit that could be shared.
pub(crate) const SHARED: Paced = Paced {
    name: "paceline pace, Shared",
    run: |interval, tape| {
        Box::pin(drain(
            source().pace(Interval::every(interval).shared()),
            tape,
        ))
    },
};

pub(crate) const KEYED_BUCKET: Keyed = Keyed {
    name: "paceline Keyed, TokenBucket",
    new: |limit| Box::new(TokenBucket::new(Rate::new(1, limit.per_token), limit.burst).keyed()),
};

/// Its tokens are not saved up: with a burst, only the first decision of each key is the same.
pub(crate) const KEYED_INTERVAL: Keyed = Keyed {
    name: "paceline Keyed, Interval",
    new: |limit| Box::new(Interval::every(limit.per_token).keyed()),
};

impl<P> Ask for limiter::Keyed<u64, P>
where
    P: Policy + Send + Sync + 'static,
    P::State: Send,
{
    fn ask(&self, key: u64, cost: u32) -> bool {
        self.try_acquire(&key, cost).is_pass()
    }

    fn keys(&self) -> usize {
        self.len()
    }

    fn tidy(&self) {
        self.forget_settled();
    }

    fn needs_tidying(&self) -> bool {
        true
    }
}

pub(crate) const SHARED_ACQUIRE: Contended = Contended {
    name: "paceline Shared::acquire",
    waits: true,
    run: |crowd, bound| acquired(crowd, bucket(bound).shared()),
};

/// It waits for tokio's timer, as a task that refills a semaphore does.
pub(crate) const MILLIS_ACQUIRE: Contended = Contended {
    name: "paceline Shared::acquire, Millis",
    waits: true,
    run: |crowd, bound| {
        let limit = bucket(bound).shared();
        acquired(crowd, limit.with_resolution(Resolution::Millis))
    },
};

fn acquired(crowd: Crowd, limit: limiter::Shared<TokenBucket>) -> Gathering {
    crowd.gather(limit, |limit, mut ticket: Ticket| async move {
        while ticket.goes_on() {
            assert!(ticket.wait(limit.acquire(1)).await.is_ok());
        }
    })
}

pub(crate) const SHARED_TRY: Contended = Contended {
    name: "paceline Shared::try_acquire",
    waits: false,
    run: |crowd, bound| {
        crowd.gather(
            bucket(bound).shared(),
            |limit, mut ticket: Ticket| async move {
                while ticket.goes_on() {
                    assert!(limit.try_acquire(1).is_pass());
                    ticket.granted();
                }
            },
        )
    },
};

/// Too small to hand out anything without a look at the clock.
pub(crate) const SMALL_SHARED_TRY: Contended = Contended {
    name: "paceline Shared::try_acquire, burst 100",
    waits: false,
    run: |crowd, _| {
        let fast = Rate::new(1_000, Duration::from_nanos(1));
        crowd.gather(
            TokenBucket::new(fast, 100).shared(),
            |limit, mut ticket: Ticket| async move {
                while ticket.goes_on() {
                    assert!(limit.try_acquire(1).is_pass());
                    ticket.granted();
                }
            },
        )
    },
};

/// Every task asks for a key of its own.
pub(crate) const KEYED_TRY: Contended = Contended {
    name: "paceline Keyed::try_acquire",
    waits: false,
    run: |crowd, bound| {
        crowd.gather(
            bucket(bound).keyed::<u64>(),
            |limit, mut ticket: Ticket| async move {
                let key = ticket.number();
                while ticket.goes_on() {
                    assert!(limit.try_acquire(&key, 1).is_pass());
                    ticket.granted();
                }
            },
        )
    },
};

const fn bucket(bound: Bound) -> TokenBucket {
    match bound {
        Bound::None => TokenBucket::new(Rate::per_second(1_000), u32::MAX),
        Bound::PerMillisecond(n) => TokenBucket::new(Rate::new(n, Duration::from_millis(1)), n),
    }
}
