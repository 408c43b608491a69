//! What a decision costs, and what a key does.

use super::super::plot::{Drawing, Shape};
use super::{Better, Shown, Words, metric};

pub(super) const HOT: Words = Words {
    title: "While the limit does not bind",
    question: "Elements that are always there go through a limit that never binds, on one thread: what is left is the price of the \
               adapter, in time of the thread. Instructions are counted by valgrind.",
    metrics: &[metric("an element", "An element", Better::Less)],
    shown: Shown::Plot(Drawing {
        name: "hot-stream",
        title: "What an element costs in a stream through one limit, in nanoseconds: less is better",
        metric: "an element",
        part: "a stream through one limit",
        shape: Shape::Bars { case: "ns" },
    }),
    why: "Most of what an element costs is one reading of the clock. `paceline` reads tokio's, so that tests can pause it. `governor` \
          reads the time stamp counter of the processor, which is quicker and cannot be paused. `throttle` with a duration of zero, \
          `RateLimit` inside its window and tokio's `Semaphore` read no clock. Nor does `paceline` for most elements where the burst is \
          large: a few permits are prefetched between two readings, and in a shared limit taken without its lock. An interval or \
          a small burst has nothing to prefetch.",
};

pub(super) const KEYED: Words = Words {
    title: "A million keys",
    question: "A limit for each key, asked without waiting. A million new keys come, each is asked again in random order, all settle, and \
               a million others come. Median of three, in time of the thread. Once all have settled, `governor` is told to \
               `retain_recent` and `shrink_to_fit`, and `paceline` to `forget_settled`, which it would do by itself as more keys come.",
    metrics: &[
        metric("ns a decision", "Nanoseconds a decision", Better::Less),
        metric(
            "bytes a key",
            "Bytes of the heap, for each of the million",
            Better::Less,
        ),
        metric("keys remembered", "Keys remembered", Better::Neither),
        metric(
            "longest, in ms",
            "The longest wait for an answer, in milliseconds",
            Better::Less,
        ),
    ],
    shown: Shown::Table {
        metric: "ns a decision",
        part: "",
    },
    why: "`governor` keeps eight bytes for each key, the instant at which it is full again, and reads the time stamp counter. `paceline` \
          keeps the state of any policy, exact for any rate, in eight bytes where it fits, or a queue of waiters; it counts what passed, and evicts by itself. A key \
          is hashed with the standard hash and a secret of the process: a client cannot choose keys that all meet in one place.",
};

pub(super) const CONTENTION: Words = Words {
    title: "Many tasks at once",
    question: "A limit that does not bind, asked by 1 to 8 tasks on two threads as fast as they can (keyed ones: each task its own key). \
               Then all tasks wait at once, and are served at a rate (medians of three); the semaphore is refilled by a task.",
    metrics: &[
        metric(
            "ns a permit",
            "Nanoseconds a permit, the limit does not bind",
            Better::Less,
        ),
        metric(
            "seconds until all are served",
            "Seconds until all are served",
            Better::Neither,
        ),
        metric(
            "polls a grant",
            "Polls a grant: 1 is without waiting, 2 is one wake-up",
            Better::Less,
        ),
        metric(
            "µs of processor time a grant",
            "Processor time a grant, in µs, with that of starting the task",
            Better::Less,
        ),
    ],
    shown: Shown::Plot(Drawing {
        name: "contention-permit",
        title: "What a permit costs as more tasks ask, in nanoseconds: less is better",
        metric: "ns a permit",
        part: "",
        shape: Shape::Lines {
            x: "tasks",
            is_y_log: false,
        },
    }),
    why: "`governor` has no queue: a limit is one atomic number, which is quicker to ask than a lock, and waiting tasks ask again and \
          again, in no order. `paceline` has a queue behind a lock, in order of arrival, for requests of any cost. Before it is the \
          prefetch of a large burst, which is one atomic number too. A waiter that is next polls the clock until its instant has come, \
          and in a crowd several pass at one wake-up; a refilling task wakes many waiters at once. `Millis` waits for tokio's timers, too.",
};
