//! What a load shedder does for an overloaded service.

use super::{Better, Shown, Words, metric};

pub(super) const SHED: Words = Words {
    title: "Overload",
    question: "A service at one and a half times its capacity for an hour, in virtual time: workers behind one queue without a bound, and \
               exponential times with a mean of a twentieth of a second. A fifth of the requests is test traffic, two fifths are reads, a \
               quarter are writes, and the rest is critical. `WorkerUtilization` has its defaults; with `quick` it has a tenth of the \
               delay and of the ramp. A threshold sheds all that is sheddable after a second in which the workers were that busy.",
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
    shown: Shown::Table {
        metric: "goodput",
        part: "16 workers",
    },
    why: "The amount comes to rest where the workers are between *good* and *bad*; critical requests are never shed, and writes hardly. The \
          price is capacity: the workers stay below *bad*. A threshold uses more of it. It admits all in one second and sheds all in the \
          next, and the queue evens that out. So it answers more within a long deadline, much less within a short one, and sheds as many \
          writes as test traffic.\n\n\
          With its defaults the shedder is slow on purpose: a peak of some seconds sheds nothing. So an overload that begins at once is \
          a queue first, and answers are late until it is worked off. A shorter delay and ramp shorten that, and turn more often. Without \
          any bound or shedder the queue outlives the overload.",
};
