//! How well emissions are kept apart.

use super::super::plot::{Drawing, Shape};
use super::{Better, Metric, Words};

const METRICS: &[Metric] = &[
    Metric {
        name: "share of the allowed rate",
        heading: "Share of the allowed rate that was reached; more than 1 is too much",
        better: Better::Neither,
    },
    Metric {
        name: "gaps too short, in %",
        heading: "Gaps that were shorter than the interval by more than 1 µs and 1 %, of a hundred",
        better: Better::Less,
    },
    Metric {
        name: "late, median, µs",
        heading: "How much longer than the interval a gap was, in µs: the median",
        better: Better::Neither,
    },
    Metric {
        name: "late, 99 %, µs",
        heading: "How much longer than the interval a gap was, in µs: 99 of a hundred are not later",
        better: Better::Neither,
    },
    Metric {
        name: "µs of processor time an emission",
        heading: "Processor time of the whole process for each emission, in µs",
        better: Better::Neither,
    },
];

const SHARES: Shape = Shape::Lines {
    x: "interval in µs",
    is_y_log: false,
};

pub(super) const PRECISION: Words = Words {
    title: "Precision",
    question: "One emission each interval from a source that is always ready, on an idle runtime of one thread and of two. The \
               contenders take turns, and the median of nine rounds is shown; of gaps too short the mean. To \
               reach the whole rate is good only where no gap is too short: read the first two tables together.",
    metrics: METRICS,
    drawings: &[
        Drawing {
            name: "precision-share",
            title: "Share of the allowed rate that is reached, one thread",
            metric: "share of the allowed rate",
            part: "one thread",
            shape: SHARES,
        },
        Drawing {
            name: "precision-short",
            title: "Gaps that are too short, one thread",
            metric: "gaps too short, in %",
            part: "one thread",
            shape: SHARES,
        },
    ],
    why: "A contender that sleeps the whole interval anew each time (`throttle`, `stream_throttle`, `leaky-bucket`, `RateLimit`) is \
          late by a millisecond each time, since tokio's timers round up. In `paceline` a timer of the kernel wakes the task as \
          much too early as wake-ups are late here, and the task yields until it is time. Where the interval is about as short \
          as that, it keeps a core busy. \
          `governor` and `async-speed-limit` are woken by a thread of `futures-timer`, which has no grid, and pay with a second \
          thread that is woken for each emission. tokio's `Interval` reaches the rate by catching up: what came late is followed \
          by one that comes too soon.\n\n\
          A gap of `paceline` that seems too short was not let through too soon: its thread was interrupted between the reading \
          of the clock and the emission before it, and so the emission was seen later than it was decided. It shows where \
          intervals are of the size of such an interruption. Counted `with_count_from_next_poll` there are none.",
};

pub(super) const LOAD: Words = Words {
    title: "Precision under load",
    question: "The same while a task of the same runtime computes 200 µs between two yields, while 1,000 tasks sleep for 5 to \
               18 ms again and again, and while a thread for each core computes without end.",
    metrics: METRICS,
    drawings: &[],
    why: "A contender that is woken late can lose the time, or catch up and emit too soon. Load shows which of them does what.",
};

pub(super) const GAPS: Words = Words {
    title: "Gaps that a consumer sees",
    question: "A program takes elements from a paced stream and reads the clock after each of them: in `block_on` and in a task, \
               on a runtime of one thread and of two.",
    metrics: &[
        Metric {
            name: "gaps too short, of 1,000",
            heading: "Gaps that were shorter than the interval by more than 1 µs, of a thousand",
            better: Better::Less,
        },
        Metric {
            name: "short by at most, µs",
            heading: "By how many µs the shortest of them was too short",
            better: Better::Neither,
        },
    ],
    drawings: &[],
    why: "The limit counts from the instant at which an element passed. If the thread is interrupted between that instant and \
          the reading of the program, the element is seen late and the gap after it is seen short. `with_count_from_next_poll` counts \
          from the instant at which the program asks for the next element, so none of its gaps is short.",
};

pub(super) const VIRTUAL: Words = Words {
    title: "Virtual time",
    question: "A million emissions, one a second, on tokio's paused clock: how long a test of eleven days takes.",
    metrics: &[Metric {
        name: "seconds on the wall",
        heading: "Seconds on the wall",
        better: Better::Less,
    }],
    drawings: &[],
    why: "A contender that asks the system for the time, and not tokio, does not see that the clock is paused: it would take \
          eleven days, or sleeps without end. What is left for the others is one timer of tokio for each emission; `paceline` decides besides \
          when the next one may pass.",
};
