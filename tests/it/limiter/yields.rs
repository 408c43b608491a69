//! A task whose requests all pass at once leaves other tasks of its thread their turn.

use core::future::Future;
use std::cell::Cell;
use std::rc::Rc;

use futures::{SinkExt, StreamExt, sink, stream};
use paceline::concurrency::Permits;
use paceline::limiter::{Mode, Switch};
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::task::{LocalSet, yield_now};

use crate::timed::ms;

/// More than the limits below ever deny.
const REQUESTS: u32 = 100_000;

/// tokio lets a task go on for 128 steps, of 16 requests each.
const AT_ONCE: u32 = 128 * 16;

/// How often another task of the thread runs while these requests pass.
async fn turns_beside(requests: impl Future) -> u32 {
    let turns = Rc::new(Cell::new(0));
    let other = {
        let turns = Rc::clone(&turns);
        async move {
            loop {
                turns.set(turns.get() + 1);
                yield_now().await;
            }
        }
    };
    let tasks = LocalSet::new();
    tasks.spawn_local(other);
    tasks.run_until(requests).await;
    turns.get()
}

macro_rules! yields {
    ($($name:ident: $requests:expr;)+) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let turns = turns_beside($requests).await;
            assert!(turns >= REQUESTS / AT_ONCE, "{turns} turns");
        }
    )+};
}

fn plenty() -> TokenBucket {
    TokenBucket::new(Rate::per_second(1), 2 * REQUESTS)
}

fn items() -> impl futures::Stream<Item = u32> + Unpin {
    stream::iter(0..REQUESTS)
}

yields! {
    requests_of_a_large_bucket_yield: async {
        let limit = plenty().shared();
        for _ in 0..REQUESTS {
            limit.acquire(1).await.unwrap();
        }
    };

    requests_in_a_set_of_futures_yield: async {
        let limit = plenty().shared();
        let requests = items().map(|_| limit.acquire(1)).buffer_unordered(100);
        requests.for_each(async |passed| passed.unwrap()).await;
    };

    requests_by_key_yield: async {
        let limits = plenty().keyed::<u32>();
        for _ in 0..REQUESTS {
            limits.acquire(7, 1).await.unwrap();
        }
    };

    requests_of_a_limit_that_is_off_yield: async {
        let limit = Interval::every(ms(1_000)).shared();
        let limit = limit.switched(&Switch::new().with_mode(Mode::Off));
        for _ in 0..REQUESTS {
            limit.acquire_one().await;
        }
    };

    requests_with_a_deadline_yield: async {
        let limit = plenty().shared();
        for _ in 0..REQUESTS {
            limit.acquire_within(1, ms(1)).await.unwrap();
        }
    };

    permits_for_work_yield: async {
        let permits = Permits::new(1);
        for _ in 0..REQUESTS {
            drop(permits.acquire().await);
        }
    };

    a_paced_stream_yields: items().pace(plenty().owned()).for_each(async |_| ());

    a_stream_paced_by_cost_yields: {
        items().pace_by_cost(plenty().owned(), |_| 1).for_each(async |_| ())
    };

    a_stream_paced_by_key_yields: {
        let limits = plenty().keyed::<u32>();
        items().pace_by_key(limits, |_| 7, 10).for_each(async |_| ())
    };

    an_enforced_stream_yields: items().enforce(plenty().owned()).for_each(async |_| ());

    a_shed_stream_yields: items().shed(plenty().owned()).for_each(async |_| ());

    a_paced_sink_yields: async {
        let mut sink = sink::drain().pace_sends(plenty().owned());
        for item in 0..REQUESTS {
            sink.send(item).await.unwrap();
        }
    };

    a_sink_paced_by_cost_yields: async {
        let mut sink = sink::drain().pace_sends_by_cost(plenty().owned(), |_| 1);
        for item in 0..REQUESTS {
            sink.send(item).await.unwrap();
        }
    };

    an_enforced_sink_yields: async {
        let mut sink = sink::drain().enforce_sends(plenty().owned());
        for item in 0..REQUESTS {
            sink.send(item).await.unwrap();
        }
    };
}
