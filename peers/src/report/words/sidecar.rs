//! The sidecar beside nginx.

use super::super::plot::{Drawing, Shape};
use super::{Better, Words, metric};

pub(super) const SIDECAR: Words = Words {
    title: "Sidecar",
    question: "A proxy in front of a service that serves two files. The proxy is bound to one processor; the service and `wrk` are \
               bound to the other. The proxies take turns, and the median of their rounds is shown. nginx has one worker, \
               `limit_req` on the same header, connections to the service that are kept, and its default buffering. The sidecar has \
               everything on: fair share, `RateLimit` headers, metrics; or its mode is off. A ratio compares the two in the same \
               round. What a proxy adds is the latency with it less the latency of the service alone.",
    metrics: &[
        metric(
            "thousand requests a second of its processor",
            "Thousand requests in a second of the proxy's processor time",
            Better::More,
        ),
        metric(
            "requests for each one of nginx in the same processor time",
            "Requests for each one of nginx in the same processor time",
            Better::More,
        ),
        metric(
            "instructions a request",
            "Instructions a request, in user space",
            Better::Less,
        ),
        metric(
            "thousand requests a second, proxied",
            "Thousand requests a second of the clock",
            Better::More,
        ),
        metric(
            "ms added, half of the requests",
            "Milliseconds added to the median latency",
            Better::Less,
        ),
        metric(
            "ms added, 99 %",
            "Milliseconds added to the latency that 99 of a hundred requests do not exceed",
            Better::Less,
        ),
        metric("MB of memory", "Memory after the load, in MB", Better::Less),
    ],
    drawings: &[Drawing {
        name: "sidecar-cpu",
        title: "Thousand requests of 1 kB in a second of processor time, 16 connections",
        metric: "thousand requests a second of its processor",
        part: "",
        shape: Shape::Bars {
            case: "1 kB, 16 connections",
        },
    }],
    why: "Two thirds of the processor time are the kernel's, most of it for sending and receiving. Of the instructions in user \
          space, a third are hyper's connection to the client and almost as many its connection to the service: heads are read, \
          kept in maps, and written. The sidecar's own code takes about a quarter: the largest parts of it are the fields that \
          are removed and added, the headers of the limit, the share, and the copy of the head for a second attempt. nginx has \
          no maps to build, so it needs fewer instructions. But by default it reads a response into buffers of its own and a \
          large one into a file, so it makes more calls to the kernel, and the more the larger the response is. The latency that \
          is added depends on the processor of the service too, which the generator shares. Memory grows with the responses \
          under way, since each connection has buffers in both directions.",
};
