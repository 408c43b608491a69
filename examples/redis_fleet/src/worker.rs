//! One worker: a process that sends requests as fast as the limit allows.

#![expect(
    clippy::disallowed_types,
    reason = "a request says when it left, by the clock that all processes here have in common"
)]

use core::{pin::pin, time::Duration};
use std::{
    io::{self, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Args;
use futures::{StreamExt, stream};
use paceline::{policy::SlidingLog, prelude::*};
use paceline_redis::Redis;
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use crate::{
    policy::Policy,
    provider::SENT_AT,
    strict::{self, reason},
};

/// The command line of a worker.
#[derive(Args, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Task {
    #[arg(value_enum)]
    pub(crate) policy: Policy,
    /// The URL of the server.
    pub(crate) redis: String,
    /// The address of the provider.
    pub(crate) provider: String,
    pub(crate) number: u32,
    /// The limit: a number of requests in any window, which is in microseconds.
    pub(crate) requests: u32,
    pub(crate) window: u64,
}

/// The report that a worker prints at its end, as JSON.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Account {
    /// The requests that passed the limit.
    pub(crate) sent: u64,
    /// How many of them got no answer, and why.
    pub(crate) unanswered: u64,
    pub(crate) last_failure: Option<String>,
    /// From [`paceline_redis::RedisStats`].
    pub(crate) outages: u64,
    pub(crate) lost_states: u64,
    pub(crate) passed_alone: u64,
}

impl Task {
    /// The arguments that are parsed into this.
    pub(crate) fn words(&self) -> Vec<String> {
        vec![
            "worker".into(),
            self.policy.as_str().into(),
            self.redis.clone(),
            self.provider.clone(),
            self.number.to_string(),
            self.requests.to_string(),
            self.window.to_string(),
        ]
    }
}

/// Sends from the first byte on standard input to its end. The end comes too if the fleet is killed.
pub(crate) async fn run(task: &Task) -> Result<(), String> {
    let redis = Redis::open(&task.redis, task.policy.when_down());
    let redis = redis.map_err(|unfit| unfit.to_string())?;
    let policy = SlidingLog::new(task.requests, Duration::from_micros(task.window));
    let limit = redis.limit("provider", policy);
    let limit = limit.map_err(|unfit| unfit.to_string())?;

    let client = strict::client()?;
    let url = format!("http://{}/workers/{}", task.provider, task.number);
    // A first request, so that slow first steps are over before the run is measured.
    let _ = redis.connect().await;
    let greeted = client.get(&url).send().await;
    greeted.map_err(|error| format!("the provider: {}", reason(&error)))?;
    next_byte().await;

    let mut account = Account::default();
    // There is always another request to send.
    let requests = stream::iter(0_u64..).pace(limit);
    let mut requests = pin!(requests.take_until(until_stopped()));
    while requests.next().await.is_some() {
        let sent = client.post(&url).header(SENT_AT, micros_now()).send().await;
        account.sent += 1;
        // A refusal by the provider does not stop the worker.
        let answered =
            sent.map_err(|error| reason(&error))
                .and_then(|response| match response.status() {
                    StatusCode::OK | StatusCode::TOO_MANY_REQUESTS => Ok(()),
                    status => Err(format!("it answered {status}")),
                });
        if let Err(reason) = answered {
            account.unanswered += 1;
            account.last_failure = Some(reason);
        }
    }

    let stats = redis.stats();
    account.outages = stats.outages;
    account.lost_states = stats.lost_states;
    account.passed_alone = stats.passed_alone;
    let line = serde_json::to_string(&account).map_err(|error| format!("JSON: {error}"))?;
    writeln!(io::stdout(), "{line}").map_err(|error| format!("standard output: {error}"))
}

/// Whether there is a byte, and not the end.
async fn next_byte() -> bool {
    // An error counts as the end.
    tokio::io::stdin().read(&mut [0]).await.unwrap_or(0) > 0
}

async fn until_stopped() {
    while next_byte().await {}
}

/// In microseconds since 1970.
pub(crate) fn micros_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
