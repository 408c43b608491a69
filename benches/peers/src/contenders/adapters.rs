//! Every adapter of `paceline`, with limits that do not bind.

use core::future::ready;
use core::pin::pin;
use core::time::Duration;

use ::paceline::concurrency::Permits;
use ::paceline::limiter::{FairQueue, Keyed, Owned, Shared};
use ::paceline::policy::{
    FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket, Unlimited,
};
use ::paceline::prelude::*;
use ::paceline::time::Rate;
use ::tokio::io::{AsyncReadExt, AsyncWriteExt, repeat, sink};
use futures::future::join_all;
use futures::sink::drain;
use futures::{StreamExt, poll};

use super::hot::{Hot, Part, Work, asked, drained, filled, items};

const HOUR: Duration = Duration::from_secs(3600);
const GROUP: usize = 100;
const WEIGHT: u64 = 100;
const SLICE: usize = 8 * 1024;

/// A bucket so large that it never binds, and that no key settles during the measurement.
const fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_second(1_000), u32::MAX)
}

/// It never binds either, for bytes.
const fn bandwidth() -> TokenBucket {
    TokenBucket::new(Rate::new(u32::MAX, Duration::from_nanos(1)), u32::MAX)
}

/// No two readings of the clock are so near.
const fn interval() -> Interval {
    Interval::every(Duration::from_nanos(1))
}

/// It is as good as full again at each reading, and too small to hand out anything between two of them.
const fn small_bucket() -> TokenBucket {
    TokenBucket::new(Rate::new(1_000, Duration::from_nanos(1)), 100)
}

fn owned() -> Owned<TokenBucket> {
    bucket().owned()
}

fn shared() -> Shared<TokenBucket> {
    bucket().shared()
}

fn keyed() -> Keyed<u64, TokenBucket> {
    bucket().keyed()
}

