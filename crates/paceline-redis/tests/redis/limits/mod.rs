//! Limits in Redis, through the public API, in real time.

mod any;
mod any_of;
mod control;
mod keyed;
mod passing;
mod reserved;
mod settle;
mod status;
mod total;
mod watched;

use std::future::poll_fn;
use std::time::Duration;

use paceline::policy::{Decision, SlidingLog};
use paceline::time::{Clock, Tick, Timer};
use paceline_redis::{OutagePolicy, Redis, RedisLimiter};

use crate::servers::Server;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Long enough for a busy machine.
pub(crate) const PATIENT: Duration = Duration::from_secs(10);

/// A client with its own connection, which is not open yet. A server takes it for a process.
pub(crate) fn client(url: &str, when_down: OutagePolicy, deadline: Duration) -> Redis {
    let redis = Redis::open(url, when_down).unwrap();
    redis.with_deadline(deadline).unwrap()
}

/// A connected client with a long deadline, for tests in which nothing fails.
pub(crate) async fn redis(server: &Server) -> Redis {
    let redis = client(&server.url(), OutagePolicy::closed(), PATIENT);
    redis.connect().await.unwrap();
    redis
}

/// So many permits a minute.
pub(crate) fn log(permits: u32) -> SlidingLog {
    SlidingLog::new(permits, MINUTE)
}

/// A limit of so many permits a minute, with a server of its own.
pub(crate) async fn a_minute_of(permits: u32) -> (Server, Redis, RedisLimiter<SlidingLog>) {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", log(permits)).unwrap();
    (server, redis, limit)
}

pub(crate) async fn pause(time: Duration) {
    let mut timer = Timer::new();
    timer.arm(time);
    poll_fn(|cx| timer.poll_elapsed(cx)).await;
}

#[track_caller]
pub(crate) fn passed<E: std::fmt::Debug>(answer: Result<Decision, E>) {
    assert_eq!(answer.unwrap(), Decision::Pass);
}

/// For longer than a test takes.
#[track_caller]
pub(crate) fn denied<E: std::fmt::Debug>(answer: Result<Decision, E>) {
    let retry_in = wait_of(answer);
    assert!(retry_in > MINUTE / 2, "{retry_in:?}");
}

#[track_caller]
pub(crate) fn wait_of<E: std::fmt::Debug>(answer: Result<Decision, E>) -> Duration {
    match answer {
        Ok(Decision::Wait { retry_in }) => retry_in,
        other => panic!("not a wait: {other:?}"),
    }
}

/// Records when items passed, and counts the most in any window.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    clock: Clock,
    at: Vec<Tick>,
}

impl Passed {
    pub(crate) fn note(&mut self) {
        let now = self.clock.now();
        self.at.push(now);
    }

    pub(crate) fn most_in(&self, window: Duration) -> usize {
        let ends = self.at.iter().enumerate();
        let counts = ends.map(|(end, last)| {
            let inside = self.at[..=end].iter().rev();
            inside
                .take_while(|first| last.since(**first) < window)
                .count()
        });
        counts.max().unwrap_or(0)
    }
}

/// How many permits the server has recorded for a [`SlidingLog`].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the script counts whole permits in doubles"
)]
pub(crate) async fn counted_in(server: &Server, key: &str) -> u64 {
    let state: Vec<u8> = server.cli(&["GET", key]).await;
    let number = |at: usize| f64::from_le_bytes(state[at..at + 8].try_into().unwrap());
    let [before, sum] = [17, 25].map(number);
    (sum - before) as u64
}
