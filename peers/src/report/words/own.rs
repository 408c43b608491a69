//! What is measured of `paceline` alone.

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
    why: "What grows at all grows like a logarithm, and with the caches: a line is a tree, a log and the \
          buckets of a counter are searched by halves, and a million keys no longer fit into the cache.",
};
