//! Limits in Redis, on servers of the section's own: what a decision costs, and what an outage does.

mod bytes;
mod decisions;
mod herds;
mod longest;
mod outages;
mod rates;
mod trips;

#[allow(
    unfulfilled_lint_expectations,
    reason = "here tokio's sleep is not banned, and an expectation of this cannot be expected"
)]
#[expect(
    dead_code,
    unused_imports,
    reason = "no measurement needs a cluster or a replica"
)]
#[path = "../../../../../crates/paceline-redis/tests/redis/servers/mod.rs"]
mod servers;

pub(crate) use herds::alone;

use std::future::Future;
use std::process::{Command, Stdio};
use std::time::Duration;

use paceline_redis::{OutagePolicy, Redis};

use crate::figures::{Figure, Notes};
use crate::machine::redis_server;
use crate::measure::Extent;

use super::pacing::{Flavour, caught};

/// How long a call may take, with each outage policy.
const DEADLINE: Duration = Duration::from_millis(25);

/// Between two attempts at something that may take a while.
const A_MOMENT: Duration = Duration::from_millis(1);

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("redis");
    if let Err(why) = is_there() {
        notes.add("calls", "redis-server", "measured", Err::<f64, _>(why));
        return notes.figures;
    }
    rates::add_to(&mut notes, extent);
    decisions::add_to(&mut notes, extent);
    herds::add_to(&mut notes, extent);
    trips::add_to(&mut notes, extent);
    outages::add_to(&mut notes, extent);
    longest::add_to(&mut notes, extent);
    bytes::add_to(&mut notes, extent);
    notes.figures
}

/// Whether servers can be started, or why not.
fn is_there() -> Result<(), String> {
    let program = redis_server();
    let mut asked = Command::new(&program);
    asked.arg("--version").stdout(Stdio::null());
    match asked.status() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "nothing was measured in Redis, since {} cannot be started: {error}",
            program.display()
        )),
    }
}

/// On a runtime of its own. A panic is an error, and the rest goes on.
fn run<T>(flavour: Flavour, work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = flavour.runtime();
    let done = caught(|| runtime.block_on(work));
    runtime.shutdown_background();
    done
}

/// With a connection, however busy the machine is.
async fn connected(url: &str, when_down: OutagePolicy) -> Redis {
    let redis = Redis::open(url, when_down).expect("it is a URL");
    let redis = redis.with_deadline(DEADLINE).expect("it is long enough");
    while redis.connect().await.is_err() {
        tokio::time::sleep(A_MOMENT).await;
    }
    redis
}
