//! What is measured of `paceline` alone, or beside what it is built on.

use super::super::plot::{Drawing, Shape};
use super::{Better, Shown, Words, metric};

pub(super) const GROWTH: Words = Words {
    title: "Growth",
    question: "How the cost of each grows with the number of all, over three decades. Streams, and keys in one stream, have ten elements \
               each.",
    metrics: &[
        metric("ns for each", "Nanoseconds for each", Better::Neither),
        metric("bytes for each", "Bytes for each", Better::Neither),
        metric(
            "exponent",
            "The law: exponent of the cost of each",
            Better::Neither,
        ),
    ],
    shown: Shown::Plot(Drawing {
        name: "growth",
        title: "What each costs as their number grows, in nanoseconds: level is best",
        metric: "ns for each",
        part: "",
        shape: Shape::Lines {
            x: "times as many",
            is_y_log: true,
        },
    }),
    why: "What grows at all grows like a logarithm, and with the caches: a log and the buckets of a counter are searched by halves, and \
          a million keys no longer fit into the cache.",
};

pub(super) const TIMERS: Words = Words {
    title: "Timers",
    question: "Tasks on a runtime of one thread wait again and again, their phases spread evenly. `paceline Timer` chooses by itself; \
               `Millis` is its setting for tokio's timers; `tokio sleep` is a new `tokio::time::sleep` for each wait.",
    metrics: &[
        metric(
            "late, median, µs",
            "Microseconds a wait is late, the median",
            Better::Neither,
        ),
        metric(
            "late, 99 %, µs",
            "Microseconds a wait is late; 99 of a hundred are not later",
            Better::Neither,
        ),
        metric(
            "µs of processor time a wait",
            "Processor time of the whole process for each wait, in µs",
            Better::Neither,
        ),
    ],
    shown: table("late, median, µs"),
    why: "The kernel timer wakes the thread once for each instant, and a little early. tokio's timers wake it at most once a \
          millisecond, for all that is due by then, and so cost less with many waits.",
};

pub(super) const QUEUES: Words = Words {
    title: "Queues under overload",
    question: "`Permits` for a server to which requests come twice as fast as it can answer, in virtual time. An answer is useful within \
               half a second. A request of `acquire_within` waits for a permit only as long as a call of mean length can still end in \
               time. Clients wait on, or give up when an answer is useless.",
    metrics: &[
        metric(
            "useful answers",
            "Useful answers, as a share of what the server can answer",
            Better::More,
        ),
        metric(
            "ms to an answer",
            "Milliseconds until an answer, the median",
            Better::Neither,
        ),
        metric(
            "ms to a refusal",
            "Milliseconds until a request is refused or its client gives up, the median",
            Better::Neither,
        ),
    ],
    shown: table("useful answers"),
    why: "In order of arrival without a deadline the queue grows, and each answer comes too late. A deadline for the permit bounds that. \
          With an estimate of the wait, requests that would be late are refused at once. With the newest first the requests that are \
          served have hardly waited, and the others pay: without a deadline they wait as long as the overload lasts.",
};

pub(super) const FAIR: &[Words] = &[COSTS, BACKLOG, LENDERS];

const COSTS: Words = Words {
    title: "Fair share",
    question: "Requests of random clients for a capacity that does not bind. `Keyed` has as many keys.",
    metrics: &[
        metric("ns a decision", "Nanoseconds a decision", Better::Neither),
        metric(
            "ms a new cycle",
            "Milliseconds a new cycle",
            Better::Neither,
        ),
        metric("bytes a client", "Bytes a client", Better::Neither),
    ],
    shown: table("ns a decision"),
    why: "A decision is one lock and one look into a map, and with a guaranteed share a place in a heap. A new cycle of `FairShare` divides \
          the capacity among all clients, and its first request waits for that.",
};

const BACKLOG: Words = Words {
    title: "A small tenant beside a large one",
    question: "They share 100 requests a second. The large tenant always has 500 waiting; the small one makes 10 a second, at random.",
    metrics: &[metric(
        "a small tenant beside a large one",
        "Waits of the small one, and capacity used",
        Better::Neither,
    )],
    shown: table("a small tenant beside a large one"),
    why: "`FairQueue` keeps the bound of its policy, and the small tenant waits for turns, not for the backlog. With a guaranteed share it \
          does not wait, but larger bursts pass. With `FairShare` it waits for the next cycle when it asks for more than before.",
};

const LENDERS: Words = Words {
    title: "Lenders and borrowers",
    question: "Four clients have 60 requests a second each; none waits. Three ask at random for 60, 80 and 95 % of that, the fourth for ten \
               times the capacity. The index is 1 if two borrowers get the same, of which one asks ten times as often.",
    metrics: &[metric(
        "lenders and borrowers",
        "Refused of lenders, and capacity used, in %",
        Better::Neither,
    )],
    shown: table("lenders and borrowers"),
    why: "With a guaranteed share no client pays for a neighbour, and no capacity is lost. With `FairShare` a lender is refused what it has \
          lent and needs a moment later; take it where no cycle may pass more than the capacity.",
};

const fn table(metric: &'static str) -> Shown {
    Shown::Table { metric, part: "" }
}
