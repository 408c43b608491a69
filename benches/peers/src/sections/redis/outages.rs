//! How long it takes to notice that Redis is gone, and that it is back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paceline::policy::TokenBucket;
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisStats};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::figures::Notes;
use crate::measure::{Extent, quantile};

use super::super::pacing::Flavour;
use super::servers::{PATIENCE, Server};
use super::{connected, run};

const NOTICED: &str = "ms to notice";
const RETURNED: &str = "ms to return";

/// Each caller asks again so long after an answer.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outage {
    /// The server is stopped, and answers nothing. Its connections stay open.
    Frozen,
    /// Its connections break, and new ones are refused.
    Killed,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    outage: Outage,
    callers: u32,
    lasts: Duration,
}

/// Milliseconds, of each round.
#[derive(Debug, Default)]
struct Rounds {
    noticed: Vec<f64>,
    returned: Vec<f64>,
}

pub(super) fn add_to(notes: &mut Notes, extent: Extent) {
    let (short, long) = extent.pick((300, 1_000), (50, 100));
    let [short, long] = [short, long].map(Duration::from_millis);
    let trials = [Outage::Frozen, Outage::Killed].map(|outage| {
        [(1, short), (64, long)].map(|(callers, lasts)| Trial {
            outage,
            callers,
            lasts,
        })
    });
    let mut all: Vec<(Trial, Rounds)> = trials
        .as_flattened()
        .iter()
        .map(|trial| (*trial, Rounds::default()))
        .collect();
    let done = run(Flavour::TwoThreads, async {
        for _ in 0..extent.pick(3, 1) {
            for (trial, rounds) in &mut all {
                let (noticed, returned) = trial.run(extent).await;
                rounds.noticed.push(noticed);
                rounds.returned.push(returned);
            }
        }
    });
    for (trial, rounds) in &all {
        let asked = match trial.callers {
            1 => "1 caller".to_owned(),
            callers => format!("{callers} callers"),
        };
        let row = format!("{}, {asked}", trial.outage.name());
        note(notes, NOTICED, &row, &rounds.noticed, &done);
    }
    for (trial, rounds) in &all {
        let row = format!(
            "{} for {} s",
            trial.outage.name(),
            trial.lasts.as_secs_f64()
        );
        note(notes, RETURNED, &row, &rounds.returned, &done);
    }
}

fn note(notes: &mut Notes, metric: &str, row: &str, values: &[f64], done: &Result<(), String>) {
    for (case, share) in [("median", 0.5), ("longest", 1.0)] {
        let value = done.clone().map(|()| quantile(values, share));
        notes.add(metric, row, case, value);
    }
}

impl Outage {
    const fn name(self) -> &'static str {
        match self {
            Self::Frozen => "frozen",
            Self::Killed => "killed",
        }
    }

    fn begin(self, server: &mut Server) {
        match self {
            Self::Frozen => server.freeze(),
            Self::Killed => server.kill(),
        }
    }

    /// When the server answers another client again.
    async fn end(self, server: &mut Server) {
        match self {
            Self::Frozen => server.thaw(),
            Self::Killed => server.start_again().await,
        }
    }
}

impl Trial {
    /// Milliseconds until the first call that did not wait for Redis, and from its return to the first that was answered by it.
    async fn run(self, extent: Extent) -> (f64, f64) {
        let mut server = Server::start().await;
        let redis = connected(&server.url(), OutagePolicy::open()).await;
        let seen = Seen::default();
        let callers = self.callers(&redis, &seen);
        sleep(Duration::from_millis(20)).await;

        seen.look_out(redis.stats());
        let began = Instant::now();
        self.outage.begin(&mut server);
        let noticed = seen.first(|seen| seen.skipped).await;

        // Attempts to connect are made at times of their own: it ends at any time between two of them.
        let random = fastrand::f64() * extent.pick(0.5, 0.0);
        sleep(self.lasts + Duration::from_secs_f64(random)).await;
        seen.look_out(redis.stats());
        self.outage.end(&mut server).await;
        let back = Instant::now();
        let answered = seen.first(|seen| seen.answered).await;
        drop(callers);
        let millis = |from, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
        (millis(began, noticed), millis(back, answered))
    }

    /// They ask until this is dropped.
    fn callers(self, redis: &Redis, seen: &Seen) -> JoinSet<()> {
        let limits = redis.keyed(
            "measured",
            TokenBucket::new(Rate::per_second(1_000_000), 1_000_000),
        );
        let limits = limits.expect("it fits");
        let mut callers = JoinSet::new();
        for caller in 0..self.callers {
            let limit = limits.at(&caller.to_string()).expect("it is a key");
            let (redis, seen) = (redis.clone(), seen.clone());
            callers.spawn(async move {
                loop {
                    let _ = limit.try_acquire(1).await;
                    seen.note(redis.stats());
                    sleep(PAUSE).await;
                }
            });
        }
        callers
    }
}

/// What callers saw first after the observation began.
#[derive(Clone, Debug, Default)]
struct Seen {
    inner: Arc<Mutex<Firsts>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Firsts {
    before: RedisStats,
    /// A call that was not made, since Redis was known to be down.
    skipped: Option<Instant>,
    answered: Option<Instant>,
}

impl Seen {
    fn look_out(&self, before: RedisStats) {
        *self.locked() = Firsts {
            before,
            ..Firsts::default()
        };
    }

    /// After a call.
    fn note(&self, now: RedisStats) {
        let mut firsts = self.locked();
        if now.skipped > firsts.before.skipped {
            firsts.skipped.get_or_insert_with(Instant::now);
        }
        if now.answered > firsts.before.answered {
            firsts.answered.get_or_insert_with(Instant::now);
        }
    }

    async fn first(&self, of: fn(&Firsts) -> Option<Instant>) -> Instant {
        let seen = async {
            loop {
                let first = of(&self.locked());
                if let Some(first) = first {
                    return first;
                }
                sleep(PAUSE).await;
            }
        };
        let seen = tokio::time::timeout(PATIENCE, seen).await;
        seen.expect("an outage is noticed, and its end")
    }

    fn locked(&self) -> MutexGuard<'_, Firsts> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