pub(super) const ALL: &[Hot] = &[
    stream("bare stream", |n| drained(items(n))),
    stream("paceline pace, Owned Unlimited", |n| {
        drained(items(n).pace(Unlimited.owned()))
    }),
    stream("paceline pace, Owned Interval", |n| {
        drained(items(n).pace(interval().owned()))
    }),
    stream("paceline pace, Owned TokenBucket", |n| {
        drained(items(n).pace(owned()))
    }),
    stream("paceline pace, Owned TokenBucket, burst 100", |n| {
        drained(items(n).pace(small_bucket().owned()))
    }),
    stream("paceline pace, Shared Interval", |n| {
        drained(items(n).pace(interval().shared()))
    }),
    stream("paceline pace, Shared TokenBucket", |n| {
        drained(items(n).pace(shared()))
    }),
    stream("paceline pace, Shared TokenBucket, burst 100", |n| {
        drained(items(n).pace(small_bucket().shared()))
    }),
    hot(
        Part::Waiting,
        "paceline Shared::acquire, TokenBucket",
        |n| acquired(n, shared()),
    ),
    hot(
        Part::Waiting,
        "paceline Shared::acquire, TokenBucket, burst 100",
        |n| acquired(n, small_bucket().shared()),
    ),
    hot(Part::Waiting, "paceline Shared, a grant in a queue", |n| {
        let limit = shared();
        queued(n, limit.clone(), move |_| limit.acquire_owned(1))
    }),
    hot(
        Part::Waiting,
        "paceline FairQueue, a grant in a queue, one key",
        |n| {
            let limit = FairQueue::new(bucket());
            queued(n, limit.limit().clone(), move |_| limit.acquire(1, 1))
        },
    ),
    hot(
        Part::Waiting,
        "paceline FairQueue, a grant in a queue, 1,000 keys",
        |n| {
            let limit = FairQueue::new(bucket());
            queued(n, limit.limit().clone(), move |key| {
                limit.acquire(key % 1_000, 1)
            })
        },
    ),
    hot(Part::Waiting, "paceline Keyed::acquire, one key", |n| {
        Box::pin(async move {
            let limit = keyed();
            for _ in 0..n {
                assert!(limit.acquire(1, 1).await.is_ok());
            }
        })
    }),
    hot(Part::Waiting, "paceline Permits::acquire", |n| {
        Box::pin(async move {
            let permits = Permits::new(10);
            for _ in 0..n {
                drop(permits.acquire().await);
            }
        })
    }),
    hot(
        Part::Asking,
        "paceline Shared::try_acquire, Interval",
        |n| {
            let limit = interval().shared();
            asked(n, move || limit.try_acquire(1).is_pass())
        },
    ),
    hot(
        Part::Asking,
        "paceline Shared::try_acquire, TokenBucket",
        |n| {
            let limit = shared();
            asked(n, move || limit.try_acquire(1).is_pass())
        },
    ),
    hot(
        Part::Asking,
        "paceline Shared::try_acquire, TokenBucket, burst 100",
        |n| {
            let limit = small_bucket().shared();
            asked(n, move || limit.try_acquire(1).is_pass())
        },
    ),
    hot(Part::Asking, "paceline Keyed::try_acquire, one key", |n| {
        let limit = keyed();
        asked(n, move || limit.try_acquire(&1, 1).is_pass())
    }),
    hot(Part::Asking, "paceline Permits::try_acquire", |n| {
        let permits = Permits::new(10);
        asked(n, move || permits.try_acquire().is_some())
    }),
    own("bare stream", |n| drained(items(n))),
    own("stream/pace, Owned SlidingCounter", |n| {
        let policy = SlidingCounter::strict(u32::MAX, HOUR, 60);
        drained(items(n).pace(policy.owned()))
    }),
    own("stream/pace, Owned FixedWindow", |n| {
        drained(items(n).pace(FixedWindow::new(u32::MAX, HOUR).owned()))
    }),
    own("stream/pace, Owned SlidingLog", |n| {
        let policy = SlidingLog::new(1_000, Duration::from_micros(1));
        drained(items(n).pace(policy.owned()))
    }),
    own("stream/pace, Keyed", |n| {
        drained(items(n).pace(keyed().at(1)))
    }),
    own("stream/pace_by_cost, Owned", |n| {
        drained(items(n).pace_by_cost(owned(), |_| 1))
    }),
    own("stream/pace_by_cost, Shared", |n| {
        drained(items(n).pace_by_cost(shared(), |_| 1))
    }),
    own("stream/pace_batches, Owned", |n| {
        drained(items(n).pace_batches(owned(), GROUP))
    }),
    own("stream/pace_batches, Shared", |n| {
        drained(items(n).pace_batches(shared(), GROUP))
    }),
    own("stream/pace_by_key, 100 keys", |n| {
        drained(items(n).pace_by_key(keyed(), |item| item % 100, 1_000))
    }),
    own("stream/enforce, Owned", |n| {
        drained(items(n).enforce(owned()))
    }),
    own("stream/enforce, Shared", |n| {
        drained(items(n).enforce(shared()))
    }),
    own("stream/shed, Owned", |n| drained(items(n).shed(owned()))),
    own("stream/shed, Shared", |n| drained(items(n).shed(shared()))),
    own("stream/grouped_within", |n| {
        drained(items(n).grouped_within(GROUP, HOUR))
    }),
    own("stream/grouped_weighted_within", |n| {
        drained(items(n).grouped_weighted_within(WEIGHT, HOUR, |_| 1))
    }),
    own("stream/try_grouped_within", |n| {
        let items = items(n).map(Ok::<_, ()>);
        drained(items.try_grouped_within(GROUP, HOUR))
    }),
    own("stream/try_grouped_weighted_within", |n| {
        let items = items(n).map(Ok::<_, ()>);
        drained(items.try_grouped_weighted_within(WEIGHT, HOUR, |_| 1))
    }),
    // What is collected while nothing is due: all but the last items are dropped.
    own("stream/debounce", |n| {
        drained(items(n).debounce(Duration::from_micros(1)))
    }),
    own("stream/sample", |n| {
        drained(items(n).sample(Duration::from_micros(1)))
    }),
    own("stream/throttle_first", |n| {
        drained(items(n).throttle_first(HOUR))
    }),
    own("stream/concurrent", |n| {
        drained(items(n).concurrent(Permits::new(10), ready))
    }),
    sends("bare sink", |n| filled(drain(), n)),
    sends("sink/pace_sends, Owned", |n| {
        filled(drain().pace_sends(owned()), n)
    }),
    sends("sink/pace_sends, Shared", |n| {
        filled(drain().pace_sends(shared()), n)
    }),
    sends("sink/pace_sends, Shared Interval", |n| {
        filled(drain().pace_sends(interval().shared()), n)
    }),
    sends("sink/pace_sends_by_cost, Owned", |n| {
        filled(drain().pace_sends_by_cost(owned(), |_| 1), n)
    }),
    sends("sink/pace_sends_by_cost, Shared", |n| {
        filled(drain().pace_sends_by_cost(shared(), |_| 1), n)
    }),
    sends("sink/enforce_sends, Owned", |n| {
        filled(drain().enforce_sends(owned()), n)
    }),
    sends("sink/enforce_sends, Shared", |n| {
        filled(drain().enforce_sends(shared()), n)
    }),
    sends("sink/shed_sends, Owned", |n| {
        filled(drain().shed_sends(owned()), n)
    }),
    sends("sink/shed_sends, Shared", |n| {
        filled(drain().shed_sends(shared()), n)
    }),
    sends("sink/group_sends", |n| {
        filled(drain::<Vec<u64>>().group_sends(GROUP, HOUR), n)
    }),
    hot(Part::OwnIo, "bare reader", |n| read(repeat(0), n)),
    hot(Part::OwnIo, "io/pace_reads, Owned", |n| {
        read(repeat(0).pace_reads(bandwidth().owned()), n)
    }),
    hot(Part::OwnIo, "io/pace_reads, Shared", |n| {
        read(repeat(0).pace_reads(bandwidth().shared()), n)
    }),
    hot(Part::OwnIo, "bare writer", |n| write(sink(), n)),
    hot(Part::OwnIo, "io/pace_writes, Owned", |n| {
        write(sink().pace_writes(bandwidth().owned()), n)
    }),
    hot(Part::OwnIo, "io/pace_writes, Shared", |n| {
        write(sink().pace_writes(bandwidth().shared()), n)
    }),
];

