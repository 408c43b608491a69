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

pub(super) const QUEUES: Words = Words {
    title: "Queues under overload",
    question: "`Permits` for a server to which requests come twice as fast as it can answer, at random and with calls of random \
               length, in virtual time: each run gives the same figures. An answer is useful if it comes within half a second. A \
               request of `acquire_within` waits for a permit only as long as a call of mean length can still end in time. Clients \
               wait on, or give up when an answer is useless: a request that is queued then leaves, and a call under way goes on.",
    metrics: &[
        Metric {
            name: "useful answers",
            heading: "Useful answers, as a share of what the server can answer",
            better: Better::More,
        },
        Metric {
            name: "ms to an answer",
            heading: "Milliseconds until an answer, the median",
            better: Better::Neither,
        },
        Metric {
            name: "ms to a refusal",
            heading: "Milliseconds until a request is refused or its client gives up, the median",
            better: Better::Neither,
        },
    ],
    drawings: &[Drawing {
        name: "queues-useful",
        title: "Useful answers, as a share of what the server can answer, clients wait on",
        metric: "useful answers",
        part: "",
        shape: Shape::Bars {
            case: "clients wait on",
        },
    }],
    why: "In order of arrival without a deadline the queue grows, and each answer comes too late. If clients give up, the server is \
          busy with requests that have used up most of their time. A deadline for the permit bounds that; each request that is \
          served has waited for about as long. With an estimate of the wait, those that would be late are told at once. With the \
          newest first the requests that are served have hardly waited, and the others pay: without a deadline they wait \
          as long as the overload lasts.",
};

pub(super) const FAIR: Words = Words {
    title: "Fair share",
    question: "Clients that share one capacity, which does not bind, and beside them a `Keyed` limit with as many keys. A decision is \
               about a client at random. A new cycle divides the capacity among all of them; the first request of the cycle waits \
               for that.",
    metrics: &[
        Metric {
            name: "ns a decision",
            heading: "Nanoseconds a decision",
            better: Better::Neither,
        },
        Metric {
            name: "ms a new cycle",
            heading: "Milliseconds a new cycle",
            better: Better::Neither,
        },
        Metric {
            name: "bytes a client",
            heading: "Bytes a client",
            better: Better::Neither,
        },
    ],
    drawings: &[],
    why: "A decision is one lock, one look into a map and a few comparisons, however many clients there are, and no reading of all of \
          them. What grows is the time of a look into a map that no longer fits into the caches. A `Keyed` limit hashes the key twice, \
          and has sixteen locks instead of one.",
};
