//! The sidecar beside nginx.

use super::{Better, Shown, Words, metric};

pub(super) const SIDECAR: Words = Words {
    title: "Sidecar",
    question: "A proxy in front of a service that serves two files, bound to one processor. nginx has one worker, `limit_req` on the same \
               header, connections to the service that are kept, and its default buffering. The sidecar has everything on: fair share, \
               `RateLimit` headers, metrics; or its mode is off.",
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
        metric(
            "kB of memory a connection",
            "Memory that came with each connection, in kB",
            Better::Less,
        ),
    ],
    shown: Shown::Table {
        metric: "thousand requests a second of its processor",
        part: "",
    },
    why: "Two thirds of the processor time are the kernel's, and both make the same four calls for a small request. Of the instructions \
          in user space about a third are hyper's connection to the client; the rest reads the response, decides and changes the \
          fields. nginx has no maps to build, so it needs fewer instructions. By default it reads a large response into a file, so it \
          makes more calls to the kernel. In the sidecar a connection that waits for the service has no buffer for its response.",
};
