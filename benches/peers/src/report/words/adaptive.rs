//! How well a limit follows the capacity of a service.

use super::super::plot::{Drawing, Shape};
use super::{Better, Shown, Words, metric};

pub(super) const ADAPTIVE: Words = Words {
    title: "A limit that follows the capacity",
    question: "An axum service with a fixed number of workers and a bounded queue loses two thirds of the workers, and later gets them \
               back. Clients send more than a third of the capacity and less than the whole, and only an answer within 100 ms \
               counts. The limit is a layer of the service; the bare service has its own queue alone.",
    metrics: &[
        metric(
            "answers in time a second",
            "Answers in time, a second",
            Better::More,
        ),
        metric(
            "share of the best fixed limit's answers in time",
            "Answers in time for each one of the best fixed limit, over the whole run",
            Better::Neither,
        ),
        metric(
            "ms to an answer, 99 %",
            "Time to an answer of the service in ms, without refusals: 99 of a hundred take no longer",
            Better::Neither,
        ),
    ],
    shown: Shown::Plot(Drawing {
        name: "adaptive-goodput",
        title: "Answers in time while workers are gone and when they are back: more is better",
        metric: "answers in time in this second",
        part: "",
        shape: Shape::Times { x: "seconds" },
    }),
    why: "A fixed limit that is right for the whole capacity lets a queue grow when workers are gone, and then nearly every answer is \
          late. One that is right for a third refuses requests while there is capacity. `Aimd` by status alone keeps the queue of the \
          service full: it is for a service that refuses early. With a classifier that takes a slow answer as a drop, it follows the \
          capacity. `Gradient` finds out by itself what is slow; it goes down by a tenth in a window at most, and the answers until \
          then are late.",
};
