//! How well a limit follows the capacity of a service.

use super::super::plot::{Drawing, Shape};
use super::{Better, Metric, Words};

pub(super) const ADAPTIVE: Words = Words {
    title: "A limit that follows the capacity",
    question: "An axum service on loopback has a fixed number of workers and a bounded queue in front of them, and answers 503 when \
               the queue is full. After a while two thirds of the workers are gone, and later they come back. Clients of another \
               thread send requests at random times, more than a third of the capacity and less than the whole, and do not wait \
               for the answers before. Only an answer within 100 ms counts. The limit is a layer of the service; a request waits \
               for its permit for a fifth of that at most, and is answered with 503 otherwise. The bare service has its own \
               queue alone. Each limit has one run, with the same requests.",
    metrics: &[
        Metric {
            name: "answers in time a second",
            heading: "Answers in time, a second",
            better: Better::More,
        },
        Metric {
            name: "share of the best fixed limit's answers in time",
            heading: "Answers in time for each one of the best fixed limit, over the whole run",
            better: Better::Neither,
        },
        Metric {
            name: "ms to an answer, 99 %",
            heading: "Time to an answer of the service in ms, without refusals: 99 of a hundred take no longer",
            better: Better::Neither,
        },
    ],
    drawings: &[
        Drawing {
            name: "adaptive-goodput",
            title: "Answers in time, second by second",
            metric: "answers in time in this second",
            part: "",
            shape: Shape::Series { x: "seconds" },
        },
        Drawing {
            name: "adaptive-limit",
            title: "The limit over time",
            metric: "requests at once",
            part: "",
            shape: Shape::Series { x: "seconds" },
        },
    ],
    why: "A fixed limit that is right for the whole capacity lets a queue grow in the service when workers are gone, and then nearly \
          every answer is late. One that is right for a third refuses requests while there is capacity. Which one is best is known \
          afterwards, and depends on how far the capacity falls and for how long.\n\n\
          `Aimd` by status alone grows until the service refuses, so it keeps the queue of the service full: it is for a service \
          that refuses early. With a classifier that takes a slow answer as a drop, it follows the capacity. `Gradient` finds out \
          by itself what is slow. It goes down by a tenth in a window at most, and the answers until then are late. Both \
          begin at their floor, and the first phase includes their start.",
};
