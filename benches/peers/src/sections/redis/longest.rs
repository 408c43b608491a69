//! How long calls take at most, whatever the server does: no longer than their deadline, and by how much they miss it.

use std::time::{Duration, Instant};

use paceline::policy::{Decision, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::figures::Notes;
use crate::measure::{Extent, quantile};

use super::super::pacing::Flavour;
use super::servers::{Relay, Server};
use super::{DEADLINE, connected, run};

const MILLIS: &str = "ms a call";
const BEYOND: &str = "ms beyond the deadline";
const COUNTS: &str = "calls";

const CALLERS: u32 = 64;
const KEYS: u32 = 16;

/// The longest time between two calls of one caller.
const PAUSE: Duration = Duration::from_millis(5);

/// How long the server does it.
const EVENT: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
enum Event {
    Nothing,
    Freeze,
    Kill,
    /// The delay of each answer.
    Delay(Duration),
}

/// What the server does, and how it is asked meanwhile.
const EVENTS: [(&str, Event, Manner); 7] = [
    ("well", Event::Nothing, Manner::Tries),
    ("answers 5 ms late", late(5), Manner::Tries),
    ("answers 20 ms late", late(20), Manner::Tries),
    ("answers 100 ms late", late(100), Manner::Tries),
    ("frozen", Event::Freeze, Manner::Tries),
    ("frozen, acquire", Event::Freeze, Manner::Acquires),
    ("killed", Event::Kill, Manner::Tries),
];

#[derive(Clone, Copy, Debug)]
enum Manner {
    Tries,
    Acquires,
}

const fn late(millis: u64) -> Event {
    Event::Delay(Duration::from_millis(millis))
}

/// What tokio makes of such a deadline here and now.
const BARE: &str = "bare tokio timeout of 25 ms";

#[derive(Debug, Default)]
struct Calls {
    millis: Vec<f64>,
    passed_alone: u64,
}

pub(super) fn add_to(notes: &mut Notes, extent: Extent) {
    let mut all = EVENTS.map(|_| Calls::default());
    let mut bare = Vec::new();
    let done = run(Flavour::TwoThreads, async {
        for _ in 0..extent.pick(7, 1) {
            for ((_, event, manner), calls) in EVENTS.iter().zip(&mut all) {
                event.round(*manner, calls, &mut bare).await;
            }
        }
    });
    let of = |value: f64| done.clone().map(|()| value);
    for ((name, ..), calls) in EVENTS.iter().zip(&all) {
        for (case, share) in [
            ("median", 0.5),
            ("99 %", 0.99),
            ("99.9 %", 0.999),
            ("longest", 1.0),
        ] {
            notes.add(MILLIS, name, case, of(quantile(&calls.millis, share)));
        }
    }
    let deadline = DEADLINE.as_secs_f64() * 1e3;
    let beyond = |millis: &[f64]| -> Vec<f64> {
        let beyond = millis.iter().map(|millis| millis - deadline);
        beyond.filter(|beyond| *beyond > 0.0).collect()
    };
    let late = all.iter().map(|calls| beyond(&calls.millis));
    let late: Vec<Vec<f64>> = late.collect();
    let rows = EVENTS.iter().map(|(name, ..)| *name).zip(&late);
    for (name, late) in rows.chain([(BARE, &beyond(&bare))]) {
        for (case, share) in [("median", 0.5), ("99 %", 0.99), ("longest", 1.0)] {
            let none = || Err("no call took as long as the deadline".to_owned());
            let value = if late.is_empty() {
                none()
            } else {
                of(quantile(late, share))
            };
            notes.add(BEYOND, name, case, value);
        }
    }
    for (((name, ..), calls), late) in EVENTS.iter().zip(&all).zip(&late) {
        let count = calls.millis.len() as f64;
        notes.add(COUNTS, name, "all", of(count));
        notes.add(
            COUNTS,
            name,
            "longer than the deadline",
            of(late.len() as f64),
        );
        let alone = 100.0 * calls.passed_alone as f64 / count;
        notes.add(COUNTS, name, "decided without Redis, in %", of(alone));
    }
}

impl Event {
    /// A server of its own, many callers that start at random times, and the event.
    async fn round(self, manner: Manner, calls: &mut Calls, bare: &mut Vec<f64>) {
        let mut server = Server::start().await;
        let relay = Relay::start(server.address());
        // A relay takes its part of the machine, so only the cases that need it go through it.
        let url = match self {
            Self::Delay(_) => relay.url(),
            _ => server.url(),
        };
        let redis = connected(&url, OutagePolicy::open()).await;
        let until = Instant::now() + EVENT;
        let mut callers = callers(&redis, manner, until);
        let mut timeouts = JoinSet::new();
        timeouts.spawn(bare_timeouts(until));
        sleep(PAUSE).await;
        match self {
            Self::Nothing => {}
            Self::Freeze => server.freeze(),
            Self::Kill => server.kill(),
            Self::Delay(delay) => relay.delay_replies(delay).await,
        }
        while let Some(millis) = callers.join_next().await {
            calls.millis.extend(millis.expect("it only asks"));
        }
        calls.passed_alone += redis.stats().passed_alone;
        bare.extend(timeouts.join_all().await.into_iter().flatten());
    }
}

/// Several callers for each key, which meet in one batch.
fn callers(redis: &Redis, manner: Manner, until: Instant) -> JoinSet<Vec<f64>> {
    let policy = TokenBucket::new(Rate::per_second(1_000_000), 1_000_000);
    let limits = redis.keyed("measured", policy).expect("it fits");
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let limit = limits
            .at(&(caller % KEYS).to_string())
            .expect("it is a key");
        callers.spawn(async move {
            let mut millis = Vec::new();
            while Instant::now() < until {
                sleep(PAUSE.mul_f64(fastrand::f64())).await;
                let start = Instant::now();
                let passed = match manner {
                    Manner::Tries => limit.try_acquire(1).await.is_ok_and(Decision::is_pass),
                    Manner::Acquires => limit.acquire(1).await.is_ok(),
                };
                millis.push(start.elapsed().as_secs_f64() * 1e3);
                assert!(passed, "open lets all pass");
            }
            millis
        });
    }
    callers
}

async fn bare_timeouts(until: Instant) -> Vec<f64> {
    let mut millis = Vec::new();
    while Instant::now() < until {
        sleep(PAUSE.mul_f64(fastrand::f64())).await;
        let start = Instant::now();
        let _ = timeout(DEADLINE, std::future::pending::<()>()).await;
        millis.push(start.elapsed().as_secs_f64() * 1e3);
    }
    millis
}
