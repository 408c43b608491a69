//! Every verb for every kind of limit: the call, or the promise that the verb would break.
//!
//! A cell holds code that is compiled, and in memory runs.

use std::error::Error;
use std::time::Duration;

use paceline::concurrency::{KeyedPermits, Permits};
use paceline::fair::FairShare;
use paceline::feedback::Feedback;
use paceline::limiter::{Combined, Fair, Limiter, Line, Switch, Switched};
use paceline::policy::FixedWindow;
use paceline::prelude::*;
use paceline_redis::{RedisKeyed, RedisLimiter, RedisPermits};

const MS: Duration = Duration::from_millis(1);

enum Cell {
    /// The code of the call.
    Call(&'static str),
    /// Why there is none.
    Hole(&'static str),
}

type Rows = Vec<(&'static str, Vec<Cell>)>;

/// A call that runs.
macro_rules! cell {
    ([$($call:tt)+]) => {{
        let _ = $($call)+;
        Cell::Call(stringify!($($call)+))
    }};
    ($hole:literal) => {
        Cell::Hole($hole)
    };
}

/// A call of a limit on a server, which is compiled only. Its variables are those of the first line.
macro_rules! remote_cell {
    ($limits:tt [$($call:tt)+]) => {{
        remote_cell!(@compile $limits [$($call)+]);
        Cell::Call(stringify!($($call)+))
    }};
    ($limits:tt $hole:literal) => {
        Cell::Hole($hole)
    };
    (@compile ($($limit:ident: $kind:ty),+) [$($call:tt)+]) => {
        let _ = |$($limit: $kind),+| async move {
            // A call is of one kind.
            let _ = ($(&$limit,)+);
            let _ = $($call)+;
            Ok::<(), Box<dyn Error>>(())
        };
    };
}

/// A row for each verb: the cells in memory, and those in Redis.
macro_rules! rows {
    ($limits:tt $($verb:ident: $($cell:tt),+; $($remote:tt),+;)+) => {
        vec![$((
            stringify!($verb),
            vec![$(cell!($cell),)+ $(remote_cell!($limits $remote),)+],
        )),+]
    };
}

const RATES: [&str; 8] = [
    "Shared",
    "Keyed",
    "Fair",
    "Combined",
    "Switched",
    "Line",
    "RedisLimiter",
    "RedisKeyed",
];

/// Limits of a rate. Each has room for all calls.
async fn rates() -> Rows {
    let policy = FixedWindow::new(10_000, Duration::from_secs(1));
    let share = FairShare::new(10_000, Duration::from_secs(1));
    let feedback = &Feedback::parse([("Retry-After", "1")], Duration::ZERO);
    let shared = policy.shared();
    let keyed = policy.keyed::<&str>();
    let fair = Fair::<&str>::new(share);
    let combined = Combined::new((policy.shared(), keyed.at("ann")));
    let switched = Switched::new(policy.shared(), Switch::new());
    let line = Line::new(policy.shared());
    rows! {
        (redis: RedisLimiter<FixedWindow>, redis_keyed: RedisKeyed<FixedWindow>)

        acquire: [shared.acquire(1).await], [keyed.acquire("ann", 1).await], [fair.acquire("ann", 1).await],
            [combined.acquire(1).await], [switched.acquire(1).await], [line.acquire(1).await];
            [redis.acquire(1).await], [redis_keyed.at("ann")?.acquire(1).await];
        acquire_one: [shared.acquire_one().await], [keyed.acquire_one("ann").await], [fair.acquire_one("ann").await],
            [combined.acquire_one().await], [switched.acquire_one().await], [line.acquire_one().await];
            [redis.acquire_one().await], [redis_keyed.at("ann")?.acquire_one().await];
        acquire_within: [shared.acquire_within(1, MS).await], [keyed.acquire_within("ann", 1, MS).await],
            [fair.acquire_within("ann", 1, MS).await], [combined.acquire_within(1, MS).await],
            [switched.acquire_within(1, MS).await], [line.acquire_within(1, MS).await];
            [redis.acquire_within(1, MS).await], [redis_keyed.at("ann")?.acquire_within(1, MS).await];
        acquire_blocking: [shared.acquire_blocking(1, MS)], [keyed.at("ann").acquire_blocking(1, MS)],
            [fair.at("ann").acquire_blocking(1, MS)], [combined.acquire_blocking(1, MS)],
            [switched.acquire_blocking(1, MS)], [line.acquire_blocking(1, MS)];
            [redis.acquire_blocking(1, MS)], [redis_keyed.at("ann")?.acquire_blocking(1, MS)];
        try_acquire: [shared.try_acquire(1)], [keyed.try_acquire(&"ann", 1)], [fair.try_acquire(&"ann", 1)],
            [combined.try_acquire(1).await], [switched.try_acquire(1).await], [line.try_acquire(1).await];
            [redis.try_acquire(1).await], [redis_keyed.at("ann")?.try_acquire(1).await];
        peek: [shared.peek(1)], [keyed.peek(&"ann", 1)], [fair.peek(&"ann", 1)],
            [combined.peek(1)], [switched.limiter().peek(1)], [line.limiter().peek(1)];
            [redis.peek(1).await], [redis_keyed.at("ann")?.peek(1).await];
        status: [shared.status()], [keyed.status(&"ann")], [fair.status(&"ann")],
            [combined.status()], [switched.status()], [line.status()];
            [redis.status()], [redis_keyed.at("ann")?.status()];
        reserve: [shared.reserve(1).await], [keyed.at("ann").reserve(1).await], [fair.at("ann").reserve(1).await],
            [combined.reserve(1).await], [switched.reserve(1).await], [line.reserve(1).await];
            [redis.reserve(1).await], [redis_keyed.at("ann")?.reserve(1).await];
        reserve_within: [shared.reserve_within(1, MS).await], [keyed.at("ann").reserve_within(1, MS).await],
            [fair.at("ann").reserve_within(1, MS).await], [combined.reserve_within(1, MS).await],
            [switched.reserve_within(1, MS).await], [line.reserve_within(1, MS).await];
            [redis.reserve_within(1, MS).await], [redis_keyed.at("ann")?.reserve_within(1, MS).await];
        try_reserve: [shared.try_reserve(1)], [keyed.at("ann").try_reserve(1)], [fair.at("ann").try_reserve(1)],
            [combined.try_reserve(1)], [switched.try_reserve(1)], [line.limiter().try_reserve(1)];
            "its answer takes a round trip: `reserve_within` no time", "its answer takes a round trip: `reserve_within` no time";
        charge: [shared.charge(1)], [keyed.charge(&"ann", 1)], [fair.at("ann").charge(1)],
            [combined.charge(1)], [switched.charge(1)], [line.charge(1)];
            [redis.charge(1).await], [redis_keyed.at("ann")?.charge(1).await];
        refund: [shared.refund(1)], [keyed.with(&"ann", |limit| limit.refund(1))], [fair.at("ann").refund(1)],
            [combined.limits().0.refund(1)], [switched.limiter().refund(1)], [line.limiter().refund(1)];
            [redis.refund(1).await], [redis_keyed.at("ann")?.refund(1).await];
        apply_feedback: [shared.apply_feedback(feedback)], [keyed.with(&"ann", |limit| limit.apply_feedback(feedback))],
            [fair.apply_feedback(feedback)], [combined.limits().0.apply_feedback(feedback)],
            [switched.limiter().apply_feedback(feedback)], [line.limiter().apply_feedback(feedback)];
            [redis.apply_feedback(feedback).await], [redis_keyed.at("ann")?.apply_feedback(feedback).await];
        pause_for: [shared.pause_for(MS)], [keyed.with(&"ann", |limit| limit.pause_for(MS))], [fair.pause_for(MS)],
            [combined.limits().0.pause_for(MS)], [switched.limiter().pause_for(MS)], [line.limiter().pause_for(MS)];
            [redis.pause_for(MS).await], [redis_keyed.at("ann")?.pause_for(MS).await];
        resume: [shared.resume()], [keyed.with(&"ann", |limit| limit.resume())], [fair.resume()],
            [combined.limits().0.resume()], [switched.limiter().resume()], [line.limiter().resume()];
            [redis.resume().await], [redis_keyed.at("ann")?.resume().await];
        paused_for: [shared.paused_for()], [keyed.with(&"ann", |limit| limit.paused_for())], [fair.paused_for()],
            [combined.limits().0.paused_for()], [switched.limiter().paused_for()], [line.limiter().paused_for()];
            [redis.paused_for()], [redis_keyed.at("ann")?.paused_for()];
        set_remaining: [shared.set_remaining(9_000, MS)], [keyed.with(&"ann", |limit| limit.set_remaining(9_000, MS))],
            "each client gets its default share in a cycle", [combined.limits().0.set_remaining(9_000, MS)],
            [switched.limiter().set_remaining(9_000, MS)], [line.limiter().set_remaining(9_000, MS)];
            "replies reach the processes out of order, and the last one would count for all", "replies reach the processes out of order, and the last one would count for all";
        reset: [shared.reset()], [keyed.with(&"ann", |limit| limit.reset())],
            "what a client takes from others is owed to them", [combined.limits().0.reset()],
            [switched.limiter().reset()], [line.limiter().reset()];
            "what the fleet has spent stays spent, whatever one process asks", "what the fleet has spent stays spent, whatever one process asks";
        retune: [shared.retune(policy)], [keyed.with(&"ann", |limit| limit.retune(policy))], [fair.retune(share)],
            [combined.limits().0.retune(policy)], [switched.limiter().retune(policy)], [line.limiter().retune(policy)];
            [redis.retune(FixedWindow::new(1, MS)).await], [redis_keyed.at("ann")?.retune(FixedWindow::new(1, MS)).await];
        stats: [shared.stats()], [keyed.stats()], [fair.stats()],
            [combined.limits().0.stats()], [switched.limiter().stats()], [line.limiter().stats()];
            "each process sees its own requests: an observer counts them", "each process sees its own requests: an observer counts them";
    }
}

const PERMITS: [&str; 3] = ["Permits", "KeyedPermits", "RedisPermits"];

/// Limits of what is under way. A permit comes back when it is dropped, so there is nothing to reserve, to charge or to give back.
async fn permits() -> Rows {
    let permits = Permits::new(100);
    let keyed = KeyedPermits::<&str>::new(100);
    rows! {
        (redis: RedisPermits)

        acquire: [permits.acquire().await], [keyed.acquire("ann").await]; [redis.acquire().await];
        acquire_many: [permits.acquire_many(2).await], [keyed.acquire_many("ann", 2).await];
            "a lease is of one permit";
        acquire_within: [permits.acquire_within(MS).await], [keyed.acquire_within("ann", MS).await];
            [redis.acquire_within(MS).await];
        try_acquire: [permits.try_acquire()], [keyed.try_acquire(&"ann")]; [redis.try_acquire().await];
        try_acquire_many: [permits.try_acquire_many(2)], [keyed.try_acquire_many(&"ann", 2)];
            "a lease is of one permit";
        in_use: [permits.in_use()], [keyed.in_use(&"ann")]; [redis.in_use().await];
        resize: [permits.resize(100)], "an idle key costs nothing and is forgotten";
            "the number is that of the configuration, in each process";
        stats: [permits.stats()], [keyed.stats()];
            "each process sees its own requests: an observer counts them";
    }
}

/// Why kinds in memory have no such verb. Each call is of its verb.
fn holes(kinds: &[&'static str], rows: Rows) -> Vec<(&'static str, &'static str)> {
    let mut holes = Vec::new();
    for (verb, cells) in rows {
        assert_eq!(cells.len(), kinds.len(), "{verb}");
        for (cell, kind) in cells.iter().zip(kinds) {
            match cell {
                Cell::Call(code) => {
                    let code = code.replace(char::is_whitespace, "");
                    assert!(code.contains(&format!(".{verb}(")), "{code} is no {verb}");
                }
                Cell::Hole(_) if kind.contains("Redis") => {}
                Cell::Hole(reason) => holes.push((*kind, *reason)),
            }
        }
    }
    holes
}

#[tokio::test(start_paused = true)]
async fn every_kind_has_every_verb_or_says_which_promise_it_would_break() {
    let rates = rates().await;
    let verbs = include_str!("../../../../src/limiter/shared.rs").lines();
    let verbs = verbs.filter_map(|line| line.trim().strip_prefix("pub fn ")?.split_once("(&self"));
    for (verb, _) in verbs {
        let has_row = rates.iter().any(|(row, _)| *row == verb);
        // The `acquire` of the other kinds has a handle of its own, and `acquire_by` is for a queue by deadline.
        let of_one_kind = ["policy", "waiting", "acquire_owned", "acquire_by"];
        let is_of_one_kind = of_one_kind.contains(&verb);
        assert!(has_row || is_of_one_kind, "`{verb}` has no row");
    }
    let mut holes_in_memory = holes(&RATES, rates);
    holes_in_memory.extend(holes(&PERMITS, permits().await));
    assert!(holes_in_memory.len() <= 3, "{holes_in_memory:?}");
    for (kind, reason) in holes_in_memory {
        let source = match kind {
            "Fair" => include_str!("../../../../src/limiter/fair.rs"),
            "KeyedPermits" => include_str!("../../../../src/concurrency/keyed_permits.rs"),
            kind => panic!("{kind} has a hole"),
        };
        let words = source.split_whitespace().filter(|word| *word != "///");
        let docs = words.collect::<Vec<_>>().join(" ");
        assert!(
            docs.contains(reason),
            "the docs of {kind} say why: {reason}"
        );
    }
}
