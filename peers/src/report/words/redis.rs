//! What decisions in Redis cost, and what happens without it.

use super::super::plot::{Drawing, Shape};
use super::{Better, Metric, Words};

pub(super) const REDIS: Words = Words {
    title: "Limits in Redis",
    question: "A server of the section's own on the same machine, and a client of one thread: a core each. A limit never binds, \
               and each caller asks for one permit after the other. In the first case the caller waits for each answer, and \
               what counts is the way there and back; in the others one connection carries the questions of many callers, or \
               each caller has a connection, as the processes of a fleet have. `SET` is the same client library on the same \
               connections, and decides nothing. Stripe's script is written anew from its description: a token bucket in two \
               keys, in whole seconds of the client's clock. All take turns, round by round; a ratio is one of the same \
               round, and the median of the rounds is shown.\n\n\
               Outages are made with real servers, which are stopped (`SIGSTOP`), killed, and put behind a line that delays \
               answers; callers ask again a millisecond after each answer. A deadline is the 25 ms that a call has if nothing \
               else is said. Callers who measure the longest calls come at any time, four to a key.",
    metrics: &[
        metric(
            "thousand decisions a second",
            "Thousand decisions a second",
            Better::More,
        ),
        metric(
            "share of SET's rate",
            "Decisions for each SET in the same round",
            Better::Neither,
        ),
        metric(
            "share of Stripe's rate",
            "Decisions for each one of Stripe's script in the same round",
            Better::Neither,
        ),
        metric(
            "µs a decision, median",
            "How long a decision takes, in µs: the median",
            Better::Less,
        ),
        metric(
            "µs a decision, 99 %",
            "How long a decision takes, in µs: 99 of a hundred take no longer",
            Better::Less,
        ),
        metric(
            "µs in the script",
            "The server's time in the command or script, in µs, each time that it is asked",
            Better::Neither,
        ),
        metric(
            "µs of the server a decision",
            "Processor time of the server, in µs, for each decision",
            Better::Less,
        ),
        metric(
            "µs of the client a decision",
            "Processor time of the client, in µs, for each decision",
            Better::Less,
        ),
        metric(
            "trips a permit",
            "Trips to Redis for each permit",
            Better::Neither,
        ),
        metric(
            "thousand permits a second",
            "Thousand permits a second",
            Better::Neither,
        ),
        metric(
            "ms to notice",
            "From the start of an outage to the first call that did not wait for Redis, in ms",
            Better::Neither,
        ),
        metric(
            "ms to return",
            "From the end of an outage to the first call that was answered by Redis, in ms",
            Better::Neither,
        ),
        metric("ms a call", "How long a call takes, in ms", Better::Neither),
        metric(
            "ms beyond the deadline",
            "Of the calls that took longer than their deadline of 25 ms: by how much, in ms",
            Better::Neither,
        ),
        metric("calls", "Calls", Better::Neither),
        metric(
            "bytes a limit in Redis",
            "Bytes of the server's memory for a limit that is spent",
            Better::Less,
        ),
    ],
    drawings: &[Drawing {
        name: "redis-decisions",
        title: "Thousand decisions a second, 64 callers on one connection, each with a key of its own",
        metric: "thousand decisions a second",
        part: "",
        shape: Shape::Bars {
            case: "64 callers, own keys",
        },
    }],
    why: "Where many callers of a process share a limit, they go on one trip together, and a decision costs less than a plain \
          `SET` each. Where each has a key of its own, each makes a trip of its own, and the server is what is busy: our script \
          takes about twice the time there that Stripe's does. It reads the server's clock, counts exact fractions, knows a \
          state that is lost or older than known, and can ask several limits at once, all or none; Stripe's trusts the clock of \
          each client, and counts in whole seconds. With one caller the way there and back outweighs the script. A sliding log \
          keeps each permit as a member of a set, and the more pass together, the more it has to keep: its bytes grow with the \
          limit, those of the others do not. What Redis has refused is known until then, and refused again without a trip.\n\n\
          A frozen server is only known by calls that run out of time: three in a row. So who asks alone waits for three \
          deadlines, and where many ask at once the first deadline tells. A killed one closes its connections, and is known at \
          once. While it is down, a task tries to connect, at most half a second apart, and that is how long a server that \
          was started again waits to be found; a frozen one has the attempt already when it goes on. A call that runs out of \
          time comes back as exactly as tokio's timers let it: compare with the bare timeout. Who stands in line with `acquire` is let \
          pass by the deadline of a trip, and may have waited for the one before as well. A server whose answers take most \
          of the deadline is as good as none: who waits in line behind a trip has only the rest, and who connects anew makes \
          two trips within one deadline. With such a server, set a longer one.",
};

const fn metric(name: &'static str, heading: &'static str, better: Better) -> Metric {
    Metric {
        name,
        heading,
        better,
    }
}
