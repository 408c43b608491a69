//! What a load shedder does for an overloaded service.

use super::super::plot::{Drawing, Shape};
use super::{Better, Metric, Words};

pub(super) const SHED: Words = Words {
    title: "Overload",
    question: "A service at one and a half times its capacity for an hour, before and after it at six tenths, in virtual time: workers \
               behind one queue, requests that come by chance, and exponential times with a mean of a twentieth of a second. A fifth \
               of the requests is test traffic, two fifths are reads, a quarter are writes, and the rest is critical. Each contender \
               gets the same requests. The queue has no bound, a caller waits for its answer however late it is, and to shed a \
               request costs nothing. `WorkerUtilization` has its defaults and a sensor of the share of the workers' time that was \
               busy in the last second; with `quick` it has a tenth of the delay and of the ramp. A threshold sheds all that is \
               sheddable after a second in which the workers were that busy, and else nothing. Chance has a fixed seed, so the \
               figures are the same again.\n\n\
               The beginning of the overload is its first sixth.",
    metrics: &[
        metric(
            "goodput",
            "Goodput in the overload: answers in time as a share of the capacity, by what is in time",
            Better::More,
        ),
        metric(
            "goodput after the beginning",
            "The same after the beginning",
            Better::More,
        ),
        metric(
            "share that is shed",
            "The share of each class that is shed in the overload",
            Better::Neither,
        ),
        metric(
            "turns a minute",
            "How often a minute the share of all requests that is shed changes its direction",
            Better::Neither,
        ),
        metric(
            "s to the answer, 99 %",
            "Seconds until an admitted request is answered; 99 of a hundred take no longer",
            Better::Less,
        ),
    ],
    drawings: &[
        over_time(
            "shed-utilization",
            "How busy the workers are",
            "utilization",
            "minutes",
        ),
        over_time(
            "shed-classes",
            "What paceline WorkerUtilization sheds of each class",
            "share of the class that is shed",
            "minutes",
        ),
        over_time(
            "shed-goodput",
            "Answers within a quarter of a second, as a share of the capacity",
            "goodput over time",
            "minutes",
        ),
        over_time(
            "shed-flapping",
            "One minute in the middle of the overload, each second",
            "share of all requests that is shed",
            "seconds",
        ),
    ],
    why: "The amount does not swing around its equilibrium. It comes to rest where the workers are between *good* and *bad*, since \
          there it does not move. Chance makes single seconds busier or less busy than that, and the amount follows by small \
          steps: these are the turns of any size. More workers have less of it. The one large turn comes at the beginning.\n\n\
          The price is capacity: the workers stay below *bad*, and what is above that is not used. A threshold uses more of it. It \
          admits all in one second and sheds all that is sheddable in the next, and the queue evens that out. So it answers more \
          within a deadline that is long beside these waits, and much less within a short one. It sheds as many writes as test \
          traffic.\n\n\
          With its defaults the shedder is slow on purpose: a peak of some seconds sheds nothing. So an overload that begins at \
          once is a queue first, and all answers are late until it is worked off. Meanwhile the amount grows beyond what the load \
          alone would need, and some writes are shed too. A shorter delay and ramp shorten that, and turn more often. A bound on the \
          queue, such as `Permits`, avoids late answers too, but knows no classes. Without any bound or shedder the \
          queue grows until the overload ends, and outlives it.\n\n\
          After the overload the amount falls the slower, the nearer the load is to *good*.",
};

const fn metric(name: &'static str, heading: &'static str, better: Better) -> Metric {
    Metric {
        name,
        heading,
        better,
    }
}

const fn over_time(
    name: &'static str,
    title: &'static str,
    metric: &'static str,
    x: &'static str,
) -> Drawing {
    Drawing {
        name,
        title,
        metric,
        part: "16 workers",
        shape: Shape::Times { x },
    }
}
