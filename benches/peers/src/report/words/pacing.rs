//! How well emissions are kept apart.

use super::super::plot::{Drawing, Shape};
use super::{Better, Metric, Shown, Words, metric};

const METRICS: &[Metric] = &[
    metric(
        SHARE,
        "Share of the allowed rate that was reached; more than 1 is too much",
        Better::Neither,
    ),
    metric(
        "gaps too short, in %",
        "Gaps that were shorter than the interval by more than 1 µs and 1 %, of a hundred",
        Better::Less,
    ),
    metric(
        "late, median, µs",
        "How much longer than the interval a gap was, in µs: the median",
        Better::Neither,
    ),
    metric(
        "late, 99 %, µs",
        "How much longer than the interval a gap was, in µs: 99 of a hundred are not later",
        Better::Neither,
    ),
    metric(
        "µs of processor time an emission",
        "Processor time of the whole process for each emission, in µs",
        Better::Neither,
    ),
];

const SHARE: &str = "share of the allowed rate";
const ONE: &str = "one thread";

pub(super) const PRECISION: Words = Words {
    title: "Precision",
    question: "One emission each interval from a source that is always ready, on an idle runtime of one thread; medians of nine rounds. A \
               contender that lets items through too soon reaches the whole rate as well: *In short* leaves it out.",
    metrics: METRICS,
    shown: Shown::Plot(Drawing {
        name: "precision-share",
        title: "How much of the allowed rate is reached on one thread: 1 is all of it",
        metric: SHARE,
        part: ONE,
        shape: Shape::Lines {
            x: "emissions that are allowed in a second",
            is_y_log: false,
        },
    }),
    why: "A contender that sleeps the whole interval anew each time (`throttle`, `stream_throttle`, `leaky-bucket`, `RateLimit`) is \
          late by a millisecond each time, since tokio's timers round up. In `paceline` a timer of the kernel wakes the task as \
          much too early as wake-ups are late here, and the task yields until it is time; at very short intervals it keeps a core \
          busy. `governor` and `async-speed-limit` are woken by a second thread for each emission. tokio's `Interval` reaches the rate by \
          catching up: what came late is followed by one that comes too soon.\n\n\
          A few gaps of `paceline` seem too short where intervals are of the size of an interruption: the thread was interrupted \
          between the reading of the clock and the emission before. Counted `with_count_from_next_poll` there are none.",
};

pub(super) const LOAD: Words = Words {
    title: "Precision under load",
    question: "The same while a task of the same runtime computes 200 µs between two yields, while 1,000 tasks sleep for 5 to \
               18 ms again and again, and while a thread for each core computes without end.",
    metrics: METRICS,
    shown: Shown::Table {
        metric: SHARE,
        part: ONE,
    },
    why: "A contender that is woken late can lose the time, or catch up and emit too soon, as tokio's `Interval` does. A busy task on the \
          only thread delays every other task.",
};

pub(super) const GAPS: Words = Words {
    title: "Gaps that a consumer sees",
    question: "A program takes elements from a paced stream and reads the clock after each of them.",
    metrics: &[
        metric(
            "gaps too short, of 1,000",
            "Gaps that were shorter than the interval by more than 1 µs, of a thousand",
            Better::Less,
        ),
        metric(
            "short by at most, µs",
            "By how many µs the shortest of them was too short",
            Better::Neither,
        ),
    ],
    shown: Shown::Table {
        metric: "gaps too short, of 1,000",
        part: "a task, two threads",
    },
    why: "If the thread is interrupted between the instant at which an element passes and the reading of the program, the next gap is seen \
          short. `with_count_from_next_poll` counts from the instant at which the program asks for the next element.",
};

pub(super) const VIRTUAL: Words = Words {
    title: "Virtual time",
    question: "A million emissions, one a second, on tokio's paused clock: how long a test of eleven days takes.",
    metrics: &[metric(
        "seconds on the wall",
        "Seconds on the wall",
        Better::Less,
    )],
    shown: Shown::Table {
        metric: "seconds on the wall",
        part: "",
    },
    why: "A contender that asks the system for the time does not see that the clock is paused. What is left for the others is one timer of \
          tokio for each emission; `paceline` decides besides when the next one may pass.",
};
