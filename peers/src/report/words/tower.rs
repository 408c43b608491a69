//! What a limit in front of a service costs.

use super::super::plot::{Drawing, Shape};
use super::{Better, Words, metric};

pub(super) const TOWER: Words = Words {
    title: "Services",
    question: "A limit in front of a service that is always ready and does nothing, on a runtime of one thread: a caller makes a \
               request, waits until the service is ready, calls it, and waits for the response. The bare service is the same \
               without a limit. The contenders take turns, and the median of their rounds is shown, in time of the thread. \
               Where requests pass, the limit never binds; where they are refused, it is used up. By key, the key is the value of a header. \
               A refusal of `tower`, of `tower-resilience-ratelimiter` and of `paceline` by default is an error, and that of \
               `tower_governor` a response with a text, which `paceline` writes too where that is said. `Answers` writes a \
               problem in JSON and headers.\n\n\
               Then threads call clones of one service at once, and a million keys come twice, in another order the second \
               time. Last, `axum` answers over HTTP on one thread, and `wrk` sends requests from a process of its own, over \
               many connections. A ratio compares two contenders in the same round, and the median of the rounds is shown.\n\n\
               `RateLimit` cannot be shared without a `Buffer`, and has no refusals without `LoadShed`. `tower-rate-limiter` is \
               missing, since it needs a later compiler.",
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
    drawings: &[
        Drawing {
            name: "tower-direct",
            title: "Nanoseconds a request: one limit for all, passed",
            metric: "a request",
            part: "one limit for all requests, passed",
            shape: Shape::Bars { case: "ns" },
        },
        Drawing {
            name: "tower-by-key",
            title: "Nanoseconds a request: a limit for each key, passed",
            metric: "a request",
            part: "a limit for each key, passed",
            shape: Shape::Bars { case: "ns" },
        },
    ],
    why: "`RateLimit` of one caller counts calls, and reads the clock once in a window. In a `Buffer` each request goes through a \
          channel to a task, and its response comes back through another one. \
          `tower_governor` asks one atomic number, or a map of them, and reads the time stamp counter of the processor: see the \
          sections above. For each refusal it makes a new clock, which asks the processor for its features, and in a virtual machine \
          that takes longer than all the rest. `EnforceLayer` asks any limiter, one on a server too. So each request gets a \
          handle of the limit, which could wait, and a place in the future for the request meanwhile, and a panic of the limiter is \
          caught. A limiter that is asked by key hashes the key twice, and reads the clock that tests can pause. A refusal also \
          says what the limit has left, which is one more look at it. `tower-resilience-ratelimiter` puts the future of each \
          request into a box.\n\n\
          `ConcurrencyLimit` takes its permit in `poll_ready`, before there is a request. So a clone that is ready and idle blocks \
          another. `ConcurrencyLayer` keeps the request in its future until there is a permit, and gives the permit back with the \
          response or at the end of its body.\n\n\
          Over HTTP the headers on each success are the dearest part of a layer. `axum` puts each layer of a route into a box, \
          clones it for each request, and puts its future into another: that is what the layer that does nothing costs.",
};
