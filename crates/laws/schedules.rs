//! Random schedules of requests against the oracle for queues, here because this package is optimized.

#[expect(dead_code, reason = "most of it is for the streams of `tests/it`")]
#[path = "../../tests/it/timed.rs"]
mod timed;

#[expect(dead_code, reason = "some of it is for the claims of `tests/it/wait`")]
#[path = "../../tests/it/wait/kinds.rs"]
mod kinds;

#[path = "schedules/fair.rs"]
mod fair;
#[path = "schedules/guaranteed.rs"]
mod guaranteed;
#[path = "schedules/queues.rs"]
mod queues;
