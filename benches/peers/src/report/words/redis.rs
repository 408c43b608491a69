//! What decisions in Redis cost, and what happens without it.

use super::super::plot::{Drawing, Shape};
use super::{Better, Shown, Words, metric};

pub(super) const REDIS: &[Words] = &[DECISIONS, HERDS, OUTAGES];

const DECISIONS: Words = Words {
    title: "Decisions in Redis",
    question: "A server on the same machine, and a client of one thread: a core each. Each caller requests one permit after the other \
               from a limit that does not bind, on one connection or on one each. `SET` is the same client library, and decides \
               nothing. Stripe's script is written anew from its description: a token bucket in two keys, in whole seconds of the \
               client's clock.",
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
            "µs in the script a decision",
            "The server's time in the command or script, in µs, for each decision: many can share one call",
            Better::Less,
        ),
        metric(
            "share of Stripe's time in the script",
            "The server's time in the script for each µs of Stripe's script in the same round",
            Better::Neither,
        ),
        metric(
            "allocations a decision",
            "Allocations of the client for each decision, one of them by the measurement",
            Better::Less,
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
            "bytes a limit in Redis",
            "Bytes of the server's memory for a limit that is spent",
            Better::Less,
        ),
    ],
    shown: Shown::Table {
        metric: "thousand decisions a second",
        part: "",
    },
    why: "Keys that ask at the same time share a call of up to 64 keys, and the callers of one key share its part. So with many callers a \
          decision costs less than a call of its own. With one caller the round trip outweighs the script, and with 50 connections \
          nothing is shared. One limit takes a short path in the script, several at once the long one. All of them read the \
          server's clock, count exact fractions, and find a state that is lost; Stripe's script trusts the clock of each client. A \
          refusal is cached until its retry time.",
};

const HERDS: Words = Words {
    title: "A herd of keys in Redis",
    question: "One process has a limit of 1/s for each of many keys, and a waiter for each key. The deadline is the default of 25 ms. More \
               than the allowed permits can pass only if the client takes the server for down and the outage policy is `open`.",
    metrics: &[
        metric(
            "permits in 3.5 s",
            "Permits in 3.5 s of keys that have 1 a second each, with a waiter for each key",
            Better::Neither,
        ),
        metric(
            "share of the allowed permits",
            "The same as a share of what is allowed. More than 1 is too much",
            Better::Neither,
        ),
        metric(
            "outages of a server that works",
            "Outages that the client counted meanwhile. The server worked all the time",
            Better::Neither,
        ),
    ],
    shown: Shown::Plot(Drawing {
        name: "redis-herd",
        title: "Permits in 3.5 s of keys with 1/s each: all that is allowed passes, and no more",
        metric: "permits in 3.5 s",
        part: "",
        shape: Shape::Lines {
            x: "keys, with a waiter each",
            is_y_log: true,
        },
    }),
    why: "How many keys are under way follows the measured time of calls, so a herd waits in the client and not at the server, and all that \
          is allowed passes, with no outage and no surplus.",
};

const OUTAGES: Words = Words {
    title: "Outages of Redis",
    question: "Real servers are stopped (`SIGSTOP`), killed, and put behind a relay that delays replies. Callers come at random times, four \
               to a key. The deadline is the default of 25 ms.",
    metrics: &[
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
    ],
    shown: Shown::Table {
        metric: "ms a call",
        part: "",
    },
    why: "Only silence shows that a server is frozen: three deadlines in a row without any answer, for one caller as for many. A killed \
          server closes its connections, so the client knows at once. During an outage a task tries to connect, at most a quarter of a \
          second apart. A call that times out ends as exactly as tokio's timers allow. A waiter in `acquire` passes when its call has \
          failed. If a round trip takes most of the deadline, a longer deadline is better.",
};
