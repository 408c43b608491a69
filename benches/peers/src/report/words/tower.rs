//! What a limit in front of a service costs.

use super::super::plot::{Drawing, Shape};
use super::{Better, Shown, Words, metric};

pub(super) const TOWER: Words = Words {
    title: "Services",
    question: "A limit in front of a service that is always ready and does nothing, on one thread. Where requests pass, the limit never \
               binds; where they are refused, it is used up. `Answers` writes a problem in JSON and headers. Then threads call clones of \
               one service at once, a million keys come twice, and `axum` answers over HTTP. `RateLimit` cannot be shared without a \
               `Buffer`.",
    metrics: &[
        metric("a request", "A request", Better::Less),
        metric(
            "ns a request, all threads together",
            "Nanoseconds a request, of all threads together: a task for each thread, and each by key has its own",
            Better::Less,
        ),
        metric(
            "ns a request, a million keys",
            "Nanoseconds a request, a million keys",
            Better::Less,
        ),
        metric(
            "bytes a key, a million keys",
            "Bytes of the heap for each of a million keys",
            Better::Less,
        ),
        metric(
            "thousand requests a second",
            "Thousand requests a second over HTTP",
            Better::More,
        ),
        metric(
            "share of the rate without a limit",
            "Requests for each one without a limit in the same round",
            Better::More,
        ),
        metric(
            "ms a request, 99 %",
            "How long a request takes, in ms: 99 of a hundred take no longer",
            Better::Less,
        ),
        metric(
            "µs of the server a request",
            "Processor time of the server, in µs, for each request",
            Better::Less,
        ),
        metric(
            "share of the server's time without a limit",
            "The same for each µs without a limit in the same round",
            Better::Less,
        ),
    ],
    shown: Shown::Plot(Drawing {
        name: "tower-direct",
        title: "What a request costs that passes one limit for all, in nanoseconds: less is better",
        metric: "a request",
        part: "one limit for all requests, passed",
        shape: Shape::Bars { case: "ns" },
    }),
    why: "`RateLimit` of one caller reads the clock once in a window. In a `Buffer` each request goes through two channels. \
          `tower_governor` asks one atomic number, or a map of them, and reads the time stamp counter; for each refusal it makes a new \
          clock, which in a virtual machine takes longer than all the rest. `EnforceLayer` asks any limiter, one \
          on a server too, reads tokio's clock, and catches a panic of the limiter. A refusal also says what the limit has left.\n\n\
          `ConcurrencyLimit` takes its permit in `poll_ready`, so a clone that is ready and idle blocks another. `ConcurrencyLayer` keeps the \
          request in its future, on the heap, until there is a permit, and gives the permit back at the end of the body. Over HTTP the headers on \
          each success are the dearest part of a layer.",
};
