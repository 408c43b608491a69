//! What is measured of `paceline` alone, or beside what it is built on.

use super::super::plot::{Drawing, Shape};
use super::{Better, Metric, Words};

pub(super) const GROWTH: Words = Words {
    title: "Growth",
    question: "How the cost of each grows with the number of all, over three decades. The law is the exponent of the power that \
               lies nearest: 0 is the same for each however many there are, 1 would be in proportion to all of them. Streams \
               and keys in one stream have ten elements each.",
    metrics: &[
        Metric {
            name: "ns for each",
            heading: "Nanoseconds for each",
            better: Better::Neither,
        },
        Metric {
            name: "bytes for each",
            heading: "Bytes for each",
            better: Better::Neither,
        },
        Metric {
            name: "exponent",
            heading: "The law: exponent of the cost of each",
            better: Better::Neither,
        },
    ],
    drawings: &[Drawing {
        name: "growth",
        title: "Nanoseconds for each, as their number grows",
        metric: "ns for each",
        part: "",
        shape: Shape::Lines {
            x: "times as many",
            is_y_log: true,
        },
    }],
    why: "What grows at all grows like a logarithm, and with the caches: a queue is a tree, a log and the \
          buckets of a counter are searched by halves, and a million keys no longer fit into the cache.",
};

pub(super) const TIMERS: Words = Words {
    title: "Timers",
    question: "Tasks on a runtime of one thread wait again and again, their phases spread evenly: how late a wait ends, and what \
               it costs. `paceline Timer` chooses by itself; `Millis` is its setting for tokio's timers; `tokio sleep` is a new \
               `tokio::time::sleep` for each wait.",
    metrics: &[
        Metric {
            name: "late, median, µs",
            heading: "Microseconds a wait is late, the median",
            better: Better::Neither,
        },
        Metric {
            name: "late, 99 %, µs",
            heading: "Microseconds a wait is late; 99 of a hundred are not later",
            better: Better::Neither,
        },
        Metric {
            name: "µs of processor time a wait",
            heading: "Processor time of the whole process for each wait, in µs",
            better: Better::Neither,
        },
    ],
    drawings: &[],
    why: "The kernel timer wakes the thread once for each instant, and a little early; tokio's timers wake it at most once a \
          millisecond, for all that is due by then.",
};
