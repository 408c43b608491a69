//! One worker: a process that sends what it has as fast as the limit lets it.

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
use paceline::{policy::SlidingLog, prelude::*, redis::Redis};
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use crate::{
    policy::Policy,
    provider::SENT_AT,
    strict::{self, reason},
};

/// What a worker is told on its command line.
#[derive(Args, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Task {
    #[arg(value_enum)]
    pub(crate) policy: Policy,
    /// Its URL.
    pub(crate) redis: String,
    /// Its address.
    pub(crate) provider: String,
    pub(crate) number: u32,
    /// The limit: so many in any window of so many microseconds.
    pub(crate) requests: u32,
    pub(crate) window: u64,
}

/// What a worker says at its end, on standard output, as JSON.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Account {
    /// What passed the limit.
    pub(crate) sent: u64,
    /// Of these, what nobody answered, and why.
    pub(crate) unanswered: u64,
    pub(crate) last_failure: Option<String>,
    /// Of [`paceline::redis::Stats`].
    pub(crate) outages: u64,
    pub(crate) lost_states: u64,
    pub(crate) passed_alone: u64,
}

impl Task {
    /// The arguments that are parsed into it.
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

/// Is ready, and sends from the first byte on standard input to its end. That ends also if the fleet is killed.
pub(crate) async fn run(task: &Task) -> Result<(), String> {
    let redis = Redis::open(&task.redis, task.policy.when_down());
    let redis = redis.map_err(|unfit| unfit.to_string())?;
    let policy = SlidingLog::new(task.requests, Duration::from_micros(task.window));
    let limit = redis.limit("provider", policy);
    let limit = limit.map_err(|unfit| unfit.to_string())?;

    let client = strict::client()?;
    let url = format!("http://{}/workers/{}", task.provider, task.number);
    // What is slow only once is over before it counts.
    let _ = redis.connect().await;
    let greeted = client.get(&url).send().await;
    greeted.map_err(|error| format!("the provider: {}", reason(&error)))?;
    told().await;

    let mut account = Account::default();
    // There is always more to be sent.
    let requests = stream::iter(0_u64..).pace(limit);
    let mut requests = pin!(requests.take_until(told_to_stop()));
    while requests.next().await.is_some() {
        let sent = client.post(&url).header(SENT_AT, micros_now()).send().await;
        account.sent += 1;
        // A refusal is no reason to stop: the question is what the limit does.
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

/// Whether a byte came, and not the end.
async fn told() -> bool {
    // What cannot be read has ended.
    tokio::io::stdin().read(&mut [0]).await.unwrap_or(0) > 0
}

async fn told_to_stop() {
    while told().await {}
}

/// Since 1970.
pub(crate) fn micros_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