fn acquired(count: u64, limit: Shared<TokenBucket>) -> Work {
    Box::pin(async move {
        for _ in 0..count {
            assert!(limit.acquire(1).await.is_ok());
        }
    })
}

/// Requests that wait a thousand at a time.
fn queued<F: Future + 'static>(
    count: u64,
    limit: Shared<TokenBucket>,
    acquire: impl Fn(u64) -> F + 'static,
) -> Work {
    Box::pin(async move {
        for first in (0..count).step_by(1_000) {
            limit.pause_for(HOUR);
            let requests = join_all((first..count.min(first + 1_000)).map(&acquire));
            let mut requests = pin!(requests);
            assert!(poll!(&mut requests).is_pending());
            limit.resume();
            requests.await;
        }
    })
}

const fn hot(part: Part, name: &'static str, run: fn(u64) -> Work) -> Hot {
    Hot { part, name, run }
}

const fn stream(name: &'static str, run: fn(u64) -> Work) -> Hot {
    hot(Part::Stream, name, run)
}

const fn own(name: &'static str, run: fn(u64) -> Work) -> Hot {
    hot(Part::OwnStreams, name, run)
}

const fn sends(name: &'static str, run: fn(u64) -> Work) -> Hot {
    hot(Part::OwnSinks, name, run)
}

fn read(reader: impl AsyncReadExt + 'static, count: u64) -> Work {
    Box::pin(async move {
        let mut reader = pin!(reader);
        let mut buffer = [0; SLICE];
        for _ in 0..count {
            assert!(reader.read(&mut buffer).await.is_ok());
        }
    })
}

fn write(writer: impl AsyncWriteExt + 'static, count: u64) -> Work {
    Box::pin(async move {
        let mut writer = pin!(writer);
        let buffer = [0; SLICE];
        for _ in 0..count {
            assert!(writer.write(&buffer).await.is_ok());
        }
    })
}
