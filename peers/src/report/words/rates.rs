//! What a decision costs, and what a key does.

use super::super::plot::{Drawing, Shape};
use super::{Better, Metric, Words};

pub(super) const HOT: Words = Words {
    title: "While the limit does not bind",
    question: "Elements that are always there go through a limit that never binds, on a runtime of one thread: what is left is \
               the price of the adapter. The contenders take turns, and the median of their rounds is shown, in time of \
               the thread, not on the wall. Instructions are counted by valgrind. Elements are those that go in.",
    metrics: &[Metric {
        name: "an element",
        heading: "An element",
        better: Better::Less,
    }],
    drawings: &[
        Drawing {
            name: "hot-stream",
            title: "Nanoseconds an element: a stream through one limit",
            metric: "an element",
            part: "a stream through one limit",
            shape: Shape::Bars { case: "ns" },
        },
        Drawing {
            name: "hot-asking",
            title: "Nanoseconds a call that does not wait",
            metric: "an element",
            part: "a call that does not wait",
            shape: Shape::Bars { case: "ns" },
        },
    ],
    why: "Most of what an element costs is one reading of the clock: see the last table. `paceline` reads tokio's, so that tests \
          can pause it, and tokio asks the system. `governor` reads the time stamp counter of the processor, where it can be \
          trusted, which is quicker and cannot be paused. `throttle` with a duration of zero, `RateLimit` inside its window and \
          tokio's `Semaphore` read no clock at all. Nor does `paceline` for most elements where the burst is large: of a bucket or \
          log of 480 and more a few permits are prefetched between two readings, at most 256 and a thirty-second of the burst, and \
          count as spent at the second; of a shared one without its lock. An interval has nothing to prefetch, nor has a small burst: \
          there each element is one reading, and in a shared limit a lock, with the queue behind it. A sink that waits looks when \
          it is asked whether it is ready and again when it is given the item, and `group_sends` looks at the clock for both. To \
          call `acquire` makes a future that has a handle of the limit and can be spawned; that of `until_ready` borrows.",
};

pub(super) const KEYED: Words = Words {
    title: "A million keys",
    question: "A limit for each key, asked without waiting. A million new keys come, each is asked again in random order, all \
               settle, and a million others come. The median of three such lives, in time of the thread. Keys are 64-bit \
               numbers. Once all have settled, `governor` is told \
               to `retain_recent` and `shrink_to_fit`, and `paceline` to `forget_settled`. It would do so by itself, but only as \
               many more keys come.",
    metrics: &[
        Metric {
            name: "ns a decision",
            heading: "Nanoseconds a decision",
            better: Better::Less,
        },
        Metric {
            name: "bytes a key",
            heading: "Bytes of the heap, for each of the million",
            better: Better::Less,
        },
        Metric {
            name: "keys remembered",
            heading: "Keys remembered",
            better: Better::Neither,
        },
        Metric {
            name: "longest, in ms",
            heading: "The longest that anybody had to wait for an answer, in milliseconds",
            better: Better::Less,
        },
    ],
    drawings: &[
        Drawing {
            name: "keyed-bytes",
            title: "Bytes a key, a million keys",
            metric: "bytes a key",
            part: "",
            shape: Shape::Bars { case: "all there" },
        },
        Drawing {
            name: "keyed-first",
            title: "Nanoseconds for the first decision of a key, a million keys",
            metric: "ns a decision",
            part: "",
            shape: Shape::Bars { case: "first" },
        },
    ],
    why: "`governor` keeps eight bytes for each key, the instant at which it is full again, and reads the processor's time stamp \
          instead of asking the system for the time. `paceline` keeps the state of any policy, exact for any rate, or a queue of \
          waiters, which `governor` does not have; it counts what passed, and evicts by itself. Both of its contenders and \
          `DashMap` have the keys in shards, each behind a lock of its own, so that no decision has to wait for a table of a \
          million keys to grow. A key of `paceline` is hashed twice, to find the shard and in the shard, both times with the \
          standard hash and a secret of the process: a client cannot choose keys that all meet in one place.",
};

pub(super) const CONTENTION: Words = Words {
    title: "Many tasks at once",
    question: "First a limit that does not bind, asked by 1 to 8 tasks on two threads as fast as they can. (Keyed ones: each task \
               its own key.) Then all tasks wait at once, and are served at so many a millisecond; the semaphore is refilled by \
               a task.",
    metrics: &[
        Metric {
            name: "ns a permit",
            heading: "Nanoseconds a permit, the limit does not bind",
            better: Better::Less,
        },
        Metric {
            name: "seconds until all are served",
            heading: "Seconds until all are served",
            better: Better::Neither,
        },
        Metric {
            name: "polls a grant",
            heading: "Polls a grant: 1 is without waiting, 2 is one wake-up",
            better: Better::Less,
        },
        Metric {
            name: "µs of processor time a grant",
            heading: "Processor time a grant, in µs, with that of starting the task",
            better: Better::Less,
        },
    ],
    drawings: &[Drawing {
        name: "contention-permit",
        title: "Nanoseconds a permit, the limit does not bind",
        metric: "ns a permit",
        part: "",
        shape: Shape::Lines {
            x: "tasks",
            is_y_log: false,
        },
    }],
    why: "`governor` has no queue: a limit is one atomic number, which is quicker to ask than a lock, and tasks that wait ask again \
          and again, in no order. `paceline` has a queue behind a lock, in order of arrival, for requests of any cost; before it lies \
          what was prefetched of a large burst, which is one atomic number too, and is asked without the time. To call `acquire` makes a \
          handle of the limit, and drops it: two more numbers that threads on two cores, who do nothing else, take from each other.",
};
